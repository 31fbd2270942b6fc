//! Rollback: lets the run carry out an earlier configuration, from the texts in the history.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::output::exit;
use crate::reload;
use crate::reload::Reloaded;
use tidegate_config::{Configuration, Invocation, LoadOptions};
use tidegate_engine::{Generation, Handle, RolledBack};
use tidegate_model::log_target;
use tidegate_model::{Clock as _, SystemClock};
use tidegate_store::{HistoryEntry, ReadError, Store, TakeoverOutcome, Trigger};

/// Goes back to a generation, or to the one that was in force before the current one. The files stay as they are.
///
/// # Errors
/// The reason for a refusal, as a sentence; the run is as before then.
pub(crate) fn roll_back(run: &Handle, store: &Store, to: Option<u64>) -> Result<Reloaded, String> {
    let _turn = run.reload_turn();
    let current = run.generation();
    let (entries, _) = store.history().map_err(unreadable)?;
    let entry = target(&entries, current.number, to)?;
    let given = &current.configuration.given;
    let options = options(given, store, entry)?;
    let earlier = match Generation::load(&given.config, &options) {
        Ok(earlier) => earlier,
        Err(diagnostics) => return Ok(Reloaded::mistakes(&diagnostics)),
    };
    same_plugins(entry, &earlier)?;
    let obstacles = reload::obstacles(run, &earlier);
    if obstacles.has_errors() {
        return Ok(Reloaded::refused(&obstacles));
    }
    let number = entry.generation.unwrap_or_default();
    let back = RolledBack {
        from: current.number,
        to: number,
        since: SystemClock.now(),
        trigger: Trigger::Rollback,
        why: "an operator went back to an earlier generation".to_owned(),
    };
    let between = between(given, store, &entries, (number, current.number));
    let Some(outcome) = run.roll_back(&earlier, back, &between) else { return Ok(Reloaded::Ending) };
    exit::show(&earlier.warnings);
    let generation = outcome.number;
    tracing::warn!(target: log_target::RUNNER, generation, "generation {number} is in force again, until the files change");
    let lingering = outcome.lingering.iter().map(ToString::to_string).collect();
    Ok(Reloaded::Installed { generation, lingering, restart: Vec::new() })
}

/// Options that load the texts of an entry in the place of the files.
fn options(given: &Invocation, store: &Store, entry: &HistoryEntry) -> Result<LoadOptions, String> {
    let mut options = given.options();
    let mut recorded = BTreeMap::new();
    for (path, hash) in &entry.files {
        let text = store.history_text(hash).map_err(unreadable)?;
        let text = text.ok_or_else(|| format!("the text of `{path}` is damaged in the history"))?;
        recorded.insert(path.clone(), text);
    }
    options.recorded = Some(recorded);
    Ok(options)
}

/// Configurations that ran between two generations, in the order of time. One that cannot be read any more is left
/// out: it only names the steps that were renamed.
fn between(
    given: &Invocation,
    store: &Store,
    entries: &[HistoryEntry],
    (first, last): (u64, u64),
) -> Vec<Arc<Configuration>> {
    let is_between = |entry: &&HistoryEntry| {
        entry.generation.is_some_and(|number| first < number && number < last)
            && !matches!(entry.outcome, TakeoverOutcome::Failed(_))
    };
    let read = |entry: &HistoryEntry| {
        let options = options(given, store, entry).ok()?;
        Some(Generation::read(&given.config, &options).ok()?.configuration)
    };
    entries.iter().filter(is_between).filter_map(read).collect()
}

/// The newest entry of the generation; without one, of the last that was in force before the current one.
pub(crate) fn target(
    entries: &[HistoryEntry],
    current: u64,
    to: Option<u64>,
) -> Result<&HistoryEntry, String> {
    let Some(wanted) = to else {
        let before = |entry: &&HistoryEntry| {
            entry.generation.is_some_and(|number| number < current)
                && entry.outcome == TakeoverOutcome::Installed
        };
        let none = || "the history has no earlier generation that is still in order".to_owned();
        return entries.iter().rev().find(before).ok_or_else(none);
    };
    if wanted == current {
        return Err(format!("generation {wanted} is in force already"));
    }
    let found = entries.iter().rev().find(|entry| entry.generation == Some(wanted));
    found.ok_or_else(|| format!("the history has no generation {wanted}"))
}

fn same_plugins(entry: &HistoryEntry, earlier: &Generation) -> Result<(), String> {
    for (name, now) in earlier.plugin_hashes() {
        if entry.plugins.get(&name).is_some_and(|then| *then != now) {
            return Err(format!(
                "the library of plugin `{name}` differs from the one of that generation: restore the library first"
            ));
        }
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn unreadable(error: ReadError) -> String {
    format!("the history cannot be read: {error}")
}
