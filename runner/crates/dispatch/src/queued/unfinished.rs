//! Unfinished jobs: the jobs that are parked in the store, which does not read them again, and that hold the watermark.

use std::collections::{BTreeSet, HashMap};

use crate::waiting_room::JobKey;

/// Indices of begun, delayed and pending jobs.
#[derive(Debug, Default)]
pub(crate) struct UnfinishedJobs {
    indices: BTreeSet<(u64, JobKey)>,
    /// Indices of the jobs whose keys do not have them.
    of_parked: HashMap<JobKey, u64>,
}

impl UnfinishedJobs {
    pub(crate) fn add(&mut self, key: JobKey, index: u64) {
        self.indices.insert((index, key));
        if !key.is_fresh() {
            self.of_parked.insert(key, index);
        }
    }

    pub(crate) fn remove(&mut self, key: JobKey) {
        let index = if key.is_fresh() { Some(key.0) } else { self.of_parked.remove(&key) };
        if let Some(index) = index {
            self.indices.remove(&(index, key));
        }
    }

    /// Index of a parked job whose key is not its index.
    pub(crate) fn index(&self, key: JobKey) -> Option<u64> {
        self.of_parked.get(&key).copied()
    }

    /// The job at this index.
    pub(crate) fn at(&self, index: u64) -> Option<JobKey> {
        let mut found = self.indices.range((index, JobKey(0))..=(index, JobKey(u64::MAX)));
        found.next().map(|&(_, key)| key)
    }

    /// The lowest index.
    pub(crate) fn first(&self) -> Option<u64> {
        self.indices.first().map(|&(index, _)| index)
    }
}
