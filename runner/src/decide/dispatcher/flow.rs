//! The dispatcher's vocabulary: how steps hang together, what happens, what shall be done.

/// One step, as the dispatcher sees it.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    pub input: FlowInput,
    /// The index of the first job that it has not accounted for.
    pub next: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowInput {
    /// A source, read by a reader of the step's own.
    Source,
    /// The queue at this position.
    Queue(usize),
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

/// A batch's number, given by the engine, unique in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

/// Something that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A reader has read a batch of at least one job.
    Read { step: usize, batch: BatchId, first: u64, jobs: usize, bytes: usize },
    /// A reader has nothing now, and will answer when there is more.
    Idle { step: usize },
    /// A reader will have nothing more in this run.
    Ended { step: usize },
    /// A reader cannot go on. What it has read is still worked off.
    Broken { step: usize },
    /// A queue holds jobs up to `head` now.
    Grew { queue: usize, head: u64 },
    /// A worker is through with a batch: with all of it, or with the first `taken` jobs where the
    /// next one halts the step. The outputs come to `bytes`.
    Ran { step: usize, batch: BatchId, taken: usize, halts: bool, bytes: usize },
    /// A batch is durably delivered.
    Committed { step: usize, batch: BatchId },
    /// A batch of the step cannot be delivered; the step has to stop.
    Failed { step: usize },
    /// Somebody wants the run to end.
    Stop,
}

/// Something to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read a batch that starts at the index `from`. Answered by `Read`, `Ended`, `Broken`, or by
    /// `Idle` and one of them later.
    Read { step: usize, from: u64 },
    /// Give the batch to a worker.
    Run { step: usize, batch: BatchId },
    /// Deliver the first `taken` jobs of the batch. Commands of one step come in order.
    Commit { step: usize, batch: BatchId, first: u64, taken: usize },
    /// Forget the batch.
    Drop { batch: BatchId },
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
