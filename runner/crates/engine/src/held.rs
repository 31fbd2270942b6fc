//! Jobs that were read, and those of a batch, on their way to a worker.

use std::sync::Arc;

use super::delivery::{Jobs, Span};
use super::status::Word;
use tidegate_model::{Batch, Mark, Segment, Timestamp};
use tidegate_store::{DelayedJob, DelayedKey};

/// What one read brought.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) batch: Arc<Batch>,
    pub(crate) mark: Option<Mark>,
    pub(crate) segments: Vec<Segment>,
    /// Where the jobs came again: what is known of each beside its payload.
    pub(crate) returned: Option<Arc<[Returned]>>,
}

/// A job that comes again.
#[derive(Debug)]
pub(crate) struct Returned {
    pub(crate) key: DelayedKey,
    pub(crate) job: DelayedJob,
}

/// The jobs of a batch, for a worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work {
    pub(crate) jobs: usize,
    /// Those of one input follow each other, unless the jobs come one after the other anyway.
    pub(crate) portions: Vec<Portion>,
    /// The portions are not sides of a row: their jobs come one after the other, whatever the input.
    pub(crate) sequential: bool,
    /// Nothing is attempted: this has become of the jobs outside, in their order.
    pub(crate) words: Option<Arc<[Word]>>,
    /// Its one job was attempted before in this run, and stands nowhere.
    pub(crate) before: Option<Arc<Attempt>>,
}

/// An attempt at a job that failed.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) number: u32,
    /// When the first one began.
    pub(crate) first: Option<Timestamp>,
    pub(crate) error: Option<String>,
}

/// Jobs of one read that belong to a batch.
#[derive(Clone, Debug)]
pub(crate) struct Portion {
    pub(crate) input: usize,
    pub(crate) batch: Arc<Batch>,
    pub(crate) skip: usize,
    pub(crate) jobs: usize,
    pub(crate) returned: Option<Arc<[Returned]>>,
}

impl Fetched {
    pub(crate) fn new(batch: Batch) -> Self {
        Self { batch: Arc::new(batch), mark: None, segments: Vec::new(), returned: None }
    }
}

impl Portion {
    /// Its jobs that came again.
    pub(crate) fn returned(&self) -> &[Returned] {
        self.returned.as_ref().map_or(&[], |all| &all[self.skip..][..self.jobs])
    }

    /// Whether `next` goes on where this one ends.
    pub(crate) fn is_before(&self, next: &Portion) -> bool {
        self.input == next.input
            && Arc::ptr_eq(&self.batch, &next.batch)
            && self.skip + self.jobs == next.skip
    }
}

impl Work {
    /// Keeps the first `jobs` of its jobs, and answers with the others.
    pub(crate) fn split_off(&mut self, jobs: usize) -> Self {
        let (mut kept, mut rest, mut left) = (Vec::new(), Vec::new(), Vec::<(usize, usize)>::new());
        for mut portion in std::mem::take(&mut self.portions) {
            if left.last().is_none_or(|&(input, _)| input != portion.input) {
                left.push((portion.input, jobs));
            }
            let Some((_, left)) = left.last_mut() else { continue };
            let count = portion.jobs.min(*left);
            *left -= count;
            if count < portion.jobs {
                let (skip, jobs) = (portion.skip + count, portion.jobs - count);
                rest.push(Portion { skip, jobs, ..portion.clone() });
            }
            if count > 0 {
                portion.jobs = count;
                kept.push(portion);
            }
        }
        self.portions = kept;
        let others = self.jobs.saturating_sub(jobs);
        self.jobs -= others;
        Self { jobs: others, portions: rest, ..Self::default() }
    }

    /// The first `taken` of its jobs, for the store.
    pub(crate) fn first(&self, taken: usize) -> Jobs {
        let mut jobs = Jobs::default();
        let mut left = Vec::new();
        for portion in &self.portions {
            if left.last().is_none_or(|&(input, _)| input != portion.input && !self.sequential) {
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
                None => jobs.spans.push(Span {
                    input: portion.input,
                    first: portion.batch.first + portion.skip as u64,
                    jobs: count as u64,
                }),
            }
        }
        jobs
    }

    /// Bytes of its jobs, as they were read.
    pub(crate) fn byte_len(&self) -> usize {
        let bytes = |portion: &Portion| {
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
