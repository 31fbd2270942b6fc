//! Tally: counts the events of a simulation, to show that they have occurred.

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) runs: u64,
    pub(crate) crashes: u64,
    /// Batches that were begun before a crash and formed again after it.
    pub(crate) again: u64,
    /// Retries of failed jobs, without retried errors.
    pub(crate) retries: u64,
    /// Granted requests.
    pub(crate) request_outcome: u64,
    /// Jobs on queues.
    pub(crate) jobs: u64,
    /// Jobs that `at-most-once` steps have lost in crashes.
    pub(crate) lost: u64,
    /// Number of jobs that found their gate closed, and of jobs that their external system did not know.
    pub(crate) held: u64,
    pub(crate) forgotten: u64,
    /// Number of accepted external completions.
    pub(crate) completions: u64,
    /// Number of waiting jobs that were moved or cancelled.
    pub(crate) moved: u64,
    /// Number of invalid jobs that halted their lanes.
    pub(crate) halted_lanes: u64,
    /// Number of jobs that were claimed together with another one.
    pub(crate) claimed_together: u64,
    pub(crate) ticks: u64,
    pub(crate) reloads: u64,
    /// Number of rollbacks, and of reloads that were refused.
    pub(crate) rollbacks: u64,
    pub(crate) refused: u64,
    /// Number of steps that drained and started again in a run.
    pub(crate) replaced: u64,
    /// Number of rows that jobs found in the table of a queue.
    pub(crate) found: u64,
    /// Number of times that a queue with jobs was in no configuration.
    pub(crate) orphaned: u64,
    /// Number of removed pipelines that have returned.
    pub(crate) returned: u64,
    /// Counts of jobs in plans.
    pub(crate) counts: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, more: &Self) {
        self.runs += more.runs;
        self.crashes += more.crashes;
        self.again += more.again;
        self.retries += more.retries;
        self.request_outcome += more.request_outcome;
        self.jobs += more.jobs;
        self.lost += more.lost;
        self.held += more.held;
        self.forgotten += more.forgotten;
        self.completions += more.completions;
        self.moved += more.moved;
        self.halted_lanes += more.halted_lanes;
        self.claimed_together += more.claimed_together;
        self.ticks += more.ticks;
        self.reloads += more.reloads;
        self.rollbacks += more.rollbacks;
        self.refused += more.refused;
        self.replaced += more.replaced;
        self.found += more.found;
        self.orphaned += more.orphaned;
        self.returned += more.returned;
        self.counts += more.counts;
    }
}
