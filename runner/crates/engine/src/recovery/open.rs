//! Opening of a run: makes the coordinator and the committer from the recovered state, before any thread starts.
//!
//! The runtime and the simulation open their runs here.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};

use super::start::RecoveredState;
use crate::commit::committer::Committer;
use crate::commit::inbox::Inbox;
use crate::commit::queue_cache::QueueCaches;
use crate::commit::queue_tables::QueueTables;
use crate::coordinator::command_sources::CommandSources;
use crate::coordinator::{Action, Coordinator, CoordinatorInit};
use crate::runtime::message::Message;
use crate::step::stats::Stats;
use tidegate_components::source::BatchLimit;
use tidegate_model::{Clock, TokenKey};
use tidegate_store::{CrashGuard, Store, Writer};

/// Resources and settings of a run.
pub(crate) struct RunContext {
    pub(crate) store: Store,
    pub(crate) writer: Writer,
    pub(crate) attempts: CrashGuard,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) stats: Arc<Stats>,
    /// Tables of the configuration, which are built.
    pub(crate) tables: Arc<QueueTables>,
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
    /// Set by a stop.
    pub(crate) ending: Arc<AtomicBool>,
}

/// Run that is ready to start.
pub(crate) struct OpenRun {
    pub(crate) coordinator: Coordinator,
    pub(crate) committer: Committer,
    /// Key of the completion tokens.
    pub(crate) token_key: TokenKey,
    /// Actions before the start.
    pub(crate) actions: Vec<Action>,
}

/// Opens a run.
pub(crate) fn open(recovered: RecoveredState, context: RunContext) -> OpenRun {
    let RecoveredState { committed, steps, sources, sinks, tickers, late, token_key, opening } = recovered;
    let RunContext { store, clock, .. } = context;
    let tails = Arc::new(QueueCaches::default());
    let commands = CommandSources::new(committed.configuration(), context.until_idle, clock.now());
    let mut coordinator = Coordinator::new(CoordinatorInit {
        generation: Arc::clone(&committed.generation),
        tickers,
        commands,
        late,
        tails: Arc::clone(&tails),
        workers: context.workers,
        batch: context.batch,
        until_idle: context.until_idle,
        stats: Arc::clone(&context.stats),
    });
    let mut actions = Vec::new();
    for step in steps {
        coordinator.install(step, clock.now(), &mut actions);
    }
    let committer = Committer {
        writer: context.writer,
        store,
        attempts: context.attempts,
        opening,
        sinks,
        sources,
        committed_state: committed,
        broken_steps: BTreeSet::new(),
        inbox: context.inbox,
        tails,
        tables: context.tables,
        stats: context.stats,
        clock,
        batches_awaiting_commit: Arc::clone(&coordinator.coming),
        retry_after: context.retry_after,
        messages: context.messages,
        stop: context.stop,
        ending: context.ending,
    };
    OpenRun { coordinator, committer, token_key, actions }
}
