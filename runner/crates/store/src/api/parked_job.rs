//! Delayed jobs, as values: what waits, for what, and how it is called.

use serde::{Deserialize, Serialize};

use super::completion::CompletionRecord;
use tidegate_model::{Address, ExternalStatus, Timestamp};

/// A job that shall wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewParkedJob {
    /// The step that will run it.
    pub step: Address,
    pub due: Timestamp,
    pub job: ParkedJob,
}

/// What is kept of a job while it waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParkedJob {
    /// The inputs that it was made of, as they enter the delivery hash, and their indices.
    pub inputs: Vec<(String, u64)>,
    /// The number of the last attempt; 0 where there was none.
    pub attempt: u32,
    pub first_attempt: Option<Timestamp>,
    pub last_error: Option<String>,
    /// The error queue that it was put back from, and its index there.
    pub from_error: Option<(Address, u64)>,
    /// The output of the step that it is for: made already, and only due later. `None`: the step runs it.
    pub to: Option<String>,
    pub reason: ParkReason,
    pub form: JobForm,
    pub payload: Vec<u8>,
    /// The provenance that it carries along, as JSON text.
    pub carried: Option<String>,
}

/// What a job that is not through waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParkReason {
    /// The time when it is due.
    #[default]
    #[serde(rename = "delayed")]
    Due,
    /// An attempt was begun, and nothing is known of its end.
    Started,
    /// An outside system finishes it, which knows it by the handle.
    Pending { handle: String, since: Timestamp },
    /// The same, and it has said how the job stands: it is in order and goes on to wait, or that is not
    /// delivered yet.
    #[serde(rename = "told")]
    Completed { handle: String, since: Timestamp, completion: CompletionRecord },
}

impl ParkReason {
    /// Where an outside system has the job: the handle by which it knows it, since when, and what it has
    /// said of it, if anything.
    #[must_use]
    pub fn outside(&self) -> Option<(&str, Timestamp, Option<&CompletionRecord>)> {
        match self {
            Self::Due | Self::Started => None,
            Self::Pending { handle, since } => Some((handle, *since, None)),
            Self::Completed { handle, since, completion } => Some((handle, *since, Some(completion))),
        }
    }

    /// How the outside says that the job stands, where it has it.
    #[must_use]
    pub fn status(&self) -> Option<ExternalStatus> {
        let (_, _, said) = self.outside()?;
        Some(said.map_or(ExternalStatus::Pending, |said| said.status))
    }
}

/// What a payload is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobForm {
    #[default]
    Json,
    Text,
    Bytes,
}

/// What a delayed job is called. In order of due time, for one step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParkedKey {
    pub step: Address,
    pub due: Timestamp,
    /// Given by the store, and never twice.
    pub sequence: u64,
}

impl ParkedJob {
    /// Whether it waits for its turn at its step, and for no time any more. `due`: when it is due.
    #[must_use]
    pub fn waits_for_turn(&self, due: Timestamp, now: Timestamp) -> bool {
        self.reason == ParkReason::Due && self.to.is_none() && due <= now
    }
}

/// When those are due that no time makes due.
pub const NO_DUE_TIME: Timestamp = Timestamp(i64::MAX);
