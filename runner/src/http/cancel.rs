//! `DELETE /jobs/PIPELINE/SOURCE/INDEX`: cancels a job at all steps that have not finished it, or at none.

use hyper::StatusCode;

use super::job_status::{self, unreadable};
use super::parameters::Parameters;
use super::response::{HttpRefusal, Response, json};
use super::route::JobAddress;
use crate::client::ipc::RunnerContext;
use crate::query::{ReportedState, StepOutcome};
use tidegate_config::{Configuration, Step};
use tidegate_engine::{Request, RequestOutcome, may_cancel};
use tidegate_store::ParkedId;

pub(crate) fn cancel(
    asked: &JobAddress,
    parameters: &Parameters,
    context: &RunnerContext,
) -> Result<Response, HttpRefusal> {
    let drop = parameters.parsed("drop", "true")?.unwrap_or(false);
    let only = parameters.get("step");
    let configuration = context.configuration();
    let job = job_status::look(asked, context, false)?;
    let conflict = |error: String| HttpRefusal::new(StatusCode::CONFLICT, error);
    let name = format!("{}/{}", asked.queue, asked.index);
    let mut requests = Vec::new();
    for outcome in job.steps.iter().filter(|step| only.is_none_or(|only| step.step == only)) {
        if outcome.status.is_over() {
            continue;
        }
        let Some(step) = step(&configuration, &outcome.step) else { continue };
        let request = request(asked, context, (step, outcome), drop).map_err(conflict)?;
        requests.push(request);
    }
    if requests.is_empty() {
        return Err(conflict(format!("{}: it cannot be cancelled", finished(&name, &job.steps, only))));
    }
    let mut cancelled = 0;
    for request in requests {
        match context.handle.ask(request) {
            Ok(RequestOutcome::Cancelled(moved)) => cancelled += moved.jobs,
            Ok(_) => return Err(HttpRefusal::broken("the answer does not match the question")),
            Err(why) => return Err(conflict(why)),
        }
    }
    if cancelled == 0 {
        return Err(conflict(format!("job {name} has started or ended meanwhile: it was not cancelled")));
    }
    Ok(json(StatusCode::OK, &job_status::look(asked, context, true)?))
}

/// Why no step has the job.
fn finished(name: &str, steps: &[StepOutcome], only: Option<&str>) -> String {
    let (mut steps, at) = match only {
        Some(only) => {
            (steps.iter().filter(|step| step.step == only).collect::<Vec<_>>(), format!(" at step `{only}`"))
        }
        None => (steps.iter().collect(), String::new()),
    };
    if steps.is_empty() {
        let which =
            only.map_or_else(|| "no step reads".to_owned(), |only| format!("step `{only}` does not read"));
        return format!("{which} the queue of job {name}");
    }
    steps.retain(|step| !step.status.is_over());
    match steps.first() {
        Some(left) => format!("job {name} waits for step `{}`, which is not in the configuration", left.step),
        None => format!("job {name} is finished{at}"),
    }
}

fn step<'c>(configuration: &'c Configuration, name: &str) -> Option<&'c Step> {
    configuration.steps.iter().find(|step| step.address.to_string() == name)
}

/// The request to cancel the job at one step. The error is a sentence.
fn request(
    asked: &JobAddress,
    context: &RunnerContext,
    (step, outcome): (&Step, &StepOutcome),
    drop: bool,
) -> Result<Request, String> {
    let address = &step.address;
    if outcome.status == ReportedState::Begun {
        return Err(format!(
            "an attempt of step `{address}` at the job is running: repeat the request when it has ended"
        ));
    }
    if outcome.pending.external_status.is_some_and(|status| !status.waits()) {
        return Err(format!(
            "at step `{address}`, the external system has finished the job, and its result is being delivered"
        ));
    }
    let input = step.inputs.iter().find(|input| input.address == asked.queue);
    let name = input.map(tidegate_config::InputRef::hash_name).unwrap_or_default();
    let rows = context.store.parked_of(address, (&name, asked.index));
    let rows = rows.map_err(|error| unreadable(&error).to_string())?;
    let outputs = rows.iter().any(|(_, row)| row.output().is_some());
    let fresh = rows.is_empty();
    may_cancel(step, fresh, drop).map_err(|why| why.replace("`--drop`", "`?drop=true`"))?;
    let taken = rows.into_iter().filter(|(_, row)| drop || row.output().is_none());
    let taken: Vec<ParkedId> = taken.map(|(key, _)| key.id).collect();
    if taken.is_empty() && outputs {
        return Err(format!(
            "step `{address}` has already made an output from the job, which is due later: `?drop=true` discards it"
        ));
    }
    let jobs = if fresh { vec![asked.index] } else { Vec::new() };
    Ok(Request::Cancel { step: address.clone(), rows: taken, jobs, drop, pending: true })
}
