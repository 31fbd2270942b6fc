//! `Files`: the texts that diagnostics refer to, and how a text is read from disk.
//!
//! It depends on bytes, lines and columns, and not on TOML. The content of a secret file is never added: only
//! configurations and scripts are.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::iter;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Longest text of a configuration, script or `${file:…}`, in bytes. It exceeds any text that people write,
/// and keeps a path to a device or a data file from filling the memory.
const TEXT_BYTES_MAX: u64 = 16 << 20;

/// The texts of a configuration by path. Cheap to clone: the texts are shared.
#[derive(Clone, Debug, Default)]
pub struct Files {
    texts: BTreeMap<PathBuf, (Arc<str>, Arc<Lines>)>,
    /// All files that were looked for, whether they were there or not.
    sought: BTreeSet<PathBuf>,
}

/// The starts of the lines of one text, so that a position is found without scanning the text.
#[derive(Debug)]
pub(crate) struct Lines {
    starts: Vec<usize>,
}

/// A position for people: both from 1, the column in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

/// Why a text could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TextReadError {
    #[error("cannot be read: {0}")]
    Io(io::Error),
    #[error("does not exist")]
    Missing,
    #[error("is a folder")]
    Folder,
    #[error("is not a regular file")]
    NotAFile,
    #[error("is larger than {} MiB", TEXT_BYTES_MAX >> 20)]
    TooLong,
    #[error("is not UTF-8 text: byte {byte}, on line {line}, is not a part of a character")]
    NotUtf8 { byte: usize, line: usize },
}

impl Files {
    /// Records that a file was looked for.
    pub(crate) fn seek(&mut self, path: impl Into<PathBuf>) {
        self.sought.insert(path.into());
    }

    /// All files that were looked for, in order of path. The missing ones are among them.
    pub fn sought(&self) -> impl Iterator<Item = &Path> {
        self.sought.iter().map(PathBuf::as_path)
    }

    /// Stores `text` under `path`, and replaces an earlier one.
    pub fn add(&mut self, path: impl Into<PathBuf>, text: impl Into<Arc<str>>) -> Arc<str> {
        let text = text.into();
        let lines = Arc::new(Lines::of(&text));
        self.texts.insert(path.into(), (Arc::clone(&text), lines));
        text
    }

    #[must_use]
    pub fn get(&self, path: &Path) -> Option<&str> {
        self.shared(path).map(|text| &**text)
    }

    pub(crate) fn shared(&self, path: &Path) -> Option<&Arc<str>> {
        self.texts.get(path).map(|(text, _)| text)
    }

    /// All texts, in order of path.
    pub fn texts(&self) -> impl Iterator<Item = (&Path, &Arc<str>)> {
        self.texts.iter().map(|(path, (text, _))| (path.as_path(), text))
    }

    /// Line and column of a byte of the file at `path`; `None` if the file is unknown.
    #[must_use]
    pub fn position(&self, path: &Path, offset: usize) -> Option<Position> {
        self.texts.get(path).map(|(text, lines)| lines.position(text, offset))
    }

    /// The bytes of the character at `position`; if it does not exist, the end of that line or file. For
    /// errors of compilers, which have line and column.
    #[must_use]
    pub fn span_at(&self, path: &Path, position: Position) -> Option<Range<usize>> {
        let text = self.get(path)?;
        let Some(line) = text.split_inclusive('\n').nth(position.line.saturating_sub(1)) else {
            return Some(text.len()..text.len());
        };
        // `line` is a part of `text`, so the difference of their addresses is its position.
        let start = line.as_ptr() as usize - text.as_ptr() as usize;
        let content = line.trim_end_matches(['\n', '\r']);
        let at = content.char_indices().nth(position.column.saturating_sub(1));
        Some(match at {
            Some((offset, char)) => start + offset..start + offset + char.len_utf8(),
            None => start + content.len()..start + content.len(),
        })
    }
}

impl Lines {
    pub(crate) fn of(text: &str) -> Self {
        let breaks = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { starts: iter::once(0).chain(breaks).collect() }
    }

    /// The line of the byte at `offset`, from 1.
    pub(crate) fn line(&self, offset: usize) -> usize {
        self.starts.partition_point(|&start| start <= offset)
    }

    /// Line and column of the byte at `offset` of `text`, or of the end if the text is shorter.
    fn position(&self, text: &str, offset: usize) -> Position {
        // The end of a text is behind its last line, and not on an empty one after that.
        let content = text.strip_suffix('\n').map_or(text, |text| text.strip_suffix('\r').unwrap_or(text));
        let end = content.len();
        let offset = if offset >= text.len() { end } else { floor_char(text, offset) };
        let line = self.line(offset);
        Position { line, column: text[self.starts[line - 1]..offset].chars().count() + 1 }
    }
}

/// `span` limited to the text and to character boundaries, so that slicing by it cannot fail.
pub(crate) fn clamp(text: &str, span: &Range<usize>) -> Range<usize> {
    let start = floor_char(text, span.start);
    let mut end = span.end.clamp(start, text.len());
    while !text.is_char_boundary(end) {
        end += 1;
    }
    start..end
}

/// Reads a text of bounded length. Some editors start a text with a byte order mark, which is not a part of it.
pub fn read_text(path: &Path) -> Result<String, TextReadError> {
    let missing = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => TextReadError::Missing,
        _ => TextReadError::Io(error),
    };
    // A named pipe would wait for its writer, and a device may never end.
    let about = fs::metadata(path).map_err(missing)?;
    if !about.is_file() {
        return Err(if about.is_dir() { TextReadError::Folder } else { TextReadError::NotAFile });
    }
    let file = File::open(path).map_err(missing)?;
    let mut bytes = Vec::new();
    file.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(TextReadError::Io)?;
    if bytes.len() as u64 > TEXT_BYTES_MAX {
        return Err(TextReadError::TooLong);
    }
    let mut text = String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..good].split(|&byte| byte == b'\n').count();
        TextReadError::NotUtf8 { byte: good + 1, line }
    })?;
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    Ok(text)
}

fn floor_char(text: &str, offset: usize) -> usize {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_and_lines_from_one() {
        let text = "ä = 1\r\nöß = 2";
        let lines = Lines::of(text);
        assert_eq!(lines.position(text, 0), Position { line: 1, column: 1 });
        assert_eq!(lines.position(text, text.find('ß').unwrap()), Position { line: 2, column: 2 });
        assert_eq!(lines.position(text, 999), Position { line: 2, column: 7 });
    }

    #[test]
    fn a_position_leads_back_to_its_character() {
        let mut files = Files::default();
        let text = files.add("a.rhai", "let ä = 1;\r\nß\n");
        let at = |line, column| files.span_at(Path::new("a.rhai"), Position { line, column }).unwrap();
        assert_eq!(&text[at(1, 5)], "ä");
        assert_eq!(&text[at(2, 1)], "ß");
        assert_eq!((at(1, 99), at(9, 1), at(0, 0)), (11..11, 16..16, 0..1));
    }
}
