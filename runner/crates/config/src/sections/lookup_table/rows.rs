//! Rows: parses the file of a lookup table.

use std::io::Read as _;
use std::ops::Range;
use std::path::Path;

use crate::diagnostic::{Diagnostic, SourceSpan};
use crate::model::DataFormat;
use crate::model::lookup_table::Rows;
use crate::parse::context::ParseContext;
use tidegate_model::{FieldPath, scalar};

/// The errors and warnings of one file: the first of each kind, and how many there are.
pub(super) struct Faults<'a> {
    path: &'a Path,
    text: &'a str,
    /// The `path` that names the file.
    named: &'a SourceSpan,
    error: Option<Fault>,
    errors: usize,
    repeated: Option<Fault>,
    repetitions: usize,
}

struct Fault {
    span: Range<usize>,
    message: String,
}

impl<'a> Faults<'a> {
    pub(super) fn new(path: &'a Path, text: &'a str, named: &'a SourceSpan) -> Self {
        Self { path, text, named, error: None, errors: 0, repeated: None, repetitions: 0 }
    }

    /// An error of the row at this byte.
    fn refuse(&mut self, at: usize, message: impl Into<String>) {
        self.errors += 1;
        let span = self.line_at(at);
        self.error.get_or_insert_with(|| Fault { span, message: message.into() });
    }

    fn repeats(&mut self, at: usize, key: &str) {
        self.repetitions += 1;
        let span = self.line_at(at);
        let message = format!("the key `{key}` is that of a row above, which this one replaces");
        self.repeated.get_or_insert(Fault { span, message });
    }

    fn line_at(&self, at: usize) -> Range<usize> {
        let rest = self.text.get(at..).unwrap_or_default();
        // The place of a record begins with what is left of the end of the line above.
        let line = rest.trim_start_matches(['\n', '\r']);
        let (at, rest) = (at + rest.len() - line.len(), line);
        at..at + rest.find(['\n', '\r']).unwrap_or(rest.len())
    }

    /// Reports them; `true` if there are none.
    pub(super) fn report(self, reading: &mut ParseContext<'_>) -> bool {
        let more = |count: usize| match count {
            0 | 1 => None,
            2 => Some("the file has the same or another mistake in one more row".to_owned()),
            _ => Some(format!("the file has the same or other mistakes in {} more rows", count - 1)),
        };
        let whole = self.error.is_none() && self.repeated.is_none();
        if let Some(Fault { span, message }) = self.error {
            let diagnostic =
                Diagnostic::error(self.path, span, message).related(self.named.clone(), "named here");
            reading.report(more(self.errors).into_iter().fold(diagnostic, Diagnostic::note));
        }
        if let Some(Fault { span, message }) = self.repeated {
            let diagnostic =
                Diagnostic::warning(self.path, span, message).related(self.named.clone(), "named here");
            let note =
                (self.repetitions > 1).then(|| format!("{} rows replace an earlier one", self.repetitions));
            reading.report(note.into_iter().fold(diagnostic, Diagnostic::note));
        }
        whole
    }
}

/// All rows without errors.
pub(super) fn read(
    text: &str,
    key: &FieldPath,
    (format, delimiter): (DataFormat, u8),
    faults: &mut Faults<'_>,
) -> Rows {
    let mut rows = Rows::default();
    match format {
        DataFormat::Csv => csv(text, key, delimiter, faults, &mut rows),
        _ => ndjson(text, key, faults, &mut rows),
    }
    rows
}

fn ndjson(text: &str, key: &FieldPath, faults: &mut Faults<'_>, rows: &mut Rows) {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let row = line.trim();
        if !row.is_empty() {
            add(row, at, key, faults, rows);
        }
        at += line.len();
    }
}

/// Adds the row at this byte.
fn add(row: &str, at: usize, key: &FieldPath, faults: &mut Faults<'_>, rows: &mut Rows) {
    if !row.starts_with('{') {
        return faults.refuse(at, "the row is not a JSON object");
    }
    match key.read(row.as_bytes()) {
        Err(error) => faults.refuse(at, format!("the row is not JSON: {}", of_one_line(&error))),
        Ok(None) => faults.refuse(at, format!("the row has no field `{key}`, by which it would be found")),
        Ok(Some(written)) => match scalar(written) {
            None => faults.refuse(
                at,
                format!("the field `{key}` of the row must be a text, a number or a truth value"),
            ),
            Some(value) => {
                if rows.add(&value, row) {
                    faults.repeats(at, &value);
                }
            }
        },
    }
}

/// The text of the error without its line, which is always the first.
fn of_one_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(message) if error.column() > 0 => format!("{message} at column {}", error.column()),
        _ => text,
    }
}

/// A record behind the file. If it is not on its own, a quote of the file is open.
const END_RECORD: &str = "\u{1e}\u{1e}";
const END: &[u8] = b"\n\x1e\x1e";

fn csv(text: &str, key: &FieldPath, delimiter: u8, faults: &mut Faults<'_>, rows: &mut Rows) {
    let mut reader =
        csv::ReaderBuilder::new().delimiter(delimiter).flexible(true).from_reader(text.as_bytes().chain(END));
    let header = match reader.headers() {
        Ok(header) => header.clone(),
        Err(error) => return faults.refuse(0, format!("the header is not CSV: {error}")),
    };
    let names: Vec<String> =
        header.iter().map(|name| format!("{}:", serde_json::Value::from(name))).collect();
    if let Some(twice) = (1..names.len()).find(|&at| names[..at].contains(&names[at])) {
        return faults.refuse(0, format!("the header names the field `{}` twice", &header[twice]));
    }
    if text.trim().is_empty() {
        return faults.refuse(0, "the file is empty: its first line must name the fields of the rows");
    }
    if !header.iter().any(|name| *name == *key.names()[0]) {
        return faults.refuse(0, format!("the header has no field `{key}`, by which rows would be found"));
    }
    let mut record = csv::StringRecord::new();
    let mut json = String::new();
    loop {
        match reader.read_record(&mut record) {
            Ok(true) => {}
            Ok(false) => return,
            // The text is UTF-8 and in memory, and records may have any length.
            Err(error) => return faults.refuse(0, format!("the file is not CSV: {error}")),
        }
        let at = record.position().map_or(0, |position| usize::try_from(position.byte()).unwrap_or(0));
        if record.iter().eq([END_RECORD]) && at + END.len() > text.len() {
            return;
        }
        if record.iter().any(|field| field.ends_with(END_RECORD)) {
            return faults.refuse(
                at,
                "a quote (`\"`) of the row is never closed, so the rest of the file would belong to it",
            );
        }
        if record.len() != names.len() {
            let fields = if record.len() == 1 { "field" } else { "fields" };
            let message =
                format!("the row has {} {fields}, but the header names {}", record.len(), names.len());
            faults.refuse(at, message);
            continue;
        }
        json.clear();
        for (name, value) in names.iter().zip(&record) {
            json.push(if json.is_empty() { '{' } else { ',' });
            json.push_str(name);
            json.push_str(&serde_json::Value::from(value).to_string());
        }
        json.push('}');
        add(&json, at, key, faults, rows);
    }
}
