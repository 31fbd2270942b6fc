//! Rewind: puts the progress of a step back, and past jobs that it skips. Jobs that are begun or that wait in the store are
//! not finished. They keep their state, and are neither read again nor discarded.

use tidegate_config::InputRef;
use tidegate_model::{Address, Progress};
use tidegate_store::{ReadError, Snapshot, Store};

/// Indices of jobs, both included.
pub(crate) type JobRange = (u64, u64);

/// Jobs of an input of `step` that wait in the store: for another attempt, for an external system, for a partner, or for
/// their turn to be delivered. `input`: its name in delivery hashes. Both names are those that the store has now.
pub(crate) fn waiting(store: &Store, step: &Address, input: &str) -> Result<Vec<JobRange>, ReadError> {
    let indices = store.parked_indices(step, input)?;
    Ok(indices.into_iter().map(|index| (index, index)).collect())
}

/// Lets the jobs from `next` on run again, without those that wait.
pub(crate) fn put_back(progress: &mut Progress, next: u64, waiting: &[JobRange]) {
    let taken = waiting.iter().filter(|(first, _)| progress.is_done(*first));
    let mut taken: Vec<JobRange> = taken.copied().collect();
    progress.rewind(next.saturating_sub(1));
    progress.finish_all(&mut taken);
}

/// Skips the jobs up to `last`, without those of these ranges, which are begun.
pub(crate) fn skip(progress: &mut Progress, last: u64, begun: &[JobRange]) {
    let mut begun = begun.to_vec();
    begun.sort_unstable();
    let mut next = 1;
    for (first, end) in begun {
        progress.finish(next, last.min(first.saturating_sub(1)));
        next = next.max(end + 1);
    }
    progress.finish(next, last);
}

/// Jobs of an input that are begun in these snapshots.
pub(crate) fn begun(snapshots: &[Snapshot], input: &InputRef) -> Vec<JobRange> {
    let inputs = snapshots.iter().flat_map(|snapshot| &snapshot.inputs);
    let its = inputs.filter(|begun| begun.address == input.address && begun.jobs > 0);
    its.map(|begun| (begun.first, begun.first + begun.jobs - 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(position: u64, finished: &[JobRange]) -> Progress {
        let mut progress = Progress::default();
        progress.finish(1, position);
        progress.finish_all(&mut finished.to_vec());
        progress
    }

    fn state(progress: &Progress) -> (u64, &[JobRange]) {
        (progress.position(), progress.finished())
    }

    #[test]
    fn jobs_that_wait_are_not_read_again() {
        let mut moved = progress(6, &[(8, 9), (11, 11)]);
        put_back(&mut moved, 2, &[(9, 9), (1, 1), (4, 4), (3, 3), (10, 10)]);
        assert_eq!(state(&moved), (1, &[(3, 4), (9, 9)][..]));
        put_back(&mut moved, 1, &[(1, 1)]);
        assert_eq!(state(&moved), (1, &[][..]));
    }

    #[test]
    fn jobs_that_are_begun_are_not_skipped() {
        let mut moved = progress(2, &[(5, 5)]);
        skip(&mut moved, 9, &[(6, 7), (3, 4)]);
        assert_eq!(state(&moved), (2, &[(5, 5), (8, 9)][..]));
        let mut moved = progress(5, &[]);
        skip(&mut moved, 9, &[(2, 4), (9, 12)]);
        assert_eq!(state(&moved), (8, &[][..]));
        skip(&mut moved, 20, &[]);
        assert_eq!(state(&moved), (20, &[][..]));
    }
}
