//! Implied steps: split a join by key into the step that finds its tuples and the declared one that reads them.

use super::keyed_join::{JoinDeclaration, KeyedJoinKeys, TupleQueue};
use super::step::StepDeclaration;
use crate::diagnostic::Diagnostic;
use crate::model::keyed_join::{joined_queue, joining_step};
use crate::model::{BeginAt, DeliveryGuarantee, InputMode};
use crate::parse::context::{ParseContext, Placed};
use crate::parse::reference::Reference;
use tidegate_model::Name;

/// The step, or the two steps of a join by key.
pub(crate) fn split(reading: &mut ParseContext<'_>, mut step: StepDeclaration) -> Vec<StepDeclaration> {
    match step.join_keys.take() {
        Some(keys) => steps(reading, step, keys),
        None => vec![step],
    }
}

/// The two steps of a join by key: the implied one, which finds the tuples, and the declared one, which reads them.
fn steps(
    reading: &mut ParseContext<'_>,
    mut reader: StepDeclaration,
    keys: KeyedJoinKeys,
) -> Vec<StepDeclaration> {
    let KeyedJoinKeys { place, sides, within, max_waiting } = keys;
    let name = &reader.name.value;
    let (Some(step), Some(queue)) = (joining_step(name), joined_queue(name)) else {
        let message = format!("the name of the step `{name}` is too long for a join by key");
        reading.report(Diagnostic::error_at(&reader.name.place, message).help("use at most 121 characters"));
        return Vec::new();
    };
    let written = reader.name.place.clone();
    let placed = |value| Placed { value, place: written.clone() };
    let was = |name: fn(&Name) -> Option<Name>| {
        let was = reader.was.as_ref()?;
        Some(Placed { value: name(&was.value)?, place: was.place.clone() })
    };
    let bindings = reader.inputs.iter().map(|(binding, _)| binding.clone()).collect();
    let tuple_queue = TupleQueue { name: placed(queue.clone()), was: was(joined_queue), bindings };
    let tuples = Reference::implied(queue, written.clone());
    let joining = StepDeclaration {
        was: was(joining_step),
        take: InputMode::Alts,
        inputs: std::mem::take(&mut reader.inputs),
        joins: Some(JoinDeclaration { reader: name.clone(), sides, within, max_waiting, place }),
        begin_at: reader.begin_at,
        to: vec![(String::new(), tuples.clone())],
        errors: reader.errors.clone(),
        delivery: Some(DeliveryGuarantee::ExactlyOnce),
        ..StepDeclaration::new(placed(step), reader.line)
    };
    let reader = StepDeclaration {
        take: InputMode::From,
        inputs: vec![(String::new(), tuples)],
        tuples: Some(tuple_queue),
        begin_at: BeginAt::Oldest,
        ..reader
    };
    vec![joining, reader]
}
