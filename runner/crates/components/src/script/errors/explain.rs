//! Explanation of errors: turns an error of Rhai into a message with a fix.

use std::fmt::Write as _;
use std::time::Duration;

use rhai::{Dynamic, EvalAltResult, Position};
use tidegate_plugin::{Cause, Failure, FailureKind, Place};

use super::hints;
use crate::script::api::context;
use crate::script::api::decided::AttemptEnd;
use crate::script::values::{thrown, type_names};
use tidegate_config::Limits;
use tidegate_model::suggest::{listed, nearest};
use tidegate_model::{format_duration, format_size};

/// The circumstances of a failure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances<'a> {
    /// The script, or the file of the `when`.
    pub(crate) file: &'a str,
    pub(crate) limits: &'a Limits,
    pub(crate) timeout: Option<Duration>,
    /// The job as JSON, for suggestions.
    pub(crate) payload: &'a [u8],
    /// The argument of the script is the job, not the output of an earlier script.
    pub(crate) first: bool,
    pub(crate) known: Known<'a>,
}

/// The facts about a script, for suggestions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known<'a> {
    /// The text as the author wrote it.
    pub(crate) text: &'a str,
    pub(crate) config: Option<&'a Dynamic>,
    /// The names of all callable functions, if the error is about a name.
    pub(crate) functions: &'a [String],
}

impl Known<'_> {
    fn function(&self, name: &str) -> Option<&str> {
        hints::function(name, self.functions.iter().map(String::as_str))
    }
}

/// Without a position if Rhai has none (see `locate`).
pub(crate) fn failure(error: &EvalAltResult, circumstances: Circumstances<'_>) -> Failure {
    let mut file = circumstances.file.to_owned();
    let mut function = None;
    let mut innermost = error;
    loop {
        match innermost {
            EvalAltResult::ErrorInFunctionCall(name, source, inner, _) => {
                if !source.is_empty() {
                    file.clone_from(source);
                }
                function = Some(name.as_str()).filter(|name| *name != "process");
                innermost = inner;
            }
            EvalAltResult::ErrorInModule(path, inner, _) => {
                file.clone_from(path);
                innermost = inner;
            }
            _ => break,
        }
    }
    let mut position = innermost.position();
    if let Some(AttemptEnd::Called { kind, why, context, at, file: source }) = ending(innermost) {
        let place = place(at, source.unwrap_or(file));
        let mut failure = Failure::new(kind, why);
        (failure.context, failure.place) = (context, place);
        return failure;
    }
    let context = match innermost {
        EvalAltResult::ErrorRuntime(thrown, _) => thrown::context(thrown),
        _ => None,
    };
    let (kind, mut message) = match limit(innermost, circumstances.limits, circumstances.timeout) {
        Some(message) => (FailureKind::Limit, message),
        None => (FailureKind::Failed, failed(innermost, file == circumstances.file, circumstances)),
    };
    if kind == FailureKind::Limit {
        // It is the position of a call on the way, not of the failure.
        position = Position::NONE;
    }
    match function.filter(|_| !matches!(innermost, EvalAltResult::ErrorRuntime(..))) {
        Some(name) if name.starts_with("anon$") => message.push_str(", in a closure"),
        // Writing to a String cannot fail.
        Some(name) => drop(write!(message, ", in function `{name}`")),
        None => {}
    }
    let cause = is_timeout(innermost).then_some(Cause::Timeout);
    let mut failure = Failure::new(kind, message);
    (failure.context, failure.place, failure.cause) = (context, place(position, file), cause);
    failure
}

/// `position` in `file`, if it has one.
pub(crate) fn place(position: Position, file: String) -> Option<Place> {
    let line = position.line()? as u64;
    Some(Place { file, line, column: position.position().map(|column| column as u64) })
}

/// Whether the message suggests a function of the script.
pub(crate) fn is_about_a_name(error: &EvalAltResult) -> bool {
    match error {
        EvalAltResult::ErrorInFunctionCall(_, _, inner, _) | EvalAltResult::ErrorInModule(_, inner, _) => {
            is_about_a_name(inner)
        }
        EvalAltResult::ErrorFunctionNotFound(..) | EvalAltResult::ErrorDotExpr(..) => true,
        _ => false,
    }
}

/// Whether the script exceeded its time.
pub(crate) fn is_timeout(error: &EvalAltResult) -> bool {
    matches!(ending(error), Some(AttemptEnd::TimedOut))
}

fn ending(error: &EvalAltResult) -> Option<AttemptEnd> {
    match error {
        EvalAltResult::ErrorTerminated(token, _) => token.clone().try_cast(),
        _ => None,
    }
}

/// The message for an exceeded limit, if one was exceeded.
pub(crate) fn limit(error: &EvalAltResult, limits: &Limits, timeout: Option<Duration>) -> Option<String> {
    use EvalAltResult as E;
    let Limits { operations, memory, depth } = *limits;
    match ending(error) {
        Some(AttemptEnd::TimedOut) => {
            let timeout = timeout.map_or_else(String::new, format_duration);
            return Some(format!("the script exceeded its `timeout` of {timeout}"));
        }
        Some(AttemptEnd::TooManyOperations) => {
            return Some(format!(
                "the script exceeded `limits.operations` ({operations}): check for an endless loop, or raise the limit"
            ));
        }
        Some(AttemptEnd::TooMuchMemory { bytes, by }) => return Some(too_much_memory(bytes, by, memory)),
        Some(AttemptEnd::Called { .. }) | None => {}
    }
    Some(match error {
        E::ErrorDataTooLarge(what, _) => {
            let what = match &**what {
                "Size of array/BLOB" => "an array",
                "Size of object map" => "a map",
                "Number of emitted jobs" => "the output of `emit`",
                _ => "a value",
            };
            format!("{what} exceeds `limits.memory` ({})", format_size(memory))
        }
        E::ErrorStackOverflow(_) => {
            format!("the calls of functions exceed `limits.depth` of {depth} levels")
        }
        _ => return None,
    })
}

fn too_much_memory(bytes: u64, by: Option<&str>, most: u64) -> String {
    let (bytes, most) = (format_size(bytes), format_size(most));
    match by {
        Some(by) => {
            format!(
                "with the result of `{by}`, the script holds {bytes}, which exceeds `limits.memory` of {most}"
            )
        }
        None => format!("the script holds {bytes}, which exceeds `limits.memory` of {most}"),
    }
}

/// `here`: in the script itself, not in an imported one.
fn failed(error: &EvalAltResult, here: bool, circumstances: Circumstances<'_>) -> String {
    let known = circumstances.known;
    let near = match error {
        EvalAltResult::ErrorPropertyNotFound(name, position) => {
            let text = if here { known.text } else { "" };
            let place = position.line().zip(position.position());
            let owner = place.and_then(|(line, column)| hints::owner(text, line, column));
            return missing_field(name, owner, circumstances);
        }
        EvalAltResult::ErrorFunctionNotFound(call, _) => {
            let name = call.split(" (").next().unwrap_or(call);
            let is_new = known.functions.binary_search_by(|known| (**known).cmp(name)).is_err();
            known.function(name).filter(|_| is_new).map(|near| format!("`{near}`"))
        }
        EvalAltResult::ErrorDotExpr(message, _) => near_property(message, known),
        _ => None,
    };
    let text = in_words(error);
    near.map_or_else(|| text.clone(), |near| format!("{text}; did you mean {near}?"))
}

/// The nearest field for an error like `Unknown property 'x' - a getter is not registered for type 'y'`.
fn near_property(message: &str, known: Known<'_>) -> Option<String> {
    let mut quoted = message.split('\'').skip(1).step_by(2);
    let (name, of) = (quoted.next()?, quoted.next()?);
    match of {
        "ctx" => nearest(name, context::FIELDS).map(|near| format!("`{near}`")),
        "()" => None,
        _ if message.contains("setter") => None,
        _ => known.function(name).map(|near| format!("`{near}()`")),
    }
}

/// The message of an error, without its position.
pub(crate) fn in_words(error: &EvalAltResult) -> String {
    use EvalAltResult as E;
    match error {
        E::ErrorRuntime(thrown, _) if thrown.is_unit() => "thrown without a reason".to_owned(),
        E::ErrorRuntime(thrown, _) => match thrown::text(thrown) {
            empty if empty.is_empty() => "thrown without a reason".to_owned(),
            text => text,
        },
        E::ErrorFunctionNotFound(call, _) => missing_function(call),
        E::ErrorMismatchDataType(expected, actual, _) => {
            format!("{} is used where {} is required", type_names::words(actual), type_names::words(expected))
        }
        E::ErrorMismatchOutputType(expected, actual, _) => {
            format!("it returns {} instead of {}", type_names::words(actual), type_names::words(expected))
        }
        E::ErrorFor(_) => {
            "`for` requires an array, a range or a text; for a map use `keys()` or `values()`".to_owned()
        }
        E::ErrorDotExpr(message, _) => no_property(message).unwrap_or_else(|| lowercase(message)),
        E::ErrorVariableNotFound(name, _) => missing_variable(name),
        E::ErrorModuleNotFound(name, _) => format!(
            "`{name}` is not imported; `import` requires a plain text, since scripts are read before a run"
        ),
        E::ErrorNonPureMethodCallOnConstant(name, _) if !name.contains('$') => {
            format!("`{name}` cannot change a constant; call it on a copy, which `let` makes")
        }
        E::ErrorAssignmentToConstant(name, _) if name == context::CONFIG => {
            "`ctx.config` is read-only; change a copy, which `let config = ctx.config;` makes".to_owned()
        }
        E::ErrorAssignmentToConstant(..) | E::ErrorNonPureMethodCallOnConstant(..) => {
            "a constant cannot be changed; change a copy, which `let` makes".to_owned()
        }
        E::ErrorIndexingType(message, _) => match message.trim_end_matches(']').split_once(" [") {
            Some((of, by)) => format!("{} has no entry by {}", type_names::words(of), type_names::words(by)),
            None => lowercase(message),
        },
        E::ErrorUnboundThis(_) => "`this` is unknown here".to_owned(),
        other => {
            // Rhai appends the position to its texts; here it is a field of the failure.
            let mut text = other.to_string();
            if let Some(end) = text.rfind(" (line ") {
                text.truncate(end);
            }
            lowercase(&text)
        }
    }
}

/// For a text like `name (type, type)`.
fn missing_function(call: &str) -> String {
    let (name, types) = call.split_once(" (").unwrap_or((call, ")"));
    let types = types.strip_suffix(')').unwrap_or(types);
    let operator = !name.chars().any(|char| char.is_alphanumeric() || char == '_');
    let mut text = if operator {
        let kinds: Vec<String> = types.split(", ").map(type_names::words).collect();
        match kinds.as_slice() {
            [left, right] => format!("`{name}` is not defined between {left} and {right}"),
            _ => format!("`{name}` is not defined before {}", kinds.join(" and ")),
        }
    } else if types.is_empty() {
        format!("function `{name}` without arguments is unknown")
    } else {
        format!("function `{name}` is unknown for {}", type_names::list(types))
    };
    let has = |kind: &str| types.split(", ").any(|one| one.trim() == kind);
    if operator && has("()") {
        text.push_str("; `()` is an absent value or null, and `??` replaces it");
    } else if operator && types.contains("String") && (has("i64") || has("f64")) {
        text.push_str("; `parse_int` and `parse_float` convert a text to a number");
    }
    text
}

/// For a text like `Unknown property 'x' - a getter is not registered for type 'y'`.
fn no_property(message: &str) -> Option<String> {
    let mut quoted = message.split('\'').skip(1).step_by(2);
    let (name, of) = (quoted.next()?, quoted.next()?);
    Some(if message.contains("setter") {
        format!("`{name}` of {} cannot be set", type_names::words(of))
    } else if of == "()" {
        format!("`()` has no field `{name}`: the value before it is absent or null (`?.` then gives `()`)")
    } else {
        format!("{} has no field `{name}`", type_names::words(of))
    })
}

fn missing_variable(name: &str) -> String {
    match name.split_once("::") {
        Some(("global", name)) => format!("constant `{name}` is unknown at the top of the script"),
        Some((_, constant)) => format!(
            "`{name}` is unknown; a constant of another script must be declared as `export const {constant}`"
        ),
        None => format!("variable `{name}` is unknown"),
    }
}

/// `owner`: the expression before the field, as in the script.
fn missing_field(name: &str, owner: Option<&str>, circumstances: Circumstances<'_>) -> String {
    let absent = format!("(if it may be absent, `.get(\"{name}\")` gives `()`)");
    let known = circumstances.known;
    let in_config = owner.and_then(hints::path_in_config).zip(known.config);
    if let Some(text) = in_config.and_then(|(path, config)| hints::missing_in_config(name, &path, config)) {
        return format!("{text} {absent}");
    }
    if let Some(owner) = owner.filter(|owner| owner.contains("::")) {
        return format!("`{owner}` has no field `{name}` {absent}");
    }
    let job: serde_json::Value = serde_json::from_slice(circumstances.payload).unwrap_or_default();
    let mut fields = Vec::new();
    collect_fields(&job, &mut fields);
    let mut text = format!("field `{name}` is unknown");
    // Writing to a String cannot fail.
    if let Some(near) = nearest(name, fields.iter().copied()) {
        let _ = write!(text, "; did you mean `{near}`?");
    } else if circumstances.first && !owner.is_some_and(|owner| hints::is_declared(owner, known.text)) {
        // Rhai does not report the value that lacks the field: the fields of every level are listed as paths.
        let mut paths = Vec::new();
        collect_paths(&job, "", &mut paths);
        if !paths.is_empty() {
            let names = listed(paths.iter().map(String::as_str).take(hints::SHOWN_FIELDS_MAX), "and");
            let more = if paths.len() > hints::SHOWN_FIELDS_MAX { " and more" } else { "" };
            let _ = write!(text, "; the job has {names}{more}");
        }
    }
    let _ = write!(text, " {absent}");
    text
}

/// Paths as a script writes them after `job.`: fields of objects instead of the objects, except for empty
/// ones.
fn collect_paths(value: &serde_json::Value, before: &str, paths: &mut Vec<String>) {
    let Some(object) = value.as_object() else { return };
    for (key, value) in object {
        if paths.len() > hints::SHOWN_FIELDS_MAX {
            return;
        }
        let path = format!("{before}{key}");
        match value.as_object() {
            Some(inner) if !inner.is_empty() => collect_paths(value, &format!("{path}."), paths),
            _ => paths.push(path),
        }
    }
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

pub(crate) fn lowercase(message: &str) -> String {
    let mut characters = message.chars();
    match characters.next() {
        Some(first) => first.to_lowercase().chain(characters).collect(),
        None => String::new(),
    }
}
