//! `PushSource`: a pushed source, whose jobs are appended to the queue of its own name.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use super::LineFormat;
use super::processor::{Limits, Script};
use crate::sections::exec::ExecCommand;
use tidegate_model::{Address, FieldPath, Missed, Restart, RetryPolicy, Schedule, Timestamp};

/// The producer of a queue other than steps.
#[derive(Clone, Debug, PartialEq)]
pub enum PushSource {
    Http(HttpSource),
    Schedule(ScheduleSource),
    Exec(Box<CommandSource>),
}

impl PushSource {
    #[must_use]
    pub fn schedule(&self) -> Option<&Schedule> {
        match self {
            Self::Schedule(source) => Some(&source.schedule),
            Self::Http(_) | Self::Exec(_) => None,
        }
    }

    /// Its `type`.
    #[must_use]
    pub fn sort(&self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::Schedule(_) => "schedule",
            Self::Exec(_) => "exec",
        }
    }
}

/// `type = "http"`: jobs are the bodies of POST requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpSource {
    /// The path of the field with the job's key; `None`: all jobs are different.
    pub key: Option<FieldPath>,
    /// How long a key is remembered; `None`: for ever.
    pub dedupe: Option<Duration>,
    /// The longest body of a request, in bytes.
    pub max_body: usize,
    /// Maximum number of jobs that wait for the slowest reader before requests are refused.
    pub max_waiting: Option<u64>,
    /// The token that a request must carry.
    pub token: Option<Token>,
    /// The JSON Schema that each job must match.
    pub schema: Option<SchemaFile>,
    /// The script that accepts or refuses each job.
    pub accept: Option<Box<AcceptScript>>,
    /// The path of the field with the time at which a job is appended.
    pub due: Option<FieldPath>,
    /// The path of the field with the time that a job waits before it is appended.
    pub delay: Option<FieldPath>,
}

/// A script that accepts or refuses pushed jobs, with the limits of a call.
#[derive(Clone, Debug)]
pub struct AcceptScript {
    pub script: Script,
    pub limits: Limits,
    pub timeout: Duration,
}

/// The place of its name has no effect.
impl PartialEq for AcceptScript {
    fn eq(&self, other: &Self) -> bool {
        fn texts(accept: &AcceptScript) -> impl Iterator<Item = (&PathBuf, &str)> {
            let imports = accept.script.imports.iter().map(|import| (&import.path, &*import.text));
            std::iter::once((&accept.script.path, &*accept.script.text)).chain(imports)
        }
        (self.limits, self.timeout) == (other.limits, other.timeout) && texts(self).eq(texts(other))
    }
}

impl Eq for AcceptScript {}

/// A file with a JSON Schema.
#[derive(Clone, Debug)]
pub struct SchemaFile {
    /// Resolved, for reading.
    pub path: PathBuf,
    pub text: String,
    /// The file that names it, and the byte range of the name, for diagnostics.
    pub named_in: PathBuf,
    pub named_at: std::ops::Range<usize>,
}

/// The place of its name has no effect.
impl PartialEq for SchemaFile {
    fn eq(&self, other: &Self) -> bool {
        (&self.path, &self.text) == (&other.path, &other.text)
    }
}

impl Eq for SchemaFile {}

/// `type = "schedule"`: each tick is a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleSource {
    pub schedule: Schedule,
    pub missed: Missed,
    /// The fields of each job in addition to its due time.
    pub payload: Map<String, Value>,
}

impl ScheduleSource {
    /// The job of the tick at `due`: a JSON object with this time, in RFC 3339 and UTC, as `due`.
    #[must_use]
    pub fn job(&self, due: Timestamp) -> String {
        let mut job = self.payload.clone();
        // Ticks are within the years of the calendar.
        let time = jiff::Timestamp::from_millisecond(due.0).unwrap_or_default();
        job.insert(DUE.to_owned(), Value::String(time.to_string()));
        Value::Object(job).to_string()
    }
}

/// `type = "exec"`: each line that a command prints is a job.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandSource {
    /// Its texts are fixed.
    pub command: ExecCommand,
    pub lines: LineFormat,
    /// `None`: each start prints all lines that it has to print.
    pub cursor: Option<CursorRule>,
    pub restart: Restart,
    pub retry: RetryPolicy,
    /// Maximum number of jobs that wait for the slowest reader before the output of the command is read on.
    pub max_waiting: Option<u64>,
    pub bad_lines: BadLines,
}

/// The place of the cursor in the output of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CursorRule {
    /// A field of each job.
    Field(FieldPath),
    /// The rest of a line that begins so, which is no job.
    Prefix(String),
}

/// The fate of a line that is no job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadLines {
    /// It becomes a record on the error queue of the pipeline.
    Queue(Address),
    /// It is counted and logged.
    Drop,
    /// The source stops before it.
    Stop,
}

/// The field of the due time in the job of a tick.
pub(crate) const DUE: &str = "due";

/// A text that must not be shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    pub(crate) fn new(token: String) -> Self {
        Self(token)
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether `shown` is the token, compared in constant time.
    #[must_use]
    pub fn is(&self, shown: &[u8]) -> bool {
        let token = self.0.as_bytes();
        let differences = token.iter().zip(shown).fold(0, |all, (one, other)| all | (one ^ other));
        token.len() == shown.len() && differences == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_a_job_with_its_due_time() {
        let payload = serde_json::json!({ "zone": "eu", "a": [1] }).as_object().cloned().unwrap_or_default();
        let schedule = Schedule::Every(Duration::from_secs(1));
        let source = ScheduleSource { schedule, missed: Missed::Skip, payload };
        insta::assert_snapshot!(source.job(Timestamp(1_711_846_800_000)), @r#"{"a":[1],"due":"2024-03-31T01:00:00Z","zone":"eu"}"#);
    }

    #[test]
    fn a_token_is_itself_only_and_is_not_shown() {
        let token = Token::new("open".into());
        assert!(token.is(b"open"));
        for other in ["", "ope", "opens", "Open", "xxxx"] {
            assert!(!token.is(other.as_bytes()), "{other}");
        }
        assert_eq!(format!("{token:?}"), "Token(…)");
    }
}
