//! Dispatcher protocol: defines the plan of each step, the events and the commands.

use std::time::Duration;

use crate::{JobKey, QueuePolicy};
use tidegate_model::{Progress, Timestamp};

/// Plan of one step, as far as the dispatcher needs it.
#[derive(Clone, Debug)]
pub struct StepPlan {
    pub gather: BatchComposition,
    /// In the order of the step's bindings.
    pub inputs: Vec<InputPlan>,
    /// Due time of the first job that is redelivered out of order.
    pub due: Option<Timestamp>,
    pub before: DurabilityBarrier,
    /// Rules by which a queued step picks its jobs; `None` for a step that takes them in order.
    pub picking: Option<QueuePlan>,
    /// Batches that were begun and not delivered when the last run ended, in the order of their beginning.
    /// They are formed again with the same jobs, before all other batches.
    pub redo: Vec<RecoveredBatch>,
    /// Queues that its outputs go to.
    pub fills: Vec<usize>,
}

/// Rules and limits by which a step with one input picks its jobs.
#[expect(clippy::struct_excessive_bools, reason = "they are independent of each other")]
#[derive(Clone, Debug)]
pub struct QueuePlan {
    pub rules: QueuePolicy,
    /// Whether outputs are delivered in order; outputs that are due later, in the order of their times.
    pub in_order: bool,
    /// Whether jobs that wait for each other may follow each other in a batch, which ends at a job that is not finished.
    pub in_a_row: bool,
    /// Whether jobs run side by side, and the result of each one is delivered after those of the jobs before it.
    pub ordered: bool,
    /// Maximum distance past the watermark at which jobs are considered; 0 = no limit.
    pub search_ahead: u64,
    /// Maximum number of jobs in a batch.
    pub batch: usize,
    /// Maximum number of jobs that are begun durably before they have a place to run; 0: each job is begun when it
    /// has one.
    pub ahead: usize,
    /// Maximum number of claimed jobs that share a place if they are quick, one after the other.
    pub lot: usize,
    /// Whether its batches run in a pool of threads and take no worker from other steps.
    pub uses_pool: bool,
    /// Maximum age of the gate's last "open"; an older answer is asked for again before anything starts.
    pub gate: Option<Duration>,
    /// Jobs of the input that are accounted for.
    pub progress: Progress,
}

/// Composition of a step's batches from its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchComposition {
    /// Each batch has jobs of one input, whichever has some.
    Merge,
    /// Each batch has the same number of jobs of every input.
    Zip,
}

/// One input of a step: its origin and the step's position in it.
#[derive(Clone, Debug)]
pub struct InputPlan {
    pub feed: InputKind,
    /// Index of the first job that is not accounted for.
    pub next: u64,
    /// Jobs behind `next` that are accounted for: ranges, inclusive, ascending.
    pub finished: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// A source, with a reader for this input alone.
    Source,
    /// The queue at this position.
    Queue(usize),
    /// The queue at this position, to which clients may also push jobs while the run goes on.
    Pushed(usize),
}

/// Record that must be durable before a batch may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurabilityBarrier {
    Nothing,
    /// The snapshot of the batch: its attempt can be seen by external systems.
    Snapshot,
    /// The progress past the batch: its jobs are never attempted again.
    Progress,
}

/// A batch of the last run to be formed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredBatch {
    /// Number of the batch, the same as before.
    pub number: u64,
    /// Positions of its inputs, each with the index of the first job.
    pub inputs: Vec<(usize, u64)>,
    /// Number of jobs of each input.
    pub jobs: usize,
}

/// Limits that keep memory independent of the backlog.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Maximum number of batches on workers at one time, over all steps.
    pub slots: usize,
    /// Maximum number of batches of one ordered step that run beside the workers.
    pub beside: usize,
    /// Maximum number of batches of one step that are read and not yet run or committed.
    pub batches: usize,
    /// Maximum number of jobs of one step that are read and not yet committed.
    pub jobs: usize,
    /// Bytes of the inputs and outputs of those jobs above which the step reads no more.
    pub bytes: usize,
}

/// Number of a batch, given by the dispatcher. It is unique in a step; a batch of an earlier run keeps its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

/// Number of a read, given by the engine, unique in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// Position of a job in the order of a step without a queuer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Turn {
    /// Index in the first input that has a job in the tuple.
    pub index: u64,
    pub input: usize,
}

/// A port of one step, at which jobs arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InputPort {
    pub step: usize,
    pub input: PortInput,
}

/// Origin of the jobs of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortInput {
    /// The input of the step at this position.
    Input(usize),
    /// Parked jobs that are redelivered out of order.
    Redelivery,
    /// A parked job that is read again in its turn.
    Turn,
}

impl PortInput {
    /// Position of the input; `None` for parked jobs.
    #[must_use]
    pub fn position(self) -> Option<usize> {
        match self {
            Self::Input(input) => Some(input),
            Self::Redelivery | Self::Turn => None,
        }
    }
}

impl InputPort {
    /// The input of a step at this position.
    #[must_use]
    pub fn of_input(step: usize, input: usize) -> Self {
        Self { step, input: PortInput::Input(input) }
    }
}

/// Fact that the engine reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// At least one job was read.
    Read { port: InputPort, read: ReadId, first: u64, jobs: usize, bytes: usize },
    /// A reader has no jobs now; it reports later ones without another request.
    Idle { port: InputPort },
    /// The step has no room for more jobs of an input, or has room again.
    Full { port: InputPort, full: bool },
    /// A reader has no more jobs in this run.
    Ended { port: InputPort },
    /// A reader failed. The jobs that it has read are still processed.
    Broken { port: InputPort },
    /// The last index of a queue is now `head`.
    Grew { queue: usize, head: u64 },
    /// The step has jobs to redeliver out of order, the first of them at this time.
    Returned { step: usize, due: Timestamp },
    /// A job waits in the store for its next attempt; no job behind it is delivered before it.
    Parked { step: usize, turn: Turn, due: Timestamp },
    /// A parked job was removed.
    Gone { step: usize, turn: Turn },
    /// No more jobs to redeliver are due than were read; the next one is due at this time.
    NoneDue { step: usize, next: Option<Timestamp> },
    /// Time has passed.
    Tick,
    /// The jobs of the batch are in memory and have `bytes` bytes.
    Picked { step: usize, batch: BatchId, bytes: usize },
    /// The gate of the step was checked.
    Gate { step: usize, open: bool },
    /// An operator paused or resumed the step.
    Pause { step: usize, paused: bool },
    /// The record that the batch needs before it runs is durable.
    Begun { step: usize, batch: BatchId },
    /// A running batch has left its worker, and runs on a thread of its own.
    WentAside { step: usize, batch: BatchId },
    /// A worker has run the first `taken` jobs of a batch.
    Ran { step: usize, batch: BatchId, ran: BatchEnd },
    /// A batch is durably delivered.
    Committed { step: usize, batch: BatchId },
    /// The setup of the step failed: nothing starts before this time.
    Hold { step: usize, until: Timestamp },
    /// A batch did not run and left no trace: it runs again.
    PutBack { step: usize, batch: BatchId },
    /// A batch of the step cannot be delivered; the step must stop.
    Failed { step: usize },
    /// The step changes, or is to run earlier jobs again: it takes no more jobs, and what it has begun is
    /// delivered. Answered by [`Command::Drained`].
    Drain { step: usize },
    /// The jobs of [`Command::GiveBack`] are durably given back.
    GivenBack { step: usize },
    /// The run must end.
    Stop,
}

/// Result of a batch, as a worker reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchEnd {
    /// Number of its jobs that are accounted for.
    pub taken: usize,
    pub ending: BatchCut,
    /// Bytes of the outputs.
    pub bytes: usize,
    /// Time that the worker took.
    pub took: Duration,
    /// Outcome of each job that was taken, for a queued step.
    pub ends: Vec<JobOutcome>,
}

#[cfg(test)]
impl BatchEnd {
    /// Result of an ordered batch with all its jobs taken.
    pub(crate) fn whole(taken: usize) -> Self {
        Self { taken, ending: BatchCut::Whole, bytes: 10, took: Duration::ZERO, ends: Vec::new() }
    }

    /// Result of a batch of a queued step.
    pub(crate) fn picked(ends: &[JobOutcome]) -> Self {
        Self { ends: ends.to_vec(), ..Self::whole(ends.len()) }
    }
}

/// Time in which a step starts nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Time at which the worker found that the step must wait. A clock that is set back before it ends the wait.
    pub since: Timestamp,
    pub until: Timestamp,
}

impl Wait {
    /// Whether the step still waits.
    pub(crate) fn lasts(self, now: Timestamp) -> bool {
        self.since <= now && now < self.until
    }

    /// The wait that ends later, of this one and of one that was reported before. A wait that lasts goes before one that does
    /// not: the clock may have been set back since either of them began.
    pub(crate) fn beside(self, before: Option<Self>, now: Timestamp) -> Self {
        let rank = |wait: &Self| (wait.lasts(now), wait.until);
        before.filter(|before| rank(before) > rank(&self)).unwrap_or(self)
    }
}

/// Reason for which a worker ended a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchCut {
    /// All its jobs were taken.
    Whole,
    /// The batch took long or has many outputs: the rest was not attempted and runs as another batch.
    Cut,
    /// The next job failed and is retried in its turn, not before this time.
    Waits(Timestamp),
    /// The next job was not attempted, and the step starts nothing in this time.
    Holds(Wait),
    /// The next job halts the step.
    Halts,
}

/// Action that the engine must carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read jobs from the index `from` on. Answered by `Read`, `Ended` or `Broken`, by `Idle` and one of
    /// them later, or by `Full`. On the port of redelivered jobs: read the due jobs that are not in memory. Answered by
    /// `Read`, `NoneDue` or `Broken`.
    Read { port: InputPort, from: u64 },
    /// Add these jobs of a read to the batch, after its other jobs of the same input.
    AddToBatch { batch: BatchId, port: InputPort, read: ReadId, skip: usize, jobs: usize },
    /// Keep the first `jobs` jobs in the batch and move the others to the batch `rest`. If the batch was
    /// begun, the rest is begun too.
    Split { step: usize, batch: BatchId, jobs: usize, rest: BatchId, begun: bool },
    /// Read a parked job again. Answered by `Read`, or by `Parked` or `Gone` if it was moved.
    Return { step: usize, turn: Turn },
    /// Load the jobs of the batch into memory. Answered by `Picked`.
    FetchJobs { step: usize, batch: BatchId, jobs: Vec<JobKey> },
    /// The step has accounted for all jobs of its input up to this one.
    PositionAdvanced { step: usize, position: u64 },
    /// Divide a claimed batch, which was begun, into batches of at most `lot` jobs. Their numbers follow each other from
    /// `first` on. `quick`: the step ends several jobs a millisecond.
    Deal { step: usize, batch: BatchId, first: BatchId, lot: usize, quick: bool },
    /// Give back the jobs of a claimed batch, which is not run: they wait again. Answered by `Committed`.
    Unclaim { step: usize, batch: BatchId },
    /// Check whether the gate of the step is open. Answered by `Gate`.
    CheckGate { step: usize },
    /// Release the read; no batch needs more of it.
    ReleaseRead { step: usize, read: ReadId },
    /// Write the record that the batch needs before it runs. Answered by `Begun`.
    Begin { step: usize, batch: BatchId, before: DurabilityBarrier },
    /// Give the batch to a worker. `aside`: to a thread beside the workers, because it may take long. `is_slow`: jobs of
    /// the step were slow, or are slow now.
    Run { step: usize, batch: BatchId, aside: bool, is_slow: bool },
    /// Deliver the first `taken` jobs of the batch. Commands of one step are in order, except for jobs
    /// redelivered out of order.
    Commit { step: usize, batch: BatchId, taken: usize },
    /// Store the result of the batch, which is delivered after jobs that come before it. Answered by `Committed`.
    Keep { step: usize, batch: BatchId },
    /// Drop the batch; its jobs are read again in the next run.
    Drop { step: usize, batch: BatchId },
    /// The step has nothing in flight and is removed: see [`Event::Drain`].
    Drained { step: usize },
    /// Put progress back before these batches: they were begun and accounted for, and are not attempted before
    /// the step starts again. Answered by [`Event::GivenBack`].
    GiveBack { step: usize, batches: Vec<BatchId> },
    /// End the run: all work is done.
    Finish(RunOutcome),
}

/// Outcome of one job of a queued step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobOutcome {
    /// It is accounted for.
    Finished,
    /// It is retried, not before this time.
    Delayed(Timestamp),
    /// It is pending in an external system.
    Pending,
    /// The external system does not know it: it goes before all other jobs of its lane.
    Forgotten,
    /// It was not attempted: the job keeps its place, and the step starts nothing in this time.
    Held(Wait),
    /// It is finished, and its result is in the store until the jobs before it are delivered.
    Kept,
    /// It was claimed and is given back without an attempt: the job keeps its place.
    Unclaimed,
}

/// Outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// Everything is delivered.
    Drained,
    /// Everything is delivered except the jobs behind a halted step.
    Halted,
    /// The run was stopped.
    Stopped,
}
