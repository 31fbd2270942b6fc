//! What the next rounds of a step would start, without starting it.

use serde::{Deserialize, Serialize};

use super::{Answer, rfc3339};
use crate::config::{Configuration, Step};
use crate::decide::{Counts, JobKey};
use crate::engine::{Handle, Sight};
use crate::store::{DelayedKey, ReadError, Store};
use crate::words::{Clock as _, SystemClock};

/// So many jobs of a round are told.
const JOBS_OF_A_ROUND: usize = 20;

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::face) struct Preview {
    pub(in crate::face) step: String,
    pub(in crate::face) waiting: u64,
    pub(in crate::face) running: u64,
    pub(in crate::face) delayed: u64,
    pub(in crate::face) pending: u64,
    pub(in crate::face) lanes: u64,
    /// Nothing of it starts as long as it is.
    pub(in crate::face) paused: bool,
    pub(in crate::face) rounds: Vec<PreviewedRound>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::face) struct PreviewedRound {
    /// When its first job would start; RFC 3339. Missing where that is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::face) at: Option<String>,
    /// `pipeline/queue/index`, in order.
    pub(in crate::face) jobs: Vec<String>,
    /// How many more there are in this round.
    pub(in crate::face) more: u64,
}

pub(super) fn preview(
    store: &Store,
    configuration: &Configuration,
    run: Option<&Handle>,
    step: &str,
    rounds: usize,
) -> Result<Answer, ReadError> {
    let position = configuration.steps.iter().position(|one| one.address.to_string() == step);
    let Some(position) = position else {
        return Ok(Answer::Missing(format!("the configuration has no step `{step}`")));
    };
    let (declared, now) = (&configuration.steps[position], SystemClock.now());
    // A run does not read for a step that is paused; where nothing of it runs, the store knows more.
    let idle = |sight: &Sight| sight.paused && sight.room.counts().running == 0;
    let sight = match run.map(|run| run.sight(position)) {
        Some(sight) if !sight.as_deref().is_some_and(idle) => sight,
        _ => Sight::of_store(store, configuration, declared, now)?.map(Box::new),
    };
    let Some(sight) = sight else {
        return Ok(Answer::Missing(format!(
            "step `{step}` takes its jobs as they come, in order: give it a `queuer` and there is something to preview"
        )));
    };
    let mut told = Vec::new();
    for round in sight.room.preview(now, rounds, JOBS_OF_A_ROUND) {
        told.push(PreviewedRound {
            at: (round.at > now).then(|| rfc3339(round.at)),
            jobs: names(store, declared, &sight, &round.jobs)?,
            more: round.more as u64,
        });
    }
    let Counts { waiting, running, delayed, pending, lanes } = sight.room.counts();
    Ok(Answer::Preview(Preview {
        step: step.to_owned(),
        waiting: waiting as u64,
        running: running as u64,
        delayed: delayed as u64,
        pending: pending as u64,
        lanes: lanes as u64,
        paused: sight.paused,
        rounds: told,
    }))
}

/// What jobs are called.
fn names(store: &Store, step: &Step, sight: &Sight, jobs: &[JobKey]) -> Result<Vec<String>, ReadError> {
    let input = step.inputs.first().map(|input| input.address.to_string()).unwrap_or_default();
    let mut names = Vec::with_capacity(jobs.len());
    for key in jobs {
        let index = match sight.rows.get(key) {
            None => key.0,
            Some(row) => {
                let step = step.address.clone();
                let job = store.delayed(&[DelayedKey { step, due: row.due, sequence: row.sequence }])?;
                // It may be through by now.
                let Some(job) = job.into_iter().next().flatten() else { continue };
                job.inputs.first().map_or(0, |&(_, index)| index)
            }
        };
        names.push(format!("{input}/{index}"));
    }
    Ok(names)
}
