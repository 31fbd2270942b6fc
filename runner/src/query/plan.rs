//! Plan: compares the files with the configuration of the runner, or of the last run, and counts the jobs that the
//! changes concern.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Answer, status};
use crate::reload::cannot_be_opened;
use tidegate_config::{Configuration, ConfigurationDigest, Diagnostics, Plan, PlanState, StepRemains};
use tidegate_engine::{Generation, Handle};
use tidegate_model::Address;
use tidegate_store::{ReadError, Store};

/// The plan, or the reason why there is none.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Planned {
    Plan(Plan),
    /// The files have mistakes: as text for people, and as `check` prints them for programs.
    Mistakes {
        text: String,
        records: serde_json::Value,
    },
}

impl Planned {
    pub(crate) fn mistakes(diagnostics: &Diagnostics) -> Self {
        // All fields are texts and numbers.
        let records = serde_json::to_value(diagnostics.records()).unwrap_or_default();
        Self::Mistakes { text: diagnostics.render(false), records }
    }
}

/// Reads the files of `configuration` again.
pub(super) fn plan(
    store: &Store,
    configuration: &Configuration,
    run: Option<&Handle>,
) -> Result<Answer, ReadError> {
    let given = &configuration.given;
    let next = match Generation::load(&given.config, &given.options()) {
        Ok(generation) => generation,
        Err(diagnostics) => return Ok(Answer::Plan(Planned::mistakes(&diagnostics))),
    };
    let old = match run {
        Some(run) => Arc::clone(&run.generation().digest),
        None => match last_run(store)? {
            Some(digest) => Arc::new(digest),
            None => {
                let what = "the store has no readable record of the configuration that ran last; the next run makes one";
                return Ok(Answer::Missing(what.to_owned()));
            }
        },
    };
    let state = store.at_one_moment(|store| state(store, configuration, run))?;
    let mut plan = Plan::between(&old, next.digest(), &state);
    if let Some(run) = run {
        plan.keep_waiting(&run.waiting_for_restart(next.digest()));
        plan.notes.extend(unchanged_since_start(run, &old, next.digest()));
    }
    plan.refused = match run {
        _ if plan.is_empty() => Vec::new(),
        Some(run) => run.foreseen_obstacles(&next)?.iter().map(cannot_be_opened).collect(),
        None => next.refused_at_start(store)?.iter().map(ToString::to_string).collect(),
    };
    Ok(Answer::Plan(Planned::Plan(plan)))
}

/// Settings of earlier reloads that wait for a restart. The plan has those that this change concerns.
fn unchanged_since_start(run: &Handle, old: &ConfigurationDigest, next: &ConfigurationDigest) -> Vec<String> {
    let changing = old.runner.differing(&next.runner);
    let waiting = run.waiting_for_restart(next).into_iter().filter(|aspect| !changing.contains(aspect));
    waiting
        .map(|aspect| {
            let setting = aspect.as_str();
            format!("`{setting}` was changed by an earlier reload, and takes effect when the runner restarts")
        })
        .collect()
}

/// The configuration that ran last.
fn last_run(store: &Store) -> Result<Option<ConfigurationDigest>, ReadError> {
    let Some(entry) = store.last_installed()? else { return Ok(None) };
    let text = store.history_text(&entry.digest)?;
    Ok(text.and_then(|text| ConfigurationDigest::from_recorded(&text)))
}

fn state(store: &Store, configuration: &Configuration, run: Option<&Handle>) -> Result<PlanState, ReadError> {
    let mut steps: BTreeMap<Address, StepRemains> = BTreeMap::new();
    for status in status::statuses(store, configuration, run, 0)? {
        let (Some(step), Some(input)) = (Address::parse(&status.step), Address::parse(&status.input)) else {
            continue;
        };
        let has_progress = store.progress(&step, &input)?.is_some();
        let remains = steps.entry(step).or_default();
        // Values of the whole step are reported with the first input.
        remains.delayed += status.delayed + status.unmatched;
        remains.pending += status.pending;
        if has_progress {
            remains.inputs.insert(input, status.waiting);
        }
    }
    let queues = store.queues()?.into_iter().map(|queue| (queue.address.clone(), queue.jobs())).collect();
    Ok(PlanState { steps, queues, known: store.known_parts()? })
}
