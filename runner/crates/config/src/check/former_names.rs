//! Checks of `was`: a former name must be free, and belong to one part.

use std::sync::Arc;

use super::catalog::{Catalog, What};
use super::resolve::Wiring;
use crate::diagnostic::{Diagnostic, SourceSpan};
use crate::parse::context::Placed;
use crate::sections::pipeline::{FormerName, PipelineDeclaration};
use tidegate_model::{Address, Name, NamedKind};

pub(crate) fn check(
    pipelines: &[Arc<PipelineDeclaration>],
    catalog: &Catalog,
    wiring: &Wiring<'_>,
) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    for pipeline in pipelines {
        diagnostics.extend(of_pipeline(pipeline, pipelines));
        for former in pipeline.former_names() {
            let taken = match former.kind {
                NamedKind::Step => step(pipeline, &former.was.value),
                NamedKind::Endpoint => endpoint(pipeline, &former.was.value, catalog, wiring),
            };
            diagnostics.extend(taken.map(|(what, place)| exists(&former, what, &place)));
            diagnostics.extend(shared(&former, pipeline));
        }
    }
    diagnostics
}

/// A step of this name.
fn step(pipeline: &PipelineDeclaration, name: &Name) -> Option<(&'static str, SourceSpan)> {
    let found = pipeline.written_steps().find(|step| step.name.value == *name)?;
    Some(("step", found.name.place.clone()))
}

/// A queue, source or sink of this name; a queue may only be mentioned.
fn endpoint(
    pipeline: &PipelineDeclaration,
    name: &Name,
    catalog: &Catalog,
    wiring: &Wiring<'_>,
) -> Option<(&'static str, SourceSpan)> {
    let address = Address::new(pipeline.name.clone(), name.clone());
    if let Some((what, place)) = catalog.names.get(&address) {
        return Some((what.as_str(), place.clone()));
    }
    let ends = wiring.steps.iter().flat_map(|wired| wired.takes().chain(wired.gives()));
    let mut ends = ends.chain(wiring.error_queues.values());
    let found = ends.find(|end| end.what == What::Queue && end.address == address)?;
    Some((What::Queue.as_str(), found.place.clone()))
}

fn exists(former: &FormerName<'_>, what: &str, place: &SourceSpan) -> Diagnostic {
    let FormerName { what: owner, was, .. } = former;
    let message = format!("`was` names the {what} `{}`, which exists", was.value);
    wrong(owner, was, message, place)
}

/// Two parts cannot take over from the same one.
fn shared(former: &FormerName<'_>, pipeline: &PipelineDeclaration) -> Option<Diagnostic> {
    let FormerName { kind, what, name, was } = *former;
    let first = pipeline.former_names().find(|other| {
        (other.kind, &other.was.value) == (kind, &was.value)
            // A queue may be declared beside the source that fills it.
            && other.name.value != name.value
            && other.was.place.span.start < was.place.span.start
    })?;
    let parts = if first.what == what { format!("{what}s") } else { "parts".to_owned() };
    Some(wrong(what, was, format!("two {parts} were `{}`", was.value), &first.was.place))
}

fn of_pipeline(pipeline: &PipelineDeclaration, all: &[Arc<PipelineDeclaration>]) -> Option<Diagnostic> {
    let was = pipeline.was.as_ref()?;
    if let Some(other) = all.iter().find(|other| other.name == was.value) {
        let message = format!("`was` names the pipeline `{}`, which exists", was.value);
        let diagnostic = Diagnostic::error_at(&was.place, message);
        let diagnostic = match &other.named {
            Some(text) => diagnostic.related(text.place.clone(), "here"),
            None => {
                diagnostic.note(format!("`{}` has this name because of its file name", other.file.display()))
            }
        };
        return Some(diagnostic.help(help("pipeline")));
    }
    let others = all.iter().take_while(|other| other.name != pipeline.name);
    let first = others.filter_map(|other| other.was.as_ref()).find(|first| first.value == was.value)?;
    Some(wrong("pipeline", was, format!("two pipelines were `{}`", was.value), &first.place))
}

fn wrong(what: &str, was: &Placed<Name>, message: String, other: &SourceSpan) -> Diagnostic {
    Diagnostic::error_at(&was.place, message).related(other.clone(), "here").help(help(what))
}

fn help(what: &str) -> String {
    format!("`was` is the name that this {what} had in an earlier configuration")
}
