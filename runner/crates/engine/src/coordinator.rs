//! Coordinator: translates thread messages into dispatcher events, and dispatcher commands into actions.
//!
//! It does no I/O and owns no threads, so tests can drive it directly.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use self::schedules::Schedules;
use super::error::{Chain, EngineError};
use super::report::Halt;
use crate::batch::input::{BatchInput, ReadBatch};
use crate::batch::result::{BatchResult, HaltCause, HaltReason, StartBlock};
use crate::commit::queue_cache::QueueCaches;
use crate::commit::request::{CommitRequest, RewindTo};
use crate::operator::request::PendingRequest;
use crate::operator::request::Request;
use crate::processor::monitor_protocol::StatusQuery;
use crate::runtime::message::Message;
use crate::runtime::readers::StoreRequest;
use crate::step::in_flight::InFlightBatch;
use crate::step::job_buffer::JobBuffer;
use crate::step::stats::{BlockCause, Stats};
use tidegate_components::source::BatchLimit;
use tidegate_config::{Configuration, QueueRef, Step};
use tidegate_dispatch::{
    BatchEnd, BatchId, Bounds, Dispatcher, Event, FailureLog, InputPort, ReadId, RunOutcome, StepPlan,
    Ticker, Turn,
};
use tidegate_model::Timestamp;
use tidegate_model::log_target;
use tidegate_store::{ParkedKey, StepStop};

/// Maximum bytes of one step between reading and committing, inputs and outputs together.
const STEP_BYTES: usize = 8 << 20;

/// Action for the threads.
#[derive(Debug)]
pub(crate) enum Action {
    /// Request the next batch of a source.
    ReadSource(InputPort),
    /// Replace the reader of a source by one that starts at this index.
    ReopenSource {
        port: InputPort,
        reader: u64,
        next: u64,
    },
    ReadStore(StoreRequest),
    Run(BatchTask),
    /// Check whether the gate of a step is open.
    LookAtGate(usize),
    /// Poll the status of pending jobs.
    AskStatus(StatusQuery),
    Commit(CommitRequest),
    /// End the run.
    Finish(RunOutcome),
}

/// Batch for the next idle worker.
#[derive(Debug)]
pub(crate) struct BatchTask {
    pub(crate) step: usize,
    pub(crate) id: BatchId,
    pub(crate) work: BatchInput,
    /// Whether it runs on the blocking pool, because it may block.
    pub(crate) pool: bool,
}

/// Initial state of a coordinator.
pub(crate) struct CoordinatorInit {
    pub(crate) configuration: Arc<Configuration>,
    pub(crate) flows: Vec<StepPlan>,
    /// Schedule sources, by the queues that they fill.
    pub(crate) tickers: Vec<(QueueRef, Ticker)>,
    pub(crate) heads: Vec<u64>,
    pub(crate) tails: Arc<QueueCaches>,
    pub(crate) workers: usize,
    pub(crate) batch: BatchLimit,
    pub(crate) until_idle: bool,
    pub(crate) stats: Arc<Stats>,
}

pub(crate) mod commands;
pub(crate) mod commits;
pub(crate) mod completions;
pub(crate) mod failures;
pub(crate) mod gates;
pub(crate) mod move_jobs;
pub(crate) mod pending;
pub(crate) mod queued;
pub(crate) mod replay;
pub(crate) mod schedules;
pub(crate) mod timers;
pub(crate) mod turns;

use self::pending::{PendingJobs, all_steps};

pub(crate) struct Coordinator {
    configuration: Arc<Configuration>,
    dispatcher: Dispatcher,
    reads: HashMap<ReadId, ReadBatch>,
    next_read: u64,
    held: HashMap<BatchId, InFlightBatch>,
    /// First index that is not read yet, by step and input.
    read_up_to: Vec<Vec<u64>>,
    /// Epoch of the current reader, by step and input.
    readers: Vec<Vec<u64>>,
    /// Keys of the parked jobs that keep their turn, by step.
    turns: Vec<BTreeMap<Turn, ParkedKey>>,
    /// Keys of the redelivered jobs in flight, by step.
    returned: Vec<BTreeSet<ParkedKey>>,
    /// Keys of redelivered jobs that a request moves, by step. The value is true once the move is over: an
    /// older read may still contain them.
    moved: Vec<BTreeMap<ParkedKey, bool>>,
    /// Job buffers of the queued steps; `None` for an ordered step.
    buffers: Vec<Option<JobBuffer>>,
    tails: Arc<QueueCaches>,
    /// Number of batches that will reach the committer without waiting for another batch.
    pub(crate) coming: Arc<AtomicUsize>,
    batch: BatchLimit,
    /// Requested start positions, by step, with the request to answer.
    rewinds: HashMap<usize, (Vec<RewindTo>, PendingRequest)>,
    ticks: Schedules,
    /// Time of the next retention sweep, if a queue has a maximum age.
    lets_go: Option<Timestamp>,
    /// Whether a stop was requested.
    stopping: bool,
    pub(crate) halts: Vec<Halt>,
    failures: FailureLog,
    /// Stopped steps whose stop is not recorded yet.
    stops: Vec<StepStop>,
    stats: Arc<Stats>,
    /// Pending jobs, by step; `None` for an ordered step.
    watches: Vec<Option<PendingJobs>>,
}

impl Coordinator {
    pub(crate) fn new(plan: CoordinatorInit) -> Self {
        let CoordinatorInit {
            configuration,
            flows,
            tickers,
            heads,
            tails,
            workers,
            batch,
            until_idle,
            stats,
        } = plan;
        // Two batches a worker, so that no worker waits for the event loop, and as many again for those that
        // are being committed.
        let batches = 4 * workers + 4;
        let jobs = batches.saturating_mul(batch.jobs);
        let room = Bounds { slots: 2 * workers, batches, jobs, bytes: STEP_BYTES };
        let lets_go = timers::first_look(&configuration);
        let inputs = flows.iter().map(|flow| flow.inputs.iter().map(|input| input.next).collect());
        Self {
            read_up_to: inputs.collect(),
            readers: flows.iter().map(|flow| vec![0; flow.inputs.len() + 2]).collect(),
            turns: flows.iter().map(|_| BTreeMap::new()).collect(),
            returned: flows.iter().map(|_| BTreeSet::new()).collect(),
            moved: flows.iter().map(|_| BTreeMap::new()).collect(),
            buffers: buffers(&configuration),
            watches: all_steps(&configuration),
            dispatcher: Dispatcher::new(flows, heads, room, until_idle),
            configuration,
            reads: HashMap::new(),
            next_read: 0,
            held: HashMap::new(),
            tails,
            coming: Arc::default(),
            batch,
            rewinds: HashMap::new(),
            ticks: Schedules::new(tickers),
            lets_go,
            stopping: false,
            halts: Vec::new(),
            failures: FailureLog::default(),
            stops: Vec::new(),
            stats,
        }
    }

    /// Excludes the steps that cannot start.
    pub(crate) fn without(mut self, halts: Vec<(usize, String)>, now: Timestamp) -> Self {
        for (step, why) in halts {
            if !self.dispatcher.is_halted(step) {
                self.halt(step, why, now);
                self.dispatcher.exclude(step);
            }
        }
        self
    }

    /// Adds the first actions of the run.
    pub(crate) fn start(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        self.run_timers(now, actions);
        // Completions from before this run are delivered before the run may end.
        self.dispatcher.expect(true);
        let mut commands = Vec::new();
        self.dispatcher.start(now, &mut commands);
        self.execute_commands(commands, now, actions);
        self.drive_monitors(now, actions);
        self.dispatcher.expect(self.ticks.are_behind());
        let mut commands = Vec::new();
        self.dispatcher.handle(Event::Tick, now, &mut commands);
        self.execute_commands(commands, now, actions);
    }

    /// Time of the next [`Self::tick`].
    pub(crate) fn wakes(&self, now: Timestamp) -> Option<Timestamp> {
        let wakes = self.dispatcher.wakes(now).into_iter().chain(self.monitor_wakes(now));
        wakes.chain(self.next_timer()).chain(self.failures.wakes()).min()
    }

    /// Pauses a step before the run starts.
    pub(crate) fn pause(&mut self, step: usize) {
        self.dispatcher.pause(step);
    }

    /// Handles the passing of time.
    pub(crate) fn tick(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        self.report_failures(now);
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
                    Some(fetched) => Some(self.accept_read(port, fetched, now)),
                    // A commit notice will have the new state of the job.
                    None if self.is_turn(port) => None,
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
            Message::NoneDue { step, next } => {
                self.dispatcher.handle(Event::NoneDue { step, next }, now, &mut commands);
            }
            Message::Moved
            | Message::Read { .. }
            | Message::Idle { .. }
            | Message::Ended { .. }
            | Message::Broken { .. } => {}
            Message::Gathered { step, id, gathered } => {
                if let Some(event) = self.on_jobs_fetched(step, id, gathered, now) {
                    self.dispatcher.handle(event, now, &mut commands);
                }
            }
            Message::Ran { step, id, ran } => {
                self.note_held(step, &ran, now);
                if let Some(StartBlock { by: BlockCause::Setup { until }, .. }) = ran.held {
                    self.dispatcher.handle(Event::Hold { step, until }, now, &mut commands);
                }
                let event = self.on_batch_finished(step, id, ran, now);
                self.dispatcher.handle(event, now, &mut commands);
            }
            Message::GateResult { step, seen } => {
                let open = self.gate_seen(step, seen, now);
                self.dispatcher.handle(Event::Gate { step, open }, now, &mut commands);
            }
            Message::StatusResult { step, ask, seen } => self.status_seen(step, ask, seen, now),
            Message::Committed(durable) => self.committed(durable, now, &mut commands, actions),
            Message::SinkBroken { step, error } => {
                self.halt(step, Chain(&*error).to_string(), now);
                self.dispatcher.handle(Event::Failed { step }, now, &mut commands);
            }
            Message::CommitterFailed(error) => return Err(error),
            Message::Arrived => actions.push(Action::Commit(CommitRequest::InboxReady)),
            // The caller may have gone away.
            Message::Inspect { step, reply } => _ = reply.send(self.inspect_queue(step)),
            Message::Payload { step, input, index, reply } => {
                _ = reply.send(self.payload(step, input, index));
            }
            Message::Count { lanes, reply } => _ = reply.send(self.count_all(lanes, now)),
            Message::Asked(asked) => match asked.request {
                Request::Poll { .. } => self.poll(&asked, now),
                Request::Complete { .. } => self.complete(asked, now, actions),
                _ => self.asked(asked, now, &mut commands, actions),
            },
            Message::Stop => {
                self.stopping = true;
                self.dispatcher.handle(Event::Stop, now, &mut commands);
            }
        }
        self.execute_commands(commands, now, actions);
        self.drive_monitors(now, actions);
        Ok(())
    }

    fn is_current_reader(&self, port: InputPort, reader: u64) -> bool {
        self.readers[port.step][port.input] == reader
    }

    fn accept_read(&mut self, port: InputPort, fetched: ReadBatch, now: Timestamp) -> Event {
        let read = ReadId(self.next_read);
        self.next_read += 1;
        let batch = &fetched.batch;
        match &fetched.returned {
            Some(returned) => {
                self.returned[port.step].extend(returned.iter().map(|returned| returned.key.clone()));
            }
            None => self.read_up_to[port.step][port.input] = batch.end(),
        }
        let (first, jobs, bytes) = (batch.first, batch.len(), batch.payloads.byte_len());
        if self.buffers[port.step].is_some() {
            self.enqueue_read(port, read, fetched, now);
        } else {
            self.reads.insert(read, fetched);
        }
        Event::Read { port, read, first, jobs, bytes }
    }

    fn on_batch_finished(
        &mut self,
        step: usize,
        id: BatchId,
        ran: Box<BatchResult>,
        now: Timestamp,
    ) -> Event {
        if let Some(halt_cause) = &ran.halt {
            let (at, why) = describe(halt_cause);
            self.halt_at(step, Some((halt_cause.index, at)), why, now);
        }
        if ran.goes_back {
            return Event::PutBack { step, batch: id };
        }
        let (taken, ending, bytes, took) = (ran.taken, ran.ending(), ran.byte_len(), ran.took);
        // The outcome of each job is needed for queued steps only.
        let ends = if self.buffers[step].is_some() { ran.ends.clone() } else { Vec::new() };
        // The batch may be blocked for long, and the committer must not wait for it.
        self.track_pending_commit(id, false);
        if let Some(held) = self.held.get_mut(&id) {
            held.ends.clone_from(&ends);
            held.ran = Some(match *ran {
                // No job was taken, so the waiting job is the whole result.
                BatchResult { taken: 0, waits: Some(waits), .. } => waits,
                _ => ran,
            });
        }
        Event::Ran { step, batch: id, ran: BatchEnd { taken, ending, bytes, took, ends } }
    }

    /// Whether this is the port of parked jobs that are read in their turn.
    fn is_turn(&self, port: InputPort) -> bool {
        port.input > self.configuration.steps[port.step].inputs.len()
    }

    fn halt(&mut self, step: usize, why: String, now: Timestamp) {
        self.halt_at(step, None, why, now);
    }

    /// `at`: the index of the halting job, and its description.
    fn halt_at(&mut self, step: usize, at: Option<(u64, String)>, why: String, now: Timestamp) {
        let whole = at.as_ref().map_or_else(|| why.clone(), |(_, at)| format!("{at}: {why}"));
        self.stats.step(step).halt(whole.clone(), now);
        let Step { address, inputs, .. } = &self.configuration.steps[step];
        let (step, since) = (address.clone(), now);
        tracing::error!(target: log_target::ENGINE, step = %step, "the step stops: {whole}");
        let input = if let [input] = &inputs[..] { Some(input.address.clone()) } else { None };
        let (index, at) = at.unzip();
        self.stops.push(StepStop { step: step.clone(), since, at, job: input.zip(index), why });
        self.halts.push(Halt { step, why: whole });
    }

    /// Requests that the stops of steps be recorded.
    fn note_stops(&mut self, actions: &mut Vec<Action>) {
        let stops = self.stops.drain(..);
        actions.extend(stops.map(|stop| Action::Commit(CommitRequest::Stopped(stop))));
    }
}

/// Description of the halting job, and the reason for the halt as a sentence fragment.
fn describe(halt_cause: &HaltCause) -> (String, String) {
    let HaltCause { index, failure, halts, file } = halt_cause;
    let place = |(path, line): &(Arc<Path>, u64)| format!(" ({}:{line})", path.display());
    let file = file.as_ref().map_or_else(String::new, place);
    let (why, way_out) = match halts {
        HaltReason::NoErrors => (
            "the step has no error queue for it, so progress stays before it",
            "name one with `errors = \"…\"`, or fix the job or the script, and run again",
        ),
        HaltReason::Policy => (
            "the step stops at it because its retry policy has `then = \"halt\"`",
            "fix the job or the script and run again, or set `then = \"error-queue\"`",
        ),
        HaltReason::Run => ("progress stays before it", "fix this and run again"),
    };
    (format!("job {index}{file}"), format!("{failure}; {why} ({way_out})"))
}

fn buffers(configuration: &Configuration) -> Vec<Option<JobBuffer>> {
    let buffer = |step: &Step| step.picks().map(|queuer| JobBuffer::new(configuration, step, queuer));
    configuration.steps.iter().map(buffer).collect()
}
