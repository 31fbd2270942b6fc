//! Queuer policy: defines the configuration of a waiting room, its jobs, and its answers.

use std::num::NonZeroU32;
use std::time::Duration;

use thiserror::Error;

use tidegate_model::Timestamp;

/// Rules by which the jobs of a step wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePolicy {
    pub strategy: StartOrder,
    /// Maximum number of running jobs. Jobs that are pending in an external system do not count.
    pub max_processing: Option<NonZeroU32>,
    /// Maximum number of jobs that run or are pending: a job that runs may become pending.
    pub max_pending: Option<NonZeroU32>,
    /// Maximum number of jobs of one lane that run or are pending.
    pub max_per_lane: Option<NonZeroU32>,
    /// Maximum rate of starts. A job that is put back has started, and counts.
    pub rate: Option<StartRate>,
    /// Maximum rate of starts of one lane.
    pub lane_rate: Option<StartRate>,
    /// Whether jobs have lanes, which can be held.
    pub has_lanes: bool,
}

/// Reason for which a lane starts no jobs until an operator resumes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    Paused,
    /// A job of it was invalid. Its jobs do not keep a run from ending.
    Halted,
}

/// Order in which waiting jobs start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartOrder {
    /// Oldest first. A delayed job does not block the others.
    Fifo,
    /// One at a time, in order: no job starts while one is running, pending or delayed.
    Serial,
    /// One job of each lane a round, and none of a lane with a running, pending, unknown or delayed job.
    OneRoundSerial,
    /// In each round, all jobs that have no conflict with an earlier unfinished job of their lane.
    OneRoundParallel,
    /// Highest priority first, oldest within. With `aging`, that time of waiting is worth one priority more,
    /// so every job starts in the end.
    Priority { aging: Option<Duration> },
    /// A round of a lane has its jobs that wait when the round begins; the next one begins `pause` after its
    /// end. Lanes have rounds of their own.
    Rounds { pause: Duration },
}

/// At most `jobs` in any time of the length `per`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartRate {
    pub jobs: NonZeroU32,
    pub per: Duration,
}

/// Number of a job, chosen by the caller; no two jobs in the waiting room have the same. Among otherwise
/// equal jobs the smaller number goes first, so numbers should grow with arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobKey(pub u64);

impl JobKey {
    /// The highest bit marks parked jobs, which have rows of their own in the store.
    const STORED: u64 = 1 << 63;

    /// Key of the job at this index of the step's input.
    #[must_use]
    pub fn fresh(index: u64) -> Self {
        Self(index & !Self::STORED)
    }

    /// Key of the parked job with this number.
    #[must_use]
    pub fn stored(sequence: u64) -> Self {
        Self(sequence | Self::STORED)
    }

    /// Whether it is a job of the step's input.
    #[must_use]
    pub fn is_fresh(self) -> bool {
        self.0 & Self::STORED == 0
    }
}

/// Order of equally old jobs: no id, then numbers by value, then text byte by byte.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobId {
    #[default]
    None,
    Number(i128),
    Text(Box<str>),
}

/// Attributes of a job that the waiting room needs.
#[derive(Clone, Debug)]
pub struct JobAttributes<'a> {
    pub key: JobKey,
    /// Index in the input; `None` if the job does not hold the watermark.
    pub index: Option<u64>,
    /// Empty if the step has no lanes.
    pub lane: &'a [u8],
    /// Index or time, the same kind for all jobs; smaller is older.
    pub age: i64,
    pub id: JobId,
    /// Used by `priority` only, like `since`.
    pub priority: i64,
    /// Time at which the job began to wait, for aging.
    pub since: Timestamp,
    /// Hashes of the content keys that the job reads and writes, for `one-round-parallel`.
    pub reads: &'a [u64],
    pub writes: &'a [u64],
}

impl JobAttributes<'_> {
    /// Attributes of a job without a lane, id, priority or content keys.
    #[must_use]
    pub fn new(key: JobKey, age: i64) -> Self {
        Self {
            key,
            index: key.is_fresh().then_some(key.0),
            lane: &[],
            age,
            id: JobId::None,
            priority: 0,
            since: Timestamp(0),
            reads: &[],
            writes: &[],
        }
    }
}

/// State of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitingState {
    Waiting,
    /// The external system forgot it, or it was in flight when the process died. It goes before all other
    /// jobs of its lane.
    Unknown,
    /// Its attempt failed; the next one starts at this time or later.
    Delayed {
        until: Timestamp,
    },
    Running,
    /// An external system has it and will finish it.
    Pending,
    /// Its result is known, and is delivered after the jobs before it.
    Finished,
}

/// Reason for which a job does not run, with the time at which it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    Running,
    Pending,
    /// Its result is delivered after the jobs before it.
    Finished,
    Delayed {
        until: Timestamp,
    },
    /// Its lane waits for another job; under `serial`, the whole step waits.
    Lane {
        job: JobKey,
        state: WaitingState,
    },
    /// An earlier unfinished job of its lane has a conflict with it: one of the two writes a key that the
    /// other uses.
    Conflict {
        job: JobKey,
        state: WaitingState,
    },
    /// It came after the round began.
    NextRound,
    /// The next round begins at this time.
    Pause {
        until: Timestamp,
    },
    Rate {
        until: Timestamp,
    },
    LaneRate {
        until: Timestamp,
    },
    MaxProcessing,
    MaxPending,
    MaxPerLane,
    /// Its lane starts nothing until an operator resumes it.
    LaneHeld(Hold),
    /// Nothing blocks it; it starts after the jobs before it.
    Turn,
}

/// Jobs of one lane that run or are pending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLane<'r> {
    pub lane: &'r [u8],
    pub jobs: Vec<JobKey>,
    /// Number of them that are pending.
    pub pending: usize,
}

/// Jobs that one round would start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// Start of its first job.
    pub at: Timestamp,
    /// First jobs, in order.
    pub jobs: Vec<JobKey>,
    /// Number of further jobs in this round.
    pub more: usize,
}

/// Number of jobs by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateCounts {
    /// Waiting and unknown jobs.
    pub waiting: usize,
    pub running: usize,
    pub delayed: usize,
    pub pending: usize,
    /// Finished jobs that wait for the delivery of earlier ones.
    pub finished: usize,
    /// Lanes with at least one job.
    pub lanes: usize,
}

/// Waiting jobs, summarised by lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneSummary {
    /// The oldest waiting job, by the age in its attributes.
    pub oldest: Option<JobKey>,
    /// Number of delayed jobs that are due: they count as waiting here.
    pub due: usize,
    /// Lanes with the most waiting jobs, in descending order.
    pub lanes: Vec<LaneCounts>,
}

/// Number of jobs of one lane by state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneCounts {
    pub lane: Box<[u8]>,
    /// Waiting and unknown jobs.
    pub waiting: usize,
    pub running: usize,
    pub delayed: usize,
    pub pending: usize,
    /// Its oldest waiting job, by the age in its attributes.
    pub oldest: Option<JobKey>,
    /// Any of its jobs.
    pub some: JobKey,
}

/// Reason for which a report about a job had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InvalidTransition {
    #[error("job `{}` is already waiting", .0.0)]
    Present(JobKey),
    #[error("job `{}` is not in this step", .0.0)]
    Absent(JobKey),
    #[error("job `{}` cannot {transition}: it is {}", key.0, state.word())]
    Transition { key: JobKey, state: WaitingState, transition: &'static str },
    #[error("the step has more than {} waiting jobs: set or lower `max_search_ahead`", u32::MAX - 1)]
    Full,
}

impl WaitingState {
    /// State as a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            WaitingState::Waiting => "waiting",
            WaitingState::Unknown => "unknown",
            WaitingState::Delayed { .. } => "delayed",
            WaitingState::Running => "running",
            WaitingState::Pending => "pending",
            WaitingState::Finished => "finished",
        }
    }
}
