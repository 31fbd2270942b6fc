//! `[step.NAME]`

use std::path::Path;
use std::time::Duration;

use super::diagnostic::Diagnostic;
use super::field::Field;
use super::files::{Files, read_text};
use super::grammar::Kind;
use super::json::object;
use super::later;
use super::model::{Limits, Processor, Script, StepFilter};
use super::reading::{Placed, Reading, Text, Value};
use super::reference::{Reference, name, reference};
use super::section::Section;
use crate::words::suggest::nearest;
use crate::words::{Name, parse_duration, parse_size};

const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// A step as it was written.
#[derive(Debug)]
pub(super) struct StepDeclaration {
    pub(super) name: Placed<Name>,
    pub(super) line: u64,
    pub(super) from: Option<Reference>,
    /// By binding; an empty one for `to = "name"`.
    pub(super) to: Vec<(String, Reference)>,
    pub(super) errors: Option<Reference>,
    pub(super) processors: Vec<Processor>,
    pub(super) filter: StepFilter,
    pub(super) limits: Limits,
    pub(super) timeout: Duration,
    pub(super) config: serde_json::Value,
}

impl StepDeclaration {
    /// A step that hands on what it takes.
    pub(super) fn new(name: Placed<Name>, line: u64) -> Self {
        Self {
            name,
            line,
            from: None,
            to: Vec::new(),
            errors: None,
            processors: Vec::new(),
            filter: StepFilter::default(),
            limits: Limits::default(),
            timeout: TIMEOUT_DEFAULT,
            config: serde_json::Value::Object(serde_json::Map::new()),
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
    let from = from(reading, &section, value);
    let to = section.field("to").map(|field| to(reading, field));
    let errors = section.field("errors").and_then(|field| reference(reading, field));
    let processors = section.field("run").map(|field| run(reading, files, field));
    let filter = filter(reading, &section);
    let limits = section.field("limits").and_then(|field| limits(reading, field));
    let timeout = section.field("timeout").and_then(|field| {
        field.quantity(reading, ("duration", "10s"), parse_duration, Some(&Duration::ZERO))
    });
    let config = section.field("config").and_then(|field| field.table(reading));
    let config = config.map(|table| object(reading, table));
    delivery(reading, Kind::Step, &section);

    // Last, so that a step with a bad name is told its other mistakes too.
    let defaults = StepDeclaration::new(name?, reading.line(&section.place));
    Some(StepDeclaration {
        from,
        to: to.unwrap_or_default(),
        errors,
        processors: processors.unwrap_or_default(),
        filter,
        limits: limits.unwrap_or_default(),
        timeout: timeout.unwrap_or(defaults.timeout),
        config: config.unwrap_or_else(|| defaults.config.clone()),
        ..defaults
    })
}

/// Accepts the one promise that this version gives.
pub(super) fn delivery(reading: &mut Reading<'_>, kind: Kind, section: &Section<'_>) {
    if let Some(field) = section.field("delivery") {
        field.choice(reading, kind, &[("exactly-once", ())]);
    }
}

fn from(reading: &mut Reading<'_>, section: &Section<'_>, value: &Value<'_>) -> Option<Reference> {
    // `join` and `alts` are inputs too: who wrote one has been told that it has to wait.
    let table = value.get_ref().as_table();
    if table.is_some_and(|table| table.contains_key("join") || table.contains_key("alts")) {
        return section.field("from").and_then(|field| reference(reading, field));
    }
    let help = "name the source or queue whose jobs it takes: `from = \"…\"`";
    let field = section.required(reading, "from", help);
    reading.names_missing |= field.is_none();
    reference(reading, field?)
}

/// A name, or a table of bindings.
fn to(reading: &mut Reading<'_>, field: Field<'_>) -> Vec<(String, Reference)> {
    let Some(table) = field.value().get_ref().as_table() else {
        return to_one(reading, field);
    };
    if table.is_empty() {
        let diagnostic = Diagnostic::error_at(&field.place(reading), "`to` has no binding");
        reading.report(diagnostic.help("write `to = { binding = \"queue\" }`, or leave `to` out"));
    }
    let mut outputs = Vec::new();
    for (key, value) in table {
        let place = reading.place(key.span());
        let binding = Text { value: key.get_ref().to_string(), place, secret: false };
        let named = name(reading, "binding", &binding);
        let target = reference(reading, Field::of(&format!("to.{}", binding.value), value));
        if let (Some(named), Some(target)) = (named, target) {
            outputs.push((named.value.to_string(), target));
        }
    }
    outputs
}

fn to_one(reading: &mut Reading<'_>, field: Field<'_>) -> Vec<(String, Reference)> {
    if field.value().get_ref().is_array() {
        let message = "`to` should be a text or a table, but is a list";
        let diagnostic = Diagnostic::error_at(&field.place(reading), message);
        reading
            .report(diagnostic.help("a fork gives each output a binding: `to = { a = \"a\", b = \"b\" }`"));
        reading.names_missing = true;
        return Vec::new();
    }
    reference(reading, field).map(|target| (String::new(), target)).into_iter().collect()
}

fn run(reading: &mut Reading<'_>, files: &mut Files, field: Field<'_>) -> Vec<Processor> {
    let texts = field.text_or_texts(reading).unwrap_or_default();
    texts.iter().filter_map(|text| processor(reading, files, text)).collect()
}

fn processor(reading: &mut Reading<'_>, files: &mut Files, run: &Text) -> Option<Processor> {
    if later::processor(&run.value) {
        let what = if run.secret { "run" } else { &run.value };
        reading.report(later::diagnostic(&run.place, what));
        return None;
    }
    if Path::new(&run.value).extension().is_none_or(|ending| ending != "rhai") {
        let message = format!("{} in `run` is no processor", run.quoted());
        let help = "a processor is a script, whose name ends in `.rhai`";
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
