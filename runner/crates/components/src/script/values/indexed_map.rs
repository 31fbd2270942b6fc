//! `IndexedMap`: an immutable map with a hash index, so that reading one entry costs the same for any size.
//!
//! Rhai's own map is a tree, whose depth and cache misses grow with its size.

use hashbrown::HashTable;
use rhai::{Dynamic, Identifier, Map};
use twox_hash::XxHash3_64;

/// The entries of a map in the order of their keys, and their positions by the hash of the key.
#[derive(Debug)]
pub(crate) struct IndexedMap {
    entries: Box<[(Identifier, Dynamic)]>,
    positions: HashTable<u32>,
}

impl IndexedMap {
    /// The map itself if it has more entries than an index can hold.
    pub(crate) fn new(map: Map) -> Result<Self, Map> {
        let Ok(count) = u32::try_from(map.len()) else { return Err(map) };
        let entries: Box<[(Identifier, Dynamic)]> = map.into_iter().collect();
        let mut positions = HashTable::with_capacity(entries.len());
        let hash_at = |at: u32| hash(&entries[at as usize].0);
        for at in 0..count {
            positions.insert_unique(hash_at(at), at, |&at| hash_at(at));
        }
        Ok(Self { entries, positions })
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Dynamic> {
        let is_key = |&at: &u32| self.entries[at as usize].0 == *key;
        self.positions.find(hash(key), is_key).map(|&at| &self.entries[at as usize].1)
    }

    pub(crate) fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// All entries, in the order of their keys.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&Identifier, &Dynamic)> {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    /// A copy as a map of Rhai.
    pub(crate) fn to_map(&self) -> Map {
        self.entries.iter().cloned().collect()
    }
}

fn hash(key: &str) -> u64 {
    XxHash3_64::oneshot(key.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_of_a_map_is_found_and_no_other() {
        for count in [0, 1, 7, 1000] {
            let map: Map =
                (0..count).map(|n: i64| (format!("key {n}").into(), Dynamic::from(n * 2))).collect();
            let indexed = IndexedMap::new(map.clone()).unwrap();
            assert_eq!((indexed.len(), indexed.is_empty()), (map.len(), map.is_empty()));
            for (key, value) in &map {
                assert_eq!(indexed.get(key).and_then(|found| found.as_int().ok()), value.as_int().ok());
            }
            assert!(!indexed.contains_key("key") && !indexed.contains_key(&format!("key {count}")));
            assert!(indexed.iter().map(|(key, _)| key).eq(map.keys()));
            assert!(indexed.to_map().keys().eq(map.keys()));
        }
    }
}
