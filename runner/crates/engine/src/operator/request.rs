//! Requests: define the changes that operators and external systems can make to a run, and their outcomes.

use std::fmt;
use std::time::Duration;

use crossbeam_channel::Sender;
use serde::{Deserialize, Serialize};

use tidegate_model::{Address, ExternalStatus, NextPoll, Timestamp};
use tidegate_store::{CompletionRecord, ParkedId};

/// Requested change.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Append these jobs, each JSON, to a queue, at `due` or at once; all or none.
    Push {
        queue: Address,
        jobs: Vec<String>,
        #[serde(default)]
        due: Option<Timestamp>,
    },
    /// Make late jobs of a queue due at once.
    MakeLateDue { queue: Address, rows: Vec<ParkedId> },
    /// Drop late jobs of a queue.
    DropLate { queue: Address, rows: Vec<ParkedId> },
    /// Run the jobs of these errors again in their steps.
    Retry { queue: Address, errors: Vec<u64> },
    /// Run the job of one error again with another payload, which is JSON.
    Replace { queue: Address, error: u64, payload: String },
    /// Remove these errors from an error queue.
    Drop { queue: Address, errors: Vec<u64> },
    /// Discard everything of a queue or step, or of all of a pipeline, that is no longer in the configuration.
    DropRemoved { part: String },
    /// Discard the jobs of a queue up to this index that every reader has accounted for, against its retention.
    ClearQueue { queue: Address, up_to: u64 },
    /// Run a step again from these indices of its inputs. An input without an index keeps its position, and one
    /// whose position is not past the index, too.
    Replay { step: Address, from: Vec<(Address, u64)> },
    /// Let a step skip the jobs of its inputs up to these indices, if it has not begun them.
    Skip { step: Address, up_to: Vec<(Address, u64)> },
    /// Make delayed jobs of a step due at once.
    MakeDue { step: Address, rows: Vec<ParkedId> },
    /// Make delayed jobs of a step due earlier, because the clock was set back.
    #[serde(skip)]
    Shift { step: Address, rows: Vec<ParkedId>, by: Duration },
    /// Cancel waiting jobs of a step, to its error queue or permanently: parked jobs by row, and jobs by
    /// index of its one input. Jobs in an external system are included if `pending` is set.
    Cancel { step: Address, rows: Vec<ParkedId>, jobs: Vec<u64>, drop: bool, pending: bool },
    /// Pause or resume a step; the state survives restarts.
    Pause { step: Address, paused: bool },
    /// Pause or resume the monitor of a step. Its jobs stay pending.
    PauseMonitor { step: Address, paused: bool },
    /// Pause or resume a lane of a step. To resume it also ends the halt at an invalid job.
    PauseLane { step: Address, lane: String, paused: bool },
    /// Poll the pending jobs of a step as soon as possible.
    Poll { step: Address },
    /// Complete the pending job that the step made of the one at `index`. The external system has shown its
    /// token. `row` is the job's row, if the coordinator does not know it.
    Complete { step: Address, index: u64, token: String, completion: CompletionRecord, row: Option<ParkedId> },
    /// Record that the monitor has found a pending job to be valid.
    #[serde(skip)]
    Validate { step: Address, row: ParkedId },
}

impl Request {
    /// Step of the request, if it is about one.
    pub(crate) fn step(&self) -> Option<&Address> {
        match self {
            Self::Replay { step, .. }
            | Self::Skip { step, .. }
            | Self::MakeDue { step, .. }
            | Self::Shift { step, .. }
            | Self::Cancel { step, .. }
            | Self::Pause { step, .. }
            | Self::PauseLane { step, .. }
            | Self::PauseMonitor { step, .. }
            | Self::Poll { step }
            | Self::Complete { step, .. }
            | Self::Validate { step, .. } => Some(step),
            Self::Push { .. }
            | Self::MakeLateDue { .. }
            | Self::DropLate { .. }
            | Self::Retry { .. }
            | Self::Replace { .. }
            | Self::Drop { .. }
            | Self::DropRemoved { .. }
            | Self::ClearQueue { .. } => None,
        }
    }

    /// Whether the coordinator locks waiting jobs for it until it is committed.
    pub(crate) fn moves_jobs(&self) -> bool {
        matches!(self, Self::MakeDue { .. } | Self::Shift { .. } | Self::Cancel { .. })
    }
}

/// Removed queue or step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedPart {
    pub address: Address,
    pub is_step: bool,
    /// Jobs on the queue with those that are due later, or parked jobs of the step.
    pub jobs: u64,
}

/// Outcome of a request. It is durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestOutcome {
    /// This number of jobs was appended.
    Pushed {
        jobs: u64,
    },
    /// This number of jobs was put back.
    Retried {
        jobs: u64,
    },
    Dropped {
        jobs: u64,
    },
    DroppedParts(Vec<RemovedPart>),
    /// The step resumes at these indices of its inputs.
    Replayed {
        from: Vec<(Address, u64)>,
    },
    Hastened(MoveSummary),
    Cancelled(MoveSummary),
    Paused {
        /// Whether the state was another one before.
        changed: bool,
        /// Whether the step had stopped, and starts again.
        #[serde(default)]
        restarted: bool,
        /// Whether it starts again although the files differ from the configuration in force.
        #[serde(default)]
        behind: bool,
    },
    Polls {
        /// Number of pending jobs.
        pending: u64,
        soon: NextPoll,
    },
    Completed(CompletionOutcome),
}

/// Outcome of an external completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompletionOutcome {
    /// It is accepted.
    Taken,
    /// The same completion was accepted before.
    Duplicate,
    /// Another completion was accepted before.
    Conflict { status: ExternalStatus },
    /// The job has this status, which cannot become the reported one.
    Refused { from: ExternalStatus },
    /// The job is not pending.
    NotPending,
}

/// Summary of a request to move jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveSummary {
    pub jobs: u64,
    /// Number of jobs that are running, pending or being delivered, and were left unchanged.
    pub busy: u64,
    /// Number of jobs that do not wait, or not for a time.
    pub gone: u64,
}

/// Callback for the outcome, with the reason for a refusal as a sentence. It is dropped if the run ends
/// before.
pub struct Reply(Box<dyn Fn(Result<RequestOutcome, String>) + Send>);

/// Request with its reply.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    pub(crate) request: Request,
    reply: Reply,
    /// Summary of the jobs that the coordinator has left out.
    pub(crate) moved: MoveSummary,
    /// Whether it starts a step again that has stopped.
    pub(crate) restarts: bool,
}

impl MoveSummary {
    pub(crate) fn add(&mut self, other: Self) {
        self.jobs += other.jobs;
        self.busy += other.busy;
        self.gone += other.gone;
    }
}

impl RequestOutcome {
    /// Adds the facts of the coordinator.
    pub(crate) fn and(mut self, asked: &PendingRequest) -> Self {
        match &mut self {
            Self::Hastened(moved) | Self::Cancelled(moved) => moved.add(asked.moved),
            Self::Paused { restarted, .. } => *restarted = asked.restarts,
            _ => {}
        }
        self
    }
}

impl Reply {
    /// Creates a reply. A thread of the run calls `answer` once, and waits until it returns.
    pub fn new(answer: impl Fn(Result<RequestOutcome, String>) + Send + 'static) -> Self {
        Self(Box::new(answer))
    }
}

impl From<Sender<Result<RequestOutcome, String>>> for Reply {
    fn from(sender: Sender<Result<RequestOutcome, String>>) -> Self {
        // The caller may have gone away.
        Self::new(move |answer| _ = sender.send(answer))
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply(…)")
    }
}

impl PendingRequest {
    pub(crate) fn new(request: Request, reply: impl Into<Reply>) -> Self {
        Self { request, reply: reply.into(), moved: MoveSummary::default(), restarts: false }
    }

    /// Bytes that it adds to a group of commits.
    pub(crate) fn byte_len(&self) -> usize {
        let Request::Complete { completion, .. } = &self.request else { return 0 };
        completion.result.iter().chain(&completion.reason).map(String::len).sum()
    }

    pub(crate) fn answer(&self, answer: Result<RequestOutcome, String>) {
        (self.reply.0)(answer);
    }
}
