//! `Fetcher`: makes the requests of one reader, several at a time, and keeps no thread.
//!
//! This is the only place where sources use the HTTP client.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};

use tidegate_plugin::{Cause, Failure, FailureKind, Job, Outputs};

use super::window::Fetched;
use crate::calls::{Answer, Call, Calls};
use crate::http::{HttpSpec, HttpStep};
use crate::source::Wake;
use tidegate_config::{Body, HttpRequest, Method, PullSource, Response};
use tidegate_model::sync::Mutex;
use tidegate_model::{Address, FieldPath, TokenKey};

/// Requests of a reader, and their answers.
#[derive(Debug)]
pub(crate) struct Fetcher {
    client: HttpStep,
    calls: Calls,
    answers: Arc<Answers>,
    /// The statuses of a number that the service does not have yet.
    spec: PullSource,
}

/// Answers that the reader has not taken.
struct Answers {
    come: Mutex<VecDeque<(u64, Result<Answer, Failure>)>>,
    wake: Weak<dyn Wake>,
}

impl Answers {
    fn add(&self, index: u64, answer: Result<Answer, Failure>) {
        self.come.lock().push_back((index, answer));
        // The reader may be gone.
        if let Some(wake) = self.wake.upgrade() {
            wake.wake();
        }
    }
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers").field("come", &self.come.lock().len()).finish_non_exhaustive()
    }
}

impl Fetcher {
    /// `wake` is called for each answer.
    pub(crate) fn new(address: &Address, spec: &PullSource, calls: &Calls, wake: Weak<dyn Wake>) -> Self {
        let client = HttpStep::new(&HttpSpec {
            pipeline: address.pipeline.as_str(),
            step: address.name.as_str(),
            request: &request(spec),
            timeout: None,
            memory: spec.max_response,
            token_key: &TokenKey::NONE,
            calls,
        });
        let answers = Arc::new(Answers { come: Mutex::default(), wake });
        Self { client, calls: calls.clone(), answers, spec: spec.clone() }
    }

    /// Requests the job at `index`.
    pub(crate) fn ask(&self, index: u64) {
        let job = job(&self.spec, index);
        let answers = Arc::clone(&self.answers);
        match self.client.prepare(&Job::new(index, job.as_bytes()), 1) {
            Ok(call) => self.calls.start(Call::Http(call), move |answer| answers.add(index, answer)),
            Err(failure) => answers.add(index, Err(failure)),
        }
    }

    /// The answers since the last call.
    pub(crate) fn take(&self) -> Vec<(u64, Fetched)> {
        let come = std::mem::take(&mut *self.answers.come.lock());
        come.into_iter().map(|(index, answer)| (index, self.fetched(index, answer))).collect()
    }

    fn fetched(&self, index: u64, answer: Result<Answer, Failure>) -> Fetched {
        let job = job(&self.spec, index);
        let mut outputs = Outputs::new([""]);
        let taken = answer.and_then(|answer| match answer {
            Answer::Http(answer) => self.client.take(&Job::new(index, job.as_bytes()), &answer, &mut outputs),
            Answer::Command(_) => Ok(()),
        });
        match taken {
            Ok(()) => self.found(outputs.get(0).and_then(|answers| answers.get(0)).unwrap_or_default()),
            Err(failure) if matches!(failure.cause, Some(Cause::Http(status)) if self.is_not_yet(status)) => {
                Fetched::NotYet
            }
            Err(failure) if matches!(failure.kind, FailureKind::Output | FailureKind::Limit) => {
                Fetched::Bad(failure.message)
            }
            Err(failure) => Fetched::Failed(failure.message),
        }
    }

    /// The body of a full answer.
    fn found(&self, answer: &[u8]) -> Fetched {
        let part = |name: &str| FieldPath::parse(name)?.find(answer);
        match (part("status").and_then(|status| status.parse().ok()), part("body")) {
            (Some(status), _) if self.is_not_yet(status) => Fetched::NotYet,
            (_, Some(body)) => Fetched::Job(body.as_bytes().to_vec()),
            (_, None) => Fetched::Bad("the answer has no body".to_owned()),
        }
    }

    fn is_not_yet(&self, status: u16) -> bool {
        self.spec.not_yet.iter().any(|range| range.contains(&status))
    }
}

/// The job that fills the request: the client inserts its field `index` into the address.
fn job(spec: &PullSource, index: u64) -> String {
    format!("{{\"index\":{}}}", spec.number(index))
}

fn request(spec: &PullSource) -> HttpRequest {
    HttpRequest {
        url: spec.url.clone(),
        hosts: None,
        method: Method::Get,
        headers: spec.headers.clone(),
        body: Body::None,
        timeout: Some(spec.timeout),
        max_response: Some(spec.max_response),
        accept: spec.accept.iter().chain(&spec.not_yet).cloned().collect(),
        // The status decides whether the number is there.
        response: Response::Full,
    }
}
