//! Holds a `config` against the JSON Schema that a plugin says.
//!
//! It knows what schemars writes and people commonly use: types, `enum` and `const`, bounds of numbers,
//! texts and lists, `properties`, `required`, `additionalProperties`, `items`, `allOf`, `anyOf`, `oneOf`,
//! and `$ref` within the schema. What else a schema may say holds nothing back here; the plugin itself
//! reads its config when the step is created.

use serde_json::{Map, Value};

use crate::words::suggest::{did_you_mean, listed};

/// One thing that is wrong with a config.
#[derive(Clone, Debug, PartialEq)]
pub struct Mistake {
    /// The way to it: keys, and positions in lists.
    pub path: Vec<String>,
    /// The last part of the path is a key that should not be there, not a value.
    pub at_key: bool,
    pub message: String,
    pub help: Option<String>,
}

/// All that is wrong with `config`.
#[must_use]
pub fn mistakes(schema: &Value, config: &Value) -> Vec<Mistake> {
    let mut checker = Checker { root: schema, path: Vec::new(), found: Vec::new(), depth: 0 };
    checker.check(schema, config);
    checker.found
}

/// A key that a config may have, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    pub name: String,
    /// What stands there, in words.
    pub kind: String,
    pub required: bool,
    pub default: Option<Value>,
    /// The first line of it.
    pub description: String,
}

/// The keys that a schema knows at the top.
#[must_use]
pub fn keys(schema: &Value) -> Vec<Key> {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object().into_iter().flatten();
    properties
        .map(|(name, rules)| Key {
            name: name.clone(),
            kind: kind(schema, rules),
            required: required.contains(&name.as_str()),
            default: rules.get("default").cloned().filter(|default| !default.is_null()),
            description: rules["description"]
                .as_str()
                .and_then(|text| text.lines().next())
                .unwrap_or_default()
                .to_owned(),
        })
        .collect()
}

fn kind(root: &Value, rules: &Value) -> String {
    if let Some(choices) = rules["enum"].as_array() {
        let words: Vec<String> = choices.iter().map(plain).collect();
        return listed(words.iter().map(String::as_str), "or");
    }
    if let Some(schema) = rules["$ref"].as_str().and_then(|way| root.pointer(way.strip_prefix('#')?))
        && !schema["$ref"].is_string()
    {
        return kind(root, schema);
    }
    let types = match &rules["type"] {
        Value::String(one) => vec![one.as_str()],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let words: Vec<&str> = types.into_iter().filter(|kind| *kind != "null").map(in_words).collect();
    if words.is_empty() { "anything".to_owned() } else { words.join(" or ") }
}

/// Schemas that refer to each other in a circle end here.
const DEPTH_MAX: usize = 64;

struct Checker<'s> {
    root: &'s Value,
    path: Vec<String>,
    found: Vec<Mistake>,
    depth: usize,
}

impl<'s> Checker<'s> {
    fn check(&mut self, schema: &'s Value, value: &Value) {
        if self.depth == DEPTH_MAX {
            return;
        }
        self.depth += 1;
        match schema {
            Value::Bool(false) => self.report("nothing may stand here".into()),
            Value::Object(rules) => self.check_rules(rules, value),
            _ => {}
        }
        self.depth -= 1;
    }

    fn check_rules(&mut self, rules: &'s Map<String, Value>, value: &Value) {
        if let Some(Value::String(reference)) = rules.get("$ref")
            && let Some(schema) = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer))
        {
            self.check(schema, value);
        }
        if let Some(types) = rules.get("type")
            && !self.check_type(types, value)
        {
            return;
        }
        self.check_choice(rules, value);
        match value {
            Value::Number(number) => self.check_number(rules, number.as_f64().unwrap_or_default()),
            Value::String(text) => {
                self.check_length(rules, text.chars().count(), ("minLength", "maxLength"), "characters");
            }
            Value::Array(elements) => {
                self.check_length(rules, elements.len(), ("minItems", "maxItems"), "elements");
                if let Some(items) = rules.get("items") {
                    for (position, element) in elements.iter().enumerate() {
                        self.inside(&position.to_string(), |checker| checker.check(items, element));
                    }
                }
            }
            Value::Object(fields) => self.check_fields(rules, fields),
            _ => {}
        }
        self.check_combined(rules, value);
    }

    /// Whether it is of one of the types.
    fn check_type(&mut self, types: &Value, value: &Value) -> bool {
        let types: Vec<&str> = match types {
            Value::String(one) => vec![one],
            Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
            _ => return true,
        };
        let fits = types.iter().any(|kind| match (*kind, value) {
            ("integer", Value::Number(number)) => {
                number.is_i64()
                    || number.is_u64()
                    || number.as_f64().is_some_and(|number| number.fract() == 0.0)
            }
            (kind, value) => kind == name(value),
        });
        if !fits {
            let wanted: Vec<&str> =
                types.iter().copied().filter(|kind| *kind != "null").map(in_words).collect();
            let found = if value.is_number() { value.to_string() } else { in_words(name(value)).to_owned() };
            self.report(format!("should be {}, but is {found}", wanted.join(" or ")));
        }
        fits
    }

    fn check_choice(&mut self, rules: &Map<String, Value>, value: &Value) {
        if let Some(constant) = rules.get("const")
            && constant != value
        {
            self.report(format!("should be `{constant}`"));
        }
        if let Some(Value::Array(choices)) = rules.get("enum")
            && !choices.contains(value)
        {
            let words: Vec<String> = choices.iter().map(plain).collect();
            let words = || words.iter().map(String::as_str);
            let help = did_you_mean(&plain(value), words())
                .unwrap_or_else(|| format!("use {}", listed(words(), "or")));
            // The value itself may be a secret.
            self.report_with("is none of the words that may stand here".to_owned(), Some(help));
        }
    }

    fn check_number(&mut self, rules: &Map<String, Value>, number: f64) {
        let bound = |key: &str| rules.get(key).and_then(Value::as_f64);
        if let Some(least) = bound("minimum")
            && number < least
        {
            self.report(format!("should be {least} or more"));
        }
        if let Some(most) = bound("maximum")
            && number > most
        {
            self.report(format!("should be {most} or less"));
        }
        if let Some(least) = bound("exclusiveMinimum")
            && number <= least
        {
            self.report(format!("should be more than {least}"));
        }
        if let Some(most) = bound("exclusiveMaximum")
            && number >= most
        {
            self.report(format!("should be less than {most}"));
        }
    }

    fn check_length(
        &mut self,
        rules: &Map<String, Value>,
        length: usize,
        (least, most): (&str, &str),
        of: &str,
    ) {
        let bound = |key| rules.get(key).and_then(Value::as_u64);
        if let Some(least) = bound(least)
            && (length as u64) < least
        {
            self.report(format!("should have {least} {of} or more"));
        }
        if let Some(most) = bound(most)
            && length as u64 > most
        {
            self.report(format!("should have {most} {of} or fewer"));
        }
    }

    fn check_fields(&mut self, rules: &'s Map<String, Value>, fields: &Map<String, Value>) {
        let empty = Map::new();
        let known = rules.get("properties").and_then(Value::as_object);
        let known_keys = || known.unwrap_or(&empty).keys().map(String::as_str);
        for required in rules.get("required").and_then(Value::as_array).into_iter().flatten() {
            if let Some(key) = required.as_str()
                && !fields.contains_key(key)
            {
                self.report(format!("lacks `{key}`"));
            }
        }
        for (key, value) in fields {
            match (known.and_then(|known| known.get(key)), rules.get("additionalProperties")) {
                (Some(schema), _) | (None, Some(schema @ Value::Object(_))) => {
                    self.inside(key, |checker| checker.check(schema, value));
                }
                (None, Some(Value::Bool(false))) => {
                    let help = did_you_mean(key, known_keys()).or_else(|| match known_keys().next() {
                        Some(_) => Some(format!("it knows {}", listed(known_keys(), "and"))),
                        None => Some("there is nothing to set".to_owned()),
                    });
                    let message = format!("has an unknown key `{key}`");
                    let mut path = self.path.clone();
                    path.push(key.clone());
                    self.found.push(Mistake { path, at_key: true, message, help });
                }
                _ => {}
            }
        }
    }

    fn check_combined(&mut self, rules: &'s Map<String, Value>, value: &Value) {
        for schema in rules.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            self.check(schema, value);
        }
        for key in ["anyOf", "oneOf"] {
            let Some(Value::Array(schemas)) = rules.get(key) else { continue };
            // Of those that do not fit, the one that comes nearest tells what is wrong.
            let tried = schemas.iter().map(|schema| {
                let mut checker = Checker {
                    root: self.root,
                    path: self.path.clone(),
                    found: Vec::new(),
                    depth: self.depth,
                };
                checker.check(schema, value);
                checker.found
            });
            let depth = |found: &Vec<Mistake>| found.iter().map(|mistake| mistake.path.len()).max();
            let best =
                tried.min_by_key(|found| (!found.is_empty(), std::cmp::Reverse(depth(found)), found.len()));
            self.found.extend(best.unwrap_or_default());
        }
    }

    fn inside(&mut self, key: &str, check: impl FnOnce(&mut Self)) {
        self.path.push(key.to_owned());
        check(self);
        self.path.pop();
    }

    fn report(&mut self, message: String) {
        self.report_with(message, None);
    }

    fn report_with(&mut self, message: String, help: Option<String>) {
        self.found.push(Mistake { path: self.path.clone(), at_key: false, message, help });
    }
}

/// As JSON Schema calls it.
fn name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// As people call it.
fn in_words(kind: &str) -> &str {
    match kind {
        "boolean" => "`true` or `false`",
        "integer" => "a whole number",
        "number" => "a number",
        "string" => "a text",
        "array" => "a list",
        "object" => "a table",
        "null" => "nothing",
        other => other,
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(schema: &Value, config: &Value) -> Vec<String> {
        let show = |mistake: Mistake| {
            let help = mistake.help.map_or_else(String::new, |help| format!(" ({help})"));
            format!("{}: {}{help}", mistake.path.join("."), mistake.message)
        };
        mistakes(schema, config).into_iter().map(show).collect()
    }

    #[test]
    fn each_mistake_is_told_with_its_place() {
        let schema = json!({
            "type": "object",
            "properties": {
                "rate": {"type": "number", "exclusiveMinimum": 0, "maximum": 10},
                "mode": {"enum": ["fast", "slow"]},
                "name": {"type": ["string", "null"], "minLength": 2},
                "list": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
                "inner": {"$ref": "#/$defs/Inner"},
            },
            "required": ["rate"],
            "additionalProperties": false,
            "$defs": {"Inner": {"type": "object", "properties": {"deep": {"const": 1}}}},
        });
        let right =
            json!({"rate": 1, "mode": "fast", "name": null, "list": [1, 2.0], "inner": {"deep": 1, "x": 0}});
        assert_eq!(told(&schema, &right), Vec::<String>::new());
        let wrong = json!({
            "rate": 0, "mode": "fats", "name": "x", "list": [1, "2", 3.5, 4], "inner": {"deep": 2}, "rat": 1
        });
        insta::assert_snapshot!(told(&schema, &wrong).join("\n"));
        insta::assert_snapshot!(told(&schema, &json!({"rate": "1"})).join("\n"), @"rate: should be a number, but is a text");
        insta::assert_snapshot!(told(&schema, &json!({})).join("\n"), @": lacks `rate`");
    }

    #[test]
    fn of_several_forms_the_nearest_tells_what_is_wrong() {
        let schema = json!({"anyOf": [{"type": "null"}, {"type": "object", "properties": {"a": {"type": "integer"}}}]});
        assert_eq!(told(&schema, &json!(null)), Vec::<String>::new());
        assert_eq!(told(&schema, &json!({"a": "x"})), ["a: should be a whole number, but is a text"]);
    }

    #[test]
    fn a_schema_that_goes_in_a_circle_ends() {
        let schema = json!({"$ref": "#"});
        assert_eq!(told(&schema, &json!(1)), Vec::<String>::new());
        assert_eq!(told(&json!(false), &json!(1)), [": nothing may stand here"]);
    }
}
