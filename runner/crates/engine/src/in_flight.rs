//! A batch in flight: between being formed and being committed.

use super::delivery::{Jobs, Places};
use super::held::Work;
use super::result::Ran;
use tidegate_dispatch::{BatchId, Failed, JobEnd, JobKey};
use tidegate_store::DelayedKey;

/// A batch between being formed and being committed.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Its position in the configuration.
    pub(crate) step: usize,
    pub(crate) work: Work,
    pub(crate) places: Places,
    /// It is on its way to the committer, and nothing that it waits for is.
    pub(crate) coming: bool,
    /// The jobs that it was picked of, in order; none where jobs are taken as they come.
    pub(crate) picked: Vec<JobKey>,
    /// Where its jobs stand since it was begun, if that has put them into the store one by one.
    pub(crate) begun: Vec<DelayedKey>,
    /// Of jobs that were picked and have run: what became of each.
    pub(crate) ends: Vec<JobEnd>,
    pub(crate) ran: Option<Box<Ran>>,
    /// Its jobs that failed for good, to be reported once that is durable.
    pub(crate) failed: Vec<Failed>,
    /// The rest of what was begun with it, as a batch that begins with this number.
    pub(crate) rest: Option<(BatchId, Jobs)>,
}

impl Held {
    /// The first `taken` of its jobs, for the store.
    pub(crate) fn jobs(&self, taken: usize) -> Jobs {
        if self.begun.is_empty() {
            return self.work.first(taken);
        }
        Jobs { spans: Vec::new(), returned: self.begun.iter().take(taken).cloned().collect() }
    }

    /// Keeps the first `jobs` of its jobs; the others are the batch `id`. `begun`: what they were begun with
    /// stays on record for them.
    pub(crate) fn split(&mut self, jobs: usize, id: BatchId, begun: bool) -> Self {
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
