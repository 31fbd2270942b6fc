//! `GET /jobs/PIPELINE/SOURCE/INDEX`: what has become of a job.

use hyper::StatusCode;

use super::response::{Refusal, Response, json};
use super::route::Asked;
use crate::client::ipc::Desk;
use crate::query::{Answer, JobStatus, Query, answer};
use tidegate_engine::Chain;
use tidegate_store::ReadError;

pub(crate) fn status(asked: &Asked, desk: &Desk) -> Result<Response, Refusal> {
    look(asked, desk, true).map(|job| json(StatusCode::OK, &job))
}

/// What each step has made of a job; `whole`: with its payload.
pub(crate) fn look(asked: &Asked, desk: &Desk, whole: bool) -> Result<JobStatus, Refusal> {
    let Asked { queue, index } = asked;
    let query = Query::Job { queue: queue.to_string(), index: *index, why: false, whole };
    match answer(&desk.store, &desk.configuration, Some(&desk.handle), &query) {
        Ok(Answer::Job(job)) => Ok(job),
        Ok(Answer::Missing(what)) => Err(Refusal::missing(what)),
        Ok(_) => Err(Refusal::broken("an answer to another question")),
        Err(error) => Err(unreadable(&error)),
    }
}

/// Why the store does not tell.
pub(crate) fn unreadable(error: &ReadError) -> Refusal {
    if matches!(error, ReadError::Interrupted) {
        let error = "the store is closed just now: the runner is ending, or waits for room on the disk";
        return Refusal::later(StatusCode::SERVICE_UNAVAILABLE, error);
    }
    Refusal::broken(&Chain(error).to_string())
}
