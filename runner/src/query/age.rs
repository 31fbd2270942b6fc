//! Ages of jobs: compute how long a job has waited, if its arrival time is known.

use serde::{Deserialize, Serialize};

use super::rfc3339;
use tidegate_config::{Input, Step};
use tidegate_engine::JobLocation;
use tidegate_model::{Address, Timestamp};
use tidegate_store::{ParkedKey, ReadError, Store};

/// The oldest waiting job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Oldest {
    /// `pipeline/queue/index`
    pub(crate) job: String,
    /// Its arrival time; RFC 3339.
    pub(crate) since: String,
    pub(crate) age_seconds: f64,
    /// It arrived at that time or earlier, since that is when it was first read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) at_least: bool,
}

/// A job of a queue; `None` if it is not kept, or its arrival time is not recorded.
pub(crate) fn of_queue(
    store: &Store,
    queue: &Address,
    index: u64,
    now: Timestamp,
) -> Result<Option<Oldest>, ReadError> {
    let since = committed_at(store, queue, index)?;
    Ok(since.map(|since| Oldest::new(queue, index, since, false, now)))
}

/// A job of a queued step: its commit time, or the time of its first read or attempt.
pub(crate) fn of_spot(
    store: &Store,
    step: &Step,
    spot: &JobLocation,
    now: Timestamp,
) -> Result<Option<Oldest>, ReadError> {
    let Some(input) = step.inputs.first() else { return Ok(None) };
    let keys: Vec<ParkedKey> = spot.row.iter().map(|row| row.of(&step.address)).collect();
    let job = store.parked(&keys)?.pop().flatten();
    let index = match &job {
        Some(job) => job.inputs.first().map(|&(_, index)| index),
        None => spot.key.is_fresh().then_some(spot.key.0),
    };
    // It is finished by now.
    let Some(index) = index else { return Ok(None) };
    if let Input::Queue(_) = input.input
        && let Some(oldest) = of_queue(store, &input.address, index, now)?
    {
        return Ok(Some(oldest));
    }
    let seen = spot.read.or_else(|| job.and_then(|job| job.first_attempt));
    Ok(seen.map(|since| Oldest::new(&input.address, index, since, true, now)))
}

/// The commit time of a job; `None` if it is no longer kept.
pub(crate) fn committed_at(
    store: &Store,
    queue: &Address,
    index: u64,
) -> Result<Option<Timestamp>, ReadError> {
    match store.read(queue, index, 1, 0) {
        Ok(batch) => {
            let batch = batch.filter(|batch| batch.first == index);
            Ok(batch.and_then(|batch| batch.stamp(0).map(|stamp| stamp.time)))
        }
        Err(ReadError::Gone { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Oldest {
    fn new(queue: &Address, index: u64, since: Timestamp, at_least: bool, now: Timestamp) -> Self {
        // The clock may have been set back since.
        let age_seconds = now.since(since).as_secs_f64();
        Self { job: format!("{queue}/{index}"), since: rfc3339(since), age_seconds, at_least }
    }
}
