//! Reason of a stopped step: is read from the run, or from the record of the last run.

use tidegate_config::Step;
use tidegate_engine::Handle;
use tidegate_store::{ReadError, StepStop, Store};

/// Why the step stopped in the last run, unless it has passed that job since: a version without such records
/// may have run.
pub(crate) fn in_last_run<'s>(
    store: &Store,
    step: &Step,
    stops: &'s [StepStop],
) -> Result<Option<&'s StepStop>, ReadError> {
    let Some(stop) = stops.iter().find(|stop| stop.step == step.address) else { return Ok(None) };
    let Some((address, index)) = &stop.job else { return Ok(Some(stop)) };
    let Some(input) = step.inputs.iter().find(|input| input.address == *address) else { return Ok(None) };
    let progress = store.progress(&step.address, address)?.unwrap_or_default();
    // A job that was tried before has a row, and is accounted for in its input.
    let parked = || store.first_parked_of(&step.address, (&input.hash_name(), *index));
    let is_open = !progress.is_done(*index) || parked()?.is_some();
    Ok(is_open.then_some(stop))
}

/// Why the step at this position is stopped, if it is; a sentence. `index`: the requested job.
pub(crate) fn sentence(
    store: &Store,
    run: Option<&Handle>,
    (position, step): (usize, &Step),
    index: Option<u64>,
) -> Result<Option<String>, ReadError> {
    if let Some(run) = run {
        let halted = run.stats().step(position).halted();
        let resume = run.generation().configuration.command(&format!("step resume {}", step.address));
        return Ok(
            halted.map(|(_, why)| format!("the step has stopped, and `{resume}` starts it again: {why}"))
        );
    }
    let stops = store.stops()?;
    let stop = in_last_run(store, step, &stops)?;
    Ok(stop.map(|StepStop { at, job, why, .. }| match at {
        Some(_) if job.as_ref().map(|(_, index)| *index) == index => {
            format!("the step stopped at it in the last run: {why}")
        }
        Some(at) => format!("the step stopped at {at} in the last run: {why}"),
        None => format!("the step stopped in the last run: {why}"),
    }))
}
