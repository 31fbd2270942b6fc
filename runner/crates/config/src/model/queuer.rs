//! How a step chooses among the jobs that wait for it, as it was written.

use std::num::NonZeroU32;
use std::time::Duration;

use tidegate_model::Rate;

/// So many jobs of a step run at once whose code acts outside.
const OUTSIDE_AT_ONCE: Option<NonZeroU32> = NonZeroU32::new(16);
/// So far past the watermark they start.
const OUTSIDE_SEARCH_AHEAD: u64 = 10_000;

/// The fields that lead to a value in a job, outermost first; at least one.
pub type FieldPath = Vec<String>;

/// `[queuer.NAME]`, or `queuer = { … }` of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queuer {
    pub strategy: Strategy,
    pub lane: Option<Lane>,
    /// How many jobs run at once; `None`: as many as there are workers for.
    pub max_processing: Option<NonZeroU32>,
    /// How far past the watermark jobs start; `None`: no limit.
    pub max_search_ahead: Option<u64>,
    /// How many jobs start in a time.
    pub rate: Option<Rate>,
    /// What is older goes first; `None`: what came first is.
    pub age: Option<FieldPath>,
    /// Of equally old jobs the one with the smaller value here goes first.
    pub id: Option<FieldPath>,
}

/// Who comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strategy {
    Fifo,
    Serial,
    OneRoundSerial {
        /// How long a job whose attempt failed is held back, where the retry policy says nothing else.
        delay_window: Option<Duration>,
    },
    OneRoundParallel {
        delay_window: Option<Duration>,
        /// Lists of the keys that a job reads and writes.
        reads: Option<FieldPath>,
        writes: Option<FieldPath>,
    },
    Priority {
        /// A number; higher goes first.
        priority: FieldPath,
        /// Waiting this long is worth one more of priority.
        aging: Option<Duration>,
    },
    Rounds {
        /// From the end of a round to the beginning of the next.
        pause: Duration,
    },
}

/// What tells the jobs of one lane from those of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    pub path: FieldPath,
    pub missing: LaneMissing,
    /// How many jobs of one lane run at once.
    pub max_per_lane: Option<NonZeroU32>,
    /// How many jobs of one lane start in a time.
    pub rate: Option<Rate>,
}

/// What becomes of a job that has no lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneMissing {
    /// It is set aside as a job that is not what it should be.
    Error,
    /// All such jobs are one lane.
    Default,
}

impl Queuer {
    /// How a step picks its jobs whose code acts outside, where nobody has said it: as they come, several
    /// at once.
    #[must_use]
    pub(crate) fn for_outside() -> Self {
        Self {
            strategy: Strategy::Fifo,
            lane: None,
            max_processing: OUTSIDE_AT_ONCE,
            max_search_ahead: Some(OUTSIDE_SEARCH_AHEAD),
            rate: None,
            age: None,
            id: None,
        }
    }

    /// How long a job whose attempt failed is held back, where the retry policy does not say longer.
    #[must_use]
    pub fn delay_window(&self) -> Option<Duration> {
        match self.strategy {
            Strategy::OneRoundSerial { delay_window } | Strategy::OneRoundParallel { delay_window, .. } => {
                delay_window
            }
            _ => None,
        }
    }
}
