//! `SinkDeclaration`: parses `[sink.NAME]`, and the steps that a sink with `from` implies.

use std::path::PathBuf;

use super::begin_at;
use super::http;
use super::queuer;
use super::retry;
use super::step::{self, StepDeclaration};
use crate::check::on_disk;
use crate::diagnostic::Diagnostic;
use crate::model::{FileSink, InputMode, OnMismatch, SinkFormat, SinkKind};
use crate::parse::context::{ParseContext, Placed, Text, Value};
use crate::parse::field::Field;
use crate::parse::keys::TableKind;
use crate::parse::named_table::Chosen;
use crate::parse::reference::{Reference, error_target, name, references};
use crate::parse::table::TableReader;
use tidegate_model::Name;

const TYPES: [(&str, TableKind); 4] = [
    ("file", TableKind::FileSink),
    ("stdout", TableKind::StdoutSink),
    ("http", TableKind::HttpSink),
    ("null", TableKind::NullSink),
];
const FORMATS: [(&str, SinkFormat); 2] = [("ndjson", SinkFormat::Ndjson), ("lines", SinkFormat::Lines)];
const ON_MISMATCH: [(&str, OnMismatch); 2] = [("refuse", OnMismatch::Refuse), ("append", OnMismatch::Append)];

/// A sink as written.
#[derive(Debug)]
pub(crate) struct SinkDeclaration {
    pub(crate) name: Placed<Name>,
    /// The file that it writes, if any.
    pub(crate) path: Option<Placed<PathBuf>>,
    /// `None` after an error.
    pub(crate) kind: Option<SinkKind>,
    /// One step for each name in `from`, which deliver directly into the sink.
    pub(crate) steps: Vec<StepDeclaration>,
}

pub(crate) fn read(reading: &mut ParseContext<'_>, key: &Text, value: &Value<'_>) -> Option<SinkDeclaration> {
    let name = name(reading, "sink", key);
    reading.names_missing |= name.is_none();
    let title = format!("[sink.{}]", key.value);
    let Some(kind_of_table) = kind(reading, &title, value) else {
        // Its keys depend on its type, so they are not checked, and its inputs are unknown.
        reading.names_missing = true;
        return Some(SinkDeclaration { name: name?, path: None, kind: None, steps: Vec::new() });
    };
    let section = TableReader::open(reading, kind_of_table, &title, value)?;
    let line = reading.line(&section.place);
    let path = path(reading, kind_of_table, &section);
    let kind = what_it_does(reading, kind_of_table, &section, path.as_ref());
    let from = section.field("from").map(|field| references(reading, field)).unwrap_or_default();
    let take = if from.len() > 1 { InputMode::Alts } else { InputMode::From };
    let begin_at = begin_at::read(reading, &section, take);
    let delivery = step::delivery(reading, &section);
    let errors = error_target(reading, &section);
    let retry = section.field("retry").map(|field| Chosen::read(reading, field, retry::read));
    let queuer = section.field("queuer").map(|field| Chosen::read(reading, field, queuer::read));
    let gate = section.field("gate").map(|field| Chosen::named(reading, field, "the name of a gate"));
    for key in ["begin_at", "delivery", "errors", "retry", "queuer", "gate"] {
        if let (Some(field), None) = (section.field(key), section.field("from")) {
            let message =
                format!("`{key}` has no effect on a sink without `from`, which reads no jobs itself");
            let diagnostic = Diagnostic::error_at(&field.place(reading), message);
            reading.report(diagnostic.help("write it in the step that names the sink in `to`"));
        }
    }
    let name = name?;
    let mut steps = steps(reading, &name, line, &from);
    for step in &mut steps {
        step.begin_at = begin_at;
        step.delivery = delivery;
        step.errors.clone_from(&errors);
        (step.retry, step.queuer, step.gate) = (retry.clone(), queuer.clone(), gate.clone());
        if let Some(SinkKind::Http(request)) = &kind {
            step.timeout = request.timeout.unwrap_or(step.timeout);
        }
    }
    Some(SinkDeclaration { name, path, kind, steps })
}

/// The type of the sink, which determines its other keys.
fn kind(reading: &mut ParseContext<'_>, title: &str, value: &Value<'_>) -> Option<TableKind> {
    let table = value.get_ref().as_table()?;
    let Some(written) = table.get("type") else {
        let place = reading.place(value.span());
        let diagnostic = Diagnostic::error_at(&place, format!("`{title}` lacks `type`"));
        reading.report(diagnostic.help("write `type = \"file\"`, `\"stdout\"`, `\"http\"` or `\"null\"`"));
        return None;
    };
    Field::of("type", written).choice(reading, &TYPES)
}

fn path(
    reading: &mut ParseContext<'_>,
    kind: TableKind,
    section: &TableReader<'_>,
) -> Option<Placed<PathBuf>> {
    if kind != TableKind::FileSink {
        return None;
    }
    let path = section.required(reading, "path", "name the file to write")?.path(reading)?;
    on_disk::doubt_variable(reading, &path);
    on_disk::doubt_name(reading, &path);
    Some(path)
}

fn what_it_does(
    reading: &mut ParseContext<'_>,
    kind: TableKind,
    section: &TableReader<'_>,
    path: Option<&Placed<PathBuf>>,
) -> Option<SinkKind> {
    let format = section.field("format").map(|field| field.choice(reading, &FORMATS));
    let format = format.unwrap_or(Some(SinkFormat::Ndjson));
    let on_mismatch = section.field("on_mismatch").map(|field| field.choice(reading, &ON_MISMATCH));
    let on_mismatch = on_mismatch.unwrap_or(Some(OnMismatch::Refuse));
    match kind {
        TableKind::FileSink => {
            let path = path?.value.clone();
            Some(SinkKind::File(FileSink { path, format: format?, on_mismatch: on_mismatch? }))
        }
        TableKind::HttpSink => {
            http::request(reading, kind, section).map(|request| SinkKind::Http(Box::new(request)))
        }
        TableKind::StdoutSink => format.map(SinkKind::Stdout),
        _ => Some(SinkKind::Null),
    }
}

/// One name: a step of the sink's name. Several: `report-committed`, `report-refunded`, and so on.
fn steps(
    reading: &mut ParseContext<'_>,
    sink: &Placed<Name>,
    line: u64,
    from: &[Reference],
) -> Vec<StepDeclaration> {
    let mut steps: Vec<StepDeclaration> = Vec::new();
    for reference in from {
        let place = reference.place.clone();
        let text = match from {
            [_] => sink.value.to_string(),
            _ => format!("{}-{}", sink.value, reference.as_suffix()),
        };
        let twice = steps.iter().find(|step| step.name.value.as_str() == text);
        if let Some(first) = twice {
            let first = first.name.place.clone();
            let diagnostic = Diagnostic::error_at(&place, "`from` has this name twice");
            reading.report(diagnostic.related(first, "first here"));
            continue;
        }
        let Some(value) = Name::new(&text) else {
            let message = "the names of the sink and of its input are too long together";
            reading.report(Diagnostic::error_at(&place, message).help("use at most 128 characters"));
            continue;
        };
        let mut step = StepDeclaration::new(Placed { value, place }, line);
        step.inputs = vec![(String::new(), reference.clone())];
        steps.push(step);
    }
    steps
}
