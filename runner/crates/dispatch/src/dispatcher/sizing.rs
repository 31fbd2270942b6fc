//! How many jobs a batch gets: as many as take about 50 ms of a worker, as far as was measured. Slow jobs
//! so spread over all workers and are delivered soon, and fast ones keep their full batches.

use std::time::Duration;

/// A batch shall take about this long.
const TARGET_NANOS: u64 = 50_000_000;
/// Jobs of a batch before any was measured.
const FIRST: usize = 16;

/// A moving estimate of what one job of a step takes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sizing {
    /// Of one job; `None` before any was measured.
    nanos: Option<u64>,
}

impl Sizing {
    /// Jobs of the next batch.
    pub(crate) fn jobs(self) -> usize {
        let Some(nanos) = self.nanos else { return FIRST };
        usize::try_from(TARGET_NANOS / nanos.max(1)).unwrap_or(usize::MAX).max(1)
    }

    /// A worker took so long over so many jobs.
    pub(crate) fn measured(&mut self, jobs: usize, took: Duration) {
        let Ok(jobs) = u64::try_from(jobs.max(1)) else { return };
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX) / jobs;
        self.nanos = Some(self.nanos.map_or(nanos, |before| before.midpoint(nanos)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_the_jobs_of_fifty_milliseconds() {
        let mut sizing = Sizing::default();
        assert_eq!(sizing.jobs(), FIRST);
        sizing.measured(1, Duration::from_millis(500));
        assert_eq!(sizing.jobs(), 1);
        let mut sizing = Sizing::default();
        sizing.measured(10, Duration::from_millis(20));
        assert_eq!(sizing.jobs(), 25);
        sizing.measured(25, Duration::ZERO);
        assert_eq!(sizing.jobs(), 50);
    }

    #[test]
    fn one_slow_batch_does_not_make_batches_small_for_long() {
        let mut sizing = Sizing::default();
        // The first batch has a plugin set up, say.
        sizing.measured(16, Duration::from_millis(100));
        let mut batches = 0;
        while sizing.jobs() < 1024 {
            sizing.measured(sizing.jobs(), Duration::from_micros(sizing.jobs() as u64));
            batches += 1;
        }
        assert!(batches < 10, "{batches}");
    }
}
