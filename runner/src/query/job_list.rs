//! `JobList`: the jobs of one queue with a status at its steps, in pages, and the jobs with a handle.
//!
//! A page is found by index: among the jobs that are kept, and the parked ones that are not.

use std::collections::BTreeSet;

use serde::Serialize;

use super::Answer;
use super::job::{self, JobSelection, JobStatus, ReportedState, StepOutcome};
use tidegate_config::{Configuration, InputRef, Step};
use tidegate_engine::Handle;
use tidegate_model::{Address, Progress, scalar};
use tidegate_store::{ReadError, Store};

/// Jobs that are considered for a page, if those that every step has finished are skipped …
const CONSIDERED_MAX: usize = 10_000;
/// … and jobs whose outcome is searched.
const SEARCHED_MAX: usize = 1_000;

/// The jobs that a client asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobFilter {
    pub(crate) status: Option<ReportedState>,
    /// `pipeline/step`
    pub(crate) step: Option<String>,
    pub(crate) lane: Option<String>,
    /// With the payloads.
    pub(crate) payload: bool,
    /// Only jobs with a higher index.
    pub(crate) after: u64,
    pub(crate) limit: usize,
}

/// A page of jobs, each with the steps that match.
#[derive(Debug, Default, Serialize)]
pub(crate) struct JobList {
    pub(crate) jobs: Vec<JobStatus>,
    /// The `after` of the next page; absent after the last one. A page may have fewer jobs than its limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<u64>,
}

/// A step that reads the queue, and its state.
struct Reader<'c> {
    step: &'c Step,
    progress: Progress,
    /// Indices of parked jobs above `after`, the lowest ones.
    parked: BTreeSet<u64>,
}

pub(crate) fn list(
    store: &Store,
    configuration: &Configuration,
    run: Option<&Handle>,
    queue: &Address,
    filter: &JobFilter,
) -> Result<JobList, ReadError> {
    let Some(state) = store.queue(queue)? else { return Ok(JobList::default()) };
    let mut readers = Vec::new();
    for (step, input) in inputs(configuration, queue) {
        if filter.step.as_ref().is_none_or(|wanted| step.address.to_string() == *wanted) {
            let progress = tidegate_engine::progress(store, step, input)?;
            let parked = parked(store, step, input, filter.after)?;
            readers.push(Reader { step, progress, parked });
        }
    }
    let is_open = filter.status.is_some_and(|status| !status.is_over());
    let from = state.first.max(filter.after.saturating_add(1));
    let gone = readers.iter().flat_map(|reader| reader.parked.range(..from)).copied();
    let gone: BTreeSet<u64> = gone.collect();
    let (mut list, mut searched) = (JobList::default(), 0);
    for (considered, index) in gone.into_iter().chain(from..=state.head).enumerate() {
        if list.jobs.len() >= filter.limit || considered >= CONSIDERED_MAX || searched >= SEARCHED_MAX {
            return Ok(list);
        }
        list.next = (index < state.head).then_some(index);
        let waits = |reader: &Reader<'_>| !reader.progress.is_done(index) || reader.parked.contains(&index);
        if is_open && !readers.iter().any(waits) {
            continue;
        }
        searched += 1;
        list.jobs.extend(matching(store, configuration, run, (queue, index), (&readers, filter))?);
    }
    list.next = None;
    Ok(list)
}

/// The pending jobs of the queue that an external system identifies by this handle.
pub(crate) fn with_handle(
    store: &Store,
    configuration: &Configuration,
    run: Option<&Handle>,
    queue: &Address,
    (handle, payload): (&str, bool),
) -> Result<JobList, ReadError> {
    let mut indices = BTreeSet::new();
    for (step, input) in inputs(configuration, queue) {
        let name = input.hash_name();
        for row in store.all_parked(&step.address) {
            let (_, row) = row?;
            let is_it = row.reason.outside().is_some_and(|(found, ..)| found == handle);
            let of_queue = row.inputs.iter().filter(|(input, _)| is_it && *input == name);
            indices.extend(of_queue.map(|(_, index)| *index));
        }
        if indices.len() >= SEARCHED_MAX {
            break;
        }
    }
    let mut list = JobList::default();
    for index in indices.into_iter().take(SEARCHED_MAX) {
        list.jobs.extend(found(store, configuration, run, (queue, index), payload)?);
    }
    Ok(list)
}

/// The steps of the configuration that read the queue.
fn inputs<'c>(
    configuration: &'c Configuration,
    queue: &'c Address,
) -> impl Iterator<Item = (&'c Step, &'c InputRef)> {
    let inputs = |step: &'c Step| step.inputs.iter().map(move |input| (step, input));
    configuration.steps.iter().flat_map(inputs).filter(|(_, input)| input.address == *queue)
}

fn parked(store: &Store, step: &Step, input: &InputRef, after: u64) -> Result<BTreeSet<u64>, ReadError> {
    let (name, mut found) = (input.hash_name(), BTreeSet::new());
    for row in store.all_parked(&step.address) {
        let (_, row) = row?;
        found.extend(
            row.inputs
                .iter()
                .filter(|(input, index)| *input == name && *index > after)
                .map(|(_, index)| *index),
        );
        if found.len() > CONSIDERED_MAX {
            found.pop_last();
        }
    }
    Ok(found)
}

fn found(
    store: &Store,
    configuration: &Configuration,
    run: Option<&Handle>,
    (queue, index): (&Address, u64),
    whole: bool,
) -> Result<Option<JobStatus>, ReadError> {
    let selection = JobSelection { why: false, whole, before: false, run };
    Ok(match job::status(store, configuration, (&queue.to_string(), index), &selection)? {
        Answer::Job(job) => Some(job),
        _ => None,
    })
}

/// The job with the steps that match, if any does.
fn matching(
    store: &Store,
    configuration: &Configuration,
    run: Option<&Handle>,
    job: (&Address, u64),
    (readers, filter): (&[Reader<'_>], &JobFilter),
) -> Result<Option<JobStatus>, ReadError> {
    let whole = filter.payload || filter.lane.is_some();
    let Some(mut job) = found(store, configuration, run, job, whole)? else { return Ok(None) };
    let payload = job.payload.take();
    let is_in_lane = |step: &Step| {
        let Some(wanted) = &filter.lane else { return true };
        let lane = step.picks().and_then(|queuer| queuer.lane.as_ref());
        let lane = lane.zip(payload.as_ref()).and_then(|(lane, job)| lane.path.find(job.get().as_bytes()));
        lane.and_then(scalar).is_some_and(|lane| lane == *wanted)
    };
    let matches = |outcome: &StepOutcome| {
        let reader = readers.iter().find(|reader| reader.step.address.to_string() == outcome.step);
        filter.status.is_none_or(|status| outcome.status == status)
            && reader.is_some_and(|reader| is_in_lane(reader.step))
    };
    job.steps.retain(matches);
    job.payload = payload.filter(|_| filter.payload);
    if !filter.payload {
        // Whether it is kept is known only after a search for it.
        job.note = None;
    }
    let is_asked = filter.status.is_some() || filter.step.is_some() || filter.lane.is_some();
    Ok((!job.steps.is_empty() || !is_asked).then_some(job))
}
