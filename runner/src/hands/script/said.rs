//! What a script throws or gives as a reason, in words and as JSON.

use rhai::Dynamic;

use super::json;

/// What was thrown or given as a reason, as a message: a text as it is, of a map its `message`,
/// anything else as JSON.
pub(super) fn text(value: &Dynamic) -> String {
    if let Ok(text) = value.as_immutable_string_ref() {
        return text.to_string();
    }
    if let Ok(map) = value.as_map_ref()
        && let Some(Ok(message)) = map.get("message").map(Dynamic::as_immutable_string_ref)
    {
        return message.to_string();
    }
    if value.is_map() || value.is_array() {
        let mut text = Vec::new();
        if json::write(value, &mut text).is_ok() {
            return String::from_utf8_lossy(&text).into_owned();
        }
    }
    value.to_string()
}

/// What was thrown or given as a reason says beside its `message`, as JSON.
pub(super) fn context(value: &Dynamic) -> Option<Box<str>> {
    let map = value.as_map_ref().ok()?;
    let mut rest = map.get("message")?.is_string().then(|| map.clone())?;
    rest.remove("message");
    if rest.is_empty() { None } else { as_json(&Dynamic::from_map(rest)) }
}

/// The value as JSON, where it can be said so.
pub(super) fn as_json(value: &Dynamic) -> Option<Box<str>> {
    let mut text = Vec::new();
    // A context that is no JSON is better left out than in the way of the failure itself.
    json::write(value, &mut text).ok()?;
    String::from_utf8(text).ok().map(String::into_boxed_str)
}
