//! Run options and report: configure a run, and describe its end.

use std::time::Duration;

use tidegate_components::source::BatchLimit;
use tidegate_config::ConfigurationDigest;
use tidegate_dispatch::RunOutcome;
use tidegate_model::sync::Mutex;
use tidegate_model::{Address, Timestamp};
use tidegate_store::Trigger;

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Whether the run also ends when followed sources have no jobs now.
    pub until_idle: bool,
    /// Whether the run also ends when a step had to stop.
    pub exit_on_halt: bool,
    /// Number of worker threads; 0 = one a core.
    pub workers: usize,
    /// Maximum size of a batch.
    pub batch: BatchLimit,
    /// Time between two attempts to write to a full disk.
    pub retry_after: Duration,
    /// Maximum time that a stop waits for running jobs.
    pub shutdown_timeout: Duration,
    /// Whether the executable of this process can become the command of a source, so that it ends with the process.
    pub hosts_commands: bool,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            until_idle: false,
            exit_on_halt: false,
            workers: 0,
            batch: BatchLimit { jobs: 1024, bytes: 128 << 10 },
            retry_after: Duration::from_secs(1),
            shutdown_timeout: Duration::from_secs(30),
            hosts_commands: false,
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

/// Step that still finishes jobs of an earlier generation.
#[derive(Clone, Debug)]
pub struct LingeringStep {
    pub step: Address,
    /// Time of the change that it will follow.
    pub since: Timestamp,
    /// The event that it waits for, as a sentence fragment.
    pub why: String,
}

/// Outcome of a reload: the generation is the current one.
#[derive(Clone, Debug)]
pub struct ReloadOutcome {
    pub number: u64,
    /// Steps that still deliver what they have begun, and take over afterwards.
    pub lingering: Vec<Address>,
}

/// Rollback: an earlier generation is carried out again, although the files differ.
#[derive(Clone, Debug)]
pub struct RolledBack {
    /// Number of the earlier generation.
    pub to: u64,
    /// Number of the generation that was rolled back.
    pub from: u64,
    pub since: Timestamp,
    pub trigger: Trigger,
    /// Reason: a sentence fragment.
    pub why: String,
}

/// Rollback that was in force when the last run ended.
#[derive(Clone, Debug)]
pub struct ResumedRollback {
    pub rollback: RolledBack,
    /// Number of the generation of the files, which were rolled back. It is earlier than that of `rollback.from` after
    /// several rollbacks.
    pub files: u64,
    /// Meaning of these files.
    pub(crate) digest: ConfigurationDigest,
}

/// Earlier generation of the same files that was rolled back before the run started.
#[derive(Clone, Debug)]
pub struct RolledBackBefore {
    pub generation: u64,
    /// Reason: a sentence fragment.
    pub why: String,
}

/// Generations up to the current one that an earlier one replaces.
#[derive(Clone, Debug)]
pub(crate) struct ReplacedGenerations {
    pub(crate) first: u64,
    /// Reason: a sentence fragment.
    pub(crate) why: String,
}

/// Reload that was refused, because the files have mistakes. The run goes on as before.
#[derive(Clone, Debug)]
pub struct RefusedReload {
    pub since: Timestamp,
    pub trigger: Trigger,
    /// First mistake.
    pub why: String,
    /// File, line and column of the first mistake; `None` if it has no place in a file.
    pub place: Option<String>,
    text: String,
}

impl RefusedReload {
    /// `why` is the first line of `text`, which has all mistakes.
    #[must_use]
    pub fn new(since: Timestamp, trigger: Trigger, why: String, text: &str) -> Self {
        Self { since, trigger, why, place: None, text: text.to_owned() }
    }

    /// With the place of the first mistake.
    #[must_use]
    pub fn at(self, place: Option<String>) -> Self {
        Self { place, ..self }
    }

    fn is_like(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// Last reload, if it was refused and the files are still wrong.
#[derive(Debug, Default)]
pub(crate) struct ReloadHealth(Mutex<Option<RefusedReload>>);

impl ReloadHealth {
    pub(crate) fn get(&self) -> Option<RefusedReload> {
        self.0.lock().clone()
    }

    /// Records a refused reload. Returns whether its mistakes are new.
    pub(crate) fn refuse(&self, refused: RefusedReload) -> bool {
        let mut last = self.0.lock();
        let is_new = last.as_ref().is_none_or(|last| !last.is_like(&refused));
        if is_new {
            *last = Some(refused);
        }
        is_new
    }

    /// Records that the files are right. Returns whether that is new.
    pub(crate) fn accept(&self) -> bool {
        self.0.lock().take().is_some()
    }
}

/// Step that had to stop.
#[derive(Clone, Debug)]
pub struct Halt {
    pub step: Address,
    /// Its position; `None` for the source of a command.
    pub(crate) position: Option<usize>,
    /// Reason: a sentence fragment.
    pub why: String,
}
