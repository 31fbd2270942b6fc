//! `POST /steps/PIPELINE/STEP/pause` and `…/resume`: pause and resume a step, one of its lanes, or its monitor.

use hyper::StatusCode;

use super::parameters::Parameters;
use super::response::{HttpRefusal, Response, json};
use crate::client::ipc::RunnerContext;
use crate::query::PausedPart;
use tidegate_model::Address;
use tidegate_model::suggest::did_you_mean;

pub(crate) fn pause(
    step: &Address,
    paused: bool,
    parameters: &Parameters,
    context: &RunnerContext,
) -> Result<Response, HttpRefusal> {
    let monitor = parameters.parsed("monitor", "true")?.unwrap_or(false);
    let part = match parameters.get("lane") {
        Some(_) if monitor => {
            return Err(HttpRefusal::wrong("`lane` and `monitor` exclude each other: send two requests"));
        }
        Some(lane) => PausedPart::Lane(lane),
        None if monitor => PausedPart::Monitor,
        None => PausedPart::Step,
    };
    find(step, context)?;
    match context.handle.ask_unless_it_ends(part.request(step.clone(), paused)) {
        None => Err(HttpRefusal::ending()),
        Some(Err(why)) => Err(HttpRefusal::new(StatusCode::CONFLICT, why)),
        Some(Ok(outcome)) => match part.change(step, paused, &outcome) {
            Some(change) => Ok(json(StatusCode::OK, &change)),
            None => Err(HttpRefusal::broken("the answer does not match the question")),
        },
    }
}

/// Checks that the step exists.
fn find(step: &Address, context: &RunnerContext) -> Result<(), HttpRefusal> {
    let configuration = context.configuration();
    if configuration.steps.iter().any(|declared| declared.address == *step) {
        return Ok(());
    }
    let names: Vec<String> = configuration.steps.iter().map(|step| step.address.to_string()).collect();
    let near = did_you_mean(&step.to_string(), names.iter().map(String::as_str));
    let near = near.map(|near| format!("; {near}")).unwrap_or_default();
    Err(HttpRefusal::missing(format!("step `{step}` is unknown{near}")))
}
