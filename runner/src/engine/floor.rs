//! What stands between the dispatcher and the threads: takes in what those tell, feeds the dispatcher
//! with it, and says what they shall do. Does no I/O and knows no thread, so that a test can be the
//! threads.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::delivery::{Begin, Delivery, Entry, Order, Rewind};
use super::error::{Chain, EngineError};
use super::held::{Fetched, Held, Portion, Work};
use super::message::{Durable, Message};
use super::readers::{StoreAsk, Wanted};
use super::report::Halt;
use super::request::{Asked, Granted, Request};
use super::shelf::Shelf;
use super::stats::Stats;
use super::status::Asking;
use super::tail::Tails;
use super::ticks::Ticks;
use super::work::{Ran, Stumble};
use crate::config::{Configuration, Input, QueueRef, Step};
use crate::decide::{BatchId, Before, Bounds, Command, Dispatcher, End, Event, Flow, Port, ReadId, Ticker};
use crate::hands::source::BatchLimit;
use crate::store::DelayedKey;
use crate::words::Timestamp;

/// Bytes that one step may hold between reading and committing, inputs and outputs together.
const STEP_BYTES: usize = 8 << 20;

/// Something for the threads to do.
#[derive(Debug)]
pub(super) enum Action {
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
pub(super) struct Task {
    pub(super) step: usize,
    pub(super) id: BatchId,
    pub(super) work: Work,
    /// It may take long, and shall take no worker from others.
    pub(super) aside: bool,
}

/// What a floor starts from.
pub(super) struct Plan {
    pub(super) configuration: Arc<Configuration>,
    pub(super) flows: Vec<Flow>,
    /// The schedule sources, by the queues that they fill.
    pub(super) tickers: Vec<(QueueRef, Ticker)>,
    pub(super) heads: Vec<u64>,
    pub(super) tails: Arc<Tails>,
    pub(super) workers: usize,
    pub(super) batch: BatchLimit,
    pub(super) until_idle: bool,
    pub(super) stats: Arc<Stats>,
}

mod amending;
mod completing;
mod gates;
mod monitoring;
mod passing;
mod picking;

use monitoring::{Watch, watches};

pub(super) struct Floor {
    configuration: Arc<Configuration>,
    dispatcher: Dispatcher,
    reads: HashMap<ReadId, Fetched>,
    next_read: u64,
    held: HashMap<BatchId, Held>,
    /// By step and input: the first index that it has not read.
    read_up_to: Vec<Vec<u64>>,
    /// By step and input: which reader of it is listened to.
    readers: Vec<Vec<u64>>,
    /// By step: jobs that came again and are on their way.
    returned: Vec<BTreeSet<DelayedKey>>,
    /// By step: jobs that came again until somebody moved them, and whether that is over: what was read
    /// before may still bring them.
    moved: Vec<BTreeMap<DelayedKey, bool>>,
    /// By step: the jobs that wait to be picked; `None` where jobs are taken as they come.
    shelves: Vec<Option<Shelf>>,
    tails: Arc<Tails>,
    /// How many batches are on their way to the committer, without anything before that they wait for.
    pub(super) coming: Arc<AtomicUsize>,
    batch: BatchLimit,
    /// By step: where it shall go on, and who wants that.
    rewinds: HashMap<usize, (Vec<u64>, Asked)>,
    ticks: Ticks,
    /// When queues are looked at next for jobs that are too old, if any may have some.
    lets_go: Option<Timestamp>,
    /// Nothing more is started in this run.
    stopping: bool,
    pub(super) halts: Vec<Halt>,
    stats: Arc<Stats>,
    /// By step: its pending jobs; `None` where it takes jobs as they come.
    watches: Vec<Option<Watch>>,
}

impl Floor {
    pub(super) fn new(plan: Plan) -> Self {
        let Plan { configuration, flows, tickers, heads, tails, workers, batch, until_idle, stats } = plan;
        // Two batches a worker, so that none waits for the dispatcher; per step as many again for
        // those that are being committed.
        let room = Bounds { slots: 2 * workers, batches: 4 * workers + 4, bytes: STEP_BYTES };
        let lets_go = passing::first_look(&configuration);
        let inputs = flows.iter().map(|flow| flow.inputs.iter().map(|input| input.next).collect());
        Self {
            read_up_to: inputs.collect(),
            readers: flows.iter().map(|flow| vec![0; flow.inputs.len() + 1]).collect(),
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
            stats,
        }
    }

    /// Takes out the steps that cannot begin.
    pub(super) fn without(mut self, halts: Vec<(usize, String)>) -> Self {
        for (step, why) in halts {
            if !self.dispatcher.is_halted(step) {
                self.halt(step, why);
                self.dispatcher.exclude(step);
            }
        }
        self
    }

    /// The first things to do.
    pub(super) fn start(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
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
    pub(super) fn wakes(&self, now: Timestamp) -> Option<Timestamp> {
        self.dispatcher.wakes(now).into_iter().chain(self.monitor_wakes(now)).chain(self.passes()).min()
    }

    /// Has a step start nothing from the beginning on.
    pub(super) fn pause(&mut self, step: usize) {
        self.dispatcher.pause(step);
    }

    /// Takes note that time has passed.
    pub(super) fn tick(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
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
    pub(super) fn take_in(
        &mut self,
        message: Message,
        now: Timestamp,
        actions: &mut Vec<Action>,
    ) -> Result<(), EngineError> {
        let mut commands = Vec::new();
        self.pass(now, actions);
        match message {
            Message::Read { port, reader, fetched } if self.listens(port, reader) => {
                let event = match self.without_moved(port.step, fetched) {
                    Some(fetched) => self.hold(port, fetched, now),
                    None => Event::NoneDue { step: port.step, next: Some(now) },
                };
                self.dispatcher.handle(event, now, &mut commands);
            }
            Message::Idle { port, reader } if self.listens(port, reader) => {
                self.dispatcher.handle(Event::Idle { port }, now, &mut commands);
            }
            Message::Ended { port, reader } if self.listens(port, reader) => {
                self.dispatcher.handle(Event::Ended { port }, now, &mut commands);
            }
            Message::Broken { port, reader, error } if self.listens(port, reader) => {
                self.halt(port.step, Chain(&error).to_string());
                self.dispatcher.handle(Event::Broken { port }, now, &mut commands);
            }
            Message::NoneDue { step, next } => {
                self.dispatcher.handle(Event::NoneDue { step, next }, now, &mut commands);
            }
            Message::Read { .. } | Message::Idle { .. } | Message::Ended { .. } | Message::Broken { .. } => {}
            Message::Gathered { step, id, gathered } => {
                if let Some(event) = self.gathered(step, id, gathered) {
                    self.dispatcher.handle(event, now, &mut commands);
                }
            }
            Message::Ran { step, id, ran } => {
                self.note_held(step, &ran, now);
                let event = self.take_ran(step, id, ran);
                self.dispatcher.handle(event, now, &mut commands);
            }
            Message::GateSeen { step, seen } => {
                let open = self.gate_seen(step, seen, now);
                self.dispatcher.handle(Event::Gate { step, open }, now, &mut commands);
            }
            Message::StatusSeen { step, ask, seen } => self.status_seen(step, ask, seen, now),
            Message::Committed(durable) => self.committed(durable, now, &mut commands, actions),
            Message::Refused { step, error } => {
                self.halt(step, Chain(&*error).to_string());
                self.dispatcher.handle(Event::Failed { step }, now, &mut commands);
            }
            Message::CommitterFailed(error) => return Err(error),
            Message::Arrived => actions.push(Action::Commit(Order::Arrived)),
            // Who asked may have gone away.
            Message::Look { step, reply } => _ = reply.send(self.sight(step)),
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

    fn take_ran(&mut self, step: usize, id: BatchId, ran: Box<Ran>) -> Event {
        if let Some(stumble) = &ran.halt {
            self.halt(step, describe(stumble));
        }
        let (taken, halts, bytes) = (ran.taken, ran.halt.is_some(), ran.byte_len());
        let ends = ran.ends.clone();
        if let Some(held) = self.held.get_mut(&id) {
            held.ends.clone_from(&ends);
            held.ran = Some(ran);
        }
        Event::Ran { step, batch: id, taken, halts, bytes, ends }
    }

    fn committed(
        &mut self,
        durable: Durable,
        now: Timestamp,
        commands: &mut Vec<Command>,
        actions: &mut Vec<Action>,
    ) {
        let Durable { begun, delivered, rewound, grown, returned, ticked, moved, paused, told } = durable;
        if !ticked.is_empty() {
            for &(queue, jobs) in &ticked {
                self.ticks.committed(queue, jobs);
            }
            self.pass(now, actions);
            self.dispatcher.expect(self.ticks.are_behind());
        }
        for (queue, head) in grown {
            self.dispatcher.handle(Event::Grew { queue, head }, now, commands);
        }
        for (step, row, job) in returned {
            self.stands(step, &row, &job, now);
            self.dispatcher.handle(Event::Returned { step, due: row.due }, now, commands);
        }
        for (step, batch, rows) in begun {
            if self.shelves[step].is_some() {
                self.begun(step, batch, rows);
            } else {
                self.comes(batch, true);
            }
            self.dispatcher.handle(Event::Begun { step, batch }, now, commands);
        }
        for (step, batch, stays) in delivered {
            let held = self.held.remove(&batch);
            if let (Some(held), Some(_)) = (&held, &self.shelves[step]) {
                self.settle_picked(step, held, stays, now);
            } else if let Some(due) = stays.iter().map(|stays| stays.row.due).min() {
                self.dispatcher.handle(Event::Returned { step, due }, now, commands);
            }
            if let Some(held) = held {
                self.forget_returned(step, &held.work);
            }
            self.dispatcher.handle(Event::Committed { step, batch }, now, commands);
        }
        if let Some(moves) = moved {
            self.moved(moves, now, commands);
        }
        if let Some((step, paused)) = paused {
            self.dispatcher.handle(Event::Pause { step, paused }, now, commands);
        }
        if let Some(telling) = told {
            let step = telling.step;
            if let Some(due) = self.told(*telling, now) {
                self.dispatcher.handle(Event::Returned { step, due }, now, commands);
            }
        }
        for (step, next) in rewound {
            self.rewound((step, &next), now, commands, actions);
        }
        if !ticked.is_empty() {
            self.dispatcher.handle(Event::Tick, now, commands);
        }
    }

    fn forget_returned(&mut self, step: usize, work: &Work) {
        for portion in &work.portions {
            let returned = portion.returned.iter().flat_map(|all| &all[portion.skip..][..portion.jobs]);
            for returned in returned {
                self.returned[step].remove(&returned.key);
            }
        }
    }

    fn asked(
        &mut self,
        asked: Asked,
        now: Timestamp,
        commands: &mut Vec<Command>,
        actions: &mut Vec<Action>,
    ) {
        let Request::Replay { step: address, from } = &asked.request else {
            if let Some(asked) = self.hold_back(asked, now, commands) {
                actions.push(Action::Commit(Order::Amend(asked)));
            }
            return;
        };
        let step = self.configuration.steps.iter().position(|step| step.address == *address);
        let next = step.map(|step| {
            let at = |input: &crate::config::InputRef| {
                from.iter().find(|(address, _)| *address == input.address).map(|&(_, index)| index)
            };
            // What is on its way is not accounted for yet, so where the others are is known later.
            let inputs = self.configuration.steps[step].inputs.iter();
            (step, inputs.map(|input| at(input).unwrap_or(u64::MAX)).collect())
        });
        match next {
            None => asked.answer(Err(format!("the runner has no step `{address}`"))),
            Some((step, _)) if self.shelves[step].is_some() => {
                asked.answer(Err(format!(
                    "step `{address}` picks its jobs by a queuer, and can be put back only while no runner runs it: stop the runner, replay, and start it again"
                )));
            }
            Some((step, _)) if self.rewinds.contains_key(&step) => {
                asked.answer(Err(format!("step `{address}` is being put back already")));
            }
            Some((step, next)) => {
                self.rewinds.insert(step, (next, asked));
                self.dispatcher.handle(Event::Rewind { step }, now, commands);
            }
        }
    }

    fn rewound(
        &mut self,
        (step, next): (usize, &[u64]),
        now: Timestamp,
        commands: &mut Vec<Command>,
        actions: &mut Vec<Action>,
    ) {
        let configuration = Arc::clone(&self.configuration);
        let inputs = &configuration.steps[step].inputs;
        for (input, (declared, &next)) in inputs.iter().zip(next).enumerate() {
            self.read_up_to[step][input] = next;
            if let Input::Source(_) = declared.input {
                let port = Port { step, input };
                self.readers[step][input] += 1;
                actions.push(Action::ReopenSource { port, reader: self.readers[step][input], next });
            }
        }
        if let Some((_, asked)) = self.rewinds.remove(&step) {
            let from = inputs.iter().zip(next).map(|(input, &next)| (input.address.clone(), next));
            asked.answer(Ok(Granted::Replayed { from: from.collect() }));
        }
        self.dispatcher.rewound(step, next, now, commands);
    }

    fn carry_out(&mut self, commands: Vec<Command>, now: Timestamp, actions: &mut Vec<Action>) {
        let mut waiting = VecDeque::from(commands);
        let mut more = Vec::new();
        while let Some(command) = waiting.pop_front() {
            match command {
                Command::Read { port, from } => {
                    if let Some(event) = self.read(port, from, now, actions) {
                        self.dispatcher.handle(event, now, &mut more);
                        waiting.extend(more.drain(..));
                    }
                }
                Command::Part { batch, port, read, skip, jobs } => self.part(batch, port, read, skip, jobs),
                Command::Pick { step, batch, jobs } => {
                    if let Some(event) = self.pick(step, batch, jobs, actions) {
                        self.dispatcher.handle(event, now, &mut more);
                        waiting.extend(more.drain(..));
                    }
                }
                Command::LookAtGate { step } => actions.push(Action::LookAtGate(step)),
                Command::Passed { step, watermark } => {
                    if let Some(shelf) = &mut self.shelves[step] {
                        shelf.forget_up_to(watermark);
                    }
                }
                Command::Forget { read } => {
                    if self.reads.remove(&read).is_none() {
                        self.shelves.iter_mut().flatten().for_each(|shelf| shelf.forget(read));
                    }
                }
                Command::Begin { step, batch, before } => {
                    self.comes(batch, false);
                    let Some(held) = self.held.get_mut(&batch) else { continue };
                    let jobs = held.work.first(held.work.jobs);
                    let places = std::mem::take(&mut held.places);
                    let rows = if self.shelves[step].is_some() && before == Before::Snapshot {
                        let work = held.work.clone();
                        self.begun_rows(step, &work, now)
                    } else {
                        Vec::new()
                    };
                    let begin = Begin { step, id: batch, before, jobs, rows, places };
                    actions.push(Action::Commit(Order::Enter(Entry::Begin(begin))));
                }
                Command::Run { step, batch } => {
                    let Some(held) = self.held.get(&batch) else { continue };
                    let aside = self.shelves[step].as_ref().is_some_and(|shelf| shelf.aside);
                    actions.push(Action::Run(Task { step, id: batch, work: held.work.clone(), aside }));
                }
                Command::Commit { step, batch, taken } => self.commit(step, batch, taken, actions),
                Command::Drop { batch } => {
                    self.comes(batch, false);
                    self.held.remove(&batch);
                }
                Command::Rewind { step } => {
                    let next = self.rewinds.get(&step).map(|(next, _)| next.clone()).unwrap_or_default();
                    let rewind = Rewind { step, next };
                    actions.push(Action::Commit(Order::Enter(Entry::Rewind(rewind))));
                }
                Command::Finish(end) => actions.push(Action::Finish(end)),
            }
        }
    }

    fn part(&mut self, batch: BatchId, port: Port, read: ReadId, skip: usize, jobs: usize) {
        let Some(fetched) = self.reads.get_mut(&read) else { return };
        let held = self.held.entry(batch).or_default();
        // As many of each input; they are counted with the first.
        if held.work.portions.first().is_none_or(|portion| portion.input == port.input) {
            held.work.jobs += jobs;
        }
        held.work.portions.push(Portion {
            input: port.input,
            batch: Arc::clone(&fetched.batch),
            skip,
            jobs,
            returned: fetched.returned.clone(),
        });
        // The first batch that has to do with a read says where it stands.
        let (mark, segments) = (fetched.mark.take(), std::mem::take(&mut fetched.segments));
        if mark.is_some() || !segments.is_empty() {
            held.places.push((port.input, mark, segments));
        }
        self.comes(batch, true);
    }

    /// Takes note whether a batch is on its way to the committer; that one waits for more as long as
    /// more is coming.
    fn comes(&mut self, batch: BatchId, coming: bool) {
        let Some(held) = self.held.get_mut(&batch) else { return };
        match (std::mem::replace(&mut held.coming, coming), coming) {
            (false, true) => _ = self.coming.fetch_add(1, Ordering::AcqRel),
            (true, false) => _ = self.coming.fetch_sub(1, Ordering::AcqRel),
            _ => {}
        }
    }

    fn commit(&mut self, step: usize, batch: BatchId, taken: usize, actions: &mut Vec<Action>) {
        // Before it is sent.
        self.comes(batch, false);
        let Some(held) = self.held.get_mut(&batch) else { return };
        let Some(ran) = held.ran.take() else { return };
        let Ran { outputs, errors, delayed, outcomes, settles, counters, .. } = *ran;
        let delivery = Delivery {
            step,
            id: batch,
            jobs: held.jobs(taken),
            outputs,
            errors,
            delayed,
            outcomes,
            settles,
            counters,
            bytes: held.work.byte_len(),
            places: std::mem::take(&mut held.places),
        };
        actions.push(Action::Commit(Order::Enter(Entry::Delivery(Box::new(delivery)))));
    }

    /// Has jobs read; those that are in memory are there at once.
    fn read(&mut self, port: Port, from: u64, now: Timestamp, actions: &mut Vec<Action>) -> Option<Event> {
        let reader = self.readers[port.step][port.input];
        let step = &self.configuration.steps[port.step];
        let queue = match step.inputs.get(port.input).map(|input| input.input) {
            None => {
                let (step, but) = (step.address.clone(), self.not_again(port.step));
                let what = Wanted::Returned { step, but };
                actions.push(Action::ReadStore(StoreAsk { port, reader, what, picks: false }));
                return None;
            }
            Some(Input::Source(_)) => {
                actions.push(Action::ReadSource(port));
                return None;
            }
            Some(Input::Queue(queue)) => queue,
        };
        let Some(batch) = self.tails.read(queue.0, from, self.batch.jobs, self.batch.bytes) else {
            let queue = self.configuration.queues[queue.0].address.clone();
            let (what, picks) = (Wanted::Queue { queue, from }, self.shelves[port.step].is_some());
            actions.push(Action::ReadStore(StoreAsk { port, reader, what, picks }));
            return None;
        };
        let end = batch.end();
        let fetched = Fetched { batch, mark: None, segments: Vec::new(), returned: None };
        let event = self.hold(port, fetched, now);
        self.forget_tail(queue, port, end);
        Some(event)
    }

    /// Lets go of the part of a tail that no reader will ask for again.
    fn forget_tail(&self, queue: QueueRef, port: Port, end: u64) {
        let readers = self.configuration.readers(Input::Queue(queue));
        let others = readers.filter(|&reader| reader != (port.step, port.input));
        let next = others.map(|(step, input)| self.read_up_to[step][input]).fold(end, u64::min);
        self.tails.forget(queue.0, next);
    }

    fn halt(&mut self, step: usize, why: String) {
        let step = self.configuration.steps[step].address.clone();
        tracing::error!(step = %step, "the step stops: {why}");
        self.halts.push(Halt { step, why });
    }
}

/// Why a job halts its step, in one sentence fragment with everything that helps to find it.
fn describe(stumble: &Stumble) -> String {
    let Stumble { index, failure, file } = stumble;
    let place = |(path, line): &(Arc<Path>, u64)| format!(" ({}:{line})", path.display());
    let file = file.as_ref().map_or_else(String::new, place);
    format!(
        "job {index}{file}: {failure}; the step has no error queue to put it on, so progress stays before it \
         (name one with `errors = \"…\"`, or mend the job or the script, and run again)"
    )
}

fn shelves(configuration: &Configuration) -> Vec<Option<Shelf>> {
    let shelf = |step: &Step| step.picks().map(|queuer| Shelf::new(configuration, step, &queuer));
    configuration.steps.iter().map(shelf).collect()
}
