//! `Queuer`: how a step chooses among its waiting jobs, as configured.

use std::num::NonZeroU32;
use std::time::Duration;

use tidegate_model::{FieldPath, Rate};

/// Default number of running jobs of a step with external effects.
const OUTSIDE_AT_ONCE: Option<NonZeroU32> = NonZeroU32::new(16);
/// Default number of jobs past the watermark that such a step starts.
const OUTSIDE_SEARCH_AHEAD: u64 = 32_768;

/// `[queuer.NAME]`, or `queuer = { … }` of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queuer {
    pub strategy: Strategy,
    pub lane: Option<Lane>,
    /// Maximum number of running jobs; `None`: the number of workers.
    pub max_processing: Option<NonZeroU32>,
    /// Maximum number of jobs that run or are pending; `None`: no limit.
    pub max_pending: Option<NonZeroU32>,
    /// Maximum distance past the watermark at which jobs start; `None`: no limit.
    pub max_search_ahead: Option<u64>,
    /// Maximum number of starts per time.
    pub rate: Option<Rate>,
    /// Jobs run side by side, and their results are delivered in the order of the input.
    pub ordered: bool,
    /// Older jobs come first; `None`: in order of arrival.
    pub age: Option<FieldPath>,
    /// Among jobs of the same age, the smaller value comes first.
    pub id: Option<FieldPath>,
}

/// The order of jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strategy {
    Fifo,
    Serial,
    OneRoundSerial {
        /// How long a job whose attempt failed is held, unless the retry policy sets it.
        delay_window: Option<Duration>,
    },
    OneRoundParallel {
        delay_window: Option<Duration>,
        /// Lists of the keys that a job reads and writes.
        reads: Option<FieldPath>,
        writes: Option<FieldPath>,
        missing: KeysMissing,
    },
    Priority {
        /// A number; higher comes first.
        priority: FieldPath,
        /// Each such waiting time adds one to the priority.
        aging: Option<Duration>,
    },
    Rounds {
        /// From the end of a round to the start of the next.
        pause: Duration,
    },
}

/// The field that determines the lane of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    pub path: FieldPath,
    pub missing: LaneMissing,
    /// Status at which a pending job makes way for the next ones of its lane.
    pub frees_at: FreesAt,
    pub after_invalid: AfterInvalid,
    /// Maximum number of jobs of one lane that run or are pending.
    pub max_per_lane: Option<NonZeroU32>,
    /// Maximum number of starts of one lane per time.
    pub rate: Option<Rate>,
}

/// `on_invalid`: the handling of a lane whose job is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterInvalid {
    /// Its next job starts.
    GoesOn,
    /// It starts nothing until an operator resumes it.
    HaltsLane,
}

/// The status at which a pending job frees its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreesAt {
    /// When the job is delivered.
    End,
    /// When its external system reports it as valid.
    Valid,
}

/// The handling of a job without a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneMissing {
    /// It fails as an invalid job.
    Error,
    /// All such jobs are one lane.
    Default,
}

/// The handling of a job without the lists of keys that its queuer names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeysMissing {
    /// It fails as an invalid job.
    Error,
    /// It has no keys, and conflicts with no job.
    None,
}

impl Queuer {
    /// Whether a valid job makes way for the next ones of its lane, although it is still pending.
    #[must_use]
    pub fn frees_lane_when_valid(&self) -> bool {
        self.lane.as_ref().is_some_and(|lane| lane.frees_at == FreesAt::Valid)
    }

    /// Whether a job waits only for the delivery of all earlier jobs, or of those of its lane.
    #[must_use]
    pub fn is_serial(&self) -> bool {
        let is_serial = matches!(self.strategy, Strategy::Serial | Strategy::OneRoundSerial { .. });
        is_serial && !self.ordered && !self.halts_lanes()
    }

    /// Whether a lane halts at an invalid job.
    #[must_use]
    pub fn halts_lanes(&self) -> bool {
        self.lane.as_ref().is_some_and(|lane| lane.after_invalid == AfterInvalid::HaltsLane)
    }

    /// The default of a step with external effects: in order of arrival, several at once.
    #[must_use]
    pub(crate) fn for_outside() -> Self {
        Self {
            strategy: Strategy::Fifo,
            lane: None,
            max_processing: OUTSIDE_AT_ONCE,
            max_pending: None,
            max_search_ahead: Some(OUTSIDE_SEARCH_AHEAD),
            rate: None,
            ordered: false,
            age: None,
            id: None,
        }
    }

    /// How long a job whose attempt failed is held, unless the retry policy sets a longer time.
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
