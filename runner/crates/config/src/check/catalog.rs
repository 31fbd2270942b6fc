//! `Catalog`: maps every name of every pipeline to its declaration, and reports names that are used twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, SourceSpan};
use crate::sections::pipeline::PipelineDeclaration;
use crate::sections::source::Supply;
use tidegate_model::{Address, Name};

/// The kind of a declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Source,
    /// A source whose jobs are appended to the queue of its name.
    PushSource,
    Queue,
    Sink,
}

impl What {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Source | Self::PushSource => "source",
            Self::Queue => "queue",
            Self::Sink => "sink",
        }
    }
}

/// The declared names, without queues that are only mentioned.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    pub(crate) names: BTreeMap<Address, (What, SourceSpan)>,
    /// Whether the name may be shown.
    pub(crate) pipelines: BTreeMap<Name, bool>,
}

impl Catalog {
    /// Collects all names, and reports each that is already in use.
    pub(crate) fn of(pipelines: &[Arc<PipelineDeclaration>], diagnostics: &mut Vec<Diagnostic>) -> Self {
        let mut catalog = Self::default();
        for pipeline in pipelines {
            let may_be_shown = pipeline.named.as_ref().is_none_or(|text| !text.secret);
            catalog.pipelines.insert(pipeline.name.clone(), may_be_shown);
            let sources = pipeline.sources.iter().map(|source| match source.supply {
                Supply::Pull(_) => (What::Source, &source.name),
                Supply::Push(_) => (What::PushSource, &source.name),
            });
            let queues = pipeline.queues.iter().map(|queue| (What::Queue, &queue.name));
            let sinks = pipeline.sinks.iter().map(|sink| (What::Sink, &sink.name));
            for (what, name) in sources.chain(queues).chain(sinks) {
                let address = Address::new(pipeline.name.clone(), name.value.clone());
                if let Some((other, first)) = catalog.names.get(&address) {
                    if (*other, what) == (What::PushSource, What::Queue) {
                        // The settings of the queue that it fills.
                        continue;
                    }
                    diagnostics.push(taken(what, *other, &name.value, &name.place, first));
                } else {
                    catalog.names.insert(address, (what, name.place.clone()));
                }
            }
            check_steps(pipeline, diagnostics);
        }
        catalog
    }
}

/// Removes every pipeline whose name is already used, with a diagnostic.
pub(crate) fn without_namesakes(
    pipelines: Vec<Arc<PipelineDeclaration>>,
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<Arc<PipelineDeclaration>> {
    let mut kept: Vec<Arc<PipelineDeclaration>> = Vec::new();
    for pipeline in pipelines {
        let Some(first) = kept.iter().find(|other| other.name == pipeline.name) else {
            kept.push(pipeline);
            continue;
        };
        let secret = pipeline.named.as_ref().is_some_and(|text| text.secret);
        let quoted = if secret { String::new() } else { format!(" `{}`", pipeline.name) };
        let span = pipeline.named.as_ref().map(|text| text.place.span.clone());
        let mut diagnostic =
            Diagnostic::error(&*pipeline.file, span, format!("two pipelines have the same name{quoted}"));
        diagnostic = match &first.named {
            Some(text) => diagnostic.related(text.place.clone(), "the other one"),
            None => {
                diagnostic.note(format!("`{}` has this name because of its file name", first.file.display()))
            }
        };
        diagnostics.push(diagnostic.help("give one of them another name: `[pipeline] name = \"…\"`"));
    }
    kept
}

fn taken(what: What, other: What, name: &Name, place: &SourceSpan, first: &SourceSpan) -> Diagnostic {
    let message =
        format!("the name of the {} `{name}` is already that of a {}", what.as_str(), other.as_str());
    Diagnostic::error_at(place, message)
        .label(format!("a {}", what.as_str()))
        .related(first.clone(), format!("a {}", other.as_str()))
        .help("sources, queues and sinks of a pipeline share their names; rename one of them")
}

/// Steps have a name space of their own, and a sink with `from` is a step too.
fn check_steps(pipeline: &PipelineDeclaration, diagnostics: &mut Vec<Diagnostic>) {
    let mut seen: BTreeMap<&Name, &SourceSpan> = BTreeMap::new();
    let (implied, declared): (Vec<_>, Vec<_>) = pipeline.steps.iter().partition(|step| step.joins.is_some());
    for step in declared {
        seen.insert(&step.name.value, &step.name.place);
    }
    for step in implied {
        let (name, place) = (&step.name.value, &step.name.place);
        if let Some(first) = seen.insert(name, place) {
            let message = format!("the join by key needs a step `{name}`, which exists already");
            let diagnostic = Diagnostic::error_at(place, message);
            diagnostics.push(diagnostic.related(first.clone(), "the other one").help("rename one of them"));
        }
    }
    for sink in &pipeline.sinks {
        for step in &sink.steps {
            let name = &step.name.value;
            if let Some(first) = seen.insert(name, &sink.name.place) {
                let message = format!(
                    "the sink `{}` reads its jobs in a step `{name}`, which exists already",
                    sink.name.value
                );
                let diagnostic = Diagnostic::error_at(&sink.name.place, message);
                diagnostics
                    .push(diagnostic.related(first.clone(), "the other one").help("rename one of them"));
            }
        }
    }
}
