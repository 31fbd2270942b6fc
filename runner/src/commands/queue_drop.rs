//! `tidegate queue drop`: discards the jobs of a queue that is no longer in the configuration.

use serde::Serialize;

use crate::cli::{Format, QueueDrop};
use crate::client::{CommandTarget, other_question, print_json, print_text};
use crate::output::exit;
use crate::output::exit::Exit;
use crate::output::table::jobs;
use crate::output::terminal::confirm;
use crate::query::{Answer, Query};
use tidegate_engine::{Request, RequestOutcome};
use tidegate_model::Address;

#[derive(Serialize)]
struct DroppedQueue<'a> {
    queue: &'a str,
    jobs: u64,
}

pub(crate) fn drop_queue(command: &QueueDrop) -> Exit {
    change(command).unwrap_or_else(|exit| exit)
}

fn change(command: &QueueDrop) -> Result<Exit, Exit> {
    let name = &*command.queue;
    let Some(queue) = Address::parse(name) else {
        return Err(exit::misuse(format_args!("`{name}` does not name a queue: write PIPELINE/QUEUE")));
    };
    let place = CommandTarget::of(&command.look.config, command.look.data.clone())?;
    let Answer::Queues(queues) = place.ask(Query::Queues)? else { return Err(other_question()) };
    let kept = queues.iter().find(|found| found.queue == name).map_or(0, |found| found.jobs);
    let is_configured = place.configuration.queues.iter().any(|declared| declared.address == queue);
    if kept > 0 && !is_configured {
        confirm(&format!("{} of the queue {name} will be discarded.", jobs(kept)), command.yes)?;
    }
    let (outcome, _) = place.change(Request::DropQueue { queue })?;
    let dropped = match outcome {
        Ok(RequestOutcome::Dropped { jobs }) => jobs,
        Ok(_) => return Err(other_question()),
        Err(why) => return Err(exit::fail(why)),
    };
    if command.look.format == Format::Json {
        return Ok(print_json(&DroppedQueue { queue: name, jobs: dropped }, Exit::Done));
    }
    print_text(&format!("{} of `{name}` discarded", jobs(dropped)));
    Ok(Exit::Done)
}
