//! `tidegate queue clear`: discards the jobs of a queue, and lets its readers skip them.

use serde::Serialize;

use crate::cli::{Format, QueueClear};
use crate::client::{CommandTarget, other_question, print_json, print_text};
use crate::output::exit;
use crate::output::exit::Exit;
use crate::output::table::jobs;
use crate::output::terminal::confirm;
use crate::query::{Answer, Query};
use tidegate_config::{Input, InputMode, QueueRef, Step};
use tidegate_engine::{Request, RequestOutcome};

#[derive(Serialize)]
struct ClearedQueue<'a> {
    queue: &'a str,
    jobs: u64,
}

pub(crate) fn clear(command: &QueueClear) -> Exit {
    change(command).unwrap_or_else(|exit| exit)
}

fn change(command: &QueueClear) -> Result<Exit, Exit> {
    let name = &*command.queue;
    let place = CommandTarget::of(&command.look.config, command.look.data.clone())?;
    let configuration = &place.configuration;
    let declared = configuration.queues.position(|declared| declared.address.to_string() == name);
    let Some(position) = declared else {
        let help = "`queue drop` discards the jobs of a removed one";
        return Err(exit::fail(format_args!("the configuration has no queue `{name}`; {help}")));
    };
    let queue = &configuration.queues[position];
    if queue.holds_errors {
        return Err(exit::fail(format_args!("`{name}` is an error queue: use `errors drop {name}`")));
    }
    let readers: Vec<&Step> = configuration
        .readers(Input::Queue(QueueRef(position)))
        .iter()
        .filter_map(|&(step, _)| configuration.steps.get(step))
        .collect();
    if let Some(join) = readers.iter().find(|step| step.take == InputMode::Join) {
        let why = "the jobs of its other inputs would meet other jobs";
        return Err(exit::fail(format_args!(
            "`{name}` cannot be cleared: `{}` joins it, and {why}",
            join.address
        )));
    }
    let Answer::Queues(queues) = place.ask(Query::Queues)? else { return Err(other_question()) };
    let state = queues.iter().find(|found| found.queue == name);
    let (kept, head) = state.map_or((0, 0), |state| (state.jobs, state.head));
    if kept > 0 {
        confirm(&format!("{} of the queue {name} will be discarded.", jobs(kept)), command.yes)?;
        for step in readers {
            let up_to = vec![(queue.address.clone(), head)];
            let (skipped, _) = place.change(Request::Skip { step: step.address.clone(), up_to })?;
            skipped.map_err(exit::fail)?;
        }
    }
    let (outcome, _) = place.change(Request::ClearQueue { queue: queue.address.clone(), up_to: head })?;
    match outcome {
        Ok(RequestOutcome::Dropped { .. }) => {}
        Ok(_) => return Err(other_question()),
        Err(why) => return Err(exit::fail(why)),
    }
    // Retention deletes jobs as soon as the readers have skipped them, so the request alone does not know how many.
    let Answer::Queues(queues) = place.ask(Query::Queues)? else { return Err(other_question()) };
    let after = queues.iter().find(|found| found.queue == name);
    let left = after.map_or(0, |state| state.jobs.saturating_sub(state.head.saturating_sub(head)));
    let dropped = kept.saturating_sub(left);
    if command.look.format == Format::Json {
        return Ok(print_json(&ClearedQueue { queue: name, jobs: dropped }, Exit::Done));
    }
    print_text(&format!("{} of `{name}` discarded", jobs(dropped)));
    Ok(Exit::Done)
}
