//! What one batch of one step wants to change: the unit of committing.

use tidegate_plugin::Payloads;

use super::request::Asked;
use super::ticks::Ticked;
use crate::decide::{BatchId, Before};
use crate::store::{self, Block, Delayed, DelayedKey, Details, Outcome, Stop};
use crate::words::{Counters, DeliveryHash, Mark, Origins, Segment};

/// What the committer is given to do.
#[derive(Debug)]
pub(super) enum Order {
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
pub(super) enum Entry {
    Begin(Begin),
    Delivery(Box<Delivery>),
    Rewind(Rewind),
}

/// A batch that may run when this is durable.
#[derive(Debug)]
pub(super) struct Begin {
    pub(super) step: usize,
    pub(super) id: BatchId,
    pub(super) before: Before,
    pub(super) jobs: Jobs,
    /// Its jobs, as they stand in the store one by one while they are attempted; none where a snapshot
    /// says which they are.
    pub(super) rows: Vec<Delayed>,
    /// What is begun must be found again in the outside, though it may never be delivered.
    pub(super) places: Places,
}

/// Progress of a step that is put back.
#[derive(Debug)]
pub(super) struct Rewind {
    pub(super) step: usize,
    /// By input: the index of the first job to run again; where that is further than the step is, it
    /// stays where it is.
    pub(super) next: Vec<u64>,
}

/// A batch that a worker is through with.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) step: usize,
    pub(super) id: BatchId,
    /// Those that are accounted for by it.
    pub(super) jobs: Jobs,
    /// In the order of the step's bindings.
    pub(super) outputs: Vec<Made>,
    pub(super) errors: Option<Made>,
    /// Jobs that the step shall run again, and outputs that are due later.
    pub(super) delayed: Vec<Delayed>,
    /// Where the step keeps records: the outcome of each job.
    pub(super) outcomes: Vec<(DeliveryHash, Outcome)>,
    /// Jobs that are no suspects any more when this is durable.
    pub(super) settles: Vec<store::Span>,
    pub(super) counters: Counters,
    /// Bytes of the jobs, as they were read.
    pub(super) bytes: usize,
    /// Where these were not told when it was begun.
    pub(super) places: Places,
    /// What was begun with its jobs and comes after them: it stays on record under this number.
    pub(super) rest: Option<(BatchId, Jobs)>,
}

/// By input: where the jobs of a batch stand in the outside, as far as the reader has told.
pub(super) type Places = Vec<(usize, Option<Mark>, Vec<Segment>)>;

/// Which jobs a batch is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Jobs {
    /// By input, in order: runs of indices.
    pub(super) spans: Vec<Span>,
    /// Those that came again.
    pub(super) returned: Vec<DelayedKey>,
}

/// Contiguous jobs of one input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) input: usize,
    pub(super) first: u64,
    pub(super) jobs: u64,
}

/// Payloads for one target, encoded for the log where that is a queue.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) payloads: Payloads,
    /// The provenance of each, as JSON; `None` where no job has any.
    pub(super) carried: Option<Payloads>,
    pub(super) block: Option<Block>,
}

impl Jobs {
    /// With those behind them, input by input.
    pub(super) fn followed_by(mut self, behind: Self) -> Self {
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
    pub(super) fn for_queue(payloads: Payloads, origins: &Origins, carried: Option<Payloads>) -> Self {
        let details = Details { origins: Some(origins), carried: carried.as_ref() };
        let block = Some(Block::encode(&payloads, details));
        Self { payloads, carried, block }
    }

    pub(super) fn for_sink(payloads: Payloads) -> Self {
        Self { payloads, carried: None, block: None }
    }
}

impl Entry {
    pub(super) fn step(&self) -> usize {
        match self {
            Self::Begin(begin) => begin.step,
            Self::Delivery(delivery) => delivery.step,
            Self::Rewind(rewind) => rewind.step,
        }
    }

    pub(super) fn as_delivery(&self) -> Option<&Delivery> {
        match self {
            Self::Delivery(delivery) => Some(delivery),
            Self::Begin(_) | Self::Rewind(_) => None,
        }
    }

    /// Bytes that it adds to a group.
    pub(super) fn byte_len(&self) -> usize {
        self.as_delivery().map_or(0, |delivery| {
            delivery.outputs.iter().chain(&delivery.errors).map(|made| made.payloads.byte_len()).sum()
        })
    }
}
