//! Pending index: finds the pending jobs of ordered steps by input index.
//!
//! Each row is scanned once, at the first request after it was written. So a request with a wrong token never
//! triggers a search.

use std::collections::{BTreeMap, BTreeSet};

use super::request::ParkedJobRef;
use tidegate_config::Step;
use tidegate_model::Address;
use tidegate_model::sync::Mutex;
use tidegate_store::{NO_DUE_TIME, ParkedJob, ParkedKey, ReadError, Store};

/// Maximum number of rows scanned together, and of their bytes.
const PAGE: usize = 4096;
const PAGE_BYTES: usize = 4 << 20;
/// Number of rows below which the index is never rebuilt.
const COMPACT_MIN: usize = 1024;

/// Pending jobs of all ordered steps, shared by all requests.
#[derive(Debug, Default)]
pub struct PendingIndex(Mutex<BTreeMap<Address, StepPendingIndex>>);

#[derive(Debug, Default)]
struct StepPendingIndex {
    /// Sequence of the last scanned row.
    last: u64,
    /// Input, index of the input, and sequence of the row that was made of it.
    rows: BTreeSet<(usize, u64, u64)>,
    /// Number of rows after the last complete scan.
    len_after_scan: usize,
}

impl PendingIndex {
    /// Row of the pending job that was made of the job at `index` of an input and satisfies `is_it`.
    pub(crate) fn find(
        &self,
        store: &Store,
        step: &Step,
        (input, index): (usize, u64),
        is_it: impl Fn(&ParkedJob) -> bool,
    ) -> Result<Option<ParkedJobRef>, ReadError> {
        let mut steps = self.0.lock();
        let places = steps.entry(step.address.clone()).or_default();
        places.catch_up(store, step)?;
        let rows = places.rows.range((input, index, 0)..=(input, index, u64::MAX));
        // There is more than one only if a job was put back while an external system had it.
        for (.., sequence) in rows.copied().collect::<Vec<_>>() {
            let row = ParkedJobRef { due: NO_DUE_TIME, sequence };
            match store.delayed(&[row.key(&step.address)])?.pop().flatten() {
                Some(job) if is_it(&job) => return Ok(Some(row)),
                Some(_) => {}
                None => _ = places.rows.remove(&(input, index, sequence)),
            }
        }
        Ok(None)
    }
}

impl StepPendingIndex {
    /// Scans the rows that were written since the last scan.
    fn catch_up(&mut self, store: &Store, step: &Step) -> Result<(), ReadError> {
        if self.rows.len() > 2 * self.len_after_scan + COMPACT_MIN {
            // Most rows may be gone, and only the store knows.
            *self = Self::default();
        }
        let anew = self.last == 0;
        loop {
            let after = ParkedKey { step: step.address.clone(), due: NO_DUE_TIME, sequence: self.last };
            let found = store.due(&step.address, NO_DUE_TIME, Some(&after), PAGE, PAGE_BYTES)?;
            let Some((last, _)) = found.last() else { break };
            self.last = last.sequence;
            for (key, job) in found.iter().filter(|(_, job)| job.reason.outside().is_some()) {
                let of = |name: &str| step.inputs.iter().position(|input| input.hash_name() == name);
                let made_of = job.inputs.iter().filter_map(|(name, index)| Some((of(name)?, *index)));
                self.rows.extend(made_of.map(|(input, index)| (input, index, key.sequence)));
            }
        }
        if anew {
            self.len_after_scan = self.rows.len();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
