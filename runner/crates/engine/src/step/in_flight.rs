//! Batch in flight: keeps a batch from its forming until its commit.

use std::sync::Arc;

use crate::batch::input::{BatchInput, BatchSlice};
use crate::batch::result::BatchResult;
use crate::commit::request::{BatchJobs, SourcePositions};
use crate::step::declared::DeclaredStep;
use crate::step::job_buffer::JobBuffer;
use tidegate_dispatch::{BatchId, Failed, JobKey, JobOutcome};
use tidegate_model::Batch;
use tidegate_store::ParkedKey;

/// A batch from its forming until its commit.
#[derive(Debug, Default)]
pub(crate) struct InFlightBatch {
    pub(crate) work: BatchInput,
    /// The step as it was when the batch was run. The rest of a batch is run in the same way: no output of a later
    /// script comes before one of an earlier script.
    pub(crate) step: Option<DeclaredStep>,
    /// Positions of the reads that begin in it. A queued step has its positions in the job buffer.
    pub(crate) places: SourcePositions,
    /// Whether it will reach the committer without waiting for another batch.
    pub(crate) coming: bool,
    /// Picked jobs of the batch, in order; empty for an ordered step.
    pub(crate) picked: Vec<JobKey>,
    /// Blocks of its jobs that were in memory when it was picked, until the others are read.
    pub(crate) held: Vec<Arc<Batch>>,
    /// Rows of its jobs, if its beginning parked them in the store.
    pub(crate) begun: Vec<ParkedKey>,
    /// Whether the rows are claims: its jobs were begun before they had a place to run.
    pub(crate) claims: bool,
    /// Outcome of each picked job that has run.
    pub(crate) ends: Vec<JobOutcome>,
    pub(crate) ran: Option<Box<BatchResult>>,
    /// Jobs that failed permanently, to be logged once the batch is durable.
    pub(crate) failed: Vec<Failed>,
    /// Rest of the jobs that were begun with it: the number of their first batch, and the jobs.
    pub(crate) rest: Option<(BatchId, BatchJobs)>,
}

impl InFlightBatch {
    /// Identity of the first `taken` jobs, for the store.
    pub(crate) fn jobs(&self, taken: usize) -> BatchJobs {
        if self.begun.is_empty() {
            return self.work.first(taken);
        }
        BatchJobs { spans: Vec::new(), returned: self.begun.iter().take(taken).cloned().collect() }
    }

    /// Source positions for the next commit of this batch: its own, or all that are in the `buffer` of a queued step.
    ///
    /// Batches of picked jobs may be committed in another order than they were formed. So the first commit behind a
    /// read carries its positions: without them, progress could be in a file that the store does not know.
    pub(crate) fn take_places(&mut self, buffer: Option<&mut JobBuffer>) -> SourcePositions {
        std::mem::take(buffer.map_or(&mut self.places, |buffer| &mut buffer.places))
    }

    /// Divides a claimed batch into batches of at most `lot` jobs, in their order.
    pub(crate) fn deal(self, lot: usize) -> Vec<Self> {
        let Self { work, picked, begun, claims, .. } = self;
        let mut jobs = work.portions.into_iter().flat_map(|portion| {
            let skips = portion.skip..portion.skip + portion.jobs;
            skips.map(move |skip| BatchSlice { skip, jobs: 1, ..portion.clone() })
        });
        let is_picked = work.is_picked;
        let lots = picked.chunks(lot.max(1)).zip(begun.chunks(lot.max(1)));
        let part = |(picked, begun): (&[JobKey], &[ParkedKey])| {
            let mut work = BatchInput { jobs: picked.len(), is_picked, ..BatchInput::default() };
            jobs.by_ref().take(picked.len()).for_each(|portion| work.add(portion));
            Self { work, picked: picked.to_vec(), begun: begun.to_vec(), claims, ..Self::default() }
        };
        lots.map(part).collect()
    }

    /// Keeps the first `jobs` jobs; the others become the batch `id`. `begun`: whether the record of their
    /// beginning stays valid for them.
    pub(crate) fn split(&mut self, jobs: usize, id: BatchId, begun: bool) -> Self {
        let work = self.work.split_off(jobs);
        // The waiting job is the first of the other batch.
        let ran = self.ran.as_mut().and_then(|ran| ran.waits.take());
        let picked = self.picked.split_off(jobs.min(self.picked.len()));
        let is_picked = !picked.is_empty();
        let ends = ran.iter().filter(|_| is_picked).flat_map(|ran| ran.ends.iter().copied()).collect();
        let (rest, claims) = (self.rest.take(), self.claims);
        // Claimed jobs keep their rows.
        let rows = if claims { self.begun.split_off(jobs.min(self.begun.len())) } else { Vec::new() };
        if begun {
            let behind = rest.as_ref().map(|(_, behind)| behind.clone()).unwrap_or_default();
            self.rest = Some((id, work.first(work.jobs).followed_by(behind)));
        }
        Self {
            work,
            step: self.step.clone(),
            ran,
            rest,
            picked,
            ends,
            begun: rows,
            claims,
            ..Self::default()
        }
    }
}
