//! `PipelineDeclaration`: the declarations of one pipeline's file, before names are resolved.

use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toml::de::DeTable;

use super::implied_steps;
use super::instances::instances;
use super::queue::{self, QueueDeclaration, QueueSettings};
use super::settings::{self, SettingsFile};
use super::shared_config::SharedConfig;
use super::shared_tables::SharedTables;
use super::sink::{self, SinkDeclaration};
use super::source::{self, SourceDeclaration};
use super::step::{self, StepDeclaration};
use super::test::{self, TestDeclaration};
use crate::diagnostic::Diagnostic;
use crate::diagnostic::without_repetitions;
use crate::model::DeliveryGuarantee;
use crate::parse::context::{ParseContext, Placed, Text};
use crate::parse::field::Field;
use crate::parse::keys::TableKind;
use crate::parse::reference::{ErrorTarget, error_target, former_name, name};
use crate::parse::table::TableReader;
use crate::parse::text_reader::TextReader;
use tidegate_model::{Name, NamedKind};

/// A pipeline as written.
#[derive(Debug)]
pub(crate) struct PipelineDeclaration {
    pub(crate) file: Arc<Path>,
    pub(crate) name: Name,
    /// `[pipeline] name`, if it is given.
    pub(crate) named: Option<Text>,
    /// Its former name.
    pub(crate) was: Option<Placed<Name>>,
    pub(crate) errors: Option<ErrorTarget>,
    /// The default of its steps.
    pub(crate) delivery: DeliveryGuarantee,
    pub(crate) config: SharedConfig,
    pub(crate) sources: Vec<SourceDeclaration>,
    pub(crate) queues: Vec<QueueDeclaration>,
    /// `[queue_defaults]`
    pub(crate) queue_defaults: QueueSettings,
    pub(crate) steps: Vec<StepDeclaration>,
    pub(crate) sinks: Vec<SinkDeclaration>,
    pub(crate) shelves: SharedTables,
    pub(crate) tests: Vec<TestDeclaration>,
}

/// The `was` of a step, queue or source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FormerName<'a> {
    pub(crate) kind: NamedKind,
    /// `step`, `queue` or `source`.
    pub(crate) what: &'static str,
    pub(crate) name: &'a Placed<Name>,
    pub(crate) was: &'a Placed<Name>,
}

impl PipelineDeclaration {
    /// The former names of its parts.
    pub(crate) fn former_names(&self) -> impl Iterator<Item = FormerName<'_>> {
        let steps = self.steps.iter().map(|step| (NamedKind::Step, "step", &step.name, &step.was));
        let queues = self.queues.iter().map(|queue| (NamedKind::Endpoint, "queue", &queue.name, &queue.was));
        let sources =
            self.sources.iter().map(|source| (NamedKind::Endpoint, "source", &source.name, &source.was));
        let tuples = self.steps.iter().filter_map(|step| step.tuples.as_ref());
        let tuples = tuples.map(|queue| (NamedKind::Endpoint, "queue", &queue.name, &queue.was));
        steps
            .chain(queues)
            .chain(tuples)
            .chain(sources)
            .filter_map(|(kind, what, name, was)| Some(FormerName { kind, what, name, was: was.as_ref()? }))
    }

    /// The declared steps; of the equal steps of a sink, the first.
    pub(crate) fn written_steps(&self) -> impl Iterator<Item = &StepDeclaration> {
        self.steps.iter().chain(self.sinks.iter().filter_map(|sink| sink.steps.first()))
    }
}

/// Reads everything: one pipeline, or one for each instance. A pipeline without a valid name is left out.
pub(crate) fn read(
    reading: &mut ParseContext<'_>,
    files: &mut TextReader,
    tree: &Spanned<DeTable<'_>>,
) -> Vec<PipelineDeclaration> {
    let root = TableReader::root(reading, TableKind::PipelineFile, tree);
    every(reading, files, &root)
}

/// As [`read`], for a file that is named alone and may hold settings too.
pub(crate) fn read_single(
    reading: &mut ParseContext<'_>,
    files: &mut TextReader,
    tree: &Spanned<DeTable<'_>>,
) -> (SettingsFile, Vec<PipelineDeclaration>) {
    let root = TableReader::root(reading, TableKind::SingleFile, tree);
    (settings::in_place(reading, &root), every(reading, files, &root))
}

fn every(
    reading: &mut ParseContext<'_>,
    files: &mut TextReader,
    root: &TableReader<'_>,
) -> Vec<PipelineDeclaration> {
    let each = root.field("pipeline").and_then(|field| field.value().get_ref().as_table()?.get("each"));
    let Some(each) = each else { return declared(reading, files, root).into_iter().collect() };
    let mut pipelines = Vec::new();
    for instance in instances(reading, Field::of("each", each)) {
        reading.each = Some(instance);
        pipelines.extend(declared(reading, files, root));
    }
    reading.each = None;
    reading.names_missing |= pipelines.is_empty();
    // The instances share the mistakes of their file.
    for found in [&mut reading.diagnostics, &mut reading.doubts] {
        without_repetitions(found);
    }
    pipelines
}

fn declared(
    reading: &mut ParseContext<'_>,
    files: &mut TextReader,
    root: &TableReader<'_>,
) -> Option<PipelineDeclaration> {
    let header = header(reading, root);
    let name = match &header.named {
        Named::Good(named, _) => Some(named.value.clone()),
        Named::Bad => None,
        Named::ByFile => name_of_file(reading),
    };
    let name =
        name.and_then(|name| if header.has_instance { Some(name) } else { of_instance(reading, &name) });
    let mut sources = Vec::new();
    for (key, value) in root.named(reading, "source") {
        sources.extend(source::read(reading, files, &key, value));
    }
    let mut queues = Vec::new();
    for (key, value) in root.named(reading, "queue") {
        queues.extend(queue::read(reading, &key, value));
    }
    let queue_defaults = queue::defaults(reading, root);
    let mut steps = Vec::new();
    for (key, value) in root.named(reading, "step") {
        if let Some(step) = step::read(reading, files, &key, value) {
            steps.extend(implied_steps::split(reading, step));
        }
    }
    let mut sinks = Vec::new();
    for (key, value) in root.named(reading, "sink") {
        sinks.extend(sink::read(reading, &key, value));
    }
    let shelves = SharedTables::read(reading, files, root);
    let tests = test::read_all(reading, root);
    reading.names_missing |= name.is_none();
    let Header { named, was, errors, delivery, config, has_instance: _ } = header;
    let named = if let Named::Good(_, text) = named { Some(text) } else { None };
    let file = Arc::clone(&reading.file);
    let name = name?;
    Some(PipelineDeclaration {
        file,
        name,
        named,
        was,
        errors,
        delivery,
        config,
        sources,
        queues,
        queue_defaults,
        steps,
        sinks,
        shelves,
        tests,
    })
}

#[derive(Default)]
enum Named {
    Good(Placed<Name>, Text),
    Bad,
    #[default]
    ByFile,
}

/// `[pipeline]`
#[derive(Default)]
struct Header {
    named: Named,
    was: Option<Placed<Name>>,
    errors: Option<ErrorTarget>,
    delivery: DeliveryGuarantee,
    config: SharedConfig,
    /// The name contains that of the instance.
    has_instance: bool,
}

fn header(reading: &mut ParseContext<'_>, root: &TableReader<'_>) -> Header {
    let section = root
        .field("pipeline")
        .and_then(|field| TableReader::open(reading, TableKind::Pipeline, "[pipeline]", field.value()));
    let Some(section) = section else {
        return Header::default();
    };
    let delivery = step::delivery(reading, &section).unwrap_or_default();
    let errors = error_target(reading, &section);
    let named = match section.field("name").map(|field| field.text(reading)) {
        None => Named::ByFile,
        Some(None) => Named::Bad,
        Some(Some(text)) => match name(reading, "pipeline", &text) {
            Some(name) => Named::Good(name, text),
            None => Named::Bad,
        },
    };
    let contains = |key, text: &str| {
        let name = section.field(key).and_then(|field| field.value().get_ref().as_str());
        name.is_some_and(|name| name.contains(text))
    };
    let has_instance = contains("name", "${each}");
    // A parameter lets an instance take over from a pipeline of any name.
    let was_is_whole = contains("was", "${each}") || contains("was", "${each.");
    let was = former_name(reading, &section, "pipeline").and_then(|was| {
        let value = if was_is_whole { Some(was.value) } else { of_instance(reading, &was.value) };
        Some(Placed { value: value?, place: was.place })
    });
    Header { named, was, errors, delivery, config: SharedConfig::read(reading, &section), has_instance }
}

/// `NAME-INSTANCE` for an instance of a pipeline.
fn of_instance(reading: &mut ParseContext<'_>, name: &Name) -> Option<Name> {
    let Some(instance) = &reading.each else { return Some(name.clone()) };
    let whole = Name::new(&format!("{name}-{}", instance.name));
    if whole.is_none() {
        let message = format!(
            "the names of the pipeline `{name}` and its instance `{}` are too long together",
            instance.name
        );
        reading.report(Diagnostic::error(&*reading.file, None, message).help("use at most 128 characters"));
    }
    whole
}

fn name_of_file(reading: &mut ParseContext<'_>) -> Option<Name> {
    let stem = reading.file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = Name::new(&stem);
    if name.is_none() {
        let message = format!("the file's name `{stem}` is not a valid name of a pipeline");
        let diagnostic = Diagnostic::error(&*reading.file, None, message);
        reading.report(diagnostic.help("rename the file, or give a name: `[pipeline] name = \"…\"`"));
    }
    name
}
