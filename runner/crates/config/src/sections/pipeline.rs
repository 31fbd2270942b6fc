//! `PipelineDeclaration`: the declarations of one pipeline's file, before names are resolved.

use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toml::de::DeTable;

use super::queue::{self, QueueDeclaration, QueueSettings};
use super::settings::{self, SettingsFile};
use super::shared_config::SharedConfig;
use super::shared_tables::SharedTables;
use super::sink::{self, SinkDeclaration};
use super::source::{self, SourceDeclaration};
use super::step::{self, StepDeclaration};
use super::test::{self, TestDeclaration};
use crate::diagnostic::Diagnostic;
use crate::diagnostic::files::Files;
use crate::model::DeliveryGuarantee;
use crate::parse::context::{ParseContext, Placed, Text};
use crate::parse::keys::TableKind;
use crate::parse::reference::{ErrorTarget, error_target, former_name, name};
use crate::parse::table::TableReader;
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
        steps
            .chain(queues)
            .chain(sources)
            .filter_map(|(kind, what, name, was)| Some(FormerName { kind, what, name, was: was.as_ref()? }))
    }

    /// The declared steps; of the equal steps of a sink, the first.
    pub(crate) fn written_steps(&self) -> impl Iterator<Item = &StepDeclaration> {
        self.steps.iter().chain(self.sinks.iter().filter_map(|sink| sink.steps.first()))
    }
}

/// Reads everything. Returns `None` if the pipeline has no valid name.
pub(crate) fn read(
    reading: &mut ParseContext<'_>,
    files: &mut Files,
    tree: &Spanned<DeTable<'_>>,
) -> Option<PipelineDeclaration> {
    let root = TableReader::root(reading, TableKind::PipelineFile, tree);
    declared(reading, files, &root)
}

/// As [`read`], for a file that is named alone and may hold settings too.
pub(crate) fn read_single(
    reading: &mut ParseContext<'_>,
    files: &mut Files,
    tree: &Spanned<DeTable<'_>>,
) -> (SettingsFile, Option<PipelineDeclaration>) {
    let root = TableReader::root(reading, TableKind::SingleFile, tree);
    (settings::in_place(reading, &root), declared(reading, files, &root))
}

fn declared(
    reading: &mut ParseContext<'_>,
    files: &mut Files,
    root: &TableReader<'_>,
) -> Option<PipelineDeclaration> {
    let header = header(reading, root);
    let name = match &header.named {
        Named::Good(named, _) => Some(named.value.clone()),
        Named::Bad => None,
        Named::ByFile => name_of_file(reading),
    };
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
        steps.extend(step::read(reading, files, &key, value));
    }
    let mut sinks = Vec::new();
    for (key, value) in root.named(reading, "sink") {
        sinks.extend(sink::read(reading, &key, value));
    }
    let shelves = SharedTables::read(reading, files, root);
    let tests = test::read_all(reading, root);
    reading.names_missing |= name.is_none();
    let Header { named, was, errors, delivery, config } = header;
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
}

fn header(reading: &mut ParseContext<'_>, root: &TableReader<'_>) -> Header {
    let section = root
        .field("pipeline")
        .and_then(|field| TableReader::open(reading, TableKind::Pipeline, "[pipeline]", field.value()));
    let Some(section) = section else {
        return Header::default();
    };
    let delivery = step::delivery(reading, TableKind::Pipeline, &section).unwrap_or_default();
    let errors = error_target(reading, &section);
    let named = match section.field("name").map(|field| field.text(reading)) {
        None => Named::ByFile,
        Some(None) => Named::Bad,
        Some(Some(text)) => match name(reading, "pipeline", &text) {
            Some(name) => Named::Good(name, text),
            None => Named::Bad,
        },
    };
    let was = former_name(reading, &section, "pipeline");
    Header { named, was, errors, delivery, config: SharedConfig::read(reading, &section) }
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
