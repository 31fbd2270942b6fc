//! Hash index: maps the hash of an item to its number, with five bytes a place.

/// Index of numbered items that are kept elsewhere. The caller compares and hashes the items.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyIndex {
    /// Numbers, [`EMPTY`] or [`LEFT`]. The length is a power of two, and at most three quarters are not
    /// empty.
    places: Vec<u32>,
    /// Highest bits of each hash, so that few items are compared in vain.
    tags: Vec<u8>,
    len: usize,
    /// Number of places that are not empty.
    used: usize,
}

const EMPTY: u32 = u32::MAX;
/// Marks the place of a removed item. Numbers are smaller than this.
const LEFT: u32 = u32::MAX - 1;
const LEAST: usize = 16;

impl KeyIndex {
    pub(crate) fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        if self.places.is_empty() {
            return None;
        }
        let mut at = self.home(hash);
        while self.places[at] != EMPTY {
            if self.places[at] != LEFT && self.tags[at] == tag(hash) && is(self.places[at]) {
                return Some(self.places[at]);
            }
            at = self.after(at);
        }
        None
    }

    /// Adds an item that is not in the index.
    pub(crate) fn insert(&mut self, hash: u64, number: u32, hash_of: impl Fn(u32) -> u64) {
        if (self.used + 1) * 4 > self.places.len() * 3 {
            self.make_room(hash_of);
        }
        self.put(hash, number);
        self.len += 1;
    }

    /// Removes an item that is in the index.
    pub(crate) fn remove(&mut self, hash: u64, number: u32) {
        self.len -= 1;
        if self.len == 0 {
            *self = Self::default();
            return;
        }
        let mut at = self.home(hash);
        while self.places[at] != number {
            at = self.after(at);
        }
        // Lookups of items further on must still pass this place.
        let last = self.places[self.after(at)] == EMPTY;
        self.places[at] = if last { EMPTY } else { LEFT };
        self.used -= usize::from(last);
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<u32>() + self.tags.capacity()
    }

    fn make_room(&mut self, hash_of: impl Fn(u32) -> u64) {
        // If many places are of removed items, the same size is enough.
        let crowded = self.len * 2 >= self.places.len();
        let size = if crowded { self.places.len() * 2 } else { self.places.len() };
        let size = size.max(LEAST);
        let old = std::mem::replace(&mut self.places, vec![EMPTY; size]);
        self.tags = vec![0; size];
        self.used = 0;
        for number in old.into_iter().filter(|&number| number < LEFT) {
            self.put(hash_of(number), number);
        }
    }

    fn put(&mut self, hash: u64, number: u32) {
        let mut at = self.home(hash);
        while self.places[at] < LEFT {
            at = self.after(at);
        }
        self.used += usize::from(self.places[at] == EMPTY);
        self.places[at] = number;
        self.tags[at] = tag(hash);
    }

    fn home(&self, hash: u64) -> usize {
        // A short `usize` keeps the lowest bits.
        #[expect(clippy::cast_possible_truncation, reason = "only the lowest bits are used")]
        let low = hash as usize;
        low & (self.places.len() - 1)
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.places.len() - 1)
    }
}

fn tag(hash: u64) -> u8 {
    hash.to_be_bytes()[0]
}

/// Hash of a number; each bit depends on all bits of the number.
pub(crate) fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 32)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_index_is_a_set(steps in prop::collection::vec((any::<bool>(), 0_u32..200), 0..600), bits in 1_u32..64) {
            // A hash with few bits makes many items collide.
            let hash_of = |number: u32| mix(u64::from(number)) >> (64 - bits);
            let mut index = KeyIndex::default();
            let mut model = BTreeSet::new();
            for (add, number) in steps {
                let found = index.find(hash_of(number), |other| other == number);
                prop_assert_eq!(found.is_some(), model.contains(&number));
                if add && model.insert(number) {
                    index.insert(hash_of(number), number, hash_of);
                } else if !add && model.remove(&number) {
                    index.remove(hash_of(number), number);
                }
            }
            for number in 0..200 {
                let found = index.find(hash_of(number), |other| other == number);
                prop_assert_eq!(found, model.get(&number).copied());
            }
        }
    }
}
