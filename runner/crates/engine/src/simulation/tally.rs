//! What was played, so that it can be seen that something was.

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) runs: u64,
    pub(crate) crashes: u64,
    /// Batches that were begun before a crash and formed again after it.
    pub(crate) again: u64,
    /// Attempts at jobs that had failed, but for those that were put back.
    pub(crate) retries: u64,
    /// Requests that were granted.
    pub(crate) granted: u64,
    /// Jobs on queues.
    pub(crate) jobs: u64,
    /// Jobs of those that were on their way in a crash at most once.
    pub(crate) lost: u64,
    /// Where it waits: how often a job found its gate closed, and how often the outside forgot one.
    pub(crate) held: u64,
    pub(crate) forgotten: u64,
    /// How often something was taken that the outside said by itself.
    pub(crate) told: u64,
    /// Jobs that somebody moved or took out while they waited.
    pub(crate) moved: u64,
    pub(crate) ticks: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, more: &Self) {
        self.runs += more.runs;
        self.crashes += more.crashes;
        self.again += more.again;
        self.retries += more.retries;
        self.granted += more.granted;
        self.jobs += more.jobs;
        self.lost += more.lost;
        self.held += more.held;
        self.forgotten += more.forgotten;
        self.told += more.told;
        self.moved += more.moved;
        self.ticks += more.ticks;
    }
}
