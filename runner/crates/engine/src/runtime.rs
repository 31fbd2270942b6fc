//! Runtime: owns the threads of a run, and carries out the coordinator's actions.

pub(crate) mod command_threads;
pub(crate) mod live_versions;
pub(crate) mod message;
pub(crate) mod pool;
pub(crate) mod priority;
pub(crate) mod readers;
pub(crate) mod source_pool;
pub(crate) mod takeover;
pub(crate) mod worker_threads;
pub(crate) mod workers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use self::command_threads::{CommandContext, CommandThreads};
use self::live_versions::LiveVersions;
use self::message::Message;
use self::pool::{BatchPools, Pool, PoolKind};
use self::readers::StoreReader;
use self::source_pool::{SourcePool, SourceReader};
use self::worker_threads::WorkerThreads;
use self::workers::WorkerTask;
use super::error::EngineError;
use super::report::{RunOptions, RunReport};
use crate::commit::committer::Committer;
use crate::commit::inbox::Inbox;
use crate::commit::request::CommitRequest;
use crate::commit::sinks::Sinks;
use crate::commit::tuples;
use crate::coordinator::command_sources::CommandOrder;
use crate::coordinator::{Action, Coordinator};
use crate::generation::current::{CurrentGeneration, NumberedGeneration};
use crate::generation::history;
use crate::recovery::claims;
use crate::recovery::clock_set_back::WatchedClock;
use crate::recovery::last_run;
use crate::recovery::open::{OpenRun, RunContext, open};
use crate::recovery::start;
use crate::step::stats::Stats;
use tidegate_components::calls::Calls;
use tidegate_components::exec::RunningCommands;
use tidegate_components::plugin::{Setup, Setups};
use tidegate_dispatch::{InputPort, RunOutcome};
use tidegate_model::log_target;
use tidegate_model::{Clock, Timestamp, format_duration};
use tidegate_store::{CrashGuard, Store, Writer};

/// Extra time for the commit in progress when `shutdown_timeout` expires.
const LAST_COMMIT: Duration = Duration::from_secs(1);
/// Extra time at the end of a run for open gate and monitor calls; their results are not needed.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// Time that it takes to kill the commands that still run when `shutdown_timeout` expires.
const LAST_KILLS: Duration = Duration::from_millis(500);
/// Maximum time between two reads of the clock while a timer is set, because the clock may be set.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Parts of a run before its threads start.
pub(crate) struct RuntimeParts {
    pub(crate) current: Arc<CurrentGeneration>,
    pub(crate) store: Store,
    pub(crate) writer: Writer,
    pub(crate) attempts: CrashGuard,
    pub(crate) setups: Setups,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: RunOptions,
    pub(crate) stats: Arc<Stats>,
    pub(crate) messages: (Sender<Message>, Receiver<Message>),
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) running_commands: Arc<RunningCommands>,
    /// Set by a stop.
    pub(crate) ending: Arc<AtomicBool>,
    /// Set once the steps are recovered and the threads run.
    pub(crate) started: Arc<AtomicBool>,
}

/// Event loop of a run: the coordinator and the threads that it works with.
pub(crate) struct Runtime {
    current: Arc<CurrentGeneration>,
    store: Store,
    attempts: CrashGuard,
    setups: Setups,
    /// Record that plugins run in this process, if any do.
    plugged: Option<Setup>,
    inbox: Arc<Inbox>,
    options: RunOptions,
    /// Set by a stop.
    ending: Arc<AtomicBool>,
    clock: WatchedClock,
    coordinator: Coordinator,
    messages: (Sender<Message>, Receiver<Message>),
    orders: Sender<CommitRequest>,
    queues: StoreReader,
    source_pool: SourcePool,
    readers: BTreeMap<InputPort, SourceReader>,
    commands: CommandThreads,
    /// Closed by a stop: the committer waits no longer for room on a full disk.
    stop_committer: Option<Sender<()>>,
    committer: JoinHandle<Option<Writer>>,
    /// Closed when the committer has ended.
    committed: Receiver<()>,
    /// Thread of the batches with suspects, if there are suspects.
    suspects: Option<JoinHandle<()>>,
    /// Threads for quick batches without effects.
    workers: WorkerThreads,
    /// Pools for slow batches, and for those that may block.
    pools: BatchPools,
    /// Pool for gates and monitors, whose results are not needed at the end of a run.
    askers: Pool,
    /// Versions of the steps that the threads keep set up.
    live: Arc<LiveVersions>,
    /// Time at which a stop gives up waiting.
    deadline: Option<Instant>,
}

impl Runtime {
    /// Opens the resources of the run and starts its threads. Returns `None` if the run was stopped before.
    #[expect(clippy::too_many_lines, reason = "a list of parts, each started after those that it needs")]
    pub(crate) fn start(parts: RuntimeParts) -> Result<Option<Self>, EngineError> {
        let RuntimeParts {
            current,
            store,
            mut writer,
            attempts,
            setups,
            clock,
            options,
            stats,
            messages,
            inbox,
            running_commands,
            ending,
            started: has_started,
        } = parts;
        let generation = current.get();
        let plugged = last_run::log_crash(&generation.configuration, &attempts, &setups);
        start::rename_all(&generation, &store, &mut writer, clock.now())?;
        claims::recover(&store, &mut writer, &attempts, clock.now())?;
        tuples::deliver_before_start(&generation, &store, &mut writer, clock.now())?;
        current.tables.build(&generation.configuration, &[], &store, &ending)?;
        let sinks = Sinks::default();
        let Some(started) = start::start(&generation, sinks, &store, clock.now(), &ending)? else {
            inbox.close();
            drop(inbox.take(usize::MAX));
            return Ok(None);
        };
        warn_of_rollback(&generation, &store, &current);
        let workers = worker_count(&options);
        let (orders, for_committer) = crossbeam_channel::unbounded();
        let (stop_committer, stop) = crossbeam_channel::bounded(0);
        let context = RunContext {
            store: store.clone(),
            writer,
            attempts: attempts.clone(),
            inbox: Arc::clone(&inbox),
            stats,
            tables: Arc::clone(&current.tables),
            clock: Arc::clone(&clock),
            workers,
            batch: options.batch,
            until_idle: options.until_idle,
            retry_after: options.retry_after,
            messages: messages.0.clone(),
            stop,
            ending: Arc::clone(&ending),
        };
        let OpenRun { coordinator, committer, token_key, actions } = open(started, context);
        let (ends, committed) = crossbeam_channel::bounded(0);
        let committer = start_committer(committer, for_committer, messages.0.clone(), ends)?;
        let commands = CommandThreads::new(CommandContext {
            store: store.clone(),
            inbox: Arc::clone(&inbox),
            orders: orders.clone(),
            messages: messages.0.clone(),
            running_commands: Arc::clone(&running_commands),
            grace: options.shutdown_timeout,
            hosted: options.hosts_commands,
        });
        let live = Arc::<LiveVersions>::default();
        let context = Arc::new(workers::WorkerContext {
            store: store.clone(),
            clock: Arc::clone(&clock),
            token_key,
            tables: Arc::clone(&current.tables),
            running_commands,
            calls: Calls::default(),
            ending: Arc::clone(&ending),
            deaths: Arc::default(),
            attempts: attempts.clone(),
            setups: setups.clone(),
            live: Arc::clone(&live),
            mocks: None,
        });
        let (queue, suspects) = workers::start_suspects(&context, &messages.0)?;
        let [beside, outside, askers] = [PoolKind::Beside, PoolKind::Outside, PoolKind::Outside]
            .map(|kind| Pool::new(kind, Arc::clone(&context), queue.clone(), messages.0.clone()));
        let pools = BatchPools { beside, outside };
        let workers = WorkerThreads::start(workers, &context, &queue, &pools, &messages.0)?;
        let queues =
            StoreReader::start(store.clone(), Arc::clone(&clock), options.batch, messages.0.clone())?;
        let source_pool = SourcePool::new(options.batch, messages.0.clone(), context.calls.clone());
        let mut runtime = Self {
            ending,
            clock: WatchedClock::new(clock, store.committed_at()?),
            current,
            store,
            attempts,
            setups,
            plugged,
            inbox,
            options,
            coordinator,
            messages,
            orders,
            queues,
            source_pool,
            readers: BTreeMap::new(),
            commands,
            stop_committer: Some(stop_committer),
            committer,
            committed,
            suspects,
            workers,
            pools,
            askers,
            live,
            deadline: None,
        };
        for action in actions {
            runtime.carry_out(action)?;
        }
        has_started.store(true, Ordering::Release);
        Ok(Some(runtime))
    }

    /// Handles messages until the coordinator ends the run. Returns `None` if `shutdown_timeout` expired.
    pub(crate) fn work(&mut self) -> Result<Option<RunOutcome>, EngineError> {
        let mut actions = Vec::new();
        let now = self.now()?;
        self.coordinator.start(now, &mut actions);
        loop {
            for action in std::mem::take(&mut actions) {
                if let Action::Finish(end) = action {
                    return Ok(Some(end));
                }
                self.carry_out(action)?;
            }
            self.stop_if_halted();
            self.workers.replace_long();
            let message = match self.next_deadline() {
                None => self.messages.1.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(until) => self.messages.1.recv_deadline(until),
            };
            match message {
                Ok(message) => {
                    if matches!(message, Message::Stop) {
                        self.stop_committer = None;
                        self.inbox.close();
                        self.deadline.get_or_insert_with(|| Instant::now() + self.options.shutdown_timeout);
                    }
                    let now = self.now()?;
                    self.coordinator.handle_message(message, now, &mut actions)?;
                }
                Err(RecvTimeoutError::Timeout) => {
                    if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                        return Ok(None);
                    }
                    let now = self.now()?;
                    self.coordinator.tick(now, &mut actions);
                }
                Err(RecvTimeoutError::Disconnected) => return Err(EngineError::Died),
            }
        }
    }

    /// Requests the end of the run if a step had to stop and the options ask for that.
    fn stop_if_halted(&mut self) {
        if self.options.exit_on_halt
            && !self.coordinator.halts.is_empty()
            && !self.ending.swap(true, Ordering::AcqRel)
        {
            tracing::info!(target: log_target::RUNNER, "stopping because a step has stopped (`--exit-on-halt`): running jobs are finished first");
            // This thread receives it.
            let _ = self.messages.0.send(Message::Stop);
        }
    }

    /// Current time. If the clock was set back, the due times in the store are moved.
    fn now(&mut self) -> Result<Timestamp, EngineError> {
        let (now, set_back) = self.clock.look();
        if let Some(set_back) = set_back {
            set_back.make_up(&self.store, &self.current.get().configuration, &self.messages.0)?;
        }
        Ok(now)
    }

    /// Time until which to wait for a message; `None`: without a limit.
    fn next_deadline(&self) -> Option<Instant> {
        let wakes = self.coordinator.wakes(self.clock.now()).into_iter().chain(self.coordinator.logs()).min();
        let wakes = wakes.map(|wakes| Instant::now() + wakes.since(self.clock.now()).min(LONGEST_WAIT));
        wakes.into_iter().chain(self.deadline).chain(self.workers.next_long()).min()
    }

    /// Carries out one action. A thread lives until its channel is closed. A committer that failed has
    /// reported that, and the run is about to end.
    fn carry_out(&mut self, action: Action) -> Result<(), EngineError> {
        match action {
            Action::ReadSource(port) => {
                if let Some(reader) = self.readers.get(&port) {
                    reader.ask();
                }
            }
            Action::OpenReader { port, epoch, reader, health } => {
                let reader = self.source_pool.add(port, (epoch, health), *reader)?;
                self.readers.insert(port, reader);
            }
            Action::CloseReaders(step) => {
                let ends: Vec<InputPort> =
                    self.readers.keys().copied().filter(|port| port.step == step).collect();
                for reader in ends.iter().filter_map(|port| self.readers.remove(port)) {
                    reader.end();
                }
            }
            Action::Publish(generation) => self.current.set(generation),
            // The client may have disconnected.
            Action::AnswerReload(reply, outcome) => _ = reply.send(outcome),
            Action::RollBack(request) => {
                takeover::roll_back(&self.current, &self.messages.0, &self.store, request)?;
            }
            Action::ReadStore(ask) => self.queues.ask(ask),
            Action::Run(task) => {
                if task.pool {
                    self.pools.give(task)?;
                } else {
                    self.workers.give(task);
                }
            }
            Action::KeepVersions(versions) => {
                self.live.set(&versions);
                let pools = [&self.pools.beside, &self.pools.outside, &self.askers];
                pools.into_iter().for_each(Pool::wake_idle);
            }
            Action::EndClaims(claims) => self.attempts.end_claimed(&claims),
            Action::AskStatus(asking) => self.askers.give(WorkerTask::Status(asking))?,
            Action::LookAtGate { step, epoch } => self.askers.give(WorkerTask::Gate { step, epoch })?,
            Action::Commit(order) => _ = self.orders.send(order),
            Action::Command(CommandOrder::Start(start)) => self.commands.start(start)?,
            Action::Command(CommandOrder::Stop(queue)) => self.commands.stop(queue),
            // `work` ends its loop with this action.
            Action::Finish(_) => {}
        }
        Ok(())
    }

    /// Ends the threads, then closes the store.
    pub(crate) fn close(
        self,
        outcome: Result<Option<RunOutcome>, EngineError>,
    ) -> Result<RunReport, EngineError> {
        let Self {
            attempts,
            setups,
            plugged,
            inbox,
            mut coordinator,
            clock,
            orders,
            queues,
            source_pool,
            readers,
            commands,
            stop_committer,
            committer,
            committed,
            suspects,
            workers,
            pools,
            askers,
            messages,
            options,
            deadline,
            ..
        } = self;
        coordinator.report_last_failures(clock.now());
        if !matches!(outcome, Ok(Some(_))) {
            // Attempts that still run end with the process; no job is blamed for that.
            attempts.close();
            setups.close();
        }
        inbox.close();
        // The last lines of commands are committed before the committer ends.
        commands.end(!matches!(outcome, Ok(Some(_))));
        drop((stop_committer, orders));
        drop(readers);
        source_pool.end();
        queues.end();
        let abandoned = matches!(outcome, Ok(None));
        let mut threads = workers.close();
        threads.extend(pools.beside.close());
        threads.extend(suspects);
        if abandoned {
            // Jobs in the pool run again in the next run, so their commands must be dead by then.
            pools.outside.abandon(LAST_KILLS);
        } else {
            threads.extend(pools.outside.close());
        }
        // A sink may write to a pipe without a reader. Jobs that are not committed run again.
        if abandoned && committed.recv_timeout(LAST_COMMIT) == Err(RecvTimeoutError::Timeout) {
            return Ok(RunReport {
                end: RunOutcome::Stopped,
                halts: coordinator.halts,
                abandoned,
                left_behind: true,
            });
        }
        let writer = committer.join().map_err(|_| EngineError::Died);
        // Pushes that a failed committer left in the inbox get no answer.
        drop(inbox.take(usize::MAX));
        let end = outcome?;
        // When `shutdown_timeout` expired, a worker may still be busy; it ends with the process.
        let mut left_behind = abandoned;
        if end.is_some() {
            askers.abandon(LAST_ANSWERS);
            let deadline = deadline.unwrap_or_else(|| Instant::now() + options.shutdown_timeout);
            left_behind = !end_by(deadline, threads);
            if left_behind {
                drop(plugged);
                let timeout = format_duration(options.shutdown_timeout);
                for at in setups.under_way() {
                    tracing::warn!(target: log_target::ENGINE, "{at}, which exceeded `shutdown_timeout` ({timeout})");
                }
            }
            // A trial of plugins may still run.
            setups.close();
        }
        if writer?.is_none() {
            let reason = messages.1.try_iter().find_map(|message| match message {
                Message::ThreadFailed(error) => Some(error),
                _ => None,
            });
            return Err(reason.unwrap_or(EngineError::Died));
        }
        Ok(RunReport {
            end: end.unwrap_or(RunOutcome::Stopped),
            halts: coordinator.halts,
            abandoned,
            left_behind,
        })
    }
}

/// Whether all these threads end before the deadline. The destructor of a plugin's step may take any time.
fn end_by(deadline: Instant, threads: Vec<JoinHandle<()>>) -> bool {
    let (ends, ended) = crossbeam_channel::bounded::<()>(0);
    let join = move || {
        let _ends = ends;
        for thread in threads {
            let _ = thread.join();
        }
    };
    match thread::Builder::new().name("joiner".into()).spawn(join) {
        Ok(_) => ended.recv_deadline(deadline) != Err(RecvTimeoutError::Timeout),
        Err(_) => false,
    }
}

fn worker_count(options: &RunOptions) -> usize {
    match options.workers {
        0 => thread::available_parallelism().map_or(1, usize::from),
        workers => workers,
    }
}

fn start_committer(
    committer: Committer,
    orders: Receiver<CommitRequest>,
    messages: Sender<Message>,
    ends: Sender<()>,
) -> std::io::Result<JoinHandle<Option<Writer>>> {
    thread::Builder::new().name("committer".into()).spawn(move || {
        let _ends = ends;
        match committer.run(&orders) {
            Ok(writer) => Some(writer),
            Err(error) => {
                // If the run is over, its end reports this error.
                let _ = messages.send(Message::ThreadFailed(error));
                None
            }
        }
    })
}

/// Warns of files that were rolled back before and are in force again.
fn warn_of_rollback(generation: &NumberedGeneration, store: &Store, current: &CurrentGeneration) {
    if let Some(back) = history::rolled_back_before(generation, store) {
        let (earlier, why, number) = (back.generation, &back.why, generation.number);
        tracing::warn!(
            target: log_target::ENGINE,
            "generation {earlier} of these files was rolled back: {why}; this start brings them into force as generation {number}"
        );
        current.set_back_before(back);
    }
}
