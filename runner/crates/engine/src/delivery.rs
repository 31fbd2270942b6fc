//! What one batch of one step wants to change: the unit of committing.

use tidegate_plugin::Payloads;

use super::request::Asked;
use super::ticks::Ticked;
use tidegate_dispatch::{BatchId, Before};
use tidegate_model::{Counters, DeliveryHash, Mark, Origins, Segment};
use tidegate_store::{Block, Delayed, DelayedKey, Details, Outcome, Stop};

/// What the committer is given to do.
#[derive(Debug)]
pub(crate) enum Order {
    Enter(Entry),
    Amend(Asked),
    /// Jobs were pushed, and wait in the inbox.
    Arrived,
    Ticked(Ticked),
    /// Jobs may have become older than their queues keep them.
    LetGo,
    /// A step has stopped, to be told by those who look into the store later.
    Stopped(Stop),
}

/// Something of a step to make durable. Those of one step come in order.
#[derive(Debug)]
pub(crate) enum Entry {
    Begin(Begin),
    Delivery(Box<Delivery>),
    Rewind(Rewind),
}

/// A batch that may run when this is durable.
#[derive(Debug)]
pub(crate) struct Begin {
    pub(crate) step: usize,
    pub(crate) id: BatchId,
    pub(crate) before: Before,
    pub(crate) jobs: Jobs,
    /// Its jobs, as they stand in the store one by one while they are attempted; none where a snapshot
    /// says which they are.
    pub(crate) rows: Vec<Delayed>,
    /// What is begun must be found again in the outside, though it may never be delivered.
    pub(crate) places: Places,
}

/// Progress of a step that is put back.
#[derive(Debug)]
pub(crate) struct Rewind {
    pub(crate) step: usize,
    /// By input: the index of the first job to run again; where that is further than the step is, it
    /// stays where it is.
    pub(crate) next: Vec<u64>,
}

/// A batch that a worker is through with.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) step: usize,
    pub(crate) id: BatchId,
    /// Those that are accounted for by it.
    pub(crate) jobs: Jobs,
    /// In the order of the step's bindings.
    pub(crate) outputs: Vec<Made>,
    pub(crate) errors: Option<Made>,
    /// Jobs that the step shall run again, and outputs that are due later.
    pub(crate) delayed: Vec<Delayed>,
    /// Where the step keeps records: the outcome of each job.
    pub(crate) outcomes: Vec<(DeliveryHash, Outcome)>,
    /// Jobs that are no suspects any more when this is durable.
    pub(crate) settles: Vec<tidegate_store::Span>,
    pub(crate) counters: Counters,
    /// Bytes of the jobs, as they were read.
    pub(crate) bytes: usize,
    /// Where these were not told when it was begun.
    pub(crate) places: Places,
    /// What was begun with its jobs and comes after them: it stays on record under this number.
    pub(crate) rest: Option<(BatchId, Jobs)>,
}

/// By input: where the jobs of a batch stand in the outside, as far as the reader has told.
pub(crate) type Places = Vec<(usize, Option<Mark>, Vec<Segment>)>;

/// Which jobs a batch is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Jobs {
    /// By input, in order: runs of indices.
    pub(crate) spans: Vec<Span>,
    /// Those that came again.
    pub(crate) returned: Vec<DelayedKey>,
}

/// Contiguous jobs of one input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) input: usize,
    pub(crate) first: u64,
    pub(crate) jobs: u64,
}

/// Payloads for one target, encoded for the log where that is a queue.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) payloads: Payloads,
    /// The provenance of each, as JSON; `None` where no job has any.
    pub(crate) carried: Option<Payloads>,
    pub(crate) block: Option<Block>,
}

impl Jobs {
    /// With those behind them, input by input.
    pub(crate) fn followed_by(mut self, behind: Self) -> Self {
        self.spans.extend(behind.spans);
        self.spans.sort_by_key(|span| (span.input, span.first));
        self.spans.dedup_by(|next, last| {
            let follows = last.input == next.input && last.first + last.jobs == next.first;
            last.jobs += if follows { next.jobs } else { 0 };
            follows
        });
        self.returned.extend(behind.returned);
        self
    }
}

impl Made {
    pub(crate) fn for_queue(payloads: Payloads, origins: &Origins, carried: Option<Payloads>) -> Self {
        let details = Details { origins: Some(origins), carried: carried.as_ref() };
        let block = Some(Block::encode(&payloads, details));
        Self { payloads, carried, block }
    }

    pub(crate) fn for_sink(payloads: Payloads) -> Self {
        Self { payloads, carried: None, block: None }
    }
}

impl Entry {
    pub(crate) fn step(&self) -> usize {
        match self {
            Self::Begin(begin) => begin.step,
            Self::Delivery(delivery) => delivery.step,
            Self::Rewind(rewind) => rewind.step,
        }
    }

    pub(crate) fn as_delivery(&self) -> Option<&Delivery> {
        match self {
            Self::Delivery(delivery) => Some(delivery),
            Self::Begin(_) | Self::Rewind(_) => None,
        }
    }

    /// Bytes that it adds to a group.
    pub(crate) fn byte_len(&self) -> usize {
        self.as_delivery().map_or(0, |delivery| {
            delivery.outputs.iter().chain(&delivery.errors).map(|made| made.payloads.byte_len()).sum()
        })
    }
}
