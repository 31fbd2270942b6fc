//! Parts: a list whose elements keep their positions when the configuration changes.

use std::collections::HashMap;
use std::ops::{Index, IndexMut};

/// Parts of one kind, by position. A part keeps its position as long as the process lives, so a position of an
/// older configuration still means the same part, or none.
#[derive(Clone, Debug)]
pub struct Parts<T> {
    /// By position; `None` where a part was removed.
    slots: Vec<Option<T>>,
    /// Positions of the parts, in the order of the configuration.
    order: Vec<usize>,
}

impl<T> Parts<T> {
    /// Parts in order, each with its position. Positions are unique.
    pub fn at(parts: impl IntoIterator<Item = (usize, T)>) -> Self {
        let mut made = Self::default();
        for (position, part) in parts {
            made.insert(position, part);
        }
        made
    }

    /// Number of parts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The first position behind all parts.
    #[must_use]
    pub fn end(&self) -> usize {
        self.slots.len()
    }

    #[must_use]
    pub fn get(&self, position: usize) -> Option<&T> {
        self.slots.get(position)?.as_ref()
    }

    pub fn get_mut(&mut self, position: usize) -> Option<&mut T> {
        self.slots.get_mut(position)?.as_mut()
    }

    /// Positions, in the order of the configuration.
    #[must_use]
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    /// Parts in the order of the configuration.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { slots: &self.slots, order: self.order.iter() }
    }

    /// Positions and parts, in the order of the configuration.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = (usize, &T)> + Clone {
        self.order.iter().filter_map(|&position| Some((position, self.get(position)?)))
    }

    /// Parts in the order of their positions.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().flatten()
    }

    /// Parts in the order of their positions, with these.
    pub fn entries_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        self.slots.iter_mut().enumerate().filter_map(|(position, slot)| Some((position, slot.as_mut()?)))
    }

    /// Position of the first part that `is` accepts.
    pub fn position(&self, mut is: impl FnMut(&T) -> bool) -> Option<usize> {
        self.entries().find(|(_, part)| is(part)).map(|(position, _)| position)
    }

    /// Puts a part at a position, at the end of the order if it is new there. Returns the part that was there.
    pub fn insert(&mut self, position: usize, part: T) -> Option<T> {
        if self.slots.len() <= position {
            self.slots.resize_with(position + 1, || None);
        }
        let before = self.slots[position].replace(part);
        if before.is_none() {
            self.order.push(position);
        }
        before
    }

    /// Orders the parts. Parts whose positions are missing in `order` come last.
    pub fn set_order(&mut self, order: &[usize]) {
        let rank: HashMap<usize, usize> = order.iter().copied().zip(0..).collect();
        self.order.sort_by_key(|position| rank.get(position).copied().unwrap_or(usize::MAX));
    }

    pub fn remove(&mut self, position: usize) -> Option<T> {
        let part = self.slots.get_mut(position)?.take()?;
        self.order.retain(|&one| one != position);
        Some(part)
    }

    /// Parts of another kind at the same positions.
    pub fn map<U>(&self, mut made: impl FnMut(usize, &T) -> U) -> Parts<U> {
        Parts::at(self.entries().map(|(position, part)| (position, made(position, part))))
    }
}

impl<T> Default for Parts<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), order: Vec::new() }
    }
}

impl<T> FromIterator<T> for Parts<T> {
    fn from_iter<I: IntoIterator<Item = T>>(parts: I) -> Self {
        Self::at(parts.into_iter().enumerate())
    }
}

/// Parts in the order of the configuration.
#[derive(Debug)]
pub struct Iter<'a, T> {
    slots: &'a [Option<T>],
    order: std::slice::Iter<'a, usize>,
}

impl<T> Clone for Iter<'_, T> {
    fn clone(&self) -> Self {
        Self { slots: self.slots, order: self.order.clone() }
    }
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<Self::Item> {
        // The order has the positions of parts only.
        self.order.next().and_then(|&position| self.slots[position].as_ref())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.order.size_hint()
    }
}

impl<T> DoubleEndedIterator for Iter<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.order.next_back().and_then(|&position| self.slots[position].as_ref())
    }
}

impl<T> ExactSizeIterator for Iter<'_, T> {}

impl<'a, T> IntoIterator for &'a Parts<T> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Parts in the order of the configuration, with their positions.
impl<T> IntoIterator for Parts<T> {
    type Item = (usize, T);
    type IntoIter = std::vec::IntoIter<(usize, T)>;

    fn into_iter(mut self) -> Self::IntoIter {
        let order = std::mem::take(&mut self.order);
        let parts = order.into_iter().filter_map(|position| Some((position, self.slots[position].take()?)));
        parts.collect::<Vec<_>>().into_iter()
    }
}

/// Panics without a part at the position, as a slice does. Positions come from the same configuration; where a part
/// may have been removed since, use [`Parts::get`].
impl<T> Index<usize> for Parts<T> {
    type Output = T;

    #[track_caller]
    fn index(&self, position: usize) -> &T {
        self.get(position).unwrap_or_else(|| panic!("no part is at position {position}"))
    }
}

impl<T> IndexMut<usize> for Parts<T> {
    #[track_caller]
    fn index_mut(&mut self, position: usize) -> &mut T {
        self.get_mut(position).unwrap_or_else(|| panic!("no part is at position {position}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_keeps_its_position_when_others_are_removed_and_added() {
        let mut parts: Parts<&str> = ["a", "b", "c"].into_iter().collect();
        assert_eq!(parts.remove(1), Some("b"));
        assert_eq!(parts.insert(3, "d"), None);
        assert_eq!(
            parts.entries().map(|(at, part)| (at, *part)).collect::<Vec<_>>(),
            [(0, "a"), (2, "c"), (3, "d")]
        );
        assert_eq!((parts.len(), parts.end(), parts.get(1)), (3, 4, None));
        assert_eq!(parts.insert(1, "b"), None);
        assert_eq!(parts.iter().copied().collect::<Vec<_>>(), ["a", "c", "d", "b"]);
        assert_eq!(parts.position(|part| *part == "c"), Some(2));
    }
}
