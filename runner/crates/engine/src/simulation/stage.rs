//! Stage: simulates one run on one thread. Random choices replace the readers, the workers and the committer.
//! The run ends in order or with a crash.

pub(crate) mod committing;
pub(crate) mod looking_up;
pub(crate) mod opening;
pub(crate) mod reloading;
pub(crate) mod waiting;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;

use super::outcome::{Crash, Ended, Perils};
use super::workers::looks_up;
use super::world::World;
use crate::batch::budget::BatchBudget;
use crate::batch::input::ReadBatch;
use crate::commit::committer::Committer;
use crate::commit::request::{CommitRequest, StepChange};
use crate::coordinator::{Action, BatchTask, Coordinator};
use crate::error::{Chain, EngineError};
use crate::generation::current::CurrentGeneration;
use crate::operator::request::Request;
use crate::processor::monitor_protocol::StatusQuery;
use crate::report::ReloadOutcome;
use crate::runtime::message::Message;
use crate::runtime::readers::{StoreRequest, read_store};
use crate::step::declared::DeclaredStep;
use tidegate_components::job_log::JobReader;
use tidegate_components::source::{BatchLimit, Read};
use tidegate_config::Configuration;
use tidegate_dispatch::{DurabilityBarrier, InputPort, RunOutcome};
use tidegate_model::{Address, Clock as _};
use tidegate_store::{CrashGuard, Store};

/// Maximum number of moves of a run.
const MOVES_MAX: u64 = 200_000;
/// Milliseconds after which a batch has left its worker.
const LONG_MILLIS: u64 = 80;

/// Number of moves before a reload whose disk operations fail.
const RELOAD_AFTER: u64 = 60;

/// Next move.
#[derive(Clone, Copy, Debug)]
enum Move {
    /// The coordinator handles the next message.
    Hear,
    /// The coordinator handles the passing of time.
    Tick,
    ReadSource(usize),
    ReadStore,
    /// A worker starts the next batch.
    Start,
    /// A worker reports the result of its batch.
    Report(usize),
    Commit,
    /// A gate is checked.
    LookAtGate,
    /// A monitor answers.
    Answer(usize),
}

struct Stage<'w> {
    world: &'w mut World,
    configuration: Arc<Configuration>,
    store: Store,
    coordinator: Coordinator,
    committer: Committer,
    received: Receiver<Message>,
    batch: BatchLimit,
    workers: usize,
    current: CurrentGeneration,
    readers: BTreeMap<InputPort, (u64, JobReader)>,
    inbox: VecDeque<Message>,
    source_asks: Vec<InputPort>,
    store_asks: VecDeque<StoreRequest>,
    tasks: VecDeque<BatchTask>,
    ran: Vec<Message>,
    orders: VecDeque<CommitRequest>,
    gates: Vec<(DeclaredStep, u64)>,
    askings: Vec<StatusQuery>,
    /// Record of the claimed jobs that were begun.
    attempts: CrashGuard,
    /// Steps that have stopped, each with the generation of its name.
    halted: BTreeMap<Address, u64>,
    /// Whether a stop was requested.
    stopped: bool,
    /// Answer of the last reload.
    answer: Option<Receiver<ReloadOutcome>>,
    /// Disk operation from the next swap on that fails.
    swap_fails_from: Option<u64>,
    /// Number of moves since all external systems answer.
    calm_moves: u64,
    end: Option<RunOutcome>,
}

pub(crate) fn run(world: &mut World, perils: Perils) -> Result<Ended, Crash> {
    let mut stage = Stage::open(world)?;
    let outcome = stage.play(perils);
    let halted = stage.halted_steps();
    let Stage { world, committer, coordinator, attempts, .. } = stage;
    world.begun = Some(attempts.begun());
    // The disk is checked before the stage closes, because closing writes.
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
    for halt in &coordinator.halts {
        assert!(halt.why.contains("no error queue"), "{}: {}", halt.step, halt.why);
    }
    Ok(Ended { end, halted, asked: perils.requests > 0 })
}

impl Stage<'_> {
    fn play(&mut self, perils: Perils) -> Result<RunOutcome, Crash> {
        self.begin();
        self.world.effects.halting.clear();
        let opened = self.committer.open();
        self.committed(opened)?;
        self.start();
        let mut requests = perils.requests;
        for number in 0..MOVES_MAX {
            if let Some(end) = self.end {
                self.see_through()?;
                self.world.effects.assert_none_promised();
                return Ok(end);
            }
            if perils.dies_after == Some(number) {
                return Err(Crash);
            }
            if perils.stops_after == Some(number) {
                self.stop();
            }
            if let Some(waiting) = self.world.waiting.as_mut().filter(|_| perils.calms_after == Some(number))
            {
                waiting.calm_down();
            }
            if requests > 0 && self.world.dice.chance(4) {
                requests -= 1;
                self.ask();
            }
            if self.world.dice.chance(2) {
                let millis = self.world.dice.between(1, 8_000);
                self.world.clock.advance(i64::try_from(millis).unwrap());
            }
            if let Some(operation) = perils.reload_fails_from {
                if number == RELOAD_AFTER {
                    self.swap_fails_from = Some(operation);
                    self.reload()?;
                }
                if number > RELOAD_AFTER && self.is_reloaded() {
                    return Err(Crash);
                }
            }
            self.come();
            if perils.reload_fails_from.is_none() {
                self.reload_sometimes()?;
            }
            let moves = self.moves();
            let moves = if moves.is_empty() { self.sleep() } else { moves };
            assert!(
                !moves.is_empty(),
                "no move is left, and the run has not ended: {:#?}",
                self.world.plan.files
            );
            let next = *self.world.dice.pick(&moves);
            self.make(next)?;
            if self.world.disk.struck() {
                return Err(Crash);
            }
            self.world.listen();
        }
        panic!("the run does not end");
    }

    fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        if !self.inbox.is_empty() {
            moves.extend([Move::Hear, Move::Hear]);
        }
        if self.coordinator.wakes(self.world.clock.now()).is_some_and(|wakes| wakes <= self.world.clock.now())
        {
            moves.push(Move::Tick);
        }
        moves.extend((0..self.source_asks.len()).map(Move::ReadSource));
        if !self.store_asks.is_empty() {
            moves.push(Move::ReadStore);
        }
        if !self.tasks.is_empty() && self.ran.len() < self.workers {
            moves.push(Move::Start);
        }
        moves.extend((0..self.ran.len()).map(Move::Report));
        moves.extend(self.gates.iter().map(|_| Move::LookAtGate));
        moves.extend((0..self.askings.len()).map(Move::Answer));
        if !self.orders.is_empty() {
            moves.push(Move::Commit);
        }
        moves
    }

    /// Advances the clock to the next due time.
    fn sleep(&mut self) -> Vec<Move> {
        let Some(wakes) = self.coordinator.wakes(self.world.clock.now()) else { return self.idle() };
        self.world.clock.advance((wakes.0 - self.world.clock.now().0).max(0));
        vec![Move::Tick]
    }

    fn make(&mut self, next: Move) -> Result<(), Crash> {
        match next {
            Move::Hear => {
                let Some(message) = self.inbox.pop_front() else { return Ok(()) };
                self.hear(message)?;
            }
            Move::Tick => self.tick(),
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
            Move::Report(at) => {
                let message = self.ran.swap_remove(at);
                self.inbox.push_back(message);
            }
            Move::Commit => self.commit()?,
            Move::LookAtGate => self.look_at_gate(),
            Move::Answer(at) => self.answer(at),
        }
        Ok(())
    }

    fn hear(&mut self, message: Message) -> Result<(), Crash> {
        let (now, mut actions) = (self.world.clock.now(), Vec::new());
        let heard = self.before(Some(&message));
        if let Message::Ran { step, ran, .. } = &message
            && ran.halt.is_some()
            && let Some(step) = self.committer.committed_state.step(*step)
        {
            // A rename may be durable that the coordinator has not heard of.
            let step = self.present(&step.declared);
            self.world.effects.halting.insert(step);
        }
        let current = self.current.get().number;
        let taken_in = self.coordinator.handle_message(message, now, &mut actions);
        taken_in.map_err(|error| self.world.expected(&error))?;
        self.after(&heard);
        let halts = &self.coordinator.halts;
        self.halted.retain(|step, _| halts.iter().any(|halt| halt.step == *step));
        for halt in halts {
            // A step of an earlier generation has its name of then.
            let committed = halt.position.and_then(|step| self.committer.committed_state.step(step));
            let declared = committed.map(|step| &step.declared).filter(|step| step.address == halt.step);
            let generation = declared.map_or(current, |step| step.generation.number);
            self.halted.entry(halt.step.clone()).or_insert(generation);
        }
        let next = self.current.get().number + 1;
        for step in self.halted_steps() {
            self.world.effects.forget(&step);
            // Any change of it starts it again.
            self.world.planned.expect(&step, next);
        }
        self.carry_out(actions);
        Ok(())
    }

    fn tick(&mut self) {
        let mut actions = Vec::new();
        let heard = self.before(None);
        let now = self.world.clock.now();
        self.coordinator.tick(now, &mut actions);
        let wakes = self.coordinator.wakes(now);
        assert!(
            !actions.is_empty() || wakes.is_none_or(|wakes| wakes > now),
            "the run takes all time of a processor: it wakes at {wakes:?} again"
        );
        self.after(&heard);
        self.carry_out(actions);
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            self.ordered(&action);
            match action {
                Action::ReadSource(port) => self.source_asks.push(port),
                Action::OpenReader { port, epoch, reader, .. } => {
                    self.readers.insert(port, (epoch, *reader));
                }
                Action::CloseReaders(step) => {
                    self.source_asks.retain(|port| port.step != step);
                    self.readers.retain(|port, _| port.step != step);
                }
                Action::Publish(generation) => self.current.set(generation),
                Action::AnswerReload(reply, outcome) => _ = reply.send(outcome),
                Action::ReadStore(ask) => self.store_asks.push_back(ask),
                Action::Run(task) => {
                    if let Some(waiting) = &mut self.world.waiting {
                        waiting.begins(&task);
                    }
                    self.tasks.push_back(task);
                }
                Action::EndClaims(claims) => self.attempts.end_claimed(&claims),
                Action::LookAtGate { step, epoch } => self.gates.push((step, epoch)),
                Action::AskStatus(asking) => self.askings.push(asking),
                Action::Commit(order) => {
                    if let CommitRequest::Enter(StepChange::Begin(begin)) = &order
                        && begin.rows.len() > 1
                    {
                        self.world.tally.claimed_together += begin.rows.len() as u64;
                    }
                    if let CommitRequest::Enter(StepChange::Begin(begin)) = &order
                        && begin.before == DurabilityBarrier::Progress
                    {
                        let step = self.present(&begin.step);
                        self.world.effects.promise(&step, &begin.jobs);
                    }
                    self.orders.push_back(order);
                }
                // Its configurations have no commands and no error watch.
                Action::Command(_) | Action::RollBack(_) | Action::KeepVersions(_) => {}
                Action::Finish(end) => self.end = Some(end),
            }
        }
    }

    fn read_source(&mut self, port: InputPort) {
        let Some((number, reader)) = self.readers.get_mut(&port) else { return };
        let number = *number;
        self.inbox.push_back(match reader.read(self.batch).unwrap() {
            Read::Batch(read) => {
                let (mark, segments) = (read.mark, read.segments);
                let fetched = ReadBatch { mark, segments, ..ReadBatch::new(read.batch) };
                Message::Read { port, reader: number, fetched }
            }
            Read::End | Read::Idle | Read::Busy => Message::Ended { port, reader: number },
        });
    }

    fn start_task(&mut self) {
        let Some(BatchTask { step, id, work, pool, .. }) = self.tasks.pop_front() else { return };
        let names = self.committer.committed_state.names.since(step.generation.number);
        let (retries, named) = self.world.effects.attempt(step.configuration(), &step, names, &work);
        self.world.tally.retries += retries;
        self.world.history.attempts(&names.step(&step.address), named);
        let now = self.world.clock.now();
        // Sometimes a batch takes long, or is cut.
        let World { dice, .. } = &mut *self.world;
        let jobs = if dice.chance(30) { 1 + dice.below(4) } else { usize::MAX };
        let took = if dice.chance(30) { dice.between(0, 100) } else { 0 };
        if let Some(jobs) = &mut self.world.jobs {
            jobs.attempt(step.configuration(), &step, &work, now);
        }
        if let Some(waiting) = &mut self.world.waiting {
            waiting.attempt(&mut self.world.dice, (&step, id, &work), jobs, now.0);
        }
        let clock = Arc::clone(&self.world.clock);
        let budget = BatchBudget::played(jobs, Duration::from_millis(took));
        let table = self.world.plan.table.as_ref().filter(|_| looks_up(&step));
        let rows = table.map(|queue| looking_up::rows(queue, &self.store));
        let worker = self.world.workers.get(&step, &self.store, &self.current.tables);
        worker.set_budget(budget);
        let ran = Box::new(worker.run(&work, &mut self.attempts.slot(), &*clock));
        if let Some(rows) = rows {
            self.world.tally.found += looking_up::check(&step, &ran, &rows);
        }
        if !pool && took >= LONG_MILLIS {
            self.inbox.push_back(Message::WentAside { step: step.position, id });
        }
        self.ran.push(Message::Ran { step: step.position, version: step.version, id, ran });
    }

    /// Present names of the steps that have stopped.
    fn halted_steps(&self) -> BTreeSet<Address> {
        let names = &self.committer.committed_state.names;
        self.halted.iter().map(|(step, generation)| names.since(*generation).step(step)).collect()
    }

    /// Name that the step has now.
    pub(crate) fn present(&self, step: &DeclaredStep) -> Address {
        self.committer.committed_state.names.since(step.generation.number).step(&step.address)
    }

    fn ask(&mut self) {
        let World { dice, requests, history, joins, .. } = &mut *self.world;
        if let Some(joins) = joins {
            return self.inbox.extend(joins.think(dice).map(Message::Asked));
        }
        let Some(request) = requests.think(dice, history, &self.configuration) else { return };
        if let Request::Replay { step, .. } = &request {
            history.replayed.insert(step.clone());
        }
        let asked = requests.ask(request);
        self.inbox.push_back(Message::Asked(asked));
    }
}

impl World {
    /// Turns an expected failure into a crash.
    fn expected(&self, error: &EngineError) -> Crash {
        assert!(self.disk.struck(), "{}", Chain(error));
        Crash
    }
}
