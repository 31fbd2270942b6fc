//! The dispatcher's vocabulary: how steps hang together, what happens, what shall be done.

use std::time::Duration;

use crate::{JobKey, Rules};
use tidegate_model::{Progress, Timestamp};

/// One step, as the dispatcher sees it.
#[derive(Clone, Debug)]
pub struct Flow {
    pub gather: Gather,
    /// In the order of the step's bindings.
    pub inputs: Vec<FlowInput>,
    /// When the first of the jobs is due that come again beside the others.
    pub due: Option<Timestamp>,
    pub before: Before,
    /// Jobs are picked one by one, by rules, in whatever order those say.
    pub picking: Option<Picking>,
    /// Batches that were begun and not delivered when the last run ended, in the order in which they
    /// were begun: they are formed again just as they were, before all others.
    pub redo: Vec<Redo>,
}

/// How a step with one input picks its jobs.
#[derive(Clone, Debug)]
pub struct Picking {
    pub rules: Rules,
    /// What it delivers stands in order: outputs that are due later in that of their times.
    pub in_order: bool,
    /// How far past the watermark jobs are looked at; 0 = no bound.
    pub search_ahead: u64,
    /// Most jobs of one batch.
    pub batch: usize,
    /// Its batches run beside those of other steps, and take no worker from them.
    pub aside: bool,
    /// Nothing starts unless a gate was found open within this time.
    pub gate: Option<Duration>,
    /// What is accounted for of the input.
    pub progress: Progress,
}

/// How the batches of a step are made from what its inputs give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gather {
    /// As they come, from whichever input.
    Any,
    /// As many of each input.
    Each,
}

/// Where one input of a step comes from, and how far the step is with it.
#[derive(Clone, Debug)]
pub struct FlowInput {
    pub feed: Feed,
    /// The index of the first job that it has not accounted for.
    pub next: u64,
    /// Those further on that it has, when it took its jobs out of order: ranges, inclusive, ascending.
    pub finished: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// A source, read by a reader of the input's own.
    Source,
    /// The queue at this position.
    Queue(usize),
    /// The same, where jobs may also come from outside, as long as the run goes on.
    Pushed(usize),
}

/// What has to be durable before a batch may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    Nothing,
    /// Which jobs it is made of: its attempt can be seen outside.
    Snapshot,
    /// That its jobs are accounted for: it is never attempted again.
    Progress,
}

/// A batch to be formed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redo {
    /// It gets this number again.
    pub number: u64,
    /// The positions of its inputs, each with the index of the first job.
    pub inputs: Vec<(usize, u64)>,
    /// So many of each.
    pub jobs: usize,
}

/// The bounds that keep memory from growing with the backlog.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Batches given to workers at one time, over all steps.
    pub slots: usize,
    /// Batches of one step that are read and not yet run or committed.
    pub batches: usize,
    /// Jobs of one step that are read and not yet committed.
    pub jobs: usize,
    /// Bytes of those, inputs and outputs, past which the step reads no more.
    pub bytes: usize,
}

/// The number of a batch, given by the dispatcher, unique in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

/// The number of what one read brought, given by the engine, unique in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// A job's place in the order of a step without a queuer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Turn {
    /// In the first input that gave something.
    pub index: u64,
    pub input: usize,
}

/// One input of one step. The position after the last input stands for the jobs that come again beside the
/// others, and the one after that for those that come again in their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port {
    pub step: usize,
    pub input: usize,
}

/// Something that has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// At least one job was read.
    Read { port: Port, read: ReadId, first: u64, jobs: usize, bytes: usize },
    /// A reader has nothing now, and will answer when there is more.
    Idle { port: Port },
    /// A reader will have nothing more in this run.
    Ended { port: Port },
    /// A reader cannot go on. What it has read is still worked off.
    Broken { port: Port },
    /// A queue holds jobs up to `head` now.
    Grew { queue: usize, head: u64 },
    /// There are jobs that the step shall run again beside the others, the first of them at this time.
    Returned { step: usize, due: Timestamp },
    /// A job waits in the store for its next attempt; nothing behind it is delivered before it.
    Parked { step: usize, turn: Turn, due: Timestamp },
    /// Such a job was taken out.
    Gone { step: usize, turn: Turn },
    /// None of the jobs that the step shall run again is due but those that were read; the next one
    /// will be at this time.
    NoneDue { step: usize, next: Option<Timestamp> },
    /// Time has passed.
    Tick,
    /// The jobs of the batch, which come to `bytes`, are in memory.
    Picked { step: usize, batch: BatchId, bytes: usize },
    /// The gate of the step was looked at.
    Gate { step: usize, open: bool },
    /// The step shall start nothing for now, or shall go on.
    Pause { step: usize, paused: bool },
    /// What had to be durable before the batch may run is.
    Begun { step: usize, batch: BatchId },
    /// A worker has run the first `taken` jobs of a batch.
    Ran { step: usize, batch: BatchId, ran: BatchEnd },
    /// A batch is durably delivered.
    Committed { step: usize, batch: BatchId },
    /// What the step runs could not be set up: it starts nothing before this.
    Hold { step: usize, until: Timestamp },
    /// Nothing of a batch has run that nothing was done for before: it runs again.
    PutBack { step: usize, batch: BatchId },
    /// A batch of the step cannot be delivered; the step has to stop.
    Failed { step: usize },
    /// Somebody wants the step to run earlier jobs once more.
    Rewind { step: usize },
    /// Somebody wants the run to end.
    Stop,
}

/// What a worker tells of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchEnd {
    /// How many of its jobs are accounted for.
    pub taken: usize,
    pub ending: EndedBy,
    /// What the outputs come to.
    pub bytes: usize,
    /// How long the worker took.
    pub took: Duration,
    /// Where jobs are picked: what became of each that was taken.
    pub ends: Vec<JobEnd>,
}

#[cfg(test)]
impl BatchEnd {
    /// All of so many jobs were taken.
    pub(crate) fn whole(taken: usize) -> Self {
        Self { taken, ending: EndedBy::Whole, bytes: 10, took: Duration::ZERO, ends: Vec::new() }
    }

    /// The same of jobs that were picked.
    pub(crate) fn picked(ends: &[JobEnd]) -> Self {
        Self { ends: ends.to_vec(), ..Self::whole(ends.len()) }
    }
}

/// Why a worker ended a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// All its jobs were taken.
    Whole,
    /// It took long, or its outputs are many: the rest was not attempted, and runs as another batch.
    Cut,
    /// The next job failed, and is tried again in its turn, not before this time.
    Waits(Timestamp),
    /// The same, but it was no attempt: the step starts nothing before this time.
    Holds(Timestamp),
    /// The next job halts the step.
    Halts,
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read jobs from the index `from` on. Answered by `Read`, `Ended`, `Broken`, or by `Idle` and one
    /// of them later. Of the jobs that come again: those that are due and not here yet; answered by
    /// `Read`, `NoneDue` or `Broken`.
    Read { port: Port, from: u64 },
    /// The batch has these jobs of a read, after those that it already has of the same input.
    Part { batch: BatchId, port: Port, read: ReadId, skip: usize, jobs: usize },
    /// The batch keeps its first `jobs` jobs; the others, with what is known of them, are the batch `rest`. A
    /// batch that was begun has the rest begun with it.
    Split { batch: BatchId, jobs: usize, rest: BatchId, begun: bool },
    /// Have a parked job read again. Answered by `Read`, or by `Parked` or `Gone` where it is moved.
    Return { step: usize, turn: Turn },
    /// The batch is made of these jobs: have them in memory. Answered by `Picked`.
    Pick { step: usize, batch: BatchId, jobs: Vec<JobKey> },
    /// The step is through with all jobs of its input up to this one.
    Passed { step: usize, watermark: u64 },
    /// See whether the gate of the step is open. Answered by `Gate`.
    LookAtGate { step: usize },
    /// Nothing more is needed of the read.
    Forget { read: ReadId },
    /// Make durable what has to be before the batch runs. Answered by `Begun`.
    Begin { step: usize, batch: BatchId, before: Before },
    /// Give the batch to a worker.
    Run { step: usize, batch: BatchId },
    /// Deliver the first `taken` jobs of the batch. Commands of one step come in order, but for jobs that came
    /// again beside the others.
    Commit { step: usize, batch: BatchId, taken: usize },
    /// Give the batch up; its jobs are read again in the next run.
    Drop { batch: BatchId },
    /// Nothing of the step is on its way: put its progress back, and say so to
    /// [`super::Dispatcher::rewound`].
    Rewind { step: usize },
    /// These batches were begun, are accounted for, and will not be attempted in this run: put progress back
    /// before them, and say so to [`super::Dispatcher::rewound`].
    GiveBack { step: usize, batches: Vec<BatchId> },
    /// Nothing is left to do.
    Finish(End),
}

/// What became of a job that was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEnd {
    /// It is accounted for.
    Finished,
    /// It is tried again, not before this.
    Delayed(Timestamp),
    /// An outside system finishes it.
    Pending,
    /// The outside system does not know it: it goes before anything else of its lane.
    Forgotten,
    /// It was no attempt: the job keeps its place, and the step starts nothing before this.
    Held(Timestamp),
}

/// How a run came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Everything is delivered.
    Drained,
    /// Everything is delivered but what waits behind a halted step.
    Halted,
    /// Somebody wanted it to end.
    Stopped,
}
