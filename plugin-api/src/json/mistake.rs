//! `ReadError`: the error in a text that is not JSON, in plain words.

use std::fmt;

use crate::words::encoding_help;

/// Why a text is not JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// A sentence fragment.
    pub message: String,
    /// From 1.
    pub line: usize,
    /// In bytes, from 1.
    pub column: usize,
}

/// The error of the reader when the value exceeds the memory of the thread.
pub const FULL: &str = "its values take too much memory";

impl ReadError {
    /// Whether the text may be valid JSON whose value exceeds the memory of the thread.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.message.starts_with(FULL)
    }

    /// `error` is that of `serde_json` for `text`.
    #[must_use]
    pub fn new(error: &serde_json::Error, text: &[u8]) -> Self {
        let (line, column) = (error.line().max(1), error.column().max(1));
        let line_text = text.split(|&byte| byte == b'\n').nth(line - 1).unwrap_or_default();
        let parser_text = error.to_string();
        // `serde_json` ends its messages with a position; here it is a field.
        let parser_text = parser_text.rfind(" at line ").map_or(&*parser_text, |end| &parser_text[..end]);
        let (start, word) = word_around(line_text, column - 1);
        let unknown = |word: &str| {
            format!(
                "`{word}` is not a JSON value: use true, false, null, a number, a text in double quotes, a list or an object"
            )
        };
        if let ("expected ident" | "expected value", Some(help)) = (parser_text, encoding_help(text)) {
            return Self { message: help.to_owned(), line, column };
        }
        let message = match parser_text {
            "EOF while parsing a value" if text.trim_ascii().is_empty() => "the text is empty".to_owned(),
            "expected ident" | "expected value" | "EOF while parsing a value" if !word.is_empty() => {
                return Self { message: unknown(&word), line, column: start + 1 };
            }
            "expected value" => unknown(&String::from_utf8_lossy(first_character(
                line_text.get(column.min(line_text.len()).saturating_sub(1)..).unwrap_or_default(),
            ))),
            _ => plain(parser_text).map_or_else(|| parser_text.to_owned(), str::to_owned),
        };
        Self { message, line, column }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { message, line, column } = self;
        write!(f, "{message}, at {}column {column}", line_words(*line))
    }
}

impl std::error::Error for ReadError {}

/// Plain words for the parser's message.
fn plain(parser_text: &str) -> Option<&'static str> {
    Some(match parser_text {
        "EOF while parsing a value" => "the text ends before a value",
        "EOF while parsing an object" => "the text ends in the middle of an object",
        "EOF while parsing a list" => "the text ends in the middle of a list",
        "EOF while parsing a string" => "the text ends in the middle of a text in quotes",
        "key must be a string" => "a key must be in double quotes",
        "expected `:`" => "a key must be followed by `:`",
        "expected `,` or `]`" => "a value in a list must be followed by `,` or the closing `]`",
        "expected `,` or `}`" => "a value in an object must be followed by `,` or the closing `}`",
        "trailing comma" => "a `,` must be followed by another value",
        "trailing characters" => "the value is followed by more text",
        "invalid number" => "a number does not match the JSON format",
        "invalid escape" => "a `\\` in a text does not start a JSON escape",
        // `\ud83d` alone, or before another text than its second half.
        "unexpected end of hex escape" | "lone leading surrogate in hex escape" => {
            "a `\\u` in a text is not four hexadecimal digits, or is only half of a character that needs two of them"
        }
        "invalid unicode code point" => "a text is not UTF-8",
        parser_text if parser_text.starts_with("control character") => {
            "a text has a control character; write a line break as `\\n` and a tab as `\\t`"
        }
        _ => return None,
    })
}

/// The letters around the byte at `offset`, and the position of the first.
fn word_around(line: &[u8], offset: usize) -> (usize, String) {
    let offset = offset.min(line.len().saturating_sub(1));
    let letters = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
    let before = line[..offset].iter().rev().take_while(letters).count();
    let after = line[offset..].iter().take_while(letters).count();
    let word = if after == 0 && before == 0 { &[][..] } else { &line[offset - before..offset + after] };
    // Enough for an author to find it.
    (offset - before, String::from_utf8_lossy(&word[..word.len().min(24)]).into_owned())
}

fn first_character(bytes: &[u8]) -> &[u8] {
    let length =
        bytes.utf8_chunks().next().and_then(|chunk| chunk.valid().chars().next()).map_or(1, char::len_utf8);
    &bytes[..length.min(bytes.len())]
}

fn line_words(line: usize) -> String {
    if line > 1 { format!("line {line}, ") } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_with_a_mark_or_from_a_packer_has_its_fix() {
        for (text, help) in
            [(&b"\xEF\xBB\xBF{}"[..], "leave that mark out"), (b"\x1F\x8B\x08\0\0", "send it unpacked")]
        {
            let error = serde_json::from_slice::<serde_json::Value>(text).unwrap_err();
            let message = ReadError::new(&error, text).message;
            assert!(message.contains(help), "{message}");
        }
    }

    #[test]
    fn an_error_of_another_text_is_an_error_and_no_panic() {
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap_err();
        for error in [read("[\n\n  ?]"), read("nul"), read("[1,]"), read("{\"a\":}")] {
            for text in ["", "\n", "\n\n\n", "x"] {
                assert!(!ReadError::new(&error, text.as_bytes()).message.is_empty());
            }
        }
    }
}
