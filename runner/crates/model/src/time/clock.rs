//! `Clock`: the source of the time. All other code receives the time as an argument.

use std::ops::{Add, Sub};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::sync::Mutex;
use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// A time before every reading of a clock.
    pub const EARLIEST: Self = Self(0);

    /// The latest possible due time: the last that can be written in any time zone, in the year 9999.
    pub const LATEST: Self = Self(253_402_207_200_000);

    /// The time from `earlier` to this one; zero if `earlier` is the later one.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// Saturates at the ends of the range.
impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }
}

/// Saturates at the ends of the range.
impl Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(millis(duration)))
    }
}

/// Whole milliseconds of a duration, as timestamps count them; saturates.
#[must_use]
pub fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// A time as RFC 3339, in UTC and always with milliseconds; a number if it is out of range of the calendar.
#[must_use]
pub fn rfc3339(time: Timestamp) -> String {
    match jiff::Timestamp::from_millisecond(time.0) {
        Ok(time) => format!("{time:.3}"),
        Err(_) => time.0.to_string(),
    }
}

/// The time that [`rfc3339`] has written, or any other in that form; `None` if it is none.
#[must_use]
pub fn from_rfc3339(text: &str) -> Option<Timestamp> {
    text.parse::<jiff::Timestamp>().ok().map(|time| Timestamp(time.as_millisecond()))
}

/// A source of the current time.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
}

/// The time of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let millis = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => millis(since),
            Err(before) => -millis(before.duration()),
        };
        Timestamp(millis)
    }
}

/// A time that tests set.
#[derive(Debug, Default)]
pub struct ManualClock(Mutex<Timestamp>);

impl ManualClock {
    #[must_use]
    pub fn at(millis: i64) -> Self {
        Self(Mutex::new(Timestamp(millis)))
    }

    pub fn advance(&self, millis: i64) {
        let mut now = self.0.lock();
        now.0 += millis;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_always_written_to_the_millisecond() {
        let times = [0, 1_500, 1_769_860_800_790, -1].map(|millis| rfc3339(Timestamp(millis)));
        let written = [
            "1970-01-01T00:00:00.000Z",
            "1970-01-01T00:00:01.500Z",
            "2026-01-31T12:00:00.790Z",
            "1969-12-31T23:59:59.999Z",
        ];
        assert_eq!(times, written);
        assert_eq!(rfc3339(Timestamp(i64::MAX)), i64::MAX.to_string());
    }

    #[test]
    fn a_sum_with_a_duration_saturates() {
        assert_eq!(Timestamp(5) + Duration::from_micros(2_999), Timestamp(7));
        assert_eq!(Timestamp(5) - Duration::from_secs(1), Timestamp(-995));
        assert_eq!(Timestamp(5) + Duration::MAX, Timestamp(i64::MAX));
        assert_eq!(Timestamp(-5) - Duration::MAX, Timestamp(i64::MIN));
        assert_eq!(Timestamp(i64::MAX) + Duration::from_millis(1), Timestamp(i64::MAX));
    }

    #[test]
    fn no_time_passes_before_an_earlier_time() {
        assert_eq!(Timestamp(7).since(Timestamp(5)), Duration::from_millis(2));
        assert_eq!(Timestamp(5).since(Timestamp(7)), Duration::ZERO);
        assert_eq!(
            Timestamp(i64::MAX).since(Timestamp(i64::MIN)),
            Duration::from_millis(i64::MAX.unsigned_abs())
        );
    }

    #[test]
    fn the_latest_time_is_the_last_that_can_be_written() {
        let latest = Timestamp::LATEST.0;
        assert!(jiff::Timestamp::from_millisecond(latest).is_ok());
        assert!(jiff::Timestamp::from_millisecond(latest + 1).is_err());
    }
}
