//! `IndexedMap`: an immutable map with a hash index, so that reading one entry costs the same for any size.
//!
//! Rhai's own map is a tree, whose depth and cache misses grow with its size.

use std::borrow::Cow;
use std::collections::HashMap;

use hashbrown::HashTable;
use rhai::{Dynamic, Identifier, Map};
use twox_hash::XxHash3_64;

/// The entries of a map in the order of their keys, and their positions by the hash of the key.
#[derive(Debug)]
pub(crate) struct IndexedMap {
    entries: Box<[(Identifier, Entry)]>,
    positions: HashTable<u32>,
    /// The keys of the rows.
    forms: Vec<Map>,
    /// The values of all rows, one row behind the other.
    cells: Vec<Dynamic>,
}

#[derive(Debug)]
enum Entry {
    Value(Dynamic),
    /// A map whose keys are those of a form. Its values are adjacent cells, from `first` on, so that a large table takes
    /// little memory, and few cache misses to read.
    Row {
        form: u32,
        first: u32,
    },
}

/// Maximum number of forms of a table. More of them suggest that its maps have nothing in common.
const FORMS_MAX: usize = 64;

impl IndexedMap {
    /// The map itself if it has more entries than an index can hold.
    pub(crate) fn new(map: Map) -> Result<Self, Map> {
        let Ok(count) = u32::try_from(map.len()) else { return Err(map) };
        let (mut forms, mut cells) = (Forms::default(), Vec::new());
        let entries = map.into_iter().map(|(key, value)| (key, forms.entry(value, &mut cells)));
        let entries: Box<[(Identifier, Entry)]> = entries.collect();
        let mut positions = HashTable::with_capacity(entries.len());
        let hash_at = |at: u32| hash(&entries[at as usize].0);
        for at in 0..count {
            positions.insert_unique(hash_at(at), at, |&at| hash_at(at));
        }
        cells.shrink_to_fit();
        Ok(Self { entries, positions, forms: forms.maps, cells })
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A copy of an entry.
    pub(crate) fn get(&self, key: &str) -> Option<Dynamic> {
        self.entry(key).map(|entry| self.value(entry).into_owned())
    }

    pub(crate) fn contains_key(&self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    /// All entries, in the order of their keys.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&Identifier, Cow<'_, Dynamic>)> {
        self.entries.iter().map(|(key, entry)| (key, self.value(entry)))
    }

    /// A copy as a map of Rhai.
    pub(crate) fn to_map(&self) -> Map {
        self.iter().map(|(key, value)| (key.clone(), value.into_owned())).collect()
    }

    fn entry(&self, key: &str) -> Option<&Entry> {
        let is_key = |&at: &u32| self.entries[at as usize].0 == *key;
        self.positions.find(hash(key), is_key).map(|&at| &self.entries[at as usize].1)
    }

    fn value<'m>(&'m self, entry: &'m Entry) -> Cow<'m, Dynamic> {
        match entry {
            Entry::Value(value) => Cow::Borrowed(value),
            Entry::Row { form, first } => {
                let mut map = self.forms[*form as usize].clone();
                for (value, cell) in map.values_mut().zip(&self.cells[*first as usize..]) {
                    *value = cell.clone();
                }
                Cow::Owned(map.into())
            }
        }
    }
}

/// The key lists of the maps in a table, each as a map without values.
#[derive(Default)]
struct Forms {
    maps: Vec<Map>,
    positions: HashMap<Vec<Identifier>, u32>,
}

impl Forms {
    /// A map becomes a row. Everything else stays, and so does a map beyond the maximum number of forms or cells.
    fn entry(&mut self, value: Dynamic, cells: &mut Vec<Dynamic>) -> Entry {
        if !value.is_map() {
            return Entry::Value(value);
        }
        let map = value.cast::<Map>();
        let (Some(form), Ok(first)) = (self.position(&map), u32::try_from(cells.len())) else {
            return Entry::Value(map.into());
        };
        cells.extend(map.into_values());
        Entry::Row { form, first }
    }

    fn position(&mut self, map: &Map) -> Option<u32> {
        let keys: Vec<Identifier> = map.keys().cloned().collect();
        if let Some(&position) = self.positions.get(&keys) {
            return Some(position);
        }
        let position = u32::try_from(self.maps.len()).ok().filter(|_| self.maps.len() < FORMS_MAX)?;
        self.maps.push(keys.iter().map(|key| (key.clone(), Dynamic::UNIT)).collect());
        self.positions.insert(keys, position);
        Some(position)
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

    /// A map with a field for each bit of `fields`.
    fn of_form(fields: i64) -> Map {
        let names = (0..10).filter(|bit| fields & (1 << bit) > 0);
        names.map(|bit| (format!("field {bit}").into(), format!("{fields} {bit}").into())).collect()
    }

    #[test]
    fn maps_of_any_number_of_forms_are_found_as_they_were() {
        // With more forms than a table has rows for, and with values that are no maps in between.
        let value = |n: i64| match n % 3 {
            0 => Dynamic::from(n),
            1 => of_form(n % 7).into(),
            _ => of_form(n).into(),
        };
        let map: Map = (0..600).map(|n| (format!("key {n}").into(), value(n))).collect();
        let indexed = IndexedMap::new(map.clone()).unwrap();
        assert_eq!(indexed.forms.len(), FORMS_MAX);
        for (key, value) in &map {
            assert_eq!(format!("{:?}", indexed.get(key).unwrap()), format!("{value:?}"));
        }
        let written: Vec<String> = indexed.iter().map(|(key, value)| format!("{key} {value:?}")).collect();
        assert_eq!(written, map.iter().map(|(key, value)| format!("{key} {value:?}")).collect::<Vec<_>>());
        assert_eq!(format!("{:?}", indexed.to_map()), format!("{map:?}"));
    }
}
