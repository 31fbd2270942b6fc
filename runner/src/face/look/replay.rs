//! What it comes to when a step runs again from an earlier job on.

use super::{Again, Answer, Replay, ReplayStart, rfc3339};
use crate::config::{Configuration, Input, InputRef, Step, Take, Target};
use crate::store::{ReadError, Store};
use crate::words::Timestamp;
use crate::words::suggest::{did_you_mean, listed};

pub(super) fn plan(
    store: &Store,
    configuration: &Configuration,
    step: &str,
    input: Option<&str>,
    start: ReplayStart,
) -> Result<Answer, ReadError> {
    let names: Vec<String> = configuration.steps.iter().map(|step| step.address.to_string()).collect();
    let Some(position) = names.iter().position(|name| name == step) else {
        let hint = did_you_mean(step, names.iter().map(String::as_str));
        let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
        return refuse(format!("the configuration has no step `{step}`{hint}"));
    };
    let step = &configuration.steps[position];
    let chosen = match choose(step, input) {
        Ok(chosen) => chosen,
        Err(why) => return refuse(why),
    };
    let from = match start {
        ReplayStart::At(index) => index,
        ReplayStart::Since(time) => match index_since(store, chosen, Timestamp(time))? {
            Ok(index) => index,
            Err(why) => return refuse(why),
        },
    };
    let watermark = |input: &InputRef| {
        let progress = store.progress(&step.address, &input.address)?;
        Ok::<_, ReadError>(progress.map_or(0, |progress| progress.watermark()))
    };
    let last = watermark(chosen)?;
    if from > last {
        return refuse(match last {
            0 => format!(
                "there is nothing to run again: `{}` has taken nothing from `{}` yet",
                step.address, chosen.address
            ),
            _ => format!(
                "there is nothing to run again from {from} on: `{}` has accounted for `{}` up to {last}",
                step.address, chosen.address
            ),
        });
    }
    let jobs = last - from + 1;
    let mut inputs = Vec::new();
    // The parts of a join stay together.
    let together =
        step.inputs.iter().filter(|input| step.take == Take::Join || input.address == chosen.address);
    for input in together {
        let last = watermark(input)?;
        let Some(before) = last.checked_sub(jobs) else {
            return refuse(format!(
                "`{}` has given only {last} jobs, and {jobs} would have to go back",
                input.address
            ));
        };
        let first = before + 1;
        if let Some(oldest) = oldest(store, input)?.filter(|&oldest| first < oldest) {
            return refuse(format!(
                "job {first} of `{}` is no longer kept; the oldest that is has index {oldest} (`retain` of the \
                 queue says how long jobs are kept)",
                input.address
            ));
        }
        inputs.push(Again { input: input.address.clone(), first, last });
    }
    let outputs = outputs(configuration, step);
    Ok(Answer::Replay(Replay { step: step.address.clone(), inputs, jobs, outputs }))
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
                Err(format!("`{}` has several inputs; say which with `--input`: {names}", step.address))
            }
        };
    };
    let is = |input: &&InputRef| {
        input.binding == name || input.address.to_string() == name || input.address.name.as_str() == name
    };
    step.inputs.iter().find(is).ok_or_else(|| {
        let names = names();
        let names = listed(names.iter().map(String::as_str), "and");
        format!("`{}` has no input `{name}`; it has {names}", step.address)
    })
}

fn index_since(store: &Store, input: &InputRef, time: Timestamp) -> Result<Result<u64, String>, ReadError> {
    if let Input::Source(_) = input.input {
        let why = format!(
            "`{}` is a source, and nobody knows when its jobs came; say `--from INDEX`",
            input.address
        );
        return Ok(Err(why));
    }
    let index = store.index_at(&input.address, time)?;
    Ok(index.ok_or_else(|| {
        format!("there is nothing to run again: no job came to `{}` since {}", input.address, rfc3339(time))
    }))
}

/// The oldest job that is kept; `None` for a source, which keeps its own.
fn oldest(store: &Store, input: &InputRef) -> Result<Option<u64>, ReadError> {
    Ok(match input.input {
        Input::Source(_) => None,
        Input::Queue(_) => store.queue(&input.address)?.map(|queue| queue.first),
    })
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
    outputs.extend(step.errors.map(|errors| queue(errors.0)));
    outputs.dedup();
    outputs
}

fn refuse(why: String) -> Result<Answer, ReadError> {
    Ok(Answer::Missing(why))
}
