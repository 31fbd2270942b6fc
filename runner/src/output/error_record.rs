//! `Record`: an error record, as commands read and show it.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::terminal::wrapped;
use super::times;
use crate::query::QueueJob;
use tidegate_model::{present, rfc3339};

/// An error record, with the fields that commands show. The job stays a text, since it may not be valid JSON.
#[derive(Debug, Deserialize)]
pub(crate) struct ErrorRecordView<'a> {
    time: String,
    pub(crate) pipeline: String,
    pub(crate) step: String,
    pub(crate) input: String,
    pub(crate) index: u64,
    /// The parts of a joined job, by binding.
    inputs: Option<BTreeMap<String, Given>>,
    attempt: u32,
    pub(crate) kind: String,
    pub(crate) message: String,
    #[serde(borrow)]
    context: Option<&'a RawValue>,
    at: Option<RecordPlace>,
    file: Option<RecordPlace>,
    hash: String,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    configuration: Option<&'a RawValue>,
    generation: Option<u64>,
    #[serde(borrow)]
    meta: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    job: Option<&'a RawValue>,
    job_text: Option<String>,
    #[serde(borrow)]
    job_bytes: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct Given {
    from: String,
    index: u64,
}

#[derive(Debug, Deserialize)]
struct RecordPlace {
    path: String,
    line: u64,
    column: Option<u64>,
}

impl ErrorRecordView<'_> {
    pub(crate) fn of(error: &QueueJob) -> Result<ErrorRecordView<'_>, String> {
        let QueueJob { queue, index, .. } = error;
        let what = |_| format!("`{queue}/{index}` is a job, not an error record: use `queue show`");
        serde_json::from_str(error.job.get()).map_err(what)
    }

    /// The time of the failure. Records of older versions leave zeros out.
    pub(crate) fn time(&self) -> String {
        times::read(&self.time).map_or_else(|| self.time.clone(), rfc3339)
    }

    /// The origin of the job; of a joined one, of all its parts.
    pub(crate) fn origin(&self) -> String {
        match &self.inputs {
            Some(inputs) => {
                let parts = inputs.values().map(|given| format!("{}/{}", given.from, given.index));
                parts.collect::<Vec<_>>().join(" + ")
            }
            None => format!("{}/{}", self.input, self.index),
        }
    }

    /// The error as a page: the message first, the job last. Only the job may be wider than `width`.
    pub(crate) fn describe(&self, error: &QueueJob, width: Option<usize>) -> String {
        // Further lines are indented, so that none looks like one of the page.
        let message = self.message.replace('\n', "\n    ");
        let headline = format!("{}/{}: {message}", error.queue, error.index);
        let mut lines = vec![wrapped(&headline, 4, width), String::new()];
        let mut line = |name: &str, value: Option<String>| {
            lines.extend(value.map(|value| wrapped(&format!("{name:<12}{value}"), 12, width)));
        };
        line("handled", error.handled.then(|| "it was retried or dropped".to_owned()));
        line("kind", Some(self.kind.clone()));
        line("at", self.at.as_ref().map(RecordPlace::to_string));
        line("step", Some(format!("{}/{}", self.pipeline, self.step)));
        match &self.inputs {
            Some(inputs) => {
                let part = |(binding, given): (&String, &Given)| {
                    format!("{binding} = {}/{}", given.from, given.index)
                };
                line("inputs", Some(inputs.iter().map(part).collect::<Vec<_>>().join(", ")));
            }
            None => line("job", Some(self.origin())),
        }
        line("file", self.file.as_ref().map(RecordPlace::to_string));
        line("context", self.context.map(|context| context.get().to_owned()));
        line("result", self.result.map(|result| result.get().to_owned()));
        line("attempt", Some(self.attempt.to_string()));
        line("time", Some(self.time()));
        line("generation", self.generation.map(|number| number.to_string()));
        line("config", self.configuration.map(|configuration| configuration.get().to_owned()));
        line("hash", Some(self.hash.clone()));
        line("meta", self.meta.map(|meta| meta.get().to_owned()));
        lines.push(String::new());
        lines.push(self.job());
        lines.join("\n")
    }

    /// The job for people: indented if it is JSON, otherwise unchanged.
    fn job(&self) -> String {
        if let Some(text) = &self.job_text {
            return text.clone();
        }
        let Some(raw) = self.job.or(self.job_bytes) else { return String::new() };
        let pretty = serde_json::from_str::<serde_json::Value>(raw.get())
            .and_then(|job| serde_json::to_string_pretty(&job));
        pretty.unwrap_or_else(|_| raw.get().to_owned())
    }
}

impl fmt::Display for RecordPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path, self.line)?;
        self.column.map_or(Ok(()), |column| write!(f, ":{column}"))
    }
}
