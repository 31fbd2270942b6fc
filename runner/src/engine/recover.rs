//! What becomes of a batch that was begun and not delivered when the last run ended.

use crate::config::{Promise, Step, Take};
use crate::decide::{Progress, Redo};
use crate::store::Snapshot;

/// What a snapshot comes to, seen from the step as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The attempt failed with the process: the same jobs are delivered again, under the same hashes.
    Again(Redo),
    /// Its delivery is durable: there is nothing left to do.
    Delivered,
    /// It cannot be made again as it was, and why; a sentence fragment about the step.
    Lost(String),
}

/// The verdicts on the snapshots of a step, which come in the order in which they were recorded.
/// `progress` is by input. Looks only, so it can be interrupted and asked again.
pub(super) fn verdicts(step: &Step, progress: &[Progress], snapshots: &[Snapshot]) -> Vec<Verdict> {
    let mut next: Vec<u64> = progress.iter().map(|progress| progress.watermark() + 1).collect();
    snapshots.iter().map(|snapshot| verdict(step, &mut next, snapshot)).collect()
}

/// `next`, by input: the index of the job after those that the verdicts so far have accounted for.
fn verdict(step: &Step, next: &mut [u64], snapshot: &Snapshot) -> Verdict {
    let mut inputs = Vec::with_capacity(snapshot.inputs.len());
    for taken in &snapshot.inputs {
        let same = |input: &crate::config::InputRef| {
            input.hash_name() == taken.name && input.address == taken.address
        };
        match step.inputs.iter().position(same) {
            Some(input) => inputs.push((input, taken.first)),
            None => return Verdict::Lost(format!("it does not read `{}` any more as it did", taken.address)),
        }
    }
    if (step.take == Take::Join) != (inputs.len() > 1) || step.take == Take::Join && inputs.len() < next.len()
    {
        return Verdict::Lost("it joins other inputs than it did".to_owned());
    }
    if step.delivery != Promise::ExactlyOnce {
        return Verdict::Lost("it does not promise exactly-once any more".to_owned());
    }
    if inputs.iter().all(|&(input, first)| first + snapshot.jobs <= next[input]) {
        return Verdict::Delivered;
    }
    if inputs.iter().any(|&(input, first)| first != next[input]) {
        return Verdict::Lost("its progress was put elsewhere".to_owned());
    }
    let Ok(jobs) = usize::try_from(snapshot.jobs) else {
        return Verdict::Lost("it took more jobs at once than this machine can".to_owned());
    };
    for &(input, _) in &inputs {
        next[input] += snapshot.jobs;
    }
    inputs.sort_unstable();
    Verdict::Again(Redo { number: snapshot.number, inputs, jobs })
}
