//! A step that takes its jobs as they come, in batches that are committed in order ([`batches`]): what it
//! keeps, what happens to it, and what it asks of its inputs.

use std::collections::VecDeque;

use super::flow::{Before, Bounds, Command, Flow, FlowInput, Gather, Port, Redo};
use super::glance::Glance;
use super::input::{InputState, Reading, Remnant};
use super::step::{Around, Machine, Mode, StepEvent};
use crate::words::Timestamp;

mod batches;

use batches::BatchState;

/// How many reads an input may be ahead of the others that it waits for.
const AHEAD_MAX: usize = 2;

#[derive(Debug)]
pub(super) struct Stream {
    position: usize,
    gather: Gather,
    before: Before,
    /// The last one is that of the jobs that come again.
    inputs: Vec<InputState>,
    redo: VecDeque<Redo>,
    /// Oldest first.
    batches: VecDeque<BatchState>,
    /// Bytes of everything that is read and not committed, inputs and outputs.
    held: usize,
    /// Takes no more jobs in this run: one of them, or its delivery, stands in the way.
    halted: bool,
    /// One of its readers cannot go on.
    broken: bool,
    rewinding: Rewinding,
    /// What it runs could not be set up at the first of these times; nothing starts before the second one.
    waits: Option<(Timestamp, Timestamp)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rewinding {
    No,
    /// Takes nothing more until everything is delivered.
    Wanted,
    Asked,
}

impl Stream {
    pub(super) fn new(position: usize, flow: Flow) -> Self {
        let input = |FlowInput { feed, next, finished }| InputState::with_finished(feed, next, finished);
        let mut inputs: Vec<InputState> = flow.inputs.into_iter().map(input).collect();
        inputs.push(InputState::returned(flow.due));
        Self {
            position,
            gather: flow.gather,
            before: flow.before,
            inputs,
            redo: flow.redo.into(),
            batches: VecDeque::new(),
            held: 0,
            halted: false,
            broken: false,
            rewinding: Rewinding::No,
            waits: None,
        }
    }

    fn take_in(&mut self, input: usize, remnant: Remnant, commands: &mut Vec<Command>) {
        match self.inputs[input].take_in(remnant) {
            Some(bytes) => self.held += bytes,
            None => commands.push(Command::Forget { read: remnant.read }),
        }
        if self.halted {
            self.forget_reads(commands);
        }
    }

    /// Asks for more where there is room.
    fn read(&mut self, bounds: &Bounds, heads: &[u64], now: Timestamp, commands: &mut Vec<Command>) {
        if self.halted || self.about_to_halt() || self.rewinding != Rewinding::No {
            return;
        }
        let ahead: usize = self.inputs.iter().map(InputState::ahead).sum();
        let has_room = self.batches.len() + ahead < bounds.batches && self.held < bounds.bytes;
        for input in 0..self.inputs.len() {
            let wanted = self.wanted_for_redo(input);
            let state = &mut self.inputs[input];
            let starving = self.batches.is_empty() && state.ahead() == 0;
            let may = (has_room || starving) && state.ahead() < AHEAD_MAX || state.jobs() < wanted;
            if may && state.may_read(heads, now) {
                state.ask();
                let port = Port { step: self.position, input };
                commands.push(Command::Read { port, from: state.next });
            }
        }
    }

    /// How many jobs of an input the batch has that is to be formed again.
    fn wanted_for_redo(&self, input: usize) -> usize {
        let redo = self.redo.front().filter(|redo| redo.inputs.iter().any(|&(one, _)| one == input));
        redo.map_or(0, |redo| redo.jobs)
    }

    fn forget_reads(&mut self, commands: &mut Vec<Command>) {
        for input in &mut self.inputs {
            for (read, bytes) in input.clear() {
                self.held = self.held.saturating_sub(bytes);
                commands.push(Command::Forget { read });
            }
        }
    }

    /// Asks for progress to be put back as soon as nothing is on its way.
    fn rewind(&mut self, commands: &mut Vec<Command>) {
        let quiet = || self.inputs.iter().all(|input| input.reading != Reading::Asked);
        if self.rewinding != Rewinding::Wanted || !self.batches.is_empty() || !quiet() {
            return;
        }
        self.forget_reads(commands);
        self.rewinding = Rewinding::Asked;
        commands.push(Command::Rewind { step: self.position });
    }

    /// Goes on at these indices. Nothing is on record any more of what was to be formed again.
    fn go_on_at(&mut self, next: &[u64]) {
        self.rewinding = Rewinding::No;
        self.redo.clear();
        for (input, &next) in self.inputs.iter_mut().zip(next) {
            input.rewind(next);
        }
    }
}

impl Machine for Stream {
    fn handle(&mut self, event: StepEvent, now: Timestamp, commands: &mut Vec<Command>) {
        match event {
            StepEvent::Read { input, read, first, jobs, bytes } => {
                self.take_in(input, Remnant { read, first, skip: 0, jobs, bytes }, commands);
            }
            StepEvent::Idle { input } => self.inputs[input].idle(),
            StepEvent::Ended { input } => self.inputs[input].reading = Reading::Ended,
            StepEvent::Broken { input } => {
                self.inputs[input].reading = Reading::Ended;
                self.broken = true;
            }
            StepEvent::Returned { due } => {
                if let Some(returned) = self.inputs.last_mut() {
                    returned.returns(due);
                }
            }
            StepEvent::NoneDue { next } => {
                if let Some(returned) = self.inputs.last_mut() {
                    returned.none_due(next);
                }
            }
            StepEvent::Begun { batch } => self.begun(batch),
            StepEvent::Ran { batch, taken, halts, bytes, .. } => self.ran(batch, taken, halts, bytes),
            StepEvent::Committed { batch } => self.committed(batch, commands),
            StepEvent::Hold { until } => {
                let until = self.waits.map_or(until, |(_, before)| before.max(until));
                self.waits = Some((now, until));
            }
            StepEvent::PutBack { batch } => self.put_back(batch),
            StepEvent::Failed => self.halt(commands),
            StepEvent::Rewind => {
                if self.rewinding == Rewinding::No {
                    self.rewinding = Rewinding::Wanted;
                    self.drop_waiting(commands);
                }
            }
            // It picks nothing, and has no gate.
            StepEvent::Picked { .. } | StepEvent::Gate { .. } => {}
        }
    }

    fn advance(&mut self, around: &mut Around<'_>, now: Timestamp, commands: &mut Vec<Command>) {
        match around.mode {
            Mode::Stopping => self.drop_waiting(commands),
            Mode::Paused => {}
            Mode::Open => {
                self.form(around.next_batch, commands);
                if !self.is_held(now) {
                    self.begin(commands);
                }
            }
        }
        self.commit_in_order(commands);
        self.rewind(commands);
        if around.mode == Mode::Open {
            self.read(around.bounds, around.heads, now, commands);
        }
    }

    fn run(&mut self, paused: bool, free_slots: &mut usize, commands: &mut Vec<Command>) {
        self.run_formed(paused, free_slots, commands);
    }

    fn glance(&self, heads: &[u64], _lanes: usize, _now: Timestamp) -> Glance {
        Glance {
            // The last one is that of the jobs that come again.
            inputs: (0..self.inputs.len() - 1).map(|input| self.waiting(input, heads)).collect(),
            running: self.running(),
            picked: None,
        }
    }

    fn exclude(&mut self) {
        self.halted = true;
    }

    fn is_halted(&self) -> bool {
        self.halted
    }

    fn is_stuck(&self) -> bool {
        self.halted || self.broken
    }

    fn rewound(&mut self, next: &[u64]) {
        self.go_on_at(next);
    }

    /// Whether something of it is still on its way.
    fn is_busy(&self, stopping: bool) -> bool {
        let working = |batch: &BatchState| !self.halted || batch.is_running();
        let reading = || self.inputs.iter().any(|input| input.reading == Reading::Asked);
        self.batches.iter().any(working)
            || self.rewinding == Rewinding::Asked
            || !self.halted && !stopping && (reading() || self.rewinding == Rewinding::Wanted)
    }

    fn is_at_work(&self) -> bool {
        self.batches.iter().any(|batch| !batch.is_unbegun())
    }

    fn is_exhausted(&self, heads: &[u64], until_idle: bool, now: Timestamp) -> bool {
        let dry = |input: &InputState| input.is_dry(heads, until_idle, now);
        let Some((returned, inputs)) = self.inputs.split_last() else { return true };
        let fresh = match self.gather {
            Gather::Any => inputs.iter().all(dry),
            Gather::Each => inputs.iter().any(dry),
        };
        self.halted || fresh && dry(returned)
    }

    fn is_held(&self, now: Timestamp) -> bool {
        // A clock that was set back makes nothing wait for long.
        self.waits.is_some_and(|(since, until)| since <= now && now < until)
    }

    fn wakes(&self, now: Timestamp) -> Option<Timestamp> {
        let open = !self.halted && !self.about_to_halt() && self.rewinding == Rewinding::No;
        let goes_on = self.waits.filter(|_| self.is_held(now)).map(|(_, until)| until);
        self.inputs.last().filter(|_| open)?.wakes().into_iter().chain(goes_on).min()
    }
}
