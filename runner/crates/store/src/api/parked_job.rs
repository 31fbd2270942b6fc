//! `ParkedJob`: a parked job, with the reason for its wait, its due time and its number.

use serde::{Deserialize, Serialize};

use super::completion::CompletionRecord;
use super::finished_result::FinishedResult;
use tidegate_model::{Address, Due, ExternalStatus, Timestamp};

/// A job to park.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewParkedJob {
    /// The step that will run it.
    pub step: Address,
    pub job: ParkedJob,
}

/// The record of a job while it is parked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParkedJob {
    pub due: Due,
    /// The inputs that it was made from, named as in the delivery hash, and their indices.
    pub inputs: Vec<(String, u64)>,
    /// Number of the last attempt; 0 if none was made.
    pub attempt: u32,
    pub first_attempt: Option<Timestamp>,
    /// See [`crate::DeliveryTimes::created`].
    pub created: Option<Timestamp>,
    /// Time of the last submission of a job that is no longer pending.
    pub last_submitted: Option<Timestamp>,
    pub last_error: Option<String>,
    /// The error queue that it was retried from, and its index there.
    pub from_error: Option<(Address, u64)>,
    pub reason: ParkReason,
    pub form: JobForm,
    pub payload: Vec<u8>,
    /// Its provenance, as JSON text.
    pub carried: Option<String>,
}

/// The reason why a job is parked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ParkReason {
    /// It waits for its due time, and then for its turn.
    #[default]
    Delayed,
    /// It is an output of the step that is delivered at its due time.
    Output { to: String },
    /// An attempt was started at this time, and its end is not recorded.
    Started { since: Timestamp },
    /// It is pending in an external system, which identifies it by the handle.
    Pending { handle: String, since: Timestamp },
    /// It is pending, and the external system has sent a status: the job is valid and still pending, or its
    /// completion is not delivered yet.
    Completed { handle: String, since: Timestamp, completion: CompletionRecord },
    /// It is finished, and delivered after the jobs before it. It is not attempted again.
    Finished { result: FinishedResult },
}

impl ParkReason {
    /// The handle in the external system, the time since when it is pending there, and the received status,
    /// if any.
    #[must_use]
    pub fn outside(&self) -> Option<(&str, Timestamp, Option<&CompletionRecord>)> {
        match self {
            Self::Delayed | Self::Output { .. } | Self::Started { .. } | Self::Finished { .. } => None,
            Self::Pending { handle, since } => Some((handle, *since, None)),
            Self::Completed { handle, since, completion } => Some((handle, *since, Some(completion))),
        }
    }

    /// The status in the external system, if it is pending there.
    #[must_use]
    pub fn status(&self) -> Option<ExternalStatus> {
        let (_, _, completion) = self.outside()?;
        Some(completion.map_or(ExternalStatus::Pending, |completion| completion.status))
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

/// The number of a parked job: assigned by the store, and never reused. A job keeps it when its due time or
/// its reason changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ParkedId(pub u64);

/// The key of a parked job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParkedKey {
    pub step: Address,
    pub id: ParkedId,
}

/// The position of a parked job among those of its step: started ones first, then in order of due time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ParkedPosition {
    /// `None`: an attempt was started.
    pub(crate) due: Option<Due>,
    pub(crate) id: ParkedId,
}

/// Numbers of parked jobs of a step, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParkedTotals {
    pub delayed: u64,
    pub outputs: u64,
    /// Begun, finished ones that are not delivered included.
    pub started: u64,
    /// Pending in an external system, completions that are not delivered included.
    pub pending: u64,
}

impl ParkedId {
    #[must_use]
    pub fn of(self, step: &Address) -> ParkedKey {
        ParkedKey { step: step.clone(), id: self }
    }
}

impl ParkedPosition {
    #[must_use]
    pub fn of(id: ParkedId, job: &ParkedJob) -> Self {
        Self { due: job.started().is_none().then_some(job.due), id }
    }

    #[must_use]
    pub fn id(self) -> ParkedId {
        self.id
    }
}

impl ParkedTotals {
    #[must_use]
    pub fn all(self) -> u64 {
        self.delayed + self.outputs + self.started + self.pending
    }
}

impl ParkedJob {
    /// Whether it waits only for its turn at its step.
    #[must_use]
    pub fn waits_for_turn(&self, now: Timestamp) -> bool {
        self.reason == ParkReason::Delayed && self.due.is_by(now)
    }

    /// The output that it is delivered to, if it is an output. Otherwise the step runs it.
    #[must_use]
    pub fn output(&self) -> Option<&str> {
        match &self.reason {
            ParkReason::Output { to } => Some(to),
            _ => None,
        }
    }

    /// Whether it was claimed before it had a place to run: [`crate::CrashGuard::has_begun`] knows whether its attempt
    /// began. Every other started attempt may have begun.
    #[must_use]
    pub fn is_claimed(&self) -> bool {
        self.started().is_some() && matches!(self.due, Due::At(_))
    }

    /// The job when its claim is given back before its attempt.
    #[must_use]
    pub fn unclaimed(self) -> Self {
        let attempt = self.attempt.saturating_sub(1);
        let first_attempt = self.first_attempt.filter(|_| attempt > 0);
        Self { due: Due::Now, attempt, first_attempt, reason: ParkReason::Delayed, ..self }
    }

    /// Time of its last submission to an external system.
    #[must_use]
    pub fn submitted(&self) -> Option<Timestamp> {
        self.reason.outside().map(|(_, since, _)| since).or(self.last_submitted)
    }

    /// The start of the attempt whose end is not recorded.
    #[must_use]
    pub fn started(&self) -> Option<Timestamp> {
        match self.reason {
            ParkReason::Started { since } => Some(since),
            _ => None,
        }
    }
}
