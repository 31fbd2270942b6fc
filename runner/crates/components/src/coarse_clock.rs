//! `CoarseClock`: a clock that costs a few nanoseconds per read.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Maximum running time of a batch, which then ends early. The dispatcher sizes batches for a tenth of it.
pub const BATCH_TIME: Duration = Duration::from_millis(50);
/// Maximum bytes of a batch's outputs, which then ends early.
pub const BATCH_BYTES: usize = 8 << 20;

/// Nanoseconds since a fixed moment, the same for both kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoarseClock {
    /// Advances every few milliseconds; a read takes about 5 ns.
    Coarse,
    /// Exact; a read takes tens of nanoseconds.
    Exact,
}

/// From this duration on, an error of a few milliseconds does not matter.
const COARSE_FROM: Duration = Duration::from_millis(100);

impl CoarseClock {
    /// The cheapest clock that is exact enough for `timeout`.
    #[must_use]
    pub fn fit_for(timeout: Option<Duration>) -> Self {
        match timeout {
            Some(timeout) if timeout < COARSE_FROM => Self::Exact,
            _ => Self::Coarse,
        }
    }

    /// Nanoseconds since the fixed moment.
    #[must_use]
    pub fn now(self) -> u64 {
        #[cfg(target_os = "linux")]
        let coarse = ClockId::MonotonicCoarse;
        #[cfg(not(target_os = "linux"))]
        let coarse = ClockId::Monotonic;
        let clock = if self == Self::Coarse { coarse } else { ClockId::Monotonic };
        let time = clock_gettime(clock);
        // Neither is ever negative: the clock starts when the machine does.
        let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
        seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
    }
}
