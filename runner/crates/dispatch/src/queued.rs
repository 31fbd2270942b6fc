//! Queued step: picks its jobs by the rules of a queuer.
//!
//! This file has the state of the step and the handling of its events. Other modules fill the waiting room
//! ([`reads`]), check the gate ([`gate`]), process the picked batches ([`batches`], [`claims`], [`in_flight`]), and
//! deliver their results in order ([`delivery_line`]).

use std::collections::{BTreeMap, BTreeSet};

use super::input::{InputState, ReaderState};
use crate::batch_size::Sizing;
use crate::counts::JobCounts;
use crate::protocol::{BatchId, Command, DurabilityBarrier, InputKind, QueuePlan, StepPlan, Wait};
use crate::step_machine::{
    DispatchContext, Mode, QueueSnapshot, SettledJob, StepEvent, StepMachine, WorkerCapacity,
};
use crate::waiting_room::{Hold, JobAttributes, JobKey, WaitingRoom, WaitingState};
use tidegate_model::{Due, Progress, Timestamp};

pub(crate) mod batches;
pub(crate) mod claims;
pub(crate) mod delivery_line;
pub(crate) mod gate;
pub(crate) mod in_flight;
pub(crate) mod inspect;
pub(crate) mod lookahead;
pub(crate) mod reads;
pub(crate) mod unfinished;

use self::lookahead::LookaheadBuffer;
use claims::Claims;
use delivery_line::DeliveryLine;
use gate::GateState;
use in_flight::{InFlightBatches, QueuedBatch};
use reads::ReadState;
use unfinished::UnfinishedJobs;

/// Maximum number of slow jobs at once, for a step without `max_processing`.
const BESIDE_DEFAULT: usize = 16;

#[derive(Debug)]
pub(crate) struct QueuedStep {
    position: usize,
    before: DurabilityBarrier,
    input: InputState,
    feed: Option<InputKind>,
    room: WaitingRoom,
    /// Maximum number of batches of delayed outputs in flight.
    late_batches_max: usize,
    /// Indices of jobs that are being cancelled, until the result is known.
    withheld: BTreeSet<u64>,
    /// Outputs that were made earlier, by due time.
    late: BTreeSet<(Due, JobKey)>,
    /// Completed jobs, which were pending and are to be delivered.
    settling: Vec<JobKey>,
    /// Jobs with results in the store that have no place in an order.
    recalled: Vec<JobKey>,
    search_ahead: u64,
    /// Whether it has reached search-ahead or its memory limit, and reads no more for now.
    is_full: bool,
    /// Jobs that were read and are past search-ahead.
    beyond: LookaheadBuffer,
    /// Last index of the queue when the step first could start a job.
    first_head: Option<u64>,
    /// Maximum number of jobs in a batch.
    batch: usize,
    /// The same after the last batches, of which some ended at a job that was not finished.
    row: usize,
    sizing: Sizing,
    uses_pool: bool,
    /// Maximum number of slow jobs that run in a pool of threads.
    beside_max: usize,
    gate: Option<GateState>,
    /// Time in which nothing starts, because a job reported its gate closed.
    held_back: Option<Wait>,
    progress: Progress,
    unfinished: UnfinishedJobs,
    batches: InFlightBatches,
    claims: Claims,
    /// Condition of the next start, as of the last picking.
    awaits: Awaits,
    /// Order of the deliveries; `None`: each job is delivered as it finishes.
    line: Option<DeliveryLine>,
    /// Unfinished reads, by first index, for a source: it cannot be read job by job.
    reads: BTreeMap<u64, ReadState>,
    /// Bytes of those reads, and of the outputs of batches.
    held: usize,
    end: Halting,
    broken: bool,
    /// Buffer of picked jobs, reused to save allocations.
    picked: Vec<JobKey>,
}

/// Condition of the next start of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaits {
    /// A time, or an event that brings a job or opens the gate.
    Time,
    /// A read, or the end of a batch.
    Event,
    /// A claim, for which the batches in flight leave less than this number of bytes.
    Memory(usize),
    /// The delivery of the first job of the line, which may wait for a time.
    Line,
}

/// Progress of a halt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Halting {
    No,
    /// Running batches are awaited and delivered.
    Delivering,
    /// Running batches are awaited, and nothing can be delivered.
    Failed,
    Halted,
}

impl QueuedStep {
    pub(crate) fn new(position: usize, flow: &StepPlan, picking: QueuePlan) -> Self {
        let QueuePlan {
            rules,
            in_order,
            in_a_row,
            ordered,
            search_ahead,
            batch,
            ahead,
            lot,
            uses_pool,
            gate,
            progress,
        } = picking;
        let claims = Claims::new((ahead, lot), &rules);
        let feed = flow.inputs.first().map(|input| input.feed);
        let next = flow.inputs.first().map_or(1, |input| input.next);
        let beside_max = rules.max_processing.map_or(BESIDE_DEFAULT, |most| most.get() as usize);
        Self {
            position,
            before: flow.before,
            input: InputState::new(feed.unwrap_or(InputKind::Source), next),
            feed,
            room: WaitingRoom::new(rules).beyond(claims.beyond()).in_a_row(in_a_row),
            late_batches_max: if in_order { 1 } else { usize::MAX },
            withheld: BTreeSet::new(),
            late: BTreeSet::new(),
            settling: Vec::new(),
            recalled: Vec::new(),
            search_ahead,
            is_full: false,
            beyond: LookaheadBuffer::default(),
            first_head: None,
            batch,
            row: batch,
            sizing: Sizing::of_picked(),
            uses_pool,
            beside_max,
            gate: gate.map(GateState::new),
            held_back: None,
            progress,
            unfinished: UnfinishedJobs::default(),
            batches: InFlightBatches::default(),
            claims,
            awaits: Awaits::Time,
            line: ordered.then(DeliveryLine::default),
            reads: BTreeMap::new(),
            held: 0,
            end: if feed.is_none() { Halting::Halted } else { Halting::No },
            broken: false,
            picked: Vec::new(),
        }
    }
}

/// The time until which the waiting room delays a job: its slots have no room for more. A job that no time
/// makes due is delayed beyond all times.
fn until(due: Due) -> Timestamp {
    due.time().unwrap_or(Timestamp(i64::MAX))
}

impl StepMachine for QueuedStep {
    fn handle(
        &mut self,
        event: StepEvent,
        next_batch: &mut u64,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) {
        match event {
            StepEvent::Read { read, first, jobs, bytes, .. } => self.took(read, first, jobs, bytes, commands),
            StepEvent::Idle { .. } => self.input.idle(),
            StepEvent::Full { full, .. } => self.input.set_full(full),
            StepEvent::Ended { .. } => self.input.reading = ReaderState::Ended,
            StepEvent::Broken { .. } => {
                self.input.reading = ReaderState::Ended;
                self.broken = true;
            }
            StepEvent::Picked { batch, bytes } => self.fetched(batch, bytes),
            StepEvent::Begun { batch } => self.begun(batch, next_batch, commands),
            StepEvent::Ran { batch, ran } => self.ran(batch, ran, next_batch, now, commands),
            StepEvent::Committed { batch } => self.committed(batch, now, commands),
            StepEvent::Gate { open } => {
                if let Some(gate) = &mut self.gate {
                    gate.answered(open, now);
                }
            }
            StepEvent::Hold { until } => self.hold(Wait { since: now, until }, now),
            StepEvent::Failed => self.failed(commands),
            // Redelivered jobs are reported one by one, and only the next run puts progress back. If a batch
            // could not run, each of its jobs is reported as held.
            StepEvent::Returned { .. }
            | StepEvent::NoneDue { .. }
            | StepEvent::Parked { .. }
            | StepEvent::Gone { .. }
            | StepEvent::GivenBack
            | StepEvent::PutBack { .. } => {}
        }
    }

    fn add_waiting(&mut self, attributes: &JobAttributes<'_>, state: WaitingState) {
        if !attributes.key.is_fresh() && self.batches.attempts() > 0 {
            // It may be older than the claimed jobs.
            self.claims.set_back();
        }
        if let (false, Some(index)) = (attributes.key.is_fresh(), attributes.index) {
            self.unfinished.add(attributes.key, index);
        }
        if let (Some(line), None, false) = (&mut self.line, attributes.index, attributes.key.is_fresh()) {
            line.add_without_place(attributes.key);
        }
        if state == WaitingState::Finished {
            match (&mut self.line, attributes.index) {
                (Some(line), Some(index)) => line.keep(index, attributes.key),
                _ => self.recalled.push(attributes.key),
            }
        }
        if attributes.key.is_fresh() && self.ahead().is_some_and(|ahead| attributes.key.0 > ahead) {
            self.beyond.push(attributes);
        } else {
            self.let_in(attributes, state);
        }
    }

    fn add_delayed_output(&mut self, key: JobKey, due: Due) {
        self.late.insert((due, key));
    }

    fn settle(&mut self, jobs: &[SettledJob], now: Timestamp) {
        for &SettledJob { key, resubmits } in jobs {
            if !self.complete_in_order(key, resubmits, now) {
                self.settling.push(key);
            }
        }
    }

    fn hold_lane(&mut self, lane: &[u8], hold: Option<Hold>) {
        self.room.hold(lane, hold);
    }

    fn free_lane(&mut self, key: JobKey, now: Timestamp) {
        // A job that is no longer pending has left its lane, or begins anew.
        let _ = self.room.free_lane_of(key, now);
    }

    fn state(&self, key: JobKey) -> Option<WaitingState> {
        let late = || self.late.iter().find(|&&(_, late)| late == key);
        let room = self.room.state(key).or_else(|| self.beyond.has(key).then_some(WaitingState::Waiting));
        room.or_else(|| late().map(|&(due, _)| WaitingState::Delayed { until: until(due) }))
    }

    fn reschedule(&mut self, key: JobKey, due: Due) {
        if let Some(&late) = self.late.iter().find(|&&(_, late)| late == key) {
            self.late.remove(&late);
            self.late.insert((due, key));
        } else {
            // A job that is due already stays due.
            let _ = self.room.reschedule(key, until(due));
        }
    }

    fn cancel(&mut self, key: JobKey, now: Timestamp) {
        self.late.retain(|&(_, late)| late != key);
        if key.is_fresh() && !self.progress.is_done(key.0) {
            self.withheld.insert(key.0);
        }
        self.beyond.remove(key);
        // A running job cannot be cancelled and stays.
        if self.room.cancel(key, now).is_ok() {
            self.unfinished.remove(key);
        }
    }

    fn withhold_claims(&mut self, withhold: bool) {
        self.claims.withheld = withhold;
    }

    fn claimed(&self) -> Vec<JobKey> {
        if self.claims.is_ahead() { self.batches.claimed().collect() } else { Vec::new() }
    }

    fn is_cancelling(&self, index: u64) -> bool {
        self.withheld.contains(&index)
    }

    fn release(&mut self, index: u64) {
        self.withheld.remove(&index);
    }

    fn mark_cancelled(&mut self, index: u64, commands: &mut Vec<Command>) {
        self.withheld.remove(&index);
        self.progress.finish(index, index);
        self.let_go(index, commands);
        let (step, position) = (self.position, self.progress.position());
        commands.push(Command::PositionAdvanced { step, position });
    }

    fn look(&self) -> Option<QueueSnapshot<'_>> {
        Some(self.seen())
    }

    fn job_counts(&self, heads: &[u64], lanes: usize, now: Timestamp) -> JobCounts {
        self.counted(heads, lanes, now)
    }

    fn advance(&mut self, context: &mut DispatchContext<'_>, now: Timestamp, commands: &mut Vec<Command>) {
        if self.end == Halting::Halted {
            return;
        }
        match context.mode {
            Mode::Paused => {
                self.give_back(commands);
                self.deliver_in_order(true, context, commands);
            }
            _ if self.end > Halting::No => {
                self.drop_unbegun(commands);
                self.give_back(commands);
                self.deliver_in_order(false, context, commands);
                self.drop_held(commands);
                self.settle_halt();
            }
            Mode::Stopping => {
                self.drop_unbegun(commands);
                self.give_back(commands);
                self.deliver_in_order(false, context, commands);
                self.drop_held(commands);
            }
            Mode::Open => {
                self.claims.recover(&self.batches);
                if self.claims.go_back() {
                    self.give_back(commands);
                }
                self.deliver_in_order(true, context, commands);
                // It may end the reading of the initial backlog, which picking waits for.
                self.skip_finished();
                self.admit();
                self.pick_late(context, now, commands);
                self.settle_pending(context, commands);
                self.pick(context, now, commands);
                self.begin(commands);
                self.read(context, now, commands);
            }
        }
    }

    fn run(&mut self, hands: &mut WorkerCapacity<'_>, now: Timestamp, commands: &mut Vec<Command>) {
        hands.is_short = self.run_ready(hands.paused, hands.free, now, commands);
    }

    fn has_left(&self) -> bool {
        self.end < Halting::Halted && self.holds_results()
    }

    fn go_aside(&mut self, batch: BatchId) -> bool {
        self.batches.go_aside(batch)
    }

    fn is_aside(&self, batch: BatchId) -> bool {
        self.batches.get(batch).map_or(self.uses_pool, QueuedBatch::is_aside)
    }

    fn exclude(&mut self) {
        self.end = Halting::Halted;
    }

    fn is_halted(&self) -> bool {
        self.end > Halting::No
    }

    fn cannot_finish(&self) -> bool {
        self.end > Halting::No || self.broken || self.room.has_halted_lanes()
    }

    fn is_busy(&self, stopping: bool) -> bool {
        let looking = self.gate.as_ref().is_some_and(GateState::is_asked);
        !self.batches.is_empty()
            || stopping && self.has_left()
            || self.end < Halting::Halted
                && !stopping
                && (self.input.reading == ReaderState::Asked || looking)
    }

    fn is_at_work(&self) -> bool {
        !self.batches.are_unbegun()
    }

    fn is_drained(&self, heads: &[u64], until_idle: bool, now: Timestamp) -> bool {
        let counts = self.room.counts();
        let jobs = counts.waiting + counts.running + counts.delayed + counts.pending + counts.finished;
        let idle = jobs == 0 || jobs == self.room.waiting_in_halted_lanes();
        let empty = idle && self.late.is_empty() && (self.beyond.len() == 0 || jobs > 0);
        // Halted lanes can fill the space that the step has.
        let is_stuck = (until_idle || jobs > 0 && empty) && self.is_full;
        let is_read = self.input.is_drained(heads, until_idle, now)
            || is_stuck && self.input.reading == ReaderState::Ready;
        // All jobs that can start have been picked by now.
        self.end == Halting::Halted || is_read && (empty || until_idle)
    }

    fn is_held(&self, _now: Timestamp) -> bool {
        // Jobs of a failed setup are reported as held with their batch, and nothing else is picked meanwhile.
        false
    }

    fn next_wakeup(&self, now: Timestamp) -> Option<Timestamp> {
        if self.end > Halting::No {
            return None;
        }
        // The end of the outputs in flight starts others.
        let may_deliver = self.batches.late() < self.late_batches_max;
        let late = self.late.first().filter(|_| may_deliver).and_then(|&(due, _)| due.time());
        // Batches that have started since the last picking may have made room for claims, which are made now.
        let starts_now = match self.awaits {
            Awaits::Time => !self.claims.awaits_room(&self.batches),
            Awaits::Memory(most) => self.may_claim(most),
            Awaits::Event | Awaits::Line => false,
        };
        let room = match self.awaits {
            // The first job may wait for its own time, or for that of another job of its lane or round.
            Awaits::Line => self.room.next_change(now),
            _ => self.room_wakes(now).filter(|&wake| wake > now || starts_now),
        };
        late.into_iter().chain(room).chain(self.slow_from(now)).min()
    }
}

#[cfg(test)]
pub(crate) mod tests;
