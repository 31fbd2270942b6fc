//! `Retry-After`: parses the delay that a service requests.

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822;

/// A greater delay is treated as an error of the service.
const MOST: Duration = Duration::from_hours(24 * 30);

/// The delay in `value`: seconds, or an HTTP date. A date is relative to the service's own clock (`date`) if
/// it is given, otherwise to `now_ms`. `None` if it is neither.
pub(crate) fn retry_after(value: &str, date: &str, now_ms: i64) -> Option<Duration> {
    let value = value.trim();
    let wait = match value.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let until = moment(value)?;
            let now = moment(date.trim()).or_else(|| Timestamp::from_millisecond(now_ms).ok())?;
            Duration::try_from(until.duration_since(now)).ok()?
        }
    };
    (!wait.is_zero()).then(|| wait.min(MOST))
}

/// HTTP dates have the format of mail dates.
fn moment(text: &str) -> Option<Timestamp> {
    rfc2822::DateTimeParser::new().parse_timestamp(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_understood() {
        let now = 784_111_770_000; // Sun, 06 Nov 1994 08:49:30 GMT
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(retry_after("120", "", now), seconds(120));
        assert_eq!(retry_after(" 3 ", "", now), seconds(3));
        assert_eq!(retry_after(date, "", now), seconds(7));
        // The service's clock is ahead of the local one.
        assert_eq!(retry_after(date, "Sun, 06 Nov 1994 08:49:35 GMT", now), seconds(2));
        assert_eq!(retry_after("99999999999", "", now), Some(MOST));
        for nothing in
            ["", "0", "-3", "soon", "1.5", "Sun, 06 Nov 1994 08:49:30 GMT", "Sat, 05 Nov 1994 08:49:30 GMT"]
        {
            assert_eq!(retry_after(nothing, "", now), None, "{nothing}");
        }
    }
}
