//! Messages: report the results of all other threads to the event loop.

use std::collections::HashMap;
use std::sync::Arc;

use crossbeam_channel::Sender;
use tidegate_plugin::Failure;

use crate::batch::input::ReadBatch;
use crate::batch::result::BatchResult;
use crate::coordinator::command_sources::EndedCommand;
use crate::error::EngineError;
use crate::generation::current::NumberedGeneration;
use crate::operator::effect::LaneNotice;
use crate::operator::request::PendingRequest;
use crate::processor::monitor_protocol::StatusReport;
use crate::recovery::step::InstalledStep;
use crate::report::{LingeringStep, ReloadOutcome, ReplacedGenerations};
use crate::step::counts::StepCounts;
use crate::step::job_buffer::FetchedJobs;
use crate::step::queue_view::QueueView;
use tidegate_components::sink::SinkError;
use tidegate_config::QueueRef;
use tidegate_dispatch::{BatchId, InputPort, Ticker, Turn};
use tidegate_model::{Due, RenamedPart, Timestamp};
use tidegate_store::{NewHistoryEntry, ParkedJob, ParkedKey};

/// Result or request, with its data.
#[derive(Debug)]
pub(crate) enum Message {
    /// `reader` is the reader's epoch: messages from a replaced reader are ignored.
    Read {
        port: InputPort,
        reader: u64,
        fetched: ReadBatch,
    },
    Idle {
        port: InputPort,
        reader: u64,
    },
    Ended {
        port: InputPort,
        reader: u64,
    },
    /// The step has no due jobs to redeliver except those that were read.
    NoneDue {
        port: InputPort,
        reader: u64,
        next: Option<Timestamp>,
    },
    Broken {
        port: InputPort,
        reader: u64,
        error: EngineError,
    },
    /// The requested job was moved meanwhile.
    Moved,
    /// Missing jobs of a picked batch.
    Gathered {
        step: usize,
        id: BatchId,
        gathered: FetchedJobs,
    },
    /// A batch has left its worker: it has suspects and waits for its turn, or it runs long.
    WentAside {
        step: usize,
        id: BatchId,
    },
    Ran {
        step: usize,
        /// Version of the step that ran it.
        version: u64,
        id: BatchId,
        ran: Box<BatchResult>,
    },
    /// Result of a check of the step's gate.
    GateResult {
        step: usize,
        /// Installation of the step that asked.
        epoch: u64,
        seen: Result<bool, Failure>,
    },
    /// Answer of a monitor.
    StatusResult {
        step: usize,
        epoch: u64,
        ask: u64,
        seen: Result<StatusReport, Failure>,
    },
    Committed(CommitNotice),
    SinkBroken {
        step: usize,
        error: Arc<SinkError>,
    },
    /// The committer failed, or a thread cannot be started: the run ends.
    ThreadFailed(EngineError),
    /// A generation to carry out from now on.
    Reload(ReloadRequest),
    /// The requested rollback of a generation does not take place.
    NotRolledBack {
        generation: u64,
    },
    /// The generation is the current one in the store.
    Swapped(SwappedGeneration),
    /// A step can start.
    Installed(Box<InstalledStep>),
    Asked(PendingRequest),
    /// Request for a view of the waiting jobs of a step; the reply is `None` for an ordered step.
    Inspect {
        step: usize,
        reply: Sender<Option<Box<QueueView>>>,
    },
    /// Request for the counts of all steps, with at most `lanes` lanes each.
    Count {
        lanes: usize,
        reply: Sender<HashMap<usize, StepCounts>>,
    },
    /// Entry of the history for a refused configuration, or for files that mean the same as before.
    Recorded(Box<NewHistoryEntry>),
    /// Request for the steps that hand over.
    Linger {
        reply: Sender<Vec<LingeringStep>>,
    },
    /// Request for the payload of a job that the step has in memory: the job at `index` of an input.
    Payload {
        step: usize,
        input: usize,
        index: u64,
        reply: Sender<Option<Vec<u8>>>,
    },
    /// A command has ended.
    CommandEnded(EndedCommand),
    /// The inbox has jobs.
    Arrived,
    Stop,
}

/// Request to carry out a generation.
#[derive(Debug)]
pub(crate) struct ReloadRequest {
    pub(crate) generation: Arc<NumberedGeneration>,
    /// Its entry in the history.
    pub(crate) entry: Option<NewHistoryEntry>,
    /// Generations that are rolled back; `None` for a reload.
    pub(crate) rolls_back: Option<ReplacedGenerations>,
    /// Parts that have other names in it. They keep their positions.
    pub(crate) renamed: Vec<RenamedPart>,
    pub(crate) reply: Sender<ReloadOutcome>,
}

/// Positions of a generation that became the current one.
#[derive(Debug)]
pub(crate) struct SwappedGeneration {
    /// Schedules that are new or changed.
    pub(crate) tickers: Vec<(QueueRef, Ticker)>,
    /// Due time of the first late job of each queue that has one.
    pub(crate) late: Vec<(QueueRef, Timestamp)>,
}

/// Commit notice: facts that are durable now.
#[derive(Debug, Default)]
pub(crate) struct CommitNotice {
    /// Batches that may run, with the keys of those jobs that are parked in the store now.
    pub(crate) begun: Vec<(usize, BatchId, Vec<ParkedKey>)>,
    /// Delivered batches, with those of their jobs that stay parked.
    pub(crate) delivered: Vec<(usize, BatchId, Vec<ParkedRow>)>,
    /// Steps whose begun jobs were given back.
    pub(crate) given_back: Vec<usize>,
    /// Queues with new jobs, and their last indices.
    pub(crate) grown: Vec<(usize, u64)>,
    /// Jobs that an operator wants steps to run again.
    pub(crate) returned: Vec<(usize, ParkedKey, ParkedJob)>,
    /// Schedules with handled ticks, and the number of jobs that they made.
    pub(crate) ticked: Vec<(QueueRef, usize)>,
    /// Queues whose late jobs changed, and the due time of the first one, if any is left.
    pub(crate) late: Vec<(QueueRef, Option<Timestamp>)>,
    /// Result for jobs that were locked for a request.
    pub(crate) moved: Option<MoveNotice>,
    /// Whether a request that moves jobs has ended, with or without an effect.
    pub(crate) ends_move: bool,
    /// Step that was paused or resumed.
    pub(crate) paused: Option<(usize, bool)>,
    /// Step whose monitor was paused or resumed.
    pub(crate) monitor: Option<(usize, bool)>,
    /// Lanes that are held or resumed.
    pub(crate) lanes: Vec<LaneNotice>,
    /// Results of external completions.
    pub(crate) completions: Vec<CompletionNotice>,
}

/// Result of an external completion of a pending job.
#[derive(Debug)]
pub(crate) struct CompletionNotice {
    pub(crate) step: usize,
    /// Index of the job in the input.
    pub(crate) index: u64,
    /// Row of the job with the completion; `None` if it was refused.
    pub(crate) taken: Option<(ParkedKey, ParkedJob)>,
}

/// Result of a request that moved waiting jobs of a step.
#[derive(Debug)]
pub(crate) struct MoveNotice {
    pub(crate) step: usize,
    /// Locked rows, each with its content unless it is gone.
    pub(crate) rows: Vec<(ParkedKey, Option<ParkedJob>)>,
    /// Indices of the input that are accounted for now.
    pub(crate) jobs: Vec<u64>,
    /// Indices that are unchanged.
    pub(crate) left: Vec<u64>,
}

/// Job that is parked in the store.
#[derive(Clone, Debug)]
pub(crate) struct ParkedRow {
    pub(crate) row: ParkedKey,
    pub(crate) due: Due,
    /// Whether it is an output that is due later.
    pub(crate) is_late: bool,
    /// Turn of the job, if it keeps its place in an ordered step.
    pub(crate) turn: Option<Turn>,
}
