//! `GET /jobs/PIPELINE/SOURCE/INDEX`: reports the outcome of a job.

use hyper::StatusCode;

use super::response::{HttpRefusal, Response, json};
use super::route::JobAddress;
use crate::client::ipc::RunnerContext;
use crate::query::{Answer, JobStatus, Query, StepOutcome, answer};
use tidegate_engine::Chain;
use tidegate_store::ReadError;

/// Outputs that are followed for one answer, over all steps.
const FOLLOWED_MAX: usize = 100;

pub(crate) fn status(asked: &JobAddress, context: &RunnerContext) -> Result<Response, HttpRefusal> {
    Ok(json(StatusCode::OK, &followed(asked, context)?))
}

/// The job with its payload, and its outputs up to the end.
pub(crate) fn followed(asked: &JobAddress, context: &RunnerContext) -> Result<JobStatus, HttpRefusal> {
    let mut job = look(asked, context, true)?;
    let mut left = FOLLOWED_MAX;
    follow(&mut job.steps, context, &mut left)?;
    Ok(job)
}

/// Adds the outcome of each output at the steps that read its queue, and so on to the end, for `left` outputs.
fn follow(steps: &mut [StepOutcome], context: &RunnerContext, left: &mut usize) -> Result<(), HttpRefusal> {
    for output in steps.iter_mut().flat_map(|step| &mut step.outputs) {
        let Some(address) = JobAddress::parse(&output.job) else { continue };
        let Some(fewer) = left.checked_sub(1) else { return Ok(()) };
        *left = fewer;
        // Retention may have deleted it meanwhile.
        if let Some(job) = find(&address, context, false)? {
            output.steps = job.steps;
            follow(&mut output.steps, context, left)?;
        }
    }
    Ok(())
}

/// The outcome of the job at each step; `whole`: with its payload.
pub(crate) fn look(
    asked: &JobAddress,
    context: &RunnerContext,
    whole: bool,
) -> Result<JobStatus, HttpRefusal> {
    match ask(asked, context, whole)? {
        Answer::Job(job) => Ok(job),
        Answer::Missing(what) => Err(HttpRefusal::missing(what)),
        _ => Err(HttpRefusal::broken("the answer does not match the question")),
    }
}

/// As [`look`], but `None` if the job is unknown.
fn find(asked: &JobAddress, context: &RunnerContext, whole: bool) -> Result<Option<JobStatus>, HttpRefusal> {
    Ok(match ask(asked, context, whole)? {
        Answer::Job(job) => Some(job),
        _ => None,
    })
}

fn ask(asked: &JobAddress, context: &RunnerContext, whole: bool) -> Result<Answer, HttpRefusal> {
    let JobAddress { queue, index } = asked;
    let query = Query::Job { queue: queue.to_string(), index: *index, why: false, whole };
    answer(&context.store, &context.configuration(), Some(&context.handle), &query)
        .map_err(|error| unreadable(&error))
}

/// The refusal for an error of the store.
pub(crate) fn unreadable(error: &ReadError) -> HttpRefusal {
    if matches!(error, ReadError::Interrupted) {
        let error = "the store is closed at the moment: the runner is ending, or waits for disk space";
        return HttpRefusal::later(StatusCode::SERVICE_UNAVAILABLE, error);
    }
    HttpRefusal::broken(&Chain(error).to_string())
}
