//! Thrown values: convert a value that a script throws, gives as a reason, or logs, to text and JSON.

use rhai::Dynamic;

use super::json::{self, WriteError};
use super::{frozen, type_names};
use crate::memory;

/// The message of a thrown value or a reason: the `message` of a map, or the value as text.
pub(crate) fn text(value: &Dynamic) -> String {
    let value = &*frozen::plain(value);
    if let Ok(map) = value.as_map_ref()
        && let Some(Ok(message)) = map.get("message").map(Dynamic::as_immutable_string_ref)
    {
        return message.to_string();
    }
    shown(value)
}

/// A text unchanged, `()` as an empty text, any other value as JSON; a value without a JSON form by the name
/// of its type.
pub(crate) fn shown(value: &Dynamic) -> String {
    if let Ok(text) = value.as_immutable_string_ref() {
        return text.to_string();
    }
    if let Ok(character) = value.as_char() {
        return character.to_string();
    }
    if value.is_unit() {
        return String::new();
    }
    let mut text = Vec::new();
    show(value, 0, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Maximum bytes to write: the memory that the attempt has left.
fn room() -> usize {
    usize::try_from(memory::left()).unwrap_or(0)
}

/// As JSON, which may be cut at the maximum nesting.
fn show(value: &Dynamic, depth: usize, text: &mut Vec<u8>) {
    let value = &*frozen::plain(value);
    let start = text.len();
    match json::write_within(value, text, room()) {
        Ok(()) => return,
        Err(WriteError::TooLarge(_)) => return text.extend("…".as_bytes()),
        Err(WriteError::Unsayable(_)) => text.truncate(start),
    }
    if depth == json::MAX_DEPTH {
        text.extend("…".as_bytes());
    } else if let Ok(map) = value.as_map_ref() {
        for (at, (key, value)) in map.iter().enumerate() {
            text.push(if at == 0 { b'{' } else { b',' });
            show(&key.as_str().into(), depth + 1, text);
            text.push(b':');
            show(value, depth + 1, text);
        }
        text.push(b'}');
    } else if let Ok(array) = value.as_array_ref() {
        for (at, value) in array.iter().enumerate() {
            text.push(if at == 0 { b'[' } else { b',' });
            show(value, depth + 1, text);
        }
        text.push(b']');
    } else if let Ok(float) = value.as_float() {
        text.extend(float.to_string().bytes());
    } else {
        text.extend(type_names::of(value).bytes());
    }
}

/// The fields of a thrown map or reason except `message`, as JSON.
pub(crate) fn context(value: &Dynamic) -> Option<Box<str>> {
    let value = frozen::plain(value);
    let map = value.as_map_ref().ok()?;
    let mut rest = map.get("message")?.is_string().then(|| map.clone())?;
    rest.remove("message");
    if rest.is_empty() { None } else { as_json(&Dynamic::from_map(rest)) }
}

/// The value as JSON, if it has a JSON form.
pub(crate) fn as_json(value: &Dynamic) -> Option<Box<str>> {
    let mut text = Vec::new();
    // A context without a JSON form is left out, so that the failure itself is reported.
    json::write_within(value, &mut text, room()).ok()?;
    String::from_utf8(text).ok().map(String::into_boxed_str)
}
