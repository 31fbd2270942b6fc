//! Snapshot recovery: decides about the batches that were begun and not delivered when the last run ended.

use std::collections::BTreeMap;

use crate::error::EngineError;
use tidegate_config::{DeliveryGuarantee, InputMode, Step};
use tidegate_dispatch::RecoveredBatch;
use tidegate_model::Progress;
use tidegate_model::log_target;
use tidegate_store::{Changes, Snapshot, SnapshotKey, Store};

/// Decision about a snapshot, for the step as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SnapshotVerdict {
    /// The attempt failed with the process: the same jobs are delivered again, under the same hashes.
    Redo(RecoveredBatch),
    /// The delivery is durable; no work is left.
    Delivered,
    /// The progress of `at-most-once` is past this input, and the delivery never came.
    AtMostOnceLost { input: usize },
    /// The batch cannot be formed again as it was. The reason is a sentence fragment about the step.
    Unrecoverable(String),
}

/// Batches to deliver again, and the number of lost jobs by input. Batches that cannot be recovered are
/// logged and removed.
pub(crate) fn recover(
    step: &Step,
    (progress, kept): (&[Progress], &[u64]),
    store: &Store,
    changes: &mut Changes,
) -> Result<(Vec<RecoveredBatch>, BTreeMap<usize, u64>), EngineError> {
    let snapshots = in_order(store.snapshots(&step.address)?);
    let (mut again, mut forgone, mut lost) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    for (snapshot, verdict) in snapshots.iter().zip(verdicts(step, progress, kept, &snapshots)) {
        match verdict {
            SnapshotVerdict::Redo(redo) => {
                again.push(redo);
                continue;
            }
            SnapshotVerdict::Delivered => {}
            SnapshotVerdict::AtMostOnceLost { input } => *forgone.entry(input).or_default() += snapshot.jobs,
            SnapshotVerdict::Unrecoverable(why) => *lost.entry(why).or_insert(0) += snapshot.jobs,
        }
        changes.done_snapshots.push(SnapshotKey { step: step.address.clone(), number: snapshot.number });
    }
    for (why, jobs) in lost {
        tracing::warn!(
            target: log_target::ENGINE,
            step = %step.address,
            jobs,
            "the last run was interrupted in attempts of this step that may have had effects. They cannot be \
             repeated with the same jobs: {why}. Its progress is kept, and the jobs that it has not accounted for \
             are delivered by the step as it is now."
        );
    }
    for (input, jobs) in &forgone {
        let input = &step.inputs[*input].address;
        tracing::warn!(
            target: log_target::ENGINE,
            step = %step.address,
            %input,
            jobs,
            "the last run was interrupted during attempts of as many jobs of this input; under `at-most-once` they are \
             not attempted again, and their outcome is unknown. `tidegate replay` runs jobs again, delivered ones \
             included."
        );
    }
    Ok((again, forgone))
}

/// Snapshots in the order in which their batches were begun. Earlier versions gave the rest of a split batch a later
/// number than those of the batches behind it; it goes before them.
fn in_order(snapshots: Vec<Snapshot>) -> Vec<Snapshot> {
    let mut sorted: Vec<Snapshot> = Vec::with_capacity(snapshots.len());
    for snapshot in snapshots {
        let is_behind = |other: &Snapshot| match (other.inputs.first(), snapshot.inputs.first()) {
            (Some(other), Some(this)) => other.address == this.address && other.first > this.first,
            _ => false,
        };
        let at = sorted.iter().position(is_behind).unwrap_or(sorted.len());
        sorted.insert(at, snapshot);
    }
    sorted
}

/// Decisions about the snapshots of a step, which are in the order of its inputs. `progress` and `kept` are
/// by input; `kept` is the index of the first available job. It only reads, so it can be interrupted and
/// repeated.
fn verdicts(
    step: &Step,
    progress: &[Progress],
    kept: &[u64],
    snapshots: &[Snapshot],
) -> Vec<SnapshotVerdict> {
    let mut next: Vec<u64> = progress.iter().map(|progress| progress.position() + 1).collect();
    let verdict = |snapshot| match step.delivery {
        DeliveryGuarantee::AtMostOnce => forgone(step, progress, snapshot),
        DeliveryGuarantee::ExactlyOnce | DeliveryGuarantee::AtLeastOnce => {
            let verdict = verdict(step, &mut next, kept, snapshot);
            // Jobs that are finished above the position are no part of the next batch.
            for (next, progress) in next.iter_mut().zip(progress) {
                *next = progress.finished().iter().fold(*next, |next, &(first, last)| {
                    if first <= next { next.max(last + 1) } else { next }
                });
            }
            verdict
        }
    };
    snapshots.iter().map(verdict).collect()
}

/// Decision about a snapshot of an `at-most-once` step.
fn forgone(step: &Step, progress: &[Progress], snapshot: &Snapshot) -> SnapshotVerdict {
    let mut first = None;
    for taken in &snapshot.inputs {
        let Some(input) = step.inputs.iter().position(|input| input.address == taken.address) else {
            return SnapshotVerdict::Unrecoverable(format!(
                "it no longer reads `{}` in the same way",
                taken.address
            ));
        };
        if !progress[input].has_all(taken.first, taken.first + taken.jobs - 1) {
            return SnapshotVerdict::Unrecoverable("it no longer promises exactly-once".to_owned());
        }
        first = first.or(Some(input));
    }
    first.map_or(SnapshotVerdict::Delivered, |input| SnapshotVerdict::AtMostOnceLost { input })
}

/// Decision about another snapshot. `next` has, by input, the first index that no earlier decision covers.
fn verdict(step: &Step, next: &mut [u64], kept: &[u64], snapshot: &Snapshot) -> SnapshotVerdict {
    let mut inputs = Vec::with_capacity(snapshot.inputs.len());
    for taken in &snapshot.inputs {
        let same = |input: &tidegate_config::InputRef| {
            input.hash_name() == taken.name && input.address == taken.address
        };
        match step.inputs.iter().position(same) {
            Some(input) => inputs.push((input, taken.first)),
            None => {
                return SnapshotVerdict::Unrecoverable(format!(
                    "it no longer reads `{}` in the same way",
                    taken.address
                ));
            }
        }
    }
    if (step.take == InputMode::Join) != (inputs.len() > 1)
        || step.take == InputMode::Join && inputs.len() < next.len()
    {
        return SnapshotVerdict::Unrecoverable("it joins other inputs than before".to_owned());
    }
    if step.delivery != DeliveryGuarantee::ExactlyOnce {
        return SnapshotVerdict::Unrecoverable("it no longer promises exactly-once".to_owned());
    }
    if inputs.iter().all(|&(input, first)| first + snapshot.jobs <= next[input]) {
        return SnapshotVerdict::Delivered;
    }
    if inputs.iter().any(|&(input, first)| first < kept[input]) {
        return SnapshotVerdict::Unrecoverable("retention has deleted some of its jobs".to_owned());
    }
    // A step has no progress on an input before its first delivery. It began at the oldest job that was there.
    let follows = |input: usize, first: u64| first == next[input] || next[input] == 1 && first == kept[input];
    if !inputs.iter().all(|&(input, first)| follows(input, first)) {
        return SnapshotVerdict::Unrecoverable("its progress was moved".to_owned());
    }
    let Ok(jobs) = usize::try_from(snapshot.jobs) else {
        return SnapshotVerdict::Unrecoverable(
            "the batch exceeds the address space of this machine".to_owned(),
        );
    };
    for &(input, first) in &inputs {
        next[input] = first + snapshot.jobs;
    }
    inputs.sort_unstable();
    SnapshotVerdict::Redo(RecoveredBatch { number: snapshot.number, inputs, jobs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_config::{Configuration, LoadOptions, load};
    use tidegate_model::{Address, Timestamp};
    use tidegate_store::SnapshotInput;

    /// Configuration of a step that prints a join of `a` and `b`.
    fn configuration(step: &str) -> Configuration {
        let folder = tempfile::tempdir().unwrap();
        let toml = format!(
            "[pipeline]\nname = \"p\"\nerrors = \"failed\"\n[sink.out]\ntype = \"stdout\"\n\
             [step.print]\n{step}\nto = \"out\"\n"
        );
        std::fs::write(folder.path().join("p.toml"), toml).unwrap();
        load(folder.path(), &LoadOptions::default()).finish().unwrap().0
    }

    const JOIN: &str = "join = { a = \"a\", b = \"b\" }";

    fn snapshot(number: u64, inputs: &[(&str, u64)], jobs: u64) -> Snapshot {
        let input = |&(name, first): &(&str, u64)| {
            let address = Address::parse(&format!("p/{name}")).unwrap();
            SnapshotInput { name: name.to_owned(), address, first, jobs }
        };
        let step = Address::parse("p/print").unwrap();
        Snapshot { step, number, inputs: inputs.iter().map(input).collect(), jobs, time: Timestamp(0) }
    }

    fn at(watermark: u64) -> Progress {
        let mut progress = Progress::default();
        progress.skip_to(watermark);
        progress
    }

    #[test]
    fn what_was_begun_is_made_again_in_order() {
        let configuration = configuration(JOIN);
        let snapshots = [snapshot(7, &[("a", 4), ("b", 9)], 2), snapshot(8, &[("a", 6), ("b", 11)], 1)];
        let verdicts = verdicts(&configuration.steps[0], &[at(3), at(8)], &[1, 1], &snapshots);
        let again = |number, a, b, jobs| {
            SnapshotVerdict::Redo(RecoveredBatch { number, inputs: vec![(0, a), (1, b)], jobs })
        };
        assert_eq!(verdicts, [again(7, 4, 9, 2), again(8, 6, 11, 1)]);
    }

    #[test]
    fn what_was_begun_first_of_a_queue_whose_oldest_jobs_are_gone_is_made_again() {
        let step = &configuration(JOIN).steps[0].clone();
        let snapshots = [snapshot(1, &[("a", 3), ("b", 9)], 1), snapshot(2, &[("a", 4), ("b", 10)], 2)];
        let progress = [at(0), at(8)];
        let redo = |number, a, b, jobs| {
            SnapshotVerdict::Redo(RecoveredBatch { number, inputs: vec![(0, a), (1, b)], jobs })
        };
        assert_eq!(verdicts(step, &progress, &[3, 1], &snapshots), [redo(1, 3, 9, 1), redo(2, 4, 10, 2)]);
        // Another place than the oldest one is no beginning.
        let moved = SnapshotVerdict::Unrecoverable("its progress was moved".to_owned());
        assert_eq!(verdicts(step, &progress, &[2, 1], &snapshots), [moved.clone(), moved]);
    }

    #[test]
    fn what_was_left_of_a_batch_is_made_again_before_those_behind_it() {
        let begun = [
            snapshot(5, &[("b", 1)], 2),
            snapshot(6, &[("a", 9)], 3),
            snapshot(7, &[("b", 3)], 2),
            snapshot(9, &[("a", 4)], 5),
        ];
        let numbers: Vec<u64> = in_order(begun.to_vec()).iter().map(|one| one.number).collect();
        assert_eq!(numbers, [5, 9, 6, 7]);
    }

    #[test]
    fn what_progress_has_passed_is_delivered_and_what_is_gone_is_lost() {
        let configuration = configuration(JOIN);
        let begun = [snapshot(7, &[("a", 4), ("b", 9)], 2)];
        let verdict = |watermarks: [u64; 2], kept: [u64; 2]| {
            verdicts(&configuration.steps[0], &watermarks.map(at), &kept, &begun).remove(0)
        };
        assert_eq!(verdict([5, 10], [6, 11]), SnapshotVerdict::Delivered);
        // While the step was removed, retention deleted its jobs: that is no delivery.
        let SnapshotVerdict::Unrecoverable(why) = verdict([3, 8], [6, 9]) else { panic!("it is gone") };
        assert_eq!(why, "retention has deleted some of its jobs");
        let SnapshotVerdict::Unrecoverable(why) = verdict([0, 8], [1, 1]) else { panic!("it was put back") };
        assert_eq!(why, "its progress was moved");
    }

    #[test]
    fn what_at_most_once_has_begun_and_not_delivered_is_forgone_unless_progress_was_put_back() {
        let configuration = configuration(&format!("delivery = \"at-most-once\"\n{JOIN}"));
        let begun = [snapshot(7, &[("a", 4), ("b", 9)], 2), snapshot(8, &[("a", 6), ("b", 11)], 1)];
        let verdicts = |a, b| verdicts(&configuration.steps[0], &[at(a), at(b)], &[1, 1], &begun);
        assert_eq!(
            verdicts(6, 11),
            [SnapshotVerdict::AtMostOnceLost { input: 0 }, SnapshotVerdict::AtMostOnceLost { input: 0 }]
        );
        assert!(matches!(
            verdicts(5, 10)[..],
            [SnapshotVerdict::AtMostOnceLost { .. }, SnapshotVerdict::Unrecoverable(_)]
        ));
    }

    #[test]
    fn a_step_that_takes_its_jobs_otherwise_cannot_make_it_again() {
        let begun = [snapshot(7, &[("a", 4), ("b", 9)], 2)];
        for step in [
            "join = { a = \"a\", b = \"b\", c = \"c\" }",
            "join = { a = \"a\", c = \"b\" }",
            "alts = { a = \"a\", b = \"b\" }",
            "delivery = \"at-least-once\"\njoin = { a = \"a\", b = \"b\" }",
        ] {
            let configuration = configuration(step);
            let verdicts = verdicts(&configuration.steps[0], &[at(3), at(8), at(0)], &[1, 1, 1], &begun);
            assert!(matches!(verdicts[..], [SnapshotVerdict::Unrecoverable(_)]), "{step}: {verdicts:?}");
        }
    }
}
