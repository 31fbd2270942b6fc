//! `SourceDeclaration`: parses `[source.NAME]`.

use std::path::PathBuf;

use super::command_source;
use super::http_source;
use super::lines::{LINE_BYTES_MAX_DEFAULT, delimiter, max_line, refuse_outside_csv};
use super::pull_source;
use super::queue;
use super::schedule_source;
use crate::check::on_disk;
use crate::diagnostic::Diagnostic;
use crate::model::push_source::PushSource;
use crate::model::{DataFormat, FileSource, Meta, SourceKind};
use crate::parse::context::{ParseContext, Placed, Text, Value};
use crate::parse::field::Field;
use crate::parse::keys::TableKind;
use crate::parse::named_table::Chosen;
use crate::parse::reference::name;
use crate::parse::table::TableReader;
use crate::parse::text_reader::TextReader;
use tidegate_model::{Name, RetryPolicy};

const TYPES: [(&str, TableKind); 5] = [
    ("file", TableKind::FileSource),
    ("http", TableKind::HttpSource),
    ("schedule", TableKind::ScheduleSource),
    ("exec", TableKind::CommandSource),
    ("http-pull", TableKind::PullSource),
];
const FORMATS: [(&str, DataFormat); 4] = [
    ("ndjson", DataFormat::Ndjson),
    ("lines", DataFormat::Lines),
    ("csv", DataFormat::Csv),
    ("bytes", DataFormat::Bytes),
];

/// A source as written.
#[derive(Debug)]
pub(crate) struct SourceDeclaration {
    pub(crate) name: Placed<Name>,
    /// Its former name.
    pub(crate) was: Option<Placed<Name>>,
    /// The path that it reads, also after other errors.
    pub(crate) path: Option<Placed<PathBuf>>,
    pub(crate) supply: Supply,
    /// The policy by which its command starts again, or its service is asked again.
    pub(crate) retry: Option<Chosen<RetryPolicy>>,
}

/// How the jobs of a source arrive; `None` after an error.
#[derive(Clone, Debug)]
pub(crate) enum Supply {
    Pull(Option<(SourceKind, Meta)>),
    /// Appended to the queue of its name.
    Push(Option<PushSource>),
}

pub(crate) fn read(
    reading: &mut ParseContext<'_>,
    files: &mut TextReader,
    key: &Text,
    value: &Value<'_>,
) -> Option<SourceDeclaration> {
    let name = name(reading, "source", key);
    reading.names_missing |= name.is_none();
    let title = format!("[source.{}]", key.value);
    let mut retry = None;
    // Its keys depend on its type, so those of an unknown type are not checked.
    let (path, supply) = match kind(reading, &title, value) {
        Some(TableKind::HttpSource) => {
            (None, Supply::Push(http_source::read(reading, files, &title, value).map(PushSource::Http)))
        }
        Some(TableKind::ScheduleSource) => {
            (None, Supply::Push(schedule_source::read(reading, &title, value).map(PushSource::Schedule)))
        }
        Some(TableKind::CommandSource) => {
            let (source, policy) = command_source::read(reading, &title, value);
            retry = policy;
            (None, Supply::Push(source.map(|source| PushSource::Exec(Box::new(source)))))
        }
        Some(TableKind::PullSource) => {
            let (source, policy) = pull_source::read(reading, &title, value);
            retry = policy;
            let kind = |(source, meta)| (SourceKind::Service(Box::new(source)), meta);
            (None, Supply::Pull(source.map(kind)))
        }
        Some(_) => file(reading, &title, value),
        None => (None, Supply::Pull(None)),
    };
    let was = former_name(reading, value);
    Some(SourceDeclaration { name: name?, was, path, supply, retry })
}

/// `was`, for a source of any type.
fn former_name(reading: &mut ParseContext<'_>, value: &Value<'_>) -> Option<Placed<Name>> {
    let written = value.get_ref().as_table()?.get("was")?;
    let text = Field::of("was", written).filled_text(reading)?;
    name(reading, "source", &text)
}

/// The type of the source, which determines its other keys.
fn kind(reading: &mut ParseContext<'_>, title: &str, value: &Value<'_>) -> Option<TableKind> {
    let Some(table) = value.get_ref().as_table() else {
        reading.wrong_type(title.trim_matches(['[', ']']), value, "a table");
        return None;
    };
    let Some(written) = table.get("type") else {
        let place = reading.place(value.span());
        let diagnostic = Diagnostic::error_at(&place, format!("`{title}` lacks `type`"));
        reading.report(
            diagnostic
                .help("write `type = \"file\"`, `\"http\"`, `\"schedule\"`, `\"exec\"` or `\"http-pull\"`"),
        );
        return None;
    };
    Field::of("type", written).choice(reading, &TYPES)
}

fn file(reading: &mut ParseContext<'_>, title: &str, value: &Value<'_>) -> (Option<Placed<PathBuf>>, Supply) {
    let Some(section) = TableReader::open(reading, TableKind::FileSource, title, value) else {
        return (None, Supply::Pull(None));
    };
    let path = section.required(reading, "path", "name the file, folder or glob to read");
    let path = path.and_then(|field| field.path(reading));
    if let Some(path) = &path {
        refuse_broken_pattern(reading, path);
        on_disk::doubt_variable(reading, path);
    }
    let file = file_source(reading, &section, path.as_ref());
    let meta = section.field("meta").map(|field| queue::meta_of_file(reading, field)).unwrap_or_default();
    (path, Supply::Pull(file.map(|file| (SourceKind::File(file), meta))))
}

fn file_source(
    reading: &mut ParseContext<'_>,
    section: &TableReader<'_>,
    path: Option<&Placed<PathBuf>>,
) -> Option<FileSource> {
    let help = "name the format: `ndjson`, `lines`, `csv` or `bytes`";
    let format = section.required(reading, "format", help);
    let format = format.and_then(|field| field.choice(reading, &FORMATS));
    if let Some(format) = format
        && format != DataFormat::Csv
    {
        refuse_outside_csv(reading, section);
    }
    let follow = section.field("follow").and_then(|field| field.boolean(reading));
    let headers = section.field("headers").and_then(|field| field.boolean(reading));
    let delimiter = section.field("delimiter").and_then(|field| delimiter(reading, field));
    let max_line = section.field("max_line").and_then(|field| max_line(reading, field));
    Some(FileSource {
        path: path?.value.clone(),
        format: format?,
        follow: follow.unwrap_or(false),
        max_line: max_line.unwrap_or(LINE_BYTES_MAX_DEFAULT),
        headers: headers.unwrap_or(true),
        delimiter: delimiter.unwrap_or(b','),
    })
}

/// A file may have any name; a path without a file (yet) and with a wildcard is a pattern.
fn refuse_broken_pattern(reading: &mut ParseContext<'_>, path: &Placed<PathBuf>) {
    let Some(text) = path.value.to_str().filter(|text| text.contains(['*', '?', '['])) else { return };
    let Err(error) = glob::Pattern::new(text) else { return };
    reading.depends_on_disk = true;
    if !path.value.exists() {
        let message = format!("`path` is not a pattern of file names: {}", error.msg);
        let help = "`*`, `?`, `**` between slashes and `[abc]` are wildcards; write `[[]` for a bracket";
        reading.report(Diagnostic::error_at(&path.place, message).help(help));
    }
}
