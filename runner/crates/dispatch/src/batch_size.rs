//! Batch sizing: chooses a batch size of about 5 ms of worker time, from measurements. Slow jobs spread over
//! all workers and are delivered soon; fast jobs keep full batches.
//!
//! Jobs that are picked need not wait for each other, so only quick jobs share a batch: a batch has one job
//! before the first measurement, and the estimate falls slowly after a slow job.

use std::time::Duration;

/// Time of a running batch from which on its job counts as slow. A batch of quick jobs ends before it.
pub const LONG: Duration = Duration::from_millis(400);

/// Target time of a batch. A step that has found all workers busy waits about as long for one of them.
const TARGET_NANOS: u64 = 5_000_000;
/// Time of one job from which on a step counts as slow.
const SLOW_NANOS: u64 = 50_000_000;
/// Number of jobs in a batch before the first measurement.
const FIRST: usize = 16;

/// Moving estimate of the time of one job.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sizing {
    /// Time of one job; `None` before the first measurement.
    nanos: Option<u64>,
    is_picked: bool,
}

impl Sizing {
    /// Sizing of the batches of picked jobs.
    pub(crate) fn of_picked() -> Self {
        Self { nanos: None, is_picked: true }
    }

    /// Whether a job was measured.
    pub(crate) fn is_measured(self) -> bool {
        self.nanos.is_some()
    }

    pub(crate) fn is_slow(self) -> bool {
        self.nanos.is_some_and(|nanos| nanos >= SLOW_NANOS)
    }

    /// Number of jobs for the next batch.
    pub(crate) fn jobs(self) -> usize {
        let Some(nanos) = self.nanos else { return if self.is_picked { 1 } else { FIRST } };
        usize::try_from(TARGET_NANOS / nanos.max(1)).unwrap_or(usize::MAX).max(1)
    }

    /// Adds a measurement: the time that a worker took for `jobs` jobs.
    pub(crate) fn measured(&mut self, jobs: usize, took: Duration) {
        let Ok(jobs) = u64::try_from(jobs.max(1)) else { return };
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX) / jobs;
        self.nanos = Some(match self.nanos {
            None => nanos,
            Some(before) if self.is_picked => nanos.max(before - before / 8),
            Some(before) => before.midpoint(nanos),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_the_jobs_of_five_milliseconds() {
        let mut sizing = Sizing::default();
        assert_eq!(sizing.jobs(), FIRST);
        sizing.measured(1, Duration::from_millis(50));
        assert_eq!((sizing.jobs(), sizing.is_slow()), (1, true));
        let mut sizing = Sizing::default();
        sizing.measured(1, Duration::from_millis(49));
        assert_eq!((sizing.jobs(), sizing.is_slow()), (1, false));
        let mut sizing = Sizing::default();
        sizing.measured(10, Duration::from_millis(2));
        assert_eq!(sizing.jobs(), 25);
        sizing.measured(25, Duration::ZERO);
        assert_eq!(sizing.jobs(), 50);
    }

    #[test]
    fn only_quick_jobs_share_a_batch_of_picked_ones() {
        let mut sizing = Sizing::of_picked();
        assert_eq!(sizing.jobs(), 1);
        sizing.measured(1, Duration::from_micros(100));
        assert_eq!((sizing.jobs(), sizing.is_slow()), (50, false));
        // One job of ten is slow.
        for _ in 0..3 {
            sizing.measured(1, Duration::from_secs(3));
            for _ in 0..9 {
                sizing.measured(1, Duration::from_micros(100));
                assert_eq!((sizing.jobs(), sizing.is_slow()), (1, true));
            }
        }
        let quick = std::iter::repeat_with(|| sizing.measured(sizing.jobs(), Duration::from_micros(100)));
        assert_eq!(quick.take(70).count(), 70);
        assert!(sizing.jobs() > 25, "{sizing:?}");
    }

    #[test]
    fn one_slow_batch_does_not_make_batches_small_for_long() {
        let mut sizing = Sizing::default();
        // The first batch is slow because it sets up a plugin, for example.
        sizing.measured(16, Duration::from_millis(100));
        let mut batches = 0;
        while sizing.jobs() < 1024 {
            sizing.measured(sizing.jobs(), Duration::from_micros(sizing.jobs() as u64));
            batches += 1;
        }
        assert!(batches < 13, "{batches}");
    }
}
