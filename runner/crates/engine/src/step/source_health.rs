//! Source health: the state of a command or a service that is a source, for observers.

use tidegate_model::Timestamp;
use tidegate_model::sync::Mutex;

/// State of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceHealth {
    pub state: SourceState,
    /// Start of the state, as far as it is known.
    pub since: Option<Timestamp>,
    /// Reason of the last failure, unless the source has made progress since.
    pub why: Option<String>,
    /// Failures in a row.
    pub failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceState {
    Running,
    /// The next attempt starts at this time.
    Waiting {
        until: Timestamp,
    },
    Ended,
    /// It failed for good, until a reload or the next run.
    Stopped,
}

/// Health of one source, which other threads read.
#[derive(Debug, Default)]
pub struct SourceStats(Mutex<Option<SourceHealth>>);

impl SourceStats {
    /// The present state; `None` before the first one, and once the source is removed.
    #[must_use]
    pub fn health(&self) -> Option<SourceHealth> {
        self.0.lock().clone()
    }

    pub(crate) fn set(&self, health: Option<SourceHealth>) {
        *self.0.lock() = health;
    }
}
