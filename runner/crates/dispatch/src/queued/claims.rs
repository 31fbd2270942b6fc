//! Claims: decides how many jobs of a step are begun durably before they have a place to run.
//!
//! So an attempt does not wait for a sync of its own, and one sync begins many jobs. At most `max_processing` jobs
//! run at any time. The waiting room counts claimed jobs as running; the limit is kept here.
//!
//! A claimed job waits longer for its place than a job that becomes due before it. So a step claims only the jobs
//! that it starts while a record becomes durable.

use std::time::Duration;

use super::in_flight::{InFlightBatches, Phase};
use crate::waiting_room::QueuePolicy;

/// Time for which a step claims jobs ahead: several syncs of a slow disk.
const HIDDEN: Duration = Duration::from_millis(20);
/// Time of the claimed jobs that share a place: to give a thread a job costs more than a quick job.
const LOT: Duration = Duration::from_millis(1);
/// Mean time between the ends of two jobs up to which they are quick.
const QUICK_NANOS: u64 = 250_000;
/// The mean time of a job counts this number of jobs.
const MEAN_OF: u64 = 32;

#[derive(Debug)]
pub(crate) struct Claims {
    /// Maximum number of claimed jobs without a place; 0: each job is begun when it has one.
    ahead: usize,
    /// Maximum number of claimed jobs that share a place.
    lot_max: usize,
    /// Maximum number of running jobs.
    at_once: usize,
    /// Mean time of a job in nanoseconds; `None` before the first measurement.
    mean: Option<u64>,
    /// Whether nothing is claimed, and all that is claimed is given back.
    pub(crate) withheld: bool,
    /// Whether the bytes in flight allow no claim.
    pub(crate) is_full: bool,
}

impl Claims {
    pub(crate) fn new((ahead, lot_max): (usize, usize), rules: &QueuePolicy) -> Self {
        let limit = rules.max_processing.filter(|_| ahead > 0);
        let at_once = limit.map_or(usize::MAX, |most| most.get() as usize);
        Self { ahead, lot_max, at_once, mean: None, withheld: false, is_full: false }
    }

    /// Number of jobs by which the waiting room may exceed `max_processing`: jobs that are claimed, and jobs whose
    /// results are being committed.
    pub(crate) fn beyond(&self) -> usize {
        2 * self.ahead
    }

    pub(crate) fn is_ahead(&self) -> bool {
        self.ahead > 0
    }

    /// Adds a measurement: the time of `jobs` jobs that ran one after the other.
    pub(crate) fn measured(&mut self, jobs: usize, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX) / jobs.max(1) as u64;
        self.mean = Some(self.mean.map_or(nanos, |mean| mean - mean / MEAN_OF + nanos / MEAN_OF));
    }

    /// Whether the step ends several jobs a millisecond.
    pub(crate) fn are_quick(&self) -> bool {
        let at_once = self.at_once.min(self.ahead).max(1) as u64;
        self.mean.is_some_and(|mean| mean / at_once <= QUICK_NANOS)
    }

    /// Number of claimed jobs that share a place, one after the other.
    pub(crate) fn lot(&self) -> usize {
        let Some(mean) = self.mean else { return 1 };
        let jobs = LOT.as_nanos() / u128::from(mean.max(1));
        usize::try_from(jobs).unwrap_or(usize::MAX).min(self.lot_max).max(1)
    }

    /// Number of jobs without a place that are claimed now: they start within [`HIDDEN`].
    fn ahead_now(&self) -> usize {
        let Some(mean) = self.mean else { return 0 };
        let at_once = self.at_once.min(self.ahead) as u64;
        let hidden = u64::try_from(HIDDEN.as_nanos()).unwrap_or(u64::MAX);
        let starts = (at_once.saturating_mul(hidden) / mean.max(1)).max(1);
        usize::try_from(starts).unwrap_or(usize::MAX).min(self.ahead)
    }

    /// Number of further jobs that may run.
    pub(crate) fn places(&self, batches: &InFlightBatches) -> usize {
        self.at_once.saturating_sub(batches.count(Phase::Running))
    }

    /// Whether jobs wait for the end of others before more are claimed.
    pub(crate) fn awaits_room(&self, batches: &InFlightBatches) -> bool {
        self.is_ahead() && (self.is_full || self.wanted(batches) == 0)
    }

    /// Number of jobs to claim now. They are claimed in lots: many small records cost more than a few large ones.
    pub(crate) fn wanted(&self, batches: &InFlightBatches) -> usize {
        let most = self.places(batches).min(self.ahead).saturating_add(self.ahead_now());
        let stock = batches.stock();
        if self.withheld || stock > most / 2 { 0 } else { most - stock }
    }
}
