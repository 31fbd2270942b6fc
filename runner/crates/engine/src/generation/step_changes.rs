//! Step changes: how a step of one generation becomes the same step of the next one.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::batch::retry::before;
use crate::generation::current::NumberedGeneration;
use crate::step::declared::DeclaredStep;
use tidegate_config::{GateAspect, GateRef, Input, QueueAspect, SinkKind, StepAspect, Target};

/// Difference of a step between two generations, by what it takes to follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepDifference {
    None,
    /// The next batch runs in the new way.
    InPlace,
    /// The step delivers what it has begun, and starts anew from the store.
    Anew,
}

impl StepDifference {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Anew, _) | (_, Self::Anew) => Self::Anew,
            (Self::InPlace, _) | (_, Self::InPlace) => Self::InPlace,
            (Self::None, Self::None) => Self::None,
        }
    }
}

/// Difference between a step and itself in a later generation.
pub(crate) fn difference(old: &DeclaredStep, new: &DeclaredStep) -> StepDifference {
    if old.address != new.address {
        // It has the position of the step that it was.
        return StepDifference::Anew;
    }
    let (digest, next) = (&old.generation.digest, &new.generation.digest);
    let (Some(was), Some(is)) = (digest.steps.get(&old.address), next.steps.get(&new.address)) else {
        return StepDifference::Anew;
    };
    let step = was.differing(is).into_iter().map(of_aspect);
    step.chain(inputs(old, new))
        .chain(sinks(old, new))
        .chain([gate(old, new), behaviour(old, new)])
        .fold(StepDifference::None, StepDifference::and)
}

/// Positions of the steps that are new, changed or removed in a later generation.
pub(crate) fn changed_steps(
    earlier: &Arc<NumberedGeneration>,
    generation: &Arc<NumberedGeneration>,
) -> Vec<usize> {
    let (before, after) = (&earlier.configuration.steps, &generation.configuration.steps);
    let is_same = |position: usize| {
        let is_in_both = before.get(position).is_some() && after.get(position).is_some();
        let step = |of: &Arc<NumberedGeneration>| DeclaredStep::new(of, position);
        is_in_both && difference(&step(earlier), &step(generation)) == StepDifference::None
    };
    let positions: BTreeSet<usize> =
        before.entries().chain(after.entries()).map(|(position, _)| position).collect();
    positions.into_iter().filter(|&position| !is_same(position)).collect()
}

fn of_aspect(aspect: StepAspect) -> StepDifference {
    match aspect {
        StepAspect::BeginAt
        | StepAspect::Program
        | StepAspect::Config
        | StepAspect::Timeout
        | StepAspect::Limits
        | StepAspect::Isolate
        | StepAspect::Dedupe
        | StepAspect::CrashLimit
        | StepAspect::Retry => StepDifference::InPlace,
        StepAspect::Inputs
        | StepAspect::JoinKey
        | StepAspect::JoinLimits
        | StepAspect::Outputs
        | StepAspect::Errors
        | StepAspect::Events
        | StepAspect::Delivery
        | StepAspect::Queuer
        | StepAspect::QueuerLimits
        | StepAspect::Gate
        | StepAspect::Monitor => StepDifference::Anew,
    }
}

/// Differences of the sources of a step, and of the queues that a source fills.
fn inputs(old: &DeclaredStep, new: &DeclaredStep) -> impl Iterator<Item = StepDifference> {
    let (digest, next) = (&old.generation.digest, &new.generation.digest);
    let differ = new.inputs.iter().map(|input| match input.input {
        Input::Source(_) => digest.sources.get(&input.address) != next.sources.get(&input.address),
        Input::Queue(_) => match (digest.queues.get(&input.address), next.queues.get(&input.address)) {
            (Some(was), Some(is)) => was.differing(is).contains(&QueueAspect::Source),
            (was, is) => was.is_some() != is.is_some(),
        },
    });
    differ.map(anew_if).collect::<Vec<_>>().into_iter()
}

/// Differences of the sinks of a step. A request to a service is part of the program.
fn sinks(old: &DeclaredStep, new: &DeclaredStep) -> impl Iterator<Item = StepDifference> {
    let (before, after) = (&old.configuration().sinks, &new.configuration().sinks);
    let differ = new.outputs.iter().filter_map(|output| match output.target {
        Target::Sink(sink) => {
            let (was, is) = (before.get(sink.0), &after[sink.0]);
            Some(was.is_none_or(|was| !was.kind.writes_like(&is.kind)))
        }
        Target::Queue(_) => None,
    });
    differ.map(anew_if).collect::<Vec<_>>().into_iter()
}

fn gate(old: &DeclaredStep, new: &DeclaredStep) -> StepDifference {
    let of = |step: &DeclaredStep| {
        let GateRef(gate) = step.gate?;
        step.generation.digest.gates.get(&step.configuration().gates[gate].address()).cloned()
    };
    match (of(old), of(new)) {
        (None, None) => StepDifference::None,
        (Some(was), Some(is)) => match was.differing(&is) {
            differing if differing.is_empty() => StepDifference::None,
            differing if differing.contains(&GateAspect::Every) => StepDifference::Anew,
            _ => StepDifference::InPlace,
        },
        _ => StepDifference::Anew,
    }
}

/// Difference in the way that the step runs, which follows from its program and its plugins.
fn behaviour(old: &DeclaredStep, new: &DeclaredStep) -> StepDifference {
    let of = |step: &DeclaredStep| (before(step, step.configuration()), step.acts_outside(), step.order());
    anew_if(of(old) != of(new))
}

fn anew_if(differs: bool) -> StepDifference {
    if differs { StepDifference::Anew } else { StepDifference::None }
}

/// Whether `new` may only start when `old`, another step, has ended or changed: they use the same source or sink
/// with different settings, or the same file as different sinks.
pub(crate) fn must_wait(new: &DeclaredStep, old: &DeclaredStep) -> bool {
    let (sinks, sources) = (&new.configuration().sinks, &new.configuration().sources);
    let conflicts = |target: Target, other: Target| match (target, other) {
        (Target::Sink(new_sink), Target::Sink(old_sink)) => {
            let (is, was) = (&sinks[new_sink.0].kind, &old.configuration().sinks[old_sink.0].kind);
            match (is, was) {
                _ if new_sink == old_sink => !is.writes_like(was),
                (SinkKind::File(is), SinkKind::File(was)) => is.path == was.path,
                _ => false,
            }
        }
        _ => false,
    };
    let outputs = new
        .outputs
        .iter()
        .any(|output| old.outputs.iter().any(|other| conflicts(output.target, other.target)));
    let inputs = new.inputs.iter().any(|input| match input.input {
        Input::Source(source) => old.inputs.iter().any(|other| {
            other.input == input.input && old.configuration().sources[source.0].kind != sources[source.0].kind
        }),
        Input::Queue(_) => false,
    });
    outputs || inputs
}
