//! `ParkedJob`: a parked job, with the reason for its wait and its key.

use serde::{Deserialize, Serialize};

use super::completion::CompletionRecord;
use tidegate_model::{Address, ExternalStatus, Timestamp};

/// A job to park.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewParkedJob {
    /// The step that will run it.
    pub step: Address,
    pub due: Timestamp,
    pub job: ParkedJob,
}

/// The record of a job while it is parked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParkedJob {
    /// The inputs that it was made from, named as in the delivery hash, and their indices.
    pub inputs: Vec<(String, u64)>,
    /// Number of the last attempt; 0 if none was made.
    pub attempt: u32,
    pub first_attempt: Option<Timestamp>,
    pub last_error: Option<String>,
    /// The error queue that it was retried from, and its index there.
    pub from_error: Option<(Address, u64)>,
    /// The output of the step, if the job is an output that is due later. `None`: the step runs it.
    pub to: Option<String>,
    pub reason: ParkReason,
    pub form: JobForm,
    pub payload: Vec<u8>,
    /// Its provenance, as JSON text.
    pub carried: Option<String>,
}

/// The reason why a job is parked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParkReason {
    /// Its due time has not come.
    #[default]
    #[serde(rename = "delayed")]
    Due,
    /// An attempt was started, and its end is not recorded.
    Started,
    /// It is pending in an external system, which identifies it by the handle.
    Pending { handle: String, since: Timestamp },
    /// It is pending, and the external system has sent a status: the job is valid and still pending, or its
    /// completion is not delivered yet.
    #[serde(rename = "told")]
    Completed { handle: String, since: Timestamp, completion: CompletionRecord },
}

impl ParkReason {
    /// The handle in the external system, the time since when it is pending there, and the received status,
    /// if any.
    #[must_use]
    pub fn outside(&self) -> Option<(&str, Timestamp, Option<&CompletionRecord>)> {
        match self {
            Self::Due | Self::Started => None,
            Self::Pending { handle, since } => Some((handle, *since, None)),
            Self::Completed { handle, since, completion } => Some((handle, *since, Some(completion))),
        }
    }

    /// The status in the external system, if it is pending there.
    #[must_use]
    pub fn status(&self) -> Option<ExternalStatus> {
        let (_, _, said) = self.outside()?;
        Some(said.map_or(ExternalStatus::Pending, |said| said.status))
    }
}

/// The type of a payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobForm {
    #[default]
    Json,
    Text,
    Bytes,
}

/// The key of a parked job, in order of due time within its step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParkedKey {
    pub step: Address,
    pub due: Timestamp,
    /// Assigned by the store, and never reused.
    pub sequence: u64,
}

impl ParkedJob {
    /// Whether it waits only for its turn at its step. `due`: its due time.
    #[must_use]
    pub fn waits_for_turn(&self, due: Timestamp, now: Timestamp) -> bool {
        self.reason == ParkReason::Due && self.to.is_none() && due <= now
    }
}

/// Due time of jobs that wait for an external system rather than for a time.
pub const NO_DUE_TIME: Timestamp = Timestamp(i64::MAX);
