//! `[source.NAME]`

use std::path::PathBuf;

use super::diagnostic::{Diagnostic, Place};
use super::field::Field;
use super::grammar::Kind;
use super::model::{DataFormat, FileSource, SourceKind};
use super::reading::{Placed, Reading, Text, Value};
use super::reference::name;
use super::section::Section;
use crate::words::{Name, parse_size};

const FORMATS: [(&str, DataFormat); 4] = [
    ("ndjson", DataFormat::Ndjson),
    ("lines", DataFormat::Lines),
    ("csv", DataFormat::Csv),
    ("bytes", DataFormat::Bytes),
];

const LINE_BYTES_MAX_DEFAULT: usize = 64 << 20;

/// A source as it was written.
#[derive(Debug)]
pub(super) struct SourceDeclaration {
    pub(super) name: Placed<Name>,
    /// Where it reads from, also when something else about it is wrong.
    pub(super) path: Option<Placed<PathBuf>>,
    /// `None` where something was wrong.
    pub(super) kind: Option<SourceKind>,
}

pub(super) fn read(reading: &mut Reading<'_>, key: &Text, value: &Value<'_>) -> Option<SourceDeclaration> {
    let name = name(reading, "source", key);
    reading.names_missing |= name.is_none();
    // The keys of a type that a later version brings are not for this one to judge.
    if is_of_later_type(reading, value) {
        return Some(SourceDeclaration { name: name?, path: None, kind: None });
    }
    let title = format!("[source.{}]", key.value);
    let section = Section::open(reading, Kind::Source, &title, value)?;
    let kind = section.required(reading, "type", "write `type = \"file\"`");
    let is_file = kind.and_then(|field| field.choice(reading, Kind::Source, &[("file", ())])).is_some();
    let path = section.required(reading, "path", "name the file, folder or glob to read");
    let path = path.and_then(|field| field.path(reading));
    if let Some(path) = &path {
        refuse_broken_pattern(reading, path);
    }
    let file = file_source(reading, &section, path.as_ref());
    let kind = file.filter(|_| is_file).map(SourceKind::File);
    Some(SourceDeclaration { name: name?, path, kind })
}

/// Whether `type` is one that a later version brings; says so.
fn is_of_later_type(reading: &mut Reading<'_>, value: &Value<'_>) -> bool {
    let written = value.get_ref().as_table().and_then(|table| table.get("type"));
    let Some(written) = written.filter(|value| {
        value.get_ref().as_str().is_some_and(|text| super::later::value(Kind::Source, "type", text))
    }) else {
        return false;
    };
    Field::of("type", written).choice::<()>(reading, Kind::Source, &[]);
    true
}

fn file_source(
    reading: &mut Reading<'_>,
    section: &Section<'_>,
    path: Option<&Placed<PathBuf>>,
) -> Option<FileSource> {
    let help = "say how it is read: `ndjson`, `lines`, `csv` or `bytes`";
    let format = section.required(reading, "format", help);
    let format = format.and_then(|field| field.choice(reading, Kind::Source, &FORMATS));
    if let Some(format) = format
        && format != DataFormat::Csv
    {
        refuse_outside_csv(reading, section);
    }
    let follow = section.field("follow").and_then(|field| field.boolean(reading));
    let headers = section.field("headers").and_then(|field| field.boolean(reading));
    let delimiter = section.field("delimiter").and_then(|field| delimiter(reading, field));
    let max_line = section.field("max_line").and_then(|field| {
        field
            .quantity(reading, ("size", "64MiB"), parse_size, Some(&0))
            .and_then(|it| usize::try_from(it).ok())
    });
    Some(FileSource {
        path: path?.value.clone(),
        format: format?,
        follow: follow.unwrap_or(false),
        max_line: max_line.unwrap_or(LINE_BYTES_MAX_DEFAULT),
        headers: headers.unwrap_or(true),
        delimiter: delimiter.unwrap_or(b','),
    })
}

/// A file may have any name; what is no file (yet) and has a wildcard is a pattern.
fn refuse_broken_pattern(reading: &mut Reading<'_>, path: &Placed<PathBuf>) {
    let Some(text) = path.value.to_str().filter(|text| text.contains(['*', '?', '['])) else { return };
    if let Err(error) = glob::Pattern::new(text)
        && !path.value.exists()
    {
        let message = format!("`path` is no pattern of file names: {}", error.msg);
        let help = "`*`, `?`, `**` between slashes and `[abc]` stand for others; `[[]` is a bracket itself";
        reading.report(Diagnostic::error_at(&path.place, message).help(help));
    }
}

/// A key that changes nothing is a misunderstanding, and better cleared up.
fn refuse_outside_csv(reading: &mut Reading<'_>, section: &Section<'_>) {
    for key in ["headers", "delimiter"] {
        if let Some(field) = section.field(key) {
            let place: Place = field.place(reading);
            let message = format!("`{key}` means something with `format = \"csv\"` only");
            reading.report(Diagnostic::error_at(&place, message).help(format!("leave `{key}` out")));
        }
    }
}

fn delimiter(reading: &mut Reading<'_>, field: Field<'_>) -> Option<u8> {
    let text = field.text(reading)?;
    match text.value.as_bytes() {
        [byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r') => Some(*byte),
        _ => {
            let message = format!("{} cannot be a `delimiter`", text.quoted());
            let help = "it is one ASCII character, like `\",\"`, `\";\"` or `\"\\t\"`";
            reading.report(Diagnostic::error_at(&text.place, message).help(help));
            None
        }
    }
}
