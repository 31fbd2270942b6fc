//! `tidegate replay`: runs a step again from an earlier job on.

use std::time::Duration;

use crate::cli;
use crate::cli::Format;
use crate::client::{AnsweredBy, CommandTarget, other_question, print_json, print_text};
use crate::output::exit;
use crate::output::exit::Exit;
use crate::output::table::jobs;
use crate::output::terminal::confirm;
use crate::query::{Answer, Query, ReplayPlan, ReplayStart};
use tidegate_engine::{Request, RequestOutcome};
use tidegate_model::{Clock as _, SystemClock, from_rfc3339, grouped, parse_duration};

pub(crate) fn replay(command: &cli::ReplayArguments) -> Exit {
    match run_again(command) {
        Ok(exit) | Err(exit) => exit,
    }
}

fn run_again(command: &cli::ReplayArguments) -> Result<Exit, Exit> {
    let start = start(command)?;
    let place = CommandTarget::of(&command.look.config, command.look.data.clone())?;
    let query = Query::Replay { step: command.step.clone(), input: command.input.clone(), start };
    let plan = match place.ask(query)? {
        Answer::Replay(plan) => plan,
        Answer::Missing(what) => return Err(exit::fail(what)),
        _ => return Err(other_question()),
    };
    if let Some(note) = &plan.note {
        exit::warn(note);
    }
    confirm(&question(&plan), command.yes)?;
    let from: Vec<_> = plan.inputs.iter().map(|again| (again.input.clone(), again.first)).collect();
    let request = Request::Replay { step: plan.step.clone(), from };
    let (outcome, answered_by) = place.change(request)?;
    let now_at = match outcome {
        Ok(RequestOutcome::Replayed { from }) => from,
        Ok(_) => return Err(other_question()),
        Err(why) => return Err(exit::fail(why)),
    };
    let gone = |again: &&crate::query::Again| {
        now_at.iter().any(|(input, next)| *input == again.input && *next > again.first)
    };
    if let Some(again) = plan.inputs.iter().find(gone) {
        return Err(exit::fail(format_args!(
            "job {} of `{}` was deleted by retention in the meantime; nothing runs again",
            again.first, again.input
        )));
    }
    if command.look.format == Format::Json {
        return Ok(print_json(&plan, Exit::Done));
    }
    let when = match answered_by {
        AnsweredBy::Runner => "now",
        AnsweredBy::Store => "with the next `tidegate run`",
    };
    print_text(&format!("{} runs {} again {when}{}", plan.step, jobs(plan.jobs), left(&plan)));
    Ok(Exit::Done)
}

fn start(command: &cli::ReplayArguments) -> Result<ReplayStart, Exit> {
    if let Some(index) = command.from {
        return Ok(ReplayStart::At(index));
    }
    let text = command.since.as_deref().unwrap_or_default();
    if let Some(time) = from_rfc3339(text) {
        return Ok(ReplayStart::Since(time.0));
    }
    let ago = |ago: Duration| ReplayStart::Since((SystemClock.now() - ago).0);
    parse_duration(text).map(ago).map_err(|_| {
        exit::misuse(format_args!(
            "`{text}` is not a time: write one like 2026-01-31T12:00:00Z, or a duration before now, like 2h"
        ))
    })
}

/// The effect of the replay, for the operator who confirms it.
fn question(plan: &ReplayPlan) -> String {
    let inputs = plan.inputs.iter().map(|again| format!("{} {} to {}", again.input, again.first, again.last));
    let inputs = inputs.collect::<Vec<_>>().join(" with ");
    let outputs = match &plan.outputs[..] {
        [] => "; it has no outputs".to_owned(),
        outputs => format!(", into {}; its earlier deliveries stay there", outputs.join(", ")),
    };
    format!("{} will run {} again ({inputs}){outputs}{}.", plan.step, jobs(plan.jobs), left(plan))
}

/// Jobs in between that do not run again.
fn left(plan: &ReplayPlan) -> String {
    match plan.waiting {
        0 => String::new(),
        1 => "; 1 that is not finished goes on as it is".to_owned(),
        waiting => format!("; {} that are not finished go on as they are", grouped(waiting)),
    }
}
