//! Last run: logs the plugin code that may have crashed the last run.

use tidegate_components::plugin::{Setup, Setups};
use tidegate_config::{Configuration, InputMode, PluginStepConfig, Processor, Step};
use tidegate_model::log_target;
use tidegate_model::suggest::listed;
use tidegate_store::CrashGuard;

/// Logs the work in progress when the last run died. Returns a record that lasts as long as plugins are in
/// this process.
pub(crate) fn log_crash(
    configuration: &Configuration,
    attempts: &CrashGuard,
    setups: &Setups,
) -> Option<Setup> {
    let mut logged = false;
    for step in configuration.steps.iter().filter(|step| !step.isolate) {
        let plugins: Vec<String> = plugins_of(step).collect();
        if !plugins.is_empty() {
            logged |= log_suspects(step, &called(&plugins), attempts);
        }
    }
    let (loaded, at): (Vec<_>, Vec<_>) =
        setups.found().into_iter().partition(|died| died.at.starts_with(LOADED));
    logged |= !at.is_empty();
    // The general record counts only without a more precise one.
    let loaded = if logged { Vec::new() } else { loaded };
    for died in at.iter().chain(&loaded) {
        let often = if died.times == 1 { String::new() } else { format!(" ({} runs in a row)", died.times) };
        tracing::warn!(target: log_target::ENGINE, "the last run was killed or crashed while {}{often}", died.at);
    }
    let mut names: Vec<String> =
        configuration.steps.iter().filter(|step| !step.isolate).flat_map(plugins_of).collect();
    names.sort();
    names.dedup();
    (!names.is_empty()).then(|| setups.begin(format!("{LOADED} {}", called(&names))))
}

/// Beginning of the record while plugins are in the process.
const LOADED: &str = "its process could run code of";

fn log_suspects(step: &Step, plugins: &str, attempts: &CrashGuard) -> bool {
    // Jobs of a join are identified by the whole tuple.
    let inputs = step.inputs.iter().filter(|_| step.take != InputMode::Join);
    let mut logged = false;
    for input in inputs {
        let name =
            if step.take == InputMode::Alts { input.binding.clone() } else { input.address.to_string() };
        for (first, last) in attempts.suspects(&step.address, &name) {
            let jobs = if first == last { format!("job {first}") } else { format!("jobs {first} to {last}") };
            tracing::warn!(target: log_target::ENGINE, step = %step.address, "the last run was killed or crashed while {plugins} ran {jobs} of `{}`", input.address);
            logged = true;
        }
    }
    logged
}

/// Plugins of the step, as messages name them.
fn plugins_of(step: &Step) -> impl Iterator<Item = String> + '_ {
    step.processors.iter().filter_map(Processor::plugin).map(PluginStepConfig::named)
}

fn called(plugins: &[String]) -> String {
    let noun = if plugins.len() == 1 { "plugin" } else { "plugins" };
    format!("{noun} {}", listed(plugins.iter().map(String::as_str), "and"))
}
