//! `Random`: pseudorandom numbers, the same for the same seed.

/// A splitmix64 generator.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed in the environment variable `TIDEGATE_TEST_SEED`, to repeat a failure; otherwise a new one.
    pub(crate) fn seed() -> u64 {
        match std::env::var("TIDEGATE_TEST_SEED") {
            Ok(text) => text.parse().expect("TIDEGATE_TEST_SEED is a number"),
            Err(_) => u64::from(std::process::id()) ^ now_nanos(),
        }
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end.max(1)
    }

    /// A number up to `most`.
    pub(crate) fn up_to(&mut self, most: usize) -> usize {
        // A number below a usize fits.
        usize::try_from(self.below(most as u64 + 1)).unwrap_or(most)
    }
}

fn now_nanos() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::from(since.subsec_nanos()) ^ since.as_secs()
}
