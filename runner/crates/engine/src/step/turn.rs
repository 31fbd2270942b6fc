//! Turn: finds the position of a parked job in the order of a step without a queuer.

use crate::recovery::start_position;
use tidegate_config::{InputRef, Step};
use tidegate_dispatch::Turn;
use tidegate_model::Timestamp;
use tidegate_store::{ParkReason, ParkedJob, ReadError, Store};

/// Whether a parked job keeps its place, so that later jobs are delivered after it. A delayed output has no
/// place. Neither has a job from an error queue, or a pending job.
pub(crate) fn keeps(job: &ParkedJob) -> bool {
    let has_turn =
        matches!(job.reason, ParkReason::Delayed | ParkReason::Started { .. } | ParkReason::Finished { .. });
    job.from_error.is_none() && has_turn
}

/// The parked job of an ordered `step` that blocks the deliveries behind it, with its due time. Returns
/// `None` if there is none, or if the step has a queuer.
///
/// # Errors
/// The store cannot be read.
pub fn first_in_line(store: &Store, step: &Step) -> Result<Option<(Turn, Timestamp)>, ReadError> {
    if step.picks().is_some() || store.parked_count(&step.address)? == 0 {
        return Ok(None);
    }
    for input in &step.inputs {
        // Only the last job that is accounted for can block others.
        let index = start_position::progress(store, step, input)?.position();
        let found = store.first_parked_of(&step.address, (&input.hash_name(), index))?;
        let turn = found.and_then(|(_, job)| Some((of(step, &job)?, job.due.time()?)));
        if turn.is_some() {
            return Ok(turn);
        }
    }
    Ok(None)
}

/// Turn of a job of an ordered `step`; `None` if it has none. Jobs of a join by key wait without an order.
pub(crate) fn of(step: &Step, job: &ParkedJob) -> Option<Turn> {
    if step.joins.is_some() {
        return None;
    }
    let place = |(name, index): &(String, u64)| {
        let input = step.inputs.iter().position(|input: &InputRef| input.hash_name() == *name)?;
        Some((input, *index))
    };
    let (input, index) = job.inputs.iter().filter_map(place).min().filter(|_| keeps(job))?;
    Some(Turn { index, input })
}
