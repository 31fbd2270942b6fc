//! Times for people: format durations and points in time.

use std::time::Duration;

use tidegate_model::{Timestamp, format_duration};

/// The duration until `time`. A started unit counts, so that a job due in 1 ms is not due now.
pub(crate) fn until(time: Timestamp, now: Timestamp) -> String {
    in_units(time.since(now), u64::div_ceil)
}

/// `now`, or `in 4s`.
pub(crate) fn due(time: Timestamp, now: Timestamp) -> String {
    if time <= now { "now".to_owned() } else { format!("in {}", until(time, now)) }
}

/// The duration since `time`.
pub(crate) fn since(time: Timestamp, now: Timestamp) -> String {
    in_units(now.since(time), |millis, unit| millis / unit)
}

/// Whether the duration since then is long enough to be reported.
pub(crate) fn is_long(since: Timestamp, now: Timestamp) -> bool {
    now.since(since) >= Duration::from_secs(1)
}

/// A duration for people.
pub(crate) fn age(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "shown")]
    since(Timestamp(0), Timestamp((seconds * 1000.0).round() as i64))
}

/// In milliseconds below one second, and rounded above.
fn in_units(time: Duration, divide: fn(u64, u64) -> u64) -> String {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let unit = match millis {
        0..1_000 => 1,
        1_000..3_600_000 => 1_000,
        3_600_000..172_800_000 => 60_000,
        _ => 3_600_000,
    };
    format_duration(Duration::from_millis(divide(millis, unit).saturating_mul(unit)))
}

/// Parses an RFC 3339 time.
pub(crate) fn read(text: &str) -> Option<Timestamp> {
    let time: jiff::Timestamp = text.parse().ok()?;
    Some(Timestamp(time.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_finely_as_people_want_them() {
        let now = Timestamp(5);
        let times =
            [-7, 0, 999, 1001, 61_000, 3_600_001, 90_061_000, 172_800_001].map(|millis: i64| millis + 5);
        let texts = times.map(|time| until(Timestamp(time), now));
        assert_eq!(texts, ["0ms", "0ms", "999ms", "2s", "1m1s", "1h1m", "1d1h2m", "2d1h"]);
        let texts = times.map(|time| since(now, Timestamp(time)));
        assert_eq!(texts, ["0ms", "0ms", "999ms", "1s", "1m1s", "1h", "1d1h1m", "2d"]);
    }

    #[test]
    fn a_time_is_read_as_it_was_told() {
        assert_eq!(read("1970-01-01T00:00:01.500Z"), Some(Timestamp(1500)));
        assert_eq!(read("soon"), None);
    }
}
