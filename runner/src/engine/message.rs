//! What the threads of a run tell the dispatcher's thread.

use std::sync::Arc;

use super::error::EngineError;
use super::held::Fetched;
use super::request::Asked;
use super::work::Ran;
use crate::decide::{BatchId, Port};
use crate::hands::sink::SinkError;

/// Something that has happened, with what belongs to it.
#[derive(Debug)]
pub(super) enum Message {
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
    Broken {
        port: Port,
        reader: u64,
        error: EngineError,
    },
    Ran {
        step: usize,
        id: BatchId,
        ran: Box<Ran>,
    },
    Committed(Durable),
    Refused {
        step: usize,
        error: Arc<SinkError>,
    },
    CommitterFailed(EngineError),
    Asked(Asked),
    /// Jobs wait in the inbox.
    Arrived,
    Stop,
}

/// What has become durable.
#[derive(Debug, Default)]
pub(super) struct Durable {
    pub(super) begun: Vec<(usize, BatchId)>,
    pub(super) delivered: Vec<(usize, BatchId)>,
    /// Steps that go on at these indices of their inputs.
    pub(super) rewound: Vec<(usize, Vec<u64>)>,
    /// Queues that have grown, and their last index.
    pub(super) grown: Vec<(usize, u64)>,
    /// Steps that have jobs to run again.
    pub(super) returned: Vec<usize>,
}
