//! `GET /jobs/PIPELINE/SOURCE/INDEX`: what has become of a job.

use hyper::StatusCode;

use super::answer::{Refusal, Response, json};
use super::route::Asked;
use crate::engine::Chain;
use crate::face::control::Desk;
use crate::face::look::{Answer, Query, answer};
use crate::store::ReadError;

pub(super) fn status(asked: &Asked, desk: &Desk) -> Result<Response, Refusal> {
    let Asked { queue, index } = asked;
    let query = Query::Job { queue: queue.to_string(), index: *index, why: false };
    match answer(&desk.store, &desk.configuration, None, &query) {
        Ok(Answer::Job(job)) => Ok(json(StatusCode::OK, &job)),
        Ok(Answer::Missing(what)) => Err(Refusal::missing(what)),
        Ok(_) => Err(Refusal::broken("an answer to another question")),
        Err(ReadError::Interrupted) => {
            let error = "the store is closed just now: the runner is ending, or waits for room on the disk";
            Err(Refusal::later(StatusCode::SERVICE_UNAVAILABLE, error))
        }
        Err(error) => Err(Refusal::broken(&Chain(&error).to_string())),
    }
}
