//! The words in which a step says how its jobs wait, and in which the room answers.

use std::num::NonZeroU32;
use std::time::Duration;

use thiserror::Error;

use tidegate_model::Timestamp;

/// How the jobs of a step wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    pub strategy: Strategy,
    /// How many run at once. What is pending outside does not run.
    pub max_processing: Option<NonZeroU32>,
    /// How many of one lane run at once.
    pub max_per_lane: Option<NonZeroU32>,
    /// How many start in a time. A job that is put back has started, and counts.
    pub rate: Option<Rate>,
    /// How many of one lane start in a time.
    pub lane_rate: Option<Rate>,
}

/// Who comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Oldest first. A delayed job steps aside.
    Fifo,
    /// One at a time, in order: nothing starts while one runs, is pending or is delayed.
    Serial,
    /// One of each lane a round, and none of a lane that has one running, pending, unknown or delayed.
    OneRoundSerial,
    /// In each round whatever no earlier unfinished job of its lane is in conflict with.
    OneRoundParallel,
    /// Highest priority first, oldest within. With `aging`, waiting that long is worth one more of
    /// priority, so that none waits for ever.
    Priority { aging: Option<Duration> },
    /// What is there when a round begins belongs to it; the next begins `pause` after its end.
    Rounds { pause: Duration },
}

/// At most `jobs` in any time of the length `per`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub jobs: NonZeroU32,
    pub per: Duration,
}

/// A number for a job, chosen by whoever fills the room; no two jobs in it have the same. Where
/// everything else is equal the smaller one goes first, so numbers should grow with arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobKey(pub u64);

impl JobKey {
    /// The highest bit tells those apart that stand in the store one by one.
    const STORED: u64 = 1 << 63;

    /// The job at this index of the step's input.
    #[must_use]
    pub fn fresh(index: u64) -> Self {
        Self(index & !Self::STORED)
    }

    /// The job with this number among those that are stored one by one.
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

/// What goes first of those that are equally old: none, then numbers by value, then text byte by byte.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobId {
    #[default]
    None,
    Number(i128),
    Text(Box<str>),
}

/// What the room needs to know of a job.
#[derive(Clone, Debug)]
pub struct Card<'a> {
    pub key: JobKey,
    /// Empty where the step has no lanes.
    pub lane: &'a [u8],
    /// An index or a time, the same kind for all; smaller is older.
    pub age: i64,
    pub id: JobId,
    /// Looked at by `priority` alone, as is `since`.
    pub priority: i64,
    /// When the job began to wait, for aging.
    pub since: Timestamp,
    /// Hashes of the content keys that the job reads and writes, for `one-round-parallel`.
    pub reads: &'a [u64],
    pub writes: &'a [u64],
}

impl Card<'_> {
    /// A job without a lane or anything else that tells it from others of its age.
    #[must_use]
    pub fn new(key: JobKey, age: i64) -> Self {
        Self {
            key,
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

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Waiting,
    /// The outside forgot it, or it was in flight when the process died: it goes before anything else
    /// of its lane.
    Unknown,
    /// Its attempt failed; not again before this.
    Delayed {
        until: Timestamp,
    },
    Running,
    /// Handed to the outside, which will finish it.
    Pending,
}

/// Why a job does not run, and when it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    Running,
    Pending,
    Delayed {
        until: Timestamp,
    },
    /// Its lane waits for another job; under `serial`, the whole step does.
    Lane {
        job: JobKey,
        state: State,
    },
    /// An earlier unfinished job of its lane reads or writes what it writes, or writes what it reads.
    Conflict {
        job: JobKey,
        state: State,
    },
    /// It came after the round began.
    NextRound,
    /// The next round begins then.
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
    MaxPerLane,
    /// Nothing holds it; it starts when those before it have.
    Turn,
}

/// What one round would start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// When its first job would start.
    pub at: Timestamp,
    /// The first jobs, in order.
    pub jobs: Vec<JobKey>,
    /// How many more there are in this round.
    pub more: usize,
}

/// How many jobs there are of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Those that are unknown included.
    pub waiting: usize,
    pub running: usize,
    pub delayed: usize,
    pub pending: usize,
    /// Lanes with any job.
    pub lanes: usize,
}

/// What stands where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// The oldest waiting job, by the age that its card gave.
    pub oldest: Option<JobKey>,
    /// How many of the delayed jobs are due: they count as waiting here.
    pub due: usize,
    /// Those with the most jobs waiting, most first.
    pub lanes: Vec<LaneCounts>,
}

/// How many jobs of one lane there are of each kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneCounts {
    pub lane: Box<[u8]>,
    /// Those that are unknown included.
    pub waiting: usize,
    pub running: usize,
    pub delayed: usize,
    pub pending: usize,
    /// Its oldest waiting job, by the age that its card gave.
    pub oldest: Option<JobKey>,
    /// One of its jobs.
    pub some: JobKey,
}

/// Why what was told of a job had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("job `{}` waits already", .0.0)]
    Present(JobKey),
    #[error("job `{}` is not among those of this step", .0.0)]
    Absent(JobKey),
    #[error("job `{}` cannot {deed}: it is {}", key.0, state.word())]
    Transition { key: JobKey, state: State, deed: &'static str },
    #[error("more than {} jobs wait for this step: limit `max_search_ahead`", u32::MAX - 1)]
    Full,
}

impl State {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Unknown => "unknown",
            State::Delayed { .. } => "delayed",
            State::Running => "running",
            State::Pending => "pending",
        }
    }
}

/// A duration in the milliseconds that timestamps count.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
