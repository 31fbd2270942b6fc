//! Unmatched jobs: index the jobs of a join by key that wait for their partners.
//!
//! Jobs of one key and input are paired first come, first served. The index has the numbers of rows in the store, and
//! takes about 100 bytes for each. It does no I/O.

use std::collections::{BTreeSet, HashMap};

use crate::batch::join_keys::JoinKeys;
use crate::batch::keyed_job::JoinKey;
use tidegate_store::{ParkedId, ParkedJob, ParkedKey};

/// The unmatched jobs of one step.
#[derive(Debug)]
pub(crate) struct UnmatchedJobs {
    /// By key and input, in the order of arrival: later rows have larger numbers.
    waiting: BTreeSet<(JoinKey, usize, ParkedId)>,
    places: HashMap<ParkedId, (JoinKey, usize)>,
    /// Number of jobs, by input.
    counts: Vec<u64>,
    /// Number of the last provisional row.
    provisional: u64,
}

/// Bit of the numbers that jobs have before their commit. The store counts from 1.
const PROVISIONAL: u64 = 1 << 63;

/// Whether the row is not committed yet.
pub(crate) fn is_provisional(ParkedId(id): ParkedId) -> bool {
    id & PROVISIONAL != 0
}

impl UnmatchedJobs {
    /// Number of jobs, by input.
    pub(crate) fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// The jobs of rows in the store. Rows that wait for no partner are left out.
    ///
    /// # Errors
    /// The first error of `rows`.
    pub(crate) fn of_rows<E>(
        keys: &JoinKeys,
        rows: impl Iterator<Item = Result<(ParkedKey, ParkedJob), E>>,
    ) -> Result<Self, E> {
        let mut found = Vec::new();
        for row in rows {
            let (row, job) = row?;
            found.extend(keys.of_row(&job).map(|(key, side)| (row.id, key, side)));
        }
        // In the order of their arrival.
        found.sort_unstable_by_key(|(id, ..)| *id);
        let counts = vec![0; keys.sides()];
        let (waiting, places) = (BTreeSet::new(), HashMap::new());
        let mut unmatched = Self { waiting, places, counts, provisional: PROVISIONAL };
        for (id, key, side) in found {
            unmatched.insert(id, key, side);
        }
        Ok(unmatched)
    }

    /// Adds a job whose row is not committed yet, and returns its provisional number.
    pub(crate) fn add(&mut self, key: JoinKey, side: usize) -> ParkedId {
        self.provisional += 1;
        let id = ParkedId(self.provisional);
        self.insert(id, key, side);
        id
    }

    fn insert(&mut self, id: ParkedId, key: JoinKey, side: usize) {
        self.waiting.insert((key, side, id));
        self.places.insert(id, (key, side));
        self.counts[side] += 1;
    }

    /// Gives a job the number of its row.
    pub(crate) fn commit(&mut self, provisional: ParkedId, id: ParkedId) {
        let Some((key, side)) = self.places.remove(&provisional) else { return };
        self.waiting.remove(&(key, side, provisional));
        self.waiting.insert((key, side, id));
        self.places.insert(id, (key, side));
    }

    /// Removes a job. Returns whether it was there.
    pub(crate) fn remove(&mut self, id: ParkedId) -> bool {
        let Some((key, side)) = self.places.remove(&id) else { return false };
        self.counts[side] -= 1;
        self.waiting.remove(&(key, side, id));
        true
    }

    /// The first job of every input, if each has one with the key.
    pub(crate) fn whole(&self, key: JoinKey) -> Option<Vec<ParkedId>> {
        (0..self.counts.len()).map(|side| self.first(key, side)).collect()
    }

    /// The first job of each input that has one with the key.
    pub(crate) fn present(&self, key: JoinKey) -> Vec<ParkedId> {
        (0..self.counts.len()).filter_map(|side| self.first(key, side)).collect()
    }

    fn first(&self, key: JoinKey, side: usize) -> Option<ParkedId> {
        let mut of_side = self.waiting.range((key, side, ParkedId(0))..=(key, side, ParkedId(u64::MAX)));
        of_side.next().map(|(.., id)| *id)
    }

    /// The position of the job's input.
    pub(crate) fn side(&self, id: ParkedId) -> Option<usize> {
        self.places.get(&id).map(|(_, side)| *side)
    }

    /// The keys of whole tuples: a new `on` may pair jobs that wait already.
    pub(crate) fn whole_keys(&self) -> Vec<JoinKey> {
        let mut whole = Vec::new();
        let mut last = None;
        for &(key, ..) in &self.waiting {
            if last.replace(key) != Some(key)
                && let Some(ids) = self.whole(key)
            {
                whole.push((ids.into_iter().max(), key));
            }
        }
        whole.sort_unstable();
        whole.into_iter().map(|(_, key)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIDES: usize = 3;

    /// A job in the model: its key, its input, its number, in the order of arrival.
    type Model = Vec<(u128, usize, ParkedId)>;

    #[derive(Clone, Copy, Debug)]
    enum Change {
        Arrives {
            key: u128,
            side: usize,
        },
        /// The job at this position of the model leaves.
        Leaves(usize),
        /// All jobs get the numbers of their rows.
        Commit,
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            6 => (0..4u128, 0..SIDES).prop_map(|(key, side)| Change::Arrives { key, side }),
            2 => (0..50usize).prop_map(Change::Leaves),
            1 => Just(Change::Commit),
        ]
    }

    fn empty() -> UnmatchedJobs {
        let (waiting, places) = (BTreeSet::new(), HashMap::new());
        UnmatchedJobs { waiting, places, counts: vec![0; SIDES], provisional: PROVISIONAL }
    }

    /// The first job of every input with the key.
    fn whole(model: &Model, key: u128) -> Option<Vec<ParkedId>> {
        let first = |side| model.iter().find(|job| (job.0, job.1) == (key, side)).map(|job| job.2);
        (0..SIDES).map(first).collect()
    }

    proptest! {
        #[test]
        fn jobs_of_one_key_are_paired_in_the_order_of_their_arrival(changes in prop::collection::vec(change(), 0..120)) {
            let (mut unmatched, mut model, mut row) = (empty(), Model::new(), 0);
            for change in changes {
                match change {
                    Change::Arrives { key, side } => {
                        let id = unmatched.add(JoinKey(key), side);
                        prop_assert!(is_provisional(id));
                        model.push((key, side, id));
                        let found = unmatched.whole(JoinKey(key));
                        prop_assert_eq!(&found, &whole(&model, key));
                        for id in found.into_iter().flatten() {
                            prop_assert!(unmatched.remove(id));
                            model.retain(|job| job.2 != id);
                        }
                    }
                    Change::Leaves(position) if !model.is_empty() => {
                        let (_, _, id) = model.remove(position % model.len());
                        prop_assert!(unmatched.remove(id));
                        prop_assert!(!unmatched.remove(id));
                    }
                    Change::Leaves(_) => {}
                    Change::Commit => {
                        for job in model.iter_mut().filter(|job| is_provisional(job.2)) {
                            row += 1;
                            unmatched.commit(job.2, ParkedId(row));
                            job.2 = ParkedId(row);
                        }
                    }
                }
                let counts: Vec<u64> =
                    (0..SIDES).map(|side| model.iter().filter(|job| job.1 == side).count() as u64).collect();
                prop_assert_eq!(unmatched.counts(), &counts[..]);
                prop_assert_eq!(unmatched.places.len(), model.len());
                prop_assert_eq!(unmatched.waiting.len(), model.len());
                prop_assert!(unmatched.whole_keys().is_empty());
                for (key, side, id) in &model {
                    prop_assert_eq!(unmatched.side(*id), Some(*side));
                    prop_assert!(unmatched.waiting.contains(&(JoinKey(*key), *side, *id)));
                }
            }
        }
    }
}
