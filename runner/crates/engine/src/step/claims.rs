//! Claims of a step: whether its jobs are begun durably before they have a place to run.

use tidegate_config::{DeliveryGuarantee, Processor, Step, Strategy};

/// Maximum number of claimed jobs without a place.
const AHEAD: usize = 1024;

/// The same for jobs that run one after the other, and wait for the commit of the result before them. A job that is not
/// finished gives all of them back.
const AHEAD_IN_TURN: usize = 64;

/// Maximum number of claimed jobs that share a place, one after the other, if they are quick.
const LOT: usize = 32;

/// Maximum number of claimed jobs that share a place. A job that calls an external system has a place of its own: its
/// attempt is suspended during the call.
pub(crate) fn claims_lot(step: &Step) -> usize {
    let calls = |processor: &Processor| matches!(processor, Processor::Http(_) | Processor::Exec(_));
    if step.isolate || step.serves || step.processors.iter().any(calls) { 1 } else { LOT }
}

/// Number of jobs that a step begins durably before they have a place to run.
///
/// Only jobs that run in the order of their age are claimed: a lane, a gate or a rate decides at the start of each
/// job. A step whose jobs run side by side and are delivered in order holds its results itself. The events of a step
/// have beginnings, and no claims.
pub(crate) fn claims_ahead(step: &Step) -> usize {
    let Some(queuer) = step.picks() else { return 0 };
    let ahead = match queuer.strategy {
        Strategy::Fifo => AHEAD,
        Strategy::Serial => AHEAD_IN_TURN,
        _ => return 0,
    };
    let is_free = queuer.lane.is_none()
        && queuer.age.is_none()
        && queuer.id.is_none()
        && queuer.rate.is_none()
        && !queuer.ordered
        && queuer.max_pending.is_none()
        && step.gate.is_none()
        && step.events.is_none();
    if !is_free || step.delivery != DeliveryGuarantee::ExactlyOnce || !step.acts_outside() {
        return 0;
    }
    ahead
}
