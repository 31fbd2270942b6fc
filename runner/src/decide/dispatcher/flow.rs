//! The dispatcher's vocabulary: how steps hang together, what happens, what shall be done.

/// One step, as the dispatcher sees it.
#[derive(Clone, Debug)]
pub struct Flow {
    pub gather: Gather,
    /// In the order of the step's bindings.
    pub inputs: Vec<FlowInput>,
    /// Jobs wait that shall be run again.
    pub returned: bool,
    pub before: Before,
    /// Batches that were begun and not delivered when the last run ended, in the order in which they
    /// were begun: they are formed again just as they were, before all others.
    pub redo: Vec<Redo>,
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
#[derive(Clone, Copy, Debug)]
pub struct FlowInput {
    pub feed: Feed,
    /// The index of the first job that it has not accounted for.
    pub next: u64,
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
pub struct Room {
    /// Batches given to workers at one time, over all steps.
    pub slots: usize,
    /// Batches of one step that are read and not yet committed.
    pub batches: usize,
    /// Bytes of those, inputs and outputs, past which the step reads no more.
    pub bytes: usize,
}

/// The number of a batch, given by the dispatcher, unique in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

/// The number of what one read brought, given by the engine, unique in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// One input of one step. The position after the last input stands for the jobs that come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port {
    pub step: usize,
    pub input: usize,
}

/// Something that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// There are jobs that the step shall run again.
    Returned { step: usize },
    /// What had to be durable before the batch may run is.
    Begun { step: usize, batch: BatchId },
    /// A worker is through with a batch: with all of it, or with the first `taken` jobs where the
    /// next one halts the step. The outputs come to `bytes`.
    Ran { step: usize, batch: BatchId, taken: usize, halts: bool, bytes: usize },
    /// A batch is durably delivered.
    Committed { step: usize, batch: BatchId },
    /// A batch of the step cannot be delivered; the step has to stop.
    Failed { step: usize },
    /// Somebody wants the step to run earlier jobs once more.
    Rewind { step: usize },
    /// Somebody wants the run to end.
    Stop,
}

/// Something to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read jobs from the index `from` on (for jobs that come again: those that are not here yet).
    /// Answered by `Read`, `Ended`, `Broken`, or by `Idle` and one of them later.
    Read { port: Port, from: u64 },
    /// The batch has these jobs of a read, after those that it already has of the same input.
    Part { batch: BatchId, port: Port, read: ReadId, skip: usize, jobs: usize },
    /// Nothing more is needed of the read.
    Forget { read: ReadId },
    /// Make durable what has to be before the batch runs. Answered by `Begun`.
    Begin { step: usize, batch: BatchId, before: Before },
    /// Give the batch to a worker.
    Run { step: usize, batch: BatchId },
    /// Deliver the first `taken` jobs of the batch. Commands of one step come in order.
    Commit { step: usize, batch: BatchId, taken: usize },
    /// Give the batch up; its jobs are read again in the next run.
    Drop { batch: BatchId },
    /// Nothing of the step is on its way: put its progress back, and say so to
    /// [`super::Dispatcher::rewound`].
    Rewind { step: usize },
    /// Nothing is left to do.
    Finish(End),
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
