//! Start position: finds the first job of a step that has never taken a job of an input (`begin_at`).
//!
//! The position is found at the first start and recorded with the first commit. After that neither a crash
//! nor a change of `begin_at` moves it. Progress records it as if all earlier jobs were accounted for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::error::Chain;
use tidegate_components::job_log::{JobLog, JobReader};
use tidegate_components::source::SourceEnd;
use tidegate_config::{BeginAt, InputMode, InputRef, Step};
use tidegate_dispatch::InputPlan;
use tidegate_model::log_target;
use tidegate_model::{Address, Progress, SourceOffset};
use tidegate_store::{Changes, ReadError, Store};

/// Time to wait if too many files are open to read a source.
const SHORT_OF_FILES_WAIT: Duration = Duration::from_millis(100);

/// Whether `step` has never taken a job of `input`.
pub(crate) fn is_new(store: &Store, step: &Step, input: &InputRef) -> Result<bool, ReadError> {
    // A batch that was begun and never delivered is recorded in snapshots only.
    Ok(store.progress(&step.address, &input.address)?.is_none() && store.snapshots(&step.address)?.is_empty())
}

/// Jobs of an input that a step has accounted for. If it has never taken one, the result is the position that
/// its first start will record, as far as the store knows.
///
/// # Errors
/// The store cannot be read.
pub fn progress(store: &Store, step: &Step, input: &InputRef) -> Result<Progress, ReadError> {
    if let Some(progress) = store.progress(&step.address, &input.address)? {
        return Ok(progress);
    }
    let mut progress = Progress::default();
    if is_new(store, step, input)? {
        let queue = store.queue(&input.address)?;
        let there = queue.map_or((1, 0), |queue| (queue.first, queue.head));
        progress.start_after(last_skipped(step, there));
    }
    Ok(progress)
}

/// The highest index of an input up to which every job is finished: delivered, consumed, or set aside. A job that is
/// begun, delayed or pending holds it.
///
/// # Errors
/// The store cannot be read.
pub fn watermark(store: &Store, step: &Step, input: &InputRef) -> Result<u64, ReadError> {
    store.at_one_moment(|store| {
        let position = progress(store, step, input)?.position();
        watermark_below(store, &step.address, &input.hash_name(), position)
    })
}

/// The same of a step that has accounted for all jobs up to `position` of an input, named as in delivery hashes.
///
/// # Errors
/// The store cannot be read.
pub fn watermark_below(store: &Store, step: &Address, input: &str, position: u64) -> Result<u64, ReadError> {
    let parked = store.first_unfinished(step, input)?;
    // The progress of `at-most-once` accounts for jobs before they are attempted; a snapshot names them.
    let snapshots = store.snapshots(step)?;
    let begun = snapshots.iter().flat_map(|snapshot| &snapshot.inputs).filter(|begun| begun.name == input);
    let first = parked.into_iter().chain(begun.map(|begun| begun.first)).min();
    Ok(first.map_or(position, |first| position.min(first.saturating_sub(1))))
}

/// Last job that the step skips, if the jobs from `first` to `last` exist. Jobs that retention deleted before
/// are skipped, too.
fn last_skipped(step: &Step, (first, last): (u64, u64)) -> u64 {
    let wanted = match step.begin_at {
        BeginAt::Oldest => 0,
        BeginAt::Newest => last,
        BeginAt::Index(index) => index - 1,
    };
    wanted.max(first - 1)
}

/// Reads a source to its end, for a step that starts there. While too many files are open, it waits. Returns
/// `None` if the run was `stopped` meanwhile.
pub(crate) fn end(
    source: &JobLog,
    mark: Option<SourceOffset>,
    stopped: &AtomicBool,
) -> Option<Result<SourceEnd, String>> {
    let mut waits = false;
    loop {
        match source.end(mark) {
            Err(error) if error.is_short_of_files() => {
                if stopped.load(Ordering::Acquire) {
                    return None;
                }
                if !std::mem::replace(&mut waits, true) {
                    tracing::warn!(target: log_target::ENGINE, error = %Chain(&error), "too many files are open; the source waits");
                }
                thread::sleep(SHORT_OF_FILES_WAIT);
            }
            end => return Some(end.map_err(|error| Chain(&error).to_string())),
        }
    }
}

/// Initial progress of `step` on an input that is new to it, with available jobs from `first` to `last`.
pub(crate) fn begin(step: &Step, input: &InputRef, there: (u64, u64)) -> Progress {
    let mut progress = Progress::default();
    let behind = last_skipped(step, there);
    progress.start_after(behind);
    let wanted = match step.begin_at {
        BeginAt::Index(index) => index,
        BeginAt::Oldest | BeginAt::Newest => behind + 1,
    };
    let (index, input, step) = (behind + 1, &input.address, &step.address);
    if wanted < index {
        tracing::warn!(
            target: log_target::ENGINE,
            %step, %input, index = wanted, oldest = index,
            "the job that `begin_at` names has been deleted by retention; the step starts at the oldest job instead"
        );
    }
    progress
}

/// Logs the start positions, once they are durable.
pub(crate) fn log_starts(opening: &Changes) {
    let begun = opening.progress.iter().filter(|(.., progress)| progress.is_untouched());
    for (step, input, progress) in begun {
        let index = progress.position() + 1;
        tracing::info!(
            target: log_target::ENGINE,
            %step, %input, index,
            "the step starts at this job; earlier jobs are skipped"
        );
    }
}

/// Reader of a source for a step with this progress, from the job `next` on.
pub(crate) fn reader(
    source: &JobLog,
    progress: &Progress,
    next: u64,
    mark: Option<SourceOffset>,
) -> JobReader {
    if progress.is_untouched() { source.beginner(next, mark) } else { source.reader(next, mark) }
}

/// Warns of a join with a new input: it may pair jobs that do not belong together.
pub(crate) fn warn_of_new_inputs(step: &Step, known: &[bool], inputs: &[InputPlan]) {
    if step.take != InputMode::Join || !known.contains(&true) {
        return;
    }
    let with =
        if step.begin_at == BeginAt::Newest { "the next job to come" } else { "the oldest available job" };
    for ((declared, input), _) in step.inputs.iter().zip(inputs).zip(known).filter(|(_, known)| !**known) {
        tracing::warn!(
            target: log_target::ENGINE,
            step = %step.address,
            input = %declared.address,
            from = input.next,
            "the join has never taken jobs of this input, but of its other inputs. It starts at {with} and pairs \
             it with the next jobs of the others. To pair them from an earlier job, use `tidegate replay`."
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_model::Timestamp;
    use tidegate_store::{Snapshot, SnapshotInput, SnapshotKey, open_in_memory};

    #[test]
    fn a_batch_whose_progress_was_moved_before_it_runs_holds_the_watermark_until_it_is_delivered() {
        let (store, mut writer) = open_in_memory().unwrap();
        let address = |text: &str| Address::parse(text).unwrap();
        let (step, input) = (address("p/step"), address("p/in"));
        let mut progress = Progress::default();
        progress.skip_to(5);
        let begun = SnapshotInput { name: "p/in".to_owned(), address: input.clone(), first: 3, jobs: 3 };
        let time = Timestamp(1);
        let snapshot = Snapshot { step: step.clone(), number: 7, inputs: vec![begun], jobs: 3, time };
        let progress = vec![(step.clone(), input, progress)];
        writer.commit(&Changes { progress, snapshots: vec![snapshot], ..Changes::default() }).unwrap();
        let watermark = |store: &Store| watermark_below(store, &step, "p/in", 5).unwrap();
        assert_eq!(watermark(&store), 2);
        let done_snapshots = vec![SnapshotKey { step: step.clone(), number: 7 }];
        writer.commit(&Changes { done_snapshots, ..Changes::default() }).unwrap();
        assert_eq!(watermark(&store), 5);
    }
}
