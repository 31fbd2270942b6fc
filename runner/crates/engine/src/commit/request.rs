//! Commit request: carries the changes of one batch, or of one step, to the committer.

use tidegate_plugin::Payloads;

use std::sync::Arc;

use super::printed::PrintedCommit;
use crate::batch::keyed_job::KeyedJob;
use crate::batch::outcomes::DeliveryOutcomes;
use crate::coordinator::schedules::FiredTicks;
use crate::generation::current::NumberedGeneration;
use crate::operator::request::PendingRequest;
use crate::recovery::rewind::JobRange;
use crate::report::ReplacedGenerations;
use crate::step::declared::DeclaredStep;
use tidegate_config::QueueRef;
use tidegate_dispatch::{BatchId, DurabilityBarrier};
use tidegate_model::{Counters, Origins, RenamedPart, Segment, SourceOffset};
use tidegate_store::{Block, Details, NewHistoryEntry, NewParkedJob, ParkedId, ParkedKey, StepStop};

/// Request to the committer.
#[derive(Debug)]
pub(crate) enum CommitRequest {
    Enter(StepChange),
    Amend(PendingRequest),
    /// The inbox has pushed jobs.
    InboxReady,
    Ticked(FiredTicks),
    /// A command has printed lines.
    Printed(PrintedCommit),
    /// Late jobs of the queue are due.
    LateDue(QueueRef),
    /// Jobs may be older than their queues' limit.
    ApplyRetention,
    /// A step has stopped; the record is for later readers of the store.
    Stopped(StepStop),
    Reload(ReloadChange),
}

/// Part of a reload. Its commit comes after all that was requested before.
#[derive(Clone, Debug)]
pub(crate) enum ReloadChange {
    /// The generation becomes the current one.
    Swap {
        generation: Arc<NumberedGeneration>,
        /// Its entry in the history.
        entry: Option<NewHistoryEntry>,
        /// Generations before it that are rolled back.
        rolls_back: Option<ReplacedGenerations>,
        /// Parts that have other names in this generation.
        renamed: Vec<RenamedPart>,
    },
    /// Nothing of the step is in flight: it starts from the store, at these positions if they are given.
    Install { step: DeclaredStep, to: Option<Vec<RewindTo>> },
    /// Nothing of the step is in flight, and it is no longer in the configuration.
    Remove { step: usize },
    /// A configuration was refused, or means the same as before: the history records it.
    Recorded(Box<NewHistoryEntry>),
}

/// Durable change of a step. The changes of one step come in order.
#[derive(Debug)]
pub(crate) enum StepChange {
    Begin(BeginBatch),
    Delivery(Box<Delivery>),
    Rewind(Rewind),
}

/// Batch that may run once this is durable.
#[derive(Debug)]
pub(crate) struct BeginBatch {
    pub(crate) step: DeclaredStep,
    pub(crate) id: BatchId,
    pub(crate) before: DurabilityBarrier,
    pub(crate) jobs: BatchJobs,
    /// Rows of its jobs while they are attempted; empty if a snapshot names the jobs.
    pub(crate) rows: Vec<NewParkedJob>,
    /// Events of the beginning, if the step has a queue for them.
    pub(crate) events: Payloads,
    /// Source positions of its jobs: a begun batch must be found again even if it is never delivered.
    pub(crate) places: SourcePositions,
}

/// Rewind of a step's progress.
#[derive(Debug)]
pub(crate) struct Rewind {
    pub(crate) step: DeclaredStep,
    /// By input.
    pub(crate) to: Vec<RewindTo>,
    /// Jobs that wait in the store and are not read again, by input; empty if there are none.
    pub(crate) waiting: Vec<Vec<JobRange>>,
}

/// Position of an input after a rewind or a skip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RewindTo {
    /// Index of the first job to run again. An index past the current position has no effect.
    Index(u64),
    /// Index of the last job to skip. An index before the current position has no effect.
    Behind(u64),
    /// The input keeps its position.
    Stay,
}

/// Result of a batch.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) step: DeclaredStep,
    pub(crate) id: BatchId,
    /// Jobs that it accounts for.
    pub(crate) jobs: BatchJobs,
    /// Outputs in the order of the step's bindings.
    pub(crate) outputs: Vec<OutputBlock>,
    pub(crate) errors: Option<OutputBlock>,
    /// Jobs that the step runs again, and outputs that are due later.
    pub(crate) delayed: Vec<NewParkedJob>,
    /// Provisional numbers of unmatched jobs, in the order of `delayed`.
    pub(crate) provisional: Vec<ParkedId>,
    /// Jobs of a join by key, which the committer pairs.
    pub(crate) keyed: Vec<KeyedJob>,
    /// Outcome of each job, if the step keeps delivery records.
    pub(crate) outcomes: DeliveryOutcomes,
    /// Lanes that halt at an invalid job, with the reason.
    pub(crate) halted_lanes: Vec<(String, String)>,
    /// Events of its jobs, if the step has a queue for them.
    pub(crate) events: Payloads,
    /// Suspects that are cleared by the commit.
    pub(crate) settles: Vec<tidegate_store::AttemptSpan>,
    pub(crate) counters: Counters,
    /// Bytes of the jobs, as they were read.
    pub(crate) bytes: usize,
    /// Source positions, unless its beginning had them.
    pub(crate) places: SourcePositions,
    /// Jobs that were begun with it and come after it: their snapshot gets this number.
    pub(crate) rest: Option<(BatchId, BatchJobs)>,
}

/// Source positions of the jobs of a batch, by input, as far as the reader knows them.
pub(crate) type SourcePositions = Vec<(usize, Option<SourceOffset>, Vec<Segment>)>;

/// Identity of the jobs of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BatchJobs {
    /// Ranges of indices, by input, in order.
    pub(crate) spans: Vec<InputSpan>,
    /// Keys of the redelivered jobs.
    pub(crate) returned: Vec<ParkedKey>,
}

/// Contiguous jobs of one input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InputSpan {
    pub(crate) input: usize,
    pub(crate) first: u64,
    pub(crate) jobs: u64,
}

/// Payloads for one target, encoded for the log if that is a queue.
#[derive(Debug, Default)]
pub(crate) struct OutputBlock {
    pub(crate) payloads: Payloads,
    /// Provenance of each payload, as JSON; `None` if no job has any.
    pub(crate) carried: Option<Payloads>,
    pub(crate) block: Option<Block>,
}

impl BatchJobs {
    /// Joins two ranges of jobs, input by input.
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

impl OutputBlock {
    pub(crate) fn for_queue(payloads: Payloads, origins: &Origins, carried: Option<Payloads>) -> Self {
        let details = Details { origins: Some(origins), carried: carried.as_ref() };
        let block = Some(Block::encode(&payloads, details));
        Self { payloads, carried, block }
    }

    pub(crate) fn for_sink(payloads: Payloads) -> Self {
        Self { payloads, carried: None, block: None }
    }
}

impl StepChange {
    pub(crate) fn step(&self) -> &DeclaredStep {
        match self {
            Self::Begin(begin) => &begin.step,
            Self::Delivery(delivery) => &delivery.step,
            Self::Rewind(rewind) => &rewind.step,
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
            let outputs = delivery.outputs.iter().chain(&delivery.errors);
            let keyed = delivery.keyed.iter().map(KeyedJob::byte_len);
            let outputs = outputs.map(|made| made.payloads.byte_len());
            outputs.chain(keyed).sum::<usize>() + delivery.events.byte_len()
        })
    }
}
