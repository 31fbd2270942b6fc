//! `Rows`: counts the parked jobs of a step by state.

use tidegate_dispatch::JobKey;
use tidegate_engine::JobLocation;
use tidegate_model::{Address, Timestamp};
use tidegate_store::{ParkedId, ParkedJob, ParkedTotals, ReadError, Store};

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
    /// Counts them. Only the jobs that are due are read, and only if some job waits for a time.
    pub(crate) fn count(store: &Store, step: &Address, now: Timestamp) -> Result<Self, ReadError> {
        let ParkedTotals { delayed, outputs, started, pending } = store.parked_totals(step)?;
        let mut rows = Self { begun: started, pending, ..Self::default() };
        if delayed > 0 {
            for row in store.parked_due_by(step, now) {
                let (key, job) = row?;
                if job.waits_for_turn(now) {
                    rows.add_waiting(key.id, &job);
                }
            }
        }
        rows.delayed = (delayed + outputs).saturating_sub(rows.waiting);
        Ok(rows)
    }

    fn add_waiting(&mut self, id: ParkedId, job: &ParkedJob) {
        self.waiting += 1;
        let index = job.inputs.first().map_or(u64::MAX, |&(_, index)| index);
        if self.first.is_none() || index < self.first_index {
            self.first = Some(JobLocation { key: JobKey::stored(id.0), row: Some(id), read: None });
            self.first_index = index;
        }
    }
}
