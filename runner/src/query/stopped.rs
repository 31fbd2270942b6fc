//! Why a step takes no more jobs: as the run knows it, or as the last one has written it down.

use tidegate_config::Step;
use tidegate_engine::Handle;
use tidegate_store::{ReadError, StepStop, Store};

/// Why the step stopped in the last run, unless something has gone past that since: a version that keeps no
/// such notes may have run.
pub(crate) fn in_last_run<'s>(
    store: &Store,
    step: &Step,
    stops: &'s [StepStop],
) -> Result<Option<&'s StepStop>, ReadError> {
    let Some(stop) = stops.iter().find(|stop| stop.step == step.address) else { return Ok(None) };
    let Some((address, index)) = &stop.job else { return Ok(Some(stop)) };
    let Some(input) = step.inputs.iter().find(|input| input.address == *address) else { return Ok(None) };
    let progress = store.progress(&step.address, address)?.unwrap_or_default();
    // What was tried before stands in the store by itself, and is accounted for in its input.
    let stands = || store.delayed_of(&step.address, (&input.hash_name(), *index));
    let is_open = !progress.is_done(*index) || stands()?.is_some();
    Ok(is_open.then_some(stop))
}

/// Why the step at this position takes no more jobs, if it does not; a sentence. `index`: that of the job that
/// is asked about.
pub(crate) fn sentence(
    store: &Store,
    run: Option<&Handle>,
    (position, step): (usize, &Step),
    index: Option<u64>,
) -> Result<Option<String>, ReadError> {
    let next = "the next run takes it up again";
    if let Some(run) = run {
        let halted = run.stats().steps.get(position).and_then(tidegate_engine::StepStats::halted);
        return Ok(halted.map(|(_, why)| format!("the step has stopped, and {next}: {why}")));
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
