//! `Partners`: the other jobs of a join's tuple, and the record of its delivery.

use std::collections::BTreeMap;

use tidegate_config::{Input, InputMode, InputRef, Step};
use tidegate_model::Progress;
use tidegate_store::{DeliveryKey, DeliveryRecord, ReadError, Snapshot, Store};

/// The jobs of a delivery: the names of their inputs in the delivery hash, and their indices.
pub(crate) type Parts = Vec<(String, u64)>;

/// The partners of a waiting job.
#[derive(Debug, Default)]
pub(crate) struct Partners {
    /// The partners that have arrived.
    pub(crate) with: Vec<String>,
    /// Why it waits for the others.
    pub(crate) why: Vec<String>,
}

/// The other parts of a tuple: `pipeline/queue/index`. `own` is the input of the requested job.
pub(crate) fn others(step: &Step, own: &InputRef, parts: &[(String, u64)]) -> Vec<String> {
    let inputs = step.inputs.iter().filter(|input| input.address != own.address);
    let part = |input: &InputRef| {
        let name = input.hash_name();
        parts.iter().find(|(part, _)| *part == name).map(|(_, index)| format!("{}/{index}", input.address))
    };
    inputs.filter_map(part).collect()
}

/// The other parts of the tuple that was started with the job at `index`.
pub(crate) fn begun(own: &InputRef, index: u64, snapshot: &Snapshot) -> Vec<String> {
    let offset = snapshot.inputs.iter().find(|one| one.address == own.address).map(|one| index - one.first);
    let others = snapshot.inputs.iter().filter(|one| one.address != own.address);
    // Each input has the same number of jobs, in order.
    let part = |offset| others.map(move |one| format!("{}/{}", one.address, one.first + offset)).collect();
    offset.map_or_else(Vec::new, part)
}

/// The partners of a job with `before` waiting jobs before it: each has as many waiting jobs before it on its
/// own input. Empty if the step joins nothing.
pub(crate) fn of_waiting(
    store: &Store,
    step: &Step,
    own: &InputRef,
    before: u64,
) -> Result<Partners, ReadError> {
    let mut partners = Partners::default();
    if step.take != InputMode::Join {
        return Ok(partners);
    }
    for input in step.inputs.iter().filter(|input| input.address != own.address) {
        let progress = store.progress(&step.address, &input.address)?.unwrap_or_default();
        let (address, binding) = (&input.address, &input.binding);
        match input.input {
            Input::Source(_) => {
                let index = open_after(&progress, 1, before);
                partners.why.push(format!("its partner is job {index} of `{address}`, once that is read"));
            }
            Input::Queue(_) => {
                let (first, head) = store.queue(address)?.map_or((1, 0), |queue| (queue.first, queue.head));
                let index = open_after(&progress, first, before);
                if index <= head {
                    partners.with.push(format!("{address}/{index}"));
                } else {
                    partners.why.push(format!(
                        "it waits for a partner on `{binding}`: `{address}` has no job {index} yet"
                    ));
                }
            }
        }
    }
    Ok(partners)
}

/// The record of the delivery that was made from the job at `index`, if there is one: it may outlive its outputs. `known`:
/// the jobs that its outputs or its error were made from, if there are any. Returns them, or those of the record.
pub(crate) fn recorded(
    store: &Store,
    step: &Step,
    (own, index): (&InputRef, u64),
    known: Parts,
) -> Result<(Parts, Option<DeliveryRecord>), ReadError> {
    let find = |jobs: &[_]| store.delivery_record(DeliveryKey::new(&step.address, jobs));
    if step.take != InputMode::Join {
        let record = find(&[(own.hash_name(), index)])?;
        return Ok((known, record));
    }
    if !known.is_empty() {
        let record = find(&known)?;
        return Ok((known, record));
    }
    // The hash depends on the other jobs of the tuple. A record under it confirms them.
    let likely = of_ended(store, step, own, index)?;
    let record = find(&likely)?;
    Ok((if record.is_some() { likely } else { known }, record))
}

/// The tuple that the job at `index` most likely was in, if it has ended; empty if there is none. The jobs of a tuple are
/// as far from each other as those of the next one. That changes if jobs of one input are dropped or replayed.
fn of_ended(store: &Store, step: &Step, own: &InputRef, index: u64) -> Result<Parts, ReadError> {
    // All from one commit.
    let mut next = BTreeMap::new();
    for (reader, input, progress) in store.all_progress()? {
        if reader == step.address {
            next.insert(input, open_after(&progress, 1, 0));
        }
    }
    let next = |input: &InputRef| next.get(&input.address).copied().unwrap_or(1);
    let part = |input: &InputRef| {
        let part = next(input).checked_add(index)?.checked_sub(next(own))?;
        (part > 0).then(|| (input.hash_name(), part))
    };
    Ok(step.inputs.iter().map(part).collect::<Option<_>>().unwrap_or_default())
}

/// The index of the open job from `first` on that has `before` open jobs before it.
fn open_after(progress: &Progress, first: u64, before: u64) -> u64 {
    let mut index = first.max(progress.position() + 1).saturating_add(before);
    for &(from, to) in progress.finished().iter().filter(|&&(_, to)| to >= first) {
        if from > index {
            break;
        }
        index = index.saturating_add(to - from.max(first) + 1);
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partners_that_are_accounted_for_are_passed_over() {
        let mut progress = Progress::default();
        progress.finish(1, 2);
        progress.finish(5, 6);
        progress.finish(8, 8);
        let open = |first| [0, 1, 2, 3, 4].map(|before| open_after(&progress, first, before));
        assert_eq!(open(1), [3, 4, 7, 9, 10]);
        assert_eq!(open(4), [4, 7, 9, 10, 11]);
        assert_eq!(open(6), [7, 9, 10, 11, 12]);
        assert_eq!(open(9), [9, 10, 11, 12, 13]);
    }
}
