//! From an error of Rhai to words that a person can act on.

use std::fmt::Write as _;

use rhai::{Dynamic, EvalAltResult, Position};
use tidegate_plugin::{Failure, FailureKind, Place};

use super::functions::Ended;
use super::json;
use crate::config::Limits;
use crate::words::format_duration;
use crate::words::suggest::nearest;

/// What is known where a script failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances<'a> {
    /// The script, or the file whose `when` it was.
    pub(super) file: &'a str,
    pub(super) limits: &'a Limits,
    pub(super) timeout: Option<std::time::Duration>,
    /// The job as JSON, for suggestions.
    pub(super) payload: &'a [u8],
}

pub(super) fn failure(error: &EvalAltResult, circumstances: Circumstances<'_>) -> Failure {
    let mut file = circumstances.file.to_owned();
    let mut calls: Vec<&str> = Vec::new();
    let mut innermost = error;
    loop {
        match innermost {
            EvalAltResult::ErrorInFunctionCall(name, source, inner, _) => {
                if !source.is_empty() {
                    file.clone_from(source);
                }
                if name != "process" {
                    calls.push(name);
                }
                innermost = inner;
            }
            EvalAltResult::ErrorInModule(path, inner, _) => {
                file.clone_from(path);
                innermost = inner;
            }
            _ => break,
        }
    }
    let (kind, mut message) = explain(innermost, circumstances);
    if let Some(call) = calls.last() {
        let _ = write!(message, ", in function `{call}`"); // writing to a String cannot fail
    }
    let place = place(innermost.position(), error.position(), file);
    Failure { kind, message, place }
}

fn place(inner: Position, outer: Position, file: String) -> Option<Place> {
    let position = if inner.is_none() { outer } else { inner };
    let line = position.line()? as u64;
    Some(Place { file, line, column: position.position().map(|column| column as u64) })
}

fn explain(error: &EvalAltResult, circumstances: Circumstances<'_>) -> (FailureKind, String) {
    use EvalAltResult as E;
    let limits = circumstances.limits;
    match error {
        E::ErrorTerminated(token, _) => ended(token, circumstances),
        E::ErrorRuntime(thrown, _) => (FailureKind::Failed, thrown_text(thrown)),
        E::ErrorPropertyNotFound(name, _) => {
            (FailureKind::Failed, missing_field(name, circumstances.payload))
        }
        E::ErrorTooManyOperations(_) => (
            FailureKind::Limit,
            format!(
                "the script ran for more than {} operations; a loop that does not end, or set `limits = {{ operations = … }}` higher",
                limits.operations
            ),
        ),
        E::ErrorDataTooLarge(what, _) => (
            FailureKind::Limit,
            format!(
                "{} is larger than `limits.memory` of {} lets it be",
                what_is_too_large(what),
                crate::words::format_size(limits.memory)
            ),
        ),
        E::ErrorStackOverflow(_) => (
            FailureKind::Limit,
            format!("functions call each other more than {} levels deep (`limits.depth`)", limits.depth),
        ),
        other => {
            // Rhai adds the place to its texts; ours stands in the failure.
            let mut other = other.to_string();
            if let Some(end) = other.rfind(" (line ") {
                other.truncate(end);
            }
            (FailureKind::Failed, other)
        }
    }
}

fn ended(token: &Dynamic, circumstances: Circumstances<'_>) -> (FailureKind, String) {
    match token.clone().try_cast::<Ended>() {
        Some(Ended::Rejected(why)) => (FailureKind::Rejected, why.to_string()),
        Some(Ended::TimedOut) | None => {
            let timeout = circumstances.timeout.map_or_else(String::new, format_duration);
            (FailureKind::Limit, format!("the script ran for longer than its `timeout` of {timeout}"))
        }
    }
}

/// A thrown text is the message; of a thrown map its `message`, or all of it.
fn thrown_text(thrown: &Dynamic) -> String {
    if let Ok(map) = thrown.as_map_ref()
        && let Some(Ok(message)) = map.get("message").map(Dynamic::as_immutable_string_ref)
    {
        return message.to_string();
    }
    if thrown.is_map() || thrown.is_array() {
        let mut text = Vec::new();
        if json::write(thrown, &mut text).is_ok() {
            return String::from_utf8_lossy(&text).into_owned();
        }
    }
    thrown.to_string()
}

fn missing_field(name: &str, payload: &[u8]) -> String {
    let job: serde_json::Value = serde_json::from_slice(payload).unwrap_or_default();
    let mut fields = Vec::new();
    collect_fields(&job, &mut fields);
    let suggestion = match nearest(name, fields.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => match job.as_object() {
            Some(object) if !object.is_empty() => {
                let some: Vec<&str> = object.keys().map(String::as_str).take(12).collect();
                let more = if object.len() > some.len() { ", …" } else { "" };
                format!("the job has {}{more}", some.join(", "))
            }
            _ => "the job has no fields".to_owned(),
        },
    };
    format!(
        "there is no field `{name}`; {suggestion} (where it may be absent, `job.get(\"{name}\")` gives `()`)"
    )
}

fn collect_fields<'a>(value: &'a serde_json::Value, fields: &mut Vec<&'a str>) {
    match value {
        serde_json::Value::Object(object) => {
            for (key, value) in object {
                fields.push(key);
                collect_fields(value, fields);
            }
        }
        serde_json::Value::Array(elements) => {
            for element in elements {
                collect_fields(element, fields);
            }
        }
        _ => {}
    }
}

fn what_is_too_large(what: &str) -> &'static str {
    match what {
        "Length of string" => "a text",
        "Size of array/BLOB" => "an array",
        "Size of object map" => "a map",
        _ => "a value",
    }
}
