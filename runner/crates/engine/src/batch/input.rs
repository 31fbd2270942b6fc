//! Batch input: carries the jobs of a read, and the jobs of a batch, to a worker.

use std::sync::Arc;

use tidegate_plugin::Payloads;

use crate::commit::request::{BatchJobs, InputSpan};
use crate::processor::monitor_protocol::JobVerdict;
use tidegate_model::{Batch, Segment, SourceOffset, Timestamp};
use tidegate_store::{ParkReason, ParkedId, ParkedJob, ParkedKey};

/// Jobs of one read.
#[derive(Debug)]
pub(crate) struct ReadBatch {
    pub(crate) batch: Arc<Batch>,
    pub(crate) mark: Option<SourceOffset>,
    pub(crate) segments: Vec<Segment>,
    /// Rows of redelivered jobs, in the order of their payloads.
    pub(crate) returned: Option<Arc<[RedeliveredJob]>>,
}

/// Redelivered job.
#[derive(Debug)]
pub(crate) struct RedeliveredJob {
    pub(crate) key: ParkedKey,
    pub(crate) job: ParkedJob,
}

/// Jobs of a batch, for a worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct BatchInput {
    pub(crate) jobs: usize,
    /// Slices of reads; those of one input follow each other unless the jobs are sequential.
    pub(crate) portions: Vec<BatchSlice>,
    /// Whether the slices are one sequence of jobs, instead of the sides of a row.
    pub(crate) is_picked: bool,
    /// Whether the results of picked jobs are delivered in order, so that an unfinished job ends the batch.
    pub(crate) in_order: bool,
    /// Verdicts of the jobs, in their order, if they are completed and not attempted.
    pub(crate) verdicts: Option<Arc<[JobVerdict]>>,
    /// Rows of its jobs, in their order, if they were claimed: each is recorded as begun before its attempt.
    pub(crate) claims: Vec<ParkedId>,
    /// Last attempt of its one job, if it was made in this run and the job is not parked.
    pub(crate) before: Option<Arc<FailedAttempt>>,
}

/// Failed attempt at a job.
#[derive(Debug)]
pub(crate) struct FailedAttempt {
    pub(crate) number: u32,
    /// Start of the first attempt.
    pub(crate) first: Option<Timestamp>,
    pub(crate) error: Option<String>,
    /// Events of the attempts that are not durable.
    pub(crate) events: Payloads,
}

/// Slice of a read that belongs to a batch.
#[derive(Clone, Debug)]
pub(crate) struct BatchSlice {
    /// Input of the jobs; `None` for redelivered ones.
    pub(crate) input: Option<usize>,
    pub(crate) batch: Arc<Batch>,
    pub(crate) skip: usize,
    pub(crate) jobs: usize,
    pub(crate) returned: Option<Arc<[RedeliveredJob]>>,
}

impl ReadBatch {
    pub(crate) fn new(batch: Batch) -> Self {
        Self { batch: Arc::new(batch), mark: None, segments: Vec::new(), returned: None }
    }
}

impl BatchSlice {
    /// Redelivered jobs of the slice.
    pub(crate) fn returned(&self) -> &[RedeliveredJob] {
        self.returned.as_ref().map_or(&[], |all| &all[self.skip..][..self.jobs])
    }

    /// Whether `next` continues this slice.
    pub(crate) fn is_before(&self, next: &BatchSlice) -> bool {
        self.input == next.input
            && Arc::ptr_eq(&self.batch, &next.batch)
            && self.skip + self.jobs == next.skip
    }
}

impl BatchInput {
    /// Adds a slice behind the others.
    pub(crate) fn add(&mut self, portion: BatchSlice) {
        match self.portions.last_mut().filter(|last| last.is_before(&portion)) {
            Some(last) => last.jobs += portion.jobs,
            None => self.portions.push(portion),
        }
    }

    /// Whether all its jobs have results in the store, and are not attempted.
    pub(crate) fn is_recalled(&self) -> bool {
        let is_finished = |portion: &BatchSlice| {
            let rows = portion.returned();
            let is_finished = |row: &RedeliveredJob| matches!(row.job.reason, ParkReason::Finished { .. });
            !rows.is_empty() && rows.iter().all(is_finished)
        };
        !self.portions.is_empty() && self.portions.iter().all(is_finished)
    }

    /// Keeps the first `jobs` jobs and returns the others.
    pub(crate) fn split_off(&mut self, jobs: usize) -> Self {
        let (mut kept, mut rest, mut left) = (Vec::new(), Vec::new(), Vec::<(Option<usize>, usize)>::new());
        for mut portion in std::mem::take(&mut self.portions) {
            if left.last().is_none_or(|&(input, _)| input != portion.input && !self.is_picked) {
                left.push((portion.input, jobs));
            }
            let Some((_, left)) = left.last_mut() else { continue };
            let count = portion.jobs.min(*left);
            *left -= count;
            if count < portion.jobs {
                let (skip, jobs) = (portion.skip + count, portion.jobs - count);
                rest.push(BatchSlice { skip, jobs, ..portion.clone() });
            }
            if count > 0 {
                portion.jobs = count;
                kept.push(portion);
            }
        }
        self.portions = kept;
        let others = self.jobs.saturating_sub(jobs);
        self.jobs -= others;
        let (is_picked, in_order) = (self.is_picked, self.in_order);
        Self { jobs: others, portions: rest, is_picked, in_order, ..Self::default() }
    }

    /// Identity of the first `taken` jobs, for the store.
    pub(crate) fn first(&self, taken: usize) -> BatchJobs {
        let mut jobs = BatchJobs::default();
        let mut left = Vec::new();
        for portion in &self.portions {
            if left.last().is_none_or(|&(input, _)| input != portion.input && !self.is_picked) {
                left.push((portion.input, taken));
            }
            let Some((_, left)) = left.last_mut() else { continue };
            let count = portion.jobs.min(*left);
            *left -= count;
            if count == 0 {
                continue;
            }
            match &portion.returned {
                Some(returned) => {
                    let keys = returned[portion.skip..portion.skip + count].iter();
                    jobs.returned.extend(keys.map(|returned| returned.key.clone()));
                }
                None => jobs.spans.extend(portion.input.map(|input| InputSpan {
                    input,
                    first: portion.batch.first + portion.skip as u64,
                    jobs: count as u64,
                })),
            }
        }
        jobs
    }

    /// Bytes of its jobs, as they were read.
    pub(crate) fn byte_len(&self) -> usize {
        let bytes = |portion: &BatchSlice| {
            let all = portion.batch.payloads.byte_len();
            if portion.jobs == portion.batch.len() {
                return all;
            }
            let lengths = portion.batch.payloads.lengths();
            lengths.skip(portion.skip).take(portion.jobs).sum()
        };
        self.portions.iter().map(bytes).sum()
    }
}
