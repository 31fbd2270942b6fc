//! Opening of a run: makes the coordinator and the committer from the recovered state, before any thread starts.
//!
//! The runtime and the simulation open their runs here.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};

use super::start::{RecoveredState, restore_parked_jobs};
use crate::commit::committed_state::CommittedState;
use crate::commit::committer::Committer;
use crate::commit::inbox::Inbox;
use crate::commit::queue_cache::QueueCaches;
use crate::commit::sinks::Sinks;
use crate::coordinator::{Coordinator, CoordinatorInit};
use crate::error::EngineError;
use crate::runtime::message::Message;
use crate::step::stats::Stats;
use tidegate_components::source::{BatchLimit, Reader, SourceLog};
use tidegate_config::Configuration;
use tidegate_dispatch::InputPort;
use tidegate_model::{Clock, TokenKey};
use tidegate_store::{CrashGuard, Store, Writer};

/// Resources and settings of a run.
pub(crate) struct RunContext {
    pub(crate) configuration: Arc<Configuration>,
    pub(crate) store: Store,
    pub(crate) writer: Writer,
    pub(crate) attempts: CrashGuard,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) workers: usize,
    pub(crate) batch: BatchLimit,
    pub(crate) until_idle: bool,
    /// Time between two attempts to write to a full disk.
    pub(crate) retry_after: Duration,
    /// Messages of the committer.
    pub(crate) messages: Sender<Message>,
    /// Closed by a stop: the committer waits no longer for room.
    pub(crate) stop: Receiver<()>,
}

/// Run that is ready to start.
pub(crate) struct OpenRun {
    pub(crate) coordinator: Coordinator,
    pub(crate) committer: Committer,
    /// Sources in the order of the configuration; `None` for a source that cannot be opened.
    pub(crate) sources: Vec<Option<SourceLog>>,
    /// Readers of the inputs that are sources.
    pub(crate) readers: Vec<(InputPort, Reader)>,
    /// Number of this configuration among all that ran on the store.
    pub(crate) generation: u64,
    /// Key of the completion tokens.
    pub(crate) token_key: TokenKey,
}

/// Opens a run.
///
/// # Errors
/// The store cannot be read.
pub(crate) fn open(recovered: RecoveredState, context: RunContext) -> Result<OpenRun, EngineError> {
    let RecoveredState {
        progress,
        snapshots,
        heads,
        flows,
        sources,
        readers,
        sinks,
        marks,
        segments,
        generation,
        tickers,
        token_key,
        opening,
        halts,
    } = recovered;
    let RunContext { configuration, store, clock, .. } = context;
    let tails = Arc::new(QueueCaches::default());
    let mut coordinator = Coordinator::new(CoordinatorInit {
        configuration: Arc::clone(&configuration),
        flows,
        tickers,
        heads: heads.clone(),
        tails: Arc::clone(&tails),
        workers: context.workers,
        batch: context.batch,
        until_idle: context.until_idle,
        stats: Arc::clone(&context.stats),
    })
    .without(halts, clock.now());
    restore_parked_jobs(&mut coordinator, &configuration, &store, clock.now())?;
    let committer = Committer {
        writer: context.writer,
        store,
        attempts: context.attempts,
        opening,
        sinks: Sinks::new(Arc::clone(&configuration), sinks),
        committed_state: CommittedState { configuration, progress, snapshots, heads, marks, segments },
        broken_steps: BTreeSet::new(),
        inbox: context.inbox,
        tails,
        stats: context.stats,
        clock,
        batches_awaiting_commit: Arc::clone(&coordinator.coming),
        retry_after: context.retry_after,
        messages: context.messages,
        stop: context.stop,
    };
    Ok(OpenRun { coordinator, committer, sources, readers, generation, token_key })
}
