//! `POST /jobs/PIPELINE/QUEUE/INDEX/complete`: accepts the outcome of a pending job from an external system.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderMap};
use hyper::{Method, Request, StatusCode};
use serde::Serialize;
use tokio::sync::mpsc;

use super::push::{AT_ONCE_BYTES, committed, refuse_while_full};
use super::response::{HttpRefusal, Response, json};
use super::route::JobAddress;
use super::{HttpContext, aside, body, job_status, only};
use crate::client::ipc::RunnerContext;
use crate::connection_limit::ConnectionPermit;
use crate::query::{JobStatus, ReportedState};
use tidegate_components::script::json as text;
use tidegate_config::Configuration;
use tidegate_engine::{CompletionOutcome, Reply, RequestOutcome, TokenClaim, check, claim, completion_of};
use tidegate_model::Address;
use tidegate_store::CompletionRecord;

/// The longest body, in bytes.
const BODY_BYTES_MAX: usize = 16 << 20;

pub(crate) async fn complete(
    request: Request<Incoming>,
    asked: JobAddress,
    http: &HttpContext,
    place: &ConnectionPermit,
) -> Result<Response, HttpRefusal> {
    only(&request, &[Method::POST])?;
    let token = token(request.headers(), request.uri().query()).ok_or_else(stranger)?;
    let (context, of) = (http.context.clone(), asked.clone());
    let claim = aside(move || {
        let found = claim(&context.store, &context.configuration(), (&of.queue, of.index), &token);
        match found {
            Ok(Some(claim)) => Ok((claim, token)),
            Ok(None) => Err(stranger()),
            Err(error) => Err(job_status::unreadable(&error)),
        }
    });
    let (claim, token) = claim.await?;
    let limit = ("(the limit of a completion)", BODY_BYTES_MAX);
    let body = body::collect(request.into_body(), limit, &http.room, place).await?;
    let (configuration, step) = (Arc::clone(&http.context.configuration()), claim.step.clone());
    let at_once = body.bytes.len() <= AT_ONCE_BYTES;
    let judge = move || judge(&configuration, &step, &body.bytes);
    let completion = if at_once { judge()? } else { aside(judge).await? };
    take(&http.context, &asked, (claim, token), completion).await
}

/// `Authorization: Bearer TOKEN`, or `?token=TOKEN` for clients that can only be given a URL.
fn token(headers: &HeaderMap, query: Option<&str>) -> Option<String> {
    if let Some(shown) = headers.get(AUTHORIZATION) {
        let (scheme, token) = shown.to_str().ok()?.split_once(' ')?;
        return scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned());
    }
    let mut pairs = query?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(name, _)| *name == "token").map(|(_, token)| token.to_owned())
}

/// The same answer for a missing job and a wrong token, so that a client without a token learns nothing.
fn stranger() -> HttpRefusal {
    HttpRefusal::new(StatusCode::FORBIDDEN, "the token does not match a pending job of this runner").closing()
}

/// The completion in a body; an empty body completes the job as done.
fn read(body: &[u8]) -> Result<CompletionRecord, String> {
    if body.trim_ascii().is_empty() {
        return Ok(CompletionRecord {
            status: tidegate_model::ExternalStatus::Committed,
            result: None,
            reason: None,
        });
    }
    text::check(body).map_err(|error| format!("the body is not JSON: {error}; nothing was accepted"))?;
    completion_of(body).map_err(|why| format!("{why}; nothing was accepted"))
}

/// The state of the job.
#[derive(Serialize)]
struct CompletionState<'a> {
    job: String,
    step: String,
    status: &'a str,
    /// The same completion was accepted before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    known: bool,
}

/// Checks the completion in the body against the step's configuration.
fn judge(
    configuration: &Configuration,
    step: &Address,
    body: &[u8],
) -> Result<CompletionRecord, HttpRefusal> {
    let completion = read(body).map_err(HttpRefusal::wrong)?;
    let declared = configuration.steps.iter().find(|declared| declared.address == *step);
    if let Some(declared) = declared {
        check(declared, &completion)
            .map_err(|why| HttpRefusal::wrong(format!("{why}; nothing was accepted")))?;
    }
    Ok(completion)
}

async fn take(
    context: &RunnerContext,
    asked: &JobAddress,
    (claim, token): (TokenClaim, String),
    completion: CompletionRecord,
) -> Result<Response, HttpRefusal> {
    let TokenClaim { step, index, row } = claim;
    let (job, status) = (format!("{}/{index}", asked.queue), completion.status.as_str());
    let name = step.to_string();
    let request = || {
        let (step, token, completion) = (step.clone(), token.clone(), completion.clone());
        tidegate_engine::Request::Complete { step, index, token, completion, row }
    };
    let accepted = |known| {
        json(StatusCode::OK, &CompletionState { job: job.clone(), step: name.clone(), status, known })
    };
    let refused = |error: String| Err(HttpRefusal::new(StatusCode::CONFLICT, error));
    let mut outcome = answer(context, request()).await?;
    if matches!(outcome, Ok(RequestOutcome::Completed(CompletionOutcome::NotPending))) {
        // The store may have the commit that made the job pending while its notice is on the way to the coordinator. The
        // first answer comes behind that notice, so a second request finds the job.
        outcome = answer(context, request()).await?;
    }
    match outcome {
        Err(why) => Err(HttpRefusal::later(StatusCode::SERVICE_UNAVAILABLE, why)),
        Ok(RequestOutcome::Completed(CompletionOutcome::Taken)) => Ok(accepted(false)),
        Ok(RequestOutcome::Completed(CompletionOutcome::Duplicate)) => Ok(accepted(true)),
        // The conflict is temporary: the job becomes pending again, or its step finishes it.
        Ok(RequestOutcome::Completed(CompletionOutcome::Conflict { status: before }))
            if before.waits() || before == tidegate_model::ExternalStatus::Unknown =>
        {
            not_now(context, asked, name).await
        }
        Ok(RequestOutcome::Completed(CompletionOutcome::Conflict { status: before })) => {
            let before = before.as_str();
            refused(format!("job {job} was already completed as `{before}`"))
        }
        Ok(RequestOutcome::Completed(CompletionOutcome::Refused { from })) => {
            refused(format!("job {job} is {} and cannot become {status}", from.as_str()))
        }
        Ok(RequestOutcome::Completed(CompletionOutcome::NotPending)) => not_now(context, asked, name).await,
        Ok(_) => Err(HttpRefusal::broken("the answer does not match the question")),
    }
}

async fn not_now(context: &RunnerContext, asked: &JobAddress, step: String) -> Result<Response, HttpRefusal> {
    let (context, asked) = (context.clone(), asked.clone());
    aside(move || Err(not_pending(&context, &asked, &step))).await
}

/// Awaits the answer of the run without blocking a thread.
async fn answer(
    context: &RunnerContext,
    request: tidegate_engine::Request,
) -> Result<Result<RequestOutcome, String>, HttpRefusal> {
    refuse_while_full(context)?;
    let (sender, mut answered) = mpsc::unbounded_channel();
    // A client that disconnected needs no answer.
    if !context.handle.ask_with(request, Reply::new(move |answer| _ = sender.send(answer))) {
        return Err(HttpRefusal::ending());
    }
    match committed(answered.recv(), context).await {
        Some(Some(answer)) => Ok(answer),
        Some(None) => Err(HttpRefusal::ending()),
        // The request can no longer be withdrawn.
        None => {
            let error = "the completion may have been accepted: send it again";
            Err(HttpRefusal::later(StatusCode::SERVICE_UNAVAILABLE, error).closing())
        }
    }
}

/// A job that may become pending is worth another try.
fn not_pending(context: &RunnerContext, asked: &JobAddress, step: &str) -> HttpRefusal {
    let (queue, index) = (&asked.queue, asked.index);
    let found = match job_status::look(asked, context, false) {
        Ok(JobStatus { steps, .. }) => steps.into_iter().find(|outcome| outcome.step == step),
        // A source that is never copied has no record of its jobs.
        Err(_) => None,
    };
    let job = format!("job {queue}/{index}");
    let later = |what: &str| {
        let error =
            format!("{job} is {what} at step `{step}`, and not pending yet: send the completion again");
        HttpRefusal::later(StatusCode::CONFLICT, error)
    };
    match found.map(|outcome| outcome.status) {
        Some(ReportedState::Waiting) => later("waiting"),
        Some(ReportedState::Begun) => later("begun"),
        Some(ReportedState::Delayed) => later("delayed"),
        Some(ReportedState::Pending) => later("on its way"),
        Some(ReportedState::Failed) => through(&job, "failed", step),
        Some(ReportedState::Before) => through(&job, "none of the jobs", step),
        Some(ReportedState::Cancelled) => through(&job, "cancelled", step),
        Some(ReportedState::Done) => through(&job, "done", step),
        None => {
            let error = format!(
                "{job} is not pending at step `{step}`: send the completion again if the job may become pending"
            );
            HttpRefusal::later(StatusCode::CONFLICT, error)
        }
    }
}

fn through(job: &str, what: &str, step: &str) -> HttpRefusal {
    let error = format!("{job} is already {what} at step `{step}`");
    HttpRefusal::new(StatusCode::CONFLICT, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_back(body: &str) -> String {
        match read(body.as_bytes()) {
            Ok(completion) => serde_json::to_string(&completion).unwrap(),
            Err(why) => why,
        }
    }

    #[test]
    fn a_completion_in_a_body_reads_like_an_answer_of_a_monitor() {
        let bodies = [
            "",
            " \n",
            "\"invalid\"",
            r#"{"status": "committed", "result": {"id": 7, "tx": 1.50}}"#,
            r#"{"status": "invalid", "reason": "spent twice"}"#,
            r#"{"status": "unknown", "more": 1}"#,
        ];
        insta::assert_snapshot!(bodies.map(read_back).join("\n"), @r#"
        {"status":"committed"}
        {"status":"committed"}
        {"status":"invalid"}
        {"status":"committed","result":"{\"id\": 7, \"tx\": 1.50}"}
        {"status":"invalid","reason":"spent twice"}
        {"status":"unknown"}
        "#);
    }

    #[test]
    fn a_body_that_means_nothing_is_told_why() {
        let deep = "[".repeat(200);
        let bodies = ["{", "{\"status\":\n  done}", "null", "{}", "7", "\"done\"", r#"{"status": 7}"#, &deep];
        insta::assert_snapshot!(bodies.map(read_back).join("\n"), @r#"
        the body is not JSON: the text ends in the middle of an object, at column 1; nothing was accepted
        the body is not JSON: `done` is not a JSON value: use true, false, null, a number, a text in double quotes, a list or an object, at line 2, column 3; nothing was accepted
        `null` is not a status of the job; nothing was accepted
        `{}` has no `status` that is a text: missing field `status` at line 1 column 2; nothing was accepted
        `7` is neither a status nor a map with one; nothing was accepted
        `"done"` is an unknown status; use one of `pending`, `valid`, `committed`, `invalid`, `unknown`; nothing was accepted
        `{"status": 7}` has no `status` that is a text: invalid type: integer `7`, expected a string at line 1 column 12; nothing was accepted
        the body is not JSON: values nest deeper than 120 levels, at column 121; nothing was accepted
        "#);
    }

    #[test]
    fn a_token_stands_in_a_header_or_in_the_address() {
        let shown = |header: Option<&str>, query| {
            let header = header.map(|header| (AUTHORIZATION, header.parse().unwrap()));
            token(&header.into_iter().collect(), query)
        };
        let abc = Some("abc".to_owned());
        assert_eq!(shown(Some("bearer abc"), None), abc);
        assert_eq!(shown(None, Some("a=1&token=abc")), abc);
        assert_eq!(shown(Some("Bearer abc"), Some("token=other")), abc);
        assert_eq!(shown(Some("Basic abc"), Some("token=abc")), None);
        assert_eq!(shown(None, Some("tokens=abc")), None);
        assert_eq!(shown(None, None), None);
    }
}
