//! Batch lifecycle of a queued step: picks, begins, runs and commits its batches.

use super::{Halting, QueuedStep};
use crate::batch_size::SLOW;
use crate::protocol::{BatchCut, BatchEnd, BatchId, Command, DurabilityBarrier, JobOutcome};
use crate::step_machine::{DispatchContext, number};
use crate::waiting_room::{JobKey, WaitingState};
use tidegate_model::{Due, Timestamp};

/// Maximum number of delayed outputs, or of completed jobs, in a batch.
const LATE_BATCH: usize = 256;

/// Maximum number of jobs that run before the first measurement, for [`SLOW`]: quick jobs behind the first one
/// share a batch, in their order.
const UNMEASURED: usize = 1;

#[derive(Debug)]
pub(crate) struct QueuedBatch {
    jobs: Vec<JobKey>,
    ends: Vec<JobOutcome>,
    bytes: usize,
    /// Bytes of its outputs alone.
    made: usize,
    phase: Phase,
    content: Content,
    /// Time since which it runs; `None`: it does not run, or jobs of the step take any time.
    since: Option<Timestamp>,
    /// Whether it runs on the blocking pool.
    aside: bool,
}

/// Content of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Attempts,
    /// Outputs that were made earlier.
    Late,
    /// Completed jobs, which were pending. None of them is attempted.
    Settled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Its jobs are being fetched.
    Picked,
    Ready,
    Beginning,
    Begun,
    Running,
    Committing,
}

impl QueuedStep {
    /// Delivers outputs that are due; gates and rules do not apply. If the step delivers in order, at most
    /// one such batch is in flight.
    pub(crate) fn pick_late(
        &mut self,
        context: &mut DispatchContext<'_>,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) {
        while self.late.first().is_some_and(|(due, _)| due.is_by(now)) {
            let late = self.batches.values().filter(|batch| batch.content == Content::Late);
            if late.count() >= self.late_batches_max {
                return;
            }
            let mut jobs = Vec::new();
            while let Some(first) = self.late.first().filter(|(due, _)| due.is_by(now)).copied()
                && jobs.len() < LATE_BATCH
            {
                self.late.remove(&first);
                jobs.push(first.1);
            }
            self.add_batch(jobs, Content::Late, context, commands);
        }
    }

    /// Delivers completed jobs; gates and rules do not apply.
    pub(crate) fn settle_pending(&mut self, context: &mut DispatchContext<'_>, commands: &mut Vec<Command>) {
        let jobs = std::mem::take(&mut self.settling);
        for jobs in jobs.chunks(LATE_BATCH) {
            self.add_batch(jobs.to_vec(), Content::Settled, context, commands);
        }
    }

    /// Picks the jobs that may start.
    pub(crate) fn pick(
        &mut self,
        context: &mut DispatchContext<'_>,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) {
        // A clock that was set back ends the wait.
        if self.held_until.is_some_and(|until| until <= now) || now < self.held_since {
            self.held_until = None;
        }
        if self.held_until.is_some() || self.catches_up(context.heads) || !self.passes_gate(now, commands) {
            return;
        }
        let most = self.batch.min(self.sizing.jobs());
        let made: usize = self.batches.values().map(|batch| batch.made).sum();
        let batches_max = match () {
            () if self.uses_pool => usize::MAX,
            () if self.is_slow(now) => context.bounds.batches.saturating_add(self.beside_max),
            () if !self.sizing.is_measured() => UNMEASURED,
            () => context.bounds.batches,
        };
        while made < context.bounds.bytes && self.batches.len() < batches_max {
            self.room.start(now, most, &mut self.picked);
            if self.picked.is_empty() {
                return;
            }
            let jobs = std::mem::take(&mut self.picked);
            self.add_batch(jobs, Content::Attempts, context, commands);
        }
    }

    /// Blocks all starts until `until`.
    pub(crate) fn hold(&mut self, until: Timestamp, now: Timestamp) {
        (self.held_until, self.held_since) = (self.held_until.max(Some(until)), now);
    }

    fn add_batch(
        &mut self,
        jobs: Vec<JobKey>,
        content: Content,
        context: &mut DispatchContext<'_>,
        commands: &mut Vec<Command>,
    ) {
        let (step, batch) = (self.position, number(context.next_batch));
        let state = QueuedBatch {
            jobs: jobs.clone(),
            ends: Vec::new(),
            bytes: 0,
            made: 0,
            phase: Phase::Picked,
            content,
            since: None,
            aside: self.uses_pool,
        };
        self.batches.insert(batch, state);
        commands.push(Command::FetchJobs { step, batch, jobs });
    }

    /// Marks a batch as fetched.
    pub(crate) fn fetched(&mut self, id: BatchId, bytes: usize) {
        if let Some(batch) = self.batches.get_mut(&id) {
            batch.phase = Phase::Ready;
            batch.bytes += bytes;
            self.held += bytes;
        }
    }

    /// Begins the batches that must be begun.
    pub(crate) fn begin(&mut self, commands: &mut Vec<Command>) {
        if self.before == DurabilityBarrier::Nothing {
            return;
        }
        for (&batch, state) in &mut self.batches {
            if state.phase == Phase::Ready && !state.settles() {
                state.phase = Phase::Beginning;
                commands.push(Command::Begin { step: self.position, batch, before: self.before });
            }
        }
    }

    pub(crate) fn begun(&mut self, id: BatchId) {
        if let Some(batch) = self.batches.get_mut(&id) {
            batch.phase = Phase::Begun;
        }
    }

    /// Starts batches of quick jobs on free workers. Slow jobs, and the first one, run on the blocking pool, so that
    /// they keep no worker from others.
    pub(crate) fn run_ready(
        &mut self,
        paused: bool,
        free_slots: &mut usize,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) {
        let is_slow = self.is_slow(now);
        let goes_beside = is_slow || !self.sizing.is_measured();
        let most = if is_slow { self.beside_max } else { self.beside_max.min(UNMEASURED) };
        let beside = self.batches.values().filter(|batch| batch.runs_beside()).count();
        let (mut places, mut unlimited) = (most.saturating_sub(beside), usize::MAX);
        for (&batch, state) in &mut self.batches {
            let at_once = (self.before == DurabilityBarrier::Nothing || state.settles()) && !paused;
            let first = if at_once { Phase::Ready } else { Phase::Begun };
            if state.phase != first || self.end >= Halting::Halted {
                continue;
            }
            state.aside = self.uses_pool || goes_beside && state.content == Content::Attempts;
            let room = match (self.uses_pool, state.aside) {
                (true, _) => &mut unlimited,
                (false, true) => &mut places,
                (false, false) => &mut *free_slots,
            };
            if *room == 0 {
                continue;
            }
            *room -= 1;
            state.phase = Phase::Running;
            state.since = (!self.uses_pool).then_some(now);
            let (step, aside) = (self.position, state.aside);
            commands.push(Command::Run { step, batch, aside });
        }
    }

    /// Whether jobs run beside each other on the blocking pool: they were slow, or are slow now.
    fn is_slow(&self, now: Timestamp) -> bool {
        !self.uses_pool && (self.sizing.is_slow() || self.batches.values().any(|batch| batch.is_long(now)))
    }

    /// Time from which on a running job counts as slow, if jobs wait for its end, or it has a worker.
    pub(crate) fn slow_from(&self, now: Timestamp) -> Option<Timestamp> {
        let waits = |batch: &QueuedBatch| matches!(batch.phase, Phase::Ready | Phase::Begun);
        let waits = !self.sizing.is_measured() || self.batches.values().any(waits);
        let watched = self.batches.values().filter(|batch| waits || !batch.aside);
        let from = watched.filter_map(|batch| batch.since).min()? + SLOW;
        Some(from).filter(|&from| from > now)
    }

    pub(crate) fn ran(&mut self, id: BatchId, ran: BatchEnd, now: Timestamp, commands: &mut Vec<Command>) {
        // A repeated or unexpected report is ignored.
        let Some(batch) = self.batches.get_mut(&id).filter(|batch| batch.phase == Phase::Running) else {
            return;
        };
        if self.end == Halting::Failed {
            // A failed step delivers nothing; the batch only returns its worker.
            self.batches.remove(&id);
            commands.push(Command::Drop { step: self.position, batch: id });
            return self.settle_halt();
        }
        let BatchEnd { taken, ending, bytes, took, ends } = ran;
        debug_assert!(taken == ends.len() && taken <= batch.jobs.len());
        debug_assert!(ending != BatchCut::Whole || taken == batch.jobs.len());
        if ending == BatchCut::Cut {
            // The rest may start again at once, at the same time as running batches.
            for key in batch.jobs.split_off(taken) {
                if self.room.put_back(key).is_err() {
                    // The waiting room does not have it: it is a delayed output.
                    self.late.insert((Due::At(now), key));
                }
            }
        }
        if !batch.settles() {
            self.sizing.measured(taken, took);
        }
        (batch.ends, batch.made, batch.since) = (ends, bytes, None);
        batch.bytes += bytes;
        batch.phase = Phase::Committing;
        self.held += bytes;
        if ending == BatchCut::Halts {
            self.end = self.end.max(Halting::Delivering);
        }
        commands.push(Command::Commit { step: self.position, batch: id, taken });
    }

    pub(crate) fn committed(&mut self, id: BatchId, now: Timestamp, commands: &mut Vec<Command>) {
        let Some(batch) = self.batches.remove(&id) else { return };
        self.held = self.held.saturating_sub(batch.bytes);
        let position = self.progress.position();
        let mut through = Vec::with_capacity(batch.jobs.len());
        for (&key, &end) in batch.jobs.iter().zip(&batch.ends) {
            match end {
                JobOutcome::Finished => self.unfinished.remove(key),
                _ if key.is_fresh() => self.unfinished.add(key, key.0),
                _ => {}
            }
            // The waiting room gave all these jobs, so it accepts each transition.
            let _ = match end {
                JobOutcome::Finished => self.room.finished(key, now),
                JobOutcome::Delayed(until) => self.room.delay(key, until, now),
                JobOutcome::Pending => self.room.set_pending(key, now),
                JobOutcome::Forgotten => self.room.set_unknown(key),
                JobOutcome::Held(until) => {
                    self.hold(until, now);
                    self.room.put_back(key)
                }
            };
            // An unfinished job is in the store as a parked job, and is not read again.
            if key.is_fresh() && !self.progress.is_done(key.0) {
                through.push((key.0, key.0));
                self.let_go(key.0, commands);
            }
        }
        self.progress.finish_all(&mut through);
        if self.progress.position() > position {
            let (step, position) = (self.position, self.progress.position());
            commands.push(Command::PositionAdvanced { step, position });
        }
        for &key in &batch.jobs[batch.ends.len()..] {
            let _ = self.room.put_back(key); // the waiting room gave it
        }
        self.settle_halt();
    }

    /// Fails the step: nothing more can be delivered, and running batches only return their workers.
    pub(crate) fn failed(&mut self, commands: &mut Vec<Command>) {
        self.end = self.end.max(Halting::Failed);
        self.batches.retain(|&batch, state| {
            let runs = state.phase == Phase::Running;
            if !runs {
                commands.push(Command::Drop { step: self.position, batch });
            }
            runs
        });
        self.settle_halt();
    }

    pub(crate) fn settle_halt(&mut self) {
        if self.end > Halting::No && self.batches.is_empty() {
            self.end = Halting::Halted;
        }
    }

    /// Drops the batches that are not begun.
    pub(crate) fn drop_unbegun(&mut self, commands: &mut Vec<Command>) {
        let room = &mut self.room;
        self.batches.retain(|&batch, state| {
            if !state.is_unbegun() {
                return true;
            }
            for &key in &state.jobs {
                let _ = room.put_back(key); // the waiting room gave it
            }
            commands.push(Command::Drop { step: self.position, batch });
            false
        });
    }

    /// Jobs that the waiting room gave and that are not begun.
    pub(crate) fn unbegun(&self) -> impl Iterator<Item = JobKey> {
        let batches = self.batches.values().filter(|batch| batch.is_unbegun() && !batch.settles());
        // Delayed outputs are not in the waiting room.
        let jobs = batches.flat_map(|batch| batch.jobs.iter().copied());
        jobs.filter(|&key| self.room.state(key) == Some(WaitingState::Running))
    }
}

impl QueuedBatch {
    fn settles(&self) -> bool {
        self.content == Content::Settled
    }

    pub(crate) fn is_aside(&self) -> bool {
        self.aside
    }

    /// Records that it has left its worker. Returns whether it had one.
    pub(crate) fn go_aside(&mut self) -> bool {
        let had_worker = self.phase == Phase::Running && !self.aside;
        if had_worker {
            self.aside = true;
        }
        had_worker
    }

    /// Whether it runs long. A clock that was set back makes a batch count as long.
    pub(crate) fn is_long(&self, now: Timestamp) -> bool {
        self.since.is_some_and(|since| !(since..since + SLOW).contains(&now))
    }

    fn runs_beside(&self) -> bool {
        self.aside && self.phase == Phase::Running
    }

    pub(crate) fn is_unbegun(&self) -> bool {
        matches!(self.phase, Phase::Picked | Phase::Ready)
    }
}
