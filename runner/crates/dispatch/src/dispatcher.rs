//! Dispatcher: decides what each step reads, runs and commits next.
//!
//! Every step takes its jobs in batches. A batch has as many jobs as take about 5 ms
//! ([`crate::batch_size`]).
//!
//! Most steps take their jobs in order ([`crate::ordered`]). A batch is made of one input, of whichever input
//! has jobs, or of the same number of jobs of each input. The batches run on any worker, at the same time and
//! in any order. They are committed in the order of the inputs. A job behind one that waits for its next
//! attempt may run; it is committed after that one. If a job halts its step, the jobs before it are committed
//! and the jobs behind it are not.
//!
//! The other steps pick their jobs by the rules of a queuer ([`crate::queued`]). They commit each batch as
//! soon as it has run.
//!
//! The dispatcher knows reads and batches by number and size only; the engine keeps their jobs. Every event
//! carries the time.

pub use crate::counts::{InputCounts, JobCounts, QueuedCounts};
use crate::ordered::OrderedStep;
pub use crate::protocol::{
    BatchComposition, BatchCut, BatchEnd, BatchId, Bounds, Command, DurabilityBarrier, Event, InputKind,
    InputPlan, InputPort, JobOutcome, PortInput, QueuePlan, ReadId, RecoveredBatch, RunOutcome, StepPlan,
    Turn, Wait,
};
use crate::queued::QueuedStep;
use crate::step_machine::{DispatchContext, Mode, StepEvent, StepMachine, WorkerCapacity};
pub use crate::step_machine::{QueueSnapshot, SettledJob};

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use crate::waiting_room::{Hold, JobAttributes, JobKey, WaitingState};
use tidegate_model::{Due, Parts, Timestamp};

/// Time after which a step that has found all workers busy goes before the others.
const STARVED_MAX: Duration = Duration::from_millis(10);

/// State machine of all steps: takes [`Event`]s and answers with [`Command`]s to carry out.
#[derive(Debug)]
pub struct Dispatcher {
    /// Upstream before downstream.
    steps: Parts<ScheduledStep>,
    /// The last index of each queue.
    heads: Vec<u64>,
    bounds: Bounds,
    /// Number of further batches that the workers can take.
    free_slots: usize,
    next_batch: u64,
    pub(crate) until_idle: bool,
    /// Whether jobs or steps are on their way from elsewhere.
    expecting: bool,
    /// Whether the run has no end of its own.
    is_unbounded: bool,
    stage: RunStage,
    /// Steps that may act with the next event. An event costs the same with any number of idle steps beside them.
    attention: BTreeSet<usize>,
    /// Steps with batches that acted while all workers were busy, and may start some when one is free.
    unserved: BTreeSet<usize>,
    /// Steps that have a batch for a worker and found all of them busy, with the time since which they do.
    starved: BTreeMap<usize, Timestamp>,
    /// Times at which steps may act.
    wakes: BTreeSet<(Timestamp, usize)>,
    /// Steps by the queue that they read.
    readers: HashMap<usize, Vec<usize>>,
    /// Step that kept the run from ending when this was last checked.
    blocker: Option<usize>,
    /// Time of the last event.
    latest: Timestamp,
}

#[derive(Debug)]
struct ScheduledStep {
    machine: Box<dyn StepMachine>,
    /// It starts nothing, because an operator has paused it.
    paused: bool,
    /// It starts nothing more, and is removed when nothing of it is in flight.
    drains: bool,
    /// Place in the order of the steps.
    rank: usize,
    wake: Option<Timestamp>,
    /// Queues that it fills.
    fills: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunStage {
    Running,
    /// Nothing more is started; the run ends with this outcome.
    Ending(RunOutcome),
    Done,
}

impl Dispatcher {
    /// Creates a dispatcher without steps. Nothing happens before [`Self::start`].
    #[must_use]
    pub fn new(bounds: Bounds, until_idle: bool) -> Self {
        Self {
            steps: Parts::default(),
            heads: Vec::new(),
            bounds,
            free_slots: bounds.slots,
            next_batch: 0,
            until_idle,
            expecting: false,
            is_unbounded: false,
            stage: RunStage::Running,
            attention: BTreeSet::new(),
            unserved: BTreeSet::new(),
            starved: BTreeMap::new(),
            wakes: BTreeSet::new(),
            readers: HashMap::new(),
            blocker: None,
            latest: Timestamp(i64::MIN),
        }
    }

    /// Adds a step that has nothing in flight. It starts with the next event.
    pub fn install(&mut self, step: usize, mut plan: StepPlan) {
        let redo = plan.redo.iter().map(|redo| redo.number + 1);
        self.next_batch = redo.fold(self.next_batch, u64::max);
        for input in &plan.inputs {
            if let InputKind::Queue(queue) | InputKind::Pushed(queue) = input.feed {
                self.set_head(queue, 0);
                self.readers.entry(queue).or_default().push(step);
            }
        }
        let fills = std::mem::take(&mut plan.fills);
        let machine: Box<dyn StepMachine> = match plan.picking.take() {
            Some(picking) => Box::new(QueuedStep::new(step, &plan, picking)),
            None => Box::new(OrderedStep::new(step, plan)),
        };
        let rank = self.steps.iter().next_back().map_or(0, |step| step.rank + 1);
        let (paused, drains, wake) = (false, false, None);
        self.steps.insert(step, ScheduledStep { machine, paused, drains, rank, wake, fills });
        self.attention.insert(step);
    }

    fn remove(&mut self, step: usize) {
        if let Some(wake) = self.steps.remove(step).and_then(|step| step.wake) {
            self.wakes.remove(&(wake, step));
        }
        self.attention.remove(&step);
        self.unserved.remove(&step);
        self.starved.remove(&step);
        self.readers.values_mut().for_each(|readers| readers.retain(|reader| *reader != step));
    }

    /// Sets the last index of a queue, unless it is known to be later.
    pub fn set_head(&mut self, queue: usize, head: u64) {
        if self.heads.len() <= queue {
            self.heads.resize(queue + 1, 0);
        }
        if self.heads[queue] < head {
            self.heads[queue] = head;
            self.attention.extend(self.readers.get(&queue).into_iter().flatten());
        }
    }

    /// Orders the steps, upstream before downstream.
    pub fn set_order(&mut self, order: &[usize]) {
        self.steps.set_order(order);
        for rank in 0..self.steps.len() {
            let position = self.steps.order()[rank];
            self.steps[position].rank = rank;
        }
    }

    /// Excludes a step, whose jobs stay where they are.
    pub fn exclude(&mut self, step: usize) {
        self.change(step, |machine| machine.exclude());
    }

    /// Sets whether jobs are on their way to a queue from a client or a schedule, or steps are about to be
    /// installed. While they are, the run ends only on [`Event::Stop`]. [`Event::Tick`] makes the dispatcher check this again.
    pub fn expect(&mut self, expecting: bool) {
        self.expecting = expecting;
    }

    /// Sets whether the run has no end of its own: more jobs come from clients, schedules or followed files. It goes on
    /// when no step reads them, or all steps have stopped. A reload or a replay may start steps.
    pub fn set_unbounded(&mut self, is_unbounded: bool) {
        self.is_unbounded = is_unbounded;
    }

    /// Pauses a step that was just installed.
    pub fn pause(&mut self, step: usize) {
        self.set_paused(step, true);
    }

    fn set_paused(&mut self, step: usize, paused: bool) {
        self.attention.insert(step);
        if let Some(step) = self.steps.get_mut(step) {
            step.paused = paused;
        }
    }

    /// Changes a step; one that was removed needs no change.
    fn change(&mut self, step: usize, change: impl FnOnce(&mut dyn StepMachine)) {
        self.attention.insert(step);
        if let Some(step) = self.steps.get_mut(step) {
            change(&mut *step.machine);
        }
    }

    /// Adds the first commands of the run to `commands`.
    pub fn start(&mut self, now: Timestamp, commands: &mut Vec<Command>) {
        self.decide(now, commands);
    }

    /// Handles one event and adds the commands that follow from it to `commands`.
    pub fn handle(&mut self, event: Event, now: Timestamp, commands: &mut Vec<Command>) {
        self.apply(event, now, commands);
        self.decide(now, commands);
    }

    /// Applies one of several events that happened together. No job starts between them: the next call of [`Self::handle`]
    /// decides what follows.
    pub fn apply(&mut self, event: Event, now: Timestamp, commands: &mut Vec<Command>) {
        let (step, event) = match event {
            Event::Read { port: InputPort { step, input }, read, first, jobs, bytes } => {
                (step, StepEvent::Read { input, read, first, jobs, bytes })
            }
            Event::Idle { port: InputPort { step, input } } => (step, StepEvent::Idle { input }),
            Event::Full { port: InputPort { step, input }, full } => (step, StepEvent::Full { input, full }),
            Event::Ended { port: InputPort { step, input } } => (step, StepEvent::Ended { input }),
            Event::Broken { port: InputPort { step, input } } => (step, StepEvent::Broken { input }),
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
            Event::GivenBack { step } => (step, StepEvent::GivenBack),
            Event::Drain { step } => {
                self.attention.insert(step);
                if let Some(step) = self.steps.get_mut(step) {
                    step.drains = true;
                }
                return;
            }
            Event::WentAside { step, batch } => {
                self.attention.insert(step);
                let step = self.steps.get_mut(step);
                self.free_slots += usize::from(step.is_some_and(|step| step.machine.go_aside(batch)));
                return;
            }
            Event::Grew { queue, head } => {
                self.set_head(queue, head);
                return;
            }
            Event::Pause { step, paused } => {
                self.set_paused(step, paused);
                return;
            }
            Event::Tick => return,
            Event::Stop => {
                if self.stage == RunStage::Running {
                    self.stage = RunStage::Ending(RunOutcome::Stopped);
                }
                return;
            }
        };
        let comes_home = match &event {
            StepEvent::Ran { batch, .. } | StepEvent::PutBack { batch } => Some(*batch),
            _ => None,
        };
        // A late message about a removed step has no effect.
        let Some(ScheduledStep { machine, .. }) = self.steps.get_mut(step) else { return };
        if comes_home.is_some_and(|batch| !machine.is_aside(batch)) {
            self.free_slots += 1;
        }
        machine.handle(event, &mut self.next_batch, now, commands);
        self.attention.insert(step);
    }

    /// Adds a job that waits in the store for its next attempt. It goes before all other jobs that are not
    /// delivered. Takes effect with the next event.
    pub fn park(&mut self, step: usize, turn: Turn, due: Timestamp) {
        self.change(step, |machine| machine.park(turn, due));
    }

    /// Adds a job to the waiting room of a queued step.
    pub fn saw(&mut self, step: usize, attributes: &JobAttributes<'_>, state: WaitingState) {
        self.change(step, |machine| machine.add_waiting(attributes, state));
    }

    /// Adds an output of a queued step that was made earlier and is due at `due`.
    pub fn saw_late(&mut self, step: usize, key: JobKey, due: Due) {
        self.change(step, |machine| machine.add_delayed_output(key, due));
    }

    /// Delivers completed jobs of a queued step, which were pending, as a batch.
    pub fn settle(&mut self, step: usize, jobs: &[SettledJob], now: Timestamp, commands: &mut Vec<Command>) {
        self.change(step, |machine| machine.settle(jobs, now));
        self.decide(now, commands);
    }

    /// Holds a lane of a step, or ends its hold. Takes effect with the next event.
    pub fn hold_lane(&mut self, step: usize, lane: &str, hold: Option<Hold>) {
        self.change(step, |machine| machine.hold_lane(lane.as_bytes(), hold));
    }

    /// Makes way for the next jobs of the lane of a pending job. Takes effect with the next event.
    pub fn free_lane(&mut self, step: usize, key: JobKey, now: Timestamp) {
        self.change(step, |machine| machine.free_lane(key, now));
    }

    /// State of a job of a queued step. An output that is due later counts as delayed.
    #[must_use]
    pub fn state(&self, step: usize, key: JobKey) -> Option<WaitingState> {
        self.steps.get(step)?.machine.state(key)
    }

    /// Freezes a delayed job until [`Self::reschedule`].
    pub fn hold(&mut self, step: usize, key: JobKey) {
        self.change(step, |machine| machine.reschedule(key, Due::Never));
    }

    /// Changes the due time of a delayed job. Takes effect with the next event.
    pub fn reschedule(&mut self, step: usize, key: JobKey, due: Due) {
        self.change(step, |machine| machine.reschedule(key, due));
    }

    /// Removes a job that is neither in flight nor waiting for the delivery of a known outcome. Takes effect
    /// with the next event. A job of the input is withheld until it is accounted for or released, even if the
    /// step has not seen it yet.
    pub fn cancel(&mut self, step: usize, key: JobKey, now: Timestamp) {
        self.change(step, |machine| machine.cancel(key, now));
    }

    /// Sets whether a queued step gives back all jobs that it has claimed and not run, and claims no other. Takes
    /// effect with the next event.
    pub fn withhold_claims(&mut self, step: usize, withhold: bool) {
        self.change(step, |machine| machine.withhold_claims(withhold));
    }

    /// Jobs of a queued step that are claimed or being claimed, and that do not run.
    #[must_use]
    pub fn claimed(&self, step: usize) -> Vec<JobKey> {
        self.steps.get(step).map(|step| step.machine.claimed()).unwrap_or_default()
    }

    /// Whether a job of the input is being cancelled.
    #[must_use]
    pub fn withholds(&self, step: usize, index: u64) -> bool {
        self.steps.get(step).is_some_and(|step| step.machine.is_cancelling(index))
    }

    /// Ends the cancellation of a job of the input that was not cancelled: it is accounted for already, or it
    /// does not exist.
    pub fn release(&mut self, step: usize, index: u64) {
        self.change(step, |machine| machine.release(index));
    }

    /// Marks a cancelled job of the input as accounted for.
    pub fn account(&mut self, step: usize, index: u64, now: Timestamp, commands: &mut Vec<Command>) {
        self.change(step, |machine| machine.mark_cancelled(index, commands));
        self.decide(now, commands);
    }

    /// Snapshot of the waiting room of a queued step, and of the conditions that block the whole step.
    #[must_use]
    pub fn look(&self, step: usize) -> Option<QueueSnapshot<'_>> {
        let ScheduledStep { machine, paused, .. } = self.steps.get(step)?;
        Some(QueueSnapshot { paused: *paused, ..machine.look()? })
    }

    /// Counts the jobs of a step by state. `lanes` is the maximum number of lanes listed, those with the most
    /// waiting jobs first. For a queued step the count walks every job in its waiting room.
    #[must_use]
    pub fn job_counts(&self, step: usize, lanes: usize, now: Timestamp) -> Option<JobCounts> {
        Some(self.steps.get(step)?.machine.job_counts(&self.heads, lanes, now))
    }

    /// Time at which the dispatcher needs [`Event::Tick`], if a step waits for a time.
    #[must_use]
    pub fn wakes(&self) -> Option<Timestamp> {
        if self.stage != RunStage::Running {
            return None;
        }
        self.wakes.first().map(|(wake, _)| *wake)
    }

    /// Whether a job halted the step, so that it takes no more jobs in this run.
    #[must_use]
    pub fn is_halted(&self, step: usize) -> bool {
        self.steps.get(step).is_some_and(|step| step.machine.is_halted())
    }

    fn decide(&mut self, now: Timestamp, commands: &mut Vec<Command>) {
        while self.stage != RunStage::Done {
            self.work(now, commands);
            let Some(end) = self.end(now) else { return };
            if self.stage == RunStage::Running && self.steps.iter().any(|step| step.machine.has_left()) {
                // Jobs that wait behind one that is not due now are dropped in order.
                self.stage = RunStage::Ending(end);
                continue;
            }
            self.stage = RunStage::Done;
            commands.push(Command::Finish(end));
        }
    }

    fn work(&mut self, now: Timestamp, commands: &mut Vec<Command>) {
        let mut steps = self.take_attention(now);
        let mut drained = Vec::new();
        for &position in &steps {
            let Some(ScheduledStep { machine, paused, drains, .. }) = self.steps.get_mut(position) else {
                continue;
            };
            let mode = match (self.stage, *paused) {
                _ if *drains => Mode::Stopping,
                (RunStage::Ending(_) | RunStage::Done, _) => Mode::Stopping,
                (RunStage::Running, true) => Mode::Paused,
                (RunStage::Running, false) => Mode::Open,
            };
            let (bounds, heads, next_batch) = (&self.bounds, &*self.heads, &mut self.next_batch);
            let before = commands.len();
            machine.advance(&mut DispatchContext { bounds, heads, next_batch, mode }, now, commands);
            if *drains && !machine.is_busy(true) {
                drained.push(position);
            } else if commands.len() > before {
                self.attention.insert(position);
            }
        }
        for step in drained {
            self.remove(step);
            commands.push(Command::Drained { step });
        }
        // The steps furthest downstream run first: begun jobs leave before more are let in, and queues stay
        // short. A step that has waited for long goes before them, so that no backlog of another one keeps it waiting.
        if self.free_slots > 0 && !self.unserved.is_empty() {
            steps.extend(std::mem::take(&mut self.unserved));
            self.sort(&mut steps);
            for position in self.long_starved(now) {
                self.run(position, 1, now, commands);
            }
        }
        for &position in steps.iter().rev() {
            self.run(position, usize::MAX, now, commands);
            self.note_wake(position, now);
        }
    }

    /// Lets a step start batches on at most `slots` free workers.
    fn run(&mut self, position: usize, slots: usize, now: Timestamp, commands: &mut Vec<Command>) {
        let Some(step) = self.steps.get_mut(position) else { return };
        let paused = step.paused || step.drains;
        let given = self.free_slots.min(slots);
        let (mut free, before) = (given, commands.len());
        let (bounds, next_batch) = (&self.bounds, &mut self.next_batch);
        let mut capacity = WorkerCapacity { bounds, paused, free: &mut free, is_short: false, next_batch };
        step.machine.run(&mut capacity, now, commands);
        let (is_short, has_batches) = (capacity.is_short, step.machine.is_busy(true));
        self.free_slots -= given - free;
        if commands.len() > before {
            self.attention.insert(position);
        }
        if free < given || !is_short {
            self.starved.remove(&position);
        }
        if is_short {
            self.starved.entry(position).or_insert(now);
        }
        if self.free_slots == 0 && has_batches {
            self.unserved.insert(position);
        }
    }

    /// The steps that have found all workers busy for long, longest first. A step whose readers are starved, too, is not
    /// one of them: its queue would only grow.
    fn long_starved(&self, now: Timestamp) -> Vec<usize> {
        // A clock that was set back makes them count as starved for long.
        let is_long = |since: Timestamp| !(since..since + STARVED_MAX).contains(&now);
        let long =
            self.starved.iter().filter(|&(&step, &since)| is_long(since) && !self.has_starved_readers(step));
        let mut long: Vec<_> = long.map(|(&step, &since)| (since, step)).collect();
        long.sort_unstable();
        long.into_iter().map(|(_, step)| step).collect()
    }

    /// Whether a step downstream that reads a queue of this one is starved.
    fn has_starved_readers(&self, step: usize) -> bool {
        let Some(ScheduledStep { fills, rank, .. }) = self.steps.get(step) else { return false };
        let mut readers = fills.iter().filter_map(|queue| self.readers.get(queue)).flatten();
        readers.any(|reader| {
            let is_downstream = self.steps.get(*reader).is_some_and(|reader| reader.rank > *rank);
            is_downstream && self.starved.contains_key(reader)
        })
    }

    /// Takes the steps that may act now, in order.
    fn take_attention(&mut self, now: Timestamp) -> Vec<usize> {
        // After a jump of the clock all times are new.
        if self.stage != RunStage::Running || now < self.latest {
            self.attention.extend(self.steps.order());
        }
        self.latest = now;
        while let Some((_, step)) = self.wakes.first().filter(|(wake, _)| *wake <= now).copied() {
            self.wakes.pop_first();
            self.steps[step].wake = None;
            self.attention.insert(step);
        }
        let mut steps: Vec<usize> = std::mem::take(&mut self.attention).into_iter().collect();
        self.sort(&mut steps);
        steps
    }

    /// Sorts steps, upstream before downstream, each once.
    fn sort(&self, steps: &mut Vec<usize>) {
        steps.sort_unstable_by_key(|&step| self.steps.get(step).map(|step| step.rank));
        steps.dedup();
    }

    /// Records the time at which a step may act.
    fn note_wake(&mut self, position: usize, now: Timestamp) {
        let Some(step) = self.steps.get_mut(position) else { return };
        let wake = if step.paused || step.drains { None } else { step.machine.next_wakeup(now) };
        let before = std::mem::replace(&mut step.wake, wake);
        if before != wake {
            before.map(|before| self.wakes.remove(&(before, position)));
            self.wakes.extend(wake.map(|wake| (wake, position)));
        }
    }

    fn end(&mut self, now: Timestamp) -> Option<RunOutcome> {
        let ending = match self.stage {
            RunStage::Ending(end) => Some(end),
            RunStage::Running | RunStage::Done => None,
        };
        if self.expecting && ending.is_none() {
            return None;
        }
        // The same step usually keeps the run from ending for long.
        if self.blocker.and_then(|step| self.steps.get(step)).is_some_and(|step| self.blocks_end(step, now)) {
            return None;
        }
        self.blocker =
            self.steps.entries().find(|(_, step)| self.blocks_end(step, now)).map(|(step, _)| step);
        if self.blocker.is_some() {
            return None;
        }
        if self.is_unbounded && !self.until_idle && ending.is_none() {
            return None;
        }
        let stuck = self.steps.iter().any(|step| step.machine.cannot_finish());
        ending.or(Some(if stuck { RunOutcome::Halted } else { RunOutcome::Drained }))
    }

    /// Whether the run cannot end because of this step.
    fn blocks_end(&self, ScheduledStep { machine, paused, .. }: &ScheduledStep, now: Timestamp) -> bool {
        if let RunStage::Ending(_) = self.stage {
            return machine.is_busy(true);
        }
        // A paused step leaves the jobs that it has not begun until an operator resumes it. A step that cannot
        // be set up leaves them until its setup succeeds.
        if (*paused || machine.is_held(now)) && self.until_idle {
            return machine.is_at_work();
        }
        machine.is_busy(false) || !machine.is_drained(&self.heads, self.until_idle, now)
    }
}

#[cfg(test)]
mod tests;
