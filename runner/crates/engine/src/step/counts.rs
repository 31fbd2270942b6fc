//! Step counts: hold the job counts of a running engine's steps at one moment.

use tidegate_dispatch::JobKey;
use tidegate_model::Timestamp;
use tidegate_store::ParkedId;

/// Counts of one step.
#[derive(Clone, Debug)]
pub struct StepCounts {
    pub counts: tidegate_dispatch::JobCounts,
    /// Number of parked jobs that are in flight in an ordered step.
    pub returned: u64,
    /// Locations of the oldest waiting job of a queued step, and of the oldest one of each listed lane.
    pub oldest: Vec<JobLocation>,
}

/// Location of a waiting job.
#[derive(Clone, Copy, Debug)]
pub struct JobLocation {
    pub key: JobKey,
    /// Row, if it is parked.
    pub row: Option<ParkedId>,
    /// Time of its read, if it came from a source.
    pub read: Option<Timestamp>,
}

impl StepCounts {
    /// Location of this job, if it is listed.
    #[must_use]
    pub fn spot(&self, key: JobKey) -> Option<&JobLocation> {
        self.oldest.iter().find(|spot| spot.key == key)
    }
}
