//! What every step is to the dispatcher, however it takes its jobs.

use std::fmt::Debug;

use super::flow::{BatchEnd, BatchId, Bounds, Command, ReadId, Turn};
use super::glance::Glance;
use crate::queuer::{Card, JobKey, State, WaitingRoom};
use tidegate_model::Timestamp;

/// One step as a state machine of its own.
pub(crate) trait Machine: Debug + Send {
    /// `next_batch` is the number of the next batch.
    fn handle(&mut self, event: StepEvent, next_batch: &mut u64, now: Timestamp, commands: &mut Vec<Command>);

    /// Does what can be done now, but for giving work to workers.
    fn advance(&mut self, around: &mut Around<'_>, now: Timestamp, commands: &mut Vec<Command>);

    /// Gives batches to workers as long as there are free ones; those of a step that is paused only if
    /// they were begun before.
    fn run(&mut self, hands: &mut Hands<'_>, commands: &mut Vec<Command>);

    /// Whether it has batches that are neither delivered nor given up.
    fn has_left(&self) -> bool;

    /// Whether its batches take no worker from other steps.
    fn is_aside(&self) -> bool {
        false
    }

    /// A job that it may pick was seen.
    fn saw(&mut self, _card: &Card<'_>, _state: State) {}

    /// A job of it waits in the store for its next attempt, before all others.
    fn park(&mut self, _turn: Turn, _due: Timestamp) {}

    /// An output of it, made already, is due at `due`.
    fn saw_late(&mut self, _key: JobKey, _due: Timestamp) {}

    /// What became of these jobs, which were pending, is known.
    fn settle(&mut self, _jobs: Vec<JobKey>) {}

    /// Where a job stands, if it is one of those that it may pick.
    fn state(&self, _key: JobKey) -> Option<State> {
        None
    }

    /// A delayed job is due at another time.
    fn reschedule(&mut self, _key: JobKey, _due: Timestamp) {}

    /// Takes out a job that nobody works on, and of which nothing is to be settled.
    fn cancel(&mut self, _key: JobKey, _now: Timestamp) {}

    /// Whether a job of the input is being taken out.
    fn withholds(&self, _index: u64) -> bool {
        false
    }

    /// A job of the input that was to be taken out was not.
    fn release(&mut self, _index: u64) {}

    /// A job of the input, which was taken out, is accounted for.
    fn account(&mut self, _index: u64, _commands: &mut Vec<Command>) {}

    /// The jobs that it may pick.
    fn look(&self) -> Option<Look<'_>> {
        None
    }

    /// How many jobs stand where, and up to so many of its lanes.
    fn glance(&self, heads: &[u64], lanes: usize, now: Timestamp) -> Glance;

    /// Takes the step out before anything begins.
    fn exclude(&mut self);

    /// Whether it takes no more jobs in this run because one of them halted it.
    fn is_halted(&self) -> bool;

    /// Whether it cannot come to its end.
    fn is_stuck(&self) -> bool;

    /// It goes on at these indices of its inputs.
    fn rewound(&mut self, next: &[u64]);

    /// Whether something of it is still on its way.
    fn is_busy(&self, stopping: bool) -> bool;

    /// Whether something that was begun, or that is run without that, is not delivered.
    fn is_at_work(&self) -> bool;

    /// Whether it has nothing to do until something happens elsewhere.
    fn is_exhausted(&self, heads: &[u64], until_idle: bool, now: Timestamp) -> bool;

    /// Whether what it runs could not be set up, and is to be set up again later.
    fn is_held(&self, now: Timestamp) -> bool;

    /// When it has something to do, if only time has to pass for that.
    fn wakes(&self, now: Timestamp) -> Option<Timestamp>;
}

/// The jobs of a step that picks them, and what holds them all.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    pub room: &'a WaitingRoom,
    /// Somebody has paused the step.
    pub paused: bool,
    /// Its gate was found closed; it is looked at again then.
    pub gate: Option<Timestamp>,
    /// A job has said that nothing shall start before this.
    pub held_until: Option<Timestamp>,
    /// How far jobs are looked at: the last index, where there is a bound.
    pub ahead: Option<u64>,
    /// The index up to which they were read.
    pub read: u64,
    /// One of its jobs has stopped it.
    pub halted: bool,
}

/// What a step sees of the rest.
#[derive(Debug)]
pub(crate) struct Around<'a> {
    pub(crate) bounds: &'a Bounds,
    /// The last index of each queue.
    pub(crate) heads: &'a [u64],
    pub(crate) next_batch: &'a mut u64,
    pub(crate) mode: Mode,
}

/// What a step may give to workers.
#[derive(Debug)]
pub(crate) struct Hands<'a> {
    pub(crate) bounds: &'a Bounds,
    pub(crate) paused: bool,
    /// How many more batches workers can be given.
    pub(crate) free: &'a mut usize,
    pub(crate) next_batch: &'a mut u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Open,
    /// Starts nothing for now.
    Paused,
    /// Starts nothing more in this run.
    Stopping,
}

/// Something that has happened to one step: see [`super::Event`].
#[derive(Clone, Debug)]
pub(crate) enum StepEvent {
    Read { input: usize, read: ReadId, first: u64, jobs: usize, bytes: usize },
    Idle { input: usize },
    Ended { input: usize },
    Broken { input: usize },
    Returned { due: Timestamp },
    Parked { turn: Turn, due: Timestamp },
    Gone { turn: Turn },
    NoneDue { next: Option<Timestamp> },
    Picked { batch: BatchId, bytes: usize },
    Begun { batch: BatchId },
    Ran { batch: BatchId, ran: BatchEnd },
    Committed { batch: BatchId },
    Gate { open: bool },
    Hold { until: Timestamp },
    PutBack { batch: BatchId },
    Failed,
    Rewind,
}

/// The number of the next batch.
pub(crate) fn number(next: &mut u64) -> BatchId {
    let id = BatchId(*next);
    *next += 1;
    id
}
