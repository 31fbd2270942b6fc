//! Where the jobs of a step stand that outside systems have, by the indices that they were made of: for steps
//! that take their jobs as they come, of which nobody else knows.
//!
//! Each row is looked at once, when somebody asks for the first time after it was written, and not each time
//! that somebody asks. So whoever shows a wrong token makes nobody search.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use super::request::Row;
use tidegate_config::Step;
use tidegate_model::Address;
use tidegate_store::{DelayedJob, DelayedKey, NEVER, ReadError, Store};

/// So many rows are looked at together, and so many bytes of them.
const PAGE: usize = 4096;
const PAGE_BYTES: usize = 4 << 20;
/// So few places are kept though nothing may stand there any more.
const FEW: usize = 1024;

/// What is known of the pending jobs of all such steps; shared by all who ask.
#[derive(Debug, Default)]
pub struct Whereabouts(Mutex<BTreeMap<Address, Places>>);

#[derive(Debug, Default)]
struct Places {
    /// The sequence of the last row that was looked at.
    last: u64,
    /// An input, an index of it, and the sequence of a row that was made of that.
    rows: BTreeSet<(usize, u64, u64)>,
    /// How many there were when all that stood in the store had been looked at.
    whole: usize,
}

impl Whereabouts {
    /// Where the pending job stands that was made of the one at `index` of an input, and of which `is_it`
    /// holds.
    pub(crate) fn find(
        &self,
        store: &Store,
        step: &Step,
        (input, index): (usize, u64),
        is_it: impl Fn(&DelayedJob) -> bool,
    ) -> Result<Option<Row>, ReadError> {
        // It is whole after every statement, so one that a panic left behind is usable.
        let mut steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let places = steps.entry(step.address.clone()).or_default();
        places.look_on(store, step)?;
        let rows = places.rows.range((input, index, 0)..=(input, index, u64::MAX));
        // More than one only where a job was put back while the outside had it.
        for (.., sequence) in rows.copied().collect::<Vec<_>>() {
            let row = Row { due: NEVER, sequence };
            match store.delayed(&[row.key(&step.address)])?.pop().flatten() {
                Some(job) if is_it(&job) => return Ok(Some(row)),
                Some(_) => {}
                None => _ = places.rows.remove(&(input, index, sequence)),
            }
        }
        Ok(None)
    }
}

impl Places {
    /// Looks at what was written since it looked last.
    fn look_on(&mut self, store: &Store, step: &Step) -> Result<(), ReadError> {
        if self.rows.len() > 2 * self.whole + FEW {
            // Most of it may be gone, and only the store knows.
            *self = Self::default();
        }
        let anew = self.last == 0;
        loop {
            let after = DelayedKey { step: step.address.clone(), due: NEVER, sequence: self.last };
            let found = store.due(&step.address, NEVER, Some(&after), PAGE, PAGE_BYTES)?;
            let Some((last, _)) = found.last() else { break };
            self.last = last.sequence;
            for (key, job) in found.iter().filter(|(_, job)| job.standing.outside().is_some()) {
                let of = |name: &str| step.inputs.iter().position(|input| input.hash_name() == name);
                let made_of = job.inputs.iter().filter_map(|(name, index)| Some((of(name)?, *index)));
                self.rows.extend(made_of.map(|(input, index)| (input, index, key.sequence)));
            }
        }
        if anew {
            self.whole = self.rows.len();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
