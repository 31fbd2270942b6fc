//! The delivery hash: what a delivery is called, on every attempt, restart and code change.
//!
//! Definition, version 1, frozen: XXH3-128 with seed 0 over
//! `"tidegate/1"`, then pipeline and step, then for each input in the order of their binding names
//! the binding's name and the indices it gave. A text is written as its length in bytes (u32,
//! little-endian) and its bytes; indices as their count (u32) and each index (u64), little-endian.
//! A step with `from` has one input, and its binding name is the address it reads from.

use std::fmt;

use twox_hash::XxHash3_128;

/// 128 bits that name one delivery.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryHash(pub u128);

/// Everything of a hash that is the same for all jobs of a step with one input.
#[derive(Clone, Debug)]
pub struct HashPrefix {
    /// Ends with room for one index.
    bytes: Vec<u8>,
}

impl HashPrefix {
    #[must_use]
    pub fn new(pipeline: &str, step: &str, input: &str) -> Self {
        let mut bytes = b"tidegate/1".to_vec();
        for text in [pipeline, step, input] {
            // Names are at most 128 bytes, addresses 257.
            bytes.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes.extend_from_slice(&1_u32.to_le_bytes());
        bytes.extend_from_slice(&[0; 8]);
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
    fn names_do_not_run_into_each_other() {
        let one = HashPrefix::new("ab", "c", "d").hash(1);
        let other = HashPrefix::new("a", "bc", "d").hash(1);
        assert_ne!(one, other);
    }
}
