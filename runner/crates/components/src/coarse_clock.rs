//! A clock that costs next to nothing to read.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A batch ends early when it has run for so long. The dispatcher makes batches for a quarter of it.
pub const BATCH_TIME: Duration = Duration::from_millis(200);
/// The same, when what it has given comes to so many bytes.
pub const BATCH_BYTES: usize = 8 << 20;

/// Nanoseconds since some moment, the same for both kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoarseClock {
    /// Moves every few milliseconds; reading it takes some nanoseconds.
    Coarse,
    /// Exact; reading it takes some dozens.
    Exact,
}

/// From here on a few milliseconds more or less do not matter.
const COARSE_FROM: Duration = Duration::from_millis(100);

impl CoarseClock {
    /// What is good enough to hold `timeout` against.
    #[must_use]
    pub fn fit_for(timeout: Option<Duration>) -> Self {
        match timeout {
            Some(timeout) if timeout < COARSE_FROM => Self::Exact,
            _ => Self::Coarse,
        }
    }

    /// Nanoseconds since that moment.
    #[must_use]
    pub fn now(self) -> u64 {
        #[cfg(target_os = "linux")]
        let coarse = ClockId::MonotonicCoarse;
        #[cfg(not(target_os = "linux"))]
        let coarse = ClockId::Monotonic;
        let clock = if self == Self::Coarse { coarse } else { ClockId::Monotonic };
        let time = clock_gettime(clock);
        // Neither is ever negative: the clock begins when the machine does.
        let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
        seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
    }
}
