//! Plain texts: escapes characters that control a terminal or end a line, in text of external systems.
//!
//! They are the control characters (C0, DEL, C1), and the separators of lines and paragraphs. The marks that
//! change the direction of text are escaped too.

use std::borrow::Cow;
use std::fmt;

/// Whether a terminal prints the character without a side effect.
#[must_use]
pub fn is_plain(character: char) -> bool {
    let steers = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}'
    );
    !steers && !character.is_control()
}

/// The text on one line: line ends are escaped, too.
#[must_use]
pub fn on_one_line(text: &str) -> String {
    let mut line = Plain(String::with_capacity(text.len()));
    // Writing to a String cannot fail.
    let _ = fmt::Write::write_str(&mut line, text);
    line.0
}

/// The first `characters` of a text for a message, with `…` in place of the rest.
#[must_use]
pub fn beginning(text: &str, characters: usize) -> Cow<'_, str> {
    match text.char_indices().nth(characters) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// The text with its line ends unchanged.
#[must_use]
pub fn lines(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            plain.push('\n');
        }
        plain.push_str(&on_one_line(line));
    }
    plain
}

/// A JSON text, which stays valid, since its control characters are within its strings.
#[must_use]
pub fn json(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        if is_plain(character) || character == '\n' {
            plain.push(character);
        } else {
            let mut units = [0; 2];
            plain.extend(character.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    plain
}

/// A writer that passes its input on as one line.
#[derive(Debug)]
pub struct Plain<W>(pub W);

impl<W: fmt::Write> fmt::Write for Plain<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(|character| !is_plain(character)) {
            let (before, from) = rest.split_at(at);
            self.0.write_str(before)?;
            let mut characters = from.chars();
            for escaped in characters.next().into_iter().flat_map(char::escape_default) {
                self.0.write_char(escaped)?;
            }
            rest = characters.as_str();
        }
        self.0.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_ends_a_line_steers_a_terminal_or_turns_a_text_around() {
        let text = "a\u{1b}[2J\r\n\0\u{7f}\u{9b}31m \u{202e}cod\u{2066}\u{2028}ä漢\t";
        let line = "a\\u{1b}[2J\\r\\n\\u{0}\\u{7f}\\u{9b}31m \\u{202e}cod\\u{2066}\\u{2028}ä漢\\t";
        assert_eq!(on_one_line(text), line);
        assert_eq!(lines(text), line.replace("\\n", "\n"));
    }

    #[test]
    fn a_beginning_is_cut_between_characters() {
        assert_eq!(beginning("äöü", 3), "äöü");
        assert_eq!(beginning("äöü!", 3), "äöü…");
        assert_eq!(beginning("", 0), "");
    }

    #[test]
    fn a_json_text_means_the_same_as_before() {
        let value = serde_json::json!({ "a\u{9b}": "b\u{202e}\u{7f}\u{1b}\n漢" });
        let text = json(&value.to_string());
        assert!(text.chars().all(is_plain), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
