//! `Key`: the keys that a schema allows in a config, for display.

use serde_json::{Map, Value};

use super::{in_words, plain, resolve};
use crate::words::listed;

/// A key of a config.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// With the keys of its outer tables: `limits.rate`; a part `[]` is any element of a list.
    pub name: String,
    /// Its type, in words.
    pub kind: String,
    pub required: bool,
    pub default: Option<Value>,
    /// Its first line.
    pub description: String,
}

/// Maximum nesting of displayed tables.
const DEPTH_MAX: usize = 4;

/// The permitted config of a schema without keys: `any config`, `no config`; `None` if it has keys.
#[must_use]
pub fn takes(schema: &Value) -> Option<&'static str> {
    let rules = end_of_references(schema, schema);
    match rules {
        Value::Bool(false) => Some("no config"),
        Value::Object(rules) if !keys(schema).is_empty() || restricts(rules) => None,
        Value::Object(rules) if rules.get("additionalProperties") == Some(&Value::Bool(false)) => None,
        _ => Some("any config"),
    }
}

/// Whether the rules restrict a config without naming keys.
fn restricts(rules: &Map<String, Value>) -> bool {
    ["allOf", "anyOf", "oneOf", "enum", "const", "required"].iter().any(|key| rules.contains_key(*key))
}

/// The keys of a schema, with those of nested tables.
#[must_use]
pub fn keys(schema: &Value) -> Vec<Key> {
    let mut keys = Vec::new();
    gather(schema, schema, "", 0, &mut keys);
    keys
}

fn gather(root: &Value, schema: &Value, before: &str, depth: usize, keys: &mut Vec<Key>) {
    let rules = end_of_references(root, schema);
    let required: Vec<&str> =
        rules["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (key, schema) in rules["properties"].as_object().into_iter().flatten() {
        let name = format!("{before}{key}");
        let description =
            schema["description"].as_str().or(end_of_references(root, schema)["description"].as_str());
        keys.push(Key {
            kind: kind(root, schema, 0),
            required: required.contains(&key.as_str()),
            default: schema.get("default").cloned().filter(|default| !default.is_null()),
            description: description.and_then(|text| text.lines().next()).unwrap_or_default().to_owned(),
            name: name.clone(),
        });
        if depth < DEPTH_MAX {
            let inner = without_null(root, schema);
            gather(root, inner, &format!("{name}."), depth + 1, keys);
            if let Some(items) = end_of_references(root, inner).get("items") {
                gather(root, items, &format!("{name}.[]."), depth + 1, keys);
            }
        }
    }
}

/// The only form beside `null` of an optional value.
fn without_null<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    let forms = ["anyOf", "oneOf"].into_iter().find_map(|key| schema[key].as_array());
    let mut forms = forms.into_iter().flatten().filter(|form| form["type"] != "null");
    match (forms.next(), forms.next()) {
        (Some(one), None) => end_of_references(root, one),
        _ => schema,
    }
}

/// The target of the schema's references.
fn end_of_references<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    let mut at = schema;
    for _ in 0..super::DEPTH_MAX {
        match at["$ref"].as_str().and_then(|reference| resolve(root, reference)) {
            Some(next) if !std::ptr::eq(next, at) => at = next,
            _ => break,
        }
    }
    at
}

fn kind(root: &Value, schema: &Value, depth: usize) -> String {
    let rules = end_of_references(root, schema);
    if let Some(choices) = rules["enum"].as_array() {
        let words: Vec<String> = choices.iter().map(plain).collect();
        return listed(words.iter().map(String::as_str), "or");
    }
    if let Some(only) = rules.get("const") {
        return format!("`{}`", plain(only));
    }
    let forms: Vec<&Value> =
        ["anyOf", "oneOf"].into_iter().filter_map(|key| rules[key].as_array()).flatten().collect();
    if !forms.is_empty() && depth < DEPTH_MAX {
        let forms = forms.into_iter().filter(|form| form["type"] != "null");
        // The words of all forms are one list.
        let (words, others): (Vec<&Value>, Vec<&Value>) =
            forms.partition(|form| form["enum"].is_array() || form.get("const").is_some());
        let choices = words.iter().flat_map(|form| form["enum"].as_array().into_iter().flatten());
        let choices = choices.chain(words.iter().filter_map(|form| form.get("const")));
        let choices: Vec<String> = choices.map(plain).collect();
        let listed = listed(choices.iter().map(String::as_str), "or");
        let others = others.into_iter().map(|form| kind(root, form, depth + 1));
        return Some(listed)
            .filter(|listed| !listed.is_empty())
            .into_iter()
            .chain(others)
            .collect::<Vec<_>>()
            .join(" or ");
    }
    let types = match &rules["type"] {
        Value::String(one) => vec![one.as_str()],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let words =
        types.into_iter().filter(|kind| *kind != "null").map(|kind| in_kind(root, rules, kind, depth));
    let words: Vec<String> = words.collect();
    if words.is_empty() { "anything".to_owned() } else { words.join(" or ") }
}

/// A type in words, with the keys that distinguish a table or a list from others.
fn in_kind(root: &Value, rules: &Value, of: &str, depth: usize) -> String {
    let elements = rules.get("items").filter(|items| of == "array" && items.is_object() && depth < DEPTH_MAX);
    if let Some(items) = elements {
        return format!("a list of: {}", kind(root, items, depth + 1));
    }
    // A form of an enum with data is identified by its tag, or by its required key.
    let properties = rules["properties"].as_object().filter(|_| of == "object" && depth > 0);
    let tags = properties.into_iter().flatten().filter_map(|(key, schema)| {
        let tag = end_of_references(root, schema).get("const")?;
        Some(format!("`{key} = {tag}`"))
    });
    let tags: Vec<String> = tags.collect();
    let needed = rules["required"].as_array().filter(|_| properties.is_some());
    let needed: Vec<&str> = needed.into_iter().flatten().filter_map(Value::as_str).collect();
    match (tags.is_empty(), needed.is_empty()) {
        (false, _) => format!("a table with {}", tags.join(" and ")),
        (true, false) => format!("a table with {}", listed(needed, "and")),
        (true, true) => in_words(of).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mistakes(schema: &Value) -> Vec<String> {
        let show =
            |key: Key| format!("{}: {}{}", key.name, key.kind, if key.required { " (needed)" } else { "" });
        keys(schema).into_iter().map(show).collect()
    }

    #[test]
    fn tables_in_tables_and_enums_with_data_are_told() {
        let schema = json!({
            "properties": {
                "limits": {"anyOf": [{"$ref": "#/$defs/Limits"}, {"type": "null"}]},
                "mode": {"oneOf": [
                    {"type": "string", "enum": ["fast", "slow"]},
                    {"type": "string", "const": "never"},
                    {"type": "object", "properties": {"slow": {"type": "object"}}, "required": ["slow"]},
                    {"type": "object", "properties": {"kind": {"const": "timed"}, "ms": {"type": "integer"}}},
                ]},
                "names": {"type": "array", "items": {"type": "string"}},
                "pairs": {"type": "array", "items": {"$ref": "#/$defs/Limits"}},
            },
            "required": ["names"],
            "$defs": {"Limits": {"type": "object", "properties": {"rate": {"type": "number"}}, "required": ["rate"]}},
        });
        assert_eq!(
            mistakes(&schema),
            [
                "limits: a table with `rate`",
                "limits.rate: a number (needed)",
                "mode: `fast`, `slow` or `never` or a table with `slow` or a table with `kind = \"timed\"`",
                "names: a list of: a text (needed)",
                "pairs: a list of: a table with `rate`",
                "pairs.[].rate: a number (needed)",
            ]
        );
    }

    #[test]
    fn a_schema_that_names_no_keys_says_what_it_takes() {
        let any = [json!(true), json!({}), json!({"$ref": "#"}), json!({"type": "object"})];
        assert!(any.iter().all(|schema| takes(schema) == Some("any config")));
        assert_eq!(takes(&json!(false)), Some("no config"));
        assert_eq!(takes(&json!({"properties": {}, "additionalProperties": false})), None);
        assert_eq!(takes(&json!({"properties": {"a": true}})), None);
    }
}
