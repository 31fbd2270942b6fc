//! How the jobs of a step stand that stand in the store by themselves.

use tidegate_dispatch::JobKey;
use tidegate_engine::{JobLocation, ParkedJobRef};
use tidegate_model::{Address, Timestamp};
use tidegate_store::{ParkReason, ParkedJob, ParkedKey, ReadError, Store};

/// How many there are of each kind.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    /// They wait for their turn: no time and nobody holds them.
    pub(crate) waiting: u64,
    /// An attempt was begun, and is not delivered.
    pub(crate) begun: u64,
    /// An outside system has them.
    pub(crate) pending: u64,
    /// They wait for a time, or are outputs that were made already.
    pub(crate) delayed: u64,
    /// The first of those that wait by their place in the input.
    pub(crate) first: Option<JobLocation>,
    first_index: u64,
}

impl Rows {
    /// Counts them. Does not look at those that are due later, however many.
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
