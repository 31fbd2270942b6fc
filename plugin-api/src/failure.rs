//! Why an attempt did not succeed, in words for the person who reads it at night.

use std::fmt;

/// An attempt that brought no output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub kind: FailureKind,
    /// A sentence fragment without a final stop.
    pub message: String,
    /// What the author of the code says about the circumstances, as JSON.
    pub context: Option<Box<str>>,
    /// Where in the user's code it happened, where that is known.
    pub place: Option<Place>,
}

/// What kind of failure it is; decides whether another attempt can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// The payload is not what it should be (not JSON, not UTF-8, too long).
    Payload,
    /// The code gave up on this attempt (`throw`, an error while it ran).
    Failed,
    /// The code said that this job shall not be tried again.
    Rejected,
    /// A limit on operations, memory or time struck.
    Limit,
    /// What the step returned cannot be an output.
    Output,
    /// The process died again and again while the job was attempted, so it is attempted no more.
    Crashed,
}

impl FailureKind {
    /// The word for it in error records and commands.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Payload => "payload",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::Limit => "limit",
            Self::Output => "output",
            Self::Crashed => "crashed",
        }
    }
}

/// A place in a file of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub file: String,
    /// From 1.
    pub line: u64,
    /// From 1; `None` where only the line is known.
    pub column: Option<u64>,
}

impl Failure {
    #[must_use]
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), context: None, place: None }
    }

    /// Adds what shall stand beside the message on the error queue; JSON.
    #[must_use]
    pub fn with_context(mut self, context: impl Into<Box<str>>) -> Self {
        self.context = Some(context.into());
        self
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
