//! Request effect: holds the changes to commit, and the updates of a running engine.

use tidegate_plugin::Payloads;

use super::request::RequestOutcome;
use crate::error::Chain;
use tidegate_config::{Configuration, QueueRef, Step};
use tidegate_dispatch::Hold;
use tidegate_model::Progress;
use tidegate_store::{Append, Block, Changes, Details, ParkedJob, ParkedKey, ReadError};

/// Lane of a step that is held, with the reason, or resumed.
pub(crate) type LaneNotice = (usize, String, Option<(Hold, String)>);

/// Effect of a request.
#[derive(Debug)]
pub struct RequestEffect {
    pub changes: Changes,
    /// Appended jobs by queue, with their provenance.
    pub(crate) appended: Vec<(QueueRef, Payloads, Option<Payloads>)>,
    /// New progress by step and input.
    pub(crate) progress: Vec<(usize, usize, Progress)>,
    /// Moved jobs.
    pub(crate) moves: Option<MovedRows>,
    /// Step that was paused or resumed.
    pub(crate) paused: Option<(usize, bool)>,
    /// Step whose monitor was paused or resumed.
    pub(crate) monitor: Option<(usize, bool)>,
    /// Lane that is held or resumed.
    pub(crate) lane: Option<LaneNotice>,
    /// Queue whose late jobs change.
    pub(crate) late: Option<QueueRef>,
    /// Whether an external completion was accepted, with its job as the one parked row.
    pub(crate) completed: bool,
    pub request_outcome: RequestOutcome,
}

/// Moved jobs of a step.
#[derive(Debug)]
pub(crate) struct MovedRows {
    pub(crate) step: usize,
    pub(crate) rows: Vec<(ParkedKey, RowAfter)>,
    /// Indices of the input that are accounted for now.
    pub(crate) jobs: Vec<u64>,
    /// Indices that were accounted for before, or that do not exist.
    pub(crate) left: Vec<u64>,
}

/// New row of a parked job.
#[derive(Debug)]
pub(crate) enum RowAfter {
    /// The job left the store.
    Gone,
    /// The row has this content, changed or not.
    Stays(Box<ParkedJob>),
}

impl RequestEffect {
    pub(crate) fn new(changes: Changes, request_outcome: RequestOutcome) -> Self {
        let (appended, progress) = (Vec::new(), Vec::new());
        Self {
            changes,
            appended,
            progress,
            moves: None,
            paused: None,
            monitor: None,
            lane: None,
            late: None,
            completed: false,
            request_outcome,
        }
    }

    /// Appends events of `step` to their queue. They have no origins: they are not made from the jobs.
    pub(crate) fn append_events(&mut self, configuration: &Configuration, step: &Step, events: Payloads) {
        let Some(queue) = step.events.filter(|_| !events.is_empty()) else { return };
        let address = configuration.queues[queue.0].address.clone();
        let block = Block::encode(&events, Details::default());
        self.changes.appends.push(Append { queue: address, block });
        self.appended.push((queue, events, None));
    }
}

/// Text of a store error as a sentence.
pub(crate) fn error_text(error: &ReadError) -> String {
    Chain(error).to_string()
}
