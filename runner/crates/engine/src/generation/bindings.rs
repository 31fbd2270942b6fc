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

/// The records, with the names after these renames. They are carried out in this order, and as the store does: an input
/// exchanges its name with the one that had the new name, and a step brings its bindings along.
fn first_inputs(
    renamed: &[RenamedPart],
    store: &Store,
) -> Result<BTreeMap<(Address, String), Address>, ReadError> {
    let mut first = store.first_inputs()?;
    for RenamedPart { kind, from, to } in renamed {
        match kind {
            NamedKind::Step => {
                let moved: Vec<_> = first.extract_if(.., |(step, _), _| step == from).collect();
                first.extend(moved.into_iter().map(|((_, binding), input)| ((to.clone(), binding), input)));
            }
            NamedKind::Endpoint => {
                for input in first.values_mut() {
                    if input == from {
                        input.clone_from(to);
                    } else if input == to {
                        input.clone_from(from);
                    }
                }
            }
        }
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_store::testing::FaultyDisk;
    use tidegate_store::{Changes, Renames, open_disk};

    #[test]
    fn the_first_inputs_are_foreseen_as_the_renames_leave_them() {
        let address = |name: &str| Address::parse(name).unwrap();
        let (store, mut writer) = open_disk(Box::new(FaultyDisk::new())).unwrap();
        let first =
            [("p/s", "a", "p/old"), ("p/s", "b", "p/other"), ("p/t", "a", "p/new"), ("p/u", "a", "p/old")];
        let bindings = first.map(|(step, binding, input)| FirstInput {
            step: address(step),
            binding: binding.to_owned(),
            input: address(input),
        });
        writer.commit(&Changes { bindings: bindings.into(), ..Changes::default() }).unwrap();
        let part = |kind, from: &str, to: &str| RenamedPart { kind, from: address(from), to: address(to) };
        let parts = vec![
            part(NamedKind::Endpoint, "p/old", "p/new"),
            part(NamedKind::Step, "p/s", "p/t"),
            part(NamedKind::Endpoint, "p/other", "p/old"),
        ];
        let foreseen = first_inputs(&parts, &store).unwrap();
        let renamed = Renames { generation: 2, parts };
        writer.commit(&Changes { renamed, ..Changes::default() }).unwrap();
        assert_eq!(foreseen, store.first_inputs().unwrap());
        // The queue that had the name before is another one now.
        assert_eq!(foreseen[&(address("p/u"), "a".into())], address("p/new"));
        assert_eq!(foreseen.len(), 3);
    }
}
