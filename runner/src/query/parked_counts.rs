//! `Rows`: counts the parked jobs of a step by state.

use tidegate_dispatch::JobKey;
use tidegate_engine::{JobLocation, ParkedJobRef};
use tidegate_model::{Address, Timestamp};
use tidegate_store::{ParkReason, ParkedJob, ParkedKey, ReadError, Store};

/// The number of rows of each state.
#[derive(Debug, Default)]
pub(crate) struct ParkedCounts {
    /// Waiting for their turn; neither a time nor an external system holds them.
    pub(crate) waiting: u64,
    /// An attempt was started, and is not delivered.
    pub(crate) begun: u64,
    /// Pending in an external system.
    pub(crate) pending: u64,
    /// Waiting for a time, outputs included.
    pub(crate) delayed: u64,
    /// The waiting row with the lowest place in the input.
    pub(crate) first: Option<JobLocation>,
    first_index: u64,
}

impl ParkedCounts {
    /// Counts them without scanning those that are due later.
    pub(crate) fn count(store: &Store, step: &Address, now: Timestamp) -> Result<Self, ReadError> {
        let mut rows = Self::default();
        for row in store.delayed_by(step, now).chain(store.pending_jobs(step)) {
            let (key, job) = row?;
            match job.reason {
                _ if job.waits_for_turn(key.due, now) => rows.add_waiting(&key, &job),
                ParkReason::Due => {}
                ParkReason::Started => rows.begun += 1,
                ParkReason::Pending { .. } | ParkReason::Completed { .. } => rows.pending += 1,
            }
        }
        let others = rows.waiting + rows.begun + rows.pending;
        rows.delayed = store.delayed_count(step)?.saturating_sub(others);
        Ok(rows)
    }

    fn add_waiting(&mut self, key: &ParkedKey, job: &ParkedJob) {
        self.waiting += 1;
        let index = job.inputs.first().map_or(u64::MAX, |&(_, index)| index);
        if self.first.is_none() || index < self.first_index {
            let row = ParkedJobRef { due: key.due, sequence: key.sequence };
            self.first = Some(JobLocation { key: JobKey::stored(key.sequence), row: Some(row), read: None });
            self.first_index = index;
        }
    }
}
