//! JSON texts that are known to be valid: are put on one line, compared by their values, and read as they are.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use twox_hash::XxHash3_128;

/// Reads a field that is there, also if its value is `null`: for `deserialize_with` beside `default`.
///
/// # Errors
/// Those of `deserializer`.
pub fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Removes the white space between values, so that the text fits one line of a file.
#[must_use]
pub fn on_one_line(json: &str) -> String {
    let mut line = String::with_capacity(json.len());
    let (mut in_text, mut escaped) = (false, false);
    for character in json.chars() {
        if in_text || !matches!(character, ' ' | '\t' | '\n' | '\r') {
            line.push(character);
        }
        match character {
            '"' if !escaped => in_text = !in_text,
            '\\' if in_text && !escaped => {
                escaped = true;
                continue;
            }
            _ => {}
        }
        escaped = false;
    }
    line
}

/// A hash of the value of a JSON text. It does not depend on the order of keys in an object, on spacing, or
/// on escapes. The last value of a repeated key counts. Numbers are compared digit by digit: `1`, `1.0` and
/// `1e0` differ.
#[must_use]
pub fn value_hash(json: &str) -> u64 {
    let hash = Walk { json, at: 0 }.value();
    u64::from_le_bytes(hash.to_le_bytes().first_chunk().copied().unwrap_or_default())
}

/// A scan of a JSON text, from its first byte to its last.
struct Walk<'j> {
    json: &'j str,
    at: usize,
}

impl<'j> Walk<'j> {
    fn value(&mut self) -> u128 {
        match self.peek() {
            b'{' => self.object(),
            b'[' => self.array(),
            b'"' => XxHash3_128::oneshot(&[b"\"", self.text().as_bytes()].concat()),
            _ => XxHash3_128::oneshot(self.word().as_bytes()),
        }
    }

    fn object(&mut self) -> u128 {
        let mut entries = Vec::new();
        self.at += 1;
        while self.peek() == b'"' {
            let key = self.text();
            self.skip(b':');
            entries.push((key, self.value()));
            self.skip(b',');
        }
        self.at += 1;
        entries.sort_by(|one, other| one.0.cmp(&other.0));
        let mut bytes = b"{".to_vec();
        for (at, (key, value)) in entries.iter().enumerate() {
            // The stable sort keeps repeated keys in their order.
            if entries.get(at + 1).is_none_or(|(next, _)| next != key) {
                bytes.extend_from_slice(&(key.len() as u64).to_le_bytes());
                bytes.extend_from_slice(key.as_bytes());
                bytes.extend_from_slice(&value.to_le_bytes());
            }
        }
        XxHash3_128::oneshot(&bytes)
    }

    fn array(&mut self) -> u128 {
        let mut bytes = b"[".to_vec();
        self.at += 1;
        while !matches!(self.peek(), b']' | 0) {
            bytes.extend_from_slice(&self.value().to_le_bytes());
            self.skip(b',');
        }
        self.at += 1;
        XxHash3_128::oneshot(&bytes)
    }

    /// The text that begins here.
    fn text(&mut self) -> Cow<'j, str> {
        let rest = self.json.get(self.at..).unwrap_or_default();
        let mut escaped = false;
        let end = rest.bytes().skip(1).position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        let written = rest.get(..end.map_or(rest.len(), |end| end + 2)).unwrap_or_default();
        self.at += written.len().max(1);
        let inside = written.get(1..written.len().saturating_sub(1)).unwrap_or_default();
        if inside.contains('\\') {
            serde_json::from_str(written).map_or(Cow::Borrowed(inside), Cow::Owned)
        } else {
            Cow::Borrowed(inside)
        }
    }

    /// A number, or one of the three literals.
    fn word(&mut self) -> &'j str {
        let rest = self.json.get(self.at..).unwrap_or_default();
        let ends = |byte: u8| byte.is_ascii_whitespace() || matches!(byte, b',' | b']' | b'}');
        let end = rest.bytes().position(ends).unwrap_or(rest.len());
        self.at += end.max(1);
        rest.get(..end).unwrap_or_default()
    }

    /// The next byte that is not white space; 0 at the end.
    fn peek(&mut self) -> u8 {
        let bytes = self.json.as_bytes();
        while bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        bytes.get(self.at).copied().unwrap_or(0)
    }

    fn skip(&mut self, byte: u8) {
        if self.peek() == byte {
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn texts_that_say_the_same_have_the_same_hash() {
        let same = [
            r#"{"id":1,"customer":"acme","items":[{"a":1,"b":[]},null]}"#,
            r#" {"customer" : "acme" , "id":1, "items": [ {"b":[ ],"a":1} , null ] } "#,
            r#"{"id":0,"customer":"\u0061cme","items":[{"a":1,"b":[]},null],"id":1}"#,
        ];
        assert!(same.iter().all(|text| value_hash(text) == value_hash(same[0])));
        let others = [
            "1",
            "1.0",
            "1e0",
            "-1",
            "\"1\"",
            "[1]",
            "[1,1]",
            "[[1]]",
            "{\"1\":1}",
            "{}",
            "[]",
            "null",
            "\"\"",
            "\"{}\"",
            "{\"a\":{\"b\":1}}",
            "{\"a\":1,\"b\":1}",
            "[true]",
            "[\"true\"]",
            "{\"a\":[1],\"b\":[]}",
            "{\"a\":[],\"b\":[1]}",
            "12345678901234567890123",
            "12345678901234567890124",
        ];
        let mut hashes: Vec<u64> = others.iter().map(|text| value_hash(text)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), others.len());
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-c\"\\\\\n{}\\[\\],: é]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c\"\\\\ ]{0,3}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// The value with its entries reversed, with other spacing, and with escapes.
    fn otherwise(value: &Value) -> String {
        let text = |text: &str| {
            let mut escaped = String::from("\"");
            for unit in text.encode_utf16() {
                // Writing to a String cannot fail.
                let _ = write!(escaped, "\\u{unit:04x}");
            }
            escaped + "\""
        };
        match value {
            Value::String(inside) => text(inside),
            Value::Array(all) => {
                format!("[ {} ]", all.iter().map(otherwise).collect::<Vec<_>>().join(" ,\n"))
            }
            Value::Object(map) => {
                let entries =
                    map.iter().rev().map(|(key, value)| format!("{} : {}", text(key), otherwise(value)));
                format!("{{\t{}\r\n}}", entries.collect::<Vec<_>>().join(","))
            }
            plain => plain.to_string(),
        }
    }

    proptest! {
        #[test]
        fn texts_have_one_hash_exactly_when_their_values_are_equal(one in value(), other in value()) {
            prop_assert_eq!(value_hash(&one.to_string()), value_hash(&otherwise(&one)));
            let same = value_hash(&one.to_string()) == value_hash(&other.to_string());
            prop_assert_eq!(same, one == other);
        }

        #[test]
        fn a_text_put_on_one_line_has_the_same_value(one in value()) {
            let line = on_one_line(&otherwise(&one));
            prop_assert!(!line.contains('\n'));
            prop_assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), one);
        }

        #[test]
        fn hashing_ends_for_any_text(text in "\\PC{0,40}") {
            let _ = value_hash(&text);
        }
    }
}
