//! `tidegate queue drop`: discards the jobs and the progress of parts that are no longer in the configuration.

use serde::Serialize;

use crate::cli::{Format, QueueDrop};
use crate::client::{CommandTarget, other_question, print_json, print_text};
use crate::output::exit;
use crate::output::exit::Exit;
use crate::output::table::jobs;
use crate::output::terminal::confirm;
use crate::query::{Answer, Query};
use tidegate_engine::{RemovedPart, Request, RequestOutcome};
use tidegate_model::{Address, Name, grouped};

#[derive(Serialize)]
struct DroppedParts {
    queues: Vec<DroppedQueue>,
    steps: Vec<DroppedStep>,
}

#[derive(Serialize)]
struct DroppedQueue {
    queue: String,
    jobs: u64,
}

#[derive(Serialize)]
struct DroppedStep {
    step: String,
    parked: u64,
}

pub(crate) fn drop_removed(command: &QueueDrop) -> Exit {
    change(command).unwrap_or_else(|exit| exit)
}

fn change(command: &QueueDrop) -> Result<Exit, Exit> {
    let part = command.part.clone();
    if Address::parse(&part).is_none() && Name::new(&part).is_none() {
        let message =
            format!("`{part}` does not name a part: write PIPELINE/QUEUE, PIPELINE/STEP or PIPELINE");
        return Err(exit::misuse(message));
    }
    let place = CommandTarget::of(&command.look.config, command.look.data.clone())?;
    let found = match place.ask(Query::Removed { part: part.clone() })? {
        Answer::Removed(found) => found,
        Answer::Missing(why) => return Err(exit::fail(why)),
        _ => return Err(other_question()),
    };
    let lost: Vec<String> = found.iter().map(shown).collect();
    confirm(&format!("{} will be discarded.", lost.join(", ")), command.yes)?;
    let (outcome, _) = place.change(Request::DropRemoved { part })?;
    let dropped = match outcome {
        Ok(RequestOutcome::DroppedParts(dropped)) => dropped,
        Ok(_) => return Err(other_question()),
        Err(why) => return Err(exit::fail(why)),
    };
    if command.look.format == Format::Json {
        let (steps, queues): (Vec<_>, Vec<_>) = dropped.into_iter().partition(|part| part.is_step);
        let queues = queues.into_iter();
        let steps = steps.into_iter();
        let dropped = DroppedParts {
            queues: queues
                .map(|part| DroppedQueue { queue: part.address.to_string(), jobs: part.jobs })
                .collect(),
            steps: steps
                .map(|part| DroppedStep { step: part.address.to_string(), parked: part.jobs })
                .collect(),
        };
        return Ok(print_json(&dropped, Exit::Done));
    }
    let lines: Vec<String> = dropped.iter().map(|part| format!("{} discarded", shown(part))).collect();
    print_text(&lines.join("\n"));
    Ok(Exit::Done)
}

/// The jobs of a queue, or the progress of a step with its parked jobs, for people.
fn shown(RemovedPart { address, is_step, jobs: number }: &RemovedPart) -> String {
    match (is_step, number) {
        (false, _) => format!("{} of `{address}`", jobs(*number)),
        (true, 0) => format!("the progress of step `{address}`"),
        (true, 1) => format!("the progress of step `{address}` with 1 parked job"),
        (true, _) => format!("the progress of step `{address}` with {} parked jobs", grouped(*number)),
    }
}
