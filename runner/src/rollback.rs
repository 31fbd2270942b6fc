//! Rollback: lets the run carry out an earlier configuration, from the texts in the history.

use crate::output::exit;
use crate::reload;
use crate::reload::Reloaded;
use tidegate_engine::{EarlierGeneration, Generation, Handle, RolledBack};
use tidegate_model::log_target;
use tidegate_model::{Clock as _, SystemClock};
use tidegate_store::{Store, Trigger};

/// Goes back to a generation, or to the one that was in force before the current one. The files stay as they are.
///
/// # Errors
/// The reason for a refusal, as a sentence; the run is as before then.
pub(crate) fn roll_back(run: &Handle, store: &Store, to: Option<u64>) -> Result<Reloaded, String> {
    let _turn = run.reload_turn();
    let current = run.generation();
    let given = &current.configuration.given;
    let found = EarlierGeneration::find(given, store, current.number, to)?;
    let earlier = match Generation::load(&given.config, &found.options) {
        Ok(earlier) => earlier,
        Err(diagnostics) => return Ok(Reloaded::mistakes(&diagnostics)),
    };
    same_plugins(&found, &earlier)?;
    let obstacles = reload::obstacles(run, &earlier, Some(&found.between));
    if obstacles.has_errors() {
        return Ok(Reloaded::refused(&obstacles));
    }
    let number = found.number;
    let back = RolledBack {
        from: current.number,
        to: number,
        since: SystemClock.now(),
        trigger: Trigger::Rollback,
        why: "an operator went back to an earlier generation".to_owned(),
    };
    let Some(outcome) = run.roll_back(&earlier, back, &found.between) else { return Ok(Reloaded::Ending) };
    exit::show(&earlier.warnings);
    let generation = outcome.number;
    tracing::warn!(target: log_target::RUNNER, generation, "generation {number} is in force again, until the files change");
    let lingering = outcome.lingering.iter().map(ToString::to_string).collect();
    Ok(Reloaded::Installed { generation, lingering, restart: Vec::new() })
}

fn same_plugins(found: &EarlierGeneration, earlier: &Generation) -> Result<(), String> {
    for (name, now) in earlier.plugin_hashes() {
        if found.plugins.get(&name).is_some_and(|then| *then != now) {
            return Err(format!(
                "the library of plugin `{name}` differs from the one of that generation: restore the library first"
            ));
        }
    }
    Ok(())
}
