//! Step state: everything that the event loop keeps of one step between its installation and its end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::declared::DeclaredStep;
use super::in_flight::InFlightBatch;
use super::job_buffer::JobBuffer;
use super::pending_jobs::PendingJobs;
use super::stats::StepStats;
use crate::batch::events::{EventJob, EventWriter, JobEvent};
use crate::batch::input::{BatchInput, BatchSlice, ReadBatch};
use crate::batch::job_builder::{BatchCursor, JobBuilder};
use tidegate_dispatch::{BatchId, InputPort, ReadId, Turn};
use tidegate_model::Timestamp;
use tidegate_plugin::Payloads;
use tidegate_store::ParkedKey;

/// State of an installed step.
#[derive(Debug)]
pub(crate) struct StepState {
    pub(crate) declared: DeclaredStep,
    /// Time at which a later generation changed it without another installation.
    pub(crate) changed_at: Option<Timestamp>,
    /// Number of this installation. Messages that were requested for another one are ignored.
    pub(crate) epoch: u64,
    /// Jobs that were read and are not all in batches.
    pub(crate) reads: HashMap<ReadId, ReadBatch>,
    pub(crate) batches: HashMap<BatchId, InFlightBatch>,
    /// First index that is not read yet, by input.
    pub(crate) read_up_to: Vec<u64>,
    /// Keys of the parked jobs that keep their turn.
    pub(crate) turns: BTreeMap<Turn, ParkedKey>,
    /// Keys of the redelivered jobs in flight.
    pub(crate) returned: BTreeSet<ParkedKey>,
    /// Keys of redelivered jobs that a request moves. The value is true once the move is over: an older read may
    /// still contain them.
    pub(crate) moved: BTreeMap<ParkedKey, bool>,
    /// Waiting jobs of a queued step; `None` for an ordered step.
    pub(crate) queued: Option<QueuedJobs>,
    pub(crate) stats: Arc<StepStats>,
    /// Inputs of a join by key that are not read until fewer of their jobs are without a partner.
    pub(crate) held_reads: Vec<InputPort>,
    /// Index of the job that halted the step, if it has one input.
    pub(crate) halted_at: Option<u64>,
    /// Whether jobs with a due time have waited for their partners since their due times were read.
    pub(crate) had_unmatched: bool,
    /// `None`: the step has no queue for events.
    events: Option<BeginEvents>,
}

/// Writer of the events of jobs that begin.
#[derive(Debug)]
struct BeginEvents {
    writer: EventWriter,
    builder: JobBuilder,
}

/// Waiting jobs of a queued step.
#[derive(Debug)]
pub(crate) struct QueuedJobs {
    pub(crate) buffer: JobBuffer,
    pub(crate) pending: PendingJobs,
}

impl StepState {
    pub(crate) fn new(declared: DeclaredStep, epoch: u64, next: Vec<u64>, stats: Arc<StepStats>) -> Self {
        let queued = declared.picks().map(|queuer| QueuedJobs {
            buffer: JobBuffer::new(declared.configuration(), &declared, queuer),
            pending: PendingJobs::new(&declared),
        });
        let events = EventWriter::new(&declared).map(|writer| {
            let builder = JobBuilder::new(declared.configuration(), &declared);
            BeginEvents { writer, builder }
        });
        Self {
            events,
            declared,
            changed_at: None,
            epoch,
            reads: HashMap::new(),
            batches: HashMap::new(),
            read_up_to: next,
            turns: BTreeMap::new(),
            returned: BTreeSet::new(),
            moved: BTreeMap::new(),
            queued,
            stats,
            held_reads: Vec::new(),
            halted_at: None,
            had_unmatched: true,
        }
    }

    /// Number of jobs in flight that the step has begun as an earlier generation declared it.
    pub(crate) fn jobs_of_earlier_versions(&self) -> usize {
        let is_earlier = |batch: &&InFlightBatch| {
            batch.step.as_ref().is_some_and(|step| step.version < self.declared.version)
        };
        self.batches.values().filter(is_earlier).map(|batch| batch.work.jobs).sum()
    }

    pub(crate) fn buffer(&mut self) -> Option<&mut JobBuffer> {
        self.queued.as_mut().map(|queued| &mut queued.buffer)
    }

    /// Events of the beginning of a batch.
    pub(crate) fn begun_events(&mut self, batch: BatchId, now: Timestamp) -> Payloads {
        let mut events = Payloads::new();
        let (Some(BeginEvents { writer, builder }), Some(held)) =
            (&mut self.events, self.batches.get(&batch))
        else {
            return events;
        };
        let mut walk = BatchCursor::new(&held.work);
        while let Some(item) = builder.next(&mut walk, false) {
            // A delayed output is not a job of the step.
            if item.to.is_none() {
                writer.write(&EventJob::of_item(&item), &JobEvent::Begun, now, &mut events);
            }
        }
        events
    }

    pub(crate) fn is_queued(&self) -> bool {
        self.queued.is_some()
    }

    /// Removes the redelivered jobs of a batch from those in flight.
    pub(crate) fn forget_returned(&mut self, work: &BatchInput) {
        for returned in work.portions.iter().flat_map(BatchSlice::returned) {
            self.returned.remove(&returned.key);
        }
    }
}
