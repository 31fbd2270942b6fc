//! Row index: maps the keys of waiting jobs to the numbers of their rows, in 8 bytes each if the keys are dense.

use std::collections::HashMap;

use tidegate_dispatch::JobKey;
use tidegate_store::ParkedId;

/// Number of low bits in which the keys of a page differ.
const PAGE_BITS: u32 = 6;

/// Number of each row.
#[derive(Debug, Default)]
pub(crate) struct RowIndex {
    pages: HashMap<u64, IndexPage>,
}

#[derive(Debug, Default)]
struct IndexPage {
    /// Bit set of the keys of the page; the lowest bit is the first key.
    present: u64,
    /// Rows in the order of the keys.
    rows: Vec<ParkedId>,
}

impl RowIndex {
    pub(crate) fn get(&self, key: JobKey) -> Option<ParkedId> {
        let page = self.pages.get(&(key.0 >> PAGE_BITS))?;
        page.holds(key).then(|| page.rows[page.place(key)])
    }

    /// Adds a row, or moves it.
    pub(crate) fn insert(&mut self, key: JobKey, row: ParkedId) {
        let page = self.pages.entry(key.0 >> PAGE_BITS).or_default();
        let place = page.place(key);
        if page.holds(key) {
            page.rows[place] = row;
        } else {
            page.rows.insert(place, row);
            page.present |= bit(key);
        }
    }

    pub(crate) fn remove(&mut self, key: JobKey) {
        let number = key.0 >> PAGE_BITS;
        let Some(page) = self.pages.get_mut(&number).filter(|page| page.holds(key)) else { return };
        page.rows.remove(page.place(key));
        page.present &= !bit(key);
        if page.present == 0 {
            self.pages.remove(&number);
            // The capacity that many jobs have needed is released.
            if self.pages.len() * 4 < self.pages.capacity() {
                self.pages.shrink_to(self.pages.len() * 2);
            }
        }
    }

    /// All rows, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (JobKey, ParkedId)> {
        self.pages.iter().flat_map(|(number, page)| {
            let keys = (0..1 << PAGE_BITS).filter(|low| page.present >> low & 1 == 1);
            keys.map(move |low: u64| JobKey(number << PAGE_BITS | low)).zip(page.rows.iter().copied())
        })
    }
}

impl IndexPage {
    fn holds(&self, key: JobKey) -> bool {
        self.present & bit(key) != 0
    }

    /// Number of keys of the page before this one.
    fn place(&self, key: JobKey) -> usize {
        (self.present & (bit(key) - 1)).count_ones() as usize
    }
}

fn bit(key: JobKey) -> u64 {
    1 << (key.0 & ((1 << PAGE_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn places_are_a_map(steps in prop::collection::vec((any::<bool>(), 0_u64..300, any::<u64>()), 0..400)) {
            let (mut places, mut model) = (RowIndex::default(), BTreeMap::new());
            for (add, key, number) in steps {
                // Keys of two kinds, far from each other.
                let key = if key % 3 == 0 { JobKey::stored(key) } else { JobKey::fresh(key) };
                let row = ParkedId(number);
                if add {
                    places.insert(key, row);
                    model.insert(key.0, row);
                } else {
                    places.remove(key);
                    model.remove(&key.0);
                }
                prop_assert_eq!(places.get(key), model.get(&key.0).copied());
            }
            let mut all: Vec<_> = places.iter().map(|(key, row)| (key.0, row)).collect();
            all.sort_unstable();
            prop_assert_eq!(all, model.into_iter().collect::<Vec<_>>());
        }
    }
}
