//! One run on one thread: plays the readers, the workers and the committer, and lets chance decide who
//! is next. Ends in order, or in the middle of something.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;

use super::world::World;
use crate::config::{Configuration, Input, SinkKind, SourceRef};
use crate::decide::{Before, End, Port};
use crate::engine::committer::Committer;
use crate::engine::delivery::{Entry, Order};
use crate::engine::error::{Chain, EngineError};
use crate::engine::floor::{Action, Floor, Plan, Task};
use crate::engine::held::Fetched;
use crate::engine::ledger::Ledger;
use crate::engine::message::Message;
use crate::engine::push::Inbox;
use crate::engine::readers::{StoreAsk, read_store};
use crate::engine::request::Request;
use crate::engine::sinks::Sinks;
use crate::engine::start::{self, Started};
use crate::engine::stats::Stats;
use crate::engine::tail::Tails;
use crate::hands::sink::{Sink, StdoutWriter};
use crate::hands::source::{BatchLimit, Read, Reader, Source};
use crate::store::{Attempts, Store, open_disk};
use crate::words::{Address, Clock as _};

/// More moves than this are a run that does not end.
const MOVES_MAX: u64 = 200_000;

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Move {
    /// The floor takes in the next message.
    Hear,
    /// It is told that time has passed.
    Tick,
    ReadSource(usize),
    ReadStore,
    /// A worker begins with the next batch.
    Start,
    /// A worker tells what became of its batch.
    Tell(usize),
    Commit,
}

/// How a run ended, if it was no crash.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) end: End,
    pub(super) halted: Vec<Address>,
    /// Something was asked of it, which may have been granted when it was about to end.
    pub(super) asked: bool,
}

/// The process has died.
#[derive(Debug)]
pub(super) struct Crash;

/// What may befall a run besides failures of the disk.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Perils {
    /// It dies after so many moves.
    pub(super) dies_after: Option<u64>,
    /// Somebody asks it to stop after so many.
    pub(super) stops_after: Option<u64>,
    /// Somebody asks something of it so many times.
    pub(super) requests: usize,
}

struct Stage<'w> {
    world: &'w mut World,
    configuration: Arc<Configuration>,
    store: Store,
    floor: Floor,
    committer: Committer,
    told: Receiver<Message>,
    batch: BatchLimit,
    workers: usize,
    generation: u64,
    sources: Vec<Option<Source>>,
    readers: BTreeMap<Port, (u64, Reader)>,
    inbox: VecDeque<Message>,
    source_asks: Vec<Port>,
    store_asks: VecDeque<StoreAsk>,
    tasks: VecDeque<Task>,
    ran: Vec<Message>,
    orders: VecDeque<Order>,
    end: Option<End>,
}

pub(super) fn run(world: &mut World, perils: Perils) -> Result<Ended, Crash> {
    let mut stage = Stage::open(world)?;
    let outcome = stage.play(perils);
    let Stage { world, committer, floor, .. } = stage;
    // The disk is looked at before anything is closed, since closing writes.
    let Ok(end) = outcome else {
        world.die();
        return Err(Crash);
    };
    match committer.close() {
        Ok(writer) => drop(writer),
        Err(error) => _ = world.expected(&error),
    }
    if world.disk.struck() {
        world.die();
        return Err(Crash);
    }
    world.rest();
    for halt in &floor.halts {
        assert!(halt.why.contains("no error queue"), "{}: {}", halt.step, halt.why);
    }
    let halted = floor.halts.iter().map(|halt| halt.step.clone()).collect();
    Ok(Ended { end, halted, asked: perils.requests > 0 })
}

impl<'w> Stage<'w> {
    fn open(world: &'w mut World) -> Result<Self, Crash> {
        let opened = Self::try_open(world);
        opened.map_err(|(world, error)| {
            let crash = world.expected(&error);
            world.die();
            crash
        })
    }

    fn try_open(world: &'w mut World) -> Result<Self, (&'w mut World, EngineError)> {
        let configuration = Arc::clone(&world.configuration);
        let (store, writer) = match open_disk(Box::new(world.disk.clone())) {
            Ok(opened) => opened,
            Err(error) => return Err((world, error.into())),
        };
        let mut started = match start::start(&configuration, &store, world.clock.now()) {
            Ok(started) => started,
            Err(error) => return Err((world, error)),
        };
        assert!(started.halts.is_empty(), "{:?}", started.halts);
        world.print_to(&mut started);
        let Started {
            progress,
            snapshots,
            heads,
            flows,
            tickers,
            sources,
            readers,
            sinks,
            marks,
            segments,
            ..
        } = started;
        world.tally.again += flows.iter().map(|flow| flow.redo.len() as u64).sum::<u64>();
        let batch = BatchLimit { jobs: 1 + world.dice.below(8), bytes: 1 + world.dice.below(2000) };
        let workers = 1 + world.dice.below(3);
        let tails = Arc::new(Tails::new(configuration.queues.len()));
        let stats = Arc::new(Stats::new(configuration.steps.len(), world.clock.now()));
        let mut floor = Floor::new(Plan {
            configuration: Arc::clone(&configuration),
            flows,
            tickers,
            heads: heads.clone(),
            tails: Arc::clone(&tails),
            workers,
            batch,
            until_idle: false,
            stats: Arc::clone(&stats),
        });
        if let Err(error) = start::recall(&mut floor, &configuration, &store, world.clock.now()) {
            return Err((world, error));
        }
        let (messages, told) = crossbeam_channel::unbounded();
        let configured = Arc::clone(&configuration);
        let committer = Committer {
            writer,
            store: store.clone(),
            attempts: Attempts::none(),
            opening: started.opening,
            ledger: Ledger { configuration: configured, progress, snapshots, heads, marks, segments },
            sinks: Sinks::new(Arc::clone(&configuration), sinks),
            broken_steps: BTreeSet::new(),
            inbox: Arc::new(Inbox::new(configuration.queues.len())),
            tails,
            stats,
            // What took a process down is a matter of real processes.
            clock: Arc::clone(&world.clock) as Arc<_>,
            coming: Arc::clone(&floor.coming),
            retry_after: Duration::ZERO,
            messages,
            // Nobody makes room on a full disk: the run ends there.
            stop: crossbeam_channel::bounded(0).1,
        };
        Ok(Self {
            readers: readers.into_iter().map(|(port, reader)| (port, (0, reader))).collect(),
            generation: started.generation,
            world,
            configuration,
            store,
            floor,
            committer,
            told,
            batch,
            workers,
            sources,
            inbox: VecDeque::new(),
            source_asks: Vec::new(),
            store_asks: VecDeque::new(),
            tasks: VecDeque::new(),
            ran: Vec::new(),
            orders: VecDeque::new(),
            end: None,
        })
    }

    fn play(&mut self, perils: Perils) -> Result<End, Crash> {
        let opened = self.committer.open();
        self.committed(opened)?;
        let mut actions = Vec::new();
        self.floor.start(self.world.clock.now(), &mut actions);
        self.carry_out(actions);
        let mut requests = perils.requests;
        for number in 0..MOVES_MAX {
            if let Some(end) = self.end {
                self.world.effects.assert_none_promised();
                return Ok(end);
            }
            if perils.dies_after == Some(number) {
                return Err(Crash);
            }
            if perils.stops_after == Some(number) {
                self.inbox.push_back(Message::Stop);
            }
            if requests > 0 && self.world.dice.chance(4) {
                requests -= 1;
                self.ask();
            }
            if self.world.dice.chance(2) {
                let millis = self.world.dice.between(1, 8_000);
                self.world.clock.advance(i64::try_from(millis).unwrap());
            }
            let moves = self.moves();
            let moves = if moves.is_empty() { self.sleep() } else { moves };
            assert!(!moves.is_empty(), "nothing can happen any more, and the run is not over");
            let next = *self.world.dice.pick(&moves);
            self.make(next)?;
            if self.world.disk.struck() {
                return Err(Crash);
            }
            self.world.requests.listen();
        }
        panic!("the run does not end");
    }

    fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        if !self.inbox.is_empty() {
            moves.extend([Move::Hear, Move::Hear]);
        }
        if self.floor.wakes(self.world.clock.now()).is_some_and(|wakes| wakes <= self.world.clock.now()) {
            moves.push(Move::Tick);
        }
        moves.extend((0..self.source_asks.len()).map(Move::ReadSource));
        if !self.store_asks.is_empty() {
            moves.push(Move::ReadStore);
        }
        if !self.tasks.is_empty() && self.ran.len() < self.workers {
            moves.push(Move::Start);
        }
        moves.extend((0..self.ran.len()).map(Move::Tell));
        if !self.orders.is_empty() {
            moves.push(Move::Commit);
        }
        moves
    }

    /// Nothing happens until something is due.
    fn sleep(&mut self) -> Vec<Move> {
        let Some(wakes) = self.floor.wakes(self.world.clock.now()) else { return Vec::new() };
        self.world.clock.advance((wakes.0 - self.world.clock.now().0).max(0));
        vec![Move::Tick]
    }

    fn make(&mut self, next: Move) -> Result<(), Crash> {
        match next {
            Move::Hear => {
                let Some(message) = self.inbox.pop_front() else { return Ok(()) };
                let mut actions = Vec::new();
                let now = self.world.clock.now();
                self.floor
                    .take_in(message, now, &mut actions)
                    .map_err(|error| self.world.expected(&error))?;
                for halt in &self.floor.halts {
                    self.world.effects.forget(&halt.step);
                }
                self.carry_out(actions);
            }
            Move::Tick => {
                let mut actions = Vec::new();
                self.floor.tick(self.world.clock.now(), &mut actions);
                self.carry_out(actions);
            }
            Move::ReadSource(at) => {
                let port = self.source_asks.swap_remove(at);
                self.read_source(port);
            }
            Move::ReadStore => {
                let Some(ask) = self.store_asks.pop_front() else { return Ok(()) };
                let answer = read_store(&self.store, self.batch, &ask, self.world.clock.now());
                self.inbox.extend(answer);
            }
            Move::Start => self.start_task(),
            Move::Tell(at) => {
                let message = self.ran.swap_remove(at);
                self.inbox.push_back(message);
            }
            Move::Commit => self.commit()?,
        }
        Ok(())
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::ReadSource(port) => self.source_asks.push(port),
                Action::ReopenSource { port, reader, next } => self.reopen(port, reader, next),
                Action::ReadStore(ask) => self.store_asks.push_back(ask),
                Action::Run(task) => self.tasks.push_back(task),
                Action::LookAtGate(_) => unreachable!("no step has a gate"),
                Action::AskStatus(_) => unreachable!("no step has a monitor"),
                Action::Commit(order) => {
                    if let Order::Enter(Entry::Begin(begin)) = &order
                        && begin.before == Before::Progress
                    {
                        let step = &self.configuration.steps[begin.step].address;
                        self.world.effects.promise(step, begin.id, &begin.jobs);
                    }
                    self.orders.push_back(order);
                }
                Action::Finish(end) => self.end = Some(end),
            }
        }
    }

    fn read_source(&mut self, port: Port) {
        let Some((number, reader)) = self.readers.get_mut(&port) else { return };
        let number = *number;
        self.inbox.push_back(match reader.read(self.batch).unwrap() {
            Read::Batch(read) => {
                let (mark, segments) = (read.mark, read.segments);
                let fetched = Fetched { mark, segments, ..Fetched::new(read.batch) };
                Message::Read { port, reader: number, fetched }
            }
            Read::End | Read::Idle => Message::Ended { port, reader: number },
        });
    }

    fn reopen(&mut self, port: Port, number: u64, next: u64) {
        self.source_asks.retain(|asked| *asked != port);
        let Input::Source(SourceRef(source)) = self.configuration.steps[port.step].inputs[port.input].input
        else {
            return;
        };
        let address = &self.configuration.sources[source].address;
        let Ok(mark) = self.store.mark(address, next) else { return };
        let reader = self.sources[source].as_ref().unwrap().reader(next, mark);
        self.readers.insert(port, (number, reader));
    }

    fn start_task(&mut self) {
        let Some(Task { step, id, work, .. }) = self.tasks.pop_front() else { return };
        self.world.effects.attempt(&self.configuration, step, id, &work);
        let now = self.world.clock.now();
        if let Some(jobs) = &mut self.world.jobs {
            jobs.attempt(&self.configuration, &self.configuration.steps[step], &work, now);
        }
        let clock = Arc::clone(&self.world.clock);
        let worker = self.world.workers.get(&self.configuration, step, self.generation, &self.store);
        let ran = Box::new(worker.run(&work, &mut Attempts::none().slot(), &*clock));
        self.ran.push(Message::Ran { step, id, ran });
    }

    fn commit(&mut self) -> Result<(), Crash> {
        let most = 1 + self.world.dice.below(4);
        let mut group = Vec::new();
        while group.len() < most {
            match self.orders.pop_front() {
                Some(Order::Enter(entry)) => group.push(entry),
                Some(Order::Amend(asked)) if group.is_empty() => {
                    let amended = self.committer.amend(&asked);
                    return self.committed(amended);
                }
                Some(Order::LetGo) if group.is_empty() => {
                    let let_go = self.committer.let_go();
                    return self.committed(let_go);
                }
                Some(order) => {
                    self.orders.push_front(order);
                    break;
                }
                None => break,
            }
        }
        for entry in &group {
            if let Entry::Rewind(rewind) = entry {
                self.world.effects.forget(&self.configuration.steps[rewind.step].address);
            }
        }
        let committed = self.committer.commit(group, Vec::new(), Vec::new());
        self.committed(committed)
    }

    /// Looks at what a commit has made durable.
    fn committed(&mut self, outcome: Result<(), EngineError>) -> Result<(), Crash> {
        outcome.map_err(|error| self.world.expected(&error))?;
        if self.world.disk.struck() {
            return Err(Crash);
        }
        while let Ok(message) = self.told.try_recv() {
            if let Message::Committed(durable) = &message {
                for (step, id, _) in &durable.delivered {
                    self.world.effects.delivered(&self.configuration.steps[*step].address, *id);
                }
            }
            self.inbox.push_back(message);
        }
        let seen = self.world.history.observe(&self.store);
        seen.map_err(|error| self.world.expected(&error.into()))
    }

    fn ask(&mut self) {
        let World { dice, requests, history, .. } = &mut *self.world;
        let Some(request) = requests.think(dice, history, &self.configuration) else { return };
        if let Request::Replay { step, .. } = &request {
            history.replayed.insert(step.clone());
        }
        let asked = requests.ask(request);
        self.inbox.push_back(Message::Asked(asked));
    }
}

impl World {
    /// A failure that was to be expected is a crash.
    fn expected(&self, error: &EngineError) -> Crash {
        assert!(self.disk.struck(), "{}", Chain(error));
        Crash
    }

    /// Has what goes to standard output kept.
    fn print_to(&mut self, started: &mut Started) {
        for (sink, declared) in started.sinks.iter_mut().zip(&self.configuration.sinks) {
            if let SinkKind::Stdout(format) = declared.kind {
                let printed = self.effects.printed.entry(declared.address.clone()).or_default();
                *sink = Sink::Stdout(StdoutWriter::new(Box::new(printed.clone()), format));
            }
        }
    }
}
