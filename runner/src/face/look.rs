//! Questions about state, and their answers. They are the same on a stopped store and, through the
//! local socket, against a running runner.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::config::{Configuration, Input};
use crate::decide::{Counters, Progress};
use crate::store::{QueueState, ReadError, Store};
use crate::words::Address;

/// The most jobs that one answer brings.
pub(super) const JOBS_MAX: usize = 10_000;
/// Bytes read at a time.
const READ_BYTES: usize = 1 << 20;

/// A question.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "query")]
pub(super) enum Query {
    Status,
    Queues,
    Jobs { queue: String, from: Option<u64>, limit: usize },
    Errors { queue: Option<String>, limit: usize },
    Error { queue: String, index: u64 },
}

/// An answer; which one belongs to the question.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    Status(Vec<StepStatus>),
    Queues(Vec<QueueStatus>),
    Jobs(Vec<Job>),
    Errors(Vec<Job>),
    /// There is no queue, or no job, of that name.
    Missing(String),
}

/// How far a step is.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StepStatus {
    pub(super) step: String,
    pub(super) input: String,
    /// Every job at or below it is accounted for.
    pub(super) watermark: u64,
    /// Jobs that wait; `null` for a source, which is not counted beforehand.
    pub(super) waiting: Option<u64>,
    /// The step is in the configuration.
    pub(super) configured: bool,
    #[serde(flatten)]
    pub(super) counters: Counters,
}

/// What a queue holds.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct QueueStatus {
    pub(super) queue: String,
    /// The index of the oldest job that is kept.
    pub(super) first: u64,
    /// The index of the last job; 0 where there was none yet.
    pub(super) head: u64,
    pub(super) jobs: u64,
    pub(super) bytes: u64,
    pub(super) errors: bool,
    pub(super) readers: Vec<ReaderStatus>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReaderStatus {
    pub(super) step: String,
    pub(super) waiting: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) queue: String,
    pub(super) index: u64,
    pub(super) job: Box<RawValue>,
}

/// Answers from the store.
///
/// # Errors
/// Where the store cannot be read.
pub(super) fn answer(
    store: &Store,
    configuration: &Configuration,
    query: &Query,
) -> Result<Answer, ReadError> {
    match query {
        Query::Status => status(store, configuration),
        Query::Queues => queues(store, configuration),
        Query::Jobs { queue, from, limit } => jobs(store, queue, *from, *limit),
        Query::Errors { queue, limit } => errors(store, configuration, queue.as_deref(), *limit),
        Query::Error { queue, index } => error(store, queue, *index),
    }
}

fn status(store: &Store, configuration: &Configuration) -> Result<Answer, ReadError> {
    let mut known = store.all_progress()?;
    let mut steps = Vec::new();
    let reads =
        configuration.steps.iter().flat_map(|step| step.inputs.iter().map(move |input| (step, input)));
    for (step, input) in reads {
        let at = known.iter().position(|(name, from, _)| *name == step.address && *from == input.address);
        let progress = at.map(|at| known.remove(at).2).unwrap_or_default();
        let waiting = match input.input {
            Input::Source(_) => None,
            Input::Queue(_) => {
                Some(store.queue(&input.address)?.map_or(0, |queue| waiting(&queue, &progress)))
            }
        };
        steps.push(StepStatus {
            step: step.address.to_string(),
            input: input.address.to_string(),
            watermark: progress.watermark(),
            waiting,
            configured: true,
            counters: progress.counters,
        });
    }
    // Progress that nothing in the configuration claims is kept, and shown.
    for (step, input, progress) in known {
        let waiting = store.queue(&input)?.map(|queue| waiting(&queue, &progress));
        steps.push(StepStatus {
            step: step.to_string(),
            input: input.to_string(),
            watermark: progress.watermark(),
            waiting,
            configured: false,
            counters: progress.counters,
        });
    }
    Ok(Answer::Status(steps))
}

fn queues(store: &Store, configuration: &Configuration) -> Result<Answer, ReadError> {
    let progress = store.all_progress()?;
    let mut queues = Vec::new();
    for queue in store.queues()? {
        let readers =
            progress.iter().filter(|(_, input, _)| *input == queue.address).map(|(step, _, progress)| {
                ReaderStatus {
                    step: step.to_string(),
                    waiting: queue.head.saturating_sub(progress.watermark()),
                }
            });
        let settings = configuration.queues.iter().find(|settings| settings.address == queue.address);
        queues.push(QueueStatus {
            queue: queue.address.to_string(),
            first: queue.first,
            head: queue.head,
            jobs: queue.jobs(),
            bytes: queue.bytes,
            errors: settings.is_some_and(|settings| settings.holds_errors),
            readers: readers.collect(),
        });
    }
    Ok(Answer::Queues(queues))
}

fn jobs(store: &Store, queue: &str, from: Option<u64>, limit: usize) -> Result<Answer, ReadError> {
    let Some((address, state)) = find(store, queue)? else { return missing(store, queue) };
    let from = from.unwrap_or(state.first).max(state.first);
    Ok(Answer::Jobs(read(store, &address, from, limit)?))
}

fn errors(
    store: &Store,
    configuration: &Configuration,
    queue: Option<&str>,
    limit: usize,
) -> Result<Answer, ReadError> {
    let mut all = Vec::new();
    if let Some(queue) = queue {
        let Some((address, state)) = find(store, queue)? else { return missing(store, queue) };
        return Ok(Answer::Errors(read(store, &address, last(&state, limit), limit)?));
    }
    for queue in configuration.queues.iter().filter(|queue| queue.holds_errors) {
        if let Some(state) = store.queue(&queue.address)? {
            all.extend(read(store, &queue.address, last(&state, limit), limit)?);
        }
    }
    Ok(Answer::Errors(all))
}

fn error(store: &Store, queue: &str, index: u64) -> Result<Answer, ReadError> {
    let Some((address, state)) = find(store, queue)? else { return missing(store, queue) };
    if index < state.first || index > state.head {
        let what = format!("queue `{queue}` has no job {index}; it holds {}", range(&state));
        return Ok(Answer::Missing(what));
    }
    Ok(Answer::Errors(read(store, &address, index, 1)?))
}

/// The jobs that a step has not accounted for and that are still kept.
fn waiting(queue: &QueueState, progress: &Progress) -> u64 {
    queue.head.saturating_sub(progress.watermark().max(queue.first - 1))
}

fn range(state: &QueueState) -> String {
    match state.jobs() {
        0 => "none".to_owned(),
        _ => format!("{} to {}", state.first, state.head),
    }
}

/// Where the last `limit` jobs begin.
fn last(state: &QueueState, limit: usize) -> u64 {
    state.first.max((state.head + 1).saturating_sub(limit as u64))
}

fn find(store: &Store, queue: &str) -> Result<Option<(Address, QueueState)>, ReadError> {
    let Some(address) = Address::parse(queue) else { return Ok(None) };
    Ok(store.queue(&address)?.map(|state| (address, state)))
}

fn missing(store: &Store, queue: &str) -> Result<Answer, ReadError> {
    let names: Vec<String> = store.queues()?.iter().map(|queue| queue.address.to_string()).collect();
    let hint = match crate::words::suggest::nearest(queue, names.iter().map(String::as_str)) {
        Some(near) => format!("; did you mean `{near}`?"),
        None if names.is_empty() => "; no queue has had a job yet".to_owned(),
        None => format!("; there are {}", names.join(", ")),
    };
    Ok(Answer::Missing(format!("there is no queue `{queue}`{hint}")))
}

fn read(store: &Store, queue: &Address, mut from: u64, limit: usize) -> Result<Vec<Job>, ReadError> {
    let mut jobs = Vec::new();
    let limit = limit.min(JOBS_MAX);
    while jobs.len() < limit {
        let Some(batch) = store.read(queue, from, limit - jobs.len(), READ_BYTES)? else { break };
        from = batch.end();
        for (index, payload) in (batch.first..).zip(batch.payloads.iter()) {
            let text = String::from_utf8_lossy(payload).into_owned();
            let job = RawValue::from_string(text).map_err(|error| {
                ReadError::Damaged(format!("job {index} of `{queue}` is no JSON: {error}"))
            })?;
            jobs.push(Job { queue: queue.to_string(), index, job });
        }
    }
    Ok(jobs)
}
