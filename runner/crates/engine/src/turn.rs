//! The place of a job in the order of a step without a queuer, as far as its record in the store tells.

use super::begin;
use tidegate_config::{InputRef, Step};
use tidegate_dispatch::Turn;
use tidegate_model::Timestamp;
use tidegate_store::{DelayedJob, ReadError, Standing, Store};

/// Whether a job that stands in the store keeps its place: what comes behind it is delivered after it. An
/// output that was made already and is due later has none, nor has a job that was put back from an error queue
/// or that an outside system finishes.
pub(crate) fn keeps(job: &DelayedJob) -> bool {
    job.to.is_none()
        && job.from_error.is_none()
        && matches!(job.standing, Standing::Delayed | Standing::Started)
}

/// The job of `step` that waits in the store for its next attempt, and when that is due: what comes behind it
/// is delivered after it. `None` where there is none, or the step picks its jobs.
///
/// # Errors
/// Where the store cannot be read.
pub fn first_in_line(store: &Store, step: &Step) -> Result<Option<(Turn, Timestamp)>, ReadError> {
    if step.picks().is_some() || store.delayed_count(&step.address)? == 0 {
        return Ok(None);
    }
    for input in &step.inputs {
        // It is the last one that is accounted for.
        let index = begin::progress(store, step, input)?.watermark();
        let found = store.delayed_of(&step.address, (&input.hash_name(), index))?;
        let turn = found.and_then(|(key, job)| Some((of(step, &job)?, key.due)));
        if turn.is_some() {
            return Ok(turn);
        }
    }
    Ok(None)
}

/// The place of a job of `step`, which takes its jobs as they come; `None` where it keeps none.
pub(crate) fn of(step: &Step, job: &DelayedJob) -> Option<Turn> {
    let place = |(name, index): &(String, u64)| {
        let input = step.inputs.iter().position(|input: &InputRef| input.hash_name() == *name)?;
        Some((input, *index))
    };
    let (input, index) = job.inputs.iter().filter_map(place).min().filter(|_| keeps(job))?;
    Some(Turn { index, input })
}
