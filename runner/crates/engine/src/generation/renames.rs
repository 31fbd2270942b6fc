//! Renames: a rollback gives renamed steps their earlier names back, with their progress and jobs.

use tidegate_config::Configuration;
use tidegate_model::Address;

/// Lets the steps of an earlier configuration take over from those that they became in the later ones, in the order
/// of time. The last one is the current one.
pub(crate) fn turn_back(earlier: &mut Configuration, later: &[&Configuration]) {
    let Some(current) = later.last() else { return };
    for step in earlier.steps.iter_mut() {
        let name = later.iter().fold(step.address.clone(), |name, configuration| {
            let renamed = configuration.steps.iter().find(|step| step.was.as_ref() == Some(&name));
            let back = || has(configuration, &step.address).then(|| step.address.clone());
            renamed.map(|step| step.address.clone()).or_else(back).unwrap_or(name)
        });
        if name != step.address && has(current, &name) {
            step.was = Some(name);
        }
    }
}

fn has(configuration: &Configuration, address: &Address) -> bool {
    configuration.steps.iter().any(|step| step.address == *address)
}
