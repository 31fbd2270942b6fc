//! Batch budget: ends a batch early by time or by the bytes of its outputs. A batch of slow jobs thus spreads
//! over all workers, and the outputs of a batch are bounded.

use std::time::{Duration, Instant};

use tidegate_components::plugin::{BATCH_BYTES, BATCH_TIME, CoarseClock};

/// Limits of each batch of one step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchBudget {
    bytes: usize,
    played: Option<TestTime>,
}

/// Replacement of time in a test.
#[derive(Clone, Copy, Debug)]
struct TestTime {
    jobs: usize,
    took: Duration,
}

/// Measures a running batch.
#[derive(Debug)]
pub(crate) struct BudgetMeter {
    budget: BatchBudget,
    begun: Instant,
    /// Deadline by the coarse clock, which is cheap enough to read for each job.
    over_at: u64,
}

impl BatchBudget {
    pub(crate) const fn new() -> Self {
        Self { bytes: BATCH_BYTES, played: None }
    }

    /// Limit of `jobs` jobs; the batch then took `took`.
    #[cfg(test)]
    pub(crate) fn played(jobs: usize, took: Duration) -> Self {
        Self { played: Some(TestTime { jobs, took }), ..Self::new() }
    }

    /// `started`: the start of a batch that was suspended during a call, which counts.
    pub(crate) fn begin(self, started: Option<Instant>) -> BudgetMeter {
        let nanos = u64::try_from(BATCH_TIME.as_nanos()).unwrap_or(u64::MAX);
        let over_at = CoarseClock::Coarse.now().saturating_add(nanos);
        BudgetMeter { budget: self, begun: started.unwrap_or_else(Instant::now), over_at }
    }
}

impl BudgetMeter {
    /// Whether the batch ends after `jobs` jobs with outputs of `bytes` bytes. `ahead`: whether further jobs
    /// have run already, whose work would be lost.
    pub(crate) fn is_over(&self, jobs: usize, bytes: usize, ahead: bool) -> bool {
        if ahead {
            return bytes > 2 * self.budget.bytes;
        }
        bytes > self.budget.bytes
            || match self.budget.played {
                Some(played) => jobs >= played.jobs,
                None => CoarseClock::Coarse.now() > self.over_at,
            }
    }

    /// Start of the batch.
    pub(crate) fn begun(&self) -> Instant {
        self.begun
    }

    /// Time that the batch took.
    pub(crate) fn took(&self) -> Duration {
        self.budget.played.map_or_else(|| self.begun.elapsed(), |played| played.took)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_ends_when_it_has_given_much_and_later_where_more_is_through() {
        let running = BatchBudget::new().begin(None);
        assert!(!running.is_over(1, BATCH_BYTES, false));
        assert!(running.is_over(1, BATCH_BYTES + 1, false));
        assert!(!running.is_over(1, 2 * BATCH_BYTES, true));
        assert!(running.is_over(1, 2 * BATCH_BYTES + 1, true));
    }

    #[test]
    fn a_batch_that_was_suspended_took_the_time_of_its_calls_too() {
        let started = Instant::now().checked_sub(Duration::from_secs(5)).unwrap();
        let resumed = BatchBudget::new().begin(Some(started));
        assert!(resumed.took() >= Duration::from_secs(5));
        assert_eq!(BatchBudget::new().begin(Some(resumed.begun())).begun(), started);
    }

    #[test]
    fn a_batch_ends_when_it_took_long_unless_more_is_through() {
        let late = BudgetMeter { over_at: 0, ..BatchBudget::new().begin(None) };
        assert!(late.is_over(1, 0, false));
        assert!(!late.is_over(1, 0, true));
    }
}
