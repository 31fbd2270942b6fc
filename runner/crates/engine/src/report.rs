//! How a run is told to go about its work, and what it says at its end.

use std::time::Duration;

use tidegate_components::source::BatchLimit;
use tidegate_dispatch::End;
use tidegate_model::Address;

/// How a run goes about its work.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// End also when sources are followed but have nothing now.
    pub until_idle: bool,
    /// Threads that run steps; 0 = one a core.
    pub workers: usize,
    /// The largest batch.
    pub batch: BatchLimit,
    /// How long to wait for room on a full disk before the next try.
    pub retry_after: Duration,
    /// How long a stop waits for what runs.
    pub shutdown_timeout: Duration,
}

impl Default for Options {
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

/// How a run ended.
#[derive(Debug)]
pub struct Report {
    pub end: End,
    /// The steps that had to stop, and why.
    pub halts: Vec<Halt>,
    /// Attempts still ran when the time for shutting down was over; they will be run again.
    pub abandoned: bool,
    /// Threads of the run are left, in code that may never end.
    pub left_behind: bool,
}

/// A step that had to stop.
#[derive(Clone, Debug)]
pub struct Halt {
    pub step: Address,
    /// What stands in the way; a sentence fragment.
    pub why: String,
}
