//! Field paths: find a value in the bytes of a job by the names on the way to it.
//!
//! One rule holds for lanes, priorities, ages, keys and templates. A name leads into a map. A number leads into a map
//! or a list; the first element of a list is 0. If a field occurs twice, the last one counts. A value is found as
//! it is written, digit by digit, without reading the rest of the job.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::suggest::nearest;

/// The names that lead to a value in a job, outermost first; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath(Vec<String>);

impl FieldPath {
    /// Reads `order.id`; `None` if a name is empty.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let names: Vec<String> = text.split('.').map(str::to_owned).collect();
        (!names.iter().any(String::is_empty)).then_some(Self(names))
    }

    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.0
    }

    /// The value in a job, as it is written. `None` if there is none, or if the job is no JSON.
    #[must_use]
    pub fn find<'j>(&self, job: &'j [u8]) -> Option<&'j str> {
        self.read(job).ok().flatten()
    }

    /// The value in a job, as it is written.
    ///
    /// # Errors
    /// If the job is no JSON.
    pub fn read<'j>(&self, job: &'j [u8]) -> Result<Option<&'j str>, serde_json::Error> {
        seek(&self.0, job)
    }

    /// The path that was probably meant, if the job has a field of a similar name.
    #[must_use]
    pub fn nearest(&self, job: &[u8]) -> Option<String> {
        #[expect(
            clippy::zero_sized_map_values,
            reason = "a JSON object is read as a map, and no value is needed"
        )]
        let fields = |depth: usize| {
            let map = seek(&self.0[..depth], job).ok()??;
            let fields: BTreeMap<Cow<'_, str>, IgnoredAny> = serde_json::from_str(map).ok()?;
            Some((depth, fields))
        };
        let (depth, fields) = (0..self.0.len()).rev().find_map(fields)?;
        if fields.contains_key(self.0[depth].as_str()) {
            return None;
        }
        let near = nearest(&self.0[depth], fields.keys().map(|name| &**name))?;
        let mut meant = self.0.clone();
        near.clone_into(&mut meant[depth]);
        Some(meant.join("."))
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

/// A text, number or truth value as text; `None` for `null`, a list or a map. `written` is JSON.
#[must_use]
pub fn scalar(written: &str) -> Option<Cow<'_, str>> {
    match written.as_bytes().first()? {
        b'"' => serde_json::from_str::<Text<'_>>(written).ok().map(|Text(text)| text),
        b'[' | b'{' | b'n' => None,
        _ => Some(Cow::Borrowed(written)),
    }
}

/// The elements of a list, as they are written; empty if `written` is no list.
#[must_use]
pub fn elements(written: &str) -> Vec<&str> {
    let elements: Result<Vec<&RawValue>, _> = serde_json::from_str(written);
    elements.map(|elements| elements.into_iter().map(RawValue::get).collect()).unwrap_or_default()
}

fn seek<'j>(names: &[String], job: &'j [u8]) -> Result<Option<&'j str>, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(job);
    Ok(Seek(names).deserialize(&mut reader)?.map(RawValue::get))
}

/// A text that is borrowed if it has no escapes.
#[derive(Deserialize)]
struct Text<'t>(#[serde(borrow)] Cow<'t, str>);

/// Follows the names to a value, and reads the rest only as far as JSON needs.
struct Seek<'p>(&'p [String]);

impl<'de> DeserializeSeed<'de> for Seek<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        if self.0.is_empty() {
            <&RawValue>::deserialize(reader).map(Some)
        } else {
            reader.deserialize_any(self)
        }
    }
}

impl<'de> Visitor<'de> for Seek<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(Text(name)) = fields.next_key()? {
            match self.0.split_first() {
                Some((first, rest)) if *name == **first => found = fields.next_value_seed(Seek(rest))?,
                _ => _ = fields.next_value::<IgnoredAny>()?,
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let wanted = self.0.split_first().and_then(|(name, rest)| Some((position(name)?, rest)));
        let mut found = None;
        for at in 0.. {
            match wanted {
                Some((position, rest)) if position == at => match elements.next_element_seed(Seek(rest))? {
                    Some(value) => found = value,
                    None => break,
                },
                _ => {
                    if elements.next_element::<IgnoredAny>()?.is_none() {
                        break;
                    }
                }
            }
        }
        Ok(found)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// The position in a list that a name means: digits alone.
fn position(name: &str) -> Option<usize> {
    name.bytes().all(|byte| byte.is_ascii_digit()).then(|| name.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at<'j>(job: &'j str, path: &str) -> Option<&'j str> {
        FieldPath::parse(path).unwrap().find(job.as_bytes())
    }

    #[test]
    fn fields_are_found_however_deep_they_lie() {
        let job = r#"{"a": {"x": [1, {"b": 2}], "b": {"c": "d\u0065"}}, "n": -1.50, "a2": null}"#;
        assert_eq!(at(job, "a.b.c"), Some(r#""d\u0065""#));
        assert_eq!(at(job, "n"), Some("-1.50"));
        assert_eq!(at(job, "a2"), Some("null"));
        assert_eq!(at(job, "a.x"), Some(r#"[1, {"b": 2}]"#));
        assert_eq!(at(job, "b"), None);
        assert_eq!(at(job, "a.b.c.d"), None);
        assert_eq!(at(r#"{"\u0061": 1, "a": 2}"#, "a"), Some("2"), "the last one counts");
    }

    #[test]
    fn a_number_leads_into_a_list_or_a_map() {
        let job = r#"{"items": [{"id": 1}, {"id": 2}, [3, 4]], "by": {"0": "map"}}"#;
        assert_eq!(at(job, "items.1.id"), Some("2"));
        assert_eq!(at(job, "items.2.0"), Some("3"));
        assert_eq!(at(job, "by.0"), Some("\"map\""));
        for beyond in ["items.3", "items.-1", "items.+1", "items.first", "items.99999999999999999999"] {
            assert_eq!(at(job, beyond), None, "{beyond}");
        }
        assert_eq!(at(r#"["a", "b"]"#, "1"), Some("\"b\""));
    }

    #[test]
    fn a_job_without_fields_has_none() {
        for job in ["7", "-7", "1.5", "\"a\"", "true", "null", "{}", "[]"] {
            assert_eq!(at(job, "a"), None, "{job}");
            assert!(FieldPath::parse("a").unwrap().read(job.as_bytes()).is_ok(), "{job}");
        }
        assert_eq!(at("{\"a\": 1", "a"), None);
        assert!(FieldPath::parse("a").unwrap().read(b"{\"a\": 1").is_err());
    }

    #[test]
    fn a_path_has_no_empty_name() {
        assert_eq!(FieldPath::parse("order.id").unwrap().names(), ["order", "id"]);
        for wrong in ["", ".", "a.", ".a", "a..b"] {
            assert_eq!(FieldPath::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_nearest_field_keeps_the_rest_of_the_path() {
        let near = |job: &str, path: &str| FieldPath::parse(path).unwrap().nearest(job.as_bytes());
        assert_eq!(near(r#"{"order": {"pol": 1}}"#, "order.pool").as_deref(), Some("order.pol"));
        assert_eq!(near(r#"{"order": {"pool": 1}}"#, "ordr.pool").as_deref(), Some("order.pool"));
        for (job, path) in [("{}", "a"), ("7", "a"), (r#"{"a": [1]}"#, "a.1"), (r#"{"a": null}"#, "a")] {
            assert_eq!(near(job, path), None, "{job} {path}");
        }
    }

    #[test]
    fn scalars_are_texts_numbers_and_truths() {
        assert_eq!(scalar(r#""d\u0065""#).as_deref(), Some("de"));
        assert_eq!(scalar("12").as_deref(), Some("12"));
        assert_eq!(scalar("true").as_deref(), Some("true"));
        assert_eq!((scalar("null"), scalar("[1]"), scalar("{}")), (None, None, None));
    }

    #[test]
    fn lists_are_taken_apart() {
        assert_eq!(elements(r#"["a", 1, {"b": [2]}]"#), [r#""a""#, "1", r#"{"b": [2]}"#]);
        assert_eq!(elements("null"), [""; 0]);
    }
}
