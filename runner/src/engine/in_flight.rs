//! A batch in flight: between being formed and being committed.

use super::delivery::{Jobs, Places};
use super::held::Work;
use super::result::Ran;
use crate::decide::{BatchId, Failed, JobEnd, JobKey};
use crate::store::DelayedKey;

/// A batch between being formed and being committed.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Its position in the configuration.
    pub(super) step: usize,
    pub(super) work: Work,
    pub(super) places: Places,
    /// It is on its way to the committer, and nothing that it waits for is.
    pub(super) coming: bool,
    /// The jobs that it was picked of, in order; none where jobs are taken as they come.
    pub(super) picked: Vec<JobKey>,
    /// Where its jobs stand since it was begun, if that has put them into the store one by one.
    pub(super) begun: Vec<DelayedKey>,
    /// Of jobs that were picked and have run: what became of each.
    pub(super) ends: Vec<JobEnd>,
    pub(super) ran: Option<Box<Ran>>,
    /// Its jobs that failed for good, to be reported once that is durable.
    pub(super) failed: Vec<Failed>,
    /// The rest of what was begun with it, as a batch that begins with this number.
    pub(super) rest: Option<(BatchId, Jobs)>,
}

impl Held {
    /// The first `taken` of its jobs, for the store.
    pub(super) fn jobs(&self, taken: usize) -> Jobs {
        if self.begun.is_empty() {
            return self.work.first(taken);
        }
        Jobs { spans: Vec::new(), returned: self.begun.iter().take(taken).cloned().collect() }
    }

    /// Keeps the first `jobs` of its jobs; the others are the batch `id`. `begun`: what they were begun with
    /// stays on record for them.
    pub(super) fn split(&mut self, jobs: usize, id: BatchId, begun: bool) -> Self {
        let work = self.work.split_off(jobs);
        // What waits is the first of them.
        let ran = self.ran.as_mut().and_then(|ran| ran.waits.take());
        let rest = self.rest.take();
        if begun {
            let behind = rest.as_ref().map(|(_, behind)| behind.clone()).unwrap_or_default();
            self.rest = Some((id, work.first(work.jobs).followed_by(behind)));
        }
        Self { work, ran, rest, ..Self::default() }
    }
}
