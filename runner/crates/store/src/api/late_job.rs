//! `LateJob`: a job that is appended to its queue at its due time.

use super::parked_job::{ParkReason, ParkedId, ParkedJob, ParkedPosition};
use tidegate_model::{Address, Due};

/// A job that is not on its queue yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateJob {
    pub due: Due,
    /// JSON.
    pub payload: Vec<u8>,
}

/// A late job to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLateJob {
    pub queue: Address,
    pub job: LateJob,
}

/// The key of a late job. Its number is never reused, not even by a parked job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LateKey {
    pub queue: Address,
    pub id: ParkedId,
}

/// The changes of late jobs in one commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LateChanges {
    /// Jobs that are appended by the commit, or dropped.
    pub done: Vec<LateKey>,
    /// Jobs with another due time. A job that is gone stays gone.
    pub moved: Vec<(LateKey, LateJob)>,
    pub new: Vec<NewLateJob>,
}

impl LateJob {
    /// Its position among the late jobs of its queue.
    #[must_use]
    pub fn position(&self, id: ParkedId) -> ParkedPosition {
        ParkedPosition { due: Some(self.due), id }
    }
}

impl LateChanges {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.done.is_empty() && self.moved.is_empty() && self.new.is_empty()
    }
}

/// Its row is that of an output without a step.
impl From<LateJob> for ParkedJob {
    fn from(LateJob { due, payload }: LateJob) -> Self {
        Self { due, payload, reason: ParkReason::Output { to: String::new() }, ..Self::default() }
    }
}

impl From<ParkedJob> for LateJob {
    fn from(ParkedJob { due, payload, .. }: ParkedJob) -> Self {
        Self { due, payload }
    }
}
