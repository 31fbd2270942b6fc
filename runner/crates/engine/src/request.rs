//! What somebody asks of a run from outside, beside looking.

use std::fmt;

use crossbeam_channel::Sender;
use serde::{Deserialize, Serialize};

use tidegate_model::{Address, Soon, Status, Timestamp};
use tidegate_store::{Completion, DelayedKey};

/// A change that somebody wants.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Append these jobs, JSON each, to a queue; all or none.
    Push { queue: Address, jobs: Vec<String> },
    /// Put the jobs of these errors back through the steps that they failed in.
    Retry { queue: Address, errors: Vec<u64> },
    /// Put the job of one error back with another payload, which is JSON.
    Replace { queue: Address, error: u64, payload: String },
    /// Take these errors off an error queue.
    Drop { queue: Address, errors: Vec<u64> },
    /// Run a step again from here on: by input, the index of the first job. An input that is not
    /// named stays where it is.
    Replay { step: Address, from: Vec<(Address, u64)> },
    /// Make jobs of a step due at once that wait for a time.
    Hasten { step: Address, rows: Vec<Row> },
    /// Make jobs of a step that wait for a time due so many milliseconds earlier: the clock was set back.
    #[serde(skip)]
    Shift { step: Address, rows: Vec<Row>, by: i64 },
    /// Take waiting jobs of a step out, onto its error queue or for good: those that stand in the store
    /// by themselves, and those at these indices of its one input. Those that an outside system has only
    /// where `pending` says so.
    Cancel { step: Address, rows: Vec<Row>, jobs: Vec<u64>, drop: bool, pending: bool },
    /// Have a step start nothing, however often the runner is started again, or go on.
    Pause { step: Address, paused: bool },
    /// Find out how the pending jobs of a step stand, as soon as may be.
    Poll { step: Address },
    /// An outside system says how the job stands that the step has made of the one at `index`. It has shown
    /// the token. Where nobody keeps the pending jobs of the step in memory, `row` is where it stands.
    Complete { step: Address, index: u64, token: String, completion: Completion, row: Option<Row> },
}

/// A job that stands in the store by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Row {
    pub due: Timestamp,
    pub sequence: u64,
}

/// What a request has come to. It is durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Granted {
    /// So many jobs stand at the end of the queue.
    Pushed {
        jobs: u64,
    },
    /// So many jobs were put back.
    Retried {
        jobs: u64,
    },
    Dropped {
        jobs: u64,
    },
    /// The step goes on at these indices of its inputs.
    Replayed {
        from: Vec<(Address, u64)>,
    },
    Hastened(Moved),
    Cancelled(Moved),
    Paused {
        /// It was not so before.
        changed: bool,
    },
    Polls {
        /// How many jobs are pending.
        pending: u64,
        soon: Soon,
    },
    Completed(Completed),
}

/// What became of what an outside system has said of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Completed {
    /// It is taken.
    Taken,
    /// The same was said before.
    Known,
    /// Something else was taken before.
    Otherwise { status: Status },
    /// The job stands so, and does not become what is said.
    Refused { from: Status },
    /// The outside does not have the job: not yet, or not any more.
    NotPending,
}

/// What became of jobs that somebody wanted to be moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    pub jobs: u64,
    /// Those that just run, that an outside system has, or of which is just delivered what it has said;
    /// they were left alone.
    pub busy: u64,
    /// Those that do not wait, or not for a time.
    pub gone: u64,
}

/// Where the answer goes: why not is a sentence. It is dropped where the run ends before.
pub struct Reply(Box<dyn Fn(Result<Granted, String>) + Send>);

/// A request, and where the answer goes.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) request: Request,
    reply: Reply,
    /// What was found out before it reached the store.
    pub(crate) moved: Moved,
}

impl Row {
    pub(crate) fn of(key: &DelayedKey) -> Self {
        Self { due: key.due, sequence: key.sequence }
    }

    /// What the store calls the job of `step` that stands there.
    #[must_use]
    pub fn key(self, step: &Address) -> DelayedKey {
        DelayedKey { step: step.clone(), due: self.due, sequence: self.sequence }
    }
}

impl Moved {
    pub(crate) fn add(&mut self, other: Self) {
        self.jobs += other.jobs;
        self.busy += other.busy;
        self.gone += other.gone;
    }
}

impl Granted {
    /// With what was found out before it reached the store.
    pub(crate) fn and(mut self, before: Moved) -> Self {
        if let Self::Hastened(moved) | Self::Cancelled(moved) = &mut self {
            moved.add(before);
        }
        self
    }
}

impl Reply {
    /// Calls `answer` with it, once, on a thread of the run, which waits until that returns.
    pub fn new(answer: impl Fn(Result<Granted, String>) + Send + 'static) -> Self {
        Self(Box::new(answer))
    }
}

impl From<Sender<Result<Granted, String>>> for Reply {
    fn from(sender: Sender<Result<Granted, String>>) -> Self {
        // Who asked may have gone away.
        Self::new(move |answer| _ = sender.send(answer))
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply(…)")
    }
}

impl Asked {
    pub(crate) fn new(request: Request, reply: impl Into<Reply>) -> Self {
        Self { request, reply: reply.into(), moved: Moved::default() }
    }

    /// Bytes that it adds to a group, where those may be many.
    pub(crate) fn byte_len(&self) -> usize {
        let Request::Complete { completion, .. } = &self.request else { return 0 };
        completion.result.iter().chain(&completion.reason).map(String::len).sum()
    }

    pub(crate) fn answer(&self, answer: Result<Granted, String>) {
        (self.reply.0)(answer);
    }
}
