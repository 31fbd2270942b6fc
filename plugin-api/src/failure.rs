//! `Failure`: why an attempt did not succeed, in words for operators.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// An attempt that brought no output.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    pub kind: FailureKind,
    /// A sentence fragment without a final stop.
    pub message: String,
    /// The circumstances, as the author of the code describes them, as JSON.
    pub context: Option<Box<str>>,
    /// The place in the user's code, if it is known.
    pub place: Option<Place>,
    /// The external cause, if it is known.
    pub cause: Option<Cause>,
    /// The setup of the step failed, so that no job is at fault. Set by the runner.
    #[doc(hidden)]
    pub of_setup: bool,
}

/// The external cause of a failure, which distinguishes for example a timeout from a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// It exceeded its time.
    Timeout,
    /// No answer: the connection failed or was lost.
    Connection,
    /// An HTTP answer with this status.
    Http(u16),
    /// A command that ended with this exit code.
    Exit(i32),
}

/// The kind of a failure, which decides whether a retry can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// The payload is invalid (not JSON, not UTF-8, too long).
    Payload,
    /// The code gave up on this attempt (`throw`, an error while it ran).
    Failed,
    /// The code excluded a retry of this job.
    Rejected,
    /// A limit on operations, memory or time was exceeded.
    Limit,
    /// The step returned a value that cannot be an output.
    Output,
    /// The code asks for a retry, by the retry policy.
    Retry,
    /// The code asks for a retry after this time.
    RetryIn(Duration),
    /// The code stops the step at this job, which stays where it is.
    Halted,
    /// The step cannot start jobs now; the job keeps its place, and this was no attempt.
    GateClosed,
    /// The job is pending in an external system; the message is the handle that a monitor asks for.
    Pending,
    /// Native code panicked, and the panic was caught.
    Panicked,
    /// The process of the attempt died from it; for the runner's own process, repeatedly.
    Crashed,
}

impl Cause {
    /// The cause for a word of [`Failure::word`].
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        match word.split_once(' ') {
            None if word == "timeout" => Some(Self::Timeout),
            None if word == "connection" => Some(Self::Connection),
            Some(("http", status)) => status.parse().ok().map(Self::Http),
            Some(("exit", code)) => code.parse().ok().map(Self::Exit),
            _ => None,
        }
    }
}

impl FailureKind {
    /// Its word in error records and commands.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Payload => "payload",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::Limit => "limit",
            Self::Output => "output",
            Self::Retry | Self::RetryIn(_) => "retry",
            Self::Halted => "halted",
            Self::GateClosed => "gate closed",
            Self::Pending => "pending",
            Self::Panicked => "panicked",
            Self::Crashed => "crashed",
        }
    }

    /// The kind of a word of [`Self::as_str`]; `retry` is without a time.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        let kinds = [
            Self::Payload,
            Self::Failed,
            Self::Rejected,
            Self::Limit,
            Self::Output,
            Self::Retry,
            Self::Halted,
            Self::GateClosed,
            Self::Pending,
            Self::Panicked,
            Self::Crashed,
        ];
        kinds.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// A place in a file of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub file: String,
    /// From 1.
    pub line: u64,
    /// From 1; `None` if only the line is known.
    pub column: Option<u64>,
}

impl Failure {
    #[must_use]
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), context: None, place: None, cause: None, of_setup: false }
    }

    /// Its word in error records and in `on` of a retry policy: that of its cause (`timeout`, `connection`,
    /// `http 503`, `exit 3`), otherwise that of its kind.
    #[must_use]
    pub fn word(&self) -> Cow<'static, str> {
        match self.cause {
            Some(Cause::Timeout) => "timeout".into(),
            Some(Cause::Connection) => "connection".into(),
            Some(Cause::Http(status)) => format!("http {status}").into(),
            Some(Cause::Exit(code)) => format!("exit {code}").into(),
            None => self.kind.as_str().into(),
        }
    }

    /// Sets the cause: error records show it, and `on = ["connection", "http 5xx"]` of a retry policy matches
    /// it. A rejected job stays rejected.
    #[must_use]
    pub fn because(mut self, cause: Cause) -> Self {
        self.cause = Some(cause);
        self
    }

    /// Adds the circumstances that are stored beside the message on the error queue; JSON.
    #[must_use]
    pub fn with_context(mut self, context: impl Into<Box<str>>) -> Self {
        self.context = Some(context.into());
        self
    }

    /// A failed attempt, with an error that a retry may or may not repeat.
    #[must_use]
    pub fn failed(why: impl fmt::Display) -> Self {
        Self::new(FailureKind::Failed, why.to_string())
    }

    /// Asks for a retry, by the step's retry policy.
    #[must_use]
    pub fn retry(why: impl fmt::Display) -> Self {
        Self::new(FailureKind::Retry, why.to_string())
    }

    /// Asks for a retry after `delay`.
    #[must_use]
    pub fn retry_in(delay: Duration, why: impl fmt::Display) -> Self {
        Self::new(FailureKind::RetryIn(delay), why.to_string())
    }

    /// Rejects the job permanently.
    #[must_use]
    pub fn reject(why: impl fmt::Display) -> Self {
        Self::new(FailureKind::Rejected, why.to_string())
    }

    /// Stops the step at this job, which stays where it is until the step starts again.
    #[must_use]
    pub fn halt(why: impl fmt::Display) -> Self {
        Self::new(FailureKind::Halted, why.to_string())
    }

    /// Holds the step without a failure of the job.
    #[must_use]
    pub fn gate_closed(why: impl fmt::Display) -> Self {
        Self::new(FailureKind::GateClosed, why.to_string())
    }

    /// Leaves the job pending in an external system, which identifies it by `handle`.
    #[must_use]
    pub fn pending(handle: impl fmt::Display) -> Self {
        Self::new(FailureKind::Pending, handle.to_string())
    }

    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)?;
        match self.column {
            Some(column) => write!(f, ":{column}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.place {
            Some(place) => write!(f, " ({place})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::failed(why)
    }
}

impl From<&str> for Failure {
    fn from(why: &str) -> Self {
        Self::failed(why)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::failed(error)
    }
}

impl From<std::str::Utf8Error> for Failure {
    fn from(error: std::str::Utf8Error) -> Self {
        Self::new(FailureKind::Payload, format!("the payload is not a text: {error}"))
    }
}

#[cfg(feature = "json")]
impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::new(FailureKind::Payload, error.to_string())
    }
}
