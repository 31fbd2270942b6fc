//! Bindings: distinguishes the inputs that a binding names one after the other, so that no delivery hash occurs twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_config::Configuration;
use tidegate_model::{Address, NamedKind, RenamedPart};
use tidegate_store::{FirstInput, ReadError, Store};

/// The configuration with the marks of the bindings that named other inputs first.
///
/// # Errors
/// The store cannot be read.
pub fn mark_bindings(
    configuration: &Arc<Configuration>,
    store: &Store,
) -> Result<Arc<Configuration>, ReadError> {
    if !has_bindings(configuration) {
        return Ok(Arc::clone(configuration));
    }
    // A start carries out the renames afterwards.
    let renamed = super::renames::of(configuration, None, store)?;
    let mut marked = Configuration::clone(configuration);
    mark(&mut marked, &renamed, store)?;
    Ok(Arc::new(marked))
}

/// Marks the bindings that named other inputs first. `renamed`: the renames that the configuration carries out.
pub(crate) fn mark(
    configuration: &mut Configuration,
    renamed: &[RenamedPart],
    store: &Store,
) -> Result<(), ReadError> {
    if !has_bindings(configuration) {
        return Ok(());
    }
    let first = first_inputs(renamed, store)?;
    for step in configuration.steps.iter_mut() {
        for input in step.inputs.iter_mut().filter(|input| !input.binding.is_empty()) {
            let first = first.get(&(step.address.clone(), input.binding.clone()));
            input.is_moved = first.is_some_and(|first| *first != input.address);
        }
    }
    Ok(())
}

/// The inputs of bindings that have no record.
pub(crate) fn new(
    configuration: &Configuration,
    renamed: &[RenamedPart],
    store: &Store,
) -> Result<Vec<FirstInput>, ReadError> {
    if !has_bindings(configuration) {
        return Ok(Vec::new());
    }
    let first = first_inputs(renamed, store)?;
    let inputs =
        configuration.steps.iter().flat_map(|step| step.inputs.iter().map(move |input| (step, input)));
    let new = inputs.filter(|(step, input)| {
        !input.binding.is_empty() && !first.contains_key(&(step.address.clone(), input.binding.clone()))
    });
    let new = new.map(|(step, input)| FirstInput {
        step: step.address.clone(),
        binding: input.binding.clone(),
        input: input.address.clone(),
    });
    Ok(new.collect())
}

fn has_bindings(configuration: &Configuration) -> bool {
    configuration.steps.iter().any(|step| step.inputs.iter().any(|input| !input.binding.is_empty()))
}

/// The records, with the names after these renames.
fn first_inputs(
    renamed: &[RenamedPart],
    store: &Store,
) -> Result<BTreeMap<(Address, String), Address>, ReadError> {
    let now = |kind: NamedKind, address: Address| {
        let part = renamed.iter().find(|part| part.kind == kind && part.from == address);
        part.map_or(address, |part| part.to.clone())
    };
    let first = store.first_inputs()?.into_iter();
    Ok(first
        .map(|((step, binding), input)| {
            ((now(NamedKind::Step, step), binding), now(NamedKind::Endpoint, input))
        })
        .collect())
}
