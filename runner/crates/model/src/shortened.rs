//! Long texts: are cut between two characters, with a note of the omitted bytes.

use std::fmt::Write as _;

use super::grouped;

/// Maximum bytes of the note.
const NOTE_BYTES_MAX: usize = 64;

/// Shortens a text to `bytes_max` bytes, which must be more than 64, and appends the number of omitted bytes. A short
/// text is unchanged.
#[must_use]
pub fn shortened(mut text: String, bytes_max: usize) -> String {
    debug_assert!(bytes_max > NOTE_BYTES_MAX, "there is room for the note");
    if text.len() <= bytes_max {
        return text;
    }
    let end = text.floor_char_boundary(bytes_max - NOTE_BYTES_MAX);
    let left_out = text.len() - end;
    text.truncate(end);
    text.shrink_to_fit();
    leave_out(&mut text, left_out);
    text
}

/// Appends the note that `bytes` more bytes were left out.
pub fn leave_out(text: &mut String, bytes: usize) {
    // Writing to a String cannot fail.
    let _ = write!(text, "… {} more bytes left out", grouped(bytes as u64));
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES_MAX: usize = 8 << 10;

    #[test]
    fn a_short_text_stays_as_it_is() {
        for text in [String::new(), "x".repeat(BYTES_MAX)] {
            assert_eq!(shortened(text.clone(), BYTES_MAX), text);
        }
    }

    #[test]
    fn a_long_text_is_cut_between_two_characters_and_says_how_much_is_missing() {
        for (text, left_out) in [("x".repeat(10_000), "1,872"), (format!("x{}", "é".repeat(5_000)), "1,874")]
        {
            let short = shortened(text.clone(), BYTES_MAX);
            assert!(short.len() <= BYTES_MAX, "{}", short.len());
            let (kept, note) = short.split_once('…').unwrap();
            assert!(text.starts_with(kept));
            assert_eq!(note, format!(" {left_out} more bytes left out"));
            // A second call cuts nothing more.
            assert_eq!(shortened(short.clone(), BYTES_MAX), short);
        }
        assert!(shortened("x".repeat(20 << 20), BYTES_MAX).len() <= BYTES_MAX);
    }
}
