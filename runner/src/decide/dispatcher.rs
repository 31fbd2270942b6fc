//! Decides what is read, what runs, and what is committed next.
//!
//! Every step takes its jobs in batches, made of what its inputs give: of whichever gives something,
//! or of as many jobs of each. The batches of one step run on any worker at the same time and in any
//! order, and are committed in the order in which they were formed, so that the outputs stand in the
//! order of the inputs. Where a job halts its step, what stands before it is committed, and nothing
//! behind it is.
//!
//! It knows reads and batches by number and size only; their jobs stay with the engine. Time comes in
//! with every event.

mod flow;

mod input;

mod step;

pub use flow::{
    BatchId, Before, Command, End, Event, Feed, Flow, FlowInput, Gather, Port, ReadId, Redo, Room,
};
use input::{Reading, Remnant};
use step::{Rewinding, StepState};

use crate::words::Timestamp;

/// The state machine. Feed it with [`Event`]s; carry out its [`Command`]s.
#[derive(Debug)]
pub struct Dispatcher {
    steps: Vec<StepState>,
    /// The last index of each queue.
    heads: Vec<u64>,
    room: Room,
    /// How many more batches workers can be given.
    free_slots: usize,
    next_batch: u64,
    until_idle: bool,
    stopping: bool,
    done: bool,
}

impl Dispatcher {
    /// A dispatcher at rest. `heads` are the last indices of the queues, `flows` the steps, upstream
    /// before downstream. Nothing happens before [`Self::start`].
    #[must_use]
    pub fn new(flows: Vec<Flow>, heads: Vec<u64>, room: Room, until_idle: bool) -> Self {
        let redo = flows.iter().flat_map(|flow| flow.redo.iter().map(|redo| redo.number + 1));
        let next_batch = redo.max().unwrap_or(0);
        let steps = flows.into_iter().enumerate().map(|(at, flow)| StepState::new(at, flow)).collect();
        Self {
            steps,
            heads,
            room,
            free_slots: room.slots,
            next_batch,
            until_idle,
            stopping: false,
            done: false,
        }
    }

    /// Takes a step out before anything begins.
    pub fn exclude(&mut self, step: usize) {
        self.steps[step].halted = true;
    }

    /// The first commands.
    pub fn start(&mut self, now: Timestamp, commands: &mut Vec<Command>) {
        self.decide(now, commands);
    }

    /// Takes in what happened and adds what shall be done about it to `commands`.
    pub fn handle(&mut self, event: Event, now: Timestamp, commands: &mut Vec<Command>) {
        match event {
            Event::Read { port, read, first, jobs, bytes } => {
                let remnant = Remnant { read, first, skip: 0, jobs, bytes };
                self.steps[port.step].take_in(port.input, remnant, commands);
            }
            Event::Idle { port } => self.steps[port.step].inputs[port.input].idle(),
            Event::Ended { port } => self.steps[port.step].inputs[port.input].reading = Reading::Ended,
            Event::Broken { port } => {
                self.steps[port.step].inputs[port.input].reading = Reading::Ended;
                self.steps[port.step].broken = true;
            }
            Event::Grew { queue, head } => self.heads[queue] = self.heads[queue].max(head),
            Event::Returned { step, due } => {
                if let Some(returned) = self.steps[step].inputs.last_mut() {
                    returned.returns(due);
                }
            }
            Event::NoneDue { step, next } => {
                if let Some(returned) = self.steps[step].inputs.last_mut() {
                    returned.none_due(next);
                }
            }
            Event::Tick => {}
            Event::Begun { step, batch } => self.steps[step].begun(batch),
            Event::Ran { step, batch, taken, halts, bytes } => {
                self.free_slots += 1;
                self.steps[step].ran(batch, taken, halts, bytes);
            }
            Event::Committed { step, batch } => self.steps[step].committed(batch, commands),
            Event::Failed { step } => self.steps[step].halt(commands),
            Event::Rewind { step } => {
                let step = &mut self.steps[step];
                if step.rewinding == Rewinding::No {
                    step.rewinding = Rewinding::Wanted;
                    step.drop_waiting(commands);
                }
            }
            Event::Stop => self.stopping = true,
        }
        self.decide(now, commands);
    }

    /// The step goes on, at these indices of its inputs: its progress was put back, or could not be.
    pub fn rewound(&mut self, step: usize, next: &[u64], now: Timestamp, commands: &mut Vec<Command>) {
        self.steps[step].rewound(next);
        self.decide(now, commands);
    }

    /// When it wants to be told that time has passed, if only that has to happen.
    #[must_use]
    pub fn wakes(&self) -> Option<Timestamp> {
        if self.stopping { None } else { self.steps.iter().filter_map(StepState::wakes).min() }
    }

    /// Whether the step can take no more jobs in this run because one of them halted it.
    #[must_use]
    pub fn is_halted(&self, step: usize) -> bool {
        self.steps[step].halted
    }

    fn decide(&mut self, now: Timestamp, commands: &mut Vec<Command>) {
        if self.done {
            return;
        }
        for step in &mut self.steps {
            if self.stopping {
                step.drop_waiting(commands);
            } else {
                step.form(&mut self.next_batch, commands);
                step.begin(commands);
            }
            step.commit_in_order(commands);
            step.rewind(commands);
            if !self.stopping {
                step.read(&self.room, &self.heads, now, commands);
            }
        }
        // Those furthest downstream first, so that what is begun gets out before more is let in, and
        // queues stay short.
        for step in self.steps.iter_mut().rev() {
            step.run(&mut self.free_slots, commands);
        }
        if let Some(end) = self.end(now) {
            self.done = true;
            commands.push(Command::Finish(end));
        }
    }

    fn end(&self, now: Timestamp) -> Option<End> {
        if self.steps.iter().any(|step| step.is_busy(self.stopping)) {
            return None;
        }
        if self.stopping {
            return Some(End::Stopped);
        }
        if !self.steps.iter().all(|step| step.is_exhausted(&self.heads, self.until_idle, now)) {
            return None;
        }
        let stuck = |step: &StepState| step.halted || step.broken;
        Some(if self.steps.iter().any(stuck) { End::Halted } else { End::Drained })
    }
}

#[cfg(test)]
mod tests;
