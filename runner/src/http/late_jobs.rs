//! `/jobs/PIPELINE/QUEUE/due/NUMBER`: reports the state of a job that is due later, or drops it.

use hyper::StatusCode;

use super::job_status::{self, unreadable};
use super::response::{HttpRefusal, Response, at_job, json};
use super::route::JobAddress;
use crate::client::ipc::RunnerContext;
use crate::query::late::{self, LateAddress, LateState};
use crate::query::while_reopened;
use tidegate_engine::{Request, RequestOutcome};

/// The late job, or its outcome at each step once it is on its queue.
pub(crate) fn status(asked: &LateAddress, context: &RunnerContext) -> Result<Response, HttpRefusal> {
    match find(asked, context)? {
        LateState::Waits(job) => Ok(json(StatusCode::OK, &job)),
        LateState::Appended { queue, index } => {
            let job = job_status::followed(&JobAddress { queue, index }, context)?;
            Ok(at_job(StatusCode::OK, &job, &job.job))
        }
        LateState::Unknown(why) => Err(HttpRefusal::missing(why)),
    }
}

pub(crate) fn cancel(asked: &LateAddress, context: &RunnerContext) -> Result<Response, HttpRefusal> {
    let conflict = |error: String| HttpRefusal::new(StatusCode::CONFLICT, error);
    match find(asked, context)? {
        LateState::Unknown(why) => return Err(HttpRefusal::missing(why)),
        LateState::Appended { queue, index } => {
            return Err(conflict(format!("the job is on its queue by now, as {queue}/{index}")));
        }
        LateState::Waits(_) => {}
    }
    let (queue, rows) = (asked.queue.clone(), vec![asked.id]);
    match context.handle.ask(Request::DropLate { queue, rows }) {
        Ok(RequestOutcome::Cancelled(moved)) if moved.jobs > 0 => status(asked, context),
        Ok(RequestOutcome::Cancelled(_)) => {
            Err(conflict("the job was appended or cancelled meanwhile".to_owned()))
        }
        Ok(_) => Err(HttpRefusal::broken("the answer does not match the question")),
        Err(why) => Err(conflict(why)),
    }
}

fn find(asked: &LateAddress, context: &RunnerContext) -> Result<LateState, HttpRefusal> {
    while_reopened(&context.handle, || late::find(&context.store, &context.configuration(), asked))
        .map_err(|error| unreadable(&error))
}
