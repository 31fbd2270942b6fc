//! Decides what is read, what runs, and what is committed next.
//!
//! Every step takes its jobs in batches, of as many jobs as take about 50 ms ([`sizing`]). Most take them
//! as they come ([`stream`]): made of what the inputs give, of whichever gives something, or of as many
//! jobs of each. Their batches run on any worker at the same time and in any order, and are committed in
//! the order of the inputs. What stands behind a job that waits for its next attempt may run, and is
//! committed after it. Where a job halts its step, what stands before it is committed, and nothing behind
//! it is. Others pick them by rules ([`picker`]), and commit each batch as soon as it is through.
//!
//! It knows reads and batches by number and size only; their jobs stay with the engine. Time comes in
//! with every event.

mod flow;

mod glance;

mod input;

mod sizing;

mod step;

mod stream;

mod picker;

pub use flow::{
    BatchEnd, BatchId, Before, Bounds, Command, End, EndedBy, Event, Feed, Flow, FlowInput, Gather, JobEnd,
    Picking, Port, ReadId, Redo, Turn,
};
pub use glance::{Glance, Picked, Waiting};
use picker::Picker;
pub use step::Look;
use step::{Around, Hands, Machine, Mode, StepEvent};
use stream::Stream;

use super::queuer::{Card, JobKey, State};
use tidegate_model::Timestamp;

/// The state machine. Feed it with [`Event`]s; carry out its [`Command`]s.
#[derive(Debug)]
pub struct Dispatcher {
    steps: Vec<Box<dyn Machine>>,
    /// By step: starts nothing for now.
    paused: Vec<bool>,
    /// The last index of each queue.
    heads: Vec<u64>,
    bounds: Bounds,
    /// How many more batches workers can be given.
    free_slots: usize,
    next_batch: u64,
    until_idle: bool,
    /// Jobs are on their way to a queue from outside of all steps.
    expecting: bool,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    /// Nothing more is started, and it ends so.
    Ending(End),
    Done,
}

impl Dispatcher {
    /// A dispatcher at rest. `heads` are the last indices of the queues, `flows` the steps, upstream
    /// before downstream. Nothing happens before [`Self::start`].
    #[must_use]
    pub fn new(flows: Vec<Flow>, heads: Vec<u64>, bounds: Bounds, until_idle: bool) -> Self {
        let redo = flows.iter().flat_map(|flow| flow.redo.iter().map(|redo| redo.number + 1));
        let next_batch = redo.max().unwrap_or(0);
        let machine = |(at, mut flow): (usize, Flow)| match flow.picking.take() {
            Some(picking) => Box::new(Picker::new(at, &flow, picking)) as Box<dyn Machine>,
            None => Box::new(Stream::new(at, flow)),
        };
        Self {
            paused: vec![false; flows.len()],
            steps: flows.into_iter().enumerate().map(machine).collect(),
            heads,
            bounds,
            free_slots: bounds.slots,
            next_batch,
            until_idle,
            expecting: false,
            stage: Stage::Running,
        }
    }

    /// Takes a step out before anything begins.
    pub fn exclude(&mut self, step: usize) {
        self.steps[step].exclude();
    }

    /// Whether jobs are on their way to a queue from outside of all steps. As long as they are, nothing
    /// is over unless somebody stops it; [`Event::Tick`] has that looked at again.
    pub fn expect(&mut self, expecting: bool) {
        self.expecting = expecting;
    }

    /// Has a step start nothing, before anything begins.
    pub fn pause(&mut self, step: usize) {
        self.paused[step] = true;
    }

    /// The first commands.
    pub fn start(&mut self, now: Timestamp, commands: &mut Vec<Command>) {
        self.decide(now, commands);
    }

    /// Takes in what happened and adds what shall be done about it to `commands`.
    pub fn handle(&mut self, event: Event, now: Timestamp, commands: &mut Vec<Command>) {
        let (step, event) = match event {
            Event::Read { port: Port { step, input }, read, first, jobs, bytes } => {
                (step, StepEvent::Read { input, read, first, jobs, bytes })
            }
            Event::Idle { port: Port { step, input } } => (step, StepEvent::Idle { input }),
            Event::Ended { port: Port { step, input } } => (step, StepEvent::Ended { input }),
            Event::Broken { port: Port { step, input } } => (step, StepEvent::Broken { input }),
            Event::Returned { step, due } => (step, StepEvent::Returned { due }),
            Event::Parked { step, turn, due } => (step, StepEvent::Parked { turn, due }),
            Event::Gone { step, turn } => (step, StepEvent::Gone { turn }),
            Event::NoneDue { step, next } => (step, StepEvent::NoneDue { next }),
            Event::Picked { step, batch, bytes } => (step, StepEvent::Picked { batch, bytes }),
            Event::Gate { step, open } => (step, StepEvent::Gate { open }),
            Event::Begun { step, batch } => (step, StepEvent::Begun { batch }),
            Event::Ran { step, batch, ran } => (step, StepEvent::Ran { batch, ran }),
            Event::Committed { step, batch } => (step, StepEvent::Committed { batch }),
            Event::Hold { step, until } => (step, StepEvent::Hold { until }),
            Event::PutBack { step, batch } => (step, StepEvent::PutBack { batch }),
            Event::Failed { step } => (step, StepEvent::Failed),
            Event::Rewind { step } => (step, StepEvent::Rewind),
            Event::Grew { queue, head } => {
                self.heads[queue] = self.heads[queue].max(head);
                return self.decide(now, commands);
            }
            Event::Pause { step, paused } => {
                self.paused[step] = paused;
                return self.decide(now, commands);
            }
            Event::Tick => return self.decide(now, commands),
            Event::Stop => {
                if self.stage == Stage::Running {
                    self.stage = Stage::Ending(End::Stopped);
                }
                return self.decide(now, commands);
            }
        };
        let comes_home = matches!(event, StepEvent::Ran { .. } | StepEvent::PutBack { .. });
        if comes_home && !self.steps[step].is_aside() {
            self.free_slots += 1;
        }
        self.steps[step].handle(event, &mut self.next_batch, now, commands);
        self.decide(now, commands);
    }

    /// A job of a step waits in the store for its next attempt, and goes before all others that are not
    /// delivered. Takes effect with the next event.
    pub fn park(&mut self, step: usize, turn: Turn, due: Timestamp) {
        self.steps[step].park(turn, due);
    }

    /// Jobs that a step may pick were seen.
    pub fn saw(&mut self, step: usize, card: &Card<'_>, state: State) {
        self.steps[step].saw(card, state);
    }

    /// An output of a step that picks, made already, is due at `due`.
    pub fn saw_late(&mut self, step: usize, key: JobKey, due: Timestamp) {
        self.steps[step].saw_late(key, due);
    }

    /// What became of these jobs of a step that picks, which were pending, is known: it is delivered
    /// like any batch.
    pub fn settle(&mut self, step: usize, jobs: Vec<JobKey>, now: Timestamp, commands: &mut Vec<Command>) {
        self.steps[step].settle(jobs);
        self.decide(now, commands);
    }

    /// Where a job stands of a step that picks; an output that is due later is delayed.
    #[must_use]
    pub fn state(&self, step: usize, key: JobKey) -> Option<State> {
        self.steps[step].state(key)
    }

    /// Nothing is done with a delayed job until [`Self::reschedule`].
    pub fn hold(&mut self, step: usize, key: JobKey) {
        self.steps[step].reschedule(key, Timestamp(i64::MAX));
    }

    /// A delayed job is due at another time. Takes effect with the next event.
    pub fn reschedule(&mut self, step: usize, key: JobKey, due: Timestamp) {
        self.steps[step].reschedule(key, due);
    }

    /// Takes out a job that nobody works on, and of which nothing is to be settled. Takes effect with the
    /// next event. One of the input is withheld before it is accounted for or released, though it was not
    /// seen yet.
    pub fn cancel(&mut self, step: usize, key: JobKey, now: Timestamp) {
        self.steps[step].cancel(key, now);
    }

    /// Whether a job of the input is being taken out.
    #[must_use]
    pub fn withholds(&self, step: usize, index: u64) -> bool {
        self.steps[step].withholds(index)
    }

    /// A job of the input that was to be taken out was not: it is accounted for, or is not there.
    pub fn release(&mut self, step: usize, index: u64) {
        self.steps[step].release(index);
    }

    /// A job of the input, which was taken out, is accounted for.
    pub fn account(&mut self, step: usize, index: u64, now: Timestamp, commands: &mut Vec<Command>) {
        self.steps[step].account(index, commands);
        self.decide(now, commands);
    }

    /// The jobs of a step that picks them, and what holds them all.
    #[must_use]
    pub fn look(&self, step: usize) -> Option<Look<'_>> {
        let look = self.steps[step].look()?;
        Some(Look { paused: self.paused[step], ..look })
    }

    /// How many jobs of a step stand where. `lanes`: those with the most jobs waiting, up to so many. Of a
    /// step that picks this looks at every job in its room.
    #[must_use]
    pub fn glance(&self, step: usize, lanes: usize, now: Timestamp) -> Glance {
        self.steps[step].glance(&self.heads, lanes, now)
    }

    /// The step goes on, at these indices of its inputs: its progress was put back, or could not be.
    pub fn rewound(&mut self, step: usize, next: &[u64], now: Timestamp, commands: &mut Vec<Command>) {
        self.steps[step].rewound(next);
        self.decide(now, commands);
    }

    /// When it wants to be told that time has passed, if only that has to happen.
    #[must_use]
    pub fn wakes(&self, now: Timestamp) -> Option<Timestamp> {
        if self.stage != Stage::Running {
            return None;
        }
        let open = self.steps.iter().zip(&self.paused).filter(|(_, paused)| !**paused);
        open.filter_map(|(step, _)| step.wakes(now)).min()
    }

    /// Whether the step can take no more jobs in this run because one of them halted it.
    #[must_use]
    pub fn is_halted(&self, step: usize) -> bool {
        self.steps[step].is_halted()
    }

    fn decide(&mut self, now: Timestamp, commands: &mut Vec<Command>) {
        while self.stage != Stage::Done {
            self.work(now, commands);
            let Some(end) = self.end(now) else { return };
            if self.stage == Stage::Running && self.steps.iter().any(|step| step.has_left()) {
                // What waits behind a job that is not due now is given up in order.
                self.stage = Stage::Ending(end);
                continue;
            }
            self.stage = Stage::Done;
            commands.push(Command::Finish(end));
        }
    }

    fn work(&mut self, now: Timestamp, commands: &mut Vec<Command>) {
        for (step, &paused) in self.steps.iter_mut().zip(&self.paused) {
            let mode = match (self.stage, paused) {
                (Stage::Ending(_) | Stage::Done, _) => Mode::Stopping,
                (Stage::Running, true) => Mode::Paused,
                (Stage::Running, false) => Mode::Open,
            };
            let (bounds, heads, next_batch) = (&self.bounds, &*self.heads, &mut self.next_batch);
            step.advance(&mut Around { bounds, heads, next_batch, mode }, now, commands);
        }
        // Those furthest downstream first, so that what is begun gets out before more is let in, and
        // queues stay short.
        for (step, &paused) in self.steps.iter_mut().zip(&self.paused).rev() {
            let (bounds, free, next_batch) = (&self.bounds, &mut self.free_slots, &mut self.next_batch);
            step.run(&mut Hands { bounds, paused, free, next_batch }, commands);
        }
    }

    fn end(&self, now: Timestamp) -> Option<End> {
        let ending = match self.stage {
            Stage::Ending(end) => Some(end),
            Stage::Running | Stage::Done => None,
        };
        for (step, &paused) in self.steps.iter().zip(&self.paused) {
            // What a paused step has not begun would wait for somebody who has it go on, and that of one which
            // cannot be set up for what it needs.
            let waits = (paused || step.is_held(now)) && self.until_idle && ending.is_none();
            if if waits { step.is_at_work() } else { step.is_busy(ending.is_some()) } {
                return None;
            }
        }
        if ending.is_some() {
            return ending;
        }
        if self.expecting {
            return None;
        }
        for (step, &paused) in self.steps.iter().zip(&self.paused) {
            let waits = (paused || step.is_held(now)) && self.until_idle;
            let over = step.is_exhausted(&self.heads, self.until_idle, now) || waits;
            if !over {
                return None;
            }
        }
        let stuck = self.steps.iter().any(|step| step.is_stuck());
        Some(if stuck { End::Halted } else { End::Drained })
    }
}

#[cfg(test)]
mod tests;
