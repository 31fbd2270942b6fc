//! Held lanes: finds the lanes of a step that start nothing until an operator resumes them.

use tidegate_config::{Step, Strategy};
use tidegate_dispatch::Hold;
use tidegate_model::log_target;
use tidegate_model::suggest::listed;
use tidegate_store::{LaneHold, ReadError, Store};

/// The held lanes of a step whose lanes can be held.
///
/// # Errors
/// The store cannot be read.
pub(crate) fn held_lanes(store: &Store, step: &Step) -> Result<Vec<(String, Hold)>, ReadError> {
    let held = store.held_lanes(&step.address)?;
    if !holds_lanes(step) {
        if !held.is_empty() {
            let lanes = listed(held.iter().map(|(lane, _)| lane.as_str()), "and");
            tracing::warn!(
                target: log_target::ENGINE, step = %step.address, lanes,
                "lanes are held, but the step has no lanes that can be held any more: their jobs start"
            );
        }
        return Ok(Vec::new());
    }
    let hold = |hold: &LaneHold| if hold.halted.is_some() { Hold::Halted } else { Hold::Paused };
    Ok(held.into_iter().map(|(lane, held)| (lane, hold(&held))).collect())
}

/// Whether lanes of the step can be held: `serial` has no order of its own for each lane.
#[must_use]
pub fn holds_lanes(step: &Step) -> bool {
    step.picks().is_some_and(|queuer| queuer.lane.is_some() && queuer.strategy != Strategy::Serial)
}
