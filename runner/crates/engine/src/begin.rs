//! With which job a step begins that has never taken any of an input: `begin_at`.
//!
//! That is found out at the first start and recorded with the first commit, so that neither a crash nor
//! another `begin_at` changes it. From then on progress says it, as if all before were accounted for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::error::Chain;
use tidegate_components::source::{Reader, Source, SourceEnd};
use tidegate_config::{BeginAt, Configuration, Input, InputRef, QueueRef, SourceRef, Step, Take};
use tidegate_dispatch::FlowInput;
use tidegate_model::log_target;
use tidegate_model::{Mark, Progress};
use tidegate_store::{Changes, ReadError, Store};

/// Where the sources end at whose end some step begins, or why that cannot be found out.
pub(crate) type Ends = BTreeMap<usize, Result<SourceEnd, String>>;

/// How long to wait where too many files are open for a source to be read.
const SHORT_OF_FILES_WAIT: Duration = Duration::from_millis(100);

/// Whether `step` has never taken anything of `input`.
pub(crate) fn is_new(store: &Store, step: &Step, input: &InputRef) -> Result<bool, ReadError> {
    // What was begun and never delivered is told by snapshots alone.
    Ok(store.progress(&step.address, &input.address)?.is_none() && store.snapshots(&step.address)?.is_empty())
}

/// What a step has accounted for of an input; where it has never taken any of it, what its first start will
/// say of that, as far as the store knows.
///
/// # Errors
/// Where the store cannot be read.
pub fn progress(store: &Store, step: &Step, input: &InputRef) -> Result<Progress, ReadError> {
    if let Some(progress) = store.progress(&step.address, &input.address)? {
        return Ok(progress);
    }
    let mut progress = Progress::default();
    if is_new(store, step, input)? {
        let queue = store.queue(&input.address)?;
        let there = queue.map_or((1, 0), |queue| (queue.first, queue.head));
        progress.begin_behind(behind(step, there));
    }
    Ok(progress)
}

/// The last job that is none of the step's, where those from `first` to `last` are there: what was let go of
/// before it began is none of its either.
fn behind(step: &Step, (first, last): (u64, u64)) -> u64 {
    let wanted = match step.begin_at {
        BeginAt::Oldest => 0,
        BeginAt::Newest => last,
        BeginAt::Index(index) => index - 1,
    };
    wanted.max(first - 1)
}

/// Reads those sources to their end of which a step wants only what comes from now on. While too many files
/// are open, the start of the run waits; `None`: it was `stopped` meanwhile.
pub(crate) fn ends(
    configuration: &Configuration,
    store: &Store,
    sources: &[Option<Source>],
    stopped: &AtomicBool,
) -> Result<Option<Ends>, ReadError> {
    let mut ends = BTreeMap::new();
    for (position, source) in sources.iter().enumerate() {
        let (Some(source), address) = (source, &configuration.sources[position].address) else { continue };
        let (mut wanted, mut known) = (false, Vec::new());
        for (step, input) in configuration.readers(Input::Source(SourceRef(position))) {
            let step = &configuration.steps[step];
            let input = &step.inputs[input];
            wanted |= step.begin_at == BeginAt::Newest && is_new(store, step, input)?;
            known.extend(store.progress(&step.address, &input.address)?);
        }
        if !wanted {
            continue;
        }
        known.iter().filter(|known| !known.is_at_its_beginning()).for_each(|known| {
            source.join(known.watermark() + 1);
        });
        let Some(end) = end(source, store.mark(address, u64::MAX)?, stopped) else { return Ok(None) };
        ends.insert(position, end);
    }
    Ok(Some(ends))
}

fn end(source: &Source, mark: Option<Mark>, stopped: &AtomicBool) -> Option<Result<SourceEnd, String>> {
    let mut waits = false;
    loop {
        match source.end(mark) {
            Err(error) if error.is_short_of_files() => {
                if stopped.load(Ordering::Acquire) {
                    return None;
                }
                if !std::mem::replace(&mut waits, true) {
                    tracing::warn!(target: log_target::ENGINE, error = %Chain(&error), "the source waits until fewer files are open");
                }
                thread::sleep(SHORT_OF_FILES_WAIT);
            }
            end => return Some(end.map_err(|error| Chain(&error).to_string())),
        }
    }
}

/// The first and the last job of an input that is there; of a source they count from 1.
///
/// # Errors
/// Why its end cannot be found out.
pub(crate) fn there(
    input: Input,
    (firsts, heads): (&BTreeMap<usize, u64>, &[u64]),
    ends: &Ends,
) -> Result<(u64, u64), String> {
    match input {
        Input::Queue(QueueRef(queue)) => Ok((firsts.get(&queue).copied().unwrap_or(1), heads[queue])),
        Input::Source(SourceRef(source)) => match ends.get(&source) {
            Some(Ok(end)) => Ok((1, end.last)),
            Some(Err(why)) => Err(why.clone()),
            None => Ok((1, 0)),
        },
    }
}

/// The progress with which `step` begins on an input that is new to it, of which jobs from `first` to
/// `last` are there.
pub(crate) fn begin(step: &Step, input: &InputRef, there: (u64, u64)) -> Progress {
    let mut progress = Progress::default();
    let behind = behind(step, there);
    progress.begin_behind(behind);
    let wanted = match step.begin_at {
        BeginAt::Index(index) => index,
        BeginAt::Oldest | BeginAt::Newest => behind + 1,
    };
    let (index, input, step) = (behind + 1, &input.address, &step.address);
    if wanted < index {
        tracing::warn!(
            target: log_target::ENGINE,
            %step, %input, index = wanted, oldest = index,
            "the step begins with the oldest job that is kept: the one that `begin_at` names is let go of already"
        );
    }
    progress
}

/// Says where steps begin, once that is on disk and holds whatever happens.
pub(crate) fn say(opening: &Changes) {
    let begun = opening.progress.iter().filter(|(.., progress)| progress.is_at_its_beginning());
    for (step, input, progress) in begun {
        let index = progress.watermark() + 1;
        tracing::info!(
            target: log_target::ENGINE,
            %step, %input, index,
            "the step begins with this job; what came before it is none of its"
        );
    }
}

/// A reader of a source that gives the jobs from `next` on to a step with this progress.
pub(crate) fn reader(source: &Source, progress: &Progress, next: u64, mark: Option<Mark>) -> Reader {
    if progress.is_at_its_beginning() { source.beginner(next, mark) } else { source.reader(next, mark) }
}

/// A join that takes something more than it did pairs what may not belong together.
pub(crate) fn warn_of_new_inputs(step: &Step, known: &[bool], inputs: &[FlowInput]) {
    if step.take != Take::Join || !known.contains(&true) {
        return;
    }
    let with = if step.begin_at == BeginAt::Newest { "the next job to come" } else { "the oldest job there" };
    for ((declared, input), _) in step.inputs.iter().zip(inputs).zip(known).filter(|(_, known)| !**known) {
        tracing::warn!(
            target: log_target::ENGINE,
            step = %step.address,
            input = %declared.address,
            from = input.next,
            "the join takes this input for the first time, beside inputs that it has taken jobs of before: it \
             begins with {with}, and pairs it with those that come next on the others \
             (`tidegate replay` puts them back)"
        );
    }
}
