//! Batch lifecycle of a queued step: picks, begins, runs and commits its batches.

use std::collections::HashSet;

use super::in_flight::{BatchContent, Phase, QueuedBatch};
use super::{Awaits, Halting, QueuedStep};
use crate::batch_size::LONG;
use crate::protocol::{BatchCut, BatchEnd, BatchId, Command, DurabilityBarrier, JobOutcome, Wait};
use crate::step_machine::{DispatchContext, number};
use crate::waiting_room::{JobKey, WaitingState};
use tidegate_model::{Due, Timestamp};

/// Maximum number of delayed outputs, or of completed jobs, in a batch.
const LATE_BATCH: usize = 256;

/// Maximum number of jobs that are begun in one record.
const CLAIM: usize = 1024;

/// Maximum number of jobs that run before the first measurement, for [`LONG`]: quick jobs behind the first one
/// share a batch, in their order.
const UNMEASURED: usize = 1;

/// Minimum number of jobs in a batch after one that ended early.
const ROW_MIN: usize = 16;

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
            if self.batches.late() >= self.late_batches_max {
                return;
            }
            let mut jobs = Vec::new();
            while let Some(first) = self.late.first().filter(|(due, _)| due.is_by(now)).copied()
                && jobs.len() < LATE_BATCH
            {
                self.late.remove(&first);
                jobs.push(first.1);
            }
            self.add_batch(jobs, BatchContent::Late, context, commands);
        }
    }

    /// Delivers completed jobs, and stored results; gates and rules do not apply.
    pub(crate) fn settle_pending(&mut self, context: &mut DispatchContext<'_>, commands: &mut Vec<Command>) {
        let jobs = std::mem::take(&mut self.recalled);
        for jobs in jobs.chunks(LATE_BATCH) {
            self.add_batch(jobs.to_vec(), BatchContent::Kept, context, commands);
        }
        let jobs = std::mem::take(&mut self.settling);
        // In order, each has a turn of its own.
        let most = if self.is_ordered() { 1 } else { LATE_BATCH };
        for jobs in jobs.chunks(most) {
            self.add_batch(jobs.to_vec(), BatchContent::Settled, context, commands);
        }
    }

    /// Picks the jobs that may start.
    pub(crate) fn pick(
        &mut self,
        context: &mut DispatchContext<'_>,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) {
        self.awaits = Awaits::Time;
        // A clock that was set back ends the wait.
        self.held_back = self.held_back.filter(|wait| wait.lasts(now));
        if self.held_back.is_some() {
            return;
        }
        if self.catches_up(context.heads) {
            self.awaits = Awaits::Event;
            return;
        }
        if !self.passes_gate(now, commands) {
            return;
        }
        if self.claims.is_ahead() {
            return self.claim(context, now, commands);
        }
        if self.is_line_full(context.bounds) {
            self.awaits = Awaits::Line;
            return self.pick_first_in_line(context, now, commands);
        }
        let most = self.row.min(self.sizing.jobs());
        let batches_max = match () {
            () if self.uses_pool => usize::MAX,
            () if self.is_slow(now) => context.bounds.batches.saturating_add(self.beside_max),
            () if !self.sizing.is_measured() => UNMEASURED,
            () => context.bounds.batches,
        };
        while self.batches.made_bytes() < context.bounds.bytes && self.batches.len() < batches_max {
            self.room.start(now, most, &mut self.picked);
            if self.picked.is_empty() {
                return;
            }
            let jobs = std::mem::take(&mut self.picked);
            if !self.is_ordered() {
                self.add_batch(jobs, BatchContent::Attempts, context, commands);
                continue;
            }
            for jobs in self.split_at_gaps(jobs) {
                self.add_batch(jobs, BatchContent::Attempts, context, commands);
            }
        }
        self.awaits = Awaits::Event;
    }

    /// Picks the job that all results in memory wait for, or one that it may wait for.
    fn pick_first_in_line(
        &mut self,
        context: &mut DispatchContext<'_>,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) {
        for key in self.first_ones() {
            if self.room.start_job(key, now) {
                self.add_batch(vec![key], BatchContent::Attempts, context, commands);
            }
        }
    }

    /// Claims jobs ahead of their places.
    fn claim(&mut self, context: &mut DispatchContext<'_>, now: Timestamp, commands: &mut Vec<Command>) {
        let mut left = self.claims.wanted(&self.batches);
        while left > 0 {
            if !self.may_claim(context.bounds.bytes) {
                self.awaits = Awaits::Memory(context.bounds.bytes);
                return;
            }
            self.room.start(now, left.min(CLAIM), &mut self.picked);
            if self.picked.is_empty() {
                return;
            }
            let jobs = std::mem::take(&mut self.picked);
            left -= jobs.len();
            self.add_batch(jobs, BatchContent::Attempts, context, commands);
        }
    }

    /// Whether the bytes in flight allow another claim. Jobs that have a place are always claimed.
    pub(crate) fn may_claim(&self, bytes_max: usize) -> bool {
        let fits = self.batches.made_bytes() < bytes_max;
        fits && (self.held < bytes_max || self.batches.stock() < self.claims.places(&self.batches))
    }

    /// Gives back all jobs that are claimed and do not run. Jobs that are being claimed follow later.
    pub(crate) fn give_back(&mut self, commands: &mut Vec<Command>) {
        if !self.claims.is_ahead() {
            return;
        }
        self.claims.give_back();
        // Completed jobs, stored results and delayed outputs are not claimed. They are delivered by this run.
        let unbegun = self.batches.unbegun().filter(|(_, batch)| batch.has_attempts());
        self.drop_batches(unbegun.map(|(id, _)| id).collect(), commands);
        let begun = self.batches.in_phase(Phase::Begun).filter(|(_, batch)| batch.has_attempts());
        for batch in begun.map(|(batch, _)| batch).collect::<Vec<_>>() {
            self.batches.unclaim(batch);
            commands.push(Command::Unclaim { step: self.position, batch });
        }
    }

    /// Blocks all starts for this time.
    pub(crate) fn hold(&mut self, wait: Wait, now: Timestamp) {
        self.held_back = Some(wait.beside(self.held_back, now));
    }

    pub(crate) fn add_batch(
        &mut self,
        jobs: Vec<JobKey>,
        content: BatchContent,
        context: &mut DispatchContext<'_>,
        commands: &mut Vec<Command>,
    ) {
        let (step, batch) = (self.position, number(context.next_batch));
        let state = QueuedBatch::picked(jobs.clone(), content, self.uses_pool);
        self.batches.insert(batch, state);
        commands.push(Command::FetchJobs { step, batch, jobs });
    }

    /// Marks a batch as fetched.
    pub(crate) fn fetched(&mut self, id: BatchId, bytes: usize) {
        if let Some(batch) = self.batches.get_mut(id, Phase::Picked) {
            batch.bytes += bytes;
            self.held += bytes;
            self.batches.advance(id, Phase::Ready);
        }
    }

    /// Begins the batches that must be begun.
    pub(crate) fn begin(&mut self, commands: &mut Vec<Command>) {
        if self.before == DurabilityBarrier::Nothing {
            return;
        }
        let ready = self.batches.in_phase(Phase::Ready).filter(|(_, batch)| !batch.settles());
        for batch in ready.map(|(id, _)| id).collect::<Vec<_>>() {
            self.batches.advance(batch, Phase::Beginning);
            commands.push(Command::Begin { step: self.position, batch, before: self.before });
        }
    }

    pub(crate) fn begun(&mut self, id: BatchId, next_batch: &mut u64, commands: &mut Vec<Command>) {
        let Some(batch) = self.batches.get_mut(id, Phase::Beginning) else { return };
        let (jobs, is_claim) = (batch.jobs.len(), batch.has_attempts() && self.claims.is_ahead());
        self.batches.advance(id, Phase::Begun);
        let lot = self.claims.lot();
        if jobs > 1 && is_claim {
            let first = BatchId(*next_batch);
            *next_batch += jobs.div_ceil(lot) as u64;
            self.batches.deal(id, first, lot);
            let quick = self.claims.are_quick();
            commands.push(Command::Deal { step: self.position, batch: id, first, lot, quick });
        }
    }

    /// Starts batches. Slow jobs run in a pool, so that they keep no worker from others. Returns whether a batch has found
    /// no free worker.
    pub(crate) fn run_ready(
        &mut self,
        paused: bool,
        free_slots: &mut usize,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) -> bool {
        if self.end >= Halting::Halted {
            return false;
        }
        let (starts, is_short) = if self.uses_pool {
            (self.starts_in_pool(paused, now), false)
        } else {
            self.starts_on_workers(paused, free_slots, now)
        };
        let is_slow = self.is_slow(now);
        // A batch of a slow step may wait long for a processor. The time of its jobs decides when it has ended.
        let since = (!self.uses_pool && !is_slow).then_some(now);
        for (batch, aside) in starts {
            self.batches.run(batch, since, aside);
            commands.push(Command::Run { step: self.position, batch, aside, is_slow });
        }
        is_short
    }

    /// Batches to start in a pool of threads. Only attempts need a place, and wait while a job holds the step.
    fn starts_in_pool(&self, paused: bool, now: Timestamp) -> Vec<(BatchId, bool)> {
        let is_held = self.claims.is_ahead() && self.held_back.is_some_and(|wait| wait.lasts(now));
        let places = if is_held { 0 } else { self.claims.places(&self.batches) };
        let is_attempt = |(_, batch): &(BatchId, &QueuedBatch)| batch.has_attempts();
        let begun = || self.batches.in_phase(Phase::Begun);
        let attempts = self.at_once(paused).chain(begun()).filter(is_attempt).take(places);
        let others = if self.batches.has_others() { usize::MAX } else { 0 };
        let others = self.at_once(paused).chain(begun()).take(others).filter(|batch| !is_attempt(batch));
        others.chain(attempts).map(|(batch, _)| (batch, true)).collect()
    }

    /// Batches to start on free workers, and whether another one has found none. Slow jobs, and the first one, run in a
    /// pool.
    fn starts_on_workers(
        &self,
        paused: bool,
        free_slots: &mut usize,
        now: Timestamp,
    ) -> (Vec<(BatchId, bool)>, bool) {
        let is_slow = self.is_slow(now);
        let goes_beside = is_slow || !self.sizing.is_measured();
        let most = if is_slow { self.beside_max } else { self.beside_max.min(UNMEASURED) };
        let mut places = most.saturating_sub(self.batches.beside());
        let mut starts = Vec::new();
        for (batch, state) in self.at_once(paused).chain(self.batches.in_phase(Phase::Begun)) {
            let aside = goes_beside && state.has_attempts();
            let room = if aside { &mut places } else { &mut *free_slots };
            if *room > 0 {
                *room -= 1;
                starts.push((batch, aside));
            } else if places == 0 && *free_slots == 0 {
                break;
            }
        }
        if *free_slots > 0 || goes_beside && !self.batches.has_others() {
            return (starts, false);
        }
        let on_workers = starts.iter().filter(|(_, aside)| !aside).count();
        let ready = self.at_once(paused).chain(self.batches.in_phase(Phase::Begun));
        let mut for_workers = ready.filter(|(_, batch)| !goes_beside || !batch.has_attempts());
        let is_short = for_workers.nth(on_workers).is_some();
        (starts, is_short)
    }

    /// Batches that may run without a record, unless the step is paused.
    fn at_once(&self, paused: bool) -> impl Iterator<Item = (BatchId, &QueuedBatch)> {
        let begins = self.before != DurabilityBarrier::Nothing;
        let ready = self.batches.in_phase(Phase::Ready).filter(move |_| !paused);
        ready.filter(move |(_, batch)| !begins || batch.settles())
    }

    /// Whether jobs run beside each other in a pool of threads: they were slow, or are slow now.
    fn is_slow(&self, now: Timestamp) -> bool {
        // A clock that was set back makes a batch count as slow.
        let is_long = |since: Timestamp| !(since..since + LONG).contains(&now);
        let has_long =
            || self.batches.running_since().is_some_and(|(first, last)| is_long(first) || is_long(last));
        !self.uses_pool && (self.sizing.is_slow() || has_long())
    }

    /// Time from which on a running job counts as slow, if jobs wait for its worker or for its end.
    pub(crate) fn slow_from(&self, now: Timestamp) -> Option<Timestamp> {
        let waiting = self.batches.count(Phase::Ready) + self.batches.count(Phase::Begun);
        let awaits_end = waiting > 0 || self.awaits == Awaits::Event;
        if self.uses_pool || self.sizing.is_measured() && !awaits_end {
            return None;
        }
        let from = self.batches.running_since()?.0 + LONG;
        Some(from).filter(|&from| from > now)
    }

    pub(crate) fn ran(
        &mut self,
        id: BatchId,
        ran: BatchEnd,
        next_batch: &mut u64,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) {
        // A repeated or unexpected report is ignored.
        if self.batches.get_mut(id, Phase::Running).is_none() {
            return;
        }
        if self.end == Halting::Failed {
            // A failed step delivers nothing; the batch only returns its worker.
            self.batches.remove(id);
            commands.push(Command::Drop { step: self.position, batch: id });
            return self.settle_halt();
        }
        let BatchEnd { taken, ending, bytes, took, ends } = ran;
        let Some(batch) = self.batches.get_mut(id, Phase::Running) else { return };
        debug_assert!(taken == ends.len() && taken <= batch.jobs.len());
        debug_assert!(ending != BatchCut::Whole || taken == batch.jobs.len());
        let rest = if ending == BatchCut::Cut { batch.jobs.split_off(taken) } else { Vec::new() };
        if self.room.is_in_a_row() {
            // Jobs that are given back are read again, so a batch is not much longer than the way to the next failure.
            let row = if rest.is_empty() { self.row } else { taken };
            self.row = (row * 2).clamp(ROW_MIN.min(self.batch), self.batch);
        }
        if !batch.settles() {
            self.sizing.measured(taken, took);
            self.claims.measured(taken, took);
        }
        let content = batch.content();
        if content == BatchContent::Attempts {
            let is_finished = rest.is_empty() && ends.iter().all(|end| *end == JobOutcome::Finished);
            if is_finished { self.claims.goes_on() } else { self.claims.set_back() }
        }
        batch.ends = ends;
        self.batches.advance(id, Phase::Committing);
        self.batches.made(id, bytes);
        self.held += bytes;
        if content == BatchContent::Attempts && self.claims.is_ahead() && !rest.is_empty() {
            self.keep_claimed(id, taken, rest, next_batch, commands);
        } else {
            self.take_back(rest, content, now);
        }
        if ending == BatchCut::Halts {
            self.end = self.end.max(Halting::Delivering);
        }
        if self.is_ordered() && content != BatchContent::Late {
            return self.line_up(id, ending, next_batch, now, commands);
        }
        commands.push(Command::Commit { step: self.position, batch: id, taken });
    }

    /// Keeps the jobs claimed that a batch has not taken.
    fn keep_claimed(
        &mut self,
        id: BatchId,
        taken: usize,
        jobs: Vec<JobKey>,
        next_batch: &mut u64,
        commands: &mut Vec<Command>,
    ) {
        let rest = number(next_batch);
        self.batches.claim_again(rest, jobs);
        commands.push(Command::Split { step: self.position, batch: id, jobs: taken, rest, begun: false });
    }

    /// Returns the jobs that a batch has not taken. They may start again at once, at the same time as running batches.
    fn take_back(&mut self, jobs: Vec<JobKey>, content: BatchContent, now: Timestamp) {
        for key in jobs {
            match content {
                BatchContent::Kept => self.keep_in_line(key),
                BatchContent::Late => _ = self.late.insert((Due::At(now), key)),
                // The waiting room gave it.
                BatchContent::Attempts if self.room.is_in_a_row() => _ = self.room.return_unstarted(key),
                BatchContent::Attempts | BatchContent::Settled => _ = self.room.put_back(key),
            }
        }
    }

    pub(crate) fn committed(&mut self, id: BatchId, now: Timestamp, commands: &mut Vec<Command>) {
        let Some(batch) = self.batches.remove(id) else { return };
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
                JobOutcome::Held(wait) => {
                    self.hold(wait, now);
                    self.room.put_back(key)
                }
                JobOutcome::Kept => {
                    self.keep_in_line(key);
                    Ok(())
                }
                JobOutcome::Unclaimed => {
                    self.return_claim(key);
                    Ok(())
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
        for batch in self.batches.not_running() {
            self.batches.remove(batch);
            commands.push(Command::Drop { step: self.position, batch });
        }
        self.drop_held(commands);
        self.settle_halt();
    }

    pub(crate) fn settle_halt(&mut self) {
        if self.end > Halting::No && self.batches.is_empty() && !self.holds_results() {
            self.end = Halting::Halted;
        }
    }

    /// Drops the batches that are not begun. The next run delivers their jobs.
    pub(crate) fn drop_unbegun(&mut self, commands: &mut Vec<Command>) {
        self.drop_batches(self.batches.unbegun().map(|(id, _)| id).collect(), commands);
    }

    fn drop_batches(&mut self, batches: Vec<BatchId>, commands: &mut Vec<Command>) {
        for batch in batches {
            for key in self.batches.remove(batch).into_iter().flat_map(|state| state.jobs) {
                self.return_claim(key);
            }
            commands.push(Command::Drop { step: self.position, batch });
        }
    }

    /// Returns a job that was claimed and not attempted.
    fn return_claim(&mut self, key: JobKey) {
        // The waiting room gave it. A job that was picked behind others stays behind those of them that wait again.
        let _ =
            if self.claims.are_serial() { self.room.return_unstarted(key) } else { self.room.put_back(key) };
    }

    /// Jobs that the waiting room gave, and whose attempts did not begin.
    pub(crate) fn unbegun(&self) -> impl Iterator<Item = JobKey> {
        let batches = self.batches.unbegun().filter(|(_, batch)| !batch.settles());
        // Delayed outputs are not in the waiting room.
        let jobs = batches.flat_map(|(_, batch)| batch.jobs.iter().copied());
        let is_ahead = self.claims.is_ahead();
        let jobs: HashSet<JobKey> = jobs.chain(self.batches.claimed().filter(|_| is_ahead)).collect();
        let jobs = jobs.into_iter();
        jobs.filter(|&key| self.room.state(key) == Some(WaitingState::Running))
    }
}
