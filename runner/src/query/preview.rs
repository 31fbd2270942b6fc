//! `Preview`: the rounds of jobs that a step would start next, computed without starting them.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::explain;
use super::explain::WaitCase;
use super::status::HELD_LANES_MAX;
use super::{Answer, rfc3339, status};
use crate::output::lane_command::held_lane;
use crate::output::table::grouped;
use tidegate_config::{Configuration, Input};
use tidegate_dispatch::{JobKey, PreviewHorizon, StateCounts};
use tidegate_engine::{Handle, holds_lanes};
use tidegate_model::{Clock as _, SystemClock};
use tidegate_store::{ReadError, Store};

/// A preview ends after this many jobs, so that its time is bounded.
const JOBS_MAX: u64 = 100_000;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Preview {
    pub(crate) step: String,
    /// The input of the step.
    pub(crate) input: String,
    /// Scanned jobs, by state.
    pub(crate) waiting: u64,
    pub(crate) running: u64,
    pub(crate) delayed: u64,
    pub(crate) pending: u64,
    /// Number of lanes with a scanned job.
    pub(crate) lanes: u64,
    /// Why the step, or a lane of it, starts nothing now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) why: Vec<String>,
    pub(crate) rounds: Vec<PreviewedRound>,
    /// The preview ended within the last round, which has more jobs than listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) cut: bool,
    /// The jobs that were not scanned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unseen: Option<Unseen>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PreviewedRound {
    /// Start time of its first job; RFC 3339. Missing if that is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<String>,
    /// Indices of the input, in the order in which they would start.
    pub(crate) jobs: Vec<u64>,
    /// Number of further jobs in this round.
    pub(crate) more: u64,
}

/// Waiting jobs that were not scanned.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Unseen {
    /// Their number; `None` for a source, whose jobs are not counted in advance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) jobs: Option<u64>,
    pub(crate) why: String,
}

pub(crate) fn preview(
    store: &Store,
    configuration: &Configuration,
    run: Option<&Handle>,
    step: &str,
    (rounds, listed): (usize, usize),
) -> Result<Answer, ReadError> {
    let position = configuration.steps.position(|one| one.address.to_string() == step);
    let Some(position) = position else { return Ok(status::missing(configuration, step)) };
    let now = SystemClock.now();
    let Some(case) = WaitCase::of(store, configuration, run, (position, None), now)? else {
        return Ok(Answer::Missing(format!(
            "step `{step}` has no queuer and processes its jobs in order: add a `queuer` to preview its choice"
        )));
    };
    let (mut why, unseen) = (case.reasons_for_all(), unseen(&case)?);
    let held = if holds_lanes(case.step) { store.held_lanes(&case.step.address)? } else { Vec::new() };
    let more = held.len().saturating_sub(HELD_LANES_MAX);
    for (lane, hold) in held.into_iter().take(HELD_LANES_MAX) {
        why.push(held_lane(configuration, step, &lane, hold.halted.is_some()));
    }
    if more > 0 {
        why.push(format!("{} more lanes are held", grouped(more as u64)));
    }
    let StateCounts { waiting, running, delayed, pending, finished, lanes } = case.view.room.counts();
    // The same count as in `status`.
    let due = case.view.room.summary(0, &HashSet::new(), now).due;
    let input = case.step.inputs.first().map(|input| input.address.to_string()).unwrap_or_default();
    let (played, cut) =
        case.view.room.clone().preview(now, PreviewHorizon { rounds, listed, jobs: JOBS_MAX });
    let mut rounds = Vec::with_capacity(played.len());
    for round in played {
        rounds.push(PreviewedRound {
            at: (round.at > now).then(|| rfc3339(round.at)),
            jobs: indices(&case, &round.jobs)?,
            more: round.more as u64,
        });
    }
    Ok(Answer::Preview(Preview {
        step: step.to_owned(),
        input,
        waiting: (waiting + due + finished) as u64,
        running: running as u64,
        delayed: (delayed - due) as u64,
        pending: pending as u64,
        lanes: lanes as u64,
        why,
        rounds,
        cut,
        unseen,
    }))
}

/// The indices of jobs in the input.
fn indices(case: &WaitCase<'_>, jobs: &[JobKey]) -> Result<Vec<u64>, ReadError> {
    let mut indices = Vec::with_capacity(jobs.len());
    for &key in jobs {
        let stored = explain::stored(case.store, case.step, &case.view, key)?;
        match stored.and_then(|job| Some(job.inputs.first()?.1)) {
            Some(index) => indices.push(index),
            None if key.is_fresh() => indices.push(key.0),
            // It is finished by now.
            None => {}
        }
    }
    Ok(indices)
}

fn unseen(case: &WaitCase<'_>) -> Result<Option<Unseen>, ReadError> {
    let Some(input) = case.step.inputs.first() else { return Ok(None) };
    if let Input::Source(_) = input.input {
        let why = "the jobs of its source are not known without a run".to_owned();
        return Ok((!case.live).then_some(Unseen { jobs: None, why }));
    }
    let head = case.store.queue(&input.address)?.map_or(0, |queue| queue.head);
    let jobs = head.saturating_sub(case.view.read);
    let unseen = || Unseen { jobs: Some(jobs), why: case.unseen() };
    Ok((jobs > 0).then(unseen))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use tidegate_config::LoadOptions;
    use tidegate_engine::{Generation, Run, RunOptions};
    use tidegate_store::open_disk;
    use tidegate_store::testing::FaultyDisk;

    #[test]
    fn a_run_that_has_ended_or_has_not_begun_hides_no_queuer() {
        let folder = tempfile::tempdir().unwrap();
        let toml = "[source.in]\ntype = \"http\"\n[step.work]\nfrom = \"in\"\nto = \"out\"\n\
                    queuer = { strategy = \"serial\" }\n[sink.out]\ntype = \"null\"\n";
        std::fs::write(folder.path().join("p.toml"), toml).unwrap();
        let settings = "[runner]\nlisten = \"127.0.0.1:0\"\n";
        std::fs::write(folder.path().join("tidegate.toml"), settings).unwrap();
        let generation = Generation::read(folder.path(), &LoadOptions::default()).unwrap();
        let configuration = generation.configuration;
        let opened = || open_disk(Box::new(FaultyDisk::new())).unwrap();
        let run =
            Run::new(Arc::clone(&configuration), opened(), Arc::new(SystemClock), RunOptions::default())
                .unwrap();
        let handle = run.handle();
        drop(run);
        let (store, _writer) = opened();
        let answer = preview(&store, &configuration, Some(&handle), "p/work", (1, 10)).unwrap();
        assert!(matches!(&answer, Answer::Preview(Preview { waiting: 0, .. })), "{answer:?}");
    }
}
