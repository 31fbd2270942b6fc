//! Effects of a plan: sentences with the numbers of the jobs that they concern.

use std::collections::{BTreeMap, BTreeSet};

use super::{PartKind, Plan, PlanAction, PlanState, StepRemains, inputs};
use crate::digest::{ConfigurationDigest, QueueAspect, SinkAspect, StepAspect, StepDigest};
use tidegate_model::{Address, grouped};

/// Adds the effects to the changes, and the parts that only the changes of others affect.
pub(super) fn add(plan: &mut Plan, old: &ConfigurationDigest, new: &ConfigurationDigest, state: &PlanState) {
    let none = StepRemains::default();
    for change in &mut plan.changes {
        let Some(address) = Address::parse(&change.name) else { continue };
        change.effects.extend(match change.kind {
            PartKind::Step => {
                let remains = state.steps.get(&address).unwrap_or(&none);
                let steps = (old.steps.get(&address), new.steps.get(&address));
                match renamed(&address, (old, new), state) {
                    Some(effects) => effects,
                    None => step(steps, remains, state),
                }
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
    unread(plan, (old, new), state);
}

/// Queues with jobs that lose their last reader, and do not change themselves.
fn unread(plan: &mut Plan, (old, new): (&ConfigurationDigest, &ConfigurationDigest), state: &PlanState) {
    let (before, after) = (readers(old), readers(new));
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
    configuration.steps.values().flat_map(inputs).collect()
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
                let what = format!("the new rule applies to its {} at the next commit", count(jobs, "job"));
                effects.push(what);
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

/// The effects of a step that takes over from another one, or that another one replaces.
fn renamed(
    address: &Address,
    (old, new): (&ConfigurationDigest, &ConfigurationDigest),
    state: &PlanState,
) -> Option<Vec<String>> {
    let moves = |from: &Address, to: &Address| {
        let is_new = state.steps.get(to).is_none_or(|remains| remains.inputs.is_empty());
        is_new && old.steps.contains_key(from) && !old.steps.contains_key(to) && new.steps.contains_key(to)
    };
    if let Some(from) = new.renamed.get(address).filter(|from| moves(from, address)) {
        let remains = state.steps.get(from).cloned().unwrap_or_default();
        let parked = remains.delayed + remains.pending;
        let with = if parked > 0 { format!(" and {}", count(parked, "parked job")) } else { String::new() };
        return Some(vec![format!("takes over the progress{with} of `{from}`")]);
    }
    let to = new.renamed.iter().find(|(to, from)| *from == address && moves(from, to)).map(|(to, _)| to)?;
    Some(vec![format!("its progress and its parked jobs move to `{to}`")])
}

fn step(
    (old, new): (Option<&StepDigest>, Option<&StepDigest>),
    remains: &StepRemains,
    state: &PlanState,
) -> Vec<String> {
    match (old, new) {
        (None, Some(new)) => added(new, remains, state),
        (Some(_), None) => removed(remains),
        (Some(old), Some(new)) => changed(old, new, remains, state),
        (None, None) => Vec::new(),
    }
}

fn added(new: &StepDigest, remains: &StepRemains, state: &PlanState) -> Vec<String> {
    let mut effects: Vec<String> =
        inputs(new).iter().map(|input| beginning(new, input, remains, state)).collect();
    let parked = remains.delayed + remains.pending;
    if parked > 0 {
        effects.push(format!("takes up {} of an earlier step of this name", count(parked, "parked job")));
    }
    effects
}

/// The first job of an input that is new to a step.
fn beginning(new: &StepDigest, input: &Address, remains: &StepRemains, state: &PlanState) -> String {
    if let Some(waiting) = remains.inputs.get(input) {
        let waits = waiting.map(|jobs| format!(": {} waiting", count(jobs, "job"))).unwrap_or_default();
        return format!("continues on `{input}` at its kept progress{waits}");
    }
    match new.shown("begin_at") {
        Some("newest") => format!("begins at the next job of `{input}`"),
        Some("oldest") | None => {
            let jobs = state.queues.get(input).map(|jobs| format!(": {}", count(*jobs, "job")));
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

fn changed(old: &StepDigest, new: &StepDigest, remains: &StepRemains, state: &PlanState) -> Vec<String> {
    let aspects = old.differing(new);
    let has = |aspect| aspects.contains(&aspect);
    let waiting: u64 = remains.inputs.values().flatten().sum();
    let mut effects = Vec::new();
    if has(StepAspect::Inputs) {
        effects.extend(rewired(old, new, remains, state));
    }
    if has(StepAspect::BeginAt) && inputs(new).iter().all(|input| remains.inputs.contains_key(input)) {
        effects.push("`begin_at` has no effect: the step has begun".to_owned());
    }
    if has(StepAspect::Program) || has(StepAspect::Config) {
        effects.push("takes effect at the next batch; running jobs finish with the old one".to_owned());
    }
    if has(StepAspect::Outputs) {
        effects.extend(left_on_outputs(old, new, state));
    }
    if has(StepAspect::Errors)
        && let Some(queue) = old.shown("errors").and_then(Address::parse)
        && let Some(&jobs) = state.queues.get(&queue).filter(|&&jobs| jobs > 0)
    {
        effects.push(format!("`{queue}` keeps {}", count(jobs, "error")));
    }
    if has(StepAspect::Retry) && remains.delayed > 0 {
        effects.push(format!("{} will use the new retry policy", count(remains.delayed, "delayed job")));
    }
    if has(StepAspect::Queuer) && waiting > 0 {
        let lane = old.shown("queuer.lane") != new.shown("queuer.lane");
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

fn rewired(old: &StepDigest, new: &StepDigest, remains: &StepRemains, state: &PlanState) -> Vec<String> {
    let (before, after) = (inputs(old), inputs(new));
    let left =
        before.difference(&after).map(|input| format!("its progress on `{input}` is kept and not used"));
    let joined = after.difference(&before).map(|input| beginning(new, input, remains, state));
    left.chain(joined).collect()
}

/// Jobs on queues that the step no longer delivers to.
fn left_on_outputs(old: &StepDigest, new: &StepDigest, state: &PlanState) -> Vec<String> {
    let targets = |step: &StepDigest| -> BTreeSet<Address> {
        step.texts(StepAspect::Outputs).filter_map(Address::parse).collect()
    };
    let jobs: &BTreeMap<Address, u64> = &state.queues;
    let (before, after) = (targets(old), targets(new));
    let left = before.difference(&after).filter_map(|queue| Some((queue, jobs.get(queue)?)));
    left.filter(|(_, jobs)| **jobs > 0)
        .map(|(queue, &jobs)| format!("`{queue}` keeps {}", count(jobs, "job")))
        .collect()
}

/// `1 job`, `1,204 jobs`.
fn count(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {what}{plural}", grouped(number))
}
