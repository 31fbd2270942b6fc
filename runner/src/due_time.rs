//! `DueTime`: reads the time at which a pushed job is appended to its queue, as a time or as a delay.

use std::time::Duration;

use tidegate_model::{Timestamp, parse_duration, shortened};

/// The last millisecond of the year 9999.
const END: Timestamp = Timestamp(253_402_300_799_999);
/// Bytes of a wrong value in an error.
const SHOWN: usize = 100;

/// The time that a text in RFC 3339 names. The error is a fragment.
pub(crate) fn at(text: &str) -> Result<Timestamp, String> {
    let time: jiff::Timestamp = text.parse().map_err(|_| {
        let text = shortened(text.to_owned(), SHOWN);
        format!("`{text}` is not a time; write one like `2026-03-31T01:00:00Z`")
    })?;
    in_time(Timestamp(time.as_millisecond()))
}

/// The time that a number of milliseconds since 1970 names. The error is a fragment.
pub(crate) fn at_millis(number: &str) -> Result<Timestamp, String> {
    let millis: Option<u64> = number.parse().ok();
    let time = millis.and_then(|millis| i64::try_from(millis).ok());
    let wrong = || {
        format!(
            "`{number}` is not a time; write one like `\"2026-03-31T01:00:00Z\"`, or milliseconds since 1970"
        )
    };
    in_time(Timestamp(time.ok_or_else(wrong)?))
}

/// The time after a delay like `15s`. The error is a fragment.
pub(crate) fn after(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let delay = parse_duration(text).map_err(|why| shortened(why, 2 * SHOWN))?;
    in_time(now + delay)
}

/// The time after a number of milliseconds. The error is a fragment.
pub(crate) fn after_millis(number: &str, now: Timestamp) -> Result<Timestamp, String> {
    let wrong = |_| format!("`{number}` is not a delay; write one like `\"15s\"`, or milliseconds");
    in_time(now + Duration::from_millis(number.parse().map_err(wrong)?))
}

fn in_time(time: Timestamp) -> Result<Timestamp, String> {
    if time > END {
        return Err("the due time must be before the year 10000".to_owned());
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000);

    #[test]
    fn times_and_delays_are_read_as_texts_and_as_milliseconds() {
        assert_eq!(at("1970-01-01T00:00:05+00:00"), Ok(Timestamp(5_000)));
        assert_eq!(at("1970-01-01T02:00:05+02:00"), Ok(Timestamp(5_000)));
        assert_eq!(at_millis("5000"), Ok(Timestamp(5_000)));
        assert_eq!(after("15s", NOW), Ok(Timestamp(16_000)));
        assert_eq!(after_millis("15000", NOW), Ok(Timestamp(16_000)));
    }

    #[test]
    fn other_values_are_errors_with_an_example() {
        let errors = [
            at("tomorrow"),
            at("2026-03-31"),
            at_millis("-5"),
            at_millis("1.5"),
            at_millis("999999999999999"),
            after("soon", NOW),
            after("-5s", NOW),
            after("99999999w", NOW),
            after_millis("1e9", NOW),
        ];
        insta::assert_debug_snapshot!(errors.map(Result::unwrap_err));
    }
}
