//! `Page`: reads jobs from queues, error queues included.

use std::collections::{BTreeSet, VecDeque};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Answer, JOBS_MAX, JobMaker, Page, QueueJob, rfc3339};
use tidegate_config::{Configuration, Queue};
use tidegate_model::suggest::nearest_address;
use tidegate_model::{Address, Batch, Origin, Progress};
use tidegate_store::{QueueState, ReadError, Store};

/// Maximum bytes of jobs per answer; one job may exceed it.
const PAGE_BYTES: usize = 2 << 20;
/// Maximum bytes of errors of one queue per list; one error may exceed it.
const ERRORS_BYTES: usize = 16 << 20;
/// Maximum number of errors that are read at a time.
const ERRORS_PAGE: usize = 1000;

pub(crate) fn jobs(
    store: &Store,
    configuration: &Configuration,
    queue: &str,
    (from, to): (Option<u64>, Option<u64>),
    limit: usize,
) -> Result<Answer, ReadError> {
    let Some((address, state)) = find(store, queue)? else {
        let next = from.unwrap_or(1);
        return match declared(configuration, queue) {
            Some(_) => Ok(Answer::Jobs(Page { next, ..Page::default() })),
            None => missing(store, configuration, queue),
        };
    };
    let from = from.unwrap_or(state.first).max(state.first);
    let to = to.unwrap_or(u64::MAX).min(state.head);
    let jobs = match read(store, &address, (from, to), limit.min(JOBS_MAX)) {
        // Retention has just deleted the others.
        Err(ReadError::Gone { first, .. }) => read(store, &address, (first, to), limit.min(JOBS_MAX))?,
        jobs => jobs?,
    };
    let next = jobs.last().map_or(from, |job| job.index + 1);
    Ok(Answer::Jobs(Page { jobs, next, more: next <= to, head: state.head }))
}

pub(crate) fn errors(
    store: &Store,
    configuration: &Configuration,
    queue: Option<&str>,
    all: bool,
    limit: usize,
) -> Result<Answer, ReadError> {
    let (mut errors, mut total) = (Vec::new(), 0);
    if let Some(queue) = queue {
        if declared(configuration, queue).is_some_and(|declared| !declared.holds_errors) {
            return Ok(Answer::Missing(format!("`{queue}` is not an error queue")));
        }
        let Some((_, state)) = find(store, queue)? else {
            return match declared(configuration, queue) {
                Some(_) => Ok(Answer::Errors { errors, total }),
                None => missing(store, configuration, queue),
            };
        };
        let total = last_errors(store, &state, all, limit, &mut errors)?;
        name_steps(store, &mut errors)?;
        return Ok(Answer::Errors { errors, total });
    }
    for state in error_queues(store, configuration)? {
        total += last_errors(store, &state, all, limit, &mut errors)?;
    }
    name_steps(store, &mut errors)?;
    Ok(Answer::Errors { errors, total })
}

/// The queues with error records, in the order of the configuration. Removed ones are behind the others.
pub(super) fn error_queues(
    store: &Store,
    configuration: &Configuration,
) -> Result<Vec<QueueState>, ReadError> {
    let mut found = Vec::new();
    for queue in configuration.queues.iter().filter(|queue| queue.holds_errors) {
        found.extend(store.queue(&queue.address)?);
    }
    let declared: BTreeSet<&Address> = configuration.queues.iter().map(|queue| &queue.address).collect();
    let removed = store.queues()?.into_iter().filter(|state| !declared.contains(&state.address));
    found.extend(removed.filter(|state| holds_records(store, state)));
    Ok(found)
}

/// Whether the newest job of a removed queue is an error record.
pub(super) fn holds_records(store: &Store, state: &QueueState) -> bool {
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "the fields that every error record has")]
    struct Record {
        time: String,
        step: String,
        input: String,
        attempt: u32,
        kind: String,
        hash: String,
    }
    if state.jobs() == 0 {
        return false;
    }
    // A damaged one is reported by a reading of the jobs.
    let Ok(Some(newest)) = store.read(&state.address, state.head, 1, PAGE_BYTES) else { return false };
    newest.payloads.get(0).is_some_and(|record| serde_json::from_slice::<Record>(record).is_ok())
}

/// The generation that wrote an error record.
#[derive(Deserialize)]
pub(super) struct RecordGeneration {
    #[serde(default)]
    pub(super) generation: u64,
}

/// Adds the present names of renamed steps to errors.
fn name_steps(store: &Store, errors: &mut [QueueJob]) -> Result<(), ReadError> {
    let names = store.name_history()?;
    if names.since(0).are_the_same() {
        return Ok(());
    }
    for error in errors {
        let Some(step) = error.origin.as_ref().and_then(|origin| Address::parse(&origin.step)) else {
            continue;
        };
        let record: Option<RecordGeneration> = serde_json::from_str(error.job.get()).ok();
        let present = names.since(record.map_or(0, |record| record.generation)).step(&step);
        error.present_step = (present != step).then(|| present.to_string());
    }
    Ok(())
}

pub(crate) fn error(
    store: &Store,
    configuration: &Configuration,
    queue: &str,
    index: u64,
) -> Result<Answer, ReadError> {
    let Some((address, state)) = find(store, queue)? else {
        return match declared(configuration, queue) {
            Some(_) => Ok(Answer::Missing(format!("queue `{queue}` has no job {index}: it is empty"))),
            None => missing(store, configuration, queue),
        };
    };
    let handled = store.handled(&address)?.unwrap_or_default().is_done(index);
    if index < state.first || index > state.head {
        let what = if handled && index < state.first {
            format!("{queue}/{index} is already retried or dropped, and is no longer kept")
        } else {
            format!("queue `{queue}` has no job {index}{}", range(&state))
        };
        return Ok(Answer::Missing(what));
    }
    let mut errors = read(store, &address, (index, index), 1)?;
    for error in &mut errors {
        error.handled = handled;
    }
    name_steps(store, &mut errors)?;
    let total = errors.len() as u64;
    Ok(Answer::Errors { errors, total })
}

pub(crate) fn open_errors(
    store: &Store,
    configuration: &Configuration,
    queue: &str,
    from: u64,
    to: Option<u64>,
) -> Result<Answer, ReadError> {
    let Some((address, state)) = find(store, queue)? else {
        return match declared(configuration, queue) {
            Some(_) => Ok(Answer::Jobs(Page { next: from, ..Page::default() })),
            None => missing(store, configuration, queue),
        };
    };
    let handled = store.handled(&address)?.unwrap_or_default();
    let to = to.unwrap_or(u64::MAX).min(state.head);
    let from = from.max(state.first);
    let mut page = Page { next: from, head: state.head, ..Page::default() };
    // One range per answer; most often only one exists.
    if let Some((first, last)) = open_ranges(&handled, from, to).next() {
        page.jobs = read(store, &address, (first, last), ERRORS_PAGE)?;
        name_steps(store, &mut page.jobs)?;
        page.next = page.jobs.last().map_or(last, |job| job.index) + 1;
        page.more = page.next <= to;
    }
    Ok(Answer::Jobs(page))
}

/// The last `limit` kept errors, open ones unless `all`, and their total number.
fn last_errors(
    store: &Store,
    state: &QueueState,
    all: bool,
    limit: usize,
    errors: &mut Vec<QueueJob>,
) -> Result<u64, ReadError> {
    let handled = store.handled(&state.address)?.unwrap_or_default();
    let hidden = if all { Progress::default() } else { handled.clone() };
    let mut ranges = Vec::new();
    let mut left = limit as u64;
    let open: Vec<(u64, u64)> = open_ranges(&hidden, state.first, state.head).collect();
    let total = open.iter().map(|(first, last)| last - first + 1).sum();
    for (first, last) in open.into_iter().rev() {
        if left == 0 {
            break;
        }
        let count = left.min(last - first + 1);
        ranges.push((last + 1 - count, last));
        left -= count;
    }
    let (mut last, mut bytes) = (VecDeque::new(), 0);
    for (mut from, to) in ranges.into_iter().rev() {
        while from <= to {
            let more = read(store, &state.address, (from, to), JOBS_MAX)?;
            let Some(end) = more.last().map(|error| error.index + 1) else { break };
            from = end;
            for error in more {
                bytes += error.job.get().len();
                last.push_back(QueueJob { handled: handled.is_done(error.index), ..error });
            }
            // The oldest errors are dropped, so that the answer is bounded.
            while bytes > ERRORS_BYTES && last.len() > 1 {
                bytes -= last.pop_front().map_or(0, |error| error.job.get().len());
            }
        }
    }
    errors.extend(last);
    Ok(total)
}

/// The indices from `from` to `to` that are not accounted for, as inclusive ranges, ascending.
pub(crate) fn open_ranges(handled: &Progress, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut next = from.max(handled.position().saturating_add(1));
    let ends = handled.finished().iter().copied().chain([(u64::MAX, u64::MAX)]);
    ends.filter_map(move |(first, last)| {
        let open = (next, to.min(first - 1));
        next = next.max(last.saturating_add(1));
        (open.0 <= open.1).then_some(open)
    })
}

fn range(state: &QueueState) -> String {
    match state.jobs() {
        0 => ": it is empty".to_owned(),
        1 => format!("; it holds {}", state.head),
        _ => format!("; it holds {} to {}", state.first, state.head),
    }
}

pub(crate) fn find(store: &Store, queue: &str) -> Result<Option<(Address, QueueState)>, ReadError> {
    let Some(address) = Address::parse(queue) else { return Ok(None) };
    Ok(store.queue(&address)?.map(|state| (address, state)))
}

/// The answer for an unknown queue.
pub(crate) fn missing(
    store: &Store,
    configuration: &Configuration,
    queue: &str,
) -> Result<Answer, ReadError> {
    let is = |address: &Address| address.to_string() == queue;
    if configuration.sinks.iter().any(|sink| is(&sink.address)) {
        return Ok(Answer::Missing(format!("`{queue}` is a sink and keeps no jobs")));
    }
    if configuration.sources.iter().any(|source| is(&source.address)) {
        let show = "`job show` shows one of them";
        return Ok(Answer::Missing(format!("`{queue}` is a source, whose jobs stay in its files; {show}")));
    }
    let stored = store.queues()?.into_iter().map(|queue| queue.address);
    let declared = configuration.queues.iter().map(|queue| queue.address.clone());
    let names: BTreeSet<String> = stored.chain(declared).map(|address| address.to_string()).collect();
    let hint = match nearest_address(queue, names.iter().map(String::as_str)) {
        Some(near) => format!("; did you mean `{near}`?"),
        None if names.is_empty() => "; no queue has had a job yet".to_owned(),
        None => format!("; the queues are {}", names.into_iter().collect::<Vec<_>>().join(", ")),
    };
    Ok(Answer::Missing(format!("queue `{queue}` is unknown{hint}")))
}

/// The declaration of a queue that never had a job.
fn declared<'c>(configuration: &'c Configuration, queue: &str) -> Option<&'c Queue> {
    configuration.queues.iter().find(|declared| declared.address.to_string() == queue)
}

/// The jobs of a range, up to the limits of one answer.
fn read(
    store: &Store,
    queue: &Address,
    (mut from, to): (u64, u64),
    limit: usize,
) -> Result<Vec<QueueJob>, ReadError> {
    let (mut jobs, mut bytes) = (Vec::new(), 0);
    while from <= to && jobs.len() < limit && (jobs.is_empty() || bytes < PAGE_BYTES) {
        let wanted = usize::try_from(to - from + 1).unwrap_or(usize::MAX).min(limit - jobs.len());
        let Some((batch, origins)) = store.read_details(queue, from, wanted, PAGE_BYTES)? else { break };
        from = batch.end();
        bytes += batch.payloads.byte_len();
        for position in 0..batch.len() {
            jobs.push(job(queue, &batch, position, origins.get(position).cloned().flatten())?);
        }
    }
    Ok(jobs)
}

fn job(
    queue: &Address,
    batch: &Batch,
    position: usize,
    origin: Option<Origin>,
) -> Result<QueueJob, ReadError> {
    let index = batch.first + position as u64;
    let text = String::from_utf8_lossy(batch.payloads.get(position).unwrap_or_default()).into_owned();
    let job = RawValue::from_string(text)
        .map_err(|error| ReadError::Damaged(format!("job {index} of `{queue}` is not JSON: {error}")))?;
    let stamp = batch.stamp(position);
    let carried = batch.carried.as_ref().and_then(|carried| carried.get(position)).unwrap_or_default();
    Ok(QueueJob {
        queue: queue.to_string(),
        index,
        time: stamp.map(|stamp| rfc3339(stamp.time)),
        transaction: stamp.map(|stamp| stamp.transaction).filter(|&number| number > 0),
        origin: origin.map(|origin| JobMaker {
            step: origin.step.to_string(),
            inputs: origin.inputs.into_iter().collect(),
            hash: origin.hash.to_string(),
        }),
        // Provenance is always written as JSON.
        meta: serde_json::from_slice(carried).ok(),
        handled: false,
        present_step: None,
        job,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_ranges_are_what_is_left_between_those_that_were_dealt_with() {
        let mut handled = Progress::default();
        let open = |handled: &Progress, from, to| open_ranges(handled, from, to).collect::<Vec<_>>();
        assert_eq!(open(&handled, 1, 9), [(1, 9)]);
        assert_eq!(open(&handled, 5, 4), []);
        handled.finish(1, 2);
        handled.finish(4, 5);
        handled.finish(8, 9);
        assert_eq!(open(&handled, 1, 9), [(3, 3), (6, 7)]);
        assert_eq!(open(&handled, 5, 12), [(6, 7), (10, 12)]);
        assert_eq!(open(&handled, 7, 7), [(7, 7)]);
    }
}
