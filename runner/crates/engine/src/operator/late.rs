//! Late jobs: are appended to their queue at their due time. Operators let them be due at once, or drop them.

use std::time::Duration;

use super::effect::{RequestEffect, error_text};
use super::request::{MoveSummary, RequestOutcome};
use tidegate_config::{Configuration, QueueRef};
use tidegate_model::{Address, DeliveryHash, Due, Timestamp, key_hash};
use tidegate_store::{
    Changes, DedupeOutcome, DedupeRecord, LateJob, LateKey, NewLateJob, ParkedId, ReadError, Store,
};

/// Time for which the end of a late job is remembered, if its source has no time for keys.
pub(crate) const REMEMBERED: Duration = Duration::from_hours(7 * 24);
const DROPPED: DedupeOutcome = DedupeOutcome::Nothing;

/// The end of a late job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateEnd {
    /// It is on its queue, at this index.
    Appended(u64),
    Dropped,
}

/// Key of the record of the end of a late job. It is not the hash of a delivery.
pub(crate) fn appended_hash(ParkedId(id): ParkedId) -> DeliveryHash {
    key_hash("", "", "late", &id.to_le_bytes())
}

/// The end of a late job, as far as it is remembered; `None` if it has none.
///
/// # Errors
/// The store cannot be read.
pub fn late_end(store: &Store, id: ParkedId) -> Result<Option<LateEnd>, ReadError> {
    Ok(store.delivery(appended_hash(id))?.and_then(|outcome| match outcome {
        DedupeOutcome::Ingested { first, .. } => Some(LateEnd::Appended(first)),
        DROPPED => Some(LateEnd::Dropped),
        _ => None,
    }))
}

/// The index of a late job that is on its queue.
pub(crate) fn appended_at(store: &Store, id: ParkedId) -> Result<Option<u64>, ReadError> {
    Ok(late_end(store, id)?.and_then(|end| match end {
        LateEnd::Appended(index) => Some(index),
        LateEnd::Dropped => None,
    }))
}

/// Adds the jobs of a push as late ones.
pub(crate) fn push(
    (position, queue): (QueueRef, &Address),
    jobs: &[String],
    due: Timestamp,
    mut changes: Changes,
) -> RequestEffect {
    changes.late.new.extend(jobs.iter().map(|job| {
        let job = LateJob { due: Due::At(due), payload: job.trim().as_bytes().to_vec() };
        NewLateJob { queue: queue.clone(), job }
    }));
    let outcome = RequestOutcome::Pushed { jobs: jobs.len() as u64 };
    RequestEffect { late: Some(position), ..RequestEffect::new(changes, outcome) }
}

/// Makes late jobs of a queue due at once.
pub(crate) fn make_due(
    store: &Store,
    configuration: &Configuration,
    queue: &Address,
    rows: &[ParkedId],
    mut changes: Changes,
) -> Result<RequestEffect, String> {
    let position = position(configuration, queue)?;
    let mut moved = MoveSummary::default();
    for (key, job) in found(store, queue, rows)? {
        match job {
            Some(job) if !job.due.is_by(changes.now) => {
                moved.jobs += 1;
                changes.late.moved.push((key, LateJob { due: job.due.hastened(), ..job }));
            }
            Some(_) | None => moved.gone += 1,
        }
    }
    let effect = RequestEffect::new(changes, RequestOutcome::Hastened(moved));
    Ok(RequestEffect { late: Some(position), ..effect })
}

/// Drops late jobs of a queue. Nothing has run them, so that they leave no error.
pub(crate) fn drop_jobs(
    store: &Store,
    configuration: &Configuration,
    queue: &Address,
    rows: &[ParkedId],
    mut changes: Changes,
) -> Result<RequestEffect, String> {
    let position = position(configuration, queue)?;
    let mut moved = MoveSummary::default();
    let keep_until = Some(changes.now + REMEMBERED);
    for (key, job) in found(store, queue, rows)? {
        if job.is_none() {
            moved.gone += 1;
            continue;
        }
        moved.jobs += 1;
        let hash = appended_hash(key.id);
        changes.dedupe_records.push(DedupeRecord { hash, outcome: DROPPED, times: None, keep_until });
        changes.late.done.push(key);
    }
    let effect = RequestEffect::new(changes, RequestOutcome::Cancelled(moved));
    Ok(RequestEffect { late: Some(position), ..effect })
}

fn found(
    store: &Store,
    queue: &Address,
    rows: &[ParkedId],
) -> Result<Vec<(LateKey, Option<LateJob>)>, String> {
    let keys: Vec<LateKey> = rows.iter().map(|&id| LateKey { queue: queue.clone(), id }).collect();
    let jobs = store.late(&keys).map_err(|error| error_text(&error))?;
    Ok(keys.into_iter().zip(jobs).collect())
}

fn position(configuration: &Configuration, queue: &Address) -> Result<QueueRef, String> {
    let position = configuration.queues.position(|declared| declared.address == *queue);
    position.map(QueueRef).ok_or_else(|| format!("the configuration has no queue `{queue}`"))
}
