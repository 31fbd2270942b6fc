//! `HttpCall`: one request with its limits, and the judgement of its answer.
//!
//! It owns all that it needs, so that no thread waits for the answer.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use tidegate_plugin::{Cause, Failure, FailureKind};
use tokio::time::Instant;

use super::client::{HEAD_MAX, HttpClient, Unanswered, within};
use super::response::{HttpResponse, too_large};
use crate::redact::Redactor;
use tidegate_model::format_duration;

/// The limits of all requests of a step, and its judgement of answers.
#[derive(Debug)]
pub(crate) struct Judgement {
    pub(crate) accept: Vec<RangeInclusive<u16>>,
    pub(crate) timeout: Option<Duration>,
    /// Most bytes of an answer; `None`: the answer is not needed.
    pub(crate) response_max: Option<u64>,
    pub(crate) scrub: Redactor,
}

/// A request that is ready to be sent.
#[derive(Debug)]
pub struct HttpCall {
    pub(crate) request: Request<Full<Bytes>>,
    pub(crate) judgement: Arc<Judgement>,
    /// The name of the request in messages.
    pub(crate) named: String,
    /// Time of the attempt.
    pub(crate) now_ms: i64,
}

/// The accepted answer to a request.
#[derive(Debug)]
pub struct HttpAnswer {
    pub(crate) response: HttpResponse,
    pub(crate) named: String,
}

impl HttpCall {
    /// Sends the request and awaits its answer, at most for its `timeout`.
    ///
    /// # Errors
    /// The failure, with its class.
    pub(crate) async fn run(self, client: &HttpClient) -> Result<HttpAnswer, Failure> {
        let Self { request, judgement, named, now_ms } = self;
        let until = judgement.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let response = within(until, client.send(request)).await.and_then(|response| response);
        let response = response.map_err(|reason| judgement.unanswered(&reason, &named))?;
        let status = response.status().as_u16();
        if !judgement.accept.iter().any(|range| range.contains(&status)) {
            let answer = HttpResponse::beginning(response, until).await;
            return Err(answer.refusal(&named, &judgement.scrub, now_ms));
        }
        let response = match judgement.response_max {
            Some(most) => within(until, HttpResponse::whole(response, most)).await,
            None => within(until, HttpResponse::without_body(response)).await,
        };
        let response = response.and_then(|response| response);
        let response = response.map_err(|reason| judgement.unanswered(&reason, &named))?;
        Ok(HttpAnswer { response, named })
    }
}

impl Judgement {
    /// The failure of a request without a complete answer.
    #[cold]
    fn unanswered(&self, reason: &Unanswered, named: &str) -> Failure {
        let (kind, cause, why) = match reason {
            Unanswered::NoTls => {
                let why = "the other side does not speak TLS; is `url` meant to begin with `http://`?";
                (FailureKind::Failed, Some(Cause::Connection), why.to_owned())
            }
            Unanswered::Late => {
                let timeout = format_duration(self.timeout.unwrap_or_default());
                let why = format!("no answer within the `timeout` of {timeout}");
                (FailureKind::Failed, Some(Cause::Timeout), why)
            }
            Unanswered::Large => {
                (FailureKind::Limit, None, too_large(self.response_max.unwrap_or(HEAD_MAX as u64)))
            }
            Unanswered::NoHttp(error) => {
                (FailureKind::Failed, Some(Cause::Connection), format!("the answer is not HTTP: {error}"))
            }
            Unanswered::Failed(error) => {
                (FailureKind::Failed, Some(Cause::Connection), format!("the request failed: {error}"))
            }
        };
        let mut failure = self.failure(kind, &why, named);
        failure.cause = cause;
        failure
    }

    /// The failure first, then the request: the failure is new, the request is known.
    pub(crate) fn failure(&self, kind: FailureKind, why: &str, named: &str) -> Failure {
        Failure::new(kind, format!("{} ({named})", self.scrub.clean(why)))
    }
}
