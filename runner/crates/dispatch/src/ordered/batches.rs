//! Batch lifecycle of an ordered step: forms, begins and runs batches, and commits them in order.
//!
//! Slow jobs keep no worker from other steps: the batches of a step whose jobs were slow, or are slow now, run beside the
//! workers.

use super::OrderedStep;
use crate::counts::InputCounts;
use crate::input::{InputState, ReaderState, UnusedRead};
use crate::protocol::{
    BatchComposition, BatchCut, BatchEnd, BatchId, Command, DurabilityBarrier, InputPort, PortInput,
    RecoveredBatch, Wait,
};
use crate::step_machine::{WorkerCapacity, number};
use tidegate_model::Timestamp;

/// Maximum number of batches that are begun and did not run yet: a begun batch must be finished.
const BEGUN_MAX: usize = 2;
/// Maximum number of jobs of a begun batch whose progress is moved before it runs: a crash loses them.
const LOST_MAX: usize = 32;
/// Maximum number of jobs of a step that wait in memory for their next attempt, behind one that waits in the
/// store.
const WAITING_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct OrderedBatch {
    pub(crate) id: BatchId,
    pub(crate) kind: BatchKind,
    /// Port of its jobs; `None` for a join, with the same number of jobs of each input.
    input: Option<PortInput>,
    jobs: usize,
    /// Bytes of its inputs and outputs.
    pub(crate) bytes: usize,
    made: usize,
    pub(crate) phase: Phase,
    /// Whether it was split off another batch.
    is_piece: bool,
    /// Whether it was dropped while it ran: its result will be ignored.
    pub(crate) dropped: bool,
    pub(crate) place: RunPlace,
}

/// The place where a batch runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunPlace {
    Worker,
    /// Beside the workers, from its start.
    Beside,
    /// Beside the workers, since it has run long on one of them.
    LeftWorker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchKind {
    /// Jobs that are committed after all in-order batches before them.
    Line,
    /// First parked job, which goes before all in-order batches.
    Turn,
    /// Redelivered jobs whose order was given up before.
    Beside,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Formed,
    Beginning,
    /// The record that it needs before it runs is durable.
    Begun,
    Running,
    /// Its one job is retried, not before this time. If its turn comes earlier, it is parked.
    Waiting {
        due: Timestamp,
    },
    /// It ran all its jobs, or the first `taken` if the next one halts the step.
    Finished {
        taken: usize,
        halts: bool,
    },
    Committing {
        /// Effect on the batches behind it: a halt or a parked job keeps them from being delivered.
        ends: BatchOutcome,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchOutcome {
    Nothing,
    Parks,
    Halts,
}

impl OrderedStep {
    /// Forms batches of the jobs that were read.
    pub(crate) fn form(&mut self, next: &mut u64, commands: &mut Vec<Command>) {
        if self.halted || self.gives_back {
            return;
        }
        self.form_returned(next, commands);
        if !self.form_again(commands) {
            return;
        }
        let inputs: Vec<PortInput> = (0..self.inputs.len()).map(PortInput::Input).collect();
        let alone = if self.gather == BatchComposition::Merge { &inputs[..] } else { &[] };
        for &input in alone.iter().chain(&[PortInput::Redelivery]) {
            while self.state(input).ahead() > 0 {
                let jobs = self.state(input).contiguous_len();
                let kind = if input == PortInput::Redelivery { BatchKind::Beside } else { BatchKind::Line };
                self.batch((number(next), kind), &[input], jobs, Phase::Formed, commands);
            }
        }
        if self.gather == BatchComposition::Zip {
            loop {
                let jobs = self.inputs.iter().map(InputState::contiguous_len).min().unwrap_or(0);
                if jobs == 0 {
                    break;
                }
                self.batch((number(next), BatchKind::Line), &inputs, jobs, Phase::Formed, commands);
            }
        }
    }

    /// Forms the batches of the last run again. Returns whether none is left.
    fn form_again(&mut self, commands: &mut Vec<Command>) -> bool {
        while let Some(redo) = self.redo.front() {
            // If the source lost jobs or progress was moved, the batch cannot have the same jobs.
            let gone = |&(input, first): &(usize, u64)| {
                let state = &self.inputs[input];
                state.reading == ReaderState::Ended && state.jobs() < redo.jobs
                    || state.first().is_some_and(|there| there != first)
            };
            let there = |&(input, _): &(usize, u64)| self.inputs[input].jobs() >= redo.jobs;
            let (gone, there) = (redo.inputs.iter().any(gone), redo.inputs.iter().all(there));
            if !gone && !there {
                return false;
            }
            if let Some(RecoveredBatch { number, inputs, jobs }) = self.redo.pop_front().filter(|_| !gone) {
                let inputs: Vec<_> = inputs.into_iter().map(|(input, _)| PortInput::Input(input)).collect();
                self.batch((BatchId(number), BatchKind::Line), &inputs, jobs, Phase::Begun, commands);
            }
        }
        true
    }

    fn batch(
        &mut self,
        (id, kind): (BatchId, BatchKind),
        inputs: &[PortInput],
        jobs: usize,
        phase: Phase,
        commands: &mut Vec<Command>,
    ) {
        let mut bytes = 0;
        for &input in inputs {
            let mut left = jobs;
            while left > 0 {
                let Some((taken, used_up)) = self.state_mut(input).take(left) else { break };
                let UnusedRead { read, skip, jobs, .. } = taken;
                let port = InputPort { step: self.position, input };
                commands.push(Command::AddToBatch { batch: id, port, read, skip, jobs });
                if used_up {
                    commands.push(Command::ReleaseRead { step: self.position, read });
                }
                left -= jobs;
                bytes += taken.bytes;
            }
        }
        let input = if let [input] = *inputs { Some(input) } else { None };
        self.batches.push_back(OrderedBatch {
            id,
            kind,
            input,
            jobs,
            bytes,
            made: 0,
            phase,
            is_piece: false,
            dropped: false,
            place: RunPlace::Worker,
        });
    }

    /// Keeps the first `jobs` jobs in the batch at `at`, and moves the others to a new batch behind it.
    fn split(&mut self, at: usize, jobs: usize, next: &mut u64, commands: &mut Vec<Command>) {
        let batch = &mut self.batches[at];
        let begun = batch.phase != Phase::Formed && self.before != DurabilityBarrier::Nothing;
        let bytes = batch.bytes.saturating_mul(jobs).checked_div(batch.jobs).unwrap_or(0);
        let rest = OrderedBatch {
            id: number(next),
            jobs: batch.jobs - jobs,
            bytes: batch.bytes - bytes,
            made: 0,
            phase: if begun { Phase::Begun } else { Phase::Formed },
            is_piece: true,
            ..*batch
        };
        (batch.jobs, batch.bytes) = (jobs, bytes);
        commands.push(Command::Split { step: self.position, batch: batch.id, jobs, rest: rest.id, begun });
        self.batches.insert(at + 1, rest);
    }

    /// Splits a batch that exceeds the target size.
    fn fit(&mut self, at: usize, next: &mut u64, commands: &mut Vec<Command>) {
        let most = if self.before == DurabilityBarrier::Progress { LOST_MAX } else { usize::MAX };
        let jobs = self.sizing.jobs().min(most);
        if self.batches[at].jobs > jobs {
            self.split(at, jobs, next, commands);
        }
    }

    /// Begins the batches that must be begun, at most [`BEGUN_MAX`] at a time. Blocked batches are not begun:
    /// a run that ends would have written their records in vain. If a job is about to halt the step, only its
    /// turn is begun.
    pub(crate) fn begin(&mut self, next: &mut u64, commands: &mut Vec<Command>) {
        if self.before == DurabilityBarrier::Nothing || self.halted {
            return;
        }
        let about_to_halt = self.about_to_halt();
        let begun = |batch: &OrderedBatch| {
            batch.kind == BatchKind::Line && matches!(batch.phase, Phase::Beginning | Phase::Begun)
        };
        let mut count = self.batches.iter().filter(|batch| begun(batch)).count();
        let holds_back = self.is_blocked() || self.held_back.is_some();
        let mut at = 0;
        while at < self.batches.len() {
            let batch = &self.batches[at];
            let in_line = batch.kind == BatchKind::Line;
            let has_to_wait = about_to_halt || in_line && (holds_back || count >= BEGUN_MAX);
            if batch.phase == Phase::Formed && (batch.kind == BatchKind::Turn || !has_to_wait) {
                self.fit(at, next, commands);
                self.batches[at].phase = Phase::Beginning;
                count += usize::from(in_line);
                let (step, before) = (self.position, self.before);
                commands.push(Command::Begin { step, batch: self.batches[at].id, before });
            }
            at += 1;
        }
    }

    pub(crate) fn begun(&mut self, id: BatchId) {
        if let Some(batch) = self.batches.iter_mut().find(|batch| batch.id == id) {
            debug_assert_eq!(batch.phase, Phase::Beginning);
            batch.phase = Phase::Begun;
        }
    }

    /// Starts batches on free workers.
    pub(crate) fn run_formed(&mut self, hands: &mut WorkerCapacity<'_>, commands: &mut Vec<Command>) {
        if self.halted {
            return;
        }
        let made: usize = self.batches.iter().map(|batch| batch.made).sum();
        let crowded = made >= hands.bounds.bytes;
        let mut waiting = self.batches.iter().filter(|batch| batch.is_waiting()).count();
        // Whether all in-order jobs before this batch are delivered, or will be without a retry.
        let mut first = self.parked.is_empty();
        let repeats = self.repeats_parked();
        let aside = self.is_slow();
        let mut places = hands.bounds.beside.saturating_sub(self.beside());
        let room = if aside { &mut places } else { &mut *hands.free };
        let mut at = 0;
        while at < self.batches.len() && *room > 0 {
            let batch = &self.batches[at];
            if batch.halts() {
                return;
            }
            let in_line = batch.kind != BatchKind::Beside;
            let has_room = !crowded || first || batch.kind == BatchKind::Turn;
            let starts = match batch.phase {
                Phase::Begun => {
                    !in_line
                        || self.held_back.is_none()
                            && (first
                                || self.before != DurabilityBarrier::Progress
                                || batch.kind == BatchKind::Turn)
                }
                Phase::Formed => {
                    let free = !in_line || self.held_back.is_none() && waiting < WAITING_MAX && has_room;
                    self.before == DurabilityBarrier::Nothing && !hands.paused && free
                }
                Phase::Waiting { due } => {
                    due <= self.now && self.held_back.is_none() && !hands.paused && has_room
                }
                _ => false,
            };
            let starts = starts && !batch.dropped && !(repeats && batch.kind == BatchKind::Line);
            if starts {
                if batch.phase == Phase::Formed {
                    self.fit(at, hands.next_batch, commands);
                }
                waiting -= usize::from(self.batches[at].is_waiting());
                *room -= 1;
                let batch = &mut self.batches[at];
                batch.phase = Phase::Running;
                batch.place = if aside { RunPlace::Beside } else { RunPlace::Worker };
                commands.push(Command::Run { step: self.position, batch: batch.id, aside, is_slow: aside });
            }
            let batch = &self.batches[at];
            first &= !in_line
                || matches!(
                    batch.phase,
                    Phase::Finished { .. } | Phase::Committing { ends: BatchOutcome::Nothing }
                );
            at += 1;
        }
        let could_start = |batch: &OrderedBatch| match batch.phase {
            Phase::Begun => true,
            Phase::Formed => self.before == DurabilityBarrier::Nothing && !hands.paused,
            Phase::Waiting { due } => due <= self.now && self.held_back.is_none() && !hands.paused,
            _ => false,
        };
        hands.is_short = !aside && *hands.free == 0 && self.batches.iter().skip(at).any(could_start);
    }

    /// Number of batches that run beside the workers.
    fn beside(&self) -> usize {
        let runs = self.batches.iter().filter(|batch| batch.phase == Phase::Running);
        runs.filter(|batch| batch.place != RunPlace::Worker).count()
    }

    /// Whether batches run beside the workers: their jobs were slow, or are slow now. A batch that was started beside
    /// them is no sign of that.
    fn is_slow(&self) -> bool {
        let left =
            |batch: &OrderedBatch| batch.place == RunPlace::LeftWorker && batch.phase == Phase::Running;
        self.sizing.is_slow() || self.batches.iter().any(left)
    }

    pub(crate) fn ran(&mut self, id: BatchId, ran: &BatchEnd, next: &mut u64, commands: &mut Vec<Command>) {
        if let Some(at) = self.batches.iter().position(|batch| batch.id == id) {
            let attempted = ran.taken + usize::from(!matches!(ran.ending, BatchCut::Whole | BatchCut::Cut));
            self.sizing.measured(attempted, ran.took);
            self.end(at, ran, next, commands);
        }
        self.drop_ended();
    }

    /// A halted step commits nothing more; its running batches only return their workers.
    fn drop_ended(&mut self) {
        if self.halted {
            self.batches.retain(OrderedBatch::is_awaited);
        }
    }

    /// Makes a batch that did not run ready again.
    pub(crate) fn put_back(&mut self, id: BatchId) {
        if let Some(batch) = self.batches.iter_mut().find(|batch| batch.id == id) {
            debug_assert_eq!((batch.phase, self.before), (Phase::Running, DurabilityBarrier::Nothing));
            batch.phase = Phase::Formed;
        }
        self.drop_ended();
    }

    /// Blocks the start of in-order batches for this time.
    pub(crate) fn hold(&mut self, wait: Wait) {
        self.held_back = Some(wait.beside(self.held_back, self.now));
    }

    fn end(&mut self, at: usize, ran: &BatchEnd, next: &mut u64, commands: &mut Vec<Command>) {
        let taken = ran.taken;
        debug_assert!(taken <= self.batches[at].jobs, "a batch takes at most its own jobs");
        let mut last = at;
        match ran.ending {
            BatchCut::Whole => debug_assert_eq!(taken, self.batches[at].jobs),
            BatchCut::Halts => {}
            BatchCut::Cut => {
                if taken < self.batches[at].jobs {
                    self.split(at, taken, next, commands);
                }
            }
            BatchCut::Waits(due) | BatchCut::Holds(Wait { until: due, .. }) => {
                if taken > 0 {
                    self.split(at, taken, next, commands);
                    last = at + 1;
                }
                if self.batches[last].jobs > 1 {
                    self.split(last, 1, next, commands);
                }
                self.batches[last].phase = Phase::Waiting { due };
                if let BatchCut::Holds(wait) = ran.ending {
                    self.hold(wait);
                }
            }
        }
        let batch = &mut self.batches[at];
        if last > at || !batch.is_waiting() {
            batch.phase = Phase::Finished { taken, halts: ran.ending == BatchCut::Halts };
            batch.made = ran.bytes;
            batch.bytes += ran.bytes;
            self.held += ran.bytes;
        }
    }

    pub(crate) fn commit_in_order(&mut self, commands: &mut Vec<Command>) {
        if self.halted {
            return;
        }
        let step = self.position;
        // In-order and out-of-order batches each have an order of their own.
        let (mut line, mut beside, parked) = (true, true, !self.parked.is_empty());
        for batch in &mut self.batches {
            let open = if batch.kind == BatchKind::Beside { &mut beside } else { &mut line };
            let comes = *open && !(parked && batch.kind == BatchKind::Line);
            let (taken, ends) = match batch.phase {
                Phase::Finished { taken, halts } => {
                    (taken, if halts { BatchOutcome::Halts } else { BatchOutcome::Nothing })
                }
                Phase::Waiting { .. } => (1, BatchOutcome::Parks),
                Phase::Committing { ends } => {
                    *open &= ends == BatchOutcome::Nothing;
                    continue;
                }
                _ => {
                    *open = false;
                    continue;
                }
            };
            if comes && !batch.dropped {
                batch.phase = Phase::Committing { ends };
                commands.push(Command::Commit { step, batch: batch.id, taken });
            }
            *open &= comes && ends == BatchOutcome::Nothing;
        }
    }

    pub(crate) fn committed(&mut self, id: BatchId, commands: &mut Vec<Command>) {
        let Some(at) = self.batches.iter().position(|batch| batch.id == id) else { return };
        let beside = |batch: &OrderedBatch| batch.kind == BatchKind::Beside;
        debug_assert!(
            beside(&self.batches[at]) || self.batches.range(..at).all(beside),
            "in-order batches are committed in order"
        );
        let Some(batch) = self.batches.remove(at) else { return };
        self.held = self.held.saturating_sub(batch.bytes);
        if batch.kind == BatchKind::Turn {
            self.turn_is_over();
        }
        if batch.phase == (Phase::Committing { ends: BatchOutcome::Halts }) {
            self.halt(commands);
        }
    }

    /// Stops the step. Batches that run or are being committed are awaited, the others are dropped. The run must not end
    /// before the readers of their outputs have taken these.
    pub(crate) fn halt(&mut self, commands: &mut Vec<Command>) {
        self.halt_but_for(OrderedBatch::is_awaited, commands);
    }

    /// Stops the step, whose deliveries are refused.
    pub(crate) fn fail(&mut self, commands: &mut Vec<Command>) {
        self.halt_but_for(|batch| batch.phase == Phase::Running, commands);
    }

    fn halt_but_for(&mut self, stays: impl Fn(&OrderedBatch) -> bool, commands: &mut Vec<Command>) {
        self.halted = true;
        for batch in self.batches.iter().filter(|batch| !stays(batch)) {
            commands.push(Command::Drop { step: self.position, batch: batch.id });
        }
        self.batches.retain(stays);
        self.forget_reads(commands);
        self.held = self.batches.iter().map(|batch| batch.bytes).sum();
    }

    /// Whether a job halted the step and jobs before it are in flight.
    pub(crate) fn about_to_halt(&self) -> bool {
        self.batches.iter().any(OrderedBatch::halts)
    }

    /// Jobs of an input that are not begun, or that are blocked by a job that is retried later.
    pub(crate) fn waiting(&self, input: usize, heads: &[u64]) -> InputCounts {
        let blocked = self.is_blocked();
        let of_input = |batch: &&OrderedBatch| {
            batch.kind == BatchKind::Line && batch.input.is_none_or(|one| one == PortInput::Input(input))
        };
        let waits = self.batches.iter().filter(of_input).filter(|batch| batch.stays_back(blocked));
        let read = waits.map(|batch| batch.jobs).sum::<usize>() + self.inputs[input].jobs();
        let Some((behind, head)) = self.inputs[input].behind(heads) else {
            return InputCounts { jobs: read as u64, first: None };
        };
        let jobs = read as u64 + behind;
        // Jobs are taken in order, so the last ones of the queue wait.
        InputCounts { jobs, first: (jobs > 0).then(|| (head + 1).saturating_sub(jobs)) }
    }

    /// Number of jobs that are begun and not delivered.
    pub(crate) fn running(&self) -> u64 {
        let blocked = self.is_blocked();
        let runs = self.batches.iter().filter(|batch| !batch.stays_back(blocked));
        runs.map(|batch| batch.jobs as u64).sum()
    }
}

impl OrderedBatch {
    /// Creates the batch of a parked job that was read again.
    pub(crate) fn of_turn(next: &mut u64, bytes: usize) -> Self {
        Self {
            id: number(next),
            kind: BatchKind::Turn,
            input: None,
            jobs: 1,
            bytes,
            made: 0,
            phase: Phase::Formed,
            is_piece: true,
            dropped: false,
            place: RunPlace::Worker,
        }
    }

    pub(crate) fn jobs(&self) -> usize {
        self.jobs
    }

    /// Whether an event about it is to be expected.
    pub(crate) fn is_moving(&self) -> bool {
        matches!(self.phase, Phase::Beginning | Phase::Running | Phase::Committing { .. })
    }

    /// Whether an event about it comes although the step has halted.
    fn is_awaited(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Committing { .. })
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Waiting { .. })
    }

    pub(crate) fn halts(&self) -> bool {
        let ends = Phase::Committing { ends: BatchOutcome::Halts };
        matches!(self.phase, Phase::Finished { halts: true, .. }) || self.phase == ends
    }

    /// Whether it keeps the batches behind it from being delivered.
    pub(crate) fn ends_line(&self) -> bool {
        self.is_waiting() || self.halts() || self.phase == (Phase::Committing { ends: BatchOutcome::Parks })
    }

    /// Whether it counts against the limit on batches. A finished batch that is blocked counts by its jobs
    /// and bytes only, and so does a piece of a batch.
    pub(crate) fn fills_room(&self) -> bool {
        !self.is_piece && !matches!(self.phase, Phase::Finished { .. } | Phase::Waiting { .. })
    }

    fn stays_back(&self, blocked: bool) -> bool {
        match self.phase {
            Phase::Formed | Phase::Waiting { .. } => true,
            Phase::Finished { .. } => blocked,
            _ => false,
        }
    }
}
