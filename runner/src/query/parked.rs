//! Jobs that stand in the store by themselves: what they wait for, and where they come from.

use serde::{Deserialize, Serialize};

use super::{Answer, rfc3339, status};
use tidegate_config::{Configuration, InputRef};
use tidegate_engine::ParkedJobRef;
use tidegate_model::{Address, Clock as _, SystemClock, Timestamp};
use tidegate_store::{NO_DUE_TIME, ParkReason, ParkedJob, ParkedKey, ReadError, Store};

/// As many delayed jobs as one answer brings.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DelayedPage {
    /// Of each step in order of due time.
    pub(crate) jobs: Vec<DelayedStatus>,
    /// How many there are in all, of the steps that were asked about.
    pub(crate) total: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DelayedStatus {
    pub(crate) step: String,
    /// What it was made of: `pipeline/queue/index`, more than one for a join.
    pub(crate) jobs: Vec<String>,
    pub(crate) waits_for: WaitsFor,
    /// When it is due; RFC 3339. Missing where it is due by now, or at no time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) due: Option<String>,
    /// Attempts that were begun.
    pub(crate) attempts: u32,
    /// What the last one failed of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_error: Option<String>,
    /// What the outside system calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) handle: Option<String>,
    /// Since when that has it; RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<String>,
    /// What it has said of the job unasked, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) told: Option<tidegate_model::ExternalStatus>,
    /// The output that it was made for already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<String>,
    /// The step is in the configuration.
    pub(crate) configured: bool,
    /// What the store calls it.
    pub(crate) row: ParkedJobRef,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WaitsFor {
    /// A time, and then for its step.
    Time,
    /// Its turn at its step: it was put back, or its time has come.
    Turn,
    /// A time: it is an output, made already.
    Output,
    /// An attempt at it was begun that may be seen outside.
    Attempt,
    /// An outside system finishes it.
    Outside,
}

/// Delayed jobs of `step`, or of all: the first `limit` by due time of each, made of `job` where that is
/// said, and behind `after`.
pub(crate) fn delayed(
    store: &Store,
    configuration: &Configuration,
    (step, job): (Option<&str>, Option<&str>),
    after: Option<ParkedJobRef>,
    limit: usize,
) -> Result<Answer, ReadError> {
    let is_asked = |one: &Address| step.is_none_or(|step| one.to_string() == step);
    let configured = configuration.steps.iter().map(|step| (step.address.clone(), Some(&*step.inputs)));
    let mut asked: Vec<(Address, Option<&[InputRef]>)> =
        configured.filter(|(step, _)| is_asked(step)).collect();
    // Jobs of steps that are not in the configuration any more are kept.
    for (gone, ..) in store.all_progress()? {
        if is_asked(&gone) && asked.iter().all(|(step, _)| *step != gone) {
            asked.push((gone, None));
        }
    }
    if let (Some(step), true) = (step, asked.is_empty()) {
        return Ok(status::missing(configuration, step));
    }
    let (mut found, mut total) = (Vec::new(), 0);
    for (step, inputs) in asked {
        total += store.delayed_count(&step)?;
        of_step(store, (&step, inputs), job, after, limit, &mut found)?;
    }
    found.sort_by_key(|(due, _)| *due);
    found.truncate(limit);
    let jobs = found.into_iter().map(|(_, status)| status).collect();
    Ok(Answer::Delayed(DelayedPage { jobs, total }))
}

fn of_step(
    store: &Store,
    (address, inputs): (&Address, Option<&[InputRef]>),
    job: Option<&str>,
    after: Option<ParkedJobRef>,
    limit: usize,
    found: &mut Vec<(Timestamp, DelayedStatus)>,
) -> Result<(), ReadError> {
    let mut left = limit;
    let now = SystemClock.now();
    let rows = match after {
        Some(row) => store.parked_after(address, row.key(address)),
        None => store.all_delayed(address),
    };
    for row in rows {
        let (key, row) = row?;
        let due = key.due;
        let status = DelayedStatus::of((address, inputs), &key, row, now);
        if job.is_none_or(|job| status.jobs.iter().any(|one| one == job)) {
            found.push((due, status));
            left = left.saturating_sub(1);
        }
        if left == 0 {
            break;
        }
    }
    Ok(())
}

impl DelayedStatus {
    fn of(
        (step, inputs): (&Address, Option<&[InputRef]>),
        key: &ParkedKey,
        job: ParkedJob,
        now: Timestamp,
    ) -> Self {
        let jobs = job.inputs.iter().map(|(name, index)| {
            let input = inputs.unwrap_or_default().iter().find(|input| input.hash_name() == *name);
            // The step may have read something else then.
            input.map_or_else(|| format!("{name}/{index}"), |input| format!("{}/{index}", input.address))
        });
        let waits_for = match (&job.reason, &job.to) {
            (ParkReason::Due, None) if job.waits_for_turn(key.due, now) => WaitsFor::Turn,
            (ParkReason::Due, None) => WaitsFor::Time,
            (ParkReason::Due, Some(_)) => WaitsFor::Output,
            (ParkReason::Started, _) => WaitsFor::Attempt,
            (ParkReason::Pending { .. } | ParkReason::Completed { .. }, _) => WaitsFor::Outside,
        };
        let is_timed = job.reason == ParkReason::Due && key.due > now && key.due < NO_DUE_TIME;
        let told = job.reason.outside().and_then(|(.., said)| said).map(|said| said.status);
        let (handle, since) = match job.reason {
            ParkReason::Pending { handle, since } | ParkReason::Completed { handle, since, .. } => {
                (Some(handle), Some(rfc3339(since)))
            }
            ParkReason::Due | ParkReason::Started => (None, None),
        };
        Self {
            step: step.to_string(),
            jobs: jobs.collect(),
            waits_for,
            due: is_timed.then(|| rfc3339(key.due)),
            attempts: job.attempt,
            last_error: job.last_error,
            handle,
            since,
            told,
            output: job.to,
            configured: inputs.is_some(),
            row: ParkedJobRef { due: key.due, sequence: key.sequence },
        }
    }
}
