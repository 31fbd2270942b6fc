//! Chunked vector: grows in chunks without moving its elements, so that a large one needs no room for a
//! second copy.

use std::ops::{Index, IndexMut};

/// Elements of a chunk, as a power of two.
const PIECE_BITS: u32 = 12;
const PIECE: usize = 1 << PIECE_BITS;

#[derive(Clone, Debug)]
pub(crate) struct ChunkedVec<T> {
    /// Chunks; all but the last are full.
    pieces: Vec<Vec<T>>,
}

impl<T> Default for ChunkedVec<T> {
    fn default() -> Self {
        Self { pieces: Vec::new() }
    }
}

impl<T> ChunkedVec<T> {
    pub(crate) fn len(&self) -> usize {
        self.pieces.last().map_or(0, |last| (self.pieces.len() - 1) * PIECE + last.len())
    }

    pub(crate) fn push(&mut self, thing: T) {
        match self.pieces.last_mut().filter(|last| last.len() < PIECE) {
            Some(last) => last.push(thing),
            None => {
                // A small vector has one small chunk.
                let room = if self.pieces.is_empty() { 0 } else { PIECE };
                let mut piece = Vec::with_capacity(room);
                piece.push(thing);
                self.pieces.push(piece);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pieces.iter().flatten()
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.capacity() * size_of::<T>() + size_of::<Vec<T>>()).sum()
    }
}

impl<T> Index<u32> for ChunkedVec<T> {
    type Output = T;

    fn index(&self, slot: u32) -> &T {
        &self.pieces[(slot >> PIECE_BITS) as usize][slot as usize % PIECE]
    }
}

impl<T> IndexMut<u32> for ChunkedVec<T> {
    fn index_mut(&mut self, slot: u32) -> &mut T {
        &mut self.pieces[(slot >> PIECE_BITS) as usize][slot as usize % PIECE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_keeps_its_place_while_others_are_added() {
        let mut slots = ChunkedVec::default();
        for number in 0..=3 * PIECE {
            assert_eq!(slots.len(), number);
            slots.push(number);
        }
        slots[5000] = 7;
        let numbers: Vec<usize> = slots.iter().copied().collect();
        let expected: Vec<usize> = (0..=3 * PIECE).map(|at| if at == 5000 { 7 } else { at }).collect();
        assert_eq!(numbers, expected);
        assert_eq!((slots[0], slots[4096], slots[12_288]), (0, 4096, 12_288));
    }
}
