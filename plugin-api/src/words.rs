//! Words: format quantities and lists, for the runner and for tests.

use std::fmt::Write as _;
use std::time::Duration;

/// A duration for people: `250ms`, `15s`, `1h30m`.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let mut millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if millis == 0 {
        return "0ms".into();
    }
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
    let mut text = String::new();
    for (unit, factor) in units {
        let count = millis / factor;
        if count > 0 {
            let _ = write!(text, "{count}{unit}"); // writing to a String cannot fail
            millis %= factor;
        }
    }
    text
}

/// A size for people, to one decimal: `17 B`, `1.5 MiB`.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    let units = [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.iter().find(|(_, factor)| bytes >= *factor) {
        #[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
        Some((unit, factor)) => format!("{:.1} {unit}", bytes as f64 / *factor as f64),
        None => format!("{bytes} B"),
    }
}

/// The fix for a text that begins with a mark of its encoding, or is packed or UTF-16; `None` for other bytes.
pub(crate) fn encoding_help(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0xEF, 0xBB, 0xBF, ..] => Some("it begins with a byte order mark (BOM): leave that mark out"),
        [0x1F, 0x8B, ..] => Some("it is packed with gzip: send it unpacked"),
        _ => utf16_help(bytes),
    }
}

/// The fix for bytes that appear to be UTF-16, which is not supported; `None` for other bytes.
#[must_use]
pub fn utf16_help(bytes: &[u8]) -> Option<&'static str> {
    let head = &bytes[..bytes.len().min(64)];
    // In most such texts every second byte is 0.
    let zeros = |from: usize| head.iter().skip(from).step_by(2).filter(|&&byte| byte == 0).count();
    let many = head.len().div_ceil(8) * 3;
    let looks = matches!(head, [0xFE, 0xFF, ..] | [0xFF, 0xFE, ..])
        || (zeros(0) >= many) != (zeros(1) >= many)
        || head == [0];
    looks.then_some("it looks like UTF-16: convert it to UTF-8, as with `iconv -f UTF-16 -t UTF-8`")
}

/// `a`, `b` and `c`, each in backticks.
pub fn listed<'a>(words: impl IntoIterator<Item = &'a str>, joint: &str) -> String {
    let words: Vec<_> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match words.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} {joint} {last}", others.join(", ")),
    }
}
