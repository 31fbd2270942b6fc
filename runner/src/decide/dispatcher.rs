//! Decides what is read, what runs, and what is committed next.
//!
//! Every step takes its jobs in batches. The batches of one step run on any worker at the same
//! time and in any order, and are committed in the order of their indices, so that the outputs stand
//! in the order of the inputs. Where a job halts its step, what stands before it is committed, and
//! nothing behind it is.
//!
//! It knows batches by number and size only; their jobs stay with the engine.

use std::collections::VecDeque;

mod flow;

pub use flow::{BatchId, Command, End, Event, Flow, FlowInput, Room};

/// The state machine. Feed it with [`Event`]s; carry out its [`Command`]s.
#[derive(Debug)]
pub struct Dispatcher {
    steps: Vec<StepState>,
    /// The last index of each queue.
    heads: Vec<u64>,
    room: Room,
    /// How many more batches workers can be given.
    free_slots: usize,
    until_idle: bool,
    stopping: bool,
    done: bool,
}

#[derive(Debug)]
struct StepState {
    flow: Flow,
    /// The index of the next job to read.
    next: u64,
    read: ReadState,
    /// Oldest first, contiguous.
    batches: VecDeque<BatchState>,
    /// Bytes of all of `batches`, inputs and outputs.
    held: usize,
    /// Takes no more jobs in this run: one of them, or its delivery, stands in the way.
    halted: bool,
    /// Its reader cannot go on.
    broken: bool,
}

/// What the reader of a step is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadState {
    /// Nothing was asked of it.
    Ready,
    /// It will answer.
    Asked,
    /// It was asked, has said that there is nothing now, and will answer when there is.
    Waiting,
    /// There will never be more in this run.
    Ended,
}

#[derive(Debug)]
struct BatchState {
    id: BatchId,
    first: u64,
    jobs: usize,
    bytes: usize,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
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

impl Dispatcher {
    /// A dispatcher at rest. `heads` are the last indices of the queues, `flows` the steps, upstream
    /// before downstream. Nothing happens before [`Self::start`].
    #[must_use]
    pub fn new(flows: Vec<Flow>, heads: Vec<u64>, room: Room, until_idle: bool) -> Self {
        let steps = flows.into_iter().map(StepState::new).collect();
        Self { steps, heads, room, free_slots: room.slots, until_idle, stopping: false, done: false }
    }

    /// Takes a step out before anything begins.
    pub fn exclude(&mut self, step: usize) {
        self.steps[step].halted = true;
    }

    /// The first commands.
    pub fn start(&mut self, commands: &mut Vec<Command>) {
        self.decide(commands);
    }

    /// Takes in what happened and adds what shall be done about it to `commands`.
    pub fn handle(&mut self, event: Event, commands: &mut Vec<Command>) {
        match event {
            Event::Read { step, batch, first, jobs, bytes } => {
                self.take_batch(
                    step,
                    BatchState { id: batch, first, jobs, bytes, phase: Phase::Waiting },
                    commands,
                );
            }
            Event::Idle { step } => self.steps[step].read = ReadState::Waiting,
            Event::Ended { step } => self.steps[step].read = ReadState::Ended,
            Event::Broken { step } => {
                self.steps[step].read = ReadState::Ended;
                self.steps[step].broken = true;
            }
            Event::Grew { queue, head } => self.heads[queue] = self.heads[queue].max(head),
            Event::Ran { step, batch, taken, halts, bytes } => {
                self.free_slots += 1;
                self.steps[step].finish(batch, taken, halts, bytes);
            }
            Event::Committed { step, batch } => self.steps[step].committed(batch, commands),
            Event::Failed { step } => self.steps[step].halt(commands),
            Event::Stop => self.stopping = true,
        }
        self.decide(commands);
    }

    /// Whether the step can take no more jobs in this run because one of them halted it.
    #[must_use]
    pub fn is_halted(&self, step: usize) -> bool {
        self.steps[step].halted
    }

    fn take_batch(&mut self, step: usize, batch: BatchState, commands: &mut Vec<Command>) {
        let state = &mut self.steps[step];
        state.read = ReadState::Ready;
        debug_assert_eq!(batch.first, state.next, "a reader gives what it was asked for");
        if state.halted {
            commands.push(Command::Drop { batch: batch.id });
            return;
        }
        state.next = batch.first + batch.jobs as u64;
        state.held += batch.bytes;
        state.batches.push_back(batch);
    }

    fn decide(&mut self, commands: &mut Vec<Command>) {
        if self.done {
            return;
        }
        for position in 0..self.steps.len() {
            let step = &mut self.steps[position];
            if self.stopping {
                step.drop_waiting(commands);
            }
            step.commit_in_order(position, commands);
            let may_read = !self.stopping && step.has_room(&self.room) && step.may_read(&self.heads);
            if may_read {
                step.read = ReadState::Asked;
                commands.push(Command::Read { step: position, from: step.next });
            }
        }
        self.run(commands);
        if let Some(end) = self.end() {
            self.done = true;
            commands.push(Command::Finish(end));
        }
    }

    /// Gives batches to workers: those furthest downstream first, so that what is begun gets out
    /// before more is let in, and queues stay short.
    fn run(&mut self, commands: &mut Vec<Command>) {
        for position in (0..self.steps.len()).rev() {
            let step = &mut self.steps[position];
            if step.halted || step.about_to_halt() {
                continue;
            }
            for batch in &mut step.batches {
                if self.free_slots == 0 {
                    return;
                }
                if batch.phase == Phase::Waiting {
                    batch.phase = Phase::Running;
                    self.free_slots -= 1;
                    commands.push(Command::Run { step: position, batch: batch.id });
                }
            }
        }
    }

    fn end(&self) -> Option<End> {
        let busy = |step: &StepState| {
            step.batches.iter().any(|batch| !step.halted || batch.phase == Phase::Running)
                || matches!(step.read, ReadState::Asked) && !step.halted && !self.stopping
        };
        if self.steps.iter().any(busy) {
            return None;
        }
        if self.stopping {
            return Some(End::Stopped);
        }
        let exhausted = |step: &StepState| {
            step.halted
                || step.broken && step.read == ReadState::Ended
                || match (step.flow.input, step.read) {
                    (FlowInput::Queue(queue), _) => step.next > self.heads[queue],
                    (FlowInput::Source, ReadState::Ended) => true,
                    (FlowInput::Source, ReadState::Waiting) => self.until_idle,
                    (FlowInput::Source, ReadState::Ready | ReadState::Asked) => false,
                }
        };
        if !self.steps.iter().all(exhausted) {
            return None;
        }
        let stuck = |step: &StepState| step.halted || step.broken;
        Some(if self.steps.iter().any(stuck) { End::Halted } else { End::Drained })
    }
}

impl StepState {
    fn new(flow: Flow) -> Self {
        Self {
            next: flow.next,
            flow,
            read: ReadState::Ready,
            batches: VecDeque::new(),
            held: 0,
            halted: false,
            broken: false,
        }
    }

    fn has_room(&self, room: &Room) -> bool {
        self.batches.is_empty() || (self.batches.len() < room.batches && self.held < room.bytes)
    }

    fn may_read(&self, heads: &[u64]) -> bool {
        let more = match self.flow.input {
            FlowInput::Source => true,
            FlowInput::Queue(queue) => self.next <= heads[queue],
        };
        more && self.read == ReadState::Ready && !self.halted && !self.about_to_halt()
    }

    /// A job has halted the step, and what stands before it is still on its way.
    fn about_to_halt(&self) -> bool {
        self.batches.iter().any(|batch| {
            matches!(batch.phase, Phase::Finished { halts: true, .. } | Phase::Committing { halts: true })
        })
    }

    fn finish(&mut self, id: BatchId, taken: usize, halts: bool, bytes: usize) {
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

    fn commit_in_order(&mut self, position: usize, commands: &mut Vec<Command>) {
        if self.halted {
            return;
        }
        for at in 0..self.batches.len() {
            let batch = &mut self.batches[at];
            match batch.phase {
                Phase::Committing { halts: false } => {}
                Phase::Finished { taken, halts } => {
                    batch.phase = Phase::Committing { halts };
                    commands.push(Command::Commit {
                        step: position,
                        batch: batch.id,
                        first: batch.first,
                        taken,
                    });
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

    /// Stops taking jobs. Batches that run are waited for, the others are dropped.
    fn halt(&mut self, commands: &mut Vec<Command>) {
        self.halted = true;
        for batch in &self.batches {
            if batch.phase != Phase::Running {
                commands.push(Command::Drop { batch: batch.id });
            }
        }
        self.batches.retain(|batch| batch.phase == Phase::Running);
        self.held = self.batches.iter().map(|batch| batch.bytes).sum();
    }

    /// Gives up batches that no worker has begun; they will be read again in the next run. Batches
    /// begin in order, so behind one that waits they all do.
    fn drop_waiting(&mut self, commands: &mut Vec<Command>) {
        while let Some(batch) = self.batches.pop_back_if(|batch| batch.phase == Phase::Waiting) {
            self.held -= batch.bytes;
            commands.push(Command::Drop { batch: batch.id });
        }
    }
}

#[cfg(test)]
mod tests;
