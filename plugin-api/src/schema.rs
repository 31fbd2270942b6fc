//! Schema check: validates a `config` against the JSON Schema of a plugin, so that `create` can read every
//! accepted one.
//!
//! It supports the keywords that schemars writes and people commonly use:
//!
//! - types and the formats of integers, `enum` and `const`;
//! - bounds of numbers, texts and lists, and `pattern`;
//! - `properties`, `required`, `additionalProperties`, `items` and `prefixItems`;
//! - `allOf`, `anyOf`, `oneOf`, and `$ref` within the schema.
//!
//! Other keywords have no effect here, nor does a `pattern` with look-around.

use regex_lite::Regex;
use serde_json::{Map, Number, Value};

use crate::words::listed;

mod keys;

pub use keys::{Key, keys, takes};

/// One error in a config.
#[derive(Clone, Debug, PartialEq)]
pub struct Mistake {
    /// The path to it: keys, and positions in lists.
    pub path: Vec<String>,
    /// The last part of the path is an unexpected key, not a value.
    pub at_key: bool,
    pub message: String,
    /// The written word, and the candidates for its meaning.
    pub typed: Option<(String, Vec<String>)>,
    /// The fix, if no candidate is near.
    pub help: Option<String>,
}

/// Parses the schema of a plugin.
///
/// # Errors
/// Why it is invalid, as a sentence fragment.
pub fn read(text: &str) -> Result<Value, String> {
    let schema = serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
    match fault(&schema, &schema) {
        Some(fault) => Err(fault),
        None => Ok(schema),
    }
}

/// The error of an invalid schema.
fn fault(root: &Value, schema: &Value) -> Option<String> {
    let rules = match schema {
        Value::Bool(_) => return None,
        Value::Object(rules) => rules,
        other => return Some(format!("must be a table of rules, but is {}", in_words(name(other)))),
    };
    if let Some(Value::String(reference)) = rules.get("$ref")
        && reference.starts_with('#')
        && resolve(root, reference).is_none()
    {
        return Some(format!("refers to `{reference}`, which is not in it"));
    }
    let lists = ["allOf", "anyOf", "oneOf", "prefixItems"].into_iter().filter_map(|key| rules.get(key));
    let tables = ["properties", "$defs", "definitions"].into_iter().filter_map(|key| rules.get(key));
    let single = ["items", "additionalProperties"].into_iter().filter_map(|key| rules.get(key));
    let mut inner = lists
        .filter_map(Value::as_array)
        .flatten()
        .chain(tables.filter_map(Value::as_object).flat_map(Map::values))
        .chain(single);
    inner.find_map(|schema| fault(root, schema))
}

/// The target of a reference within the schema: a JSON pointer in a fragment of a URI.
fn resolve<'s>(root: &'s Value, reference: &str) -> Option<&'s Value> {
    let mut pointer = Vec::new();
    let mut bytes = reference.strip_prefix('#')?.bytes();
    while let Some(byte) = bytes.next() {
        pointer.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    root.pointer(&String::from_utf8(pointer).ok()?)
}

/// All errors of `config`.
#[must_use]
pub fn mistakes(schema: &Value, config: &Value) -> Vec<Mistake> {
    let mut checker = Checker { root: schema, path: Vec::new(), found: Vec::new(), depth: 0 };
    checker.check(schema, config);
    checker.found
}

/// Circular references of schemas end here.
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
            Value::Bool(false) => self.report("no value is allowed here".into()),
            Value::Object(rules) => self.check_rules(rules, value),
            _ => {}
        }
        self.depth -= 1;
    }

    fn check_rules(&mut self, rules: &'s Map<String, Value>, value: &Value) {
        if let Some(Value::String(reference)) = rules.get("$ref")
            && let Some(schema) = resolve(self.root, reference)
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
            Value::Number(number) => {
                self.check_number(rules, number.as_f64().unwrap_or_default());
                self.check_format(rules, number);
            }
            Value::String(text) => {
                self.check_length(
                    rules,
                    text.chars().count(),
                    ("minLength", "maxLength"),
                    ["character", "characters"],
                );
                self.check_pattern(rules, text);
            }
            Value::Array(elements) => self.check_elements(rules, elements),
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
                // A whole number that is written as a float is an integer for JSON Schema, and for no code
                // that reads it.
                number.is_i64() || number.is_u64()
            }
            (kind, value) => kind == name(value),
        });
        if !fits {
            let wanted: Vec<&str> =
                types.iter().copied().filter(|kind| *kind != "null").map(in_words).collect();
            let found = if value.is_number() { value.to_string() } else { in_words(name(value)).to_owned() };
            let whole =
                value.as_f64().filter(|float| wanted.contains(&in_words("integer")) && float.fract() == 0.0);
            let help = whole.map(|float| format!("write `{float}`"));
            self.report_with(format!("must be {}, but is {found}", wanted.join(" or ")), help);
        }
        fits
    }

    fn check_choice(&mut self, rules: &Map<String, Value>, value: &Value) {
        if let Some(constant) = rules.get("const")
            && constant != value
        {
            self.report(format!("must be `{constant}`"));
        }
        if let Some(Value::Array(choices)) = rules.get("enum")
            && !choices.contains(value)
        {
            let words: Vec<String> = choices.iter().map(plain).collect();
            let help = format!("use {}", listed(words.iter().map(String::as_str), "or"));
            // The value itself may be a secret.
            self.report_with("is not one of the allowed words".to_owned(), Some(help));
            if let Some(mistake) = self.found.last_mut() {
                mistake.typed = Some((plain(value), words));
            }
        }
    }

    fn check_number(&mut self, rules: &Map<String, Value>, number: f64) {
        let bound = |key: &str| rules.get(key).and_then(Value::as_f64);
        if let Some(least) = bound("minimum")
            && number < least
        {
            self.report(format!("must be {least} or more"));
        }
        if let Some(most) = bound("maximum")
            && number > most
        {
            self.report(format!("must be {most} or less"));
        }
        if let Some(least) = bound("exclusiveMinimum")
            && number <= least
        {
            self.report(format!("must be more than {least}"));
        }
        if let Some(most) = bound("exclusiveMaximum")
            && number >= most
        {
            self.report(format!("must be less than {most}"));
        }
    }

    /// The number must fit the integer type that it is read into.
    fn check_format(&mut self, rules: &Map<String, Value>, number: &Number) {
        let (least, most): (i128, i128) = match rules.get("format").and_then(Value::as_str) {
            Some("int8") => (i8::MIN.into(), i8::MAX.into()),
            Some("int16") => (i16::MIN.into(), i16::MAX.into()),
            Some("int32") => (i32::MIN.into(), i32::MAX.into()),
            Some("int64" | "int") => (i64::MIN.into(), i64::MAX.into()),
            Some("uint8") => (0, u8::MAX.into()),
            Some("uint16") => (0, u16::MAX.into()),
            Some("uint32") => (0, u32::MAX.into()),
            Some("uint64" | "uint") => (0, u64::MAX.into()),
            _ => return,
        };
        let Some(number) = number.as_i64().map(i128::from).or(number.as_u64().map(i128::from)) else {
            return;
        };
        // Already reported if the schema has bounds of its own.
        let has_limit = |key: &str| rules.get(key).is_some_and(Value::is_number);
        if number < least && !has_limit("minimum") {
            self.report(format!("must be {least} or more"));
        }
        if number > most && !has_limit("maximum") {
            self.report(format!("must be {most} or less"));
        }
    }

    fn check_pattern(&mut self, rules: &Map<String, Value>, text: &str) {
        let Some(pattern) = rules.get("pattern").and_then(Value::as_str) else { return };
        if Regex::new(pattern).is_ok_and(|regex| !regex.is_match(text)) {
            // The text itself may be a secret.
            self.report(format!("does not match the pattern `{pattern}`"));
        }
    }

    fn check_elements(&mut self, rules: &'s Map<String, Value>, elements: &[Value]) {
        self.check_length(rules, elements.len(), ("minItems", "maxItems"), ["element", "elements"]);
        let first = rules.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for (position, element) in elements.iter().enumerate() {
            if let Some(schema) = first.get(position).or(rules.get("items")) {
                self.inside(&position.to_string(), |checker| checker.check(schema, element));
            }
        }
    }

    fn check_length(
        &mut self,
        rules: &Map<String, Value>,
        length: usize,
        (least, most): (&str, &str),
        [one, many]: [&str; 2],
    ) {
        let of = |count| if count == 1 { one } else { many };
        let bound = |key| rules.get(key).and_then(Value::as_u64);
        if let Some(least) = bound(least)
            && (length as u64) < least
        {
            self.report(format!("must have {least} {} or more", of(least)));
        }
        if let Some(most) = bound(most)
            && length as u64 > most
        {
            self.report(format!("must have {most} {} or fewer", of(most)));
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
                    let help = match known_keys().next() {
                        Some(_) => format!("its keys are {}", listed(known_keys(), "and")),
                        None => "it has no keys".to_owned(),
                    };
                    let message = format!("has an unknown key `{key}`");
                    let mut path = self.path.clone();
                    path.push(key.clone());
                    let typed = Some((key.clone(), known_keys().map(str::to_owned).collect()));
                    self.found.push(Mistake { path, at_key: true, message, typed, help: Some(help) });
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
            // The errors of the alternative that matches best are reported.
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
        let path = self.path.clone();
        self.found.push(Mistake { path, at_key: false, message, typed: None, help });
    }
}

/// The name in JSON Schema.
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

/// The name in messages.
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

    fn shown(schema: &Value, config: &Value) -> Vec<String> {
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
            json!({"rate": 1, "mode": "fast", "name": null, "list": [1, 2], "inner": {"deep": 1, "x": 0}});
        assert_eq!(shown(&schema, &right), Vec::<String>::new());
        let wrong = json!({
            "rate": 0, "mode": "fats", "name": "x", "list": [1, "2", 3.5, 4], "inner": {"deep": 2}, "rat": 1
        });
        assert_eq!(
            shown(&schema, &wrong),
            [
                "inner.deep: must be `1`",
                "list: must have 3 elements or fewer",
                "list.1: must be a whole number, but is a text",
                "list.2: must be a whole number, but is 3.5",
                "mode: is not one of the allowed words (use `fast` or `slow`)",
                "name: must have 2 characters or more",
                "rat: has an unknown key `rat` (its keys are `inner`, `list`, `mode`, `name` and `rate`)",
                "rate: must be more than 0",
            ]
        );
        assert_eq!(shown(&schema, &json!({"rate": "1"})), ["rate: must be a number, but is a text"]);
        assert_eq!(shown(&schema, &json!({})), [": lacks `rate`"]);
    }

    #[test]
    fn of_several_forms_the_nearest_tells_what_is_wrong() {
        let schema = json!({"anyOf": [{"type": "null"}, {"type": "object", "properties": {"a": {"type": "integer"}}}]});
        assert_eq!(shown(&schema, &json!(null)), Vec::<String>::new());
        assert_eq!(shown(&schema, &json!({"a": "x"})), ["a: must be a whole number, but is a text"]);
    }

    #[test]
    fn a_schema_that_goes_in_a_circle_ends() {
        let schema = json!({"$ref": "#"});
        assert_eq!(shown(&schema, &json!(1)), Vec::<String>::new());
        assert_eq!(shown(&json!(false), &json!(1)), [": no value is allowed here"]);
    }

    #[test]
    fn a_number_has_to_be_one_that_the_code_can_read() {
        let schema = json!({"properties": {
            "count": {"type": "integer", "format": "uint8", "minimum": 0},
            "wide": {"type": ["integer", "null"], "format": "int64"},
            "rate": {"type": "number", "format": "double"},
        }});
        assert_eq!(shown(&schema, &json!({"count": 255, "wide": i64::MIN, "rate": 5})), [""; 0]);
        assert_eq!(
            shown(&schema, &json!({"count": 5.0, "wide": 1e2, "rate": 5.0})),
            [
                "count: must be a whole number, but is 5.0 (write `5`)",
                "wide: must be a whole number, but is 100.0 (write `100`)"
            ]
        );
        assert_eq!(shown(&schema, &json!({"count": 256})), ["count: must be 255 or less"]);
        assert_eq!(shown(&schema, &json!({"count": -1})), ["count: must be 0 or more"]);
        assert_eq!(shown(&schema, &json!({"wide": u64::MAX})), ["wide: must be 9223372036854775807 or less"]);
    }

    #[test]
    fn tuples_and_patterns_are_held_to() {
        let pair = json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer", "format": "uint8"}],
            "minItems": 2, "maxItems": 2});
        assert_eq!(shown(&pair, &json!(["b", 7])), [""; 0]);
        assert_eq!(shown(&pair, &json!(["b", 700])), ["1: must be 255 or less"]);
        assert_eq!(shown(&pair, &json!([1, 7])), ["0: must be a text, but is 1"]);
        let code = json!({"type": "string", "pattern": "^[A-Z]{3}$"});
        assert_eq!(shown(&code, &json!("EUR")), [""; 0]);
        assert_eq!(shown(&code, &json!("!!")), [": does not match the pattern `^[A-Z]{3}$`"]);
        let ahead = json!({"type": "string", "pattern": "(?=x)"});
        assert_eq!(shown(&ahead, &json!("y")), [""; 0]);
    }

    #[test]
    fn references_lead_from_one_to_the_next_or_are_told() {
        let schema = json!({"$ref": "#/$defs/a%20b", "$defs": {
            "a b": {"properties": {"next": {"$ref": "#/$defs/c~1d"}}}, "c/d": {"type": "boolean"},
        }});
        assert!(read(&schema.to_string()).is_ok());
        assert_eq!(shown(&schema, &json!({"next": 1})), ["next: must be `true` or `false`, but is 1"]);
        let refused = |schema: &str| read(schema).unwrap_err();
        assert_eq!(refused("[1]"), "must be a table of rules, but is a list");
        assert_eq!(refused(r#"{"items": [1]}"#), "must be a table of rules, but is a list");
        assert_eq!(refused(r##"{"allOf": [{"$ref": "#/nope"}]}"##), "refers to `#/nope`, which is not in it");
        assert!(refused("{nope").starts_with("is not JSON: "));
    }
}
