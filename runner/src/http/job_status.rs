//! `GET /jobs/PIPELINE/SOURCE/INDEX`: reports the outcome of a job.

use hyper::StatusCode;

use super::response::{HttpRefusal, Response, json};
use super::route::JobAddress;
use crate::client::ipc::RunnerContext;
use crate::query::{Answer, JobStatus, Query, answer};
use tidegate_engine::Chain;
use tidegate_store::ReadError;

pub(crate) fn status(asked: &JobAddress, context: &RunnerContext) -> Result<Response, HttpRefusal> {
    look(asked, context, true).map(|job| json(StatusCode::OK, &job))
}

/// The outcome of the job at each step; `whole`: with its payload.
pub(crate) fn look(
    asked: &JobAddress,
    context: &RunnerContext,
    whole: bool,
) -> Result<JobStatus, HttpRefusal> {
    let JobAddress { queue, index } = asked;
    let query = Query::Job { queue: queue.to_string(), index: *index, why: false, whole };
    match answer(&context.store, &context.configuration(), Some(&context.handle), &query) {
        Ok(Answer::Job(job)) => Ok(job),
        Ok(Answer::Missing(what)) => Err(HttpRefusal::missing(what)),
        Ok(_) => Err(HttpRefusal::broken("the answer does not match the question")),
        Err(error) => Err(unreadable(&error)),
    }
}

/// The refusal for an error of the store.
pub(crate) fn unreadable(error: &ReadError) -> HttpRefusal {
    if matches!(error, ReadError::Interrupted) {
        let error = "the store is closed at the moment: the runner is ending, or waits for disk space";
        return HttpRefusal::later(StatusCode::SERVICE_UNAVAILABLE, error);
    }
    HttpRefusal::broken(&Chain(error).to_string())
}
