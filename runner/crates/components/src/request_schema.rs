//! `RequestSchema`: the JSON Schema that each job of an HTTP source must match. Nothing is fetched.

use std::fmt;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use tidegate_model::shortened;

/// Faults of one job that are reported.
const FAULTS_MAX: usize = 20;
/// Bytes of a message.
const MESSAGE_BYTES_MAX: usize = 300;

/// A schema that is ready for use.
pub struct RequestSchema(Validator);

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
    /// Line and column, from 1, if the text is not JSON.
    pub place: Option<(usize, usize)>,
}

impl RequestSchema {
    /// # Errors
    /// The text is not a JSON Schema, or refers to another document.
    pub fn compile(text: &str) -> Result<Self, SchemaError> {
        let schema: Value = serde_json::from_str(text).map_err(|error| SchemaError {
            message: format!("the schema is not JSON: {error}"),
            place: Some((error.line(), error.column())),
        })?;
        // A pattern with backtracking could take any time for a job that a client chooses.
        let options = jsonschema::options().offline().with_pattern_options(PatternOptions::regex());
        options.build(&schema).map(Self).map_err(|error| {
            let at = error.instance_path().as_str();
            let at = if at.is_empty() { String::new() } else { format!(" at `{at}`") };
            SchemaError { message: bounded(&format!("the schema is not valid{at}: {error}")), place: None }
        })
    }

    /// The parts of a job that do not match, at most 20.
    #[must_use]
    pub fn faults(&self, job: &Value) -> Vec<SchemaFault> {
        if self.0.is_valid(job) {
            return Vec::new();
        }
        let faults = self.0.iter_errors(job).take(FAULTS_MAX);
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
            assert!(
                error.place.is_none() && error.message.starts_with("the schema is not valid"),
                "{error:?}"
            );
        }
    }
}
