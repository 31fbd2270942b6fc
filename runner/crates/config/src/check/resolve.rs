//! `Wiring`: resolves the names of steps to their inputs and outputs.
//!
//! An undeclared name is a queue. Wrong kinds of names are reported here; errors of the whole graph are
//! reported by `graph`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::catalog::{Catalog, What};
use super::lookups::{self, TableScope};
use crate::diagnostic::{Diagnostic, SourceSpan};
use crate::parse::reference::{ErrorTarget, Reference};
use crate::sections::lookup_table::TableDeclaration;
use crate::sections::pipeline::PipelineDeclaration;
use crate::sections::shared_tables::SharedTables;
use crate::sections::step::StepDeclaration;
use tidegate_model::suggest::did_you_mean;
use tidegate_model::{Address, Name};

/// A step with its resolved names, without unresolvable ones.
#[derive(Debug)]
pub(crate) struct Wired<'d> {
    pub(crate) pipeline: &'d PipelineDeclaration,
    pub(crate) step: &'d StepDeclaration,
    /// Never a sink, and each once. By binding, in its order.
    pub(crate) inputs: Vec<(String, End)>,
    /// Never a source. By binding.
    pub(crate) outputs: Vec<(String, End)>,
    /// Always a queue.
    pub(crate) errors: Option<End>,
    /// Failed jobs are consumed.
    pub(crate) drops_errors: bool,
    /// Always a queue.
    pub(crate) events: Option<End>,
    /// The queues of the tables that its scripts read.
    pub(crate) looks_up: Vec<Address>,
}

/// The target of a step's name, and the place of the name.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) what: What,
    pub(crate) address: Address,
    pub(crate) place: SourceSpan,
}

/// All steps, and their connections.
#[derive(Debug, Default)]
pub(crate) struct Wiring<'d> {
    /// In order of address.
    pub(crate) steps: Vec<Wired<'d>>,
    /// The error queues that pipelines name for all their steps.
    pub(crate) error_queues: BTreeMap<&'d Name, End>,
    /// The queues of all lookup tables.
    pub(crate) tables: Vec<End>,
    /// Names that occur only as inserted values.
    secret: BTreeSet<Address>,
}

impl Wired<'_> {
    pub(crate) fn address(&self) -> Address {
        Address::new(self.pipeline.name.clone(), self.step.name.value.clone())
    }

    /// Every input of the step.
    pub(crate) fn takes(&self) -> impl Iterator<Item = &End> {
        self.inputs.iter().map(|(_, end)| end)
    }

    /// Every output of the step, with its errors and its events.
    pub(crate) fn gives(&self) -> impl Iterator<Item = &End> {
        self.outputs.iter().map(|(_, end)| end).chain(&self.errors).chain(&self.events)
    }

    pub(crate) fn takes_from(&self, queue: &Address) -> bool {
        self.takes().any(|input| input.what == What::Queue && input.address == *queue)
    }
}

impl<'d> Wiring<'d> {
    pub(crate) fn of(
        pipelines: &'d [Arc<PipelineDeclaration>],
        shared: &SharedTables,
        catalog: &Catalog,
        diagnostics: &mut Vec<Diagnostic>,
    ) -> Self {
        let mut wiring = Self::default();
        let mut shown = BTreeSet::new();
        for pipeline in pipelines {
            let mut resolver = Resolver { home: &pipeline.name, catalog, diagnostics };
            let own = &pipeline.shelves.tables;
            let scope = TableScope { home: Some(&pipeline.name), own, shared: &shared.tables };
            let mut mentioned: Vec<&Reference> =
                pipeline.errors.iter().filter_map(ErrorTarget::queue).collect();
            for step in &pipeline.steps {
                let bound = step.inputs.iter().chain(&step.to).map(|(_, reference)| reference);
                mentioned.extend(bound.chain(step.errors.iter().filter_map(ErrorTarget::queue)));
                mentioned.extend(&step.events);
                let looks_up = lookups::queues_of_step(step, scope);
                wiring.steps.push(Wired { looks_up, ..resolver.step(pipeline, step) });
            }
            for sink in &pipeline.sinks {
                let address = Address::new(pipeline.name.clone(), sink.name.value.clone());
                for step in &sink.steps {
                    mentioned.extend(step.inputs.iter().map(|(_, from)| from));
                    let end =
                        End { what: What::Sink, address: address.clone(), place: sink.name.place.clone() };
                    let mut wired = resolver.step(pipeline, step);
                    wired.outputs.push((String::new(), end));
                    wiring.steps.push(wired);
                }
            }
            let errors = pipeline.errors.as_ref().and_then(ErrorTarget::queue);
            if let Some(end) = errors.and_then(|errors| resolver.error_queue(errors)) {
                wiring.error_queues.insert(&pipeline.name, end);
            }
            for queue in table_queues(&pipeline.shelves) {
                wiring.tables.extend(resolver.table_queue(queue));
                mentioned.push(queue);
            }
            for reference in mentioned {
                let names = if reference.secret { &mut wiring.secret } else { &mut shown };
                names.insert(reference.address(&pipeline.name));
            }
        }
        for queue in table_queues(shared) {
            // Without its pipeline it is reported already.
            let Some(home) = queue.pipeline() else { continue };
            let mut resolver = Resolver { home, catalog, diagnostics };
            wiring.tables.extend(resolver.table_queue(queue));
            let names = if queue.secret { &mut wiring.secret } else { &mut shown };
            names.insert(queue.address(home));
        }
        wiring.secret.retain(|address| !shown.contains(address) && !catalog.names.contains_key(address));
        wiring.steps.sort_by_cached_key(Wired::address);
        wiring.inherit_errors();
        wiring
    }

    /// Gives each step without an error queue that of its pipeline, except for steps that the error queue
    /// itself feeds. A job that fails there would circulate for ever, so such a step stops.
    fn inherit_errors(&mut self) {
        let queues: Vec<_> = self.error_queues.iter().map(|(name, end)| (*name, end.clone())).collect();
        let fed: Vec<_> = queues.iter().map(|(_, end)| self.fed_by(&end.address)).collect();
        for ((name, end), fed) in queues.iter().zip(&fed) {
            for (position, wired) in self.steps.iter_mut().enumerate() {
                let names_none = wired.step.errors.is_none() && wired.pipeline.name == **name;
                if names_none && !fed.contains(&position) {
                    wired.errors = Some(end.clone());
                }
            }
        }
    }

    /// The steps downstream of a queue.
    fn fed_by(&self, queue: &Address) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        let mut queues = vec![queue];
        while let Some(queue) = queues.pop() {
            for (position, wired) in self.steps.iter().enumerate() {
                if wired.takes_from(queue) && found.insert(position) {
                    queues
                        .extend(wired.gives().filter(|end| end.what == What::Queue).map(|end| &end.address));
                }
            }
        }
        found
    }

    /// `address` for a reader of the pipeline `home`: in backticks, unless it must not be shown.
    pub(crate) fn quoted(&self, address: &Address, home: &Name) -> String {
        if self.secret.contains(address) {
            "named here".into()
        } else {
            format!("`{}`", short(address, home))
        }
    }

    pub(crate) fn is_secret(&self, address: &Address) -> bool {
        self.secret.contains(address)
    }
}

/// The queues of the lookup tables of one file.
fn table_queues(shelves: &SharedTables) -> impl Iterator<Item = &Reference> {
    let declared = shelves.tables.entries().iter().filter_map(|entry| entry.value.as_ref());
    declared.filter_map(TableDeclaration::queue)
}

/// `name` at home, `pipeline/name` elsewhere.
pub(crate) fn short(address: &Address, home: &Name) -> String {
    if address.pipeline == *home { address.name.to_string() } else { address.to_string() }
}

/// Progress belongs to a step and an input, so each input must be unique.
fn taken_twice(from: &Reference, one: &SourceSpan, other: &SourceSpan) -> Diagnostic {
    let (first, second) = if one.span.start < other.span.start { (one, other) } else { (other, one) };
    let quoted = if from.secret { "the input named here".into() } else { format!("`{}`", from.as_written()) };
    Diagnostic::error_at(second, format!("the step reads {quoted} twice"))
        .related(first.clone(), "first here")
        .help("read it once; to process its jobs twice, pass them on to a queue by another step")
}

/// Resolves the names of one pipeline.
struct Resolver<'r> {
    home: &'r Name,
    catalog: &'r Catalog,
    diagnostics: &'r mut Vec<Diagnostic>,
}

impl Resolver<'_> {
    fn step<'d>(&mut self, pipeline: &'d PipelineDeclaration, step: &'d StepDeclaration) -> Wired<'d> {
        let mut inputs: Vec<(String, End)> = Vec::new();
        for (binding, from) in &step.inputs {
            let Some(end) = self.end(from) else { continue };
            if end.what == What::Sink {
                let words = "but a step must read a source or a queue";
                let _: Option<()> = self.refuse(from, words, "read the queue that the sink reads");
            } else if let Some((_, other)) = inputs.iter().find(|(_, other)| other.address == end.address) {
                self.diagnostics.push(taken_twice(from, &end.place, &other.place));
            } else if end.what == What::PushSource {
                inputs.push((binding.clone(), End { what: What::Queue, ..end }));
            } else {
                inputs.push((binding.clone(), end));
            }
        }
        let mut outputs = Vec::new();
        for (binding, to) in &step.to {
            let Some(end) = self.end(to) else { continue };
            if matches!(end.what, What::Source | What::PushSource) {
                let _: Option<()> = self.refuse(to, "so a step cannot write to it", "name a queue or a sink");
            } else {
                outputs.push((binding.clone(), end));
            }
        }
        let target = step.errors.as_ref();
        let errors = target.and_then(ErrorTarget::queue).and_then(|errors| self.error_queue(errors));
        let drops_errors = matches!(target.or(pipeline.errors.as_ref()), Some(ErrorTarget::Drop));
        let events = step.events.as_ref().and_then(|events| self.event_queue(events));
        Wired { pipeline, step, inputs, outputs, errors, drops_errors, events, looks_up: Vec::new() }
    }

    fn error_queue(&mut self, errors: &Reference) -> Option<End> {
        let end = self.end(errors)?;
        if end.what == What::Queue {
            return Some(end);
        }
        let help = "name a queue; a sink can read it with `from`";
        self.refuse(errors, "but `errors` must be a queue", help)
    }

    fn event_queue(&mut self, events: &Reference) -> Option<End> {
        let end = self.end(events)?;
        if end.what == What::Queue {
            return Some(end);
        }
        let help = "name a queue; a sink can read it with `from`";
        self.refuse(events, "but `events` must be a queue", help)
    }

    fn table_queue(&mut self, queue: &Reference) -> Option<End> {
        let end = self.end(queue)?;
        match end.what {
            What::Queue | What::PushSource => Some(End { what: What::Queue, ..end }),
            What::Source => {
                let words = "but a table needs a queue, which keeps its jobs";
                let help = "pass its jobs on to a queue by a step, and name that queue";
                self.refuse(queue, words, help)
            }
            What::Sink => {
                let words = "but a table must read a queue";
                self.refuse(queue, words, "read the queue that the sink reads")
            }
        }
    }

    /// The target of a name; reports a missing pipeline.
    fn end(&mut self, reference: &Reference) -> Option<End> {
        let address = reference.address(self.home);
        if !self.catalog.pipelines.contains_key(&address.pipeline) {
            let known =
                self.catalog.pipelines.iter().filter(|(_, shown)| **shown).map(|(name, _)| name.as_str());
            let (what, help) = if reference.secret {
                ("the pipeline named here".into(), None)
            } else {
                (format!("pipeline `{}`", address.pipeline), did_you_mean(address.pipeline.as_str(), known))
            };
            let message = format!("{what} is unknown");
            self.diagnostics.push(Diagnostic::error_at(&reference.place, message).help_if(help));
            return None;
        }
        let what = self.catalog.names.get(&address).map_or(What::Queue, |(what, _)| *what);
        Some(End { what, address, place: reference.place.clone() })
    }

    /// Reports a target of a wrong kind.
    fn refuse<T>(&mut self, reference: &Reference, words: &str, help: &str) -> Option<T> {
        let address = reference.address(self.home);
        let (what, declared) = self.catalog.names.get(&address)?;
        let quoted =
            if reference.secret { "this".into() } else { format!("`{}`", short(&address, self.home)) };
        let diagnostic =
            Diagnostic::error_at(&reference.place, format!("{quoted} is a {}, {words}", what.as_str()));
        self.diagnostics.push(diagnostic.related(declared.clone(), "declared here").help(help));
        None
    }
}
