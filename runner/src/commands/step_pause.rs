//! `tidegate step`: pauses and resumes steps, and lanes of steps.

use crate::cli::{Format, StepChoice};
use crate::client::{AnsweredBy, CommandTarget, other_question, print_json, print_text};
use crate::output::exit;
use crate::output::exit::Exit;
use crate::output::lane_command::{held_lane, resume_lane};
use crate::query::{Answer, PausedPart, Query};
use tidegate_model::Address;

pub(crate) fn pause(command: &StepChoice, paused: bool) -> Exit {
    change(command, paused).unwrap_or_else(|exit| exit)
}

fn change(command: &StepChoice, paused: bool) -> Result<Exit, Exit> {
    let Some(step) = Address::parse(&command.step) else {
        return Err(exit::misuse(format_args!(
            "`{}` does not name a step: write PIPELINE/STEP",
            command.step
        )));
    };
    let place = CommandTarget::of(&command.look.config, command.look.data.clone())?;
    let lane = command.lane.as_deref();
    let part = match lane {
        _ if command.monitor => PausedPart::Monitor,
        Some(lane) => PausedPart::Lane(lane),
        None => PausedPart::Step,
    };
    let (outcome, answered_by) = place.change(part.request(step.clone(), paused))?;
    let outcome = outcome.map_err(exit::fail)?;
    let change = part.change(&step, paused, &outcome).ok_or_else(other_question)?;
    let (changed, restarted, behind) = (change.changed, change.restarted, change.behind);
    if command.look.format == Format::Json {
        return Ok(print_json(&change, Exit::Done));
    }
    let step = &*command.step;
    if restarted {
        let reload = place.configuration.command("reload");
        let files = format!(
            " with the configuration in force, from which the files differ: `{reload}` takes them up"
        );
        print_text(&format!("`{step}` starts again{}", if behind { &*files } else { "" }));
        return Ok(Exit::Done);
    }
    let (part, does) = match lane {
        _ if command.monitor => (format!("the monitor of `{step}`"), "is asked nothing"),
        Some(lane) => (format!("lane `{lane}` of `{step}`"), "starts nothing"),
        None => (format!("`{step}`"), "starts nothing"),
    };
    print_text(&match (changed, paused, answered_by) {
        (true, true, _) => {
            let resume = match lane {
                _ if command.monitor => format!("step resume {step} --monitor"),
                Some(lane) => resume_lane(step, lane),
                None => format!("step resume {step}"),
            };
            let resume = place.configuration.command(&resume);
            format!("{part} is paused: it {does} until `{resume}`")
        }
        (true, false, AnsweredBy::Runner) => format!("{part} resumes"),
        (true, false, AnsweredBy::Store) => format!("{part} resumes with the next `tidegate run`"),
        (false, true, _) => format!("{part} is already {}", if lane.is_some() { "held" } else { "paused" }),
        (false, false, answered_by) => {
            let other =
                if lane.is_none() && !command.monitor { other_hold(&place, step, answered_by) } else { None };
            format!("{part} is not paused{}", other.unwrap_or_default())
        }
    });
    Ok(Exit::Done)
}

/// The obstacle of a step that is not paused and starts nothing, with the way out.
fn other_hold(place: &CommandTarget, step: &str, answered_by: AnsweredBy) -> Option<String> {
    let Ok(Answer::Status(status)) = place.ask(Query::Status { lanes: 0 }) else { return None };
    let first = status.steps.iter().find(|row| row.step == step)?;
    if first.halted.is_some() && answered_by == AnsweredBy::Store {
        return Some("; it has stopped in the last run, and the next `tidegate run` starts it".to_owned());
    }
    let held = first.held_lanes.first()?;
    let held = held_lane(&place.configuration, step, &held.lane, held.halted.is_some());
    Some(format!("; its {held}"))
}
