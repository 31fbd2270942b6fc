//! `POST /monitor/PIPELINE/STEP`: polls a step's monitor at once, since a client knows of new results.

use hyper::StatusCode;
use serde::Serialize;

use super::response::{HttpRefusal, Response, json};
use crate::client::ipc::RunnerContext;
use tidegate_config::Configuration;
use tidegate_engine::{Request, RequestOutcome};
use tidegate_model::suggest::nearest;
use tidegate_model::{Address, NextPoll, format_duration};

/// The next poll.
#[derive(Serialize)]
struct Polls {
    step: String,
    /// Number of pending jobs.
    pending: u64,
    polls: String,
}

pub(crate) fn poll(step: &Address, context: &RunnerContext) -> Result<Response, HttpRefusal> {
    find(step, &context.configuration())?;
    match context.handle.ask_unless_it_ends(Request::Poll { step: step.clone() }) {
        None => Err(HttpRefusal::ending()),
        Some(Err(why)) => Err(HttpRefusal::later(StatusCode::SERVICE_UNAVAILABLE, why)),
        Some(Ok(RequestOutcome::Polls { pending, soon })) => {
            let polls = Polls { step: step.to_string(), pending, polls: when(soon) };
            Ok(json(StatusCode::ACCEPTED, &polls))
        }
        Some(Ok(_)) => Err(HttpRefusal::broken("the answer does not match the question")),
    }
}

fn when(soon: NextPoll) -> String {
    match soon {
        NextPoll::Now => "now".to_owned(),
        NextPoll::In { ms } => {
            let wait = format_duration(std::time::Duration::from_millis(ms));
            format!("in {wait}, since a poll has just begun")
        }
        NextPoll::AfterThis => "again after the poll in progress".to_owned(),
        NextPoll::WhenPending => "when a job is pending; none is now".to_owned(),
    }
}

/// Checks that the step exists and has a monitor.
fn find(step: &Address, configuration: &Configuration) -> Result<(), HttpRefusal> {
    let steps = &configuration.steps;
    let missing = |error: String| Err(HttpRefusal::missing(error));
    match steps.iter().find(|declared| declared.address == *step) {
        Some(declared) if declared.monitor.is_some() => Ok(()),
        Some(_) => missing(format!("step `{step}` has no `monitor` to poll")),
        None => {
            let monitored = steps.iter().filter(|declared| declared.monitor.is_some());
            let names: Vec<String> = monitored.map(|declared| declared.address.to_string()).collect();
            let near = nearest(&step.to_string(), names.iter().map(String::as_str));
            let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            missing(format!("step `{step}` is unknown{near}"))
        }
    }
}
