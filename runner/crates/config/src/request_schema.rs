//! `RequestSchema`: the JSON Schema that each job of an HTTP source must match. Nothing is fetched.

mod counted;

use std::fmt;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

use self::counted::{Counted, CountedJson, within};
use tidegate_model::{FieldPath, shortened};

/// Faults of one job that are reported.
const FAULTS_MAX: usize = 20;
/// Bytes of a message.
const MESSAGE_BYTES_MAX: usize = 300;
/// Visits to the values of a job that a check may take, for each value …
const VISITS_PER_VALUE: u64 = 64;
/// … and besides.
const VISITS: u64 = 100_000;
/// Visits that finding the faults may take: the validator keeps all faults in memory.
const VISITS_FOR_FAULTS: u64 = 300_000;

/// A schema that is ready for use.
pub struct RequestSchema(Validator<CountedJson>);

/// A part of a job that does not match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaFault {
    /// A JSON pointer, like `/items/0/price`; empty for the whole job.
    pub at: String,
    /// A sentence fragment, without the value itself.
    pub error: String,
}

/// Why a text is not a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaError {
    pub message: String,
    /// Line and column, from 1.
    pub place: Option<(usize, usize)>,
    pub help: Option<&'static str>,
}

impl RequestSchema {
    /// # Errors
    /// The text is not a JSON Schema, or refers to another document.
    pub fn compile(text: &str) -> Result<Self, SchemaError> {
        let schema: Value = serde_json::from_str(text).map_err(|error| SchemaError {
            message: format!("the schema is not JSON: {error}"),
            place: Some((error.line(), error.column())),
            help: None,
        })?;
        // A pattern with backtracking could take any time for a job that a client chooses.
        let options =
            jsonschema::options_for::<CountedJson>().offline().with_pattern_options(PatternOptions::regex());
        options.build(&schema).map(Self).map_err(|error| {
            let pointer = error.instance_path().as_str();
            let at = if pointer.is_empty() { String::new() } else { format!(" at `{pointer}`") };
            SchemaError {
                message: bounded(&format!("the schema is not valid{at}: {error}")),
                place: place_of(pointer, text),
                help: help(&error, pointer),
            }
        })
    }

    /// The parts of a job that do not match, at most 20.
    #[must_use]
    pub fn faults(&self, job: &Value) -> Vec<SchemaFault> {
        let whole = |error: &str| vec![SchemaFault { at: String::new(), error: error.to_owned() }];
        let visits = VISITS_PER_VALUE.saturating_mul(values(job)).saturating_add(VISITS);
        match within(visits, || self.0.is_valid(Counted(job))) {
            Some(true) => return Vec::new(),
            Some(false) => {}
            None => return whole("the schema has too many branches for it, so that it cannot be checked"),
        }
        within(VISITS_FOR_FAULTS, || self.found_faults(job))
            .unwrap_or_else(|| whole("does not match the schema, and is too large to find the places"))
    }

    fn found_faults(&self, job: &Value) -> Vec<SchemaFault> {
        let faults = self.0.iter_errors(Counted(job)).take(FAULTS_MAX);
        faults
            .map(|error| SchemaFault {
                at: error.instance_path().as_str().to_owned(),
                error: bounded(&error.masked_with("the value").to_string()),
            })
            .collect()
    }
}

impl fmt::Debug for RequestSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestSchema")
    }
}

/// Line and column of the value at a JSON pointer. `None`: it has a name that no path can have.
fn place_of(pointer: &str, text: &str) -> Option<(usize, usize)> {
    let path = FieldPath::parse(&pointer.strip_prefix('/')?.replace('/', "."))?;
    let value = path.find(text.as_bytes())?;
    // The value is a part of the text.
    let before = &text[..value.as_ptr().addr().checked_sub(text.as_ptr().addr())?];
    let line = before.rsplit('\n').next().unwrap_or_default();
    Some((before.matches('\n').count() + 1, line.len() + 1))
}

/// The values that are allowed at the place of a mistake. The library names its own rules only.
fn help(error: &ValidationError<'_>, pointer: &str) -> Option<&'static str> {
    let keyword = pointer.rsplit('/').find(|name| name.parse::<usize>().is_err()).unwrap_or_default();
    match keyword {
        _ if matches!(error.kind(), ValidationErrorKind::Referencing(_)) => Some(
            "refer to the schema's own parts, as in `#/$defs/NAME`. `$schema` names one of the drafts 4, 6, 7, \
             2019-09 and 2020-12, or is left out",
        ),
        "type" => {
            Some("the types are `array`, `boolean`, `integer`, `null`, `number`, `object` and `string`")
        }
        "pattern" | "patternProperties" => {
            Some("a pattern has no look-around, no back reference, and a bounded size")
        }
        _ => None,
    }
}

/// The number of values in a job, itself included.
fn values(job: &Value) -> u64 {
    1 + match job {
        Value::Array(inner) => inner.iter().map(values).sum(),
        Value::Object(inner) => inner.values().map(values).sum(),
        _ => 0,
    }
}

fn bounded(message: &str) -> String {
    shortened(message.to_owned(), MESSAGE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn faults(schema: &Value, job: &Value) -> Vec<(String, String)> {
        let schema = RequestSchema::compile(&schema.to_string()).unwrap();
        schema.faults(job).into_iter().map(|fault| (fault.at, fault.error)).collect()
    }

    #[test]
    fn each_part_that_does_not_match_has_its_place() {
        let schema = json!({
            "type": "object",
            "required": ["id"],
            "properties": { "amount": { "type": "number", "minimum": 1 }, "tags": { "items": { "pattern": "^[a-z]+$" } } },
        });
        assert_eq!(faults(&schema, &json!({ "id": 1, "amount": 2, "tags": ["a"] })), []);
        let mut found = faults(&schema, &json!({ "amount": 0.5, "tags": ["a", "B"] }));
        found.sort();
        let places: Vec<&str> = found.iter().map(|(at, _)| at.as_str()).collect();
        assert_eq!(places, ["", "/amount", "/tags/1"], "{found:?}");
        assert!(found[0].1.contains("id") && found[1].1.contains("the value"), "{found:?}");
        assert!(!found[1].1.contains("0.5"), "{found:?}");
    }

    #[test]
    fn the_faults_of_a_job_are_bounded() {
        let job = json!(vec!["x"; 1000]);
        assert_eq!(faults(&json!({ "items": { "type": "number" } }), &job).len(), FAULTS_MAX);
    }

    #[test]
    fn a_small_job_cannot_take_exponential_time_or_memory() {
        let branch = |field: &str| {
            json!({
                "type": "object",
                "required": [field],
                "properties": { field: { "$ref": "#/$defs/e" }, "x": { "$ref": "#/$defs/e" } },
            })
        };
        let schema = json!({
            "properties": { "e": { "$ref": "#/$defs/e" } },
            "$defs": { "e": { "oneOf": [{ "type": "integer" }, branch("and"), branch("or")] } },
        });
        let nested = |field: &str| (0..100).fold(json!(7), |inner, _| json!({ field: inner }));
        let found = faults(&schema, &json!({ "e": nested("x") }));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, "");
        assert_eq!(faults(&schema, &json!({ "e": nested("and") })), []);
    }

    #[test]
    fn a_large_job_with_many_faults_is_refused_as_a_whole() {
        let job = json!(vec!["x"; 400_000]);
        let found = faults(&json!({ "items": { "type": "number" } }), &job);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].1.contains("too large"), "{found:?}");
        assert_eq!(faults(&json!({ "items": { "type": "string" } }), &job), []);
    }

    #[test]
    fn a_format_is_checked_with_the_drafts_before_2019_only() {
        let drafts = [
            "draft-04/schema#",
            "draft-06/schema#",
            "draft-07/schema#",
            "draft/2019-09/schema",
            "draft/2020-12/schema",
        ];
        let is_checked = drafts.map(|draft| {
            let scheme = if draft.starts_with("draft/") { "https" } else { "http" };
            let schema =
                json!({ "$schema": format!("{scheme}://json-schema.org/{draft}"), "format": "date-time" });
            !faults(&schema, &json!("no date")).is_empty()
        });
        assert_eq!(is_checked, [true, true, true, false, false]);
        assert_eq!(faults(&json!({ "format": "date-time" }), &json!("no date")), []);
    }

    #[test]
    fn a_mistake_in_a_schema_has_its_place_and_a_help() {
        let cases = [
            ("{\n \"type\": \"objekt\" }", Some((2, 10)), Some("the types are")),
            (
                "{\n \"properties\": {\n  \"ä\": { \"type\": [\"text\"] } } }",
                Some((3, 19)),
                Some("the types are"),
            ),
            ("{\"items\":\n {\"pattern\": \"(?=a)b\"}}", Some((2, 14)), Some("a pattern has no look-around")),
            ("{\"$ref\": \"order.json\"}", None, Some("refer to the schema's own parts")),
            ("{\"$schema\": \"order\"}", None, Some("refer to the schema's own parts")),
            ("{\"minimum\": \"1\"}", Some((1, 13)), None),
            ("{\"properties\": {\"a.b\": {\"minimum\": \"1\"}}}", None, None),
        ];
        for (text, place, help) in cases {
            let refused = RequestSchema::compile(text).unwrap_err();
            assert_eq!(refused.place, place, "{text}: {refused:?}");
            let begins = |begin: &str| refused.help.is_some_and(|help| help.starts_with(begin));
            assert!(help.map_or(refused.help.is_none(), begins), "{text}: {refused:?}");
        }
    }

    #[test]
    fn what_is_no_schema_is_refused_and_nothing_is_fetched() {
        let refused = |text: &str| RequestSchema::compile(text).unwrap_err();
        let no_json = refused("{\n  \"type\": object }");
        assert_eq!(no_json.place.map(|(line, _)| line), Some(2), "{no_json:?}");
        assert!(no_json.message.starts_with("the schema is not JSON: "), "{no_json:?}");
        for text in [
            r#"{ "properties": { "id": { "type": "text" } } }"#,
            r##"{ "$ref": "#/$defs/missing" }"##,
            r#"{ "$ref": "https://schemas.example/order.json" }"#,
            r#"{ "$ref": "file:///etc/passwd" }"#,
            r#"{ "pattern": "(?=a)b" }"#,
        ] {
            let error = refused(text);
            assert!(error.message.starts_with("the schema is not valid"), "{error:?}");
        }
    }
}
