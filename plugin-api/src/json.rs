//! JSON check: decides whether a text is JSON that a runner accepts, or returns the error.

mod mistake;

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

pub use mistake::{FULL, ReadError};

/// Maximum nesting of values.
pub const MAX_DEPTH: usize = 120;

/// Whether `text` is exactly one JSON value, nested no deeper than [`MAX_DEPTH`].
///
/// # Errors
/// The error, and its position.
pub fn check(text: &[u8]) -> Result<(), ReadError> {
    let Err(error) = look(text) else { return Ok(()) };
    if !error.to_string().starts_with("number out of range") {
        return Err(ReadError::new(&error, text));
    }
    // JSON allows numbers that are too large for a double, and they are passed on unchanged.
    serde_json::from_slice::<IgnoredAny>(text).map_err(|error| ReadError::new(&error, text))?;
    if depth(text) > MAX_DEPTH {
        return Err(ReadError { message: too_deep(), line: 1, column: 1 });
    }
    Ok(())
}

fn look(text: &[u8]) -> serde_json::Result<()> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    Checker { depth: 0 }.deserialize(&mut deserializer)?;
    deserializer.end()
}

/// The nesting of a JSON text.
fn depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest, mut quoted, mut escaped) = (0_usize, 0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// One level deeper than `depth`.
///
/// # Errors
/// The nesting exceeds the limit.
pub fn deeper<E: serde::de::Error>(depth: usize) -> Result<usize, E> {
    if depth == MAX_DEPTH { Err(E::custom(too_deep())) } else { Ok(depth + 1) }
}

fn too_deep() -> String {
    format!("values nest deeper than {MAX_DEPTH} levels")
}

struct Checker {
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Checker {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Checker {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let depth = deeper(self.depth)?;
        while elements.next_element_seed(Checker { depth })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let depth = deeper(self.depth)?;
        while entries.next_key_seed(Checker { depth })?.is_some() {
            entries.next_value_seed(Checker { depth })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_in_utf16_is_told_as_that() {
        let utf16 =
            "it looks like UTF-16: convert it to UTF-8, as with `iconv -f UTF-16 -t UTF-8`, at column 1";
        for text in [&b"\xff\xfe{\0\"\0a\0"[..], b"\0[\0{\0}\0]", b"\0"] {
            assert_eq!(check(text).unwrap_err().to_string(), utf16, "{text:?}");
        }
        for text in [&b"\xff"[..], b"a\0\0b", b"\xe9t\xe9"] {
            let message = check(text).unwrap_err().to_string();
            assert!(message.contains("is not a JSON value"), "{message}");
        }
    }

    #[test]
    fn a_number_that_no_double_holds_is_one_and_nesting_counts_beside_it() {
        assert_eq!(check(b"[1e999, \"[\\\"[\"]"), Ok(()));
        let nested = |depth: usize| format!("{}1e999{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(check(nested(MAX_DEPTH).as_bytes()), Ok(()));
        let error = check(nested(MAX_DEPTH + 1).as_bytes()).unwrap_err();
        assert_eq!(error.message, "values nest deeper than 120 levels");
        let error = check(b"[1e999").unwrap_err();
        assert_eq!(error.to_string(), "the text ends in the middle of a list, at column 6");
    }
}
