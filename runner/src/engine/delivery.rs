//! What one batch of one step wants to change: the unit of committing.

use tidegate_plugin::Payloads;

use crate::decide::{BatchId, Counters};
use crate::store::{Block, Details};
use crate::words::{Mark, Segment};

/// A batch that a worker is through with.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) step: usize,
    pub(super) id: BatchId,
    pub(super) first: u64,
    pub(super) taken: usize,
    /// In the order of the step's bindings.
    pub(super) outputs: Vec<Made>,
    pub(super) errors: Option<Made>,
    pub(super) counters: Counters,
    /// Bytes of the jobs, as they were read.
    pub(super) bytes: usize,
    pub(super) mark: Option<Mark>,
    pub(super) segments: Vec<Segment>,
}

/// Payloads for one target, encoded for the log where that is a queue.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) payloads: Payloads,
    pub(super) block: Option<Block>,
}

impl Made {
    pub(super) fn for_queue(payloads: Payloads) -> Self {
        let block = Some(Block::encode(&payloads, Details::default()));
        Self { payloads, block }
    }

    pub(super) fn for_sink(payloads: Payloads) -> Self {
        Self { payloads, block: None }
    }
}

impl Delivery {
    /// Bytes that it adds to a group.
    pub(super) fn byte_len(&self) -> usize {
        self.outputs.iter().chain(&self.errors).map(|made| made.payloads.byte_len()).sum()
    }
}
