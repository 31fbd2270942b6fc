//! Operator requests: compute the changes of the store, in the same way for a stopped store and for a running
//! engine.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_plugin::Payloads;

use super::cancel::{self, CancelTarget};
use super::complete;
use super::complete::ExternalCompletion;
use super::effect::{MovedRows, RequestEffect, RowAfter, error_text};
use super::late;
use super::removed;
use super::request::{MoveSummary, Request, RequestOutcome};
use crate::batch::events::{EventWriter, JobEvent};
use crate::batch::reason;
use crate::recovery::{rewind, source_kinds};
use crate::step::held_lanes::holds_lanes;
use tidegate_components::script::json;
use tidegate_config::{Configuration, Input, InputMode, InputRef, PushSource, Queue, QueueRef, Retain};
use tidegate_dispatch::Hold;
use tidegate_model::suggest::{did_you_mean_address, listed};
use tidegate_model::{
    Address, Due, NameHistory, Progress, Timestamp, from_rfc3339, on_one_line, present, shortened,
};
use tidegate_store::{
    Append, Block, Changes, DeliveryKey, Details, FinishedOutput, FinishedResult, JobForm, NewParkedJob,
    ParkReason, ParkedId, ParkedJob, ParkedKey, ReadError, SnapshotInput, SnapshotKey, Store, Trim, TrimWhen,
};
use tidegate_store::{LaneChange, LaneHold};

/// # Errors
/// The reason for a refusal, as a sentence; nothing is changed then.
pub fn apply(
    store: &Store,
    configuration: &Configuration,
    request: &Request,
    now: Timestamp,
) -> Result<RequestEffect, String> {
    let changes = Changes { now, ..Changes::default() };
    match request {
        Request::Push { queue, jobs, due } => push(store, configuration, queue, jobs, *due, changes),
        Request::MakeLateDue { queue, rows } => late::make_due(store, configuration, queue, rows, changes),
        Request::DropLate { queue, rows } => late::drop_jobs(store, configuration, queue, rows, changes),
        Request::Retry { queue, errors } => retry(store, configuration, (queue, errors), None, changes),
        Request::Replace { queue, error, payload } => {
            retry(store, configuration, (queue, &[*error]), Some(payload), changes)
        }
        Request::Drop { queue, errors } => drop_errors(store, configuration, queue, errors, changes),
        Request::DropRemoved { part } => removed::drop_parts(store, configuration, part, changes),
        Request::ClearQueue { queue, up_to } => clear_queue(store, configuration, (queue, *up_to), changes),
        Request::Replay { step, from } => replay(store, configuration, step, from, changes),
        Request::Skip { step, up_to } => skip(store, configuration, step, up_to, changes),
        Request::MakeDue { step, rows } => hasten(store, configuration, step, rows, Due::hastened, changes),
        Request::Shift { step, rows, by } => {
            let earlier = |due| if let Due::At(time) = due { Due::At(time - *by) } else { due };
            hasten(store, configuration, step, rows, earlier, changes)
        }
        Request::Cancel { step, rows, jobs, drop, pending } => {
            let step = position(configuration, step)?;
            let wanted = CancelTarget { step, rows, jobs, drop: *drop, pending: *pending };
            cancel::cancel(store, configuration, &wanted, changes)
        }
        Request::Pause { step, paused } => pause(store, configuration, step, *paused, changes),
        Request::PauseMonitor { step, paused } => pause_monitor(store, configuration, step, *paused, changes),
        Request::PauseLane { step, lane, paused } => {
            pause_lane(store, configuration, (step, lane), *paused, changes)
        }
        Request::Poll { .. } => Err("no runner is running, so no monitor can be polled now".to_owned()),
        Request::Complete { step, index, token, completion, row } => {
            let step = position(configuration, step)?;
            let external = ExternalCompletion { step, index: *index, token, completion, row: *row };
            complete::complete(store, configuration, &external, changes)
        }
        Request::Validate { step, row } => {
            let step = position(configuration, step)?;
            complete::validate(store, configuration, step, *row, changes)
        }
    }
}

/// Reason for which no job can be pushed to a queue, if the runner itself fills it.
#[must_use]
pub fn no_push(queue: &Queue) -> Option<String> {
    let (kind, content) = match queue {
        Queue { holds_errors: true, .. } => ("an error queue", "error records"),
        Queue { holds_events: true, .. } => ("a queue for events", "events"),
        _ => return None,
    };
    let queue = &queue.address;
    Some(format!("`{queue}` is {kind} and has {content}, not jobs: push to the queue that the step reads"))
}

fn push(
    store: &Store,
    configuration: &Configuration,
    queue: &Address,
    jobs: &[String],
    due: Option<Timestamp>,
    mut changes: Changes,
) -> Result<RequestEffect, String> {
    let position = configuration.queues.position(|declared| declared.address == *queue);
    let Some(position) = position else { return Err(format!("the configuration has no queue `{queue}`")) };
    if let Some(why) = no_push(&configuration.queues[position]) {
        return Err(why);
    }
    if let Some(PushSource::Http(source)) = &configuration.queues[position].source
        && let Some(key) = &source.key
    {
        return Err(format!("the source `{queue}` identifies jobs by `{key}`: push them over HTTP"));
    }
    let mut payloads = Payloads::new();
    for (at, job) in jobs.iter().enumerate() {
        json::check(job.as_bytes()).map_err(|error| format!("job {} is not JSON: {error}", at + 1))?;
        payloads.push(job.as_bytes());
    }
    if let Some(due) = due.filter(|due| *due > changes.now) {
        return Ok(late::push((QueueRef(position), queue), jobs, due, changes));
    }
    changes.heads = source_kinds::heads_before_a_push(queue, store).map_err(|error| error_text(&error))?;
    let block = Block::encode(&payloads, Details::default());
    changes.appends.push(Append { queue: queue.clone(), block });
    let request_outcome = RequestOutcome::Pushed { jobs: payloads.len() as u64 };
    let mut effect = RequestEffect::new(changes, request_outcome);
    effect.appended.push((QueueRef(position), payloads, None));
    Ok(effect)
}

/// Discards the jobs of a queue that every reader has accounted for.
fn clear_queue(
    store: &Store,
    configuration: &Configuration,
    (queue, up_to): (&Address, u64),
    mut changes: Changes,
) -> Result<RequestEffect, String> {
    let Some(position) = configuration.queues.position(|declared| declared.address == *queue) else {
        return Err(format!("the configuration has no queue `{queue}`"));
    };
    let mut last = up_to;
    for &(step, _) in configuration.readers(Input::Queue(QueueRef(position))) {
        let progress = store.progress(&configuration.steps[step].address, queue);
        let progress = progress.map_err(|error| error_text(&error))?.unwrap_or_default();
        last = last.min(progress.position());
    }
    let Some(state) = store.queue(queue).map_err(|error| error_text(&error))? else {
        return Ok(RequestEffect::new(changes, RequestOutcome::Dropped { jobs: 0 }));
    };
    let jobs = (last.min(state.head) + 1).saturating_sub(state.first);
    changes.trims.push(Trim { queue: queue.clone(), up_to: last, when: TrimWhen::Always, max_bytes: None });
    Ok(RequestEffect::new(changes, RequestOutcome::Dropped { jobs }))
}

/// Fields of an error record that are needed to run its job again.
#[derive(Deserialize)]
struct FailedJobRecord<'a> {
    pipeline: String,
    step: String,
    input: String,
    index: u64,
    #[serde(default)]
    inputs: Option<BTreeMap<String, Given>>,
    attempt: u32,
    /// Configuration that failed: the names are those of that time.
    #[serde(default)]
    generation: u64,
    message: String,
    #[serde(borrow, default)]
    meta: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    job: Option<&'a RawValue>,
    /// The line of a command that is no job.
    #[serde(default)]
    line: Option<u64>,
    #[serde(default)]
    job_text: Option<String>,
    #[serde(default)]
    job_bytes: Option<Vec<u8>>,
    /// Output that was due later. Its payload is the job.
    #[serde(default)]
    output: Option<String>,
    /// Outputs of the attempt, which were not delivered.
    #[serde(borrow, default)]
    outputs: Option<Vec<UndeliveredOutput<'a>>>,
}

#[derive(Deserialize)]
struct UndeliveredOutput<'a> {
    to: String,
    #[serde(default)]
    due: Option<String>,
    #[serde(borrow)]
    job: &'a RawValue,
}

#[derive(Deserialize)]
struct Given {
    index: u64,
}

/// `payload`: replaces the payloads of the jobs.
fn retry(
    store: &Store,
    configuration: &Configuration,
    (queue, errors): (&Address, &[u64]),
    payload: Option<&str>,
    mut changes: Changes,
) -> Result<RequestEffect, String> {
    let mut parked = Vec::with_capacity(errors.len());
    let names = store.name_history().map_err(|error| error_text(&error))?;
    handle_errors(store, configuration, (queue, errors), &mut changes, |index, record| {
        let wrong = |why: String| format!("{queue}/{index} cannot be retried: {why}");
        let from_error = Some((queue.clone(), index));
        let (step, mut job) = failed_job(configuration, &names, record).map_err(wrong)?;
        match payload {
            Some(payload) => job = with_payload(configuration, &step, job, payload)?,
            // The record has only the beginning of a line that is too long.
            None if job.form != JobForm::Json => {
                let why =
                    "its job is not JSON, so it would fail again; `--payload FILE` gives it another one";
                return Err(wrong(why.to_owned()));
            }
            None => {}
        }
        let created = created(store, &step, &job).map_err(|error| error_text(&error))?;
        parked.push(NewParkedJob { step, job: ParkedJob { from_error, created, ..job } });
        Ok(())
    })?;
    let now = changes.now;
    let mut retried: BTreeMap<Address, Payloads> = BTreeMap::new();
    for NewParkedJob { step, job } in &parked {
        let declared = configuration.steps.iter().find(|declared| declared.address == *step);
        if let Some(writer) = declared.and_then(EventWriter::new) {
            let events = retried.entry(step.clone()).or_default();
            writer.write(&writer.of_row(job), &JobEvent::Retried, now, events);
        }
    }
    changes.parked.append(&mut parked);
    let outcome = RequestOutcome::Retried { jobs: errors.len() as u64 };
    let mut effect = RequestEffect::new(changes, outcome);
    for step in &configuration.steps {
        effect.append_events(configuration, step, retried.remove(&step.address).unwrap_or_default());
    }
    Ok(effect)
}

/// The time of creation, if the record of its delivery has it.
fn created(store: &Store, step: &Address, job: &ParkedJob) -> Result<Option<Timestamp>, ReadError> {
    let record = store.delivery_record(DeliveryKey::new(step, &job.inputs))?;
    Ok(record.and_then(|record| record.times?.created))
}

/// Job with another payload. Its index stays, and so does its delivery hash.
fn with_payload(
    configuration: &Configuration,
    step: &Address,
    job: ParkedJob,
    payload: &str,
) -> Result<ParkedJob, String> {
    json::check(payload.as_bytes()).map_err(|error| format!("the payload is not JSON: {error}"))?;
    let declared = configuration.steps.iter().find(|declared| declared.address == *step);
    let is_output = matches!(job.reason, ParkReason::Output { .. });
    if !is_output && declared.is_some_and(|step| step.take != InputMode::From) {
        let parts: BTreeMap<String, &RawValue> = serde_json::from_str(payload).unwrap_or_default();
        let wanted = || job.inputs.iter().map(|(binding, _)| binding.as_str());
        if parts.len() != job.inputs.len() || !wanted().all(|binding| parts.contains_key(binding)) {
            let wanted = listed(wanted(), "and");
            return Err(format!("the payload of a job of `{step}` must be an object with {wanted}"));
        }
    }
    let reason = match job.reason {
        // It is of another payload.
        ParkReason::Finished { .. } => ParkReason::default(),
        reason => reason,
    };
    Ok(ParkedJob { form: JobForm::Json, payload: on_one_line(payload.trim()).into_bytes(), reason, ..job })
}

/// Job of an error record, and the step that runs it again.
fn failed_job(
    configuration: &Configuration,
    names: &NameHistory,
    record: &[u8],
) -> Result<(Address, ParkedJob), String> {
    let failed: FailedJobRecord<'_> =
        serde_json::from_slice(record).map_err(|error| format!("the error record is malformed: {error}"))?;
    if failed.line.is_some() {
        let input = &failed.input;
        return Err(format!(
            "a command printed it, and no step ran it; mend the line, and push it with `tidegate queue push {input}`"
        ));
    }
    let names = names.since(failed.generation);
    let name = format!("{}/{}", failed.pipeline, failed.step);
    let name = Address::parse(&name).map_or(name, |address| names.step(&address).to_string());
    let step = configuration.steps.iter().find(|step| step.address.to_string() == name);
    let step = step.ok_or_else(|| format!("its step `{name}` is not in the configuration"))?;
    let (form, payload) = match (failed.job, failed.job_text, failed.job_bytes) {
        (Some(job), ..) => (JobForm::Json, job.get().as_bytes().to_vec()),
        (None, Some(text), _) => (JobForm::Text, text.into_bytes()),
        (None, None, Some(bytes)) => (JobForm::Bytes, bytes),
        (None, None, None) => return Err("the error record has no job".to_owned()),
    };
    let inputs: Vec<(String, u64)> = match failed.inputs {
        Some(inputs) => inputs.into_iter().map(|(binding, given)| (binding, given.index)).collect(),
        None => vec![(names.input(&failed.input), failed.index)],
    };
    // The job keeps the hash that it had when its binding named another input.
    let known =
        |name: &String| step.inputs.iter().any(|input| input.hash_name() == *name || input.binding == *name);
    if let Some((lost, _)) = inputs.iter().find(|(name, _)| !known(name)) {
        return Err(format!("its step `{name}` no longer reads `{lost}`"));
    }
    let job = ParkedJob {
        inputs,
        reason: reason_of_retry(failed.output, failed.outputs)?,
        attempt: failed.attempt,
        last_error: Some(shortened(failed.message, reason::BYTES_MAX)),
        form,
        payload,
        carried: failed.meta.map(|meta| meta.get().to_owned()),
        ..ParkedJob::default()
    };
    Ok((step.address.clone(), job))
}

/// Outputs that an attempt has made are delivered, and the job does not run again.
fn reason_of_retry(
    output: Option<String>,
    outputs: Option<Vec<UndeliveredOutput<'_>>>,
) -> Result<ParkReason, String> {
    if let Some(to) = output {
        return Ok(ParkReason::Output { to });
    }
    let Some(outputs) = outputs else { return Ok(ParkReason::default()) };
    let outputs = outputs.into_iter().map(|UndeliveredOutput { to, due, job }| {
        let due = due.map(|due| from_rfc3339(&due).ok_or("the error record has a malformed time"));
        Ok(FinishedOutput { to, due: due.transpose()?, payload: job.get().as_bytes().to_vec() })
    });
    let outputs = outputs.collect::<Result<_, &str>>()?;
    Ok(ParkReason::Finished { result: FinishedResult { outputs, ..FinishedResult::default() } })
}

fn drop_errors(
    store: &Store,
    configuration: &Configuration,
    queue: &Address,
    errors: &[u64],
    mut changes: Changes,
) -> Result<RequestEffect, String> {
    handle_errors(store, configuration, (queue, errors), &mut changes, |index, record| {
        let read = serde_json::from_slice::<FailedJobRecord<'_>>(record);
        read.map(drop).map_err(|error| format!("{queue}/{index} is not an error record: {error}"))
    })?;
    Ok(RequestEffect::new(changes, RequestOutcome::Dropped { jobs: errors.len() as u64 }))
}

/// Passes the records of these errors to `handle`, and records that they are handled.
fn handle_errors(
    store: &Store,
    configuration: &Configuration,
    (queue, errors): (&Address, &[u64]),
    changes: &mut Changes,
    mut handle: impl FnMut(u64, &[u8]) -> Result<(), String>,
) -> Result<(), String> {
    must_hold_errors(configuration, queue)?;
    let mut handled = handled(store, queue)?;
    for &index in errors {
        handle(index, &error_at(store, queue, &handled, index)?)?;
        handled.finish(index, index);
    }
    mark_handled(configuration, queue, handled, changes);
    Ok(())
}

/// Puts the progress of a step back at these inputs. Jobs that were begun and are in the range begin anew.
fn replay(
    store: &Store,
    configuration: &Configuration,
    step: &Address,
    from: &[(Address, u64)],
    changes: Changes,
) -> Result<RequestEffect, String> {
    let mut effect = move_progress(store, configuration, (step, from), changes, |input, progress, next| {
        let waiting = rewind::waiting(store, step, &input.hash_name())?;
        rewind::put_back(progress, next, &waiting);
        Ok(())
    })?;
    let is_in_range = |begun: &SnapshotInput| {
        let its = from.iter().find(|(address, _)| *address == begun.address);
        its.is_some_and(|(_, next)| *next < begun.first + begun.jobs)
    };
    for snapshot in store.snapshots(step).map_err(|error| error_text(&error))? {
        if snapshot.inputs.iter().any(is_in_range) {
            let key = SnapshotKey { step: step.clone(), number: snapshot.number };
            effect.changes.done_snapshots.push(key);
        }
    }
    Ok(effect)
}

/// Lets a step skip jobs of these inputs, without those that it has begun.
fn skip(
    store: &Store,
    configuration: &Configuration,
    step: &Address,
    up_to: &[(Address, u64)],
    changes: Changes,
) -> Result<RequestEffect, String> {
    let snapshots = store.snapshots(step).map_err(|error| error_text(&error))?;
    move_progress(store, configuration, (step, up_to), changes, |input, progress, last| {
        rewind::skip(progress, last, &rewind::begun(&snapshots, input));
        Ok(())
    })
}

/// Moves the progress of a step at these inputs by `change`. Only for a stopped store: a running engine must first drop its
/// jobs in flight.
fn move_progress(
    store: &Store,
    configuration: &Configuration,
    (step, to): (&Address, &[(Address, u64)]),
    mut changes: Changes,
    change: impl Fn(&InputRef, &mut Progress, u64) -> Result<(), ReadError>,
) -> Result<RequestEffect, String> {
    let declared = &configuration.steps[position(configuration, step)?];
    let mut now_at = Vec::new();
    for input in &declared.inputs {
        let progress = store.progress(step, &input.address).map_err(|error| error_text(&error))?;
        let mut progress = progress.unwrap_or_default();
        if let Some((_, to)) = to.iter().find(|(address, _)| *address == input.address) {
            change(input, &mut progress, *to).map_err(|error| error_text(&error))?;
            changes.progress.push((step.clone(), input.address.clone(), progress.clone()));
        }
        now_at.push((input.address.clone(), progress.position() + 1));
    }
    Ok(RequestEffect::new(changes, RequestOutcome::Replayed { from: now_at }))
}

/// Jobs that wait for a time become due earlier; the others are unchanged.
fn hasten(
    store: &Store,
    configuration: &Configuration,
    step: &Address,
    rows: &[ParkedId],
    earlier: impl Fn(Due) -> Due,
    mut changes: Changes,
) -> Result<RequestEffect, String> {
    let position = position(configuration, step)?;
    let keys: Vec<ParkedKey> = rows.iter().map(|row| row.of(step)).collect();
    let found = store.parked(&keys).map_err(|error| error_text(&error))?;
    let (mut moved, mut places) = (MoveSummary::default(), Vec::with_capacity(keys.len()));
    for (key, job) in keys.into_iter().zip(found) {
        let place = match job {
            None => {
                moved.gone += 1;
                RowAfter::Gone
            }
            Some(job) if job.reason.outside().is_some() => {
                moved.busy += 1;
                RowAfter::Stays(Box::new(job))
            }
            Some(job) if job.started().is_some() || job.due.is_by(changes.now) => {
                moved.gone += 1;
                RowAfter::Stays(Box::new(job))
            }
            Some(job) => {
                moved.jobs += 1;
                let job = ParkedJob { due: earlier(job.due), ..job };
                changes.reparked.push((key.clone(), job.clone()));
                RowAfter::Stays(Box::new(job))
            }
        };
        places.push((key, place));
    }
    let mut effect = RequestEffect::new(changes, RequestOutcome::Hastened(moved));
    effect.moves = Some(MovedRows { step: position, rows: places, jobs: Vec::new(), left: Vec::new() });
    Ok(effect)
}

fn pause(
    store: &Store,
    configuration: &Configuration,
    step: &Address,
    paused: bool,
    mut changes: Changes,
) -> Result<RequestEffect, String> {
    let position = position(configuration, step)?;
    let before = store.pauses().map_err(|error| error_text(&error))?;
    let changed = before.iter().any(|pause| pause.step == *step) != paused;
    if changed {
        changes.pauses.push((step.clone(), paused));
    }
    let mut effect = pause_effect(changes, changed);
    effect.paused = Some((position, paused));
    Ok(effect)
}

fn pause_monitor(
    store: &Store,
    configuration: &Configuration,
    step: &Address,
    paused: bool,
    mut changes: Changes,
) -> Result<RequestEffect, String> {
    let position = position(configuration, step)?;
    if paused && configuration.steps[position].monitor.is_none() {
        return Err(format!("step `{step}` has no monitor"));
    }
    let before = store.monitor_pauses().map_err(|error| error_text(&error))?;
    let changed = before.iter().any(|pause| pause.step == *step) != paused;
    if changed {
        changes.monitor_pauses.push((step.clone(), paused));
    }
    let mut effect = pause_effect(changes, changed);
    effect.monitor = changed.then_some((position, paused));
    Ok(effect)
}

fn pause_lane(
    store: &Store,
    configuration: &Configuration,
    (step, lane): (&Address, &str),
    paused: bool,
    mut changes: Changes,
) -> Result<RequestEffect, String> {
    let position = position(configuration, step)?;
    if paused && !holds_lanes(&configuration.steps[position]) {
        return Err(format!(
            "step `{step}` has no lanes that can be paused: its queuer needs `lane`, and another strategy than `serial`"
        ));
    }
    let held = store.held_lanes(step).map_err(|error| error_text(&error))?;
    let changed = held.iter().any(|(held, _)| held == lane) != paused;
    let hold = paused.then_some(LaneHold { since: changes.now, halted: None });
    if changed {
        changes.lanes.push(LaneChange { step: step.clone(), lane: lane.to_owned(), hold });
    }
    let mut effect = pause_effect(changes, changed);
    let hold = paused.then(|| (Hold::Paused, String::new()));
    effect.lane = changed.then(|| (position, lane.to_owned(), hold));
    Ok(effect)
}

/// Effect of a pause or its end, which the coordinator completes.
fn pause_effect(changes: Changes, changed: bool) -> RequestEffect {
    RequestEffect::new(changes, RequestOutcome::Paused { changed, restarted: false, behind: false })
}

fn position(configuration: &Configuration, step: &Address) -> Result<usize, String> {
    let position = configuration.steps.position(|declared| declared.address == *step);
    position.ok_or_else(|| {
        let names: Vec<String> = configuration.steps.iter().map(|step| step.address.to_string()).collect();
        let hint = did_you_mean_address(&step.to_string(), names.iter().map(String::as_str));
        let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
        format!("the configuration has no step `{step}`{hint}")
    })
}

/// Records the handled errors. If no step reads the queue, they can be deleted.
fn mark_handled(configuration: &Configuration, queue: &Address, handled: Progress, changes: &mut Changes) {
    let position = configuration.queues.position(|declared| declared.address == *queue);
    if let Some(position) = position
        && configuration.queues[position].retain == Retain::Consumed
        && configuration.readers(Input::Queue(QueueRef(position))).is_empty()
        && handled.position() > 0
    {
        let (up_to, when) = (handled.position(), TrimWhen::Always);
        changes.trims.push(Trim { queue: queue.clone(), up_to, when, max_bytes: None });
    }
    changes.handled_errors.push((queue.clone(), handled));
}

/// Other queues have no failed jobs, so nothing may be removed from them. An unknown queue may have been an
/// error queue in an earlier configuration.
fn must_hold_errors(configuration: &Configuration, queue: &Address) -> Result<(), String> {
    match configuration.queues.iter().find(|declared| declared.address == *queue) {
        Some(declared) if !declared.holds_errors => Err(format!("`{queue}` is not an error queue")),
        _ => Ok(()),
    }
}

/// Handled errors of a queue.
fn handled(store: &Store, queue: &Address) -> Result<Progress, String> {
    store.handled(queue).map(Option::unwrap_or_default).map_err(|error| error_text(&error))
}

/// Error record at `index`, unless it is handled already.
fn error_at(store: &Store, queue: &Address, handled: &Progress, index: u64) -> Result<Vec<u8>, String> {
    if handled.is_done(index) {
        return Err(format!("{queue}/{index} is already retried or dropped"));
    }
    let batch = store.read(queue, index, 1, usize::MAX).map_err(|error| error_text(&error))?;
    let payload = batch.as_ref().and_then(|batch| batch.payloads.get(0));
    payload.map(<[u8]>::to_vec).ok_or_else(|| format!("the error {queue}/{index} does not exist"))
}
