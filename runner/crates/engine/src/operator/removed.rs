//! Removed parts: the state of queues and steps that are in no configuration, and the changes that drop it.
//!
//! The positions of removed sources stay. They are few rows, and keep the indices of a source that returns from occurring
//! twice, as the indices of a dropped queue do.

use super::effect::{RequestEffect, error_text};
use super::request::{RemovedPart, RequestOutcome};
use tidegate_config::Configuration;
use tidegate_model::{Address, Due, PartNames};
use tidegate_store::{Changes, ReadError, Store, Trim, TrimWhen};

/// Late jobs that are read at once.
const LATE_JOBS: usize = 10_000;
const LATE_BYTES: usize = 16 << 20;

/// The removed queue and the removed step with this address, or all removed ones of the pipeline with this name.
///
/// # Errors
/// The reason for which there is none, as a sentence.
pub fn removed_parts(
    store: &Store,
    configuration: &Configuration,
    part: &str,
) -> Result<Vec<RemovedPart>, String> {
    let known = store.known_parts().map_err(|error| error_text(&error))?;
    let wanted = Address::parse(part);
    let is_wanted = |address: &Address| match &wanted {
        Some(wanted) => address == wanted,
        None => address.pipeline.as_str() == part,
    };
    let found = found(store, configuration, &known, is_wanted).map_err(|error| error_text(&error))?;
    if !found.is_empty() {
        return Ok(found);
    }
    if wanted.is_none() {
        let is_configured = configuration.pipelines.iter().any(|pipeline| pipeline.name.as_str() == part);
        let also = if is_configured { ": it is in the configuration" } else { "" };
        return Err(format!("the store has nothing of removed parts of the pipeline `{part}`{also}"));
    }
    let queue = configuration.queues.iter().any(|queue| is_wanted(&queue.address));
    let step = configuration.steps.iter().any(|step| is_wanted(&step.address));
    Err(match (queue, step) {
        (true, _) => format!("`{part}` is in the configuration: a queue can be dropped once it is removed"),
        (_, true) => format!("`{part}` is in the configuration: a step can be dropped once it is removed"),
        _ => format!("the store has no queue `{part}` and no step of this name"),
    })
}

fn found(
    store: &Store,
    configuration: &Configuration,
    known: &PartNames,
    is_wanted: impl Fn(&Address) -> bool,
) -> Result<Vec<RemovedPart>, ReadError> {
    let mut found = Vec::new();
    let is_queue = |queue: &Address| configuration.queues.iter().any(|declared| declared.address == *queue);
    for queue in known.queues.iter().filter(|queue| is_wanted(queue) && !is_queue(queue)) {
        let jobs = store.queue(queue)?.map_or(0, |state| state.jobs()) + store.late_count(queue)?;
        found.push(RemovedPart { address: queue.clone(), is_step: false, jobs });
    }
    let is_step = |step: &Address| configuration.steps.iter().any(|declared| declared.address == *step);
    for step in known.steps.iter().filter(|step| is_wanted(step) && !is_step(step)) {
        found.push(RemovedPart { address: step.clone(), is_step: true, jobs: store.parked_count(step)? });
    }
    Ok(found)
}

/// Discards the removed parts. The indices of a queue go on if it returns, since those of deliveries must not occur
/// twice.
pub(crate) fn drop_parts(
    store: &Store,
    configuration: &Configuration,
    part: &str,
    mut changes: Changes,
) -> Result<RequestEffect, String> {
    let parts = removed_parts(store, configuration, part)?;
    for RemovedPart { address, is_step, .. } in &parts {
        if *is_step {
            changes.dropped_steps.push(address.clone());
            continue;
        }
        let state = store.queue(address).map_err(|error| error_text(&error))?;
        let up_to = state.map_or(0, |state| state.head);
        changes.trims.push(Trim { queue: address.clone(), up_to, when: TrimWhen::Always, max_bytes: None });
        let mut after = None;
        loop {
            let late = store.late_due(address, Due::Never, after, LATE_JOBS, LATE_BYTES);
            let late = late.map_err(|error| error_text(&error))?;
            let Some((last, job)) = late.last() else { break };
            after = Some(job.position(last.id));
            changes.late.done.extend(late.into_iter().map(|(key, _)| key));
        }
    }
    Ok(RequestEffect::new(changes, RequestOutcome::DroppedParts(parts)))
}
