//! Cancellation: removes waiting jobs, either to the error queue of their step, as rejected, or permanently.

use std::sync::Arc;
use std::time::Duration;

use tidegate_plugin::{Failure, FailureKind, Payloads};

use super::effect::{MovedRows, RequestEffect, RowAfter, error_text};
use super::request::{MoveSummary, RequestOutcome};
use crate::batch::error_record;
use crate::batch::error_record::{FailureCase, RecordedConfiguration};
use crate::batch::events::{EventJob, EventWriter, JobEnd, JobEvent};
use crate::batch::input::{BatchInput, BatchSlice, RedeliveredJob};
use crate::batch::job_builder::{BatchCursor, JobBuilder, JobInput};
use crate::batch::outcomes::DeliveryOutcomes;
use crate::batch::reason;
use crate::commit::request::OutputBlock;
use crate::recovery::start_position;
use tidegate_config::{Configuration, Input, Step};
use tidegate_model::{Address, Batch, DeliveryHash, Origins, Progress, key_hash};
use tidegate_store::{
    Append, Changes, DedupeOutcome, DedupeRecord, DeliveryOutcome, ParkReason, ParkedId, ParkedJob,
    ReadError, Store,
};

/// Maximum length of a handle in a reason, in characters.
const HANDLE_MAX: usize = 200;
/// Time for which a drop is remembered …
const REMEMBERED: Duration = Duration::from_hours(7 * 24);
/// … and the outcomes that distinguish a dropped job from a dropped output.
const JOB_DROPPED: DedupeOutcome = DedupeOutcome::Error;
const OUTPUT_DROPPED: DedupeOutcome = DedupeOutcome::Nothing;

/// Kind of a drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropKind {
    Job,
    /// A delayed output of the job.
    Output,
}

/// Jobs to cancel.
pub(crate) struct CancelTarget<'a> {
    /// Position of the step in the configuration.
    pub(crate) step: usize,
    pub(crate) rows: &'a [ParkedId],
    /// Indices of the one input of a queued step.
    pub(crate) jobs: &'a [u64],
    /// Whether the jobs are dropped permanently.
    pub(crate) drop: bool,
    /// Whether jobs that an external system has are included.
    pub(crate) pending: bool,
}

/// # Errors
/// The reason for a refusal, as a sentence; nothing is changed then.
pub(crate) fn cancel(
    store: &Store,
    configuration: &Configuration,
    wanted: &CancelTarget<'_>,
    mut changes: Changes,
) -> Result<RequestEffect, String> {
    let step = &configuration.steps[wanted.step];
    may_cancel(step, !wanted.jobs.is_empty(), wanted.drop)?;
    let mut moves = MovedRows { step: wanted.step, rows: Vec::new(), jobs: Vec::new(), left: Vec::new() };
    let (mut moved, mut works) = (MoveSummary::default(), Vec::new());
    let rows = of_rows(store, step, wanted, &mut moves, &mut moved).map_err(|error| error_text(&error))?;
    // A delayed output is not a job of the step, and leaves no error.
    let jobs: Vec<RedeliveredJob> = rows
        .into_iter()
        .filter_map(|row| {
            changes.unparked.push(row.key.clone());
            if wanted.drop {
                let outcome = if row.job.output().is_some() { OUTPUT_DROPPED } else { JOB_DROPPED };
                remember(step, &row.job.inputs, outcome, &mut changes);
            }
            row.job.output().is_none().then_some(row)
        })
        .collect();
    if !jobs.is_empty() {
        works.push(work_of(jobs));
    }
    let mut progress = match step.inputs.first() {
        Some(input) => start_position::progress(store, step, input).map_err(|error| error_text(&error))?,
        None => Progress::default(),
    };
    if let Some(input) = step.inputs.first() {
        let of_input = of_input(store, &input.address, wanted.jobs, &mut progress, &mut moved);
        for (index, work) in of_input.map_err(|error| error_text(&error))? {
            if wanted.drop {
                remember(step, &[(input.hash_name(), index)], JOB_DROPPED, &mut changes);
            }
            works.push(work);
            moves.jobs.push(index);
        }
    }
    let is_left = |index: &&u64| !moves.jobs.contains(index);
    moves.left = wanted.jobs.iter().filter(is_left).copied().collect();
    let count = works.iter().map(|work| work.jobs as u64).sum::<u64>();
    let mut effect = RequestEffect::new(changes, RequestOutcome::Cancelled(moved));
    effect.moves = Some(moves);
    if count > 0 {
        progress.counters.taken += count;
        progress.counters.failed += count;
        // Every step has an input.
        if let Some(input) = step.inputs.first() {
            let (address, input) = (step.address.clone(), input.address.clone());
            effect.changes.progress.push((address, input, progress.clone()));
            effect.progress.push((wanted.step, 0, progress));
        }
        let generation = store.generation().map_err(|error| error_text(&error))?;
        write_records(configuration, (wanted, generation.map_or(0, |one| one.number)), &works, &mut effect)?;
    }
    Ok(effect)
}

/// Recorded drop of the job at `index` of an input of `step`, or of a delayed output of it.
///
/// # Errors
/// The store cannot be read.
pub fn dropped(
    store: &Store,
    step: &Address,
    (input, index): (&str, u64),
) -> Result<Option<DropKind>, ReadError> {
    Ok(store.delivery(drop_hash(step, input, index))?.and_then(|outcome| match outcome {
        OUTPUT_DROPPED => Some(DropKind::Output),
        JOB_DROPPED => Some(DropKind::Job),
        _ => None,
    }))
}

/// Records a drop, so that `job show` can report it later.
fn remember(step: &Step, inputs: &[(String, u64)], outcome: DedupeOutcome, changes: &mut Changes) {
    let keep_until = Some(changes.now + REMEMBERED);
    let records = inputs.iter().map(|(input, index)| {
        let hash = drop_hash(&step.address, input, *index);
        DedupeRecord { hash, outcome, times: None, keep_until }
    });
    changes.dedupe_records.extend(records);
}

/// Key of the record of a drop. It is not the hash of a delivery.
fn drop_hash(step: &Address, input: &str, index: u64) -> DeliveryHash {
    let key = [input.as_bytes(), b"/", &index.to_le_bytes()].concat();
    key_hash(step.pipeline.as_str(), step.name.as_str(), "dropped", &key)
}

/// Whether jobs of `step` can be cancelled. They need an error queue unless they are dropped. Jobs that the
/// step has not reached (`waiting`) can be cancelled in a queued step only.
///
/// # Errors
/// The reason for a refusal, as a sentence.
pub fn may_cancel(step: &Step, waiting: bool, drop: bool) -> Result<(), String> {
    let address = &step.address;
    if step.errors.is_none() && !drop {
        return Err(format!(
            "step `{address}` has no error queue for cancelled jobs: name one with `errors = \"…\"`, or drop them with `--drop`"
        ));
    }
    let reads_queue = step.inputs.iter().all(|input| matches!(input.input, Input::Queue(_)));
    let may_cancel = step.picks().is_some() && reads_queue;
    if !may_cancel && waiting {
        let way = match step.errors {
            None => "; with an error queue (`errors = \"…\"`) it does not stop at a job that fails",
            Some(_) => "",
        };
        return Err(format!(
            "step `{address}` takes its jobs in order: only jobs that wait for another attempt can be cancelled{way}"
        ));
    }
    Ok(())
}

/// Parked jobs that can be cancelled.
fn of_rows(
    store: &Store,
    step: &Step,
    wanted: &CancelTarget<'_>,
    moves: &mut MovedRows,
    moved: &mut MoveSummary,
) -> Result<Vec<RedeliveredJob>, ReadError> {
    let keys: Vec<_> = wanted.rows.iter().map(|row| row.of(&step.address)).collect();
    let found = store.parked(&keys)?;
    let mut taken = Vec::new();
    for (key, job) in keys.into_iter().zip(found) {
        let place = match job {
            None => {
                moved.gone += 1;
                RowAfter::Gone
            }
            Some(job) if is_free(&job, wanted) => {
                moved.jobs += 1;
                taken.push(RedeliveredJob { key: key.clone(), job });
                RowAfter::Gone
            }
            Some(job) => {
                moved.busy += 1;
                RowAfter::Stays(Box::new(job))
            }
        };
        moves.rows.push((key, place));
    }
    Ok(taken)
}

fn is_free(job: &ParkedJob, wanted: &CancelTarget<'_>) -> bool {
    match job.reason.status() {
        // The external system has completed the job, and the completion must be delivered.
        Some(status) => wanted.pending && status.waits(),
        // The result is known, and is delivered in its turn.
        None if matches!(job.reason, ParkReason::Finished { .. }) => false,
        // A delayed output is not a job that could run again.
        None => job.output().is_none() || wanted.drop,
    }
}

fn work_of(rows: Vec<RedeliveredJob>) -> BatchInput {
    let payloads = rows.iter().map(|row| &*row.job.payload).collect();
    let (batch, jobs) = (Arc::new(Batch::json(1, payloads)), rows.len());
    let portion = BatchSlice { input: None, batch, skip: 0, jobs, returned: Some(rows.into()) };
    BatchInput { jobs, portions: vec![portion], is_picked: true, ..BatchInput::default() }
}

/// Jobs of the input that were not accounted for; now they are.
fn of_input(
    store: &Store,
    input: &Address,
    indices: &[u64],
    progress: &mut Progress,
    moved: &mut MoveSummary,
) -> Result<Vec<(u64, BatchInput)>, ReadError> {
    let mut works = Vec::new();
    for &index in indices {
        let batch = if index == 0 || progress.is_done(index) {
            None
        } else {
            match store.read(input, index, 1, usize::MAX) {
                Err(ReadError::Gone { .. }) => None,
                batch => batch?,
            }
        };
        let Some(batch) = batch else {
            moved.gone += 1;
            continue;
        };
        let portion = BatchSlice { input: Some(0), batch: Arc::new(batch), skip: 0, jobs: 1, returned: None };
        works.push((
            index,
            BatchInput { jobs: 1, portions: vec![portion], is_picked: true, ..BatchInput::default() },
        ));
        progress.finish(index, index);
        moved.jobs += 1;
    }
    Ok(works)
}

/// Writes an error record for each job that is not dropped, and the delivery records.
fn write_records(
    configuration: &Configuration,
    (wanted, generation): (&CancelTarget<'_>, u64),
    works: &[BatchInput],
    effect: &mut RequestEffect,
) -> Result<(), String> {
    let (step, now) = (&configuration.steps[wanted.step], effect.changes.now);
    let errors = step.errors.filter(|_| !wanted.drop);
    let writer = EventWriter::new(step);
    let mut events = Payloads::new();
    let keep_until = configuration.keeps_records(step).map(|keep| now + keep);
    let mut gatherer = JobBuilder::new(configuration, step);
    let (names, take) = (gatherer.inputs.iter().map(|input| input.name.clone()).collect(), gatherer.take);
    let (mut origins, mut outcomes) =
        (Origins::new(step.address.clone(), names), DeliveryOutcomes::default());
    let (mut records, mut carried) = (Payloads::new(), Payloads::new());
    let carries = works.iter().any(|work| gatherer.has_provenance(work));
    let recorded = RecordedConfiguration::new(step);
    for work in works {
        let mut walk = BatchCursor::new(work);
        while let Some(mut item) = gatherer.next(&mut walk, carries) {
            // The record has the number of attempts made, and not the number of the next one.
            item.attempt = item.attempt.saturating_sub(1);
            let outcome = if errors.is_some() { DeliveryOutcome::Error } else { DeliveryOutcome::Nothing };
            outcomes.push(item.only_input(), item.hash, (outcome, item.times(None)));
            let failure = reason::bounded(Failure::new(FailureKind::Rejected, why(step, &item)));
            if let Some(writer) = &writer {
                let end = if errors.is_some() { JobEnd::SetAside } else { JobEnd::Dropped };
                let event = JobEvent::Done { end, reason: Some(&failure.message) };
                writer.write(&EventJob::of_item(&item), &event, now, &mut events);
            }
            if errors.is_none() {
                continue;
            }
            let (step, configuration) = (&step.address, recorded.get());
            let (item, result, undelivered) = (&item, None, None);
            let case = FailureCase { now, step, take, generation, item, result, undelivered, configuration };
            records
                .push_with(|buffer| error_record::write(&case, &failure, buffer))
                .map_err(|error| format!("the error record of a cancelled job cannot be written: {error}"))?;
            origins.push(item.indices);
            if carries {
                carried.push(item.carried.as_bytes());
            }
        }
    }
    if keep_until.is_some() {
        outcomes.record(&step.address, keep_until, &mut effect.changes);
    }
    effect.append_events(configuration, step, events);
    let Some(queue) = errors else { return Ok(()) };
    let OutputBlock { payloads, carried, block } =
        OutputBlock::for_queue(records, &origins, carries.then_some(carried));
    if let Some(block) = block {
        let queue = configuration.queues[queue.0].address.clone();
        effect.changes.appends.push(Append { queue, block });
    }
    effect.appended.push((queue, payloads, carried));
    Ok(())
}

fn why(step: &Step, item: &JobInput<'_>) -> String {
    let (cancelled, before) = match item.handle() {
        Some(handle) => {
            let end = handle.char_indices().nth(HANDLE_MAX).map_or(handle.len(), |(end, _)| end);
            let more = if end < handle.len() { "…" } else { "" };
            let cancelled = format!("cancelled while pending (handle `{}{more}`)", &handle[..end]);
            (cancelled, "an attempt before that failed")
        }
        None if step.joins.is_some() => ("cancelled".to_owned(), "before that"),
        None => ("cancelled".to_owned(), "before that, its last attempt failed"),
    };
    match item.last_error() {
        Some(error) => format!("{cancelled}; {before}: {error}"),
        None => cancelled,
    }
}
