//! `Graph`: finds the problems of the graph as a whole, which are cycles and unconnected names.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::catalog::{Catalog, What};
use super::resolve::{End, Wired, Wiring, short};
use crate::diagnostic::{Diagnostic, SourceSpan};
use crate::model::InputMode;
use crate::sections::pipeline::PipelineDeclaration;
use tidegate_model::suggest::nearest;
use tidegate_model::{Address, Name};

/// The connections of steps. Edges that lead back through a queue with `allow_cycle` are left out.
#[derive(Debug)]
pub(crate) struct Graph<'g, 'd> {
    wiring: &'g Wiring<'d>,
    next: Vec<Edges<'g>>,
}

/// The steps after one step, as positions in the wiring, each with the queue between.
type Edges<'g> = Vec<(usize, &'g Address)>;

impl<'g, 'd> Graph<'g, 'd> {
    pub(crate) fn of(pipelines: &[Arc<PipelineDeclaration>], wiring: &'g Wiring<'d>) -> Self {
        let mut free = BTreeSet::new();
        for pipeline in pipelines {
            for queue in pipeline.queues.iter().filter(|queue| queue.allow_cycle) {
                free.insert(Address::new(pipeline.name.clone(), queue.name.value.clone()));
            }
        }
        let all = edges(wiring);
        let leads_back = |from: usize, to: usize| from == to || reach(&all, to).contains_key(&from);
        let next = all.iter().enumerate().map(|(from, edges)| {
            let stays =
                |&&(to, queue): &&(usize, &'g Address)| !free.contains(queue) || !leads_back(from, to);
            edges.iter().filter(stays).copied().collect()
        });
        Self { wiring, next: next.collect() }
    }

    /// The steps in topological order, and by address if that is open. The steps of a cycle, which is an
    /// error, are missing.
    pub(crate) fn order(&self) -> Vec<usize> {
        let mut before = vec![0_usize; self.next.len()];
        for &(step, _) in self.next.iter().flatten() {
            before[step] += 1;
        }
        let mut ready: BTreeSet<usize> = (0..before.len()).filter(|&step| before[step] == 0).collect();
        let mut order = Vec::new();
        while let Some(step) = ready.pop_first() {
            order.push(step);
            for &(after, _) in &self.next[step] {
                before[after] -= 1;
                if before[after] == 0 {
                    ready.insert(after);
                }
            }
        }
        order
    }

    /// An error for every cycle that shares no step with another one.
    pub(crate) fn cycles(&self) -> Vec<Diagnostic> {
        let mut reported = BTreeSet::new();
        let sorted: BTreeSet<usize> = self.order().into_iter().collect();
        let mut diagnostics = Vec::new();
        for start in (0..self.next.len()).filter(|step| !sorted.contains(step)) {
            if reported.contains(&start) {
                continue;
            }
            if let Some(cycle) = self.cycle_through(start) {
                if cycle.iter().all(|(step, _)| !reported.contains(step)) {
                    diagnostics.push(self.describe(&cycle));
                }
                reported.extend(cycle.iter().map(|(step, _)| *step));
            }
        }
        diagnostics
    }

    /// The shortest path from `start` to itself: each step with the queue that leads into it.
    fn cycle_through(&self, start: usize) -> Option<Vec<(usize, &'g Address)>> {
        let came_from = reach(&self.next, start);
        let mut cycle = Vec::new();
        let mut step = start;
        loop {
            let &(before, queue) = came_from.get(&step)?;
            cycle.push((step, queue));
            step = before;
            if step == start {
                cycle.reverse();
                return Some(cycle);
            }
        }
    }

    fn describe(&self, cycle: &[(usize, &Address)]) -> Diagnostic {
        // It starts at its first queue, so that the message does not depend on the search.
        let first = (0..cycle.len()).min_by_key(|&at| cycle[at].1).unwrap_or(0);
        let turned: Vec<_> = cycle[first..].iter().chain(&cycle[..first]).collect();
        let closing = &self.wiring.steps[turned[turned.len() - 1].0];
        let home = &closing.pipeline.name;
        let queue = |address: &Address| {
            if self.wiring.is_secret(address) { "…".into() } else { short(address, home) }
        };
        let mut way: String = turned
            .iter()
            .flat_map(|(step, address)| {
                let step = short(&self.wiring.steps[*step].address(), home);
                [queue(address), " → step ".into(), step, " → ".into()]
            })
            .collect();
        way += &queue(turned[0].1);
        let back = closing.gives().find(|end| end.address == *turned[0].1);
        let place = back.map_or(&closing.step.name.place, |end| &end.place);
        let allowed = if self.wiring.is_secret(turned[0].1) { "NAME" } else { turned[0].1.name.as_str() };
        let elsewhere = &turned[0].1.pipeline;
        let file = if elsewhere == home { String::new() } else { format!(" in the pipeline `{elsewhere}`") };
        Diagnostic::error_at(place, format!("the graph has a cycle: `{way}`")).label("leads back").help(
            format!("if the cycle is intended, declare it: `[queue.{allowed}] allow_cycle = true`{file}"),
        )
    }
}

/// The connections of steps, in the order of the wiring.
fn edges<'g>(wiring: &'g Wiring<'_>) -> Vec<Edges<'g>> {
    let mut readers: BTreeMap<&Address, Vec<usize>> = BTreeMap::new();
    for (position, wired) in wiring.steps.iter().enumerate() {
        for input in wired.takes().filter(|input| input.what == What::Queue) {
            readers.entry(&input.address).or_default().push(position);
        }
        for queue in &wired.looks_up {
            readers.entry(queue).or_default().push(position);
        }
    }
    let mut all = Vec::new();
    for wired in &wiring.steps {
        let queues: BTreeSet<&Address> =
            wired.gives().filter(|end| end.what == What::Queue).map(|end| &end.address).collect();
        let mut edges = Vec::new();
        for queue in queues {
            edges.extend(readers.get(queue).into_iter().flatten().map(|&step| (step, queue)));
        }
        all.push(edges);
    }
    all
}

/// Every step that `start` reaches by the shortest path, with the step and the queue before it.
fn reach<'g>(next: &[Edges<'g>], start: usize) -> BTreeMap<usize, (usize, &'g Address)> {
    let mut came_from = BTreeMap::new();
    let mut waiting = VecDeque::from([start]);
    while let Some(step) = waiting.pop_front() {
        for &(after, queue) in &next[step] {
            came_from.entry(after).or_insert_with(|| {
                waiting.push_back(after);
                (step, queue)
            });
        }
    }
    came_from
}

/// The producers and consumers of one queue.
#[derive(Default)]
struct Traffic<'g> {
    declared: Option<&'g SourceSpan>,
    filled: Option<&'g SourceSpan>,
    read: Option<&'g SourceSpan>,
    /// Errors or events, which need no reader.
    holds_records: bool,
}

/// A warning for every unconnected name, with the nearest one.
pub(crate) fn loose_ends(catalog: &Catalog, wiring: &Wiring<'_>) -> Vec<Diagnostic> {
    let queues = traffic(catalog, wiring);
    let mut diagnostics = Vec::new();
    for (address, queue) in &queues {
        let name = wiring.quoted(address, &address.pipeline);
        let near = |wanted: &dyn Fn(What, Option<&Traffic<'_>>) -> bool, place| {
            if wiring.is_secret(address) {
                None
            } else {
                suggest(address, place, catalog, wiring, &queues, wanted)
            }
        };
        match (queue.filled, queue.read) {
            (None, Some(place)) => {
                let fills = |what, queue: Option<&Traffic<'_>>| {
                    matches!(what, What::Source | What::PushSource)
                        || queue.is_some_and(|queue| queue.filled.is_some())
                };
                let help = near(&fills, place);
                diagnostics.push(
                    Diagnostic::warning_at(place, format!("the queue {name} has no producer"))
                        .help(help.unwrap_or_else(|| "write to it with `to` in a step".into())),
                );
            }
            (Some(place), None) if !queue.holds_records => {
                let takes = |what, queue: Option<&Traffic<'_>>| {
                    what == What::Sink || queue.is_some_and(|queue| queue.read.is_some())
                };
                let help = near(&takes, place);
                diagnostics.push(
                    Diagnostic::warning_at(place, format!("the queue {name} has no reader"))
                        .help(help.unwrap_or_else(|| "read it with `from` in a step or a sink".into())),
                );
            }
            (None, None) => {
                let message = format!("the queue {name} has no producer and no reader");
                let used = |_, queue: Option<&Traffic<'_>>| {
                    queue.is_some_and(|queue| queue.filled.is_some() || queue.read.is_some())
                };
                diagnostics.extend(
                    queue
                        .declared
                        .map(|place| Diagnostic::warning_at(place, message).help_if(near(&used, place))),
                );
            }
            _ => {}
        }
    }
    diagnostics.extend(idle(catalog, wiring));
    diagnostics.extend(wiring.steps.iter().filter_map(|wired| mixed(wired, wiring)));
    diagnostics
}

/// An error for every queue of events that has other jobs: no reader could distinguish them.
pub(crate) fn mixed_events(wiring: &Wiring<'_>) -> Vec<Diagnostic> {
    let errors = wiring.steps.iter().filter_map(|wired| wired.errors.as_ref());
    let outputs = wiring.steps.iter().flat_map(|wired| wired.outputs.iter().map(|(_, end)| end));
    let others: BTreeMap<&Address, (&SourceSpan, &str)> = outputs
        .map(|end| (&end.address, (&end.place, "the results")))
        .chain(
            errors.chain(wiring.error_queues.values()).map(|end| (&end.address, (&end.place, "the errors"))),
        )
        .collect();
    let mixed = wiring.steps.iter().filter_map(|wired| {
        let events = wired.events.as_ref()?;
        let (place, what) = others.get(&events.address)?;
        let name = wiring.quoted(&events.address, &wired.pipeline.name);
        let of = what.strip_prefix("the ").unwrap_or(what);
        let message = format!("events and {of} share one queue, {name}");
        let diagnostic =
            Diagnostic::error_at(&events.place, message).help("use a separate queue for the events");
        Some(diagnostic.related((*place).clone(), *what))
    });
    mixed.collect()
}

fn traffic<'g>(catalog: &'g Catalog, wiring: &'g Wiring<'_>) -> BTreeMap<&'g Address, Traffic<'g>> {
    let mut queues: BTreeMap<&Address, Traffic<'_>> = BTreeMap::new();
    for (address, (what, place)) in &catalog.names {
        if *what == What::Queue {
            queues.entry(address).or_default().declared = Some(place);
        }
    }
    for wired in &wiring.steps {
        for end in wired.gives().filter(|end| end.what == What::Queue) {
            queues.entry(&end.address).or_default().filled.get_or_insert(&end.place);
        }
        for input in wired.takes().filter(|input| input.what == What::Queue) {
            queues.entry(&input.address).or_default().read.get_or_insert(&input.place);
        }
    }
    for table in &wiring.tables {
        queues.entry(&table.address).or_default().read.get_or_insert(&table.place);
    }
    for (address, (what, place)) in &catalog.names {
        // A pushed source without a reader is reported as a source.
        if *what == What::PushSource
            && let Some(queue) = queues.get_mut(address)
        {
            queue.filled = Some(place);
        }
    }
    let errors = wiring.steps.iter().filter_map(|wired| wired.errors.as_ref());
    let events = wiring.steps.iter().filter_map(|wired| wired.events.as_ref());
    for end in errors.chain(wiring.error_queues.values()).chain(events) {
        let queue = queues.entry(&end.address).or_default();
        queue.holds_records = true;
        queue.filled.get_or_insert(&end.place);
    }
    queues
}

/// A warning for every join with an input that is filled only by steps that wait for that input. Inputs
/// without a producer are reported elsewhere.
pub(crate) fn never_begin(catalog: &Catalog, wiring: &Wiring<'_>) -> Vec<Diagnostic> {
    let queues = traffic(catalog, wiring);
    let unfilled = queues.iter().filter(|(_, queue)| queue.filled.is_none());
    // Pushed sources are filled by clients.
    let pushed = catalog.names.iter().filter(|(_, (what, _))| *what == What::PushSource);
    let mut reached: BTreeSet<&Address> =
        unfilled.map(|(address, _)| *address).chain(pushed.map(|(address, _)| address)).collect();
    let comes =
        |reached: &BTreeSet<&Address>, end: &End| end.what == What::Source || reached.contains(&end.address);
    let mut waiting: Vec<&Wired<'_>> = wiring.steps.iter().collect();
    loop {
        let before = waiting.len();
        waiting.retain(|wired| {
            let begins = match wired.step.take {
                _ if wired.step.joins.is_some() => wired.takes().all(|end| comes(&reached, end)),
                InputMode::Join => wired.takes().all(|end| comes(&reached, end)),
                InputMode::From | InputMode::Alts => wired.takes().any(|end| comes(&reached, end)),
            };
            if begins {
                reached.extend(wired.gives().map(|end| &end.address));
            }
            !begins
        });
        if waiting.len() == before {
            break;
        }
    }
    let joins =
        waiting.into_iter().filter(|wired| wired.step.take == InputMode::Join || wired.step.joins.is_some());
    let stuck = joins.filter_map(|wired| {
        let input = wired.takes().find(|end| !comes(&reached, end))?;
        let queue = wiring.quoted(&input.address, &wired.pipeline.name);
        let step = wired.step.joins.as_ref().map_or(&wired.step.name.value, |join| &join.reader);
        let message =
            format!("the join `{step}` cannot start: the producer of the queue {queue} waits for it");
        let help = "add another producer of the queue, or push a first job to it with `tidegate queue push`";
        Some(Diagnostic::warning_at(&input.place, message).help(help))
    });
    stuck.collect()
}

/// A step whose results and errors share one queue, and cannot be distinguished there.
fn mixed(wired: &Wired<'_>, wiring: &Wiring<'_>) -> Option<Diagnostic> {
    let errors = wired.errors.as_ref()?;
    let (_, result) = wired.outputs.iter().find(|(_, end)| end.address == errors.address)?;
    let step = &wired.step.name.value;
    let name = wiring.quoted(&errors.address, &wired.pipeline.name);
    let message = format!("results and errors of the step `{step}` share one queue, {name}");
    let diagnostic =
        Diagnostic::warning_at(&result.place, message).help("use a separate queue for the errors");
    Some(diagnostic.related(errors.place.clone(), "the errors"))
}

/// Sources without a reader and sinks without a producer.
fn idle(catalog: &Catalog, wiring: &Wiring<'_>) -> Vec<Diagnostic> {
    let ends = |wired: &Wired<'_>| -> Vec<Address> {
        wired.gives().chain(wired.takes()).map(|end| end.address.clone()).collect()
    };
    let tables = wiring.tables.iter().map(|table| table.address.clone());
    let used: BTreeSet<Address> = wiring.steps.iter().flat_map(ends).chain(tables).collect();
    let mut diagnostics = Vec::new();
    for (address, (what, place)) in catalog.names.iter().filter(|(address, _)| !used.contains(address)) {
        let name = &address.name;
        let (message, help) = match what {
            What::Source | What::PushSource => {
                (format!("the source `{name}` has no reader"), "read it with `from` in a step")
            }
            What::Sink => {
                (format!("the sink `{name}` has no producer"), "give it a `from`, or name it in a `to`")
            }
            What::Queue => continue,
        };
        diagnostics.push(Diagnostic::warning_at(place, message).help(help));
    }
    diagnostics
}

/// The nearest of the `wanted` names, as written in the file of `place`.
fn suggest(
    address: &Address,
    place: &SourceSpan,
    catalog: &Catalog,
    wiring: &Wiring<'_>,
    queues: &BTreeMap<&Address, Traffic<'_>>,
    wanted: &dyn Fn(What, Option<&Traffic<'_>>) -> bool,
) -> Option<String> {
    let home = wiring.steps.iter().find(|wired| wired.pipeline.file == place.file)?;
    let home: &Name = &home.pipeline.name;
    let declared = catalog.names.iter().filter(|(_, (what, _))| *what != What::Queue);
    let declared = declared.map(|(address, (what, _))| (address, *what, None));
    let undeclared =
        |address: &Address| catalog.names.get(address).is_none_or(|(what, _)| *what == What::Queue);
    let queues = queues.iter().filter(|(address, _)| undeclared(address));
    let names = queues.map(|(address, queue)| (*address, What::Queue, Some(queue)));
    let names: Vec<String> = declared
        .chain(names)
        .filter(|(other, what, queue)| wanted(*what, *queue) && !wiring.is_secret(other))
        .map(|(other, ..)| short(other, home))
        .collect();
    let near = nearest(&short(address, home), names.iter().map(String::as_str))?;
    Some(format!("did you mean `{near}`?"))
}
