//! `Codec`: finds the end of a record in the bytes of a file, and turns it into a payload.

use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use memchr::memchr;
use serde::Serialize;
use tidegate_plugin::Payloads;
use tidegate_plugin::words::utf16_help;

use super::csv::{RecordEnd, Table, record_end};
use tidegate_config::{DataFormat, FileSource};
use tidegate_model::Form;

/// Maximum bytes of unreadable content in an error record.
const FAULT_BYTES: usize = 1024;

/// Reads one file in its format.
#[derive(Debug)]
pub(crate) enum Codec {
    Ndjson,
    Lines,
    Csv { table: Box<Table>, headers: bool },
    Bytes { path: PathBuf },
}

impl Codec {
    pub(crate) fn new(spec: &FileSource, path: &Path) -> Self {
        match spec.format {
            DataFormat::Ndjson => Self::Ndjson,
            DataFormat::Lines => Self::Lines,
            DataFormat::Csv => Self::csv(spec.delimiter, spec.headers),
            DataFormat::Bytes => Self::Bytes { path: path.to_owned() },
        }
    }

    pub(crate) fn csv(delimiter: u8, headers: bool) -> Self {
        Self::Csv { table: Box::new(Table::new(delimiter)), headers }
    }

    /// The form of the payloads that [`Self::encode`] makes.
    pub(crate) fn form(&self) -> Form {
        match self {
            Self::Ndjson => Form::Unchecked,
            Self::Lines | Self::Csv { .. } | Self::Bytes { .. } => Form::Json,
        }
    }

    /// The position of the newline at the end of the first record of `bytes`.
    pub(crate) fn record_end(&self, bytes: &[u8]) -> Option<usize> {
        match self {
            Self::Ndjson | Self::Lines => memchr(b'\n', bytes),
            Self::Csv { table, .. } => match record_end(bytes, table.delimiter()) {
                RecordEnd::At(at) => Some(at),
                RecordEnd::Beyond { .. } => None,
            },
            Self::Bytes { .. } => None,
        }
    }

    /// Number of newlines within a record, without the last one.
    pub(crate) fn inner_lines(&self, record: &[u8]) -> u64 {
        match self {
            Self::Csv { .. } => count_newlines(record),
            Self::Ndjson | Self::Lines | Self::Bytes { .. } => 0,
        }
    }

    /// A record that is no job.
    pub(crate) fn is_blank(&self, record: &[u8]) -> bool {
        match self {
            Self::Ndjson | Self::Lines => trim(record).is_empty(),
            // A line of blanks can be a record if a blank is the delimiter.
            Self::Csv { .. } => without_cr(record).is_empty(),
            Self::Bytes { .. } => false,
        }
    }

    /// The next record is the header of the file.
    pub(crate) fn wants_header(&self) -> bool {
        matches!(self, Self::Csv { table, headers: true } if !table.has_header())
    }

    /// # Errors
    /// A sentence fragment that continues "the header …".
    pub(crate) fn set_header(&mut self, record: &[u8]) -> Result<(), String> {
        match self {
            Self::Csv { table, .. } => table.set_header(without_cr(record)),
            Self::Ndjson | Self::Lines | Self::Bytes { .. } => Ok(()),
        }
    }

    /// Appends the payload of `record` (without the newline that ends it).
    ///
    /// # Errors
    /// A sentence fragment: why the record is invalid.
    pub(crate) fn encode(&mut self, record: &[u8], payloads: &mut Payloads) -> Result<(), String> {
        match self {
            Self::Ndjson => {
                payloads.push(trim(record));
                Ok(())
            }
            Self::Lines => {
                let text = std::str::from_utf8(without_cr(record)).map_err(|_| match utf16_help(record) {
                    Some(help) => format!("the line is not UTF-8; {help}"),
                    None => "the line is not UTF-8".to_owned(),
                })?;
                push_json(payloads, &text)
            }
            Self::Csv { table, .. } => {
                let record = without_cr(record);
                if record_end(record, table.delimiter()) == (RecordEnd::Beyond { quoted: true }) {
                    return Err("the file ends inside the quotes of the record".into());
                }
                table.encode(record, payloads)
            }
            Self::Bytes { path } => push_json(payloads, &Document::new(path, record)),
        }
    }

    /// The error of a record of more than `max` bytes.
    pub(crate) fn too_long(&self, max: usize) -> String {
        match self {
            Self::Ndjson | Self::Lines => format!("the line exceeds `max_line` ({max} bytes)"),
            Self::Csv { .. } => {
                format!("the record exceeds `max_line` ({max} bytes); perhaps a quote is not closed")
            }
            Self::Bytes { .. } => format!("the file exceeds `max_line` ({max} bytes)"),
        }
    }
}

/// The payload of a file that is one job.
#[derive(Serialize)]
struct Document<'a> {
    path: std::borrow::Cow<'a, str>,
    size: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

impl<'a> Document<'a> {
    fn new(path: &'a Path, content: &'a [u8]) -> Self {
        let text = std::str::from_utf8(content).ok();
        let base64 = text.is_none().then(|| BASE64_STANDARD.encode(content));
        Self { path: path.to_string_lossy(), size: content.len(), text, base64 }
    }
}

fn push_json(payloads: &mut Payloads, value: &impl Serialize) -> Result<(), String> {
    payloads.push_with(|json| serde_json::to_writer(json, value)).map_err(|error| error.to_string())
}

fn count_newlines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// The beginning of unreadable content, cut between characters.
pub(crate) fn head(record: &[u8]) -> &[u8] {
    let Some(mut end) = (record.len() > FAULT_BYTES).then_some(FAULT_BYTES) else { return record };
    // A character has at most three bytes after its first.
    while end > FAULT_BYTES - 3 && record[end] & 0b1100_0000 == 0b1000_0000 {
        end -= 1;
    }
    &record[..end]
}

/// Cuts off JSON white space.
fn trim(mut line: &[u8]) -> &[u8] {
    while let [b' ' | b'\t' | b'\r', rest @ ..] = line {
        line = rest;
    }
    while let [rest @ .., b' ' | b'\t' | b'\r'] = line {
        line = rest;
    }
    line
}

fn without_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_ends_between_characters() {
        let text = format!("{}äöü", "x".repeat(1023));
        assert_eq!(head(text.as_bytes()).len(), 1023);
        assert_eq!(head(&[0x80; 2000]).len(), 1021);
        assert_eq!(head(b"short"), b"short");
    }

    #[test]
    fn only_blanks_are_trimmed() {
        assert_eq!(trim(b" \t{\"a\": 1} \r"), b"{\"a\": 1}");
        assert_eq!(trim(b"\0 x\0"), b"\0 x\0");
        assert_eq!(trim(b" \r"), b"");
    }
}
