//! Outputs from JSON: turns the JSON of an external system into the outputs of a step.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use tidegate_plugin::{Failure, FailureKind, Outputs, Payloads};

use crate::script::values::json;
use tidegate_model::suggest::{listed, nearest};

/// Adds `value`, which must be JSON, to the only output of the step. For several outputs it must be a map
/// from their names: each value is one output, a list of outputs, or `null` for none. `whose` is the subject
/// of messages.
pub fn outputs_from_json(value: &[u8], outputs: &mut Outputs, whose: &str) -> Result<(), Failure> {
    if outputs.bindings() == 0 {
        return Ok(());
    }
    let wrong = |why: String| Failure::new(FailureKind::Output, format!("{whose} {why}"));
    json::check(value).map_err(|error| wrong(format!("is not JSON: {error}")))?;
    if let Some(payloads) = outputs.position("").and_then(|place| outputs.get_mut(place)) {
        push(value, payloads);
        return Ok(());
    }
    if value.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        let names = listed(outputs.names(), "and");
        return Err(wrong(format!("must be a map, since the step has the outputs {names}")));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(value);
    let entries =
        Entries.deserialize(&mut deserializer).map_err(|error| wrong(format!("is not JSON: {error}")))?;
    for (name, value) in entries {
        let Some(place) = outputs.position(&name) else {
            let hint = nearest(&name, outputs.names()).map(|near| format!("; did you mean `{near}`?"));
            let hint = hint.unwrap_or_default();
            return Err(wrong(format!("has the unknown output `{name}`{hint}")));
        };
        if let Some(payloads) = outputs.get_mut(place) {
            spread(value, payloads).map_err(|error| wrong(format!("is not JSON: {error}")))?;
        }
    }
    Ok(())
}

fn spread(value: &RawValue, payloads: &mut Payloads) -> serde_json::Result<()> {
    match value.get().as_bytes().first() {
        Some(b'n') => {}
        Some(b'[') => {
            let elements: Vec<&RawValue> = serde_json::from_str(value.get())?;
            for element in elements {
                push(element.get().as_bytes(), payloads);
            }
        }
        _ => push(value.get().as_bytes(), payloads),
    }
    Ok(())
}

/// An output is one line: a raw line end occurs only between values, so a blank replaces it.
fn push(value: &[u8], payloads: &mut Payloads) {
    payloads.push(value);
    let last = payloads.len() - 1;
    let pushed = payloads.get_mut(last).unwrap_or_default();
    pushed.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
}

/// The entries of a map, in their order.
struct Entries;

impl<'de> DeserializeSeed<'de> for Entries {
    type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Entries {
    type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(entry) = entries.next_entry::<Cow<'de, str>, &'de RawValue>()? {
            all.push(entry);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(value: &str, names: &[&str]) -> Result<Vec<Vec<String>>, String> {
        let mut outputs = Outputs::new(names.iter().copied());
        outputs_from_json(value.as_bytes(), &mut outputs, "its output").map_err(|failure| failure.message)?;
        let texts = |payloads: Payloads| {
            payloads.iter().map(|payload| String::from_utf8(payload.to_vec()).unwrap()).collect()
        };
        Ok(outputs.into_payloads().into_iter().map(texts).collect())
    }

    #[test]
    fn one_output_takes_any_value_on_one_line() {
        for (value, output) in [("[1,\n2]", "[1, 2]"), ("null", "null"), ("{\"a\": 1}", "{\"a\": 1}")] {
            assert_eq!(given(value, &[""]), Ok(vec![vec![output.to_owned()]]));
            // Within a chain, other processors have outputs too.
            assert_eq!(given(value, &["", "a"]), Ok(vec![vec![output.to_owned()], vec![]]));
            assert_eq!(given(value, &[]), Ok(vec![]));
        }
    }

    #[test]
    fn several_outputs_are_given_by_name() {
        let out = |all: &[&[&str]]| -> Result<Vec<Vec<String>>, String> {
            Ok(all.iter().map(|one| one.iter().map(|&text| text.to_owned()).collect()).collect())
        };
        assert_eq!(
            given(r#"{"a": {"x": 1}, "b": [1, "2"]}"#, &["a", "b"]),
            out(&[&["{\"x\": 1}"], &["1", "\"2\""]])
        );
        assert_eq!(given(r#"{"b": null}"#, &["a", "b"]), out(&[&[], &[]]));
    }

    #[test]
    fn what_fits_no_output_is_said() {
        let refusals = [
            given("7", &["kept", "told"]).unwrap_err(),
            given(r#"{"kep": 1}"#, &["kept", "told"]).unwrap_err(),
            given("{", &[""]).unwrap_err(),
        ];
        insta::assert_debug_snapshot!(refusals, @r#"
        [
            "its output must be a map, since the step has the outputs `kept` and `told`",
            "its output has the unknown output `kep`; did you mean `kept`?",
            "its output is not JSON: the text ends in the middle of an object, at column 1",
        ]
        "#);
    }
}
