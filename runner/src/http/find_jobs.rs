//! `GET /jobs/PIPELINE/SOURCE`: finds jobs of a source by key or handle, or lists them by status, step and lane.

use hyper::StatusCode;

use super::job_status::{self, unreadable};
use super::late_jobs;
use super::parameters::Parameters;
use super::parse_body::KeyOwner;
use super::response::{HttpRefusal, Response, at_job, json};
use super::route::JobAddress;
use crate::client::ipc::RunnerContext;
use crate::query::job_list::{self, JobFilter};
use crate::query::late::LateAddress;
use crate::query::{ReportedState, while_reopened};
use tidegate_model::suggest::{did_you_mean, listed};
use tidegate_model::{Address, Clock as _, SystemClock};
use tidegate_store::DedupeOutcome;

/// Jobs of a page, unless the client asks for fewer or more …
const JOBS_DEFAULT: usize = 100;
/// … and at most.
const JOBS_MAX: usize = 1_000;
const STATUSES: [(&str, ReportedState); 8] = [
    ("waiting", ReportedState::Waiting),
    ("begun", ReportedState::Begun),
    ("delayed", ReportedState::Delayed),
    ("pending", ReportedState::Pending),
    ("failed", ReportedState::Failed),
    ("before", ReportedState::Before),
    ("cancelled", ReportedState::Cancelled),
    ("done", ReportedState::Done),
];

pub(crate) fn find(
    queue: &Address,
    parameters: &Parameters,
    context: &RunnerContext,
) -> Result<Response, HttpRefusal> {
    let payload = parameters.parsed("payload", "true")?.unwrap_or(false);
    select_alone(parameters)?;
    if let Some(key) = parameters.get("key") {
        return by_key(queue, key, context);
    }
    let (store, configuration) = (&context.store, context.configuration());
    let run = Some(&context.handle);
    if let Some(handle) = parameters.get("handle") {
        let found = while_reopened(&context.handle, || {
            job_list::with_handle(store, &configuration, run, queue, (handle, payload))
        });
        return found.map(|list| json(StatusCode::OK, &list)).map_err(|error| unreadable(&error));
    }
    let limit: usize = parameters.parsed("limit", "100")?.unwrap_or(JOBS_DEFAULT);
    if limit == 0 || limit > JOBS_MAX {
        return Err(HttpRefusal::wrong(format!("`limit` must be between 1 and {JOBS_MAX}")));
    }
    let step = parameters.get("step").map(str::to_owned);
    if let Some(step) = &step {
        let readers =
            configuration.steps.iter().filter(|step| step.inputs.iter().any(|input| input.address == *queue));
        let names: Vec<String> = readers.map(|step| step.address.to_string()).collect();
        if !names.contains(step) {
            let near = did_you_mean(step, names.iter().map(String::as_str));
            let near = near.map_or_else(String::new, |near| format!("; {near}"));
            return Err(HttpRefusal::missing(format!("step `{step}` does not read `{queue}`{near}")));
        }
    }
    let filter = JobFilter {
        status: parameters.get("status").map(status).transpose()?,
        step,
        lane: parameters.get("lane").map(str::to_owned),
        payload,
        after: parameters.parsed("after", "17")?.unwrap_or(0),
        limit,
    };
    let list = while_reopened(&context.handle, || job_list::list(store, &configuration, run, queue, &filter));
    list.map(|list| json(StatusCode::OK, &list)).map_err(|error| unreadable(&error))
}

/// Refuses parameters that would have no effect, since another one selects the jobs.
fn select_alone(parameters: &Parameters) -> Result<(), HttpRefusal> {
    let Some(alone) = ["key", "handle"].into_iter().find(|name| parameters.get(name).is_some()) else {
        return Ok(());
    };
    let others = ["handle", "status", "step", "lane", "limit", "after"];
    match others.into_iter().find(|name| *name != alone && parameters.get(name).is_some()) {
        None => Ok(()),
        Some(other) => Err(HttpRefusal::wrong(format!(
            "parameter `{other}` has no effect beside `{alone}`: leave out one of them"
        ))),
    }
}

fn status(text: &str) -> Result<ReportedState, HttpRefusal> {
    STATUSES.iter().find(|(name, _)| *name == text).map(|(_, status)| *status).ok_or_else(|| {
        let names = listed(STATUSES.iter().map(|(name, _)| *name), "or");
        HttpRefusal::wrong(format!("`{text}` is not a status: use {names}"))
    })
}

/// The job that was accepted with this key: the value of the field `key`, or an `Idempotency-Key`.
fn by_key(queue: &Address, key: &str, context: &RunnerContext) -> Result<Response, HttpRefusal> {
    let names = while_reopened(&context.handle, || context.store.name_history())
        .map_err(|error| unreadable(&error))?;
    let owner = KeyOwner::of(queue, &names);
    for sort in ["text", "number", "header"] {
        let hash = owner.hash(sort, key.as_bytes());
        let known = while_reopened(&context.handle, || context.store.known_keys(&[hash], SystemClock.now()));
        let known = known.map_err(|error| unreadable(&error))?;
        let index = match known.into_iter().next().flatten() {
            Some(DedupeOutcome::IngestedLate { jobs: 0, late_first, .. }) => {
                return late_jobs::status(&LateAddress { queue: queue.clone(), id: late_first }, context);
            }
            Some(DedupeOutcome::Ingested { first, .. } | DedupeOutcome::IngestedLate { first, .. }) => first,
            _ => continue,
        };
        let asked = JobAddress { queue: queue.clone(), index };
        let job = job_status::followed(&asked, context)?;
        return Ok(at_job(StatusCode::OK, &job, &job.job));
    }
    Err(HttpRefusal::missing(format!(
        "no job of `{queue}` has the key `{key}`, as far as keys are remembered"
    )))
}
