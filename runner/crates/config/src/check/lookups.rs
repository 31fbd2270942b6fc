//! Lookups: which tables the scripts of a step, a gate or a monitor may read.
//!
//! Only the tables that a script's text names belong to its step, so that a change of another table does not change
//! the step. If a call computes the name, all tables belong to it. The check of scripts reports unknown names.

use std::sync::Arc;

use crate::diagnostic::Diagnostic;
use crate::model::{LookupTables, ProbeConfig, Processor};
use crate::parse::named_table::NamedTables;
use crate::sections::lookup_table::TableDeclaration;
use crate::sections::pipeline::PipelineDeclaration;
use crate::sections::shared_tables::SharedTables;
use crate::sections::step::StepDeclaration;
use tidegate_model::{Address, Name};

/// The tables that a script sees; one of its own pipeline hides a shared one of its name.
#[derive(Clone, Copy)]
pub(crate) struct TableScope<'a> {
    /// The pipeline; `None`: all.
    pub(crate) home: Option<&'a Name>,
    pub(crate) own: &'a NamedTables<TableDeclaration>,
    pub(crate) shared: &'a NamedTables<TableDeclaration>,
}

/// The tables that the scripts of a step and its `when` may read.
pub(crate) fn of_step(step: &StepDeclaration, scope: TableScope<'_>) -> LookupTables {
    let when = step.filter.when.iter().map(|(text, _)| text.as_str());
    linked_texts(texts(&step.processors).chain(when), scope)
}

/// The queues of the tables of [`of_step`].
pub(crate) fn queues_of_step(step: &StepDeclaration, scope: TableScope<'_>) -> Vec<Address> {
    let tables = of_step(step, scope);
    tables.values().filter_map(|table| Some(table.as_queue()?.queue.clone())).collect()
}

/// The queues of the tables that the scripts of a gate or a monitor may read.
pub(crate) fn queues_of_probe(probe: &ProbeConfig, scope: TableScope<'_>) -> Vec<Address> {
    let tables = linked_texts(texts(&probe.run), scope);
    tables.values().filter_map(|table| Some(table.as_queue()?.queue.clone())).collect()
}

/// `inquiry` with its tables.
pub(crate) fn linked(inquiry: ProbeConfig, scope: TableScope<'_>) -> ProbeConfig {
    ProbeConfig { tables: linked_texts(texts(&inquiry.run), scope), ..inquiry }
}

/// A warning for every table that no script reads.
pub(crate) fn unused(pipelines: &[Arc<PipelineDeclaration>], shared: &SharedTables) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    let shared_gates = || shared.gates.entries().iter().filter_map(|gate| gate.value.as_ref());
    for pipeline in pipelines {
        diagnostics.extend(unused_of(&pipeline.shelves, |name| reads(pipeline, name)));
    }
    diagnostics.extend(unused_of(shared, |name| {
        let hidden = |pipeline: &PipelineDeclaration| {
            pipeline.shelves.tables.entries().iter().any(|entry| entry.name.value.as_str() == name)
        };
        pipelines.iter().any(|pipeline| !hidden(pipeline) && reads(pipeline, name))
            || shared_gates().any(|gate| texts(&gate.run).any(|text| may_read(text, name)))
    }));
    diagnostics
}

fn unused_of(shelves: &SharedTables, is_read: impl Fn(&str) -> bool) -> Vec<Diagnostic> {
    let idle = shelves.tables.entries().iter().filter(|entry| !is_read(entry.name.value.as_str()));
    idle.map(|entry| {
        let name = &entry.name.value;
        let message = format!("no script reads the table `{name}`");
        let help = format!("write `lookup(\"{name}\", key)` in a script");
        Diagnostic::warning_at(&entry.name.place, message).help(help)
    })
    .collect()
}

/// Whether a script of the pipeline may read the table.
fn reads(pipeline: &PipelineDeclaration, name: &str) -> bool {
    let steps = pipeline.written_steps();
    let of_steps = steps.flat_map(|step| {
        let monitor = step.monitor.iter().flat_map(|monitor| texts(&monitor.monitor.inquiry.run));
        texts(&step.processors).chain(monitor).chain(step.filter.when.iter().map(|(text, _)| text.as_str()))
    });
    let gates = pipeline.shelves.gates.entries().iter().filter_map(|gate| gate.value.as_ref());
    of_steps.chain(gates.flat_map(|gate| texts(&gate.run))).any(|text| may_read(text, name))
}

/// The texts of all scripts among the processors, with their imports.
fn texts(processors: &[Processor]) -> impl Iterator<Item = &str> {
    processors.iter().filter_map(Processor::script).flat_map(|script| {
        let imports = script.imports.iter().map(|import| &*import.text);
        std::iter::once(&*script.text).chain(imports)
    })
}

fn linked_texts<'t>(texts: impl Iterator<Item = &'t str>, scope: TableScope<'_>) -> LookupTables {
    let names: Vec<Option<&str>> = texts.flat_map(names).collect();
    // Later entries replace earlier ones of their name.
    let all = scope.shared.entries().iter().chain(scope.own.entries());
    let all: LookupTables = all
        .filter_map(|entry| Some((entry.name.value.clone(), entry.value.as_ref()?.linked(scope.home)?)))
        .collect();
    let is_known = |name: &str| all.keys().any(|other| other.as_str() == name);
    // An unknown name is an error, whose text suggests the others.
    if names.iter().any(|name| name.is_none_or(|name| !is_known(name))) {
        return all;
    }
    all.into_iter().filter(|(name, _)| names.contains(&Some(name.as_str()))).collect()
}

const FUNCTION: &str = "lookup";

/// The tables that calls of `lookup` in the text name; `None` for a name that is computed. Calls in comments count,
/// too.
fn names(text: &str) -> impl Iterator<Item = Option<&str>> {
    text.match_indices(FUNCTION).filter_map(|(at, word)| {
        let (before, rest) = (text[..at].trim_end(), text[at + word.len()..].trim_start());
        let Some(argument) = rest.strip_prefix('(').map(str::trim_start) else {
            // A pointer to the function: `Fn("lookup")`.
            return (before.ends_with('"') && rest.starts_with('"')).then_some(None);
        };
        // A call as a method: `name.lookup(key)`.
        let is_method = before.ends_with('.');
        let literal = argument.strip_prefix('"').filter(|_| !is_method);
        Some(literal.and_then(|literal| literal.split('"').next()))
    })
}

fn may_read(text: &str, name: &str) -> bool {
    names(text).any(|called| called.is_none_or(|called| called == name))
}

#[cfg(test)]
mod tests {
    use super::may_read;

    #[test]
    fn a_script_reads_the_tables_that_it_names_or_all_if_it_computes_a_name() {
        for (text, reads) in [
            ("lookup(\"hosts\", job.host)", true),
            ("lookup ( \"hosts\" , 1)", true),
            ("lookup(\"ports\", 1) + lookup(\"hosts\", 2)", true),
            ("lookup(job.table, 1)", true),
            ("lookup(`${x}`, 1)", true),
            ("\"hosts\".lookup(\"ports\")", true),
            ("Fn(\"lookup\").call(\"hosts\", 1)", true),
            ("lookup(\"ports\", 1)", false),
            ("lookup(\"hosts2\", 1)", false),
            ("\"hosts\"", false),
            ("// lookup is not called", false),
        ] {
            assert_eq!(may_read(text, "hosts"), reads, "{text}");
        }
    }
}
