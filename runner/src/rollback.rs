//! Rollback: lets the run carry out an earlier configuration, from the texts in the history.

use std::path::Path;

use crate::cli::RunArguments;
use crate::output::exit;
use crate::reload;
use crate::reload::Reloaded;
use tidegate_config::{Configuration, Diagnostics, LoadOptions};
use tidegate_engine::{EarlierGeneration, Generation, Handle, ResumedRollback, RolledBack};
use tidegate_engine::{different_library, resume};
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
    if let Some(why) = different_library(&found.plugins, &earlier) {
        return Err(why);
    }
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
    let restart = reload::waiting_for_restart(run, earlier.digest());
    Ok(Reloaded::Installed { generation, repeats: Some(number), lingering, restart })
}

/// The valid part of a configuration with mistakes, if a generation of its store may be in force by a rollback.
pub(crate) fn readable_part(command: &RunArguments, options: &LoadOptions) -> Option<Configuration> {
    if !command.config.exists() {
        return None;
    }
    let configuration = Generation::valid_part(&command.config, options).ok()?;
    let has_store = !command.from_files && tidegate_store::exists(&configuration.data);
    has_store.then_some(configuration)
}

/// The generation of a rollback that is in force although the files differ. `files`: the present ones.
pub(crate) fn resumed(
    path: &Path,
    options: LoadOptions,
    files: Result<&Generation, &Diagnostics>,
    store: &Store,
) -> Option<(Generation, ResumedRollback)> {
    match resume(path, options, files, store) {
        Ok(resumed) => {
            if let Some((_, ResumedRollback { rollback: RolledBack { to, why, .. }, files, .. })) = &resumed {
                tracing::warn!(
                    target: log_target::RUNNER,
                    "generation {to} goes on: the files are those of generation {files}, which was rolled back: {why}; \
                     a change of the files, `tidegate reload` or `run --from-files` brings them into force"
                );
            }
            resumed
        }
        Err((RolledBack { to, .. }, why)) => {
            tracing::error!(
                target: log_target::RUNNER,
                "generation {to}, which was in force by a rollback, cannot go on: {why}"
            );
            None
        }
    }
}
