//! Effects of a plan: sentences with the numbers of the jobs that they concern.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{PartKind, Plan, PlanAction, PlanState, StepRemains};
use crate::digest::{ConfigurationDigest, QueueAspect, SinkAspect, StepAspect, StepDigest};
use tidegate_model::suggest::did_you_mean;
use tidegate_model::{Address, Name, NamedKind, PartNames, RenamedPart, grouped};

/// Adds the effects to the changes, and the parts that only the changes of others affect.
pub(super) fn add(plan: &mut Plan, old: &ConfigurationDigest, new: &ConfigurationDigest, state: &PlanState) {
    let none = StepRemains::default();
    let renamed = new.former.renames(&new.part_names(), &old.part_names(), &state.known);
    for change in &mut plan.changes {
        let Some(address) = Address::parse(&change.name) else { continue };
        if let Some(effect) = moved(change.kind, &address, &renamed, state) {
            change.effects.push(effect);
            let hashes = new_hashes(change.kind, &address, &renamed, state);
            change.effects.extend(hashes.map(str::to_owned));
            continue;
        }
        change.effects.extend(match change.kind {
            PartKind::Step => {
                let remains = state.steps.get(&address).unwrap_or(&none);
                let was = old.steps.get(&address).map(Arc::as_ref);
                let is = new.steps.get(&address).map(Arc::as_ref);
                let mut effects = step((was, is), remains, &renamed, state);
                effects
                    .extend(was.into_iter().flat_map(|was| left_waiting((was, is), new, remains, &renamed)));
                effects
            }
            PartKind::Queue => queue(&address, (old, new), state),
            PartKind::Source if change.action == PlanAction::Change => {
                vec!["it is opened again, and its steps continue at their progress".to_owned()]
            }
            PartKind::Sink => sink(&address, old, new),
            _ => Vec::new(),
        });
    }
    let gates = plan.changes.iter_mut().filter(|change| change.kind == PartKind::Gate);
    for change in gates.filter(|change| change.action == PlanAction::Change) {
        change.effects.push("its steps start nothing until the new gate has answered".to_owned());
    }
    for pipeline in plan.changes.iter_mut().filter(|change| change.kind == PartKind::Pipeline) {
        pipeline.effects.extend(pipeline_moves(&pipeline.name, new, &renamed));
    }
    plan.notes = without_effect((old, new), &renamed, &state.known).map(|(note, _)| note).collect();
    left_behind(plan, (old, new), &renamed, state);
    unread(plan, (old, new), &renamed, state);
}

/// Each `was` of a new part that moves nothing: it may be misspelt. The part begins anew.
pub(super) fn misspelt(
    old: &ConfigurationDigest,
    new: &ConfigurationDigest,
    known: &PartNames,
) -> impl Iterator<Item = String> {
    let renamed = new.former.renames(&new.part_names(), &old.part_names(), known);
    let notes: Vec<(String, bool)> = without_effect((old, new), &renamed, known).collect();
    notes.into_iter().filter(|(_, begins_anew)| *begins_anew).map(|(note, _)| note)
}

/// Each `was` that moves nothing, or nothing any more, and whether its part begins anew.
fn without_effect<'d>(
    (old, new): (&'d ConfigurationDigest, &'d ConfigurationDigest),
    renamed: &'d [RenamedPart],
    known: &'d PartNames,
) -> impl Iterator<Item = (String, bool)> {
    let (before, after) = (old.part_names(), new.part_names());
    let is_moved = |to: &Name, was: &Name| {
        renamed.iter().any(|part| part.to.pipeline == *to && part.from.pipeline == *was)
    };
    let pipelines = new.former.pipelines.iter().filter(move |(to, was)| !is_moved(to, was));
    let pipelines = pipelines.map(|(to, was)| {
        let begins_anew = !old.pipelines.contains(to) && !known.all().any(|(_, part)| part.pipeline == *to);
        let removed = old.pipelines.iter().filter(|name| !new.pipelines.contains(*name)).map(Name::as_str);
        let fix = fix(begins_anew, was.as_str(), removed);
        let note = format!(
            "`was = \"{was}\"` of pipeline `{to}` has no effect: nothing of `{was}` is left to move{fix}"
        );
        (note, begins_anew)
    });
    let steps = new.former.steps.iter().map(|(to, was)| (NamedKind::Step, to, was));
    let endpoints = new.former.endpoints.iter().map(|(to, was)| (NamedKind::Endpoint, to, was));
    let is_moved =
        |kind: NamedKind, to: &Address| renamed.iter().any(|part| part.kind == kind && part.to == *to);
    let parts = steps.chain(endpoints).filter(move |(kind, to, _)| !is_moved(*kind, to));
    let parts = parts.map(move |(kind, to, was)| {
        let what = match kind {
            NamedKind::Step => "step",
            NamedKind::Endpoint if new.sources.contains_key(to) => "source",
            NamedKind::Endpoint => "queue",
        };
        let begins_anew = !before.has(kind, to) && !known.has(kind, to);
        let removed = before.all().filter(|(other, name)| *other == kind && !after.has(kind, name));
        let removed: Vec<String> = removed.map(|(_, name)| name.to_string()).collect();
        let fix = fix(begins_anew, &was.to_string(), removed.iter().map(String::as_str));
        let why = if begins_anew {
            format!("nothing of `{was}` is left to move")
        } else {
            format!("the {what} is known by its name already")
        };
        (format!("`was = \"{}\"` of {what} `{to}` has no effect: {why}{fix}", was.name), begins_anew)
    });
    pipelines.chain(parts)
}

/// The fix of a `was` without effect. `removed`: the parts that may be meant.
fn fix<'a>(begins_anew: bool, was: &str, removed: impl Iterator<Item = &'a str>) -> String {
    if !begins_anew {
        return "; remove `was`".to_owned();
    }
    match did_you_mean(was, removed) {
        Some(help) => format!(", so it begins anew; {help}"),
        None => ", so it begins anew; correct the name, or remove `was`".to_owned(),
    }
}

/// The effect of a pipeline that takes over from another one, or that another one replaces.
fn pipeline_moves(name: &str, new: &ConfigurationDigest, renamed: &[RenamedPart]) -> Option<String> {
    let moves = |to: &Name, from: &Name| {
        renamed.iter().any(|part| part.to.pipeline == *to && part.from.pipeline == *from)
    };
    let (to, from) = new
        .former
        .pipelines
        .iter()
        .find(|(to, from)| (to.as_str() == name || from.as_str() == name) && moves(to, from))?;
    Some(if to.as_str() == name {
        format!("takes over the steps, queues and sources of `{from}`")
    } else {
        format!("its steps, queues and sources move to `{to}`")
    })
}

/// Queues of a renamed pipeline that no configuration has: they follow it.
fn left_behind(
    plan: &mut Plan,
    (old, new): (&ConfigurationDigest, &ConfigurationDigest),
    renamed: &[RenamedPart],
    state: &PlanState,
) {
    for RenamedPart { kind, from, to } in renamed {
        let jobs = state.queues.get(from).copied().unwrap_or(0);
        if *kind == NamedKind::Endpoint
            && jobs > 0
            && !old.queues.contains_key(from)
            && !new.queues.contains_key(to)
        {
            let effect = format!("its {} move to `{to}`", count(jobs, "job"));
            plan.push(PartKind::Queue, from.to_string(), PlanAction::Affect).effects.push(effect);
        }
    }
}

/// Queues with jobs that lose their last reader, and do not change themselves.
fn unread(
    plan: &mut Plan,
    (old, new): (&ConfigurationDigest, &ConfigurationDigest),
    renamed: &[RenamedPart],
    state: &PlanState,
) {
    let (mut before, after) = (readers(old), readers(new));
    // The readers of a queue that takes over from another one follow it.
    before.retain(|queue| renamed.iter().all(|part| part.from != *queue));
    for queue in before.iter().filter(|queue| !after.contains(queue) && new.queues.contains_key(queue)) {
        let jobs = state.queues.get(queue).copied().unwrap_or(0);
        if jobs == 0 {
            continue;
        }
        let effect = format!("no step reads it any more; it keeps {}", count(jobs, "job"));
        let name = queue.to_string();
        let known = plan.changes.iter_mut().find(|part| part.kind == PartKind::Queue && part.name == name);
        match known {
            Some(part) => part.effects.push(effect),
            None => plan.push(PartKind::Queue, name, PlanAction::Affect).effects.push(effect),
        }
    }
}

fn readers(configuration: &ConfigurationDigest) -> BTreeSet<Address> {
    configuration.steps.values().flat_map(|step| step.inputs()).collect()
}

fn queue(
    address: &Address,
    (old, new): (&ConfigurationDigest, &ConfigurationDigest),
    state: &PlanState,
) -> Vec<String> {
    let jobs = state.queues.get(address).copied().unwrap_or(0);
    match (old.queues.get(address), new.queues.get(address)) {
        (Some(_), None) if jobs > 0 => {
            vec![format!("orphaned with {}, until `tidegate queue drop {address}`", count(jobs, "job"))]
        }
        (None, Some(_)) if jobs > 0 => {
            vec![format!("it has {} from an earlier configuration", count(jobs, "job"))]
        }
        (Some(old), Some(new)) => {
            let aspects = old.differing(new);
            let mut effects = Vec::new();
            if aspects.contains(&QueueAspect::Retention) && jobs > 0 {
                effects.push(match new.shown("retain") {
                    Some("consumed") if jobs == 1 => {
                        "deletes its job at the next commit, unless a step waits for it".to_owned()
                    }
                    Some("consumed") => format!(
                        "deletes those of its {} at the next commit that no step waits for",
                        count(jobs, "job")
                    ),
                    _ => format!("the new rule applies to its {} at the next commit", count(jobs, "job")),
                });
            }
            if aspects.contains(&QueueAspect::Meta) {
                effects.push("jobs receive the new provenance when they are read, old jobs too".to_owned());
            }
            effects
        }
        _ => Vec::new(),
    }
}

fn sink(address: &Address, old: &ConfigurationDigest, new: &ConfigurationDigest) -> Vec<String> {
    let (Some(old), Some(new)) = (old.sinks.get(address), new.sinks.get(address)) else { return Vec::new() };
    match (old.shown("path"), new.shown("path")) {
        (Some(was), Some(is)) if old.differing(new).contains(&SinkAspect::Target) => {
            vec![format!("lines go to `{is}` from then on, and `{was}` stays as it is")]
        }
        _ => Vec::new(),
    }
}

/// The effect of a part that takes over from another one, or that another one replaces.
fn moved(kind: PartKind, address: &Address, renamed: &[RenamedPart], state: &PlanState) -> Option<String> {
    let named = match kind {
        PartKind::Step => NamedKind::Step,
        PartKind::Queue | PartKind::Source | PartKind::Sink => NamedKind::Endpoint,
        PartKind::Runner | PartKind::Pipeline | PartKind::Gate => return None,
    };
    let mut parts = renamed.iter().filter(|part| part.kind == named);
    let RenamedPart { from, to, .. } = parts.find(|part| part.to == *address || part.from == *address)?;
    let remains = state.steps.get(from);
    let parked = remains.map_or(0, |remains| remains.delayed + remains.pending);
    let jobs = state.queues.get(from).copied().unwrap_or(0);
    Some(match (kind, from == address) {
        (PartKind::Step, true) => format!("its progress and its parked jobs move to `{to}`"),
        (PartKind::Step, false) => {
            let with =
                if parked > 0 { format!(" and {}", count(parked, "parked job")) } else { String::new() };
            format!("takes over the progress{with} of `{from}`")
        }
        (PartKind::Queue, true) => {
            format!("its {} and the progress of its readers move to `{to}`", count(jobs, "job"))
        }
        (PartKind::Queue, false) => {
            format!("takes over {} and the progress of the readers of `{from}`", count(jobs, "job"))
        }
        (PartKind::Source, true) => format!("its position and the progress of its readers move to `{to}`"),
        (PartKind::Source, false) => {
            format!("takes over the position and the progress of the readers of `{from}`")
        }
        (_, true) => format!("its position moves to `{to}`"),
        (_, false) => format!("takes over the position of `{from}`"),
    })
}

/// Effect of another name on the parked jobs of a step.
fn new_hashes(
    kind: PartKind,
    address: &Address,
    renamed: &[RenamedPart],
    state: &PlanState,
) -> Option<&'static str> {
    let was = renamed.iter().find(|part| part.kind == NamedKind::Step && part.to == *address)?;
    let remains = state.steps.get(&was.from)?;
    let parked = kind == PartKind::Step && remains.delayed + remains.pending > 0;
    parked.then_some(
        "parked jobs have another idempotency key in their next attempts, and tokens from before are refused",
    )
}

fn step(
    (old, new): (Option<&StepDigest>, Option<&StepDigest>),
    remains: &StepRemains,
    renamed: &[RenamedPart],
    state: &PlanState,
) -> Vec<String> {
    match (old, new) {
        (None, Some(new)) => added(new, remains, renamed, state),
        (Some(_), None) => removed(remains),
        (Some(old), Some(new)) => changed((old, new), remains, renamed, state),
        (None, None) => Vec::new(),
    }
}

fn added(new: &StepDigest, remains: &StepRemains, renamed: &[RenamedPart], state: &PlanState) -> Vec<String> {
    let mut effects: Vec<String> =
        new.inputs().iter().map(|input| beginning(new, input, (remains, renamed), state)).collect();
    let parked = remains.delayed + remains.pending;
    if parked > 0 {
        effects.push(format!("takes up {} of an earlier step of this name", count(parked, "parked job")));
    }
    effects
}

/// Jobs that wait for a step on queues that it does not read any more, and that others read. Retention does not keep
/// them for it.
fn left_waiting(
    (was, is): (&StepDigest, Option<&StepDigest>),
    new: &ConfigurationDigest,
    remains: &StepRemains,
    renamed: &[RenamedPart],
) -> Vec<String> {
    let still_read = is.map(StepDigest::inputs).unwrap_or_default();
    let mut effects = Vec::new();
    for input in was.inputs() {
        let waiting = remains.inputs.get(&input).copied().flatten().unwrap_or(0);
        let queue = moved_to(&input, renamed).unwrap_or(&input);
        let deletes = new.queues.get(queue).is_some_and(|queue| queue.shown("retain") == Some("consumed"));
        let is_read = new.steps.values().any(|step| step.inputs().contains(queue));
        if waiting > 0 && deletes && is_read && !still_read.contains(queue) {
            let (verb, is) = if waiting == 1 { ("waits", "is") } else { ("wait", "are") };
            effects.push(format!(
                "{} {verb} for it on `{queue}`, and {is} deleted when all other steps of the queue are past them",
                count(waiting, "job")
            ));
        }
    }
    effects
}

/// The first job of an input that is new to a step.
fn beginning(
    new: &StepDigest,
    input: &Address,
    (remains, renamed): (&StepRemains, &[RenamedPart]),
    state: &PlanState,
) -> String {
    // Progress moves with a renamed input.
    let mut endpoints = renamed.iter().filter(|part| part.kind == NamedKind::Endpoint);
    let stored = endpoints.find(|part| part.to == *input).map_or(input, |part| &part.from);
    if let Some(waiting) = remains.inputs.get(stored) {
        let waits = waiting.map(|jobs| format!(": {} waiting", count(jobs, "job"))).unwrap_or_default();
        return format!("continues on `{input}` at its kept progress{waits}");
    }
    match new.shown("begin_at") {
        Some("newest") => format!("begins at the next job of `{input}`"),
        Some("oldest") | None => {
            let jobs = state.queues.get(stored).map(|jobs| format!(": {}", count(*jobs, "job")));
            format!("begins at the oldest job of `{input}`{}", jobs.unwrap_or_default())
        }
        Some(index) => format!("begins at job {index} of `{input}`"),
    }
}

fn removed(remains: &StepRemains) -> Vec<String> {
    let mut effects = Vec::new();
    if !remains.inputs.is_empty() {
        effects.push("keeps its progress for a step of this name".to_owned());
    }
    for (jobs, what) in [(remains.delayed, "delayed job"), (remains.pending, "pending job")] {
        if jobs > 0 {
            effects.push(format!("keeps {} for a step of this name", count(jobs, what)));
        }
    }
    effects
}

fn changed(
    (old, new): (&StepDigest, &StepDigest),
    remains: &StepRemains,
    renamed: &[RenamedPart],
    state: &PlanState,
) -> Vec<String> {
    let aspects = old.differing(new);
    let has = |aspect| aspects.contains(&aspect);
    let waiting: u64 = remains.inputs.values().flatten().sum();
    let mut effects = Vec::new();
    if has(StepAspect::Inputs) {
        effects.extend(rewired((old, new), remains, renamed, state));
    }
    if has(StepAspect::BeginAt) && new.inputs().iter().all(|input| remains.inputs.contains_key(input)) {
        effects.push("`begin_at` has no effect: the step has begun".to_owned());
    }
    if has(StepAspect::Program) || has(StepAspect::Config) {
        effects.push("takes effect at the next batch; running jobs finish with the old one".to_owned());
    }
    if has(StepAspect::Outputs) {
        effects.extend(left_on_outputs((old, new), renamed, state));
    }
    if has(StepAspect::Errors)
        && let Some(queue) = old.shown("errors").and_then(Address::parse)
        && moved_to(&queue, renamed).is_none()
        && let Some(&jobs) = state.queues.get(&queue).filter(|&&jobs| jobs > 0)
    {
        effects.push(format!("`{queue}` keeps {}", count(jobs, "error")));
    }
    if has(StepAspect::JoinKey) && remains.delayed > 0 {
        let jobs = count(remains.delayed, "job");
        effects.push(format!("{jobs} without a partner will be paired by the new key"));
    }
    if has(StepAspect::JoinLimits) && old.shown("within") != new.shown("within") && remains.delayed > 0 {
        let jobs = count(remains.delayed, "job");
        effects.push(format!("{jobs} without a partner will keep the time of the old `within`"));
    }
    if has(StepAspect::Retry) && remains.delayed > 0 {
        effects.push(format!("{} will use the new retry policy", count(remains.delayed, "delayed job")));
    }
    if has(StepAspect::Queuer) && waiting > 0 {
        // A step without a queuer has no such key.
        let lane = old.shown("queuer.lane").unwrap_or("none") != new.shown("queuer.lane").unwrap_or("none");
        let what = if lane { "lane" } else { "order" };
        let verb = if waiting == 1 { "is" } else { "are" };
        effects.push(format!("{what} changed: {} {verb} sorted anew", count(waiting, "waiting job")));
    }
    if has(StepAspect::Monitor) && remains.pending > 0 {
        let pending = count(remains.pending, "pending job");
        effects.push(match new.shown("monitor") {
            Some("none") => format!("no monitor asks about {pending} any more"),
            _ => format!("the new monitor asks about {pending}"),
        });
    }
    effects
}

fn rewired(
    (old, new): (&StepDigest, &StepDigest),
    remains: &StepRemains,
    renamed: &[RenamedPart],
    state: &PlanState,
) -> Vec<String> {
    let (before, after) = (old.inputs(), new.inputs());
    let before: BTreeSet<Address> =
        before.into_iter().map(|input| moved_to(&input, renamed).cloned().unwrap_or(input)).collect();
    let left =
        before.difference(&after).map(|input| format!("its progress on `{input}` is kept and not used"));
    let joined = after.difference(&before).map(|input| beginning(new, input, (remains, renamed), state));
    left.chain(joined).collect()
}

/// Jobs on queues that the step no longer delivers to.
fn left_on_outputs(
    (old, new): (&StepDigest, &StepDigest),
    renamed: &[RenamedPart],
    state: &PlanState,
) -> Vec<String> {
    let targets = |step: &StepDigest| -> BTreeSet<Address> {
        step.texts(StepAspect::Outputs).filter_map(Address::parse).collect()
    };
    let jobs: &BTreeMap<Address, u64> = &state.queues;
    let (before, after) = (targets(old), targets(new));
    let left = before.difference(&after).filter_map(|queue| Some((queue, jobs.get(queue)?)));
    left.filter(|(queue, jobs)| **jobs > 0 && moved_to(queue, renamed).is_none())
        .map(|(queue, &jobs)| format!("`{queue}` keeps {}", count(jobs, "job")))
        .collect()
}

/// The new address of a queue or source.
fn moved_to<'r>(address: &Address, renamed: &'r [RenamedPart]) -> Option<&'r Address> {
    let mut endpoints = renamed.iter().filter(|part| part.kind == NamedKind::Endpoint);
    endpoints.find(|part| part.from == *address).map(|part| &part.to)
}

/// `1 job`, `1,204 jobs`.
fn count(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {what}{plural}", grouped(number))
}
