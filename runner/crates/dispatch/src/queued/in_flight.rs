//! Batches in flight of a queued step: finds those in a phase without a walk over the others.
//!
//! An event costs the same with any number of batches in flight.

use std::collections::{BTreeMap, BTreeSet};

use crate::protocol::{BatchId, JobOutcome};
use crate::waiting_room::JobKey;
use tidegate_model::Timestamp;

/// Batches from their picking to their commit.
#[derive(Debug, Default)]
pub(crate) struct InFlightBatches {
    all: BTreeMap<BatchId, QueuedBatch>,
    by_phase: [BTreeSet<BatchId>; 6],
    /// Running batches by the time since which they run, if that counts.
    since: BTreeSet<(Timestamp, BatchId)>,
    /// Number of batches with delayed outputs, and of those with completed jobs.
    late: usize,
    settling: usize,
    /// Number of batches that run in a pool of threads.
    beside: usize,
    /// Bytes of the outputs of all batches.
    made: usize,
    /// Number of jobs to attempt that do not run yet.
    stock: usize,
    /// Batches that are being given back; their phase is [`Phase::Committing`].
    unclaimed: BTreeSet<BatchId>,
}

#[derive(Debug)]
pub(crate) struct QueuedBatch {
    pub(crate) jobs: Vec<JobKey>,
    pub(crate) ends: Vec<JobOutcome>,
    /// Bytes of its jobs and outputs.
    pub(crate) bytes: usize,
    /// Bytes of its outputs alone.
    made: usize,
    phase: Phase,
    content: BatchContent,
    /// Time since which it runs; `None`: it does not run, or jobs of the step take any time.
    since: Option<Timestamp>,
    /// Whether it runs in a pool of threads.
    aside: bool,
}

/// Content of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchContent {
    Attempts,
    /// Outputs that were made earlier.
    Late,
    /// Completed jobs, which were pending. None of them is attempted.
    Settled,
    /// Jobs with results in the store. None of them is attempted.
    Kept,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its jobs are being fetched.
    Picked,
    Ready,
    Beginning,
    Begun,
    Running,
    Committing,
}

impl InFlightBatches {
    pub(crate) fn insert(&mut self, id: BatchId, batch: QueuedBatch) {
        self.by_phase[batch.phase as usize].insert(id);
        self.late += usize::from(batch.content == BatchContent::Late);
        self.settling += usize::from(batch.settles());
        self.stock += batch.stock();
        self.made += batch.made;
        self.all.insert(id, batch);
    }

    pub(crate) fn remove(&mut self, id: BatchId) -> Option<QueuedBatch> {
        let batch = self.all.remove(&id)?;
        self.by_phase[batch.phase as usize].remove(&id);
        self.forget_run(id, &batch);
        self.late -= usize::from(batch.content == BatchContent::Late);
        self.settling -= usize::from(batch.settles());
        self.made -= batch.made;
        self.stock -= batch.stock();
        self.unclaimed.remove(&id);
        Some(batch)
    }

    pub(crate) fn get(&self, id: BatchId) -> Option<&QueuedBatch> {
        self.all.get(&id)
    }

    /// The batch, if it is in this phase.
    pub(crate) fn get_mut(&mut self, id: BatchId, phase: Phase) -> Option<&mut QueuedBatch> {
        self.all.get_mut(&id).filter(|batch| batch.phase == phase)
    }

    /// Moves a batch to another phase.
    pub(crate) fn advance(&mut self, id: BatchId, phase: Phase) {
        let Some(batch) = self.all.get_mut(&id) else { return };
        self.by_phase[batch.phase as usize].remove(&id);
        self.by_phase[phase as usize].insert(id);
        if batch.phase == Phase::Running {
            self.beside -= usize::from(batch.aside);
            batch.since.take().map(|since| self.since.remove(&(since, id)));
        }
        self.stock -= batch.stock();
        batch.phase = phase;
        self.stock += batch.stock();
    }

    /// Divides a begun batch into batches of at most `lot` jobs. Their numbers follow each other from `first` on.
    pub(crate) fn deal(&mut self, id: BatchId, first: BatchId, lot: usize) {
        let Some(claim) = self.remove(id) else { return };
        let lots = claim.jobs.len().div_ceil(lot.max(1)).max(1);
        let bytes = claim.bytes / lots;
        // The first one has the bytes that cannot be divided.
        let mut rest = claim.bytes % lots;
        for (number, jobs) in (first.0..).zip(claim.jobs.chunks(lot.max(1))) {
            let bytes = bytes + std::mem::take(&mut rest);
            let part = QueuedBatch::picked(jobs.to_vec(), claim.content, claim.aside);
            self.insert(BatchId(number), QueuedBatch { bytes, phase: claim.phase, ..part });
        }
    }

    /// Makes a claim of jobs that were cut off a batch of claimed jobs.
    pub(crate) fn claim_again(&mut self, id: BatchId, jobs: Vec<JobKey>) {
        let part = QueuedBatch::picked(jobs, BatchContent::Attempts, true);
        self.insert(id, QueuedBatch { phase: Phase::Begun, ..part });
    }

    /// Gives a begun batch back.
    pub(crate) fn unclaim(&mut self, id: BatchId) {
        self.advance(id, Phase::Committing);
        if let Some(batch) = self.all.get_mut(&id) {
            batch.ends = vec![JobOutcome::Unclaimed; batch.jobs.len()];
            self.unclaimed.insert(id);
        }
    }

    /// Number of jobs to attempt that do not run yet.
    pub(crate) fn stock(&self) -> usize {
        self.stock
    }

    /// Number of these jobs that are begun.
    pub(crate) fn begun_stock(&self) -> usize {
        self.in_phase(Phase::Begun).map(|(_, batch)| batch.stock()).sum()
    }

    /// Number of batches with attempts.
    pub(crate) fn attempts(&self) -> usize {
        self.all.len() - self.late - self.settling
    }

    /// Jobs that are picked to be attempted, or given back, and that do not run.
    pub(crate) fn claimed(&self) -> impl Iterator<Item = JobKey> {
        let phases = [Phase::Picked, Phase::Ready, Phase::Beginning, Phase::Begun];
        let picked = phases.into_iter().flat_map(|phase| self.in_phase(phase).map(|(_, batch)| batch));
        let unclaimed = self.unclaimed.iter().filter_map(|id| self.all.get(id));
        picked
            .filter(|batch| batch.has_attempts())
            .chain(unclaimed)
            .flat_map(|batch| batch.jobs.iter().copied())
    }

    /// Moves a batch to [`Phase::Running`]. `since`: the time, if it counts.
    pub(crate) fn run(&mut self, id: BatchId, since: Option<Timestamp>, aside: bool) {
        self.advance(id, Phase::Running);
        let Some(batch) = self.all.get_mut(&id) else { return };
        (batch.since, batch.aside) = (since, aside);
        self.beside += usize::from(aside);
        self.since.extend(since.map(|since| (since, id)));
    }

    /// Records that a running batch has left its worker. Returns whether it had one.
    pub(crate) fn go_aside(&mut self, id: BatchId) -> bool {
        let running = self.get_mut(id, Phase::Running);
        let Some(batch) = running.filter(|batch| !batch.aside) else { return false };
        batch.aside = true;
        self.beside += 1;
        true
    }

    /// Records the outputs of a batch.
    pub(crate) fn made(&mut self, id: BatchId, bytes: usize) {
        let Some(batch) = self.all.get_mut(&id) else { return };
        batch.made += bytes;
        batch.bytes += bytes;
        self.made += bytes;
    }

    /// Batches in this phase, in the order of their numbers.
    pub(crate) fn in_phase(&self, phase: Phase) -> impl Iterator<Item = (BatchId, &QueuedBatch)> {
        self.by_phase[phase as usize].iter().filter_map(|id| Some((*id, self.all.get(id)?)))
    }

    /// Number of batches in this phase.
    pub(crate) fn count(&self, phase: Phase) -> usize {
        self.by_phase[phase as usize].len()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether each batch in flight is unbegun.
    pub(crate) fn are_unbegun(&self) -> bool {
        self.count(Phase::Picked) + self.count(Phase::Ready) == self.len()
    }

    /// Batches that are not begun.
    pub(crate) fn unbegun(&self) -> impl Iterator<Item = (BatchId, &QueuedBatch)> {
        self.in_phase(Phase::Picked).chain(self.in_phase(Phase::Ready))
    }

    /// Numbers of the batches that do not run.
    pub(crate) fn not_running(&self) -> Vec<BatchId> {
        self.all.iter().filter(|(_, batch)| batch.phase != Phase::Running).map(|(&id, _)| id).collect()
    }

    /// Times since which batches run: the first and the last one.
    pub(crate) fn running_since(&self) -> Option<(Timestamp, Timestamp)> {
        Some((self.since.first()?.0, self.since.last()?.0))
    }

    /// Number of batches with delayed outputs.
    pub(crate) fn late(&self) -> usize {
        self.late
    }

    /// Whether a batch has no attempts.
    pub(crate) fn has_others(&self) -> bool {
        self.late + self.settling > 0
    }

    /// Number of batches that run in a pool of threads.
    pub(crate) fn beside(&self) -> usize {
        self.beside
    }

    /// Bytes of the outputs of all batches.
    pub(crate) fn made_bytes(&self) -> usize {
        self.made
    }

    fn forget_run(&mut self, id: BatchId, batch: &QueuedBatch) {
        if batch.phase == Phase::Running {
            self.beside -= usize::from(batch.aside);
            batch.since.map(|since| self.since.remove(&(since, id)));
        }
    }
}

impl QueuedBatch {
    /// Batch whose jobs are being fetched.
    pub(crate) fn picked(jobs: Vec<JobKey>, content: BatchContent, aside: bool) -> Self {
        let (ends, phase, since) = (Vec::new(), Phase::Picked, None);
        Self { jobs, ends, bytes: 0, made: 0, phase, content, since, aside }
    }

    /// Batch of one job that is not finished, split off the others of `batch`.
    pub(crate) fn of_waiting(jobs: Vec<JobKey>, end: JobOutcome, batch: &Self) -> Self {
        let picked = Self::picked(jobs, batch.content, batch.aside);
        Self { ends: vec![end], phase: Phase::Committing, ..picked }
    }

    pub(crate) fn content(&self) -> BatchContent {
        self.content
    }

    /// Moves the bytes of another batch to this one.
    pub(crate) fn take_bytes(&mut self, other: &mut Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Keeps the first `jobs` jobs, and returns the others.
    pub(crate) fn split_off(&mut self, jobs: usize) -> Vec<JobKey> {
        self.jobs.split_off(jobs.min(self.jobs.len()))
    }

    /// Whether its jobs are not attempted.
    pub(crate) fn settles(&self) -> bool {
        matches!(self.content, BatchContent::Settled | BatchContent::Kept)
    }

    /// Number of its jobs that are to be attempted and do not run.
    fn stock(&self) -> usize {
        let waits = matches!(self.phase, Phase::Picked | Phase::Ready | Phase::Beginning | Phase::Begun);
        if waits && self.has_attempts() { self.jobs.len() } else { 0 }
    }

    pub(crate) fn has_attempts(&self) -> bool {
        self.content == BatchContent::Attempts
    }

    pub(crate) fn is_aside(&self) -> bool {
        self.aside
    }
}
