//! Run statistics: count the work of a run for observers, beside the durable counters in the store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::probe_health::{ProbeHealth, ProbeKind};
use super::source_health::SourceStats;
use super::throughput::ThroughputWindow;
use tidegate_config::{Configuration, QueueRef, SourceRef, Step};
use tidegate_model::sync::Mutex;
use tidegate_model::{Counters, Timestamp};

/// Statistics of a run, by position of the step.
#[derive(Debug)]
pub struct Stats {
    pub started: Timestamp,
    steps: Mutex<Vec<Arc<StepStats>>>,
    /// Sources that are commands, by the queues that they fill.
    commands: Mutex<BTreeMap<QueueRef, Arc<SourceStats>>>,
    /// Pull sources.
    services: Mutex<BTreeMap<SourceRef, Arc<SourceStats>>>,
    /// Reason for which no commit succeeds, while a disk is full.
    full: Mutex<Option<String>>,
}

/// Durable work of one step in this run.
#[derive(Debug, Default)]
pub struct StepStats {
    taken: AtomicU64,
    given: AtomicU64,
    filtered: AtomicU64,
    failed: AtomicU64,
    /// Failed jobs that are on no error queue.
    dropped: AtomicU64,
    /// Bytes of the taken jobs, as they were read.
    bytes: AtomicU64,
    closed: Mutex<Option<StepBlock>>,
    gate: Mutex<ProbeHealth>,
    monitor: Mutex<ProbeHealth>,
    pending: AtomicU64,
    valid: AtomicU64,
    /// Jobs that wait for their partners in a join by key, by input.
    unmatched: Mutex<Vec<u64>>,
    pace: Mutex<ThroughputWindow>,
    /// Time and reason of a halt.
    halted: Mutex<Option<(Timestamp, String)>>,
}

/// Condition that blocks a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepBlock {
    pub since: Timestamp,
    pub by: BlockCause,
    /// Reason as a sentence fragment, from the gate, the job or the failure; empty if there is none.
    pub why: String,
}

/// Cause of a blocked step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockCause {
    /// Its gate is closed.
    Gate,
    /// The check of its gate failed.
    Failure,
    /// One of its jobs reported the gate closed.
    Job,
    /// The setup failed, and is retried at this time.
    Setup { until: Timestamp },
}

impl BlockCause {
    fn is_like(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    /// Whether it is a failure, whose reason may change.
    fn is_trouble(self) -> bool {
        matches!(self, Self::Failure | Self::Setup { .. })
    }
}

impl Stats {
    #[must_use]
    pub fn new(started: Timestamp) -> Self {
        Self {
            started,
            steps: Mutex::default(),
            commands: Mutex::default(),
            services: Mutex::default(),
            full: Mutex::default(),
        }
    }

    /// Statistics of the step at this position. A step that is removed and added again goes on counting.
    #[must_use]
    pub fn step(&self, position: usize) -> Arc<StepStats> {
        let mut steps = self.steps.lock();
        while steps.len() <= position {
            steps.push(Arc::default());
        }
        Arc::clone(&steps[position])
    }

    /// Statistics of a pull source.
    #[must_use]
    pub fn service(&self, source: SourceRef) -> Arc<SourceStats> {
        Arc::clone(self.services.lock().entry(source).or_default())
    }

    /// Statistics of the command that fills this queue.
    #[must_use]
    pub fn source(&self, queue: QueueRef) -> Arc<SourceStats> {
        Arc::clone(self.commands.lock().entry(queue).or_default())
    }

    /// Statistics of all steps that any configuration of this run had.
    #[must_use]
    pub fn steps(&self) -> Vec<Arc<StepStats>> {
        self.steps.lock().clone()
    }

    /// Steps of a configuration with their statistics, in the order of the configuration.
    pub fn of<'c>(
        &self,
        configuration: &'c Configuration,
    ) -> impl Iterator<Item = (&'c Step, Arc<StepStats>)> {
        configuration.steps.entries().map(|(position, step)| (step, self.step(position)))
    }

    /// Reason for which no commit succeeds now: a disk is full.
    #[must_use]
    pub fn full(&self) -> Option<String> {
        self.full.lock().clone()
    }

    pub(crate) fn set_full(&self, why: Option<String>) {
        *self.full.lock() = why;
    }
}

impl StepStats {
    /// Counters of this run.
    pub fn counters(&self) -> Counters {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counters {
            taken: read(&self.taken),
            given: read(&self.given),
            filtered: read(&self.filtered),
            failed: read(&self.failed),
            // A run does not notice the jobs that it loses; the next one counts them.
            lost: 0,
        }
    }

    /// Number of jobs that failed in this run and are on no error queue.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn add_dropped(&self, jobs: u64) {
        self.dropped.fetch_add(jobs, Ordering::Relaxed);
    }

    /// Bytes of the jobs that were taken in this run.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Number of pending jobs, and of those with the status `valid`.
    pub fn pending(&self) -> (u64, u64) {
        (self.pending.load(Ordering::Relaxed), self.valid.load(Ordering::Relaxed))
    }

    pub(crate) fn set_pending(&self, pending: u64, valid: u64) {
        self.pending.store(pending, Ordering::Relaxed);
        self.valid.store(valid, Ordering::Relaxed);
    }

    /// Number of jobs that wait for their partners in a join by key, by input; empty for other steps.
    pub fn unmatched(&self) -> Vec<u64> {
        self.unmatched.lock().clone()
    }

    pub(crate) fn set_unmatched(&self, counts: &[u64]) {
        let mut unmatched = self.unmatched.lock();
        unmatched.clear();
        unmatched.extend(counts);
    }

    /// Recent jobs per second of a run that began at `started`.
    pub fn rate(&self, started: Timestamp, now: Timestamp) -> f64 {
        self.pace.lock().rate(started, now)
    }

    /// Time and reason of the halt, if the step takes no more jobs in this run.
    pub fn halted(&self) -> Option<(Timestamp, String)> {
        self.halted.lock().clone()
    }

    /// The step starts anew: nothing blocks it, as far as is known.
    pub(crate) fn restart(&self) {
        *self.halted.lock() = None;
        *self.closed.lock() = None;
        // Open calls of the earlier installation are not answered.
        self.gate.lock().restart();
        self.monitor.lock().restart();
    }

    /// Records the cause of the halt.
    pub(crate) fn halt(&self, why: String, now: Timestamp) {
        *self.halted.lock() = Some((now, why));
    }

    /// Condition that blocks the step, as far as it is known.
    pub fn closed(&self) -> Option<StepBlock> {
        self.closed.lock().clone()
    }

    /// Records that the step is blocked. Returns whether that is new.
    pub(crate) fn close(&self, by: BlockCause, why: String, now: Timestamp) -> bool {
        let mut closed = self.closed.lock();
        let since = closed.as_ref().map_or(now, |before| before.since);
        let news = closed
            .as_ref()
            .is_none_or(|before| !before.by.is_like(by) || by.is_trouble() && before.why != why);
        *closed = Some(StepBlock { since, by, why });
        news
    }

    /// Records that a condition no longer blocks the step. Returns whether that is new.
    pub(crate) fn open(&self, by: impl Fn(BlockCause) -> bool) -> bool {
        let mut closed = self.closed.lock();
        let opens = closed.as_ref().is_some_and(|before| by(before.by));
        if opens {
            *closed = None;
        }
        opens
    }

    /// Health of the step's gate or monitor.
    pub fn answering(&self, whom: ProbeKind) -> ProbeHealth {
        self.answers(whom).lock().clone()
    }

    /// Records the start of a call; `call` is its number.
    pub(crate) fn ask(&self, whom: ProbeKind, call: u64, now: Timestamp) {
        self.answers(whom).lock().started(call, now);
    }

    /// Records the end of a call, with its error if it failed. Returns whether the error is new.
    pub(crate) fn answered(
        &self,
        whom: ProbeKind,
        call: u64,
        trouble: Option<String>,
        now: Timestamp,
    ) -> bool {
        self.answers(whom).lock().finished(call, trouble, now)
    }

    /// Records that no call fails any more.
    pub(crate) fn recovered(&self, whom: ProbeKind) {
        self.answers(whom).lock().recovered();
    }

    fn answers(&self, whom: ProbeKind) -> &Mutex<ProbeHealth> {
        match whom {
            ProbeKind::Gate => &self.gate,
            ProbeKind::Monitor => &self.monitor,
        }
    }

    pub(crate) fn add(&self, more: &Counters, bytes: u64, now: Timestamp) {
        self.pace.lock().add(more.taken, now);
        let add = |count: &AtomicU64, more| count.fetch_add(more, Ordering::Relaxed);
        add(&self.taken, more.taken);
        add(&self.given, more.given);
        add(&self.filtered, more.filtered);
        add(&self.failed, more.failed);
        add(&self.bytes, bytes);
    }
}
