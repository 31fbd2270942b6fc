//! Ordered step: takes its jobs in the order of its inputs, in batches that are committed in order
//! ([`batches`]).
//!
//! This file has the state of the step, the handling of its events, and the requests to its readers.
//!
//! Failures do not change the order: a job that waits for its next attempt keeps its turn ([`held_line`]).
//! The jobs behind it may run, and are delivered after it.

use std::collections::{BTreeMap, VecDeque};

use super::input::{InputState, ReaderState, UnusedRead};
use crate::batch_size::Sizing;
use crate::counts::JobCounts;
use crate::protocol::{
    BatchComposition, BatchId, Bounds, Command, DurabilityBarrier, InputPlan, InputPort, PortInput, ReadId,
    RecoveredBatch, StepPlan, Turn, Wait,
};
use crate::step_machine::{DispatchContext, Mode, StepEvent, StepMachine, WorkerCapacity};
use tidegate_model::Timestamp;

pub(crate) mod batches;
pub(crate) mod held_line;

use self::held_line::Parked;
use batches::{OrderedBatch, Phase, RunPlace};

/// Maximum number of reads that an input may be ahead of the other inputs of the step.
const AHEAD_MAX: usize = 2;

#[derive(Debug)]
pub(crate) struct OrderedStep {
    position: usize,
    gather: BatchComposition,
    before: DurabilityBarrier,
    inputs: Vec<InputState>,
    /// Jobs that are redelivered out of order.
    returned: InputState,
    redo: VecDeque<RecoveredBatch>,
    /// Batches from the oldest on; out-of-order batches are among them.
    batches: VecDeque<OrderedBatch>,
    /// Jobs that wait in the store for their next attempt, in order. They go before all in-order batches.
    parked: BTreeMap<Turn, Parked>,
    /// First parked job, read again and in no batch yet: its read and its bytes.
    came: Option<(ReadId, usize)>,
    /// Time in which no in-order batch starts. The cause is a job whose gate is closed, or a setup that failed.
    held_back: Option<Wait>,
    sizing: Sizing,
    /// Bytes of all inputs and outputs that are read and not committed.
    held: usize,
    /// Time of the last event.
    now: Timestamp,
    /// The step takes no more jobs in this run: a job halted it, or a delivery failed.
    halted: bool,
    /// One of the readers failed.
    broken: bool,
    /// Jobs of an `at-most-once` step that were begun and not attempted are on their way back.
    gives_back: bool,
}

impl OrderedStep {
    pub(crate) fn new(position: usize, flow: StepPlan) -> Self {
        let input = |InputPlan { feed, next, finished }| InputState::with_finished(feed, next, finished);
        Self {
            position,
            gather: flow.gather,
            before: flow.before,
            inputs: flow.inputs.into_iter().map(input).collect(),
            returned: InputState::returned(flow.due),
            redo: flow.redo.into(),
            batches: VecDeque::new(),
            parked: BTreeMap::new(),
            came: None,
            held_back: None,
            sizing: Sizing::default(),
            held: 0,
            now: Timestamp(0),
            halted: false,
            broken: false,
            gives_back: false,
        }
    }

    /// The ports that are read from in advance.
    fn ports(&self) -> impl Iterator<Item = PortInput> + use<> {
        (0..self.inputs.len()).map(PortInput::Input).chain([PortInput::Redelivery])
    }

    fn state(&self, input: PortInput) -> &InputState {
        input.position().map_or(&self.returned, |input| &self.inputs[input])
    }

    fn state_mut(&mut self, input: PortInput) -> &mut InputState {
        match input.position() {
            Some(input) => &mut self.inputs[input],
            None => &mut self.returned,
        }
    }

    fn take_in(&mut self, input: PortInput, remnant: UnusedRead, commands: &mut Vec<Command>) {
        if input == PortInput::Turn {
            self.held += remnant.bytes;
            if let Some((read, bytes)) = self.came.replace((remnant.read, remnant.bytes)) {
                self.held = self.held.saturating_sub(bytes);
                commands.push(Command::ReleaseRead { step: self.position, read });
            }
        } else {
            match self.state_mut(input).take_in(remnant) {
                Some(bytes) => self.held += bytes,
                None => commands.push(Command::ReleaseRead { step: self.position, read: remnant.read }),
            }
        }
        if self.halted {
            self.forget_reads(commands);
        }
    }

    /// Requests more jobs where the limits allow it.
    fn read(&mut self, bounds: &Bounds, heads: &[u64], commands: &mut Vec<Command>) {
        if self.halted || self.about_to_halt() || self.gives_back {
            return;
        }
        let ahead: usize = self.ports().map(|input| self.state(input).ahead()).sum();
        let has_room = self.batches.iter().filter(|batch| batch.fills_room()).count() + ahead
            < bounds.batches
            && self.held < bounds.bytes
            && self.batches.iter().map(OrderedBatch::jobs).sum::<usize>() < bounds.jobs;
        let has_beside = self.batches.iter().any(|batch| batch.kind == batches::BatchKind::Beside);
        for input in self.ports() {
            let wanted = input.position().map_or(0, |input| self.wanted_for_redo(input));
            // Out-of-order jobs do not wait for room that a blocked order occupies.
            let none_there =
                if input == PortInput::Redelivery { !has_beside } else { self.batches.is_empty() };
            let now = self.now;
            let port = InputPort { step: self.position, input };
            let state = self.state_mut(input);
            let starving = none_there && state.ahead() == 0;
            let may = (has_room || starving) && state.ahead() < AHEAD_MAX || state.jobs() < wanted;
            if may && state.may_read(heads, now) {
                state.ask();
                commands.push(Command::Read { port, from: state.next });
            }
        }
    }

    /// Number of jobs of an input in the next batch that must be formed again.
    fn wanted_for_redo(&self, input: usize) -> usize {
        let redo = self.redo.front().filter(|redo| redo.inputs.iter().any(|&(one, _)| one == input));
        redo.map_or(0, |redo| redo.jobs)
    }

    fn forget_reads(&mut self, commands: &mut Vec<Command>) {
        let came = self.came.take();
        if came.is_some() {
            self.read_later();
        }
        let mut reads: Vec<(ReadId, usize)> = self.inputs.iter_mut().flat_map(InputState::clear).collect();
        let returned = self.returned.clear();
        if !returned.is_empty() {
            self.returned.look_again();
        }
        reads.extend(returned);
        for (read, bytes) in reads.into_iter().chain(came) {
            self.held = self.held.saturating_sub(bytes);
            commands.push(Command::ReleaseRead { step: self.position, read });
        }
    }
}

impl StepMachine for OrderedStep {
    fn handle(
        &mut self,
        event: StepEvent,
        next_batch: &mut u64,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) {
        self.set_time(now);
        match event {
            StepEvent::Read { input, read, first, jobs, bytes } => {
                self.take_in(input, UnusedRead { read, first, skip: 0, jobs, bytes }, commands);
            }
            StepEvent::Idle { input } => self.state_mut(input).idle(),
            StepEvent::Full { input, full } => self.state_mut(input).set_full(full),
            StepEvent::Ended { input } => self.state_mut(input).reading = ReaderState::Ended,
            StepEvent::Broken { input } => {
                self.broken = true;
                if input == PortInput::Turn {
                    // No other job may go before the one that cannot be read.
                    self.halt(commands);
                } else {
                    self.state_mut(input).reading = ReaderState::Ended;
                }
            }
            StepEvent::Returned { due } => {
                self.returned.returns(due);
            }
            StepEvent::NoneDue { next } => {
                self.returned.none_due(next);
            }
            StepEvent::Parked { turn, due } => self.park(turn, due),
            StepEvent::Gone { turn } => _ = self.parked.remove(&turn),
            StepEvent::Begun { batch } => self.begun(batch),
            StepEvent::Ran { batch, ran } => self.ran(batch, &ran, next_batch, commands),
            StepEvent::Committed { batch } => self.committed(batch, commands),
            StepEvent::Hold { until } => self.hold(Wait { since: self.now, until }),
            StepEvent::PutBack { batch } => self.put_back(batch),
            StepEvent::Failed => self.fail(commands),
            StepEvent::GivenBack => self.gives_back = false,
            // Only queued steps have these events.
            StepEvent::Picked { .. } | StepEvent::Gate { .. } => {}
        }
    }

    fn park(&mut self, turn: Turn, due: Timestamp) {
        self.park_turn(turn, due);
    }

    fn advance(&mut self, context: &mut DispatchContext<'_>, now: Timestamp, commands: &mut Vec<Command>) {
        self.set_time(now);
        // A clock that was set back ends the wait.
        self.held_back = self.held_back.filter(|wait| wait.lasts(now));
        match context.mode {
            Mode::Stopping => self.drop_waiting(commands),
            Mode::Paused => {}
            Mode::Open => {
                self.form(context.next_batch, commands);
                self.begin(context.next_batch, commands);
            }
        }
        self.commit_in_order(commands);
        if context.mode == Mode::Open {
            self.return_first(commands);
            self.read(context.bounds, context.heads, commands);
        }
    }

    fn go_aside(&mut self, batch: BatchId) -> bool {
        let on_worker = |one: &OrderedBatch| one.phase == Phase::Running && one.place == RunPlace::Worker;
        let runs = |one: &&mut OrderedBatch| one.id == batch && on_worker(one);
        let Some(batch) = self.batches.iter_mut().find(runs) else { return false };
        batch.place = RunPlace::LeftWorker;
        true
    }

    fn is_aside(&self, batch: BatchId) -> bool {
        self.batches.iter().any(|one| one.id == batch && one.place != RunPlace::Worker)
    }

    fn run(&mut self, hands: &mut WorkerCapacity<'_>, _now: Timestamp, commands: &mut Vec<Command>) {
        self.run_formed(hands, commands);
    }

    fn has_left(&self) -> bool {
        !self.halted && !self.batches.is_empty()
    }

    fn job_counts(&self, heads: &[u64], _lanes: usize, _now: Timestamp) -> JobCounts {
        JobCounts {
            inputs: (0..self.inputs.len()).map(|input| self.waiting(input, heads)).collect(),
            running: self.running(),
            first_in_line: self.first_in_line(),
            watermark: None,
            picked: None,
        }
    }

    fn exclude(&mut self) {
        self.halted = true;
    }

    fn is_halted(&self) -> bool {
        self.halted
    }

    fn cannot_finish(&self) -> bool {
        self.halted || self.broken
    }

    /// Whether some of its work is in flight. All work that can start has started by now.
    fn is_busy(&self, stopping: bool) -> bool {
        if stopping {
            return !self.batches.is_empty() || self.gives_back;
        }
        let reading = || self.ports().any(|input| self.state(input).reading == ReaderState::Asked);
        let asks = || reading() || self.is_returning();
        self.is_at_work() || self.gives_back || !self.halted && asks()
    }

    fn is_at_work(&self) -> bool {
        self.batches.iter().any(OrderedBatch::is_moving)
    }

    fn is_drained(&self, heads: &[u64], until_idle: bool, now: Timestamp) -> bool {
        let dry = |input: &InputState| input.is_drained(heads, until_idle, now);
        if self.halted {
            return true;
        }
        if !self.batches.is_empty() || !self.parked.is_empty() {
            // The rest waits for a time.
            return until_idle && dry(&self.returned) && self.wakes_line().is_some_and(|wakes| wakes > now);
        }
        let fresh = match self.gather {
            BatchComposition::Merge => self.inputs.iter().all(dry),
            BatchComposition::Zip => self.inputs.iter().any(dry),
        };
        fresh && dry(&self.returned)
    }

    fn is_held(&self, now: Timestamp) -> bool {
        self.held_back.is_some_and(|wait| wait.lasts(now))
    }

    fn next_wakeup(&self, _now: Timestamp) -> Option<Timestamp> {
        if self.halted || self.gives_back {
            return None;
        }
        let returned = if self.about_to_halt() { None } else { self.returned.wakes() };
        // A due job that is not read waits for room; an event will report it.
        let returned = returned.filter(|due| *due > self.now);
        returned.into_iter().chain(self.wakes_line()).min()
    }
}
