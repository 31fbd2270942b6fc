//! Counts that a run keeps for whoever looks on, beside the durable ones in the store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::answering::{Answering, Asked};
use super::pace::Pace;
use tidegate_model::{Counters, Timestamp};

/// What a run has done so far, by step, in the order of the configuration.
#[derive(Debug)]
pub struct Stats {
    pub started: Timestamp,
    pub steps: Vec<StepStats>,
    /// Why nothing can be committed, while a disk is full.
    full: Mutex<Option<String>>,
}

/// What one step has durably done in this run.
#[derive(Debug, Default)]
pub struct StepStats {
    taken: AtomicU64,
    given: AtomicU64,
    filtered: AtomicU64,
    failed: AtomicU64,
    /// Those of the failed ones that are on no error queue.
    dropped: AtomicU64,
    /// Bytes of the jobs taken, as they were read.
    bytes: AtomicU64,
    closed: Mutex<Option<Closed>>,
    gate: Mutex<Answering>,
    monitor: Mutex<Answering>,
    pending: AtomicU64,
    valid: AtomicU64,
    pace: Mutex<Pace>,
    /// Since when it takes no more jobs, and why.
    halted: Mutex<Option<(Timestamp, String)>>,
}

/// What keeps a step from starting anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    pub since: Timestamp,
    pub by: ClosedBy,
    /// As the gate, the job or the failure says; a sentence fragment. Empty where nobody has said.
    pub why: String,
}

/// What has found that a step may not start anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedBy {
    /// Its gate.
    Gate,
    /// The gate could not be asked.
    Failure,
    /// One of its jobs.
    Job,
    /// What it runs could not be set up, and is set up again then.
    Setup { until: Timestamp },
}

impl ClosedBy {
    fn is_like(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    /// Something does not work, and why may change.
    fn is_trouble(self) -> bool {
        matches!(self, Self::Failure | Self::Setup { .. })
    }
}

impl Stats {
    #[must_use]
    pub fn new(steps: usize, started: Timestamp) -> Self {
        let steps = (0..steps).map(|_| StepStats::default()).collect();
        Self { started, steps, full: Mutex::default() }
    }

    /// Why nothing can be committed just now: a disk is full, and there is no room yet.
    #[must_use]
    pub fn full(&self) -> Option<String> {
        self.full.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_full(&self, why: Option<String>) {
        *self.full.lock().unwrap_or_else(PoisonError::into_inner) = why;
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

    /// Jobs that failed in this run and are on no error queue.
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

    /// Jobs that are pending outside and watched by a monitor; and how many of them are called valid there.
    pub fn pending(&self) -> (u64, u64) {
        (self.pending.load(Ordering::Relaxed), self.valid.load(Ordering::Relaxed))
    }

    pub(crate) fn set_pending(&self, pending: u64, valid: u64) {
        self.pending.store(pending, Ordering::Relaxed);
        self.valid.store(valid, Ordering::Relaxed);
    }

    /// Jobs a second of late, in a run that has `started` then.
    pub fn rate(&self, started: Timestamp, now: Timestamp) -> f64 {
        held(&self.pace).rate(started, now)
    }

    /// Since when the step takes no more jobs in this run, and why.
    pub fn halted(&self) -> Option<(Timestamp, String)> {
        held(&self.halted).clone()
    }

    pub(crate) fn halt(&self, why: String, now: Timestamp) {
        // What came first stands in the way of the rest.
        held(&self.halted).get_or_insert((now, why));
    }

    /// What keeps the step from starting anything, as far as is known.
    pub fn closed(&self) -> Option<Closed> {
        held(&self.closed).clone()
    }

    /// Takes note that nothing may start; answers whether that is news.
    pub(crate) fn close(&self, by: ClosedBy, why: String, now: Timestamp) -> bool {
        let mut closed = held(&self.closed);
        let since = closed.as_ref().map_or(now, |before| before.since);
        let news = closed
            .as_ref()
            .is_none_or(|before| !before.by.is_like(by) || by.is_trouble() && before.why != why);
        *closed = Some(Closed { since, by, why });
        news
    }

    /// Takes note that nothing of this kind stands in the way; answers whether that is news.
    pub(crate) fn open(&self, by: impl Fn(ClosedBy) -> bool) -> bool {
        let mut closed = held(&self.closed);
        let opens = closed.as_ref().is_some_and(|before| by(before.by));
        if opens {
            *closed = None;
        }
        opens
    }

    /// How the gate or the monitor of the step answers.
    pub fn answering(&self, whom: Asked) -> Answering {
        held(self.answers(whom)).clone()
    }

    pub(crate) fn ask(&self, whom: Asked, now: Timestamp) {
        held(self.answers(whom)).ask(now);
    }

    /// Takes note of an answer, or of what is wrong with it; answers whether that trouble is news.
    pub(crate) fn answered(&self, whom: Asked, trouble: Option<String>, now: Timestamp) -> bool {
        held(self.answers(whom)).answered(trouble, now)
    }

    fn answers(&self, whom: Asked) -> &Mutex<Answering> {
        match whom {
            Asked::Gate => &self.gate,
            Asked::Monitor => &self.monitor,
        }
    }

    pub(crate) fn add(&self, more: &Counters, bytes: u64, now: Timestamp) {
        held(&self.pace).add(more.taken, now);
        let add = |count: &AtomicU64, more| count.fetch_add(more, Ordering::Relaxed);
        add(&self.taken, more.taken);
        add(&self.given, more.given);
        add(&self.filtered, more.filtered);
        add(&self.failed, more.failed);
        add(&self.bytes, bytes);
    }
}

/// What a lock guards; nothing that could panic is done with it.
fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
