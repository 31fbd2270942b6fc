//! `Deaths`: the deaths of isolated processes that each job has caused in a row, over all workers of a run.
//!
//! A job may wait after a death, because the plugin cannot be set up again. Another worker may then run it
//! next, and continues the count.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_model::sync::{Mutex, MutexGuard};

/// Maximum number of jobs that are counted at a time. Beyond it, the count of one of them restarts.
const JOBS_MAX: usize = 4096;

/// A piece of a job at one plugin of a step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Culprit {
    /// Step and plugin.
    pub(crate) place: Arc<str>,
    pub(crate) hash: u128,
    pub(crate) piece: u32,
}

/// The counts that the workers of a run share.
#[derive(Debug, Default)]
pub struct Deaths {
    /// Avoids the lock while no process has died.
    any: AtomicBool,
    counts: Mutex<BTreeMap<Culprit, u32>>,
}

impl Deaths {
    /// Adds a death, and returns the new count.
    pub(crate) fn add(&self, culprit: Culprit) -> u32 {
        let mut counts = self.counts();
        if counts.len() >= JOBS_MAX && !counts.contains_key(&culprit) {
            counts.pop_first();
        }
        let deaths = counts.entry(culprit).or_default();
        *deaths = deaths.saturating_add(1);
        let deaths = *deaths;
        self.any.store(true, Ordering::Release);
        deaths
    }

    /// Resets the count.
    pub(crate) fn forget(&self, culprit: &Culprit) {
        let mut counts = self.counts();
        counts.remove(culprit);
        self.any.store(!counts.is_empty(), Ordering::Release);
    }

    pub(crate) fn has(&self, culprit: &Culprit) -> bool {
        self.any() && self.counts().contains_key(culprit)
    }

    /// Whether any job has caused a death.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<Culprit, u32>> {
        self.counts.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn culprit(hash: u128) -> Culprit {
        Culprit { place: "p/step flaky".into(), hash, piece: 0 }
    }

    #[test]
    fn each_job_has_a_count_of_its_own_until_it_is_forgotten() {
        let deaths = Deaths::default();
        assert!(!deaths.has(&culprit(1)));
        assert_eq!([1, 2, 1, 2].map(|hash| deaths.add(culprit(hash))), [1, 1, 2, 2]);
        deaths.forget(&culprit(1));
        assert_eq!([1, 2].map(|hash| deaths.has(&culprit(hash))), [false, true]);
        assert_eq!([1, 2].map(|hash| deaths.add(culprit(hash))), [1, 3]);
    }

    #[test]
    fn the_table_of_deaths_is_bounded() {
        let deaths = Deaths::default();
        for hash in 0..2 * JOBS_MAX as u128 {
            assert_eq!(deaths.add(culprit(hash)), 1);
        }
        assert_eq!(deaths.counts().len(), JOBS_MAX);
    }
}
