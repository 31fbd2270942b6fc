//! `tidegate step`: pauses and resumes steps, and lanes of steps.

use serde::Serialize;

use crate::cli::{Format, StepChoice};
use crate::client::{AnsweredBy, CommandTarget, other_question, print_json, print_text};
use crate::output::exit;
use crate::output::exit::Exit;
use crate::output::lane_command::resume_lane;
use tidegate_engine::{Request, RequestOutcome};
use tidegate_model::Address;

#[derive(Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of an answer")]
struct Done<'a> {
    step: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    lane: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    monitor: bool,
    paused: bool,
    /// Its state has changed.
    changed: bool,
    /// It had stopped, and starts again.
    restarted: bool,
}

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
    let request = match lane {
        _ if command.monitor => Request::PauseMonitor { step, paused },
        Some(lane) => Request::PauseLane { step, lane: lane.to_owned(), paused },
        None => Request::Pause { step, paused },
    };
    let (outcome, teller) = place.change(request)?;
    let (changed, restarted, behind) = match outcome {
        Ok(RequestOutcome::Paused { changed, restarted, behind }) => (changed, restarted, behind),
        Ok(_) => return Err(other_question()),
        Err(why) => return Err(exit::fail(why)),
    };
    let step = &*command.step;
    if command.look.format == Format::Json {
        return Ok(print_json(
            &Done { step, lane, monitor: command.monitor, paused, changed, restarted },
            Exit::Done,
        ));
    }
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
    print_text(&match (changed, paused, teller) {
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
        (false, false, _) => format!("{part} is not paused"),
    });
    Ok(Exit::Done)
}
