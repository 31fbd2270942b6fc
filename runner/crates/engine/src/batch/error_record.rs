//! Error record: keeps a failed job on the error queue, with all facts about its failure.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tidegate_plugin::Failure;

use super::job_builder::JobInput;
use super::reason;
use tidegate_components::redact::Redactor;
use tidegate_config::{InputMode, Processor, Step};
use tidegate_model::{Address, Secret, Timestamp, rfc3339, shortened};
use tidegate_store::{FinishedEnd, FinishedOutput, FinishedResult};

/// One failed job, as JSON on the error queue.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorRecord<'a> {
    /// Time in RFC 3339, UTC.
    time: String,
    pipeline: &'a str,
    step: &'a str,
    /// Origin of the job: source or queue, and its index there; the first input of a joined job.
    input: String,
    index: u64,
    /// Origins of the parts of a joined job, by binding.
    #[serde(skip_serializing_if = "Option::is_none")]
    inputs: Option<BTreeMap<&'a str, Given>>,
    attempt: u32,
    kind: Cow<'static, str>,
    message: &'a str,
    /// Context that the author of the code gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<&'a RawValue>,
    /// Position in the user's code.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<RecordPlace<'a>>,
    /// Position of the job in its file.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<RecordPlace<'a>>,
    hash: String,
    /// Number of the configuration that failed.
    generation: u64,
    /// `run` and `config` of the step, without secrets.
    configuration: &'a RawValue,
    /// Result that the external system gave with its refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Cow<'a, RawValue>>,
    /// Queues that the job has passed, if they have `meta`.
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<&'a RawValue>,
    /// Output that was to be delivered later, which is the job of this record. A retry delivers it, and runs nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a str>,
    /// Outputs of an attempt whose result could not be delivered. A retry delivers them, and runs nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    outputs: Option<Vec<RecordedOutput<'a>>>,
    #[serde(flatten)]
    job: Job,
}

#[derive(Debug, Serialize)]
struct RecordedOutput<'a> {
    to: &'a str,
    /// Time of its delivery; RFC 3339. Without it, it is delivered with the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<String>,
    job: &'a RawValue,
}

#[derive(Debug, Serialize)]
struct Given {
    from: String,
    index: u64,
}

#[derive(Debug, Serialize)]
struct RecordPlace<'a> {
    path: &'a str,
    line: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<u64>,
}

/// The job as JSON, otherwise as text, otherwise as bytes.
#[derive(Debug, Serialize)]
enum Job {
    #[serde(rename = "job")]
    Json(Box<RawValue>),
    #[serde(rename = "job_text")]
    Text(String),
    #[serde(rename = "job_bytes")]
    Bytes(Vec<u8>),
}

/// Circumstances of one failure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailureCase<'a> {
    pub(crate) now: Timestamp,
    pub(crate) step: &'a Address,
    pub(crate) take: InputMode,
    pub(crate) generation: u64,
    pub(crate) item: &'a JobInput<'a>,
    pub(crate) result: Option<&'a RawValue>,
    /// Result of an attempt, if it cannot be delivered.
    pub(crate) undelivered: Option<&'a FinishedResult>,
    pub(crate) configuration: &'a RawValue,
}

/// The configuration of a step, as its error records have it. It is written when the first job fails.
#[derive(Debug)]
pub(crate) struct RecordedConfiguration {
    run: Vec<String>,
    config: Arc<Value>,
    secrets: Vec<Secret>,
    written: OnceCell<Box<RawValue>>,
}

impl RecordedConfiguration {
    pub(crate) fn new(step: &Step) -> Self {
        let named = |processor: &Processor| match processor {
            Processor::Script(script) => {
                script.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
            }
            other => other.mock_name().unwrap_or_else(|| "plugin".to_owned()),
        };
        Self {
            run: step.processors.iter().map(named).collect(),
            config: Arc::clone(&step.config),
            secrets: step.secrets.clone(),
            written: OnceCell::new(),
        }
    }

    pub(crate) fn get(&self) -> &RawValue {
        self.written.get_or_init(|| {
            let scrub = Redactor::new(&self.secrets);
            // A large table is neither copied nor written to be left out.
            let config = if serde_json::to_writer(Room(reason::BYTES_MAX), &*self.config).is_ok() {
                cleaned(&self.config, &scrub)
            } else {
                Value::String("too long for an error record".to_owned())
            };
            let run: Vec<String> = self.run.iter().map(|name| scrub.clean(name)).collect();
            let written = serde_json::json!({ "run": run, "config": config });
            // Texts and numbers can always be serialized.
            serde_json::value::to_raw_value(&written).unwrap_or_else(|_| RawValue::NULL.to_owned())
        })
    }
}

/// Room for this number of bytes; more are an error.
struct Room(usize);

impl io::Write for Room {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The value without secrets. An inserted number is one too.
fn cleaned(value: &Value, scrub: &Redactor) -> Value {
    match value {
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| (scrub.clean(key), cleaned(value, scrub));
            Value::Object(fields.iter().map(field).collect())
        }
        Value::Array(values) => Value::Array(values.iter().map(|value| cleaned(value, scrub)).collect()),
        Value::String(text) => Value::String(scrub.clean(text)),
        Value::Number(number) => {
            let written = number.to_string();
            let clean = scrub.clean(&written);
            if clean == written { value.clone() } else { Value::String(clean) }
        }
        Value::Bool(_) | Value::Null => value.clone(),
    }
}

/// Appends the record of `failure` to `buffer` as one JSON object.
pub(crate) fn write(
    case: &FailureCase<'_>,
    failure: &Failure,
    buffer: &mut Vec<u8>,
) -> serde_json::Result<()> {
    let at = failure.place.as_ref().map(|place| RecordPlace {
        path: &place.file,
        line: place.line,
        column: place.column,
    });
    let file = case.item.file();
    let path = file.as_ref().map(|(path, line)| (path.to_string_lossy(), *line));
    let first = case.item.given().next();
    let inputs = case.item.given();
    let inputs = inputs.map(|given| (given.name, Given { from: given.from(), index: given.index }));
    let record = ErrorRecord {
        time: rfc3339(case.now),
        pipeline: case.step.pipeline.as_str(),
        step: case.step.name.as_str(),
        input: first.map_or_else(String::new, |given| given.from()),
        index: case.item.index(),
        inputs: (case.take != InputMode::From).then(|| inputs.collect()),
        attempt: case.item.attempt,
        kind: failure.word(),
        message: &failure.message,
        at,
        context: failure.context.as_deref().and_then(|context| serde_json::from_str(context).ok()),
        file: path.as_ref().map(|(path, line)| RecordPlace { path, line: *line, column: None }),
        hash: case.item.hash.to_string(),
        generation: case.generation,
        configuration: case.configuration,
        result: case.result.map(bounded),
        meta: serde_json::from_str(&case.item.carried).ok(),
        output: case.item.to,
        outputs: case.undelivered.and_then(outputs),
        job: job(case.item),
    };
    serde_json::to_writer(buffer, &record)
}

/// The outputs of a result; `None` if it is no delivery, or one of them is not JSON.
fn outputs(result: &FinishedResult) -> Option<Vec<RecordedOutput<'_>>> {
    if !matches!(result.end, FinishedEnd::Delivered) {
        return None;
    }
    let left = result.outputs.iter().filter(|output| !output.was_sent());
    let outputs = left.map(|FinishedOutput { to, due, payload }| {
        let job = serde_json::from_slice(payload).ok()?;
        Some(RecordedOutput { to, due: due.map(rfc3339), job })
    });
    outputs.collect()
}

/// A result that is too long becomes a text.
fn bounded(result: &RawValue) -> Cow<'_, RawValue> {
    if result.get().len() <= reason::BYTES_MAX {
        return Cow::Borrowed(result);
    }
    let text = shortened(result.get().to_owned(), reason::BYTES_MAX);
    serde_json::value::to_raw_value(&text).map_or(Cow::Borrowed(RawValue::NULL), Cow::Owned)
}

fn job(item: &JobInput<'_>) -> Job {
    match std::str::from_utf8(item.payload) {
        Ok(text) => match serde_json::from_str::<Box<RawValue>>(text) {
            // A job with a fault was cut or wrapped, so it does not count as JSON even if it parses.
            Ok(raw) if item.fault.is_none() => Job::Json(raw),
            _ => Job::Text(text.to_owned()),
        },
        Err(_) => Job::Bytes(item.payload.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_configuration_that_is_too_long_is_left_out() {
        let recorded = |config: &Value| {
            let (run, config) = (vec!["pay.rhai".to_owned()], Arc::new(config.clone()));
            let recorded =
                RecordedConfiguration { run, config, secrets: Vec::new(), written: OnceCell::new() };
            serde_json::from_str::<Value>(recorded.get().get()).unwrap()
        };
        let (short, long) = (json!(vec![7; 1000]), json!(vec![7; 100_000]));
        assert_eq!(recorded(&short), json!({ "run": ["pay.rhai"], "config": short }));
        assert_eq!(recorded(&long), json!({ "run": ["pay.rhai"], "config": "too long for an error record" }));
    }
}
