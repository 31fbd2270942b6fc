//! `TokenKey`: creates and verifies the completion tokens of external systems.
//!
//! Definition: the first 128 bits, as 32 hex digits, of HMAC-SHA-256 over `"tidegate/token/1"` and the
//! delivery hash (16 bytes, little-endian). The key is created once per store. A token is thus the same on
//! every attempt and restart, and reveals nothing about other jobs or steps. It cannot be created without the
//! key.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::DeliveryHash;

/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// Bytes that SHA-256 takes at a time.
const BLOCK_BYTES: usize = 64;
/// Bytes of a token, before they are written as digits.
const TOKEN_BYTES: usize = 16;

/// The key that signs the tokens of a store. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenKey([u8; KEY_BYTES]);

impl TokenKey {
    /// A key for which no token is accepted: for code that runs without a store.
    pub const NONE: Self = Self([0; KEY_BYTES]);

    /// The key of these bytes, which must be unpredictable; `None` if their number is wrong.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self).filter(|key| *key != Self::NONE)
    }

    /// The bytes, for storing them.
    #[must_use]
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }

    /// The token for the job of this delivery.
    #[must_use]
    pub fn token(&self, hash: DeliveryHash) -> String {
        let message = [b"tidegate/token/1", &hash.0.to_le_bytes()[..]].concat();
        let digest = hmac(&self.0, &message);
        let start: [u8; TOKEN_BYTES] = std::array::from_fn(|at| digest[at]);
        format!("{:032x}", u128::from_be_bytes(start))
    }

    /// Whether `shown` is that token, compared in constant time.
    #[must_use]
    pub fn accepts(&self, hash: DeliveryHash, shown: &[u8]) -> bool {
        let token = self.token(hash);
        let differs = token.bytes().zip(shown).fold(0, |differs, (one, &other)| differs | (one ^ other));
        *self != Self::NONE && token.len() == shown.len() && differs == 0
    }
}

/// HMAC as in RFC 2104, with a key that is shorter than a block.
fn hmac(key: &[u8; KEY_BYTES], message: &[u8]) -> [u8; 32] {
    let padded = |pad: u8| {
        let mut block = [pad; BLOCK_BYTES];
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        block
    };
    let inner = Sha256::new().chain_update(padded(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().into()
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(first: u8) -> TokenKey {
        let bytes: Vec<u8> = (first..).take(KEY_BYTES).collect();
        TokenKey::new(&bytes).unwrap()
    }

    #[test]
    fn a_token_is_the_hmac_that_other_programs_compute() {
        // Case 1 of RFC 4231, whose key of 20 bytes equals one that is padded with zeros.
        let mut bytes = [0; KEY_BYTES];
        bytes[..20].fill(0x0b);
        let digest = hmac(&bytes, b"Hi There");
        let halves: Vec<u128> =
            digest.chunks(16).map(|half| u128::from_be_bytes(half.try_into().unwrap())).collect();
        assert_eq!(
            halves,
            [0xb034_4c61_d8db_3853_5ca8_afce_af0b_f12b, 0x881d_c200_c983_3da7_26e9_376c_2e32_cff7]
        );
    }

    #[test]
    fn a_token_is_for_one_job_of_one_store() {
        let (one, other) = (key(1), key(2));
        let (job, next) = (DeliveryHash(7), DeliveryHash(8));
        let token = one.token(job);
        insta::assert_snapshot!(token, @"4ce3183dfd5d93053a8936948bda3a6c");
        assert!(one.accepts(job, token.as_bytes()));
        assert!(!one.accepts(next, token.as_bytes()));
        assert!(!other.accepts(job, token.as_bytes()));
    }

    #[test]
    fn what_is_nearly_a_token_is_none() {
        let (key, job) = (key(1), DeliveryHash(7));
        let token = key.token(job);
        let longer = format!("{token}0");
        for wrong in ["", &token[1..], &longer, &token.to_uppercase(), &token.replace(&token[..1], "x")] {
            assert!(!key.accepts(job, wrong.as_bytes()), "{wrong}");
        }
    }

    #[test]
    fn without_a_key_nothing_is_accepted() {
        let token = TokenKey::NONE.token(DeliveryHash(7));
        assert!(!TokenKey::NONE.accepts(DeliveryHash(7), token.as_bytes()));
        assert_eq!(TokenKey::new(&[0; KEY_BYTES]), None);
        assert_eq!(TokenKey::new(&[1; KEY_BYTES - 1]), None);
        assert_eq!(format!("{:?}", key(1)), "TokenKey(…)");
    }
}
