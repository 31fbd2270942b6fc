//! Durations and sizes: are parsed from, and printed in, the units that people write.

use std::time::Duration;

pub use tidegate_plugin::words::{format_duration, format_size};

const DURATION_UNITS: [(&str, u64); 6] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 604_800_000)];

const SIZE_UNITS: [(&str, u64); 7] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
];

/// Parses `250ms`, `15s`, `1h30m`, `7d`: numbers with units, largest first.
///
/// # Errors
/// A sentence fragment with the problem and its fix.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    if text.trim_start().starts_with('-') {
        return Err(format!("`{text}` is negative, but a duration must not be"));
    }
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err("an empty text is not a duration; write one like `15s`".into());
    }
    let mut total: u64 = 0;
    let mut last_unit = u64::MAX;
    while !rest.is_empty() {
        let (number, unit, after) = split_quantity(rest);
        if number.is_empty() {
            return Err(format!(
                "`{text}` is not a duration; write one like `250ms`, `15s`, `1h30m` or `7d`"
            ));
        }
        if unit.is_empty() {
            return Err(format!("`{text}` lacks a unit; write `{number}s` or `{number}ms`"));
        }
        let known = |unit: &str| DURATION_UNITS.iter().find(|(name, _)| *name == unit);
        if unit.starts_with('.') || (known(unit).is_none() && known(unit.trim()).is_some()) {
            return Err(format!("`{text}` must have whole numbers without blanks, like `1s500ms`"));
        }
        let Some(&(_, factor)) = known(unit) else {
            let unit = unit.trim();
            return Err(format!("`{unit}` is not a unit of time; use `ms`, `s`, `m`, `h`, `d` or `w`"));
        };
        if factor >= last_unit {
            return Err(format!("the units of `{text}` must go from large to small"));
        }
        last_unit = factor;
        total = number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(factor))
            .and_then(|part| total.checked_add(part))
            // A duration must fit a signed number of milliseconds, so that it can be added to a time.
            .filter(|&millis| i64::try_from(millis).is_ok())
            .ok_or_else(|| format!("`{text}` exceeds the longest possible duration"))?;
        rest = after;
    }
    Ok(Duration::from_millis(total))
}

/// Parses `64KiB`, `16MiB`, `1GB`, `512B` into bytes.
///
/// # Errors
/// A sentence fragment with the problem and its fix.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit, after) = split_quantity(text.trim());
    if number.is_empty() || !after.is_empty() {
        return Err(format!("`{text}` is not a size; write one like `64KiB` or `16MiB`"));
    }
    if unit.is_empty() {
        return Err(format!("`{text}` lacks a unit; write `{number}B`, `{number}KiB` or `{number}MiB`"));
    }
    let Some(&(_, factor)) = SIZE_UNITS.iter().find(|(name, _)| *name == unit) else {
        let unit = unit.trim();
        if SIZE_UNITS.iter().any(|(name, _)| *name == unit) {
            return Err(format!("`{text}` must have no blanks: `{number}{unit}`"));
        }
        return Err(format!(
            "`{unit}` is not a unit of size; use `B`, `KiB`, `MiB`, `GiB`, `KB`, `MB` or `GB`"
        ));
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(factor))
        .ok_or_else(|| format!("`{text}` exceeds the largest possible size"))
}

/// 1234567 as `1,234,567`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Cuts `12ms7` into `12`, `ms` and `7`.
fn split_quantity(text: &str) -> (&str, &str, &str) {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(digits);
    let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, after) = rest.split_at(letters);
    (number, unit, after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        let cases = [("250ms", 250), ("15s", 15_000), ("1h30m", 5_400_000), ("7d", 604_800_000), ("0s", 0)];
        for (text, millis) in cases {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_told_why() {
        let texts =
            ["", "15", "s", "-5s", "5 parsecs", "1m1h", "1.5s", "99999999999999999999s", "9999999999999w"];
        let reasons: Vec<_> = texts.iter().map(|text| parse_duration(text).unwrap_err()).collect();
        insta::assert_debug_snapshot!(reasons);
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(parse_size("64KiB"), Ok(65_536));
        assert_eq!(parse_size("1MB"), Ok(1_000_000));
        let reasons: Vec<_> = ["", "16", "16mb", "16 megs", "16 MiB", "x", "1KiB2", "99999999999GiB"]
            .iter()
            .map(|text| parse_size(text).unwrap_err())
            .collect();
        insta::assert_debug_snapshot!(reasons);
    }

    #[test]
    fn a_duration_reads_back() {
        for text in ["250ms", "15s", "1h30m", "7d", "1d2h3m4s5ms"] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
        assert_eq!(format_size(1536), "1.5 KiB");
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let texts: Vec<String> = [0, 999, 1000, 1_234_567].map(grouped).into();
        assert_eq!(texts, ["0", "999", "1,000", "1,234,567"]);
    }
}
