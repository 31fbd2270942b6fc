//! Run options and report: configure a run, and describe its end.

use std::time::Duration;

use tidegate_components::source::BatchLimit;
use tidegate_dispatch::RunOutcome;
use tidegate_model::Address;

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Whether the run also ends when followed sources have no jobs now.
    pub until_idle: bool,
    /// Number of worker threads; 0 = one a core.
    pub workers: usize,
    /// Maximum size of a batch.
    pub batch: BatchLimit,
    /// Time between two attempts to write to a full disk.
    pub retry_after: Duration,
    /// Maximum time that a stop waits for running jobs.
    pub shutdown_timeout: Duration,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            until_idle: false,
            workers: 0,
            batch: BatchLimit { jobs: 1024, bytes: 128 << 10 },
            retry_after: Duration::from_secs(1),
            shutdown_timeout: Duration::from_secs(30),
        }
    }
}

/// Outcome of a run.
#[derive(Debug)]
pub struct RunReport {
    pub end: RunOutcome,
    /// Steps that had to stop, with the reasons.
    pub halts: Vec<Halt>,
    /// Whether attempts were still running when `shutdown_timeout` expired; they run again in the next run.
    pub abandoned: bool,
    /// Whether threads of the run are left, in code that may never return.
    pub left_behind: bool,
}

/// Outcome of a reload: the generation is the current one.
#[derive(Clone, Debug)]
pub struct ReloadOutcome {
    pub number: u64,
    /// Steps that still deliver what they have begun, and take over afterwards.
    pub lingering: Vec<Address>,
}

/// Step that had to stop.
#[derive(Clone, Debug)]
pub struct Halt {
    pub step: Address,
    /// Reason: a sentence fragment.
    pub why: String,
}
