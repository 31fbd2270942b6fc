//! `Rate`: a limit of events per time, in the form that people write.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::units::{format_duration, parse_duration};

/// At most `count` in any interval of length `per`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub count: NonZeroU32,
    pub per: Duration,
}

/// Parses `100/s`, `10/1m`, `1/250ms`: a count, and a unit of time or a duration.
///
/// # Errors
/// A sentence fragment with the problem and its fix.
pub fn parse_rate(text: &str) -> Result<Rate, String> {
    let wrong = || format!("`{text}` is not a rate; write one like `100/s` or `10/1m`");
    let (count, per) = text.trim().split_once('/').ok_or_else(wrong)?;
    let (count, per) = (count.trim(), per.trim());
    if count.is_empty() || per.is_empty() {
        return Err(wrong());
    }
    if count.starts_with('-') {
        return Err(format!("`{text}` is negative, but a rate must not be"));
    }
    if !count.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let count: u32 = count.parse().map_err(|_| format!("`{text}` exceeds the largest possible count"))?;
    // A unit without a number means one of it.
    let per = if per.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
        parse_duration(per)?
    } else {
        parse_duration(&format!("1{per}"))?
    };
    match NonZeroU32::new(count) {
        Some(count) if !per.is_zero() => Ok(Rate { count, per }),
        _ => Err(format!("`{text}` must have a count and a time above zero")),
    }
}

/// A rate in the form that people write: `100/s`, `10/5m`.
#[must_use]
pub fn format_rate(rate: Rate) -> String {
    let per = format_duration(rate.per);
    let unit = per.strip_prefix('1').filter(|unit| unit.bytes().all(|byte| byte.is_ascii_alphabetic()));
    format!("{}/{}", rate.count, unit.unwrap_or(&per))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_people_write_them() {
        for (text, count, millis) in
            [("100/s", 100, 1000), ("10/1m", 10, 60_000), (" 1 / 250ms ", 1, 250), ("5/h", 5, 3_600_000)]
        {
            let rate = parse_rate(text).unwrap();
            assert_eq!((rate.count.get(), rate.per), (count, Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_rate_is_told_why() {
        let texts = [
            "",
            "100",
            "/s",
            "100/",
            "s/100",
            "-1/s",
            "0/s",
            "1/0s",
            "1/-1s",
            "1.5/s",
            "1/parsec",
            "1/1m1h",
            "99999999999/s",
        ];
        let reasons: Vec<_> = texts.iter().map(|text| parse_rate(text).unwrap_err()).collect();
        insta::assert_debug_snapshot!(reasons);
    }

    #[test]
    fn a_rate_reads_back() {
        for text in ["100/s", "10/5m", "1/250ms", "1/10s", "3/1m30s"] {
            assert_eq!(format_rate(parse_rate(text).unwrap()), text);
        }
    }
}
