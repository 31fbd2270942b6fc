//! Claims: decides how many jobs of a step are begun durably before they have a place to run.
//!
//! So an attempt does not wait for a sync of its own, and one sync begins many jobs. At most `max_processing` jobs
//! run at any time. The waiting room counts claimed jobs as running; the limit is kept here.
//!
//! A claimed job waits longer for its place than a job that becomes due before it. So a step claims only the jobs
//! that it starts while a record becomes durable.
//!
//! Jobs of `serial` are claimed too, and run one after the other: each begins when the result of the one before it is
//! durable. A job that is not finished blocks those behind it, so all claims are given back. The next claims are small
//! again, and double with each finished job.

use std::time::Duration;

use super::in_flight::{InFlightBatches, Phase};
use crate::waiting_room::{QueuePolicy, StartOrder};

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
    /// `None`: jobs run beside each other.
    serial: Option<SerialClaims>,
}

/// Claims of jobs that wait for each other.
#[derive(Clone, Copy, Debug, Default)]
struct SerialClaims {
    /// Maximum number of claimed jobs without a place: how far the next setback is expected.
    row: usize,
    /// Whether claims are given back until none is left.
    is_set_back: bool,
}

impl Claims {
    pub(crate) fn new((ahead, lot_max): (usize, usize), rules: &QueuePolicy) -> Self {
        let limit = rules.max_processing.filter(|_| ahead > 0);
        let serial = (ahead > 0 && rules.strategy == StartOrder::Serial).then(SerialClaims::default);
        let at_once = match serial {
            Some(_) => 1,
            None => limit.map_or(usize::MAX, |most| most.get() as usize),
        };
        let lot_max = if serial.is_some() { 1 } else { lot_max };
        Self { ahead, lot_max, at_once, mean: None, withheld: false, serial }
    }

    /// Number of jobs by which the waiting room may exceed `max_processing`: jobs that are claimed, and jobs whose
    /// results are being committed.
    pub(crate) fn beyond(&self) -> usize {
        2 * self.ahead
    }

    pub(crate) fn is_ahead(&self) -> bool {
        self.ahead > 0
    }

    /// Whether jobs wait for each other, and are claimed nevertheless.
    pub(crate) fn are_serial(&self) -> bool {
        self.serial.is_some()
    }

    /// Whether all claims are to be given back.
    pub(crate) fn go_back(&self) -> bool {
        self.withheld || self.serial.is_some_and(|serial| serial.is_set_back)
    }

    /// Records that a job is finished.
    pub(crate) fn goes_on(&mut self) {
        if let Some(serial) = &mut self.serial {
            serial.row = (serial.row * 2).clamp(1, self.ahead);
        }
    }

    /// Records that a job is not finished, and blocks the claimed ones.
    pub(crate) fn set_back(&mut self) {
        if let Some(serial) = &mut self.serial {
            serial.row = 0;
        }
        self.give_back();
    }

    /// Records that claims are given back. A claim that becomes durable later is given back, too, also if the cause is over
    /// by then. Otherwise its jobs would run before older ones that wait again.
    pub(crate) fn give_back(&mut self) {
        if let Some(serial) = &mut self.serial {
            serial.is_set_back = true;
        }
    }

    /// Ends the return of claims when no attempt is in flight.
    pub(crate) fn recover(&mut self, batches: &InFlightBatches) {
        if let Some(serial) = self.serial.as_mut().filter(|_| batches.attempts() == 0) {
            serial.is_set_back = false;
        }
    }

    /// Adds a measurement: the time of `jobs` jobs that ran one after the other.
    pub(crate) fn measured(&mut self, jobs: usize, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX) / jobs.max(1) as u64;
        self.mean = Some(self.mean.map_or(nanos, |mean| mean - mean / MEAN_OF + nanos / MEAN_OF));
    }

    /// Whether the step ends several jobs a millisecond, and need not wait for their results to be durable.
    pub(crate) fn are_quick(&self) -> bool {
        if self.serial.is_some() {
            return false;
        }
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
        let most = self.serial.map_or(self.ahead, |serial| serial.row);
        usize::try_from(starts).unwrap_or(usize::MAX).min(most)
    }

    /// Number of further jobs that may run.
    pub(crate) fn places(&self, batches: &InFlightBatches) -> usize {
        let undelivered = self.serial.map_or(0, |_| batches.count(Phase::Committing));
        self.at_once.saturating_sub(batches.count(Phase::Running) + undelivered)
    }

    /// Whether jobs wait for the end of others before more are claimed.
    pub(crate) fn awaits_room(&self, batches: &InFlightBatches) -> bool {
        self.is_ahead() && self.wanted(batches) == 0
    }

    /// Number of jobs to claim now. They are claimed in lots: many small records cost more than a few large ones.
    pub(crate) fn wanted(&self, batches: &InFlightBatches) -> usize {
        let most = self.places(batches).min(self.ahead).saturating_add(self.ahead_now());
        let stock = batches.stock();
        // Batches have the order of their claims only if each claim is begun before the next one is made.
        let awaits_claim = self.serial.is_some() && stock > batches.begun_stock();
        if self.go_back() || awaits_claim || stock > most / 2 { 0 } else { most - stock }
    }
}
