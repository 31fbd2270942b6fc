//! Delivery line of an `ordered` step: delivers the results of its jobs in the order of the input.
//!
//! Jobs run side by side. A result that is known before its turn waits: in memory if the attempt can be repeated, and
//! otherwise in the store. A job that is begun, delayed or pending holds the results behind it. Jobs without an index
//! have lost their place, and are delivered at once.

use std::collections::{BTreeMap, BTreeSet};

use super::in_flight::{BatchContent, QueuedBatch};
use super::{Halting, QueuedStep};
use crate::protocol::{BatchCut, BatchId, Bounds, Command, DurabilityBarrier, JobOutcome};
use crate::step_machine::{DispatchContext, number};
use crate::waiting_room::JobKey;
use tidegate_model::Timestamp;

/// Maximum number of stored results, or of completed jobs, in a batch.
const RECALLED_MAX: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct DeliveryLine {
    /// Index of the first job that is neither delivered nor on its way to the committer; 0: not known yet.
    next: u64,
    /// Results in memory, by the index of their first job. The jobs of each follow each other.
    held: BTreeMap<u64, (BatchId, QueuedBatch)>,
    /// Number of jobs of these results, and their bytes.
    jobs: usize,
    bytes: usize,
    /// Jobs with results in the store, by index.
    kept: BTreeMap<u64, JobKey>,
    /// Completed jobs, which were pending, by index.
    completed: BTreeMap<u64, JobKey>,
    /// Jobs that have no place in the order, and perhaps some that are finished.
    without_place: BTreeSet<JobKey>,
}

impl DeliveryLine {
    fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Adds a job whose result is in the store.
    pub(crate) fn keep(&mut self, index: u64, key: JobKey) {
        self.kept.insert(index, key);
    }

    /// Adds a job that has no place in the order.
    pub(crate) fn add_without_place(&mut self, key: JobKey) {
        self.without_place.insert(key);
    }

    /// Whether the results in memory exceed the limits.
    fn is_full(&self, bounds: &Bounds) -> bool {
        self.jobs >= bounds.jobs || self.bytes >= bounds.bytes
    }

    fn hold(&mut self, first: u64, id: BatchId, batch: QueuedBatch) {
        self.jobs += batch.jobs.len();
        self.bytes += batch.bytes;
        self.held.insert(first, (id, batch));
    }

    fn release(&mut self, first: u64) -> Option<(BatchId, QueuedBatch)> {
        let (id, batch) = self.held.remove(&first)?;
        self.jobs -= batch.jobs.len();
        self.bytes = self.bytes.saturating_sub(batch.bytes);
        Some((id, batch))
    }
}

/// Removes the jobs from `next` on, without a gap.
fn take_run(jobs: &mut BTreeMap<u64, JobKey>, next: u64) -> Vec<JobKey> {
    let mut run = Vec::new();
    while run.len() < RECALLED_MAX
        && let Some(key) = jobs.remove(&(next + run.len() as u64))
    {
        run.push(key);
    }
    run
}

impl QueuedStep {
    /// Whether results are delivered in the order of the input.
    pub(crate) fn is_ordered(&self) -> bool {
        self.line.is_some()
    }

    /// Whether results wait in memory.
    pub(crate) fn holds_results(&self) -> bool {
        self.line.as_ref().is_some_and(DeliveryLine::has_held)
    }

    /// Index of a job that has a place in the order.
    fn place(&self, key: JobKey) -> Option<u64> {
        if key.is_fresh() { Some(key.0) } else { self.unfinished.index(key) }
    }

    /// Splits picked jobs where their indices do not follow each other.
    pub(crate) fn split_at_gaps(&self, jobs: Vec<JobKey>) -> Vec<Vec<JobKey>> {
        let mut runs: Vec<Vec<JobKey>> = Vec::new();
        let mut last = None;
        for key in jobs {
            let index = self.place(key);
            match runs.last_mut() {
                Some(run) if index.is_some() && index == last => run.push(key),
                _ => runs.push(vec![key]),
            }
            last = index.map(|index| index + 1);
        }
        runs
    }

    /// Whether only the next job of the line may start, because the results behind it fill the memory.
    pub(crate) fn is_line_full(&self, bounds: &Bounds) -> bool {
        self.line.as_ref().is_some_and(|line| line.is_full(bounds))
    }

    /// First job that is not delivered, if others may wait for it.
    pub(crate) fn first_in_line(&self) -> Option<JobKey> {
        let next = self.line.as_ref()?.next.max(1);
        Some(self.unfinished.at(next).unwrap_or(JobKey::fresh(next)))
    }

    /// The jobs that may start while the results in memory fill it: the first one of the line, and those without a place
    /// in its lane. Their results hold no memory, and the first one may wait for them.
    pub(crate) fn first_ones(&mut self) -> Vec<JobKey> {
        let Some(first) = self.first_in_line() else { return Vec::new() };
        let Some(line) = &mut self.line else { return Vec::new() };
        line.without_place.retain(|&key| self.room.state(key).is_some());
        let others = line.without_place.iter().filter(|&&key| self.room.are_of_one_lane(first, key));
        [first].iter().chain(others).copied().collect()
    }

    /// Completed jobs wait for their turn. A job that must be submitted again does not.
    pub(crate) fn complete_in_order(&mut self, key: JobKey, resubmits: bool, now: Timestamp) -> bool {
        let Some(index) = self.place(key).filter(|_| !resubmits) else { return false };
        let Some(line) = &mut self.line else { return false };
        line.completed.insert(index, key);
        // A job that was restored as pending is in the waiting room.
        let _ = self.room.set_finished(key, now);
        true
    }

    /// Handles the result of a batch that has run `taken` of its jobs, which are all finished, or of one job that is
    /// not finished. A job that waits for its next attempt is split off.
    pub(crate) fn line_up(
        &mut self,
        id: BatchId,
        ending: BatchCut,
        next_batch: &mut u64,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) {
        let step = self.position;
        let waits = match ending {
            BatchCut::Waits(due) => Some(JobOutcome::Delayed(due)),
            BatchCut::Holds(wait) => Some(JobOutcome::Held(wait)),
            BatchCut::Whole | BatchCut::Cut | BatchCut::Halts => None,
        };
        let Some(mut batch) = self.batches.remove(id) else { return };
        let taken = batch.ends.len();
        if let Some(end) = waits {
            let mut others = batch.split_off(taken);
            for key in others.split_off(1.min(others.len())) {
                let _ = self.room.put_back(key); // the waiting room gave it
            }
            let mut alone = QueuedBatch::of_waiting(others, end, &batch);
            if taken == 0 {
                alone.take_bytes(&mut batch);
                commands.push(Command::Commit { step, batch: id, taken: 1 });
                self.batches.insert(id, alone);
                return;
            }
            let rest = number(next_batch);
            commands.push(Command::Split { step, batch: id, jobs: taken, rest, begun: false });
            commands.push(Command::Commit { step, batch: rest, taken: 1 });
            self.batches.insert(rest, alone);
        }
        let finished = batch.ends.iter().all(|end| *end == JobOutcome::Finished);
        let first = batch.jobs.first().and_then(|&key| self.place(key));
        let Some(first) = first.filter(|_| finished && taken > 0) else {
            commands.push(Command::Commit { step, batch: id, taken });
            self.batches.insert(id, batch);
            return;
        };
        for &key in &batch.jobs[..taken] {
            let _ = self.room.set_finished(key, now); // the waiting room gave it
        }
        self.pass_finished();
        let Some(line) = &mut self.line else { return };
        let repeats = self.before == DurabilityBarrier::Nothing || !batch.has_attempts();
        if repeats || line.next == first {
            line.hold(first, id, batch);
            return;
        }
        // Its effect must not be repeated with another outcome.
        batch.ends.fill(JobOutcome::Kept);
        commands.push(Command::Keep { step, batch: id });
        self.batches.insert(id, batch);
    }

    /// Records a job whose result is in the store.
    pub(crate) fn keep_in_line(&mut self, key: JobKey) {
        match (self.place(key), &mut self.line) {
            (Some(index), Some(line)) => line.keep(index, key),
            _ => self.recalled.push(key),
        }
    }

    /// Delivers the results whose turn it is. `recalls`: whether stored results and completed jobs may follow.
    pub(crate) fn deliver_in_order(
        &mut self,
        recalls: bool,
        context: &mut DispatchContext<'_>,
        commands: &mut Vec<Command>,
    ) {
        let step = self.position;
        if self.end == Halting::Failed {
            return;
        }
        self.pass_finished();
        let Some(line) = &mut self.line else { return };
        while let Some((id, batch)) = line.release(line.next) {
            let taken = batch.ends.len();
            self.batches.insert(id, batch);
            line.next += taken as u64;
            commands.push(Command::Commit { step, batch: id, taken });
        }
        if !recalls {
            return;
        }
        self.pass_finished();
        let Some(line) = &mut self.line else { return };
        let (mut jobs, mut content) = (take_run(&mut line.kept, line.next), BatchContent::Kept);
        if jobs.is_empty() {
            (jobs, content) = (take_run(&mut line.completed, line.next), BatchContent::Settled);
        }
        if !jobs.is_empty() {
            self.add_batch(jobs, content, context, commands);
        }
    }

    /// Drops the results that cannot be delivered in this run: nothing is in flight, and a job before them is not
    /// finished. Their attempts are repeated.
    pub(crate) fn drop_held(&mut self, commands: &mut Vec<Command>) {
        if !self.batches.is_empty() {
            return;
        }
        let Some(line) = &mut self.line else { return };
        while let Some((&first, _)) = line.held.first_key_value()
            && let Some((batch, held)) = line.release(first)
        {
            self.held = self.held.saturating_sub(held.bytes);
            commands.push(Command::Drop { step: self.position, batch });
        }
    }

    /// Moves the line past jobs that are finished already.
    fn pass_finished(&mut self) {
        let watermark = self.watermark();
        let Some(line) = &mut self.line else { return };
        line.next = line.next.max(watermark + 1);
        while self.progress.is_done(line.next) && self.unfinished.at(line.next).is_none() {
            line.next += 1;
        }
    }
}
