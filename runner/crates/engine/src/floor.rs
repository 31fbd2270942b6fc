//! What stands between the dispatcher and the threads: takes in what those tell, feeds the dispatcher
//! with it, and says what they shall do. Does no I/O and knows no thread, so that a test can be the
//! threads.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::delivery::Order;
use super::error::{Chain, EngineError};
use super::held::{Fetched, Work};
use super::in_flight::Held;
use super::message::Message;
use super::readers::StoreAsk;
use super::report::Halt;
use super::request::Asked;
use super::request::Request;
use super::result::{Halts, Hindrance, Ran, Stumble};
use super::shelf::Shelf;
use super::stats::{ClosedBy, Stats};
use super::status::Asking;
use super::tail::Tails;
use super::ticks::Ticks;
use tidegate_components::source::BatchLimit;
use tidegate_config::{Configuration, QueueRef, Step};
use tidegate_dispatch::{
    BatchEnd, BatchId, Bounds, Dispatcher, End, Event, FailureLog, Flow, Port, ReadId, Ticker, Turn,
};
use tidegate_model::Timestamp;
use tidegate_model::log_target;
use tidegate_store::{DelayedKey, Stop};

/// Bytes that one step may hold between reading and committing, inputs and outputs together.
const STEP_BYTES: usize = 8 << 20;

/// Something for the threads to do.
#[derive(Debug)]
pub(crate) enum Action {
    /// Have the reader of a source read on.
    ReadSource(Port),
    /// Put another reader in the place of that of a source, which starts at this index.
    ReopenSource {
        port: Port,
        reader: u64,
        next: u64,
    },
    ReadStore(StoreAsk),
    Run(Task),
    /// See whether the gate of a step is open.
    LookAtGate(usize),
    /// Find out how pending jobs stand.
    AskStatus(Asking),
    Commit(Order),
    /// The run is over.
    Finish(End),
}

/// A batch for whichever worker is free.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) step: usize,
    pub(crate) id: BatchId,
    pub(crate) work: Work,
    /// It may take long, and shall take no worker from others.
    pub(crate) aside: bool,
}

/// What a floor starts from.
pub(crate) struct Plan {
    pub(crate) configuration: Arc<Configuration>,
    pub(crate) flows: Vec<Flow>,
    /// The schedule sources, by the queues that they fill.
    pub(crate) tickers: Vec<(QueueRef, Ticker)>,
    pub(crate) heads: Vec<u64>,
    pub(crate) tails: Arc<Tails>,
    pub(crate) workers: usize,
    pub(crate) batch: BatchLimit,
    pub(crate) until_idle: bool,
    pub(crate) stats: Arc<Stats>,
}

mod amending;
mod asking;
mod carrying;
mod completing;
mod failing;
mod gates;
mod monitoring;
mod passing;
mod picking;
mod settling;
mod turns;

use monitoring::{Watch, watches};

pub(crate) struct Floor {
    configuration: Arc<Configuration>,
    dispatcher: Dispatcher,
    reads: HashMap<ReadId, Fetched>,
    next_read: u64,
    held: HashMap<BatchId, Held>,
    /// By step and input: the first index that it has not read.
    read_up_to: Vec<Vec<u64>>,
    /// By step and input: which reader of it is listened to.
    readers: Vec<Vec<u64>>,
    /// By step: where the jobs stand that wait for their next attempt in their turn.
    turns: Vec<BTreeMap<Turn, DelayedKey>>,
    /// By step: jobs that came again and are on their way.
    returned: Vec<BTreeSet<DelayedKey>>,
    /// By step: jobs that came again until somebody moved them, and whether that is over: what was read
    /// before may still bring them.
    moved: Vec<BTreeMap<DelayedKey, bool>>,
    /// By step: the jobs that wait to be picked; `None` where jobs are taken as they come.
    shelves: Vec<Option<Shelf>>,
    tails: Arc<Tails>,
    /// How many batches are on their way to the committer, without anything before that they wait for.
    pub(crate) coming: Arc<AtomicUsize>,
    batch: BatchLimit,
    /// By step: where it shall go on, and who wants that.
    rewinds: HashMap<usize, (Vec<u64>, Asked)>,
    ticks: Ticks,
    /// When queues are looked at next for jobs that are too old, if any may have some.
    lets_go: Option<Timestamp>,
    /// Nothing more is started in this run.
    stopping: bool,
    pub(crate) halts: Vec<Halt>,
    failures: FailureLog,
    /// Steps that have stopped, and are not written down yet.
    stops: Vec<Stop>,
    stats: Arc<Stats>,
    /// By step: its pending jobs; `None` where it takes jobs as they come.
    watches: Vec<Option<Watch>>,
}

impl Floor {
    pub(crate) fn new(plan: Plan) -> Self {
        let Plan { configuration, flows, tickers, heads, tails, workers, batch, until_idle, stats } = plan;
        // Two batches a worker, so that none waits for the dispatcher; per step as many again for
        // those that are being committed.
        let batches = 4 * workers + 4;
        let jobs = batches.saturating_mul(batch.jobs);
        let room = Bounds { slots: 2 * workers, batches, jobs, bytes: STEP_BYTES };
        let lets_go = passing::first_look(&configuration);
        let inputs = flows.iter().map(|flow| flow.inputs.iter().map(|input| input.next).collect());
        Self {
            read_up_to: inputs.collect(),
            readers: flows.iter().map(|flow| vec![0; flow.inputs.len() + 2]).collect(),
            turns: flows.iter().map(|_| BTreeMap::new()).collect(),
            returned: flows.iter().map(|_| BTreeSet::new()).collect(),
            moved: flows.iter().map(|_| BTreeMap::new()).collect(),
            shelves: shelves(&configuration),
            watches: watches(&configuration),
            dispatcher: Dispatcher::new(flows, heads, room, until_idle),
            configuration,
            reads: HashMap::new(),
            next_read: 0,
            held: HashMap::new(),
            tails,
            coming: Arc::default(),
            batch,
            rewinds: HashMap::new(),
            ticks: Ticks::new(tickers),
            lets_go,
            stopping: false,
            halts: Vec::new(),
            failures: FailureLog::default(),
            stops: Vec::new(),
            stats,
        }
    }

    /// Takes out the steps that cannot begin.
    pub(crate) fn without(mut self, halts: Vec<(usize, String)>, now: Timestamp) -> Self {
        for (step, why) in halts {
            if !self.dispatcher.is_halted(step) {
                self.halt(step, why, now);
                self.dispatcher.exclude(step);
            }
        }
        self
    }

    /// The first things to do.
    pub(crate) fn start(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        self.pass(now, actions);
        // What the outside has said before this run is delivered before anything is over.
        self.dispatcher.expect(true);
        let mut commands = Vec::new();
        self.dispatcher.start(now, &mut commands);
        self.carry_out(commands, now, actions);
        self.look_after(now, actions);
        self.dispatcher.expect(self.ticks.are_behind());
        let mut commands = Vec::new();
        self.dispatcher.handle(Event::Tick, now, &mut commands);
        self.carry_out(commands, now, actions);
    }

    /// When it wants to be told that time has passed.
    pub(crate) fn wakes(&self, now: Timestamp) -> Option<Timestamp> {
        let wakes = self.dispatcher.wakes(now).into_iter().chain(self.monitor_wakes(now));
        wakes.chain(self.passes()).chain(self.failures.wakes()).min()
    }

    /// Has a step start nothing from the beginning on.
    pub(crate) fn pause(&mut self, step: usize) {
        self.dispatcher.pause(step);
    }

    /// Takes note that time has passed.
    pub(crate) fn tick(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        self.report_failures(now);
        self.pass(now, actions);
        let mut commands = Vec::new();
        self.dispatcher.handle(Event::Tick, now, &mut commands);
        self.carry_out(commands, now, actions);
        self.look_after(now, actions);
    }

    /// Takes in what a thread tells.
    ///
    /// # Errors
    /// When the committer has failed: the run is over.
    pub(crate) fn take_in(
        &mut self,
        message: Message,
        now: Timestamp,
        actions: &mut Vec<Action>,
    ) -> Result<(), EngineError> {
        let mut commands = Vec::new();
        self.report_failures(now);
        self.pass(now, actions);
        match message {
            Message::Read { port, reader, fetched } if self.listens(port, reader) => {
                let event = match self.without_moved(port, fetched) {
                    Some(fetched) => Some(self.hold(port, fetched, now)),
                    // What becomes of it is told when that is known.
                    None if self.is_turn(port) => None,
                    None => Some(Event::NoneDue { step: port.step, next: Some(now) }),
                };
                if let Some(event) = event {
                    self.dispatcher.handle(event, now, &mut commands);
                }
            }
            Message::Idle { port, reader } if self.listens(port, reader) => {
                self.dispatcher.handle(Event::Idle { port }, now, &mut commands);
            }
            Message::Ended { port, reader } if self.listens(port, reader) => {
                self.dispatcher.handle(Event::Ended { port }, now, &mut commands);
            }
            Message::Broken { port, reader, error } if self.listens(port, reader) => {
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
                if let Some(event) = self.gathered(step, id, gathered, now) {
                    self.dispatcher.handle(event, now, &mut commands);
                }
            }
            Message::Ran { step, id, ran } => {
                self.note_held(step, &ran, now);
                if let Some(Hindrance { by: ClosedBy::Setup { until }, .. }) = ran.held {
                    self.dispatcher.handle(Event::Hold { step, until }, now, &mut commands);
                }
                let event = self.take_ran(step, id, ran, now);
                self.dispatcher.handle(event, now, &mut commands);
            }
            Message::GateSeen { step, seen } => {
                let open = self.gate_seen(step, seen, now);
                self.dispatcher.handle(Event::Gate { step, open }, now, &mut commands);
            }
            Message::StatusSeen { step, ask, seen } => self.status_seen(step, ask, seen, now),
            Message::Committed(durable) => self.committed(durable, now, &mut commands, actions),
            Message::Refused { step, error } => {
                self.halt(step, Chain(&*error).to_string(), now);
                self.dispatcher.handle(Event::Failed { step }, now, &mut commands);
            }
            Message::CommitterFailed(error) => return Err(error),
            Message::Arrived => actions.push(Action::Commit(Order::Arrived)),
            // Who asked may have gone away.
            Message::Look { step, reply } => _ = reply.send(self.sight(step)),
            Message::Payload { step, input, index, reply } => {
                _ = reply.send(self.payload(step, input, index));
            }
            Message::Glance { lanes, reply } => _ = reply.send(self.glances(lanes, now)),
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
        self.carry_out(commands, now, actions);
        self.look_after(now, actions);
        Ok(())
    }

    fn listens(&self, port: Port, reader: u64) -> bool {
        self.readers[port.step][port.input] == reader
    }

    fn hold(&mut self, port: Port, fetched: Fetched, now: Timestamp) -> Event {
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
        if self.shelves[port.step].is_some() {
            self.shelve(port, read, fetched, now);
        } else {
            self.reads.insert(read, fetched);
        }
        Event::Read { port, read, first, jobs, bytes }
    }

    fn take_ran(&mut self, step: usize, id: BatchId, ran: Box<Ran>, now: Timestamp) -> Event {
        if let Some(stumble) = &ran.halt {
            let (at, why) = describe(stumble);
            self.halt_at(step, Some((stumble.index, at)), why, now);
        }
        if ran.goes_back {
            return Event::PutBack { step, batch: id };
        }
        let (taken, ending, bytes, took) = (ran.taken, ran.ending(), ran.byte_len(), ran.took);
        // A batch of jobs that are taken as they come tells nothing of each.
        let ends = if self.shelves[step].is_some() { ran.ends.clone() } else { Vec::new() };
        // It may be held back for long, and nobody shall wait for it.
        self.comes(id, false);
        if let Some(held) = self.held.get_mut(&id) {
            held.ends.clone_from(&ends);
            held.ran = Some(match *ran {
                // Nothing was taken: what waits is all that there is of it.
                Ran { taken: 0, waits: Some(waits), .. } => waits,
                _ => ran,
            });
        }
        Event::Ran { step, batch: id, ran: BatchEnd { taken, ending, bytes, took, ends } }
    }

    /// Whether the port is that of the jobs that come again in their turn.
    fn is_turn(&self, port: Port) -> bool {
        port.input > self.configuration.steps[port.step].inputs.len()
    }

    fn halt(&mut self, step: usize, why: String, now: Timestamp) {
        self.halt_at(step, None, why, now);
    }

    /// `at`: the index of the job that is in the way, and what people call it.
    fn halt_at(&mut self, step: usize, at: Option<(u64, String)>, why: String, now: Timestamp) {
        let whole = at.as_ref().map_or_else(|| why.clone(), |(_, at)| format!("{at}: {why}"));
        self.stats.steps[step].halt(whole.clone(), now);
        let Step { address, inputs, .. } = &self.configuration.steps[step];
        let (step, since) = (address.clone(), now);
        tracing::error!(target: log_target::ENGINE, step = %step, "the step stops: {whole}");
        let input = if let [input] = &inputs[..] { Some(input.address.clone()) } else { None };
        let (index, at) = at.unzip();
        self.stops.push(Stop { step: step.clone(), since, at, job: input.zip(index), why });
        self.halts.push(Halt { step, why: whole });
    }

    /// Has what has stopped written down.
    fn note_stops(&mut self, actions: &mut Vec<Action>) {
        let stops = self.stops.drain(..);
        actions.extend(stops.map(|stop| Action::Commit(Order::Stopped(stop))));
    }
}

/// The job that halts its step, with everything that helps to find it, and why it does, as a sentence
/// fragment.
fn describe(stumble: &Stumble) -> (String, String) {
    let Stumble { index, failure, halts, file } = stumble;
    let place = |(path, line): &(Arc<Path>, u64)| format!(" ({}:{line})", path.display());
    let file = file.as_ref().map_or_else(String::new, place);
    let (why, way_out) = match halts {
        Halts::NoErrors => (
            "the step has no error queue to put it on, so progress stays before it",
            "name one with `errors = \"…\"`, or mend the job or the script, and run again",
        ),
        Halts::Policy => (
            "the step stops at it, as `then = \"halt\"` of its retry policy says",
            "mend the job or the script, and run again; with `then = \"error-queue\"` it would be set aside",
        ),
        Halts::Run => ("progress stays before it", "run again when that is mended"),
    };
    (format!("job {index}{file}"), format!("{failure}; {why} ({way_out})"))
}

fn shelves(configuration: &Configuration) -> Vec<Option<Shelf>> {
    let shelf = |step: &Step| step.picks().map(|queuer| Shelf::new(configuration, step, &queuer));
    configuration.steps.iter().map(shelf).collect()
}
