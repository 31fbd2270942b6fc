//! `Rows`: finds rows of parked jobs by the jobs that they were made from.
//!
//! The table has them in order of due time. The rows of a step are read once, at the first search. From then
//! on each commit adds its own. A removed row is noticed when it is read.

use std::collections::{BTreeMap, BTreeSet};

use twox_hash::XxHash3_64;

use super::Store;
use crate::api::parked_job::{NewParkedJob, ParkedJob, ParkedKey};
use crate::error::ReadError;
use tidegate_model::sync::{Mutex, MutexGuard};
use tidegate_model::{Address, Timestamp};

/// A step with more rows is scanned for each search. A row takes about 50 bytes here.
const ROWS_MAX: u64 = 1 << 20;
/// Removed rows that are kept, in addition to the number of existing ones.
const GONE_MAX: u64 = 1024;

/// The known rows by step.
#[derive(Debug, Default)]
pub(crate) struct RowCache(Mutex<BTreeMap<Address, Known>>);

#[derive(Debug, Default)]
struct Known {
    /// All rows of the store were read. Before, only those of later commits are known.
    whole: bool,
    /// The hash of an origin, the due time of its row, and the row's number.
    rows: BTreeSet<(u64, Timestamp, u64)>,
}

impl Store {
    /// The first parked job of `step` that was made from the job at `index` of this input, named as in
    /// delivery hashes. After the first call, the time does not depend on the number of rows. In a snapshot,
    /// a row that was removed since may be missed.
    pub fn delayed_of(
        &self,
        step: &Address,
        (input, index): (&str, u64),
    ) -> Result<Option<(ParkedKey, ParkedJob)>, ReadError> {
        let count = self.delayed_count(step)?;
        if count == 0 {
            return Ok(None);
        }
        if count > ROWS_MAX || !self.know_rows(step)? {
            return self.delayed_of_all(step, (input, index));
        }
        let places: Vec<(Timestamp, u64)> = {
            let known = self.rows().known();
            let Some(known) = known.get(step) else { return self.delayed_of_all(step, (input, index)) };
            let job = hash(input, index);
            let rows = known.rows.range((job, Timestamp(i64::MIN), 0)..=(job, Timestamp(i64::MAX), u64::MAX));
            rows.map(|&(_, due, sequence)| (due, sequence)).collect()
        };
        for (due, sequence) in places {
            let key = ParkedKey { step: step.clone(), due, sequence };
            let found = self.delayed(std::slice::from_ref(&key))?.pop().flatten();
            let is_it = |job: &ParkedJob| job.inputs.iter().any(|(name, at)| name == input && *at == index);
            if let Some(job) = found.filter(is_it) {
                return Ok(Some((key, job)));
            }
        }
        Ok(None)
    }

    /// Reads the rows of the step, unless they are known. Returns whether they are: not while another thread
    /// reads them.
    fn know_rows(&self, step: &Address) -> Result<bool, ReadError> {
        let latest = self.latest();
        let count = latest.delayed_count(step)?;
        {
            let mut steps = self.rows().known();
            match steps.get(step) {
                Some(known) if !known.whole => return Ok(false),
                Some(known) if known.rows.len() as u64 <= 2 * count + GONE_MAX => return Ok(true),
                _ => _ = steps.insert(step.clone(), Known::default()),
            }
        }
        // Rows of commits from here on are added by the commit.
        let mut rows = BTreeSet::new();
        for row in latest.all_delayed(step) {
            match row {
                Ok((key, job)) => rows.extend(entries(&job, key.due, key.sequence)),
                Err(error) => {
                    self.rows().known().remove(step);
                    return Err(error);
                }
            }
        }
        // A reopened store has forgotten all rows.
        let mut steps = self.rows().known();
        let Some(known) = steps.get_mut(step) else { return Ok(false) };
        known.rows.append(&mut rows);
        known.whole = true;
        Ok(true)
    }
}

impl RowCache {
    /// Adds the rows of a durable commit.
    pub(crate) fn add(&self, delayed: &[NewParkedJob], keys: &[ParkedKey]) {
        if delayed.is_empty() {
            return;
        }
        let mut steps = self.known();
        if steps.is_empty() {
            return;
        }
        for (NewParkedJob { job, .. }, key) in delayed.iter().zip(keys) {
            if let Some(known) = steps.get_mut(&key.step) {
                known.rows.extend(entries(job, key.due, key.sequence));
            }
        }
    }

    /// Forgets all rows, since the file may be another one now.
    pub(crate) fn forget(&self) {
        self.known().clear();
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Address, Known>> {
        self.0.lock()
    }
}

fn entries(
    job: &ParkedJob,
    due: Timestamp,
    sequence: u64,
) -> impl Iterator<Item = (u64, Timestamp, u64)> + '_ {
    job.inputs.iter().map(move |(input, index)| (hash(input, *index), due, sequence))
}

fn hash(input: &str, index: u64) -> u64 {
    XxHash3_64::oneshot_with_seed(index, input.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FaultyDisk;
    use crate::{Changes, Writer, open_disk};

    fn step() -> Address {
        Address::parse("p/step").unwrap()
    }

    fn delayed(index: u64, due: i64) -> NewParkedJob {
        let job =
            ParkedJob { inputs: vec![("p/in".into(), index), ("p/other".into(), 1)], ..ParkedJob::default() };
        NewParkedJob { step: step(), due: Timestamp(due), job }
    }

    fn commit(writer: &mut Writer, delayed: Vec<NewParkedJob>, undelayed: Vec<ParkedKey>) -> Vec<ParkedKey> {
        writer
            .commit(&Changes { unparked: undelayed, parked: delayed, ..Changes::default() })
            .unwrap()
            .delayed
    }

    fn find(store: &Store, index: u64) -> Option<i64> {
        let found = store.delayed_of(&step(), ("p/in", index)).unwrap();
        assert_eq!(
            found.as_ref().map(|(key, _)| key),
            store.delayed_of_all(&step(), ("p/in", index)).unwrap().as_ref().map(|(key, _)| key)
        );
        found.map(|(key, _)| key.due.0)
    }

    #[test]
    fn a_row_is_found_whenever_it_was_written_and_not_once_it_is_gone() {
        let (store, mut writer) = open_disk(Box::new(FaultyDisk::new())).unwrap();
        assert_eq!(find(&store, 1), None);
        let keys = commit(&mut writer, vec![delayed(1, 30), delayed(2, 20)], Vec::new());
        assert_eq!([1, 2, 3].map(|index| find(&store, index)), [Some(30), Some(20), None]);
        // One row put back for another time, and a new one.
        commit(&mut writer, vec![delayed(1, 10), delayed(3, i64::MAX)], vec![keys[0].clone()]);
        assert_eq!([1, 2, 3].map(|index| find(&store, index)), [Some(10), Some(20), Some(i64::MAX)]);
        // The first of several rows is found.
        let more = commit(&mut writer, vec![delayed(2, 5)], Vec::new());
        assert_eq!(find(&store, 2), Some(5));
        commit(&mut writer, Vec::new(), more);
        assert_eq!(find(&store, 2), Some(20));
        writer.reopen().unwrap();
        assert_eq!([1, 2, 3].map(|index| find(&store, index)), [Some(10), Some(20), Some(i64::MAX)]);
    }

    #[test]
    fn a_moment_knows_no_rows_that_came_later() {
        let (store, mut writer) = open_disk(Box::new(FaultyDisk::new())).unwrap();
        let keys = commit(&mut writer, vec![delayed(1, 30)], Vec::new());
        let looked: Result<(), ReadError> = store.at_one_moment(|moment| {
            commit(&mut writer, vec![delayed(2, 20)], keys.clone());
            assert_eq!([1, 2].map(|index| find(&store, index)), [None, Some(20)]);
            assert_eq!(find(moment, 2), None);
            Ok(())
        });
        looked.unwrap();
    }

    #[test]
    fn rows_that_are_gone_are_forgotten() {
        let (store, mut writer) = open_disk(Box::new(FaultyDisk::new())).unwrap();
        let mut keys = commit(&mut writer, vec![delayed(0, 1)], Vec::new());
        for index in 1..=4 * GONE_MAX {
            keys = commit(&mut writer, vec![delayed(index, 1)], keys);
            assert_eq!(find(&store, index), Some(1));
        }
        let known = store.rows().known();
        assert!(known[&step()].rows.len() as u64 <= 2 * GONE_MAX, "{}", known[&step()].rows.len());
    }
}
