//! The place of a job in the order of a step without a queuer, as far as its record in the store tells.

use crate::config::{InputRef, Step};
use crate::decide::Turn;
use crate::store::{DelayedJob, Standing};

/// Whether a job that stands in the store keeps its place: what comes behind it is delivered after it. An
/// output that was made already and is due later has none, nor has a job that was put back from an error queue
/// or that an outside system finishes.
pub(super) fn keeps(job: &DelayedJob) -> bool {
    job.to.is_none()
        && job.from_error.is_none()
        && matches!(job.standing, Standing::Delayed | Standing::Started)
}

/// The place of a job of `step`, which takes its jobs as they come; `None` where it keeps none.
pub(super) fn of(step: &Step, job: &DelayedJob) -> Option<Turn> {
    let place = |(name, index): &(String, u64)| {
        let input = step.inputs.iter().position(|input: &InputRef| input.hash_name() == *name)?;
        Some((input, *index))
    };
    let (input, index) = job.inputs.iter().filter_map(place).min().filter(|_| keeps(job))?;
    Some(Turn { index, input })
}
