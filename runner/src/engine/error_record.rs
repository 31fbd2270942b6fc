//! What stands on an error queue: everything somebody needs to understand the failure, and the job.

use serde::Serialize;
use serde_json::value::RawValue;
use tidegate_plugin::Failure;

use crate::words::{Address, DeliveryHash, Timestamp};

/// One failed job, as JSON on the error queue.
#[derive(Debug, Serialize)]
pub(super) struct ErrorRecord<'a> {
    /// RFC 3339, UTC.
    time: String,
    pipeline: &'a str,
    step: &'a str,
    /// Where the job came from: source or queue, and its index there.
    input: String,
    index: u64,
    attempt: u32,
    kind: &'static str,
    message: &'a str,
    /// Where in the user's code.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Place<'a>>,
    /// Where the job stood in its file.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<Place<'a>>,
    hash: String,
    #[serde(flatten)]
    job: Job,
}

#[derive(Debug, Serialize)]
struct Place<'a> {
    path: &'a str,
    line: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<u64>,
}

/// The job as JSON where it is JSON, otherwise as text, otherwise as its bytes.
#[derive(Debug, Serialize)]
enum Job {
    #[serde(rename = "job")]
    Json(Box<RawValue>),
    #[serde(rename = "job_text")]
    Text(String),
    #[serde(rename = "job_bytes")]
    Bytes(Vec<u8>),
}

/// The circumstances of one failure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case<'a> {
    pub(super) now: Timestamp,
    pub(super) step: &'a Address,
    pub(super) input: &'a Address,
    pub(super) index: u64,
    pub(super) attempt: u32,
    pub(super) hash: DeliveryHash,
    pub(super) file: Option<(&'a str, u64)>,
    pub(super) payload: &'a [u8],
}

/// Appends the record of `failure` to `buffer` as one JSON object.
pub(super) fn write(case: &Case<'_>, failure: &Failure, buffer: &mut Vec<u8>) -> serde_json::Result<()> {
    let at = failure.place.as_ref().map(|place| Place {
        path: &place.file,
        line: place.line,
        column: place.column,
    });
    let record = ErrorRecord {
        time: rfc3339(case.now),
        pipeline: case.step.pipeline.as_str(),
        step: case.step.name.as_str(),
        input: case.input.to_string(),
        index: case.index,
        attempt: case.attempt,
        kind: failure.kind.as_str(),
        message: &failure.message,
        at,
        file: case.file.map(|(path, line)| Place { path, line, column: None }),
        hash: case.hash.to_string(),
        job: job(case.payload),
    };
    serde_json::to_writer(buffer, &record)
}

fn job(payload: &[u8]) -> Job {
    match std::str::from_utf8(payload) {
        Ok(text) => match serde_json::from_str::<Box<RawValue>>(text) {
            Ok(raw) => Job::Json(raw),
            Err(_) => Job::Text(text.to_owned()),
        },
        Err(_) => Job::Bytes(payload.to_vec()),
    }
}

/// A time as people write it; one out of range of the calendar stays a number.
pub(super) fn rfc3339(time: Timestamp) -> String {
    match jiff::Timestamp::from_millisecond(time.0) {
        Ok(time) => time.to_string(),
        Err(_) => time.0.to_string(),
    }
}
