//! Field access: finds one field of a JSON object without parsing the others, for steps that need one field
//! of a job.
//!
//! Skipped parts are not validated, since the runner has verified that the payload is JSON.

/// The text is not a JSON object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoObject;

/// The text of the value of the field `name` in the object `json`, if it has one. The last one counts if it
/// is repeated, as everywhere in Tidegate.
pub(crate) fn find<'a>(json: &'a [u8], name: &str) -> Result<Option<&'a [u8]>, NoObject> {
    let mut found = None;
    walk(json, name, &mut found).map(|()| found).ok_or(NoObject)
}

/// `None` if it is not an object.
fn walk<'a>(json: &'a [u8], name: &str, found: &mut Option<&'a [u8]>) -> Option<()> {
    let mut at = blanks(json, 0);
    if *json.get(at)? != b'{' {
        return None;
    }
    at += 1;
    loop {
        at = blanks(json, at);
        match json.get(at)? {
            b'}' => return Some(()),
            b',' => at = blanks(json, at + 1),
            _ => {}
        }
        if *json.get(at)? != b'"' {
            return None;
        }
        let from = at + 1;
        let (to, escaped) = text(json, from)?;
        at = blanks(json, to + 1);
        if *json.get(at)? != b':' {
            return None;
        }
        let start = blanks(json, at + 1);
        at = value(json, start)?;
        if json[from..to] == *name.as_bytes() || (escaped && reads(&json[from - 1..=to], name)) {
            *found = Some(&json[start..at]);
        }
    }
}

/// Whether a text in quotes equals `name`, with its escapes decoded.
#[cold]
fn reads(quoted: &[u8], name: &str) -> bool {
    serde_json::from_slice::<String>(quoted).is_ok_and(|key| key == name)
}

/// The next non-blank position from `at` on.
#[inline]
fn blanks(json: &[u8], mut at: usize) -> usize {
    while json.get(at).is_some_and(|byte| *byte <= b' ') {
        at += 1;
    }
    at
}

/// The position of the closing quote of the text that begins at `at`, and whether it has an escape.
#[inline]
fn text(json: &[u8], mut at: usize) -> Option<(usize, bool)> {
    let mut escaped = false;
    loop {
        at = special(json, at)?;
        if json[at] == b'"' {
            return Some((at, escaped));
        }
        // The character after a backslash belongs to it, even a quote.
        (at, escaped) = (at + 2, true);
    }
}

/// The position of the next quote or backslash; scans eight bytes at a time.
#[inline]
fn special(json: &[u8], mut at: usize) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES << 7;
    // The lowest bit that this sets is that of the first zero byte.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    while let Some(eight) = json.get(at..).and_then(|rest| rest.first_chunk()) {
        let word = u64::from_le_bytes(*eight);
        let hits = zeros(word ^ (ONES * u64::from(b'"'))) | zeros(word ^ (ONES * u64::from(b'\\')));
        if hits != 0 {
            return Some(at + hits.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    let rest = json.get(at..)?;
    Some(at + rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))?)
}

/// The end of the value that begins at `at`.
#[inline]
fn value(json: &[u8], mut at: usize) -> Option<usize> {
    match json.get(at)? {
        b'"' => Some(text(json, at + 1)?.0 + 1),
        b'{' | b'[' => nested(json, at),
        _ => loop {
            let byte = *json.get(at)?;
            if byte <= b',' && (byte <= b' ' || byte == b',') || matches!(byte, b'}' | b']') {
                return Some(at);
            }
            at += 1;
        },
    }
}

/// The end of the object or array that begins at `at`.
fn nested(json: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    loop {
        match json.get(at)? {
            b'"' => at = text(json, at + 1)?.0,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    use super::*;

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            "[\"\\\\{}\\[\\],: a-c]{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                object(inner).prop_map(Value::from),
            ]
        })
    }

    fn object(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
        proptest::collection::vec(("[\"\\\\\n{}, a-cü]{0,10}", value), 0..6)
            .prop_map(|fields| fields.into_iter().collect())
    }

    proptest! {
        #[test]
        fn each_field_is_found_and_no_other(fields in object(json()), pretty: bool, absent in "[a-c]{1,3}") {
            let all = Value::Object(fields.clone());
            let text = if pretty { serde_json::to_vec_pretty(&all) } else { serde_json::to_vec(&all) }.unwrap();
            for (name, value) in &fields {
                let found = find(&text, name).unwrap().unwrap();
                prop_assert_eq!(&serde_json::from_slice::<Value>(found).unwrap(), value);
            }
            prop_assert_eq!(find(&text, &absent).unwrap().is_some(), fields.contains_key(&absent));
        }

        #[test]
        fn a_search_for_fields_ends_for_any_text(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = find(&bytes, "a"); // must not panic, with any result
        }

        #[test]
        fn a_search_for_fields_ends_for_any_text_like_json(text in "[{}\\[\\]\",:\\\\a ]{0,40}") {
            let _ = find(text.as_bytes(), "a");
        }
    }

    #[test]
    fn of_a_key_given_twice_the_last_one_counts_and_escapes_are_read() {
        assert_eq!(find(br#"{"a":1,"\u0061":2 }"#, "a"), Ok(Some(&b"2"[..])));
        assert_eq!(find(br#" { "b" : [ "]" , {"a":1} ] } "#, "a"), Ok(None));
        for wrong in ["", "[1]", "7", "{", "{\"a\"", "{\"a\":", "{\"a\":1", "{a:1}", "{\"a\":\"", "{\"a\":[}"]
        {
            assert_eq!(find(wrong.as_bytes(), "b"), Err(NoObject), "{wrong}");
        }
    }
}
