//! What the threads of a run tell the dispatcher's thread.

use std::sync::Arc;

use super::error::EngineError;
use super::work::Ran;
use crate::decide::BatchId;
use crate::hands::sink::SinkError;
use crate::words::{Batch, Mark, Segment};

/// Something that has happened, with what belongs to it.
#[derive(Debug)]
pub(super) enum Message {
    Read { step: usize, batch: Arc<Batch>, mark: Option<Mark>, segments: Vec<Segment> },
    Idle { step: usize },
    Ended { step: usize },
    Broken { step: usize, error: EngineError },
    Ran { step: usize, id: BatchId, ran: Box<Ran> },
    Committed { batches: Vec<(usize, BatchId)>, grown: Vec<(usize, u64)> },
    Refused { step: usize, error: Arc<SinkError> },
    CommitterFailed(EngineError),
    Stop,
}
