//! Reload: reads the configuration again and lets the run carry it out. A mistake leaves the run as it is.

pub(crate) mod changed_tests;
mod open_writes;
pub(crate) mod watch;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::output::exit;
use crate::supervisor;
use tidegate_config::{
    Configuration, ConfigurationDigest, Diagnostic, DiagnosticRecord, Diagnostics, PartChange, PartKind,
    Plan, PlanState, Readings, Severity, locate,
};
use tidegate_engine::{FailedSetup, Generation, Handle, RefusedReload};
use tidegate_model::log_target;
use tidegate_model::{Address, Clock as _, SystemClock, plain};
use tidegate_store::Trigger;

/// Outcome of a reload.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reloaded {
    /// The configuration is carried out from now on.
    Installed {
        generation: u64,
        /// The earlier generation that it repeats, after a rollback.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        repeats: Option<u64>,
        /// Steps that still finish jobs which they began before, and take over afterwards.
        lingering: Vec<String>,
        /// Settings that take effect when the runner restarts.
        restart: Vec<String>,
    },
    /// Nothing differs.
    Unchanged { generation: u64 },
    /// The files have mistakes: as text for people, and as `check` prints them for programs.
    Mistakes { text: String, records: serde_json::Value },
    /// The files have no mistakes, but a test fails, a source or sink cannot be opened, or a plugin cannot be set up.
    /// The fields are those of [`Self::Mistakes`].
    Refused { text: String, records: serde_json::Value },
    /// The run is over, or ends.
    Ending,
}

impl Reloaded {
    pub(crate) fn mistakes(diagnostics: &Diagnostics) -> Self {
        // All fields are texts and numbers.
        let records = serde_json::to_value(diagnostics.records()).unwrap_or_default();
        Self::Mistakes { text: plain::lines(&diagnostics.render(false)), records }
    }

    /// Tests that fail, sources and sinks that cannot be opened, or plugins that cannot be set up.
    pub(crate) fn refused(diagnostics: &Diagnostics) -> Self {
        match Self::mistakes(diagnostics) {
            Self::Mistakes { text, records } => Self::Refused { text, records },
            other => other,
        }
    }
}

/// Reads the files of the run again, and carries them out if they differ.
pub(crate) fn reload(run: &Handle, trigger: Trigger) -> Reloaded {
    let mut turn = run.reload_turn();
    supervisor::reloading();
    let reloaded = read_again(run, trigger, &mut turn);
    let number = run.generation().number;
    if let (Trigger::Signal, Reloaded::Unchanged { .. }) = (trigger, &reloaded) {
        tracing::info!(target: log_target::RUNNER, generation = number, "nothing has changed since the last reload");
    }
    supervisor::ready(&match reloaded {
        Reloaded::Mistakes { .. } => format!("the files have mistakes: generation {number} goes on"),
        _ => format!("generation {number} runs"),
    });
    reloaded
}

/// Reads the files for a step that has stopped and starts again. They are carried out if nothing but this step
/// differs. Returns whether that starts it.
pub(crate) fn mend_stopped_step(run: &Handle, step: &Address) -> bool {
    let current = run.generation();
    let position = current.configuration.steps.position(|declared| declared.address == *step);
    let has_stopped = position.is_some_and(|position| run.stats().step(position).halted().is_some());
    if !has_stopped || !run.files_differ() {
        return false;
    }
    let given = &current.configuration.given;
    let Ok(next) = Generation::load(&given.config, &given.options()) else { return false };
    let plan = Plan::between(&current.digest, next.digest(), &PlanState::default());
    let is_this = |part: &PartChange| part.kind == PartKind::Step && part.name == step.to_string();
    !plan.is_empty()
        && plan.changes.iter().all(is_this)
        && matches!(reload(run, Trigger::Reload), Reloaded::Installed { .. })
}

/// Whether the files mean the same as the generation in force, which is noted then. Nothing is carried out.
pub(crate) fn compare(run: &Handle) -> bool {
    let mut turn = run.reload_turn();
    let current = run.generation();
    let same = Generation::load_again(&current, &mut turn, Trigger::Reload).ok();
    let same = same.filter(|files| *files.digest() == current.digest);
    if let Some(files) = &same {
        mended(run);
        run.note_files(current.number, files, Trigger::Reload);
    }
    same.is_some()
}

fn read_again(run: &Handle, trigger: Trigger, readings: &mut Readings) -> Reloaded {
    let current = run.generation();
    let read = Generation::load_again(&current, readings, trigger);
    run.note_sought(sought(&read));
    let next = match read {
        Ok(next) => next,
        Err(diagnostics) => return refuse(run, trigger, &diagnostics),
    };
    let digest = Arc::clone(next.digest_like(&current.digest));
    if digest == current.digest {
        mended(run);
        run.note_files(current.number, &next, trigger);
        return Reloaded::Unchanged { generation: current.number };
    }
    if trigger == Trigger::Watch
        && let Some(files) = run.rolled_back_of(&digest)
    {
        mended(run);
        tracing::info!(
            target: log_target::RUNNER,
            "the saved files are those of generation {files}, which was rolled back: `tidegate reload` brings them into force"
        );
        return Reloaded::Unchanged { generation: current.number };
    }
    if next.configuration.settings.reload.tests {
        let failed = changed_tests::failures(&current.digest, &digest, &next);
        if failed.has_errors() {
            return refuse_change(run, trigger, &failed);
        }
    }
    let obstacles = obstacles(run, &next, None);
    if obstacles.has_errors() {
        return refuse_change(run, trigger, &obstacles);
    }
    let misspelt = misspelt_renames(run, &current.digest, &digest);
    let Some(outcome) = run.reload(&next, trigger) else { return Reloaded::Ending };
    mended(run);
    exit::show(&next.warnings);
    let (generation, why) = (outcome.number, trigger.as_str());
    tracing::info!(target: log_target::RUNNER, generation, trigger = why, "the changed configuration is in force");
    for note in misspelt {
        tracing::warn!(target: log_target::RUNNER, generation, "{note}");
    }
    let restart = waiting_for_restart(run, &digest);
    for setting in &restart {
        tracing::warn!(target: log_target::RUNNER, setting, "a changed setting takes effect when the runner restarts");
    }
    let lingering: Vec<String> = outcome.lingering.iter().map(ToString::to_string).collect();
    if !lingering.is_empty() {
        let steps = lingering.join(", ");
        tracing::info!(target: log_target::RUNNER, generation, "these steps finish the jobs that they began before, and then follow: {steps}");
    }
    Reloaded::Installed { generation, repeats: None, lingering, restart }
}

/// Each `was` of a new part that moves nothing, before the new parts have something in the store.
fn misspelt_renames(run: &Handle, before: &ConfigurationDigest, after: &ConfigurationDigest) -> Vec<String> {
    if !after.former.is_written() {
        return Vec::new();
    }
    // Without the store, no rename can be judged.
    let known = run.known_parts();
    known.map(|known| Plan::misspelt_renames(before, after, &known)).unwrap_or_default()
}

/// Files that a reading of the configuration looked for.
pub(crate) fn sought(read: &Result<Generation, Diagnostics>) -> BTreeSet<PathBuf> {
    let diagnostics = match read {
        Ok(generation) => &generation.warnings,
        Err(diagnostics) => diagnostics,
    };
    diagnostics.files().sought().map(Path::to_owned).collect()
}

/// Settings of a configuration that take effect when the runner restarts, in words.
pub(crate) fn waiting_for_restart(run: &Handle, digest: &ConfigurationDigest) -> Vec<String> {
    run.waiting_for_restart(digest).into_iter().map(|aspect| aspect.as_str().to_owned()).collect()
}

/// Sources and sinks that cannot be opened and plugins that cannot be set up, as diagnostics. `between`: for a rollback,
/// the configurations that ran between `next` and the current one.
pub(crate) fn obstacles(
    run: &Handle,
    next: &Generation,
    between: Option<&[Arc<Configuration>]>,
) -> Diagnostics {
    let configuration = &next.configuration;
    let mut diagnostics = Diagnostics::new(&configuration.root, next.warnings.files().clone());
    // A store that is closed now waits for room on the disk; the takeover waits, too.
    for obstacle in run.obstacles(next, between).unwrap_or_default() {
        let (address, _) = &obstacle;
        let pipeline = configuration.pipelines.iter().find(|pipeline| pipeline.name == address.pipeline);
        let file = pipeline.map_or_else(|| configuration.root.clone(), |pipeline| pipeline.file.clone());
        let text = diagnostics.files().get(&file);
        let name = address.name.as_str();
        let section = |kind: &&str| {
            let key = locate(text?, &[*kind, name], true)?;
            // Without such a part, the place is that of another one of its kind.
            (text?.get(key.clone())?.trim_matches(['"', '\'']) == name).then_some(key)
        };
        let place = ["sink", "source", "queue"].iter().find_map(section);
        diagnostics.push(Diagnostic::error(file, place, cannot_be_opened(&obstacle)));
    }
    match run.failed_setups(next) {
        Ok(failed) => {
            for FailedSetup { step, named_in, named_at, message } in failed {
                let message = format!("`{step}` cannot be set up: {message}");
                diagnostics.push(Diagnostic::error(named_in, Some(named_at), message));
            }
        }
        Err(error) => {
            let message = format!("no thread can be started to set up the plugins: {error}");
            diagnostics.push(Diagnostic::error(configuration.root.clone(), None, message));
        }
    }
    diagnostics
}

/// Message for a source, sink or queue that keeps a configuration from taking over.
pub(crate) fn cannot_be_opened((address, why): &(Address, String)) -> String {
    format!("`{address}` cannot be opened: {why}")
}

/// Place and message of the first error.
fn first_error(diagnostics: &Diagnostics) -> Option<(String, String)> {
    let mut errors = diagnostics.records().into_iter().filter(|record| record.severity == Severity::Error);
    let DiagnosticRecord { file, line, column, message, .. } = errors.next()?;
    let file = file.display();
    let place = match (line, column) {
        (Some(line), Some(column)) => format!("{file}:{line}:{column}"),
        (Some(line), None) => format!("{file}:{line}"),
        _ => file.to_string(),
    };
    Some((place, message))
}

/// The files have mistakes.
fn refuse(run: &Handle, trigger: Trigger, diagnostics: &Diagnostics) -> Reloaded {
    keep_reason(run, trigger, diagnostics, "the files have mistakes");
    Reloaded::mistakes(diagnostics)
}

/// A test fails, a source or sink cannot be opened, or a plugin cannot be set up.
fn refuse_change(run: &Handle, trigger: Trigger, diagnostics: &Diagnostics) -> Reloaded {
    keep_reason(run, trigger, diagnostics, "the changed configuration is refused");
    Reloaded::refused(diagnostics)
}

/// Keeps the reason until the files are right again, and logs it once.
fn keep_reason(run: &Handle, trigger: Trigger, diagnostics: &Diagnostics, what: &str) {
    let text = diagnostics.render(false);
    let (place, first) = match first_error(diagnostics) {
        Some((place, message)) => (Some(place.clone()), format!("{place}: {message}")),
        None => (None, String::new()),
    };
    let refused = RefusedReload::new(SystemClock.now(), trigger, first.clone(), &text).at(place);
    if run.refuse_reload(refused) {
        run.record_refused(diagnostics, trigger, first);
        exit::show(diagnostics);
        tracing::error!(
            target: log_target::RUNNER,
            trigger = trigger.as_str(),
            "{what}: the runner goes on with generation {}", run.generation().number
        );
    } else if trigger == Trigger::Signal {
        // The log is its only answer.
        tracing::error!(
            target: log_target::RUNNER,
            "{what}, as before: the runner goes on with generation {}; {first}", run.generation().number
        );
    }
}

/// The files are right again.
fn mended(run: &Handle) {
    if run.accept_reload() {
        tracing::info!(target: log_target::RUNNER, "the files have no mistakes any more");
    }
}
