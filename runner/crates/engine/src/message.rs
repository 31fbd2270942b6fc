//! What the threads of a run tell the dispatcher's thread.

use std::sync::Arc;

use crossbeam_channel::Sender;
use tidegate_plugin::Failure;

use super::error::EngineError;
use super::glance::Glance;
use super::held::Fetched;
use super::request::Asked;
use super::result::Ran;
use super::shelf::Gathered;
use super::sight::Sight;
use super::status::Seen;
use tidegate_components::sink::SinkError;
use tidegate_config::QueueRef;
use tidegate_dispatch::{BatchId, Port, Turn};
use tidegate_model::Timestamp;
use tidegate_store::{DelayedJob, DelayedKey};

/// Something that has happened, with what belongs to it.
#[derive(Debug)]
pub(crate) enum Message {
    /// `reader` tells readers of one port apart: one that was replaced may still have told something.
    Read {
        port: Port,
        reader: u64,
        fetched: Fetched,
    },
    Idle {
        port: Port,
        reader: u64,
    },
    Ended {
        port: Port,
        reader: u64,
    },
    /// None of the jobs that the step shall run again is due but those that were read.
    NoneDue {
        step: usize,
        next: Option<Timestamp>,
    },
    Broken {
        port: Port,
        reader: u64,
        error: EngineError,
    },
    /// The job that was to be read was moved meanwhile.
    Moved,
    /// What was missing of a batch that was picked.
    Gathered {
        step: usize,
        id: BatchId,
        gathered: Gathered,
    },
    Ran {
        step: usize,
        id: BatchId,
        ran: Box<Ran>,
    },
    /// Whether the gate of a step is open, as far as that could be found out.
    GateSeen {
        step: usize,
        seen: Result<bool, Failure>,
    },
    /// What a monitor has answered.
    StatusSeen {
        step: usize,
        ask: u64,
        seen: Result<Seen, Failure>,
    },
    Committed(Durable),
    Refused {
        step: usize,
        error: Arc<SinkError>,
    },
    CommitterFailed(EngineError),
    Asked(Asked),
    /// Somebody wants to see the waiting jobs of a step; `None` where it takes them as they come.
    Look {
        step: usize,
        reply: Sender<Option<Box<Sight>>>,
    },
    /// Somebody wants to see how many jobs of each step stand where, and the first so many lanes.
    Glance {
        lanes: usize,
        reply: Sender<Vec<Glance>>,
    },
    /// Asks for the payload of a job that the step has in memory: the one at `index` of an input.
    Payload {
        step: usize,
        input: usize,
        index: u64,
        reply: Sender<Option<Vec<u8>>>,
    },
    /// Jobs wait in the inbox.
    Arrived,
    Stop,
}

/// What has become durable.
#[derive(Debug, Default)]
pub(crate) struct Durable {
    /// Batches that may run, and where their jobs stand now, if those were put into the store one by one.
    pub(crate) begun: Vec<(usize, BatchId, Vec<DelayedKey>)>,
    /// Batches that are delivered, and where those of their jobs stand that are not through.
    pub(crate) delivered: Vec<(usize, BatchId, Vec<Stays>)>,
    /// Steps that go on at these indices of their inputs.
    pub(crate) rewound: Vec<(usize, Vec<u64>)>,
    /// Queues that have grown, and their last index.
    pub(crate) grown: Vec<(usize, u64)>,
    /// Jobs that somebody wants steps to run again.
    pub(crate) returned: Vec<(usize, DelayedKey, DelayedJob)>,
    /// Schedules whose ticks were handled, and how many jobs came of that.
    pub(crate) ticked: Vec<(QueueRef, usize)>,
    /// What became of jobs that were held back until it was known.
    pub(crate) moved: Option<Moves>,
    /// A step that shall start nothing, or go on.
    pub(crate) paused: Option<(usize, bool)>,
    /// What became of what somebody has said of pending jobs.
    pub(crate) told: Vec<Telling>,
}

/// Somebody has said how a pending job stands.
#[derive(Debug)]
pub(crate) struct Telling {
    pub(crate) step: usize,
    /// Of the job, in the input.
    pub(crate) index: u64,
    /// Where it stands since; `None` where that was not taken.
    pub(crate) taken: Option<(DelayedKey, DelayedJob)>,
}

/// What somebody has made of waiting jobs of a step.
#[derive(Debug)]
pub(crate) struct Moves {
    pub(crate) step: usize,
    /// Where each stood, and where it stands now, if it does.
    pub(crate) rows: Vec<(DelayedKey, Option<(DelayedKey, DelayedJob)>)>,
    /// Indices of the input that are accounted for.
    pub(crate) jobs: Vec<u64>,
    /// Those that are left as they are.
    pub(crate) left: Vec<u64>,
}

/// A job that stands in the store by itself.
#[derive(Clone, Debug)]
pub(crate) struct Stays {
    pub(crate) row: DelayedKey,
    /// It is an output that is due later.
    pub(crate) is_late: bool,
    /// Where the step takes its jobs as they come, and this one keeps its place.
    pub(crate) turn: Option<Turn>,
}
