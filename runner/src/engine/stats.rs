//! Counts that a run keeps for whoever looks on, beside the durable ones in the store.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::decide::Counters;

/// What a run has done so far, by step, in the order of the configuration.
#[derive(Debug, Default)]
pub struct Stats {
    pub steps: Vec<StepStats>,
}

/// What one step has durably done in this run.
#[derive(Debug, Default)]
pub struct StepStats {
    taken: AtomicU64,
    given: AtomicU64,
    filtered: AtomicU64,
    failed: AtomicU64,
    /// Bytes of the jobs taken, as they were read.
    bytes: AtomicU64,
}

impl Stats {
    #[must_use]
    pub fn new(steps: usize) -> Self {
        Self { steps: (0..steps).map(|_| StepStats::default()).collect() }
    }
}

impl StepStats {
    /// The counts of this run.
    pub fn counters(&self) -> Counters {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counters {
            taken: read(&self.taken),
            given: read(&self.given),
            filtered: read(&self.filtered),
            failed: read(&self.failed),
            // A run does not see what it loses; the next one counts it.
            lost: 0,
        }
    }

    /// Bytes of the jobs that were taken in this run.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, more: &Counters, bytes: u64) {
        let add = |count: &AtomicU64, more| count.fetch_add(more, Ordering::Relaxed);
        add(&self.taken, more.taken);
        add(&self.given, more.given);
        add(&self.filtered, more.filtered);
        add(&self.failed, more.failed);
        add(&self.bytes, bytes);
    }
}
