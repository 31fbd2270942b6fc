//! Printed lines: become durable with their cursor, or records of errors.

use crossbeam_channel::Sender;
use serde::Serialize;
use tidegate_plugin::Payloads;

use tidegate_components::command_source::{BadLine, PrintedLines};
use tidegate_config::{Configuration, QueueRef};
use tidegate_model::{Address, Timestamp, delivery_hash, rfc3339};

/// Lines of a command that become durable in one commit, with the cursor behind them.
#[derive(Debug)]
pub(crate) struct PrintedCommit {
    pub(crate) queue: QueueRef,
    pub(crate) lines: PrintedLines,
    /// The queue for lines that are no jobs; `None` if they are dropped.
    pub(crate) errors: Option<Address>,
    /// Number of the start of the command in this run.
    pub(crate) epoch: u64,
    /// Receives whether the lines are durable: the source may be removed.
    pub(crate) durable: Sender<bool>,
}

impl PrintedCommit {
    pub(crate) fn byte_len(&self) -> usize {
        self.lines.byte_len()
    }
}

/// A line that is no job, as JSON on the error queue. The source takes the place of the step.
#[derive(Debug, Serialize)]
struct BadLineRecord<'a> {
    time: String,
    pipeline: &'a str,
    step: &'a str,
    input: String,
    index: u64,
    line: u64,
    attempt: u64,
    kind: &'static str,
    message: String,
    hash: String,
    generation: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    job_text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job_bytes: Option<&'a [u8]>,
}

/// Error records of the lines of `source` that are no jobs.
pub(crate) fn error_records(
    source: &Address,
    generation: u64,
    epoch: u64,
    bad: &[BadLine],
    now: Timestamp,
) -> Payloads {
    let mut records = Payloads::new();
    for BadLine { line, text, message, position: _ } in bad {
        let input = source.to_string();
        let hash = delivery_hash(source.pipeline.as_str(), source.name.as_str(), [(&*input, &[*line][..])]);
        let as_text = std::str::from_utf8(text).ok();
        let record = BadLineRecord {
            time: rfc3339(now),
            pipeline: source.pipeline.as_str(),
            step: source.name.as_str(),
            input,
            index: *line,
            line: *line,
            attempt: epoch,
            kind: "payload",
            message: format!("line {line} of the output of the command: {message}"),
            hash: hash.to_string(),
            generation,
            job_text: as_text,
            job_bytes: as_text.is_none().then_some(text),
        };
        // Texts and numbers can always be serialized.
        let _ = records.push_with(|json| serde_json::to_writer(json, &record));
    }
    records
}

/// The position of the queue at `address`.
pub(crate) fn queue_at(configuration: &Configuration, address: &Address) -> Option<QueueRef> {
    configuration.queues.position(|queue| queue.address == *address).map(QueueRef)
}
