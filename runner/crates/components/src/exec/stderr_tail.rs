//! `StderrTail`: keeps the end of the standard error of a command, for messages about its failure.

use crate::redact::Redactor;

/// Bytes that are kept: at least this, at most twice as many.
const KEPT: usize = 8 << 10;

#[derive(Debug, Default)]
pub(crate) struct StderrTail {
    bytes: Vec<u8>,
    /// Earlier bytes were dropped.
    is_cut: bool,
}

impl StderrTail {
    /// The bytes, for a read that appends to them. [`Self::shorten`] is called after reads.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Drops all but the end.
    pub(crate) fn shorten(&mut self) {
        if self.bytes.len() > 2 * KEPT {
            self.bytes.drain(..self.bytes.len() - KEPT);
            self.is_cut = true;
        }
    }

    /// The last characters without secrets, at most `characters_max` of them behind `…`.
    pub(crate) fn text(&self, scrub: &Redactor, characters_max: usize) -> String {
        let text = scrub.clean(&String::from_utf8_lossy(&self.bytes));
        let text = text.trim();
        let characters = text.chars().count();
        let start =
            text.char_indices().nth(characters.saturating_sub(characters_max)).map_or(0, |(at, _)| at);
        if start == 0 && !self.is_cut { text.to_owned() } else { format!("…{}", &text[start..]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(text: &str) -> StderrTail {
        let mut tail = StderrTail::default();
        for piece in text.as_bytes().chunks(1000) {
            tail.buffer().extend_from_slice(piece);
            tail.shorten();
        }
        tail
    }

    #[test]
    fn a_short_text_is_shown_whole_and_a_long_one_by_its_end() {
        let none = Redactor::new(&[]);
        assert_eq!(tail(" no such file\n").text(&none, 100), "no such file");
        assert_eq!(tail("äöü").text(&none, 2), "…öü");
        let long = tail(&"x".repeat(100_000));
        assert!(long.bytes.len() <= 2 * KEPT, "{}", long.bytes.len());
        assert_eq!(long.text(&none, 3), "…xxx");
        assert!(long.text(&none, 100_000).starts_with("…xxx"), "it is cut");
    }
}
