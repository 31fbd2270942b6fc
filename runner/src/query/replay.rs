//! `Replay`: the effect of running a step again from an earlier job on.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;

use super::{Again, Answer, ReplayPlan, ReplayStart, rfc3339};
use tidegate_components::source::{SourceError, SourceLog};
use tidegate_config::{
    Configuration, FileSource, Input, InputMode, InputRef, SourceKind, SourceRef, Step, Target,
};
use tidegate_engine::Chain;
use tidegate_model::suggest::{did_you_mean_address, listed};
use tidegate_model::{Address, Segment, Timestamp};
use tidegate_store::{ReadError, Store};

/// Maximum number of places at which a replay passes over unfinished jobs. Each commit of the step records them.
const GAPS_MAX: usize = 10_000;
/// Maximum number of files under another name that are searched before a replay.
const SEARCHED_MAX: usize = 100;

pub(crate) fn plan(
    store: &Store,
    configuration: &Configuration,
    step: &str,
    input: Option<&str>,
    start: ReplayStart,
) -> Result<Answer, ReadError> {
    match find(store, configuration, step, input, start) {
        Ok(plan) => Ok(Answer::Replay(plan)),
        Err(No::Because(why)) => Ok(Answer::Missing(why)),
        Err(No::Read(error)) => Err(error),
    }
}

/// Why no plan exists.
enum No {
    /// The replay is impossible; a sentence.
    Because(String),
    Read(ReadError),
}

impl From<ReadError> for No {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl From<String> for No {
    fn from(why: String) -> Self {
        Self::Because(why)
    }
}

fn find(
    store: &Store,
    configuration: &Configuration,
    step: &str,
    input: Option<&str>,
    start: ReplayStart,
) -> Result<ReplayPlan, No> {
    let names: Vec<String> = configuration.steps.iter().map(|step| step.address.to_string()).collect();
    let Some(position) = names.iter().position(|name| name == step) else {
        let hint = did_you_mean_address(step, names.iter().map(String::as_str));
        let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
        return Err(format!("the configuration has no step `{step}`{hint}").into());
    };
    let step = &configuration.steps[position];
    let chosen = choose(step, input)?;
    let (from, note) = match start {
        ReplayStart::At(index) => (index, None),
        ReplayStart::Since(time) => index_since(store, chosen, Timestamp(time))?,
    };
    let last = watermark(store, step, chosen)?;
    if from > last {
        let (step, input) = (&step.address, &chosen.address);
        let why = match last {
            0 => format!("nothing can run again: `{step}` has read no job of `{input}` yet"),
            _ => format!("nothing can run again from {from} on: `{step}` has read `{input}` up to {last}"),
        };
        return Err(why.into());
    }
    // They are not finished, and go on as they are.
    let waiting: BTreeSet<u64> =
        store.parked_indices(&step.address, &chosen.hash_name())?.into_iter().collect();
    let Some(from) = (from..=last).find(|index| !waiting.contains(index)) else {
        let (step, input) = (&step.address, &chosen.address);
        let why = format!(
            "nothing can run again: the jobs of `{input}` from {from} on are not finished at `{step}`"
        );
        return Err(why.into());
    };
    let gaps = waiting.range(from..=last).filter(|index| !waiting.contains(&(*index + 1))).count();
    if gaps > GAPS_MAX {
        let (step, input) = (&step.address, &chosen.address);
        let why = format!(
            "too many jobs of `{input}` from {from} on are not finished at `{step}`, at more than {GAPS_MAX} places: replay \
             jobs behind them, or `delayed cancel` them first"
        );
        return Err(why.into());
    }
    let (span, waiting) = (last + 1 - from, waiting.range(from..=last).count() as u64);
    let mut inputs = Vec::new();
    // The parts of a tuple stay together.
    let together =
        step.inputs.iter().filter(|input| step.take == InputMode::Join || input.address == chosen.address);
    for input in together {
        inputs.push(again(store, configuration, (step, input), span)?);
    }
    let outputs = outputs(configuration, step);
    let (step, jobs) = (step.address.clone(), span - waiting);
    Ok(ReplayPlan { step, inputs, jobs, waiting, outputs, note })
}

/// The last `jobs` jobs of an input, if all of them are kept.
fn again(
    store: &Store,
    configuration: &Configuration,
    (step, input): (&Step, &InputRef),
    jobs: u64,
) -> Result<Again, No> {
    let last = watermark(store, step, input)?;
    let (kind, input) = (input.input, &input.address);
    let Some(before) = last.checked_sub(jobs) else {
        return Err(format!("`{input}` has only {last} jobs, but {jobs} must run again").into());
    };
    let first = before + 1;
    if let Input::Source(SourceRef(source)) = kind
        && let SourceKind::File(file) = &configuration.sources[source].kind
        && let Some(gone) = gone(store, input, file, (first, last))?
    {
        let why = format!("job {gone} of `{input}` is no longer in the files of the source");
        return Err(why.into());
    }
    let oldest = store.queue(input)?.map(|queue| queue.first);
    if let Some(oldest) = oldest.filter(|&oldest| first < oldest) {
        let why = format!(
            "job {first} of `{input}` is no longer kept; the oldest kept job is {oldest} (see `retain` of the \
             queue)"
        );
        return Err(why.into());
    }
    Ok(Again { input: input.clone(), first, last })
}

/// The first of these jobs whose file was deleted, replaced or cut short since it was read.
fn gone(
    store: &Store,
    input: &Address,
    file: &FileSource,
    (first, last): (u64, u64),
) -> Result<Option<u64>, No> {
    let segments = store.segments(input)?;
    let ends = segments.iter().skip(1).map(|next| next.first).chain([u64::MAX]);
    let held = segments.iter().zip(ends).filter(|(segment, end)| segment.first < *end && first < *end);
    let held = held.map(|(segment, _)| (segment.first.max(first), segment));
    let moved = held.take_while(|(start, _)| *start <= last).filter(|(_, segment)| !is_in_place(segment));
    let starts: Vec<u64> = moved.map(|(start, _)| start).take(SEARCHED_MAX).collect();
    let unreadable = |error: SourceError| No::Because(format!("`{input}` cannot be read: {}", Chain(&error)));
    let log = SourceLog::open(input, file, segments).map_err(unreadable)?;
    for start in starts {
        if log.at(start, store.mark(input, start)?).map_err(unreadable)?.is_none() {
            return Ok(Some(start));
        }
    }
    Ok(None)
}

/// Whether the file of a segment has its name, and is as long as it was read.
fn is_in_place(segment: &Segment) -> bool {
    let read = segment.end.map(|end| end.offset).into_iter().chain(segment.tail.map(|tail| tail.at.offset));
    let is_its = |found: Metadata| {
        (found.dev(), found.ino()) == (segment.device, segment.inode)
            && read.clone().all(|offset| offset <= found.len())
    };
    fs::metadata(&segment.path).is_ok_and(is_its)
}

fn watermark(store: &Store, step: &Step, input: &InputRef) -> Result<u64, ReadError> {
    let progress = store.progress(&step.address, &input.address)?;
    Ok(progress.map_or(0, |progress| progress.position()))
}

fn choose<'s>(step: &'s Step, name: Option<&str>) -> Result<&'s InputRef, String> {
    let names = || {
        let name = |input: &InputRef| match input.binding.as_str() {
            "" => input.address.to_string(),
            binding => binding.to_owned(),
        };
        step.inputs.iter().map(name).collect::<Vec<_>>()
    };
    let Some(name) = name else {
        return match &step.inputs[..] {
            [one] => Ok(one),
            _ => {
                let names = names();
                let names = listed(names.iter().map(String::as_str), "or");
                Err(format!("`{}` has several inputs: choose one with `--input`: {names}", step.address))
            }
        };
    };
    let is = |input: &&InputRef| {
        input.binding == name || input.address.to_string() == name || input.address.name.as_str() == name
    };
    step.inputs.iter().find(is).ok_or_else(|| {
        let names = names();
        let names = listed(names.iter().map(String::as_str), "and");
        format!("`{}` has no input `{name}`; its inputs are {names}", step.address)
    })
}

/// The first job that was committed at this time or later, and a note about deleted ones.
fn index_since(store: &Store, input: &InputRef, time: Timestamp) -> Result<(u64, Option<String>), No> {
    let name = &input.address;
    if let Input::Source(_) = input.input {
        let why = format!("`{name}` is a source, which has no times of its jobs: use `--from INDEX`");
        return Err(why.into());
    }
    let Some(queue) = store.queue(name)? else {
        return Err(format!("nothing can run again: `{name}` has no job").into());
    };
    let gone = queue.first - 1;
    let index = store.index_at(name, time)?;
    let index = index.ok_or_else(|| {
        let since = rfc3339(time);
        match queue.jobs() {
            0 => format!(
                "the jobs of `{name}` up to {gone} are no longer kept (see `retain` of the queue), \
                 so no job since {since} can run again"
            ),
            _ => format!("nothing can run again: `{name}` has no job since {since}"),
        }
    })?;
    // Older jobs since that time may have been deleted by retention.
    let note = (index == queue.first && gone > 0).then(|| {
        format!("jobs of `{name}` up to {gone} are no longer kept, and some of them may be of that time")
    });
    Ok((index, note))
}

fn outputs(configuration: &Configuration, step: &Step) -> Vec<String> {
    let queue = |position: usize| configuration.queues[position].address.to_string();
    let mut outputs = Vec::new();
    for output in &step.outputs {
        outputs.push(match output.target {
            Target::Queue(at) => queue(at.0),
            Target::Sink(at) => configuration.sinks[at.0].address.to_string(),
        });
    }
    outputs.extend(step.errors.into_iter().chain(step.events).map(|records| queue(records.0)));
    outputs.dedup();
    outputs
}
