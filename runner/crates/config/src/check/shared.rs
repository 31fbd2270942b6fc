//! Checks of shared tables: finds unknown and unused names of policies, queuers and gates, and invalid
//! combinations.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, SourceSpan};
use crate::model::{DeliveryGuarantee, InputMode};
use crate::parse::named_table::{Chosen, NamedTables, called};
use crate::sections::pipeline::PipelineDeclaration;
use crate::sections::shared_tables::SharedTables;
use crate::sections::source::SourceDeclaration;
use crate::sections::step::StepDeclaration;
use crate::sections::{probe, queuer, retry};

/// All errors.
pub(crate) fn mistakes(pipelines: &[Arc<PipelineDeclaration>], shared: &SharedTables) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    for pipeline in pipelines {
        let own = &pipeline.shelves;
        let of_sources = pipeline.sources.iter().filter_map(|source| source.retry.as_ref());
        diagnostics.extend(
            of_sources.filter_map(|it| it.lost("retry", retry::meant, &own.retries, &shared.retries)),
        );
        for step in pipeline.written_steps() {
            let (policy, picks, gate) = (step.retry.as_ref(), step.queuer.as_ref(), step.gate.as_ref());
            diagnostics
                .extend(policy.and_then(|it| it.lost("retry", retry::meant, &own.retries, &shared.retries)));
            diagnostics
                .extend(picks.and_then(|it| it.lost("queuer", queuer::meant, &own.queuers, &shared.queuers)));
            diagnostics.extend(gate.and_then(|it| it.lost("gate", probe::meant, &own.gates, &shared.gates)));
            diagnostics.extend(never_retried(pipeline, step));
            diagnostics.extend(picks_of_several(step));
            diagnostics.extend(batches_without_lanes(pipeline, step, shared));
        }
    }
    diagnostics
}

/// A warning for every table that no step uses.
pub(crate) fn unused(pipelines: &[Arc<PipelineDeclaration>], shared: &SharedTables) -> Vec<Diagnostic> {
    let users = Users { pipelines, shared };
    let retry = Part { of_step: |step| step.retry.as_ref(), of_source: |source| source.retry.as_ref() };
    let mut diagnostics = users.unused("retry", |shelves| &shelves.retries, retry);
    let queuer = Part { of_step: |step| step.queuer.as_ref(), of_source: |_| None };
    diagnostics.extend(users.unused("queuer", |shelves| &shelves.queuers, queuer));
    let gate = Part { of_step: |step| step.gate.as_ref(), of_source: |_| None };
    diagnostics.extend(users.unused("gate", |shelves| &shelves.gates, gate));
    diagnostics
}

struct Users<'a> {
    pipelines: &'a [Arc<PipelineDeclaration>],
    shared: &'a SharedTables,
}

/// The choices of one kind of table.
struct Part<T> {
    of_step: fn(&StepDeclaration) -> Option<&Chosen<T>>,
    of_source: fn(&SourceDeclaration) -> Option<&Chosen<T>>,
}

impl<'a> Users<'a> {
    fn unused<T: 'a>(
        &self,
        kind: &str,
        shelf: impl Fn(&'a SharedTables) -> &'a NamedTables<T>,
        Part { of_step, of_source }: Part<T>,
    ) -> Vec<Diagnostic> {
        let mut used: BTreeSet<(&Path, usize)> = BTreeSet::new();
        for pipeline in self.pipelines {
            let chosen = pipeline.written_steps().filter_map(of_step);
            for chosen in chosen.chain(pipeline.sources.iter().filter_map(of_source)) {
                let entry = chosen.entry(shelf(&pipeline.shelves), shelf(self.shared));
                used.extend(entry.map(|entry| spot(&entry.name.place)));
            }
        }
        let shelves = self.pipelines.iter().map(|pipeline| &pipeline.shelves).chain([self.shared]);
        let idle = shelves.flat_map(|shelves| shelf(shelves).entries());
        let idle = idle.filter(|entry| !used.contains(&spot(&entry.name.place)));
        idle.map(|entry| {
            let name = &entry.name.value;
            let message = format!("no step uses the {} `{name}`", called(kind));
            let help = format!("write `{kind} = \"{name}\"` in a step");
            Diagnostic::warning_at(&entry.name.place, message).help(help)
        })
        .collect()
    }
}

fn spot(place: &SourceSpan) -> (&Path, usize) {
    (&place.file, place.span.start)
}

fn never_retried(pipeline: &PipelineDeclaration, step: &StepDeclaration) -> Option<Diagnostic> {
    let retry = step.retry.as_ref()?;
    if step.delivery.unwrap_or(pipeline.delivery) != DeliveryGuarantee::AtMostOnce {
        return None;
    }
    let message = "`retry` has no effect with `delivery = \"at-most-once\"`";
    Some(Diagnostic::error_at(&retry.place, message).help("leave `retry` out, or use another `delivery`"))
}

/// Batches of one lane need a lane.
fn batches_without_lanes(
    pipeline: &PipelineDeclaration,
    step: &StepDeclaration,
    shared: &SharedTables,
) -> Option<Diagnostic> {
    let place = step.monitor.as_ref()?.lane_batches.as_ref()?;
    if let Some(chosen) = &step.queuer {
        // An invalid queuer is reported already.
        let queuer = chosen.value(&pipeline.shelves.queuers, &shared.queuers)?;
        if queuer.lane.is_some() {
            return None;
        }
    }
    let help = "name a field in the queuer, `lane = \"FIELD\"`, or leave `batch_by` out";
    let message = "`batch_by = \"lane\"` has no effect: the step has no lanes";
    Some(Diagnostic::error_at(place, message).help(help))
}

/// Several inputs have no common order in which jobs could be chosen.
fn picks_of_several(step: &StepDeclaration) -> Vec<Diagnostic> {
    let way = match step.take {
        InputMode::From => return Vec::new(),
        InputMode::Join => "join",
        InputMode::Alts => "alts",
    };
    let queuer = step.queuer.as_ref().map(|chosen| ("queuer", &chosen.place));
    let gate = step.gate.as_ref().map(|chosen| ("gate", &chosen.place));
    let monitor = step.monitor.as_ref().map(|_| ("monitor", &step.name.place));
    let refuse = |(key, place): (&str, &SourceSpan)| {
        let message = format!("`{key}` needs `from`, but this step has `{way}`");
        let help = "pass the jobs of this step on to a queue, and read it by another step";
        Diagnostic::error_at(place, message).help(help)
    };
    queuer.into_iter().chain(gate).chain(monitor).map(refuse).collect()
}
