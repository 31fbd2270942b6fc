//! `DelayedPage`: lists parked jobs, with the event that each waits for and the jobs it was made from.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::late::LateAddress;
use super::pending_fields::PendingFields;
use super::retry_status::names;
use super::{Answer, rfc3339, status};
use tidegate_config::{Configuration, InputRef};
use tidegate_model::{Address, Clock as _, Due, FieldPath, SystemClock, Timestamp, scalar};
use tidegate_store::{LateKey, ParkReason, ParkedId, ParkedJob, ParkedPosition, ReadError, Store};

/// Late jobs per read, and bytes of them.
const PAGE: usize = 1_000;
const PAGE_BYTES: usize = 2 << 20;

/// The parked jobs that fit into one answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DelayedPage {
    /// In order of due time within each step.
    pub(crate) jobs: Vec<DelayedStatus>,
    /// Number of parked jobs of the requested steps.
    pub(crate) total: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DelayedStatus {
    /// Its step, or its queue if it is not on it yet.
    pub(crate) step: String,
    /// The jobs it was made from: `pipeline/queue/index`, several for a join.
    pub(crate) jobs: Vec<String>,
    pub(crate) waits_for: WaitsFor,
    /// The due time; RFC 3339. Missing if it is due by now, or waits for an event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) due: Option<String>,
    /// Number of attempts started.
    pub(crate) attempts: u32,
    /// The error of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_error: Option<String>,
    #[serde(flatten)]
    pub(crate) pending: PendingFields,
    /// The output address, if the job is an output that was already made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<String>,
    /// The lane, if the step has lanes and the job is in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lane: Option<String>,
    /// The payload, if it was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) payload: Option<String>,
    /// The step is in the configuration.
    pub(crate) configured: bool,
    /// The start of the attempt, if the job waits for its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) started: Option<Timestamp>,
    /// The store's number of the job, and its position.
    pub(crate) row: ParkedPosition,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WaitsFor {
    /// A time; then the job waits for its step.
    Time,
    /// Its partners in a join by key; then it is at its end if it has a due time.
    Partner,
    /// Its turn at its step: it was put back, or its time has passed.
    Turn,
    /// A time; the job is an output that was already made.
    Output,
    /// The end of an attempt with external effects.
    Attempt,
    /// The delivery of the jobs before it; it is finished.
    Order,
    /// An external system.
    Outside,
    /// A time; then the job is appended to its queue.
    Arrival,
}

/// The parked jobs that are asked for.
pub(crate) struct ParkedFilter<'a> {
    /// The step of the jobs; without one, all steps.
    pub(crate) step: Option<&'a str>,
    /// The job that they were made from.
    pub(crate) job: Option<&'a str>,
    /// Their lane at the step.
    pub(crate) lane: Option<&'a str>,
    /// With their payloads.
    pub(crate) whole: bool,
}

/// Parked jobs: the first `limit` of each step by due time, after `after`.
pub(crate) fn delayed(
    store: &Store,
    configuration: &Configuration,
    wanted: &ParkedFilter<'_>,
    after: Option<ParkedPosition>,
    limit: usize,
) -> Result<Answer, ReadError> {
    let step = wanted.step;
    let is_asked = |one: &Address| step.is_none_or(|step| one.to_string() == step);
    let configured = configuration.steps.iter().map(|step| (step.address.clone(), Some(&*step.inputs)));
    let mut asked: Vec<(Address, Option<&[InputRef]>)> =
        configured.filter(|(step, _)| is_asked(step)).collect();
    // Jobs of steps that were removed from the configuration are kept.
    for (gone, ..) in store.all_progress()? {
        if is_asked(&gone) && asked.iter().all(|(step, _)| *step != gone) {
            asked.push((gone, None));
        }
    }
    let mut queues: Vec<(Address, bool)> =
        configuration.queues.iter().map(|queue| (queue.address.clone(), true)).collect();
    for gone in store.known_parts()?.queues {
        if queues.iter().all(|(queue, _)| *queue != gone) {
            queues.push((gone, false));
        }
    }
    queues.retain(|(queue, _)| is_asked(queue));
    if let (Some(step), true, true) = (step, asked.is_empty(), queues.is_empty()) {
        return Ok(status::missing(configuration, step));
    }
    let (mut found, mut total) = (Vec::new(), 0);
    for (step, inputs) in asked {
        total += store.parked_count(&step)?;
        let declared = configuration.steps.iter().find(|one| one.address == step);
        let lane = declared.and_then(|one| Some(&one.picks()?.lane.as_ref()?.path));
        let joins = declared.is_some_and(|one| one.joins.is_some());
        of_step(store, (&step, inputs, lane, joins), wanted, after, limit, &mut found)?;
    }
    for (queue, configured) in queues {
        total += store.late_count(&queue)?;
        of_queue(store, (&queue, configured), wanted, after, limit, &mut found)?;
    }
    found.sort_by_key(|(due, status)| (*due, status.row));
    found.truncate(limit);
    let jobs = found.into_iter().map(|(_, status)| status).collect();
    Ok(Answer::Delayed(DelayedPage { jobs, total }))
}

fn of_step(
    store: &Store,
    (address, inputs, lane, joins): (&Address, Option<&[InputRef]>, Option<&FieldPath>, bool),
    wanted: &ParkedFilter<'_>,
    after: Option<ParkedPosition>,
    limit: usize,
    found: &mut Vec<(Due, DelayedStatus)>,
) -> Result<(), ReadError> {
    let mut left = limit;
    let now = SystemClock.now();
    let rows = match after {
        Some(position) => store.parked_after(address, position),
        None => store.all_parked(address),
    };
    for row in rows {
        let (key, row) = row?;
        let due = row.started().map_or(row.due, Due::At);
        let lane = lane.and_then(|lane| lane.find(&row.payload)).and_then(scalar).map(Cow::into_owned);
        if wanted.lane.is_some() && wanted.lane != lane.as_deref() {
            continue;
        }
        let payload = wanted.whole.then(|| String::from_utf8_lossy(&row.payload).into_owned());
        let mut status =
            DelayedStatus { lane, payload, ..DelayedStatus::of((address, inputs), key.id, row, now) };
        if joins && status.waits_for == WaitsFor::Time && status.attempts > 0 {
            status.waits_for = WaitsFor::Partner;
        }
        if wanted.job.is_none_or(|job| status.jobs.iter().any(|one| one == job)) {
            found.push((due, status));
            left = left.saturating_sub(1);
        }
        if left == 0 {
            break;
        }
    }
    Ok(())
}

/// The jobs of a queue that are appended later. They have no lane yet.
fn of_queue(
    store: &Store,
    (queue, configured): (&Address, bool),
    wanted: &ParkedFilter<'_>,
    after: Option<ParkedPosition>,
    limit: usize,
    found: &mut Vec<(Due, DelayedStatus)>,
) -> Result<(), ReadError> {
    if wanted.lane.is_some() {
        return Ok(());
    }
    let (now, mut left, mut after) = (SystemClock.now(), limit, after);
    while left > 0 {
        let rows = store.late_due(queue, Due::Never, after, PAGE.min(left), PAGE_BYTES)?;
        let Some((last, job)) = rows.last() else { return Ok(()) };
        after = Some(job.position(last.id));
        for (LateKey { id, .. }, job) in rows {
            let row = job.position(id);
            let name = LateAddress { queue: queue.clone(), id }.to_string();
            if wanted.job.is_some_and(|wanted| wanted != name) {
                continue;
            }
            left = left.saturating_sub(1);
            let status = DelayedStatus {
                step: queue.to_string(),
                jobs: vec![name],
                waits_for: WaitsFor::Arrival,
                due: job.due.waits_until(now).map(rfc3339),
                attempts: 0,
                last_error: None,
                pending: PendingFields::default(),
                output: None,
                lane: None,
                payload: wanted.whole.then(|| String::from_utf8_lossy(&job.payload).into_owned()),
                configured,
                started: None,
                row,
            };
            found.push((job.due, status));
        }
    }
    Ok(())
}

impl DelayedStatus {
    fn of(
        (step, inputs): (&Address, Option<&[InputRef]>),
        id: ParkedId,
        job: ParkedJob,
        now: Timestamp,
    ) -> Self {
        let jobs = names(&job, inputs.unwrap_or_default());
        let waits_for = match &job.reason {
            ParkReason::Delayed if job.waits_for_turn(now) => WaitsFor::Turn,
            ParkReason::Delayed => WaitsFor::Time,
            ParkReason::Output { .. } => WaitsFor::Output,
            ParkReason::Started { .. } => WaitsFor::Attempt,
            ParkReason::Finished { .. } => WaitsFor::Order,
            ParkReason::Pending { .. } | ParkReason::Completed { .. } => WaitsFor::Outside,
        };
        let row = ParkedPosition::of(id, &job);
        let started = job.started();
        Self {
            step: step.to_string(),
            jobs,
            waits_for,
            due: job.due.waits_until(now).map(rfc3339),
            attempts: job.attempt,
            output: job.output().map(str::to_owned),
            pending: PendingFields::of(&job.reason),
            last_error: job.last_error,
            lane: None,
            payload: None,
            configured: inputs.is_some(),
            started,
            row,
        }
    }
}
