//! Names of types: describe the types of values in messages.

use rhai::Dynamic;

/// The name of the type that Rhai calls `name`, with its article.
pub(crate) fn words(name: &str) -> String {
    let known = match name.trim() {
        "i64" => "an integer",
        "f64" => "a float",
        "bool" => "a boolean",
        "char" => "a character",
        "string" | "&str | ImmutableString | String" => "a text",
        "array" => "an array",
        "map" => "a map",
        "blob" => "a blob",
        "()" => "`()`",
        "Fn" => "a function",
        "ctx" => "`ctx`",
        super::number::BIG_NUMBER => "a big number",
        "iterator" => "an iterator",
        name if name.contains("::Frozen<") && name.contains("IndexedMap") => "a map",
        name if name.contains("::Frozen<") => "an array",
        name if name.contains("::iter_basic::") => "an iterator",
        name if name.starts_with("range") || name.contains("::Range") => "a range",
        name if name.ends_with("::ScriptContext") => "`ctx`",
        name if name.contains("::") => "a value of its own kind",
        other => return format!("a value of type `{other}`"),
    };
    known.to_owned()
}

/// The name of the type of `value`.
pub(crate) fn of(value: &Dynamic) -> String {
    words(value.type_name())
}

/// `an integer, a text and a map`.
pub(crate) fn list(names: &str) -> String {
    let all: Vec<String> = names.split(", ").map(words).collect();
    match all.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}
