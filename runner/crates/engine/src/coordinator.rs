//! Coordinator: translates thread messages into dispatcher events, and dispatcher commands into actions.
//!
//! It does no I/O and owns no threads, so tests can drive it directly.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crossbeam_channel::Sender;

use self::command_sources::{CommandOrder, CommandSources};
use self::late_jobs::LateJobs;
use self::schedules::Schedules;
use super::error::{Chain, EngineError};
use super::report::{Halt, ReloadOutcome};
use crate::batch::input::{BatchInput, ReadBatch};
use crate::batch::result::{BatchResult, HaltCause, HaltReason, StartBlock};
use crate::commit::queue_cache::QueueCaches;
use crate::commit::request::{CommitRequest, ReloadChange};
use crate::generation::current::NumberedGeneration;
use crate::operator::request::PendingRequest;
use crate::operator::request::Request;
use crate::processor::monitor_protocol::StatusQuery;
use crate::runtime::live_versions::LiveVersion;
use crate::runtime::message::Message;
use crate::runtime::readers::StoreRequest;
use crate::step::declared::DeclaredStep;
use crate::step::source_health::SourceStats;
use crate::step::state::StepState;
use crate::step::stats::{BlockCause, Stats};
use tidegate_components::job_log::JobReader;
use tidegate_components::source::BatchLimit;
use tidegate_config::QueueRef;
use tidegate_dispatch::{
    BatchEnd, BatchId, Bounds, Command, Dispatcher, ErrorWatchEvent, Event, FailureLog, InputPort, PortInput,
    ReadId, RunOutcome, Ticker,
};
use tidegate_model::log_target;
use tidegate_model::{Address, Parts, Timestamp};
use tidegate_store::{ParkedId, StepStop};

/// Maximum bytes of one step between reading and committing, inputs and outputs together.
const STEP_BYTES: usize = 8 << 20;

/// Action for the threads.
#[derive(Debug)]
pub(crate) enum Action {
    /// Request the next batch of a source.
    ReadSource(InputPort),
    /// Read a source with this reader, on request.
    OpenReader {
        port: InputPort,
        epoch: u64,
        reader: Box<JobReader>,
        health: Arc<SourceStats>,
    },
    /// End the readers of a step.
    CloseReaders(usize),
    /// The generation is the current one.
    Publish(Arc<NumberedGeneration>),
    AnswerReload(Sender<ReloadOutcome>, ReloadOutcome),
    /// Go back to an earlier generation.
    RollBack(RollBackRequest),
    ReadStore(StoreRequest),
    Run(BatchTask),
    /// Keep only these versions of steps set up.
    KeepVersions(Vec<LiveVersion>),
    /// These claimed jobs have left the store.
    EndClaims(Vec<ParkedId>),
    /// Check whether the gate of a step is open.
    LookAtGate {
        step: DeclaredStep,
        /// Installation of the step that asks.
        epoch: u64,
    },
    /// Poll the status of pending jobs.
    AskStatus(StatusQuery),
    Commit(CommitRequest),
    /// Start or end the command of a source.
    Command(CommandOrder),
    /// End the run.
    Finish(RunOutcome),
}

/// Batch for the next idle worker.
#[derive(Debug)]
pub(crate) struct BatchTask {
    pub(crate) step: DeclaredStep,
    pub(crate) id: BatchId,
    pub(crate) work: BatchInput,
    /// Whether it runs in a pool beside the workers, because it may take long or block.
    pub(crate) pool: bool,
    /// Whether jobs of its step were slow, or are slow now.
    pub(crate) is_slow: bool,
}

/// Initial state of a coordinator.
pub(crate) struct CoordinatorInit {
    pub(crate) generation: Arc<NumberedGeneration>,
    /// Schedule sources, by the queues that they fill.
    pub(crate) tickers: Vec<(QueueRef, Ticker)>,
    /// Sources that are commands.
    pub(crate) commands: CommandSources,
    /// Due time of the first late job of each queue that has one.
    pub(crate) late: Vec<(QueueRef, Timestamp)>,
    pub(crate) tails: Arc<QueueCaches>,
    pub(crate) workers: usize,
    pub(crate) batch: BatchLimit,
    pub(crate) until_idle: bool,
    pub(crate) stats: Arc<Stats>,
}

pub(crate) mod command_orders;
pub(crate) mod command_sources;
pub(crate) mod commands;
pub(crate) mod commits;
pub(crate) mod completions;
pub(crate) mod error_watch;
pub(crate) mod failures;
pub(crate) mod gates;
pub(crate) mod handover;
pub(crate) mod keep;
pub(crate) mod late_jobs;
pub(crate) mod move_jobs;
pub(crate) mod pending;
pub(crate) mod queued;
pub(crate) mod schedules;
pub(crate) mod swap;
pub(crate) mod timers;
pub(crate) mod turns;
pub(crate) mod unmatched;

use self::error_watch::{RollBackRequest, WatchedReload};
use self::handover::Handover;
use self::swap::PendingReload;

pub(crate) struct Coordinator {
    /// Current generation.
    generation: Arc<NumberedGeneration>,
    dispatcher: Dispatcher,
    /// Installed steps.
    steps: Parts<StepState>,
    /// Steps whose pending jobs may have changed, or are polled.
    pending_steps: BTreeSet<usize>,
    /// Cancellations that wait until their step has given back its claimed jobs.
    awaiting_claims: Vec<(usize, PendingRequest)>,
    /// Steps on their way from one installation to the next, by position.
    handovers: BTreeMap<usize, Handover>,
    /// Reload whose number is not durable.
    swapping: Option<PendingReload>,
    /// Reloads that are not answered, because steps still hand over.
    reloads: Vec<PendingReload>,
    next_read: u64,
    next_epoch: u64,
    tails: Arc<QueueCaches>,
    /// Number of batches that will reach the committer without waiting for another batch.
    pub(crate) coming: Arc<AtomicUsize>,
    batch: BatchLimit,
    ticks: Schedules,
    commands: CommandSources,
    late: LateJobs,
    /// Whether the run ends when no work is left at the time.
    until_idle: bool,
    /// Time of the next retention sweep, if a queue has a maximum age.
    lets_go: Option<Timestamp>,
    /// Whether a stop was requested.
    stopping: bool,
    /// Whether the run waits for pushes; see [`Self::expect_pushes`].
    expects_pushes: bool,
    /// Number of requests that move jobs and are not committed. These jobs are not read meanwhile.
    moves_in_flight: usize,
    pub(crate) halts: Vec<Halt>,
    failures: FailureLog,
    /// Watch of the attempts after a reload.
    watched_reload: WatchedReload,
    /// Steps that have changed or are gone since the threads heard of that.
    live_versions: Vec<LiveVersion>,
    /// Stopped steps whose stop is not recorded yet.
    stops: Vec<StepStop>,
    stats: Arc<Stats>,
}

impl Coordinator {
    /// Creates a coordinator without steps.
    pub(crate) fn new(plan: CoordinatorInit) -> Self {
        let CoordinatorInit { generation, tickers, commands, late, tails, workers, batch, until_idle, stats } =
            plan;
        // Two batches a worker, so that no worker waits for the event loop, and as many again for those that
        // are being committed.
        let batches = 4 * workers + 4;
        let jobs = batches.saturating_mul(batch.jobs);
        let room = Bounds { slots: 2 * workers, beside: workers, batches, jobs, bytes: STEP_BYTES };
        Self {
            lets_go: timers::first_look(&generation.configuration),
            generation,
            dispatcher: Dispatcher::new(room, until_idle),
            steps: Parts::default(),
            pending_steps: BTreeSet::new(),
            awaiting_claims: Vec::new(),
            handovers: BTreeMap::new(),
            swapping: None,
            reloads: Vec::new(),
            next_read: 0,
            next_epoch: 0,
            tails,
            coming: Arc::default(),
            batch,
            ticks: Schedules::new(tickers),
            commands,
            late: LateJobs::new(late),
            until_idle,
            stopping: false,
            expects_pushes: false,
            moves_in_flight: 0,
            halts: Vec::new(),
            failures: FailureLog::default(),
            watched_reload: WatchedReload::default(),
            live_versions: Vec::new(),
            stops: Vec::new(),
            stats,
        }
    }

    /// Adds the first actions of the run.
    pub(crate) fn start(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        self.begin_to_watch(now);
        self.dispatcher.set_unbounded(self.is_unbounded());
        self.run_timers(now, actions);
        // Completions from before this run are delivered before the run may end.
        self.dispatcher.expect(true);
        let mut commands = Vec::new();
        self.dispatcher.start(now, &mut commands);
        self.execute_commands(commands, now, actions);
        self.drive_monitors(now, actions);
        self.update_expectation();
        let mut commands = Vec::new();
        self.dispatcher.handle(Event::Tick, now, &mut commands);
        self.execute_commands(commands, now, actions);
    }

    /// Time of the next [`Self::tick`].
    pub(crate) fn wakes(&self, now: Timestamp) -> Option<Timestamp> {
        let wakes = self.dispatcher.wakes().into_iter().chain(self.monitor_wakes(now));
        wakes
            .chain(self.next_timer())
            .chain(self.failures.wakes())
            .chain(self.reload_wakes())
            .chain(self.watched_reload.wakes())
            .min()
    }

    /// Time at which [`Self::tick`] has something to log, and nothing to decide.
    pub(crate) fn logs(&self) -> Option<Timestamp> {
        self.failures.reports_attempts()
    }

    /// Sets whether jobs will be pushed before the run may end. The next event has the effect.
    pub(crate) fn expect_pushes(&mut self, expects: bool) {
        self.expects_pushes = expects;
        self.update_expectation();
    }

    /// Handles the passing of time.
    pub(crate) fn tick(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        self.report_failures(now);
        self.watch_reload(ErrorWatchEvent::Tick, now, actions);
        self.answer_late_reloads(now, actions);
        self.run_timers(now, actions);
        let mut commands = Vec::new();
        self.dispatcher.handle(Event::Tick, now, &mut commands);
        self.execute_commands(commands, now, actions);
        self.drive_monitors(now, actions);
    }

    /// Handles one message.
    ///
    /// # Errors
    /// The committer has failed: the run is over.
    pub(crate) fn handle_message(
        &mut self,
        message: Message,
        now: Timestamp,
        actions: &mut Vec<Action>,
    ) -> Result<(), EngineError> {
        let mut commands = Vec::new();
        self.report_failures(now);
        self.run_timers(now, actions);
        match message {
            Message::Read { port, reader, fetched } if self.is_current_reader(port, reader) => {
                let event = match self.drop_moved_jobs(port, fetched) {
                    Some(fetched) => self.accept_read(port, fetched, now),
                    // A commit notice will have the new state of the job.
                    None if port.input == PortInput::Turn => None,
                    None => Some(Event::NoneDue { step: port.step, next: Some(now) }),
                };
                if let Some(event) = event {
                    self.dispatcher.handle(event, now, &mut commands);
                }
            }
            Message::Idle { port, reader } if self.is_current_reader(port, reader) => {
                self.dispatcher.handle(Event::Idle { port }, now, &mut commands);
            }
            Message::Ended { port, reader } if self.is_current_reader(port, reader) => {
                self.dispatcher.handle(Event::Ended { port }, now, &mut commands);
            }
            Message::Broken { port, reader, error } if self.is_current_reader(port, reader) => {
                self.halt(port.step, Chain(&error).to_string(), now);
                self.dispatcher.handle(Event::Broken { port }, now, &mut commands);
            }
            Message::NoneDue { port, reader, next } if self.is_current_reader(port, reader) => {
                let step = port.step;
                self.dispatcher.handle(Event::NoneDue { step, next }, now, &mut commands);
            }
            Message::Moved
            | Message::Read { .. }
            | Message::NoneDue { .. }
            | Message::Idle { .. }
            | Message::Ended { .. }
            | Message::Broken { .. } => {}
            Message::Gathered { step, id, gathered } => {
                if let Some(event) = self.on_jobs_fetched(step, id, gathered, now) {
                    self.dispatcher.handle(event, now, &mut commands);
                }
            }
            Message::Ran { step, version, id, mut ran } => {
                self.watch_attempts((step, version), &ran, now, actions);
                self.note_failed(step, std::mem::take(&mut ran.retried), now);
                self.note_held(step, &ran, now);
                if let Some(StartBlock { by: BlockCause::Setup { until }, .. }) = ran.held {
                    self.dispatcher.handle(Event::Hold { step, until }, now, &mut commands);
                }
                if let Some(event) = self.on_batch_finished(step, id, ran, now) {
                    self.dispatcher.handle(event, now, &mut commands);
                }
            }
            Message::WentAside { step, id } => {
                self.track_pending_commit(step, id, false);
                self.dispatcher.handle(Event::WentAside { step, batch: id }, now, &mut commands);
            }
            Message::GateResult { step, epoch, seen } => {
                if self.steps.get(step).is_none_or(|state| state.epoch != epoch) {
                    return Ok(());
                }
                let open = self.gate_seen(step, seen, now);
                self.dispatcher.handle(Event::Gate { step, open }, now, &mut commands);
            }
            Message::StatusResult { step, epoch, ask, seen } => self.status_seen(step, epoch, ask, seen, now),
            Message::Reload(request) => self.swap(request, now, actions),
            Message::Swapped(swapped) => self.swapped(swapped, now, &mut commands, actions),
            Message::Installed(step) => self.installed(*step, now, &mut commands, actions),
            Message::Committed(durable) => self.committed(durable, now, &mut commands, actions),
            Message::SinkBroken { step, error } => {
                self.halt(step, Chain(&*error).to_string(), now);
                self.dispatcher.handle(Event::Failed { step }, now, &mut commands);
            }
            Message::ThreadFailed(error) => return Err(error),
            Message::Arrived => actions.push(Action::Commit(CommitRequest::InboxReady)),
            // The caller may have gone away.
            Message::Inspect { step, reply } => _ = reply.send(self.inspect_queue(step)),
            Message::NotRolledBack { generation } => self.is_not_rolled_back(generation, now, actions),
            Message::Recorded(entry) => {
                actions.push(Action::Commit(CommitRequest::Reload(ReloadChange::Recorded(entry))));
            }
            Message::Linger { reply } => _ = reply.send(self.lingering()),
            Message::Payload { step, input, index, reply } => {
                _ = reply.send(self.payload(step, input, index));
            }
            Message::Count { lanes, reply } => _ = reply.send(self.count_all(lanes, now)),
            Message::Asked(asked) => self.accept_request(asked, now, &mut commands, actions),
            Message::CommandEnded(ended) => {
                self.command_ended(&ended, now, actions);
                self.dispatcher.handle(Event::Tick, now, &mut commands);
            }
            Message::Stop => {
                self.stopping = true;
                self.stop_commands(now, actions);
                self.dispatcher.handle(Event::Stop, now, &mut commands);
            }
        }
        self.take_up_requests(now, &mut commands, actions);
        // Before the batches of a new version.
        self.keep_versions(actions);
        self.execute_commands(commands, now, actions);
        self.keep_versions(actions);
        self.drive_monitors(now, actions);
        Ok(())
    }

    fn keep_versions(&mut self, actions: &mut Vec<Action>) {
        if !self.live_versions.is_empty() {
            actions.push(Action::KeepVersions(std::mem::take(&mut self.live_versions)));
        }
    }

    fn is_current_reader(&self, port: InputPort, reader: u64) -> bool {
        self.steps.get(port.step).is_some_and(|state| state.epoch == reader)
    }

    /// Handles a request of an operator or an external system.
    pub(crate) fn accept_request(
        &mut self,
        asked: PendingRequest,
        now: Timestamp,
        commands: &mut Vec<Command>,
        actions: &mut Vec<Action>,
    ) {
        let Some(asked) = self.wait_for_handover(asked) else { return };
        if let Request::DropRemoved { part } = &asked.request
            && let Some(step) = self.lingering_on(part)
        {
            return asked.answer(Err(format!(
                "step `{step}` still finishes earlier jobs: try again when `tidegate status` shows it no more"
            )));
        }
        match asked.request {
            Request::Poll { .. } => self.poll(&asked, now),
            Request::Complete { .. } => self.complete(asked, now, actions),
            Request::Replay { .. } | Request::Skip { .. } => self.replay(asked, now, commands),
            _ => {
                let Some(mut asked) = self.wait_for_claims(asked, now, commands) else { return };
                asked.restarts = self.restarts(&asked.request);
                if let Some(asked) = self.lock_rows_for_request(asked, now, commands) {
                    if asked.request.moves_jobs() {
                        self.moves_in_flight += 1;
                        self.update_expectation();
                    }
                    actions.push(Action::Commit(CommitRequest::Amend(asked)));
                }
            }
        }
    }

    fn accept_read(&mut self, port: InputPort, fetched: ReadBatch, now: Timestamp) -> Option<Event> {
        let state = self.steps.get_mut(port.step)?;
        let read = ReadId(self.next_read);
        self.next_read += 1;
        let batch = &fetched.batch;
        match &fetched.returned {
            Some(returned) => {
                state.returned.extend(returned.iter().map(|returned| returned.key.clone()));
            }
            None => {
                if let Some(input) = port.input.position() {
                    state.read_up_to[input] = batch.end();
                }
            }
        }
        let (first, jobs, bytes) = (batch.first, batch.len(), batch.payloads.byte_len());
        if state.is_queued() {
            self.enqueue_read(port, read, fetched, now);
        } else {
            state.reads.insert(read, fetched);
        }
        Some(Event::Read { port, read, first, jobs, bytes })
    }

    fn on_batch_finished(
        &mut self,
        step: usize,
        id: BatchId,
        ran: Box<BatchResult>,
        now: Timestamp,
    ) -> Option<Event> {
        if let (Some(halt_cause), Some(address)) = (&ran.halt, self.present_address(step)) {
            let (at, why) = describe(halt_cause, address);
            self.halt_at(step, Some((halt_cause.index, at)), why, now);
        }
        if ran.goes_back {
            return Some(Event::PutBack { step, batch: id });
        }
        let (taken, ending, bytes, took) = (ran.taken, ran.ending(), ran.byte_len(), ran.took);
        // The outcome of each job is needed for queued steps only.
        let is_queued = self.steps.get(step)?.is_queued();
        let ends = if is_queued { ran.ends.clone() } else { Vec::new() };
        // The batch may be blocked for long, and the committer must not wait for it.
        self.track_pending_commit(step, id, false);
        if let Some(held) = self.steps.get_mut(step)?.batches.get_mut(&id) {
            let ran = match *ran {
                // No job was taken, so the waiting job is the whole result.
                BatchResult { taken: 0, waits: Some(waits), .. } => waits,
                _ => ran,
            };
            if is_queued {
                held.ends.clone_from(&ran.ends);
            }
            held.ran = Some(ran);
        }
        Some(Event::Ran { step, batch: id, ran: BatchEnd { taken, ending, bytes, took, ends } })
    }

    fn halt(&mut self, step: usize, why: String, now: Timestamp) {
        self.halt_at(step, None, why, now);
    }

    /// The name that a step has now, also if it is of an earlier generation. `None`: its state is gone.
    fn present_address(&self, step: usize) -> Option<&Address> {
        let present = self.generation.configuration.steps.get(step).map(|step| &step.address);
        present.or_else(|| Some(&self.steps.get(step)?.declared.address))
    }

    /// `at`: the index of the halting job, and its description.
    fn halt_at(&mut self, step: usize, at: Option<(u64, String)>, why: String, now: Timestamp) {
        let whole = at.as_ref().map_or_else(|| why.clone(), |(_, at)| format!("{at}: {why}"));
        let Some(state) = self.steps.get_mut(step) else { return };
        let (is_queued, before) = (state.is_queued(), state.stats.halted());
        let index = at.as_ref().map(|(index, _)| *index);
        // Batches of a step in order run side by side. It stops at the first of their jobs, of which it may hear last.
        let first = state.halted_at.filter(|_| !is_queued && state.declared.inputs.len() == 1).zip(index);
        let precedes = first.is_some_and(|(first, index)| index < first);
        if first.is_some() && !precedes {
            return;
        }
        let is_cause = before.is_none() || precedes;
        let is_another = is_queued && index.is_some() && !is_cause;
        let replaced = before.map(|(_, why)| why).filter(|_| precedes);
        if is_cause {
            state.halted_at = index;
            state.stats.halt(whole.clone(), now);
        }
        let inputs = state.declared.inputs.clone();
        self.halts.retain(|halt| halt.position != Some(step) || Some(&halt.why) != replaced.as_ref());
        let Some(present) = self.present_address(step).cloned() else { return };
        let (position, step, since) = (Some(step), present, now);
        if is_another {
            // One line for each job that it had begun would hide the first.
            tracing::debug!(target: log_target::ENGINE, step = %step, "the step has stopped already: {whole}");
        } else {
            tracing::error!(target: log_target::ENGINE, step = %step, "the step stops: {whole}");
        }
        let input = if let [input] = &inputs[..] { Some(input.address.clone()) } else { None };
        if is_cause {
            let (index, at) = at.unzip();
            self.stops.push(StepStop { step: step.clone(), since, at, job: input.zip(index), why });
        }
        self.halts.push(Halt { step, position, why: whole });
    }

    /// Requests that the stops of steps be recorded.
    fn note_stops(&mut self, actions: &mut Vec<Action>) {
        let stops = self.stops.drain(..);
        actions.extend(stops.map(|stop| Action::Commit(CommitRequest::Stopped(stop))));
    }
}

/// Description of the halting job, and the reason for the halt as a sentence fragment.
fn describe(halt_cause: &HaltCause, step: &Address) -> (String, String) {
    let HaltCause { index, failure, halts, file } = halt_cause;
    let place = |(path, line): &(Arc<Path>, u64)| format!(" ({}:{line})", path.display());
    let file = file.as_ref().map_or_else(String::new, place);
    let resume = || format!("fix the cause, and go on with `tidegate step resume {step}`");
    let (why, way_out) = match halts {
        HaltReason::NoErrors => (
            "the step has no error queue for it, so progress stays before it",
            "name one with `errors = \"…\"`, or fix the cause; a reload or the next run goes on".to_owned(),
        ),
        HaltReason::Policy => (
            "the step stops at it because its retry policy has `then = \"halt\"`",
            "fix the script, or set `then = \"error-queue\"`; a reload or the next run goes on".to_owned(),
        ),
        HaltReason::Class => {
            ("the step stops at it because its retry policy has this kind of failure in `halt_on`", resume())
        }
        HaltReason::Code => ("its code stops the step at it", resume()),
        HaltReason::Run => ("progress stays before it", "fix this and run again".to_owned()),
    };
    (format!("job {index}{file}"), format!("{failure}; {why} ({way_out})"))
}
