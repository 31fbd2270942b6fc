//! `DeliveryHash`: identifies a delivery across attempts, restarts and code changes.
//!
//! Definition, version 1, frozen: XXH3-128 with seed 0 over `"tidegate/1"`, then pipeline and step, then the
//! inputs with a job, in the order of their binding names. Each input adds the binding's name and its
//! indices. A text is its length in bytes (u32, little-endian) and its bytes. Indices are their count (u32)
//! and each index (u64), little-endian. A step with `from` has one input, whose binding name is the address
//! of that input. An input without a job (`alts`) is left out, so that adding an alternative changes no hash.
//! Names are in order of their bytes.

use std::fmt;

use twox_hash::{XxHash3_64, XxHash3_128};

/// 128 bits that identify one delivery.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryHash(pub u128);

/// The part of a hash that is equal for all jobs of a step with one input.
#[derive(Clone, Debug)]
pub struct HashPrefix {
    /// Ends with room for one index.
    bytes: Vec<u8>,
}

impl HashPrefix {
    #[must_use]
    pub fn new(pipeline: &str, step: &str, input: &str) -> Self {
        let mut bytes = start(pipeline, step);
        put_input(&mut bytes, input, &[0]);
        Self { bytes }
    }

    /// The hash of the delivery of the job at `index`.
    #[must_use]
    pub fn hash(&mut self, index: u64) -> DeliveryHash {
        let room = self.bytes.len() - 8;
        self.bytes[room..].copy_from_slice(&index.to_le_bytes());
        DeliveryHash(XxHash3_128::oneshot(&self.bytes))
    }
}

/// The hash of a delivery over any number of inputs: their names and their indices. The order does not
/// matter, since they are sorted by name.
#[must_use]
pub fn delivery_hash<'a>(
    pipeline: &str,
    step: &str,
    inputs: impl IntoIterator<Item = (&'a str, &'a [u64])>,
) -> DeliveryHash {
    let mut inputs: Vec<_> = inputs.into_iter().filter(|(_, indices)| !indices.is_empty()).collect();
    inputs.sort_by_key(|&(name, _)| name);
    let mut bytes = start(pipeline, step);
    for (name, indices) in inputs {
        put_input(&mut bytes, name, indices);
    }
    DeliveryHash(XxHash3_128::oneshot(&bytes))
}

/// The hash of a piece that processors made from the job of a delivery, for the plugin behind them. The first
/// piece has the hash of the delivery. `earlier` is the number of times that the same plugin occurs before
/// this one. XXH3-128 with seed 0 over `"tidegate/piece/1"`, then the hash (u128), `earlier` and `piece`
/// (u32), little-endian.
#[must_use]
pub fn piece_hash(hash: DeliveryHash, earlier: u32, piece: u32) -> DeliveryHash {
    if (earlier, piece) == (0, 0) {
        return hash;
    }
    let mut bytes = b"tidegate/piece/1".to_vec();
    bytes.extend_from_slice(&hash.0.to_le_bytes());
    bytes.extend_from_slice(&earlier.to_le_bytes());
    bytes.extend_from_slice(&piece.to_le_bytes());
    DeliveryHash(XxHash3_128::oneshot(&bytes))
}

/// The hash of a key that a client gave to a job. It identifies the arrival on the queue `pipeline/queue` as
/// a delivery hash identifies a delivery. XXH3-128 with seed 0 over `"tidegate/key/1"`, then pipeline, queue,
/// `sort` and `key`. `sort` distinguishes kinds of keys.
#[must_use]
pub fn key_hash(pipeline: &str, queue: &str, sort: &str, key: &[u8]) -> DeliveryHash {
    let mut bytes = b"tidegate/key/1".to_vec();
    put_text(&mut bytes, pipeline);
    put_text(&mut bytes, queue);
    put_text(&mut bytes, sort);
    bytes.extend_from_slice(key);
    DeliveryHash(XxHash3_128::oneshot(&bytes))
}

/// A hash that identifies repeated content from an external system: XXH3-64 with seed 0.
#[must_use]
pub fn content_hash(content: &[u8]) -> u64 {
    XxHash3_64::oneshot(content)
}

fn start(pipeline: &str, step: &str) -> Vec<u8> {
    let mut bytes = b"tidegate/1".to_vec();
    put_text(&mut bytes, pipeline);
    put_text(&mut bytes, step);
    bytes
}

fn put_input(bytes: &mut Vec<u8>, name: &str, indices: &[u64]) {
    put_text(bytes, name);
    put_len(bytes, indices.len());
    for index in indices {
        bytes.extend_from_slice(&index.to_le_bytes());
    }
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put_len(bytes, text.len());
    bytes.extend_from_slice(text.as_bytes());
}

fn put_len(bytes: &mut Vec<u8>, len: usize) {
    // Names are at most 128 bytes, addresses 257, and a batch of jobs is bounded.
    bytes.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
}

impl fmt::Display for DeliveryHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for DeliveryHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_frozen() {
        let mut prefix = HashPrefix::new("quakes", "classify", "quakes/events");
        insta::assert_snapshot!(prefix.hash(1), @"ab355fd9cbfef97ac8a018b260cd20f8");
        insta::assert_snapshot!(prefix.hash(u64::MAX), @"45bc6bfb0f3d3c227ae7fd4a2cdde9dc");
    }

    #[test]
    fn the_first_piece_has_the_hash_of_the_job_and_each_other_one_its_own() {
        let job = DeliveryHash(7);
        assert_eq!(piece_hash(job, 0, 0), job);
        let parts: [&[u8]; 4] =
            [b"tidegate/piece/1", &7_u128.to_le_bytes(), &0_u32.to_le_bytes(), &1_u32.to_le_bytes()];
        assert_eq!(piece_hash(job, 0, 1), by_hand(&parts));
        let others = [(job, 1, 0), (job, 0, 2), (job, 1, 1), (DeliveryHash(8), 0, 1)];
        for (hash, earlier, piece) in others {
            assert_ne!(piece_hash(hash, earlier, piece), piece_hash(job, 0, 1), "{hash} {earlier} {piece}");
        }
    }

    #[test]
    fn keys_of_queues_and_sorts_are_told_apart() {
        insta::assert_snapshot!(key_hash("p", "q", "id", b"7"), @"e93704599c3c3142c8b30679ff2e8818");
        let others =
            [("p", "q", "header", "7"), ("p", "r", "id", "7"), ("o", "q", "id", "7"), ("p", "q", "id", "8")];
        for (pipeline, queue, sort, key) in others {
            let other = key_hash(pipeline, queue, sort, key.as_bytes());
            assert_ne!(other, key_hash("p", "q", "id", b"7"), "{pipeline} {queue} {sort} {key}");
        }
    }

    /// The definition, in the simplest code.
    fn by_hand(pieces: &[&[u8]]) -> DeliveryHash {
        DeliveryHash(XxHash3_128::oneshot(&pieces.concat()))
    }

    #[test]
    fn the_definition_is_frozen_for_several_inputs() {
        let one = delivery_hash("quakes", "classify", [("quakes/events", &[1][..])]);
        insta::assert_snapshot!(one, @"ab355fd9cbfef97ac8a018b260cd20f8");
        let two = delivery_hash("shop", "match", [("order", &[3][..]), ("payment", &[5])]);
        insta::assert_snapshot!(two, @"aa04485cdf3a591fa2c128bbe844874a");
        let three = delivery_hash("shop", "match", [("a", &[1][..]), ("b", &[2]), ("c", &[u64::MAX])]);
        insta::assert_snapshot!(three, @"cda241a42b49f071e2ff8dc46efc341d");
        let alternative = delivery_hash("crawl", "newest", [("new", &[][..]), ("old", &[4])]);
        insta::assert_snapshot!(alternative, @"43d03936e76c56503167b887f13de87f");
        let moved = delivery_hash("crawl", "newest", [("new=crawl/fresh", &[1][..])]);
        insta::assert_snapshot!(moved, @"b5d5134c0a13206cc1dfa880b0e20d96");
        let batch = delivery_hash("shop", "pack", [("shop/parcels", &[7, 8, 9][..])]);
        insta::assert_snapshot!(batch, @"623a73912ba37bd95c85ca2fa12c14f3");
    }

    #[test]
    fn the_definition_is_what_the_text_says() {
        let (four, five, seven) = (&[4, 0, 0, 0][..], &[5, 0, 0, 0][..], &[7, 0, 0, 0][..]);
        let (once, index) = (&[1, 0, 0, 0][..], |index: u64| index.to_le_bytes());
        let expected = by_hand(&[
            b"tidegate/1",
            four,
            b"shop",
            five,
            b"match",
            five,
            b"order",
            once,
            &index(3),
            seven,
            b"payment",
            once,
            &index(5),
        ]);
        assert_eq!(delivery_hash("shop", "match", [("payment", &[5][..]), ("order", &[3])]), expected);
    }

    #[test]
    fn an_alternative_that_gave_nothing_changes_no_hash() {
        let before = delivery_hash("crawl", "newest", [("old", &[4][..])]);
        let after = delivery_hash("crawl", "newest", [("new", &[][..]), ("old", &[4])]);
        assert_eq!(before, after);
    }

    #[test]
    fn names_do_not_run_into_each_other() {
        let one = HashPrefix::new("ab", "c", "d").hash(1);
        let other = HashPrefix::new("a", "bc", "d").hash(1);
        assert_ne!(one, other);
    }
}
