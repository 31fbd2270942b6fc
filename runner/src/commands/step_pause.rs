//! `tidegate step`: pauses and resumes steps.

use serde::Serialize;

use crate::cli::{Format, StepChoice};
use crate::client::{AnsweredBy, CommandTarget, other_question, print_json, print_text};
use crate::output::exit;
use crate::output::exit::Exit;
use tidegate_engine::{Request, RequestOutcome};
use tidegate_model::Address;

#[derive(Serialize)]
struct Done<'a> {
    step: &'a str,
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
    let (outcome, teller) = place.change(Request::Pause { step, paused })?;
    let (changed, restarted, behind) = match outcome {
        Ok(RequestOutcome::Paused { changed, restarted, behind }) => (changed, restarted, behind),
        Ok(_) => return Err(other_question()),
        Err(why) => return Err(exit::fail(why)),
    };
    let step = &*command.step;
    if command.look.format == Format::Json {
        return Ok(print_json(&Done { step, paused, changed, restarted }, Exit::Done));
    }
    if restarted {
        let reload = place.configuration.command("reload");
        let files = format!(
            " with the configuration in force, from which the files differ: `{reload}` takes them up"
        );
        print_text(&format!("`{step}` starts again{}", if behind { &*files } else { "" }));
        return Ok(Exit::Done);
    }
    print_text(&match (changed, paused, teller) {
        (true, true, _) => {
            let resume = place.configuration.command(&format!("step resume {step}"));
            format!("`{step}` is paused: it starts nothing until `{resume}`")
        }
        (true, false, AnsweredBy::Runner) => format!("`{step}` resumes"),
        (true, false, AnsweredBy::Store) => format!("`{step}` resumes with the next `tidegate run`"),
        (false, true, _) => format!("`{step}` is already paused"),
        (false, false, _) => format!("`{step}` is not paused"),
    });
    Ok(Exit::Done)
}
