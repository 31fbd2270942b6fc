//! `[step.NAME]`

use std::path::Path;
use std::time::Duration;

use super::bindings::{self, Bound};
use super::builtin;
use super::diagnostic::Diagnostic;
use super::field::Field;
use super::files::{Files, read_text};
use super::grammar::Kind;
use super::json::object;
use super::model::{Limits, Processor, Promise, Script, StepFilter, Take};
use super::plugin;
use super::reading::{Placed, Reading, Text, Value};
use super::reference::{Reference, name, reference};
use super::section::Section;
use crate::words::suggest::nearest;
use crate::words::{Name, parse_duration, parse_size};

pub(super) const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
const CRASH_LIMIT_DEFAULT: u32 = 3;
const PROMISES: [(&str, Promise); 3] = [
    ("exactly-once", Promise::ExactlyOnce),
    ("at-least-once", Promise::AtLeastOnce),
    ("at-most-once", Promise::AtMostOnce),
];

/// A step as it was written.
#[derive(Debug)]
pub(super) struct StepDeclaration {
    pub(super) name: Placed<Name>,
    pub(super) line: u64,
    pub(super) take: Take,
    pub(super) inputs: Bound,
    pub(super) to: Bound,
    pub(super) errors: Option<Reference>,
    pub(super) processors: Vec<Processor>,
    pub(super) filter: StepFilter,
    pub(super) limits: Limits,
    /// `None`: what the pipeline says.
    pub(super) delivery: Option<Promise>,
    pub(super) crash_limit: u32,
    pub(super) timeout: Duration,
    pub(super) config: serde_json::Value,
    pub(super) isolate: bool,
}

impl StepDeclaration {
    /// A step that hands on what it takes.
    pub(super) fn new(name: Placed<Name>, line: u64) -> Self {
        Self {
            name,
            line,
            take: Take::From,
            inputs: Vec::new(),
            to: Vec::new(),
            errors: None,
            processors: Vec::new(),
            filter: StepFilter::default(),
            limits: Limits::default(),
            delivery: None,
            crash_limit: CRASH_LIMIT_DEFAULT,
            timeout: TIMEOUT_DEFAULT,
            config: serde_json::Value::Object(serde_json::Map::new()),
            isolate: false,
        }
    }
}

pub(super) fn read(
    reading: &mut Reading<'_>,
    files: &mut Files,
    key: &Text,
    value: &Value<'_>,
) -> Option<StepDeclaration> {
    let name = name(reading, "step", key);
    reading.names_missing |= name.is_none();
    let section = Section::open(reading, Kind::Step, &format!("[step.{}]", key.value), value)?;
    let (take, inputs) = bindings::inputs(reading, &section);
    let to = section.field("to").map(|field| bindings::outputs(reading, field));
    let errors = section.field("errors").and_then(|field| reference(reading, field));
    let filter = filter(reading, &section);
    if take == Take::Join {
        refuse_fields(reading, &section, &inputs);
    }
    let limits = section.field("limits").and_then(|field| limits(reading, field));
    let timeout = section.field("timeout").and_then(|field| {
        field.quantity(reading, ("duration", "10s"), parse_duration, Some(&Duration::ZERO))
    });
    let processors = run(reading, files, &section, timeout.unwrap_or(TIMEOUT_DEFAULT));
    let config = section.field("config").and_then(|field| field.table(reading));
    let config = config.map(|table| object(reading, table));
    let delivery = delivery(reading, Kind::Step, &section);
    let isolate = plugin::isolate(reading, &section);
    let crash_limit = section.field("crash_limit").and_then(|field| crash_limit(reading, field));

    // Last, so that a step with a bad name is told its other mistakes too.
    let defaults = StepDeclaration::new(name?, reading.line(&section.place));
    Some(StepDeclaration {
        take,
        inputs,
        to: to.unwrap_or_default(),
        errors,
        processors,
        filter,
        limits: limits.unwrap_or_default(),
        delivery,
        crash_limit: crash_limit.unwrap_or(defaults.crash_limit),
        timeout: timeout.unwrap_or(defaults.timeout),
        config: config.unwrap_or_else(|| defaults.config.clone()),
        isolate,
        ..defaults
    })
}

/// `delivery`, of a step or as the default of a pipeline.
pub(super) fn delivery(reading: &mut Reading<'_>, kind: Kind, section: &Section<'_>) -> Option<Promise> {
    section.field("delivery")?.choice(reading, kind, &PROMISES)
}

fn crash_limit(reading: &mut Reading<'_>, field: Field<'_>) -> Option<u32> {
    let limit = u32::try_from(field.count(reading, 1)?);
    if limit.is_err() {
        field.refuse(reading, "`crash_limit` is too large".into());
    }
    limit.ok()
}

/// The processors that `run` names, in a table whose attempts may take `timeout`.
fn run(
    reading: &mut Reading<'_>,
    files: &mut Files,
    section: &Section<'_>,
    timeout: Duration,
) -> Vec<Processor> {
    let texts = section.field("run").and_then(|field| field.text_or_texts(reading)).unwrap_or_default();
    builtin::check(reading, section, &texts);
    texts.iter().filter_map(|text| processor(reading, files, section, text, timeout)).collect()
}

fn processor(
    reading: &mut Reading<'_>,
    files: &mut Files,
    section: &Section<'_>,
    run: &Text,
    timeout: Duration,
) -> Option<Processor> {
    if builtin::is_one(&run.value) {
        return builtin::processor(reading, section, run, timeout);
    }
    if plugin::is_one(&run.value) {
        return plugin::processor(reading, run).map(Processor::Plugin);
    }
    if Path::new(&run.value).extension().is_none_or(|ending| ending != "rhai") {
        let message = format!("{} in `run` is no processor", run.quoted());
        let help = "a processor is a script, whose name ends in `.rhai`, or `plugin:NAME`, `builtin:http` or `builtin:exec`";
        reading.report(Diagnostic::error_at(&run.place, message).help(help));
        return None;
    }
    let path = reading.folder().join(&run.value);
    match read_text(&path) {
        Ok(text) => {
            files.add(&path, text.as_str());
            let (named_in, named_at) = (reading.file.to_path_buf(), run.place.span.clone());
            Some(Processor::Script(Script { path, text, named_in, named_at }))
        }
        Err(error) => {
            let named = if run.secret { "that this names".into() } else { run.quoted() };
            let message = format!("the script {named} {error}");
            let help = if run.secret { None } else { near_script(reading.folder(), &run.value) };
            reading.report(Diagnostic::error_at(&run.place, message).help_if(help));
            None
        }
    }
}

/// The script that was probably meant: the nearest name in the folder where it was looked for.
fn near_script(folder: &Path, run: &str) -> Option<String> {
    let written = Path::new(run);
    let inner = written.parent().unwrap_or(Path::new(""));
    let entries = std::fs::read_dir(Path::new(".").join(folder).join(inner)).ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    // Compared without the ending, which would make short names near to each other.
    let stems: Vec<_> = names.filter_map(|name| Some(name.strip_suffix(".rhai")?.to_owned())).collect();
    let wanted = written.file_stem()?.to_string_lossy();
    let found = nearest(&wanted, stems.iter().map(String::as_str))?;
    Some(format!("did you mean `{}`?", inner.join(format!("{found}.rhai")).display()))
}

fn filter(reading: &mut Reading<'_>, section: &Section<'_>) -> StepFilter {
    let mut words = |key| {
        let texts = section.field(key).and_then(|field| field.texts(reading)).unwrap_or_default();
        texts.into_iter().map(|text| text.value).collect()
    };
    let (types, topics) = (words("types"), words("topics"));
    let when = section.field("when").and_then(|field| field.filled_text(reading));
    StepFilter {
        types,
        topics,
        when: when.map(|text| (reading.inside(&text), text)).map(|(at, text)| (text.value, at)),
    }
}

/// `types` and `topics` look at fields of the one job that there is, and a joined one is made of several.
fn refuse_fields(reading: &mut Reading<'_>, section: &Section<'_>, inputs: &Bound) {
    let job = match inputs.first() {
        Some((binding, _)) if binding.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_') => {
            format!("job.{binding}")
        }
        Some((binding, _)) => format!("job[\"{binding}\"]"),
        None => "job.binding".into(),
    };
    for (key, field, when) in [
        ("types", "type", format!("{job}.type == \"…\"")),
        ("topics", "topics", format!("\"…\" in {job}.topics")),
    ] {
        if let Some(written) = section.field(key) {
            let message =
                format!("`{key}` cannot stand beside `join`: a joined job has no `{field}` of its own");
            let diagnostic = Diagnostic::error_at(&written.place(reading), message);
            reading.report(diagnostic.help(format!("write `when = '{when}'`")));
        }
    }
}

/// Calls that nest deeper could fill a worker's stack.
const DEPTH_MAX: u64 = 500;

fn limits(reading: &mut Reading<'_>, field: Field<'_>) -> Option<Limits> {
    let section = Section::open(reading, Kind::Limits, "limits", field.value())?;
    let mut limits = Limits::default();
    if let Some(operations) = section.field("operations").and_then(|field| field.count(reading, 1)) {
        limits.operations = operations;
    }
    if let Some(field) = section.field("memory") {
        let memory = field.quantity(reading, ("size", "16MiB"), parse_size, Some(&0));
        limits.memory = memory.unwrap_or(limits.memory);
    }
    if let Some(field) = section.field("depth") {
        match field.count(reading, 1) {
            Some(depth) if depth > DEPTH_MAX => {
                field.refuse(reading, format!("`depth` should be {DEPTH_MAX} or less"));
            }
            Some(depth) => limits.depth = usize::try_from(depth).unwrap_or(limits.depth),
            None => {}
        }
    }
    Some(limits)
}
