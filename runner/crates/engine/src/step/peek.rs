//! Field access: reads a few fields of a JSON job without parsing the rest.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Value at the end of `path`, as it is written. If a field occurs twice, the last one counts.
pub(crate) fn peek<'j>(job: &'j [u8], path: &[String]) -> Option<&'j str> {
    let mut reader = serde_json::Deserializer::from_slice(job);
    Along(path).deserialize(&mut reader).ok().flatten().map(RawValue::get)
}

/// Content of a string, or another value as it is written; `None` for `null`, a list or a map.
pub(crate) fn word(written: &str) -> Option<Cow<'_, str>> {
    match written.as_bytes().first()? {
        b'"' => serde_json::from_str::<Text<'_>>(written).ok().map(|Text(text)| text),
        b'[' | b'{' | b'n' => None,
        _ => Some(Cow::Borrowed(written)),
    }
}

/// Elements of a list, as they are written; empty for another value.
pub(crate) fn list(written: &str) -> Vec<&str> {
    struct Values;
    impl<'de> Visitor<'de> for Values {
        type Value = Vec<&'de str>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Self::Value, A::Error> {
            let mut list = Vec::new();
            while let Some(value) = values.next_element::<&RawValue>()? {
                list.push(value.get());
            }
            Ok(list)
        }
    }
    use serde::Deserializer as _;
    serde_json::Deserializer::from_str(written).deserialize_seq(Values).unwrap_or_default()
}

#[derive(Deserialize)]
struct Text<'t>(#[serde(borrow)] Cow<'t, str>);

/// Follows field names, outermost first.
struct Along<'p>(&'p [String]);

impl<'de> DeserializeSeed<'de> for Along<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        if self.0.is_empty() {
            <&RawValue>::deserialize(reader).map(Some)
        } else {
            reader.deserialize_any(self)
        }
    }
}

impl<'de> Visitor<'de> for Along<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(Text(key)) = entries.next_key()? {
            match self.0.split_first() {
                Some((first, rest)) if *key == **first => found = entries.next_value_seed(Along(rest))?,
                _ => _ = entries.next_value::<IgnoredAny>()?,
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(job: &str, path: &str) -> Option<String> {
        let path: Vec<String> = path.split('.').map(str::to_owned).collect();
        peek(job.as_bytes(), &path).map(str::to_owned)
    }

    #[test]
    fn fields_are_found_however_deep_they_lie() {
        let job = r#"{"a": {"x": [1, {"b": 2}], "b": {"c": "d\u0065"}}, "n": -1.50, "a2": null}"#;
        assert_eq!(at(job, "a.b.c").as_deref(), Some(r#""d\u0065""#));
        assert_eq!(at(job, "n").as_deref(), Some("-1.50"));
        assert_eq!(at(job, "a2").as_deref(), Some("null"));
        assert_eq!(at(job, "a.x").as_deref(), Some(r#"[1, {"b": 2}]"#));
        assert_eq!(at(job, "b"), None);
        assert_eq!(at(job, "a.b.c.d"), None);
        assert_eq!(at("[1]", "a"), None);
        assert_eq!(at("{\"a\": 1", "a"), None);
        assert_eq!(at(r#"{"a": 1, "a": 2}"#, "a").as_deref(), Some("2"));
    }

    #[test]
    fn words_are_texts_numbers_and_truths() {
        assert_eq!(word(r#""d\u0065""#).as_deref(), Some("de"));
        assert_eq!(word("12").as_deref(), Some("12"));
        assert_eq!(word("true").as_deref(), Some("true"));
        assert_eq!((word("null"), word("[1]"), word("{}")), (None, None, None));
    }

    #[test]
    fn lists_are_taken_apart() {
        assert_eq!(list(r#"["a", 1, {"b": [2]}]"#), [r#""a""#, "1", r#"{"b": [2]}"#]);
        assert_eq!(list("null"), [""; 0]);
    }
}
