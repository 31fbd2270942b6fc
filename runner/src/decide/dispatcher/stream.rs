//! A step that takes its jobs as they come, in batches that are committed in order: its inputs, and its
//! batches between being formed and being committed.

use std::collections::VecDeque;

use super::flow::{BatchId, Before, Bounds, Command, Flow, FlowInput, Gather, Port, Redo};
use super::glance::{Glance, Waiting};
use super::input::{InputState, Reading, Remnant};
use super::step::{Around, Machine, Mode, StepEvent};
use crate::words::Timestamp;

/// How many reads an input may be ahead of the others that it waits for.
const AHEAD_MAX: usize = 2;
/// How many batches may be begun and not yet run: what is begun has to be seen through.
const BEGUN_MAX: usize = 2;

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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rewinding {
    No,
    /// Takes nothing more until everything is delivered.
    Wanted,
    Asked,
}

#[derive(Debug)]
struct BatchState {
    id: BatchId,
    /// The input that its jobs are of; `None`: so many of each.
    input: Option<usize>,
    jobs: usize,
    bytes: usize,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Formed,
    Beginning,
    /// What had to be durable is.
    Begun,
    Running,
    /// All its jobs, or the first `taken` of them where the next one halts the step.
    Finished {
        taken: usize,
        halts: bool,
    },
    Committing {
        halts: bool,
    },
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

    /// Makes batches of what is there.
    fn form(&mut self, next: &mut u64, commands: &mut Vec<Command>) {
        if self.halted || self.rewinding != Rewinding::No {
            return;
        }
        while let Some(redo) = self.redo.front() {
            // The source lost them, or progress was put elsewhere: they are no more what they were.
            let gone = |&(input, first): &(usize, u64)| {
                let state = &self.inputs[input];
                state.reading == Reading::Ended && state.jobs() < redo.jobs
                    || state.first().is_some_and(|there| there != first)
            };
            let there = |&(input, _): &(usize, u64)| self.inputs[input].jobs() >= redo.jobs;
            let (gone, there) = (redo.inputs.iter().any(gone), redo.inputs.iter().all(there));
            if !gone && !there {
                return;
            }
            if let Some(Redo { number, inputs, jobs }) = self.redo.pop_front().filter(|_| !gone) {
                let inputs: Vec<usize> = inputs.into_iter().map(|(input, _)| input).collect();
                self.batch(BatchId(number), &inputs, jobs, Phase::Begun, commands);
            }
        }
        let returned = self.inputs.len() - 1;
        let alone = match self.gather {
            Gather::Any => 0..returned + 1,
            Gather::Each => returned..returned + 1,
        };
        for input in alone {
            while self.inputs[input].ahead() > 0 {
                let jobs = self.inputs[input].in_one_piece();
                self.batch(number(next), &[input], jobs, Phase::Formed, commands);
            }
        }
        if self.gather == Gather::Each {
            let inputs: Vec<usize> = (0..returned).collect();
            loop {
                let jobs = inputs.iter().map(|&input| self.inputs[input].in_one_piece()).min().unwrap_or(0);
                if jobs == 0 {
                    break;
                }
                self.batch(number(next), &inputs, jobs, Phase::Formed, commands);
            }
        }
    }

    fn batch(
        &mut self,
        id: BatchId,
        inputs: &[usize],
        jobs: usize,
        phase: Phase,
        commands: &mut Vec<Command>,
    ) {
        let mut bytes = 0;
        for &input in inputs {
            let mut left = jobs;
            while left > 0 {
                let Some((taken, used_up)) = self.inputs[input].take(left) else { break };
                let Remnant { read, skip, jobs, .. } = taken;
                let port = Port { step: self.position, input };
                commands.push(Command::Part { batch: id, port, read, skip, jobs });
                if used_up {
                    commands.push(Command::Forget { read });
                }
                left -= jobs;
                bytes += taken.bytes;
            }
        }
        let input = if let [input] = *inputs { Some(input) } else { None };
        self.batches.push_back(BatchState { id, input, jobs, bytes, phase });
    }

    /// Has batches begun that need it, few at a time.
    fn begin(&mut self, commands: &mut Vec<Command>) {
        if self.before == Before::Nothing || self.halted || self.about_to_halt() {
            return;
        }
        let begun = |batch: &BatchState| matches!(batch.phase, Phase::Beginning | Phase::Begun);
        let mut count = self.batches.iter().filter(|batch| begun(batch)).count();
        for batch in &mut self.batches {
            if count >= BEGUN_MAX {
                return;
            }
            if batch.phase == Phase::Formed {
                batch.phase = Phase::Beginning;
                count += 1;
                let (step, before) = (self.position, self.before);
                commands.push(Command::Begin { step, batch: batch.id, before });
            }
        }
    }

    fn begun(&mut self, id: BatchId) {
        if let Some(batch) = self.batches.iter_mut().find(|batch| batch.id == id) {
            debug_assert_eq!(batch.phase, Phase::Beginning);
            batch.phase = Phase::Begun;
        }
    }

    /// Gives batches to workers as long as there are free ones.
    fn run_formed(&mut self, paused: bool, free_slots: &mut usize, commands: &mut Vec<Command>) {
        if self.halted || self.about_to_halt() {
            return;
        }
        let at_once = self.before == Before::Nothing && !paused;
        let first = if at_once { Phase::Formed } else { Phase::Begun };
        for batch in &mut self.batches {
            if *free_slots == 0 {
                return;
            }
            if batch.phase == first || batch.phase == Phase::Begun {
                batch.phase = Phase::Running;
                *free_slots -= 1;
                commands.push(Command::Run { step: self.position, batch: batch.id });
            }
        }
    }

    fn ran(&mut self, id: BatchId, taken: usize, halts: bool, bytes: usize) {
        if let Some(batch) = self.batches.iter_mut().find(|batch| batch.id == id) {
            debug_assert!(
                taken <= batch.jobs && (halts || taken == batch.jobs),
                "a step takes what it is given"
            );
            batch.phase = Phase::Finished { taken, halts };
            batch.bytes += bytes;
            self.held += bytes;
        }
        if self.halted {
            // Nothing of a halted step is committed; its batches only had to come home.
            self.batches.retain(|batch| batch.phase == Phase::Running);
        }
    }

    fn commit_in_order(&mut self, commands: &mut Vec<Command>) {
        if self.halted {
            return;
        }
        for batch in &mut self.batches {
            match batch.phase {
                Phase::Committing { halts: false } => {}
                Phase::Finished { taken, halts } => {
                    batch.phase = Phase::Committing { halts };
                    commands.push(Command::Commit { step: self.position, batch: batch.id, taken });
                    if halts {
                        return;
                    }
                }
                _ => return,
            }
        }
    }

    fn committed(&mut self, id: BatchId, commands: &mut Vec<Command>) {
        let Some(at) = self.batches.iter().position(|batch| batch.id == id) else { return };
        debug_assert_eq!(at, 0, "batches are committed in order");
        let Some(batch) = self.batches.remove(at) else { return };
        self.held -= batch.bytes;
        if batch.phase == (Phase::Committing { halts: true }) {
            self.halt(commands);
        }
    }

    /// Stops taking jobs. Batches that run are waited for, the others are given up.
    fn halt(&mut self, commands: &mut Vec<Command>) {
        self.halted = true;
        for batch in &self.batches {
            if batch.phase != Phase::Running {
                commands.push(Command::Drop { batch: batch.id });
            }
        }
        self.batches.retain(|batch| batch.phase == Phase::Running);
        self.held = self.batches.iter().map(|batch| batch.bytes).sum();
        for input in &mut self.inputs {
            commands.extend(input.clear().into_iter().map(|(read, _)| Command::Forget { read }));
        }
    }

    /// Gives up what nobody has begun; it will be read again in the next run. Batches begin in order,
    /// so behind one that was not begun none was.
    fn drop_waiting(&mut self, commands: &mut Vec<Command>) {
        while let Some(batch) = self.batches.pop_back_if(|batch| batch.phase == Phase::Formed) {
            self.held -= batch.bytes;
            commands.push(Command::Drop { batch: batch.id });
        }
        self.forget_reads(commands);
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

    /// Jobs of an input that nobody has begun.
    fn waiting(&self, input: usize, heads: &[u64]) -> Waiting {
        let of_input = |batch: &&BatchState| batch.input.is_none_or(|one| one == input);
        let formed = self.batches.iter().filter(of_input).filter(|batch| batch.phase == Phase::Formed);
        let read = formed.map(|batch| batch.jobs).sum::<usize>() + self.inputs[input].jobs();
        let Some((behind, head)) = self.inputs[input].behind(heads) else {
            return Waiting { jobs: read as u64, first: None };
        };
        let jobs = read as u64 + behind;
        // They are taken in order: the last ones are those that wait.
        Waiting { jobs, first: (jobs > 0).then(|| (head + 1).saturating_sub(jobs)) }
    }

    /// A job has halted the step, and what stands before it is still on its way.
    fn about_to_halt(&self) -> bool {
        self.batches.iter().any(|batch| {
            matches!(batch.phase, Phase::Finished { halts: true, .. } | Phase::Committing { halts: true })
        })
    }
}

impl Machine for Stream {
    fn handle(&mut self, event: StepEvent, _now: Timestamp, commands: &mut Vec<Command>) {
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
                self.begin(commands);
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
        let begun = self.batches.iter().filter(|batch| batch.phase != Phase::Formed);
        Glance {
            // The last one is that of the jobs that come again.
            inputs: (0..self.inputs.len() - 1).map(|input| self.waiting(input, heads)).collect(),
            running: begun.map(|batch| batch.jobs as u64).sum(),
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
        let working = |batch: &BatchState| !self.halted || batch.phase == Phase::Running;
        let reading = || self.inputs.iter().any(|input| input.reading == Reading::Asked);
        self.batches.iter().any(working)
            || self.rewinding == Rewinding::Asked
            || !self.halted && !stopping && (reading() || self.rewinding == Rewinding::Wanted)
    }

    fn is_at_work(&self) -> bool {
        self.batches.iter().any(|batch| batch.phase != Phase::Formed)
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

    fn wakes(&self, _now: Timestamp) -> Option<Timestamp> {
        let open = !self.halted && !self.about_to_halt() && self.rewinding == Rewinding::No;
        self.inputs.last().filter(|_| open)?.wakes()
    }
}

pub(super) fn number(next: &mut u64) -> BatchId {
    let id = BatchId(*next);
    *next += 1;
    id
}
