//! `HttpStep`: sends one request to an HTTP service for each job.
//!
//! The class of a failure depends on whether a retry can succeed: connection errors, timeouts, 429 and 5xx
//! can be retried, other refusals cannot. Redirects are not followed. A request is prepared on the thread of its
//! job and sent by [`Calls`], whose connections all instances share.

pub(crate) mod client;
pub(crate) mod exchange;
pub(crate) mod response;
pub(crate) mod retry_after;

use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Request, Uri};
use tidegate_plugin::{Failure, FailureKind, Job, Outputs};

use self::client::HEAD_MAX;
use self::exchange::{HttpAnswer, HttpCall, Judgement};
use crate::calls::{Answer, Call, Calls};
use crate::outputs_from_json::outputs_from_json;
use crate::redact::Redactor;
use crate::render::{Encoding, TemplateContext, key, of};
use tidegate_config::{Body, Hosts, HttpRequest, Response};
use tidegate_model::suggest::listed;
use tidegate_model::template::Template;
use tidegate_model::{TokenKey, format_size, shortened};

const KEY: &str = "idempotency-key";
const AGENT: &str = concat!("tidegate/", env!("CARGO_PKG_VERSION"));
/// Most bytes of an unknown host in a message.
const NAME_MAX: usize = 100;

/// The settings of a request; borrowed from the configuration.
#[derive(Clone, Copy, Debug)]
pub struct HttpSpec<'a> {
    pub pipeline: &'a str,
    pub step: &'a str,
    pub request: &'a HttpRequest,
    /// The timeout of the whole attempt, unless the request has its own.
    pub timeout: Option<Duration>,
    /// Maximum bytes of an answer, unless the request has a limit.
    pub memory: u64,
    /// The key that signs the tokens of jobs.
    pub token_key: &'a TokenKey,
    /// Sends the requests.
    pub calls: &'a Calls,
}

/// Sends requests. Lives on one thread.
#[derive(Debug)]
pub struct HttpStep {
    request: HttpRequest,
    pipeline: String,
    step: String,
    token_key: TokenKey,
    calls: Calls,
    judgement: Arc<Judgement>,
    /// The same, for answers that are not needed.
    of_status: Arc<Judgement>,
}

impl HttpStep {
    #[must_use]
    pub fn new(spec: &HttpSpec<'_>) -> Self {
        let request = spec.request.clone();
        let judgement = |response_max| {
            Arc::new(Judgement {
                accept: request.accept.clone(),
                timeout: request.timeout.or(spec.timeout),
                response_max,
                scrub: Redactor::new(request.secrets()),
            })
        };
        Self {
            judgement: judgement(Some(request.max_response.unwrap_or(spec.memory))),
            of_status: judgement(None),
            token_key: spec.token_key.clone(),
            pipeline: spec.pipeline.to_owned(),
            step: spec.step.to_owned(),
            calls: spec.calls.clone(),
            request,
        }
    }

    /// Sends the request for `job`, the piece with this number (from 1), and adds the answer to `outputs`.
    ///
    /// # Errors
    /// The failure, with its class.
    pub fn process(&mut self, job: &Job<'_>, piece: u32, outputs: &mut Outputs) -> Result<(), Failure> {
        match self.calls.wait(Call::Http(self.prepare(job, piece)?))? {
            Answer::Http(answer) => self.take(job, &answer, outputs),
            Answer::Command(_) => Ok(()),
        }
    }

    /// As [`Self::process`], without the answer.
    ///
    /// # Errors
    /// The failure, with its class.
    pub fn send(&mut self, job: &Job<'_>, piece: u32) -> Result<(), Failure> {
        self.calls.wait(Call::Http(self.prepare_to_send(job, piece)?)).map(drop)
    }

    /// The request for `job`, the piece with this number (from 1).
    ///
    /// # Errors
    /// The job does not make a request.
    pub fn prepare(&self, job: &Job<'_>, piece: u32) -> Result<HttpCall, Failure> {
        self.call(job, piece, &self.judgement)
    }

    /// As [`Self::prepare`], for an answer that is not needed.
    ///
    /// # Errors
    /// The job does not make a request.
    pub fn prepare_to_send(&self, job: &Job<'_>, piece: u32) -> Result<HttpCall, Failure> {
        self.call(job, piece, &self.of_status)
    }

    /// Adds the answer to the request for `job` to `outputs`.
    ///
    /// # Errors
    /// The answer is no output.
    pub fn take(&self, job: &Job<'_>, answer: &HttpAnswer, outputs: &mut Outputs) -> Result<(), Failure> {
        let HttpAnswer { response, named } = answer;
        let body = response.json();
        let body = body.map_err(|why| self.judgement.failure(FailureKind::Output, &why, named))?;
        match self.request.response {
            Response::Body => outputs_from_json(&body, outputs, "the answer"),
            Response::Full => outputs_from_json(&response.full(job.payload, &body), outputs, "the answer"),
        }
    }

    fn call(&self, job: &Job<'_>, piece: u32, judgement: &Arc<Judgement>) -> Result<HttpCall, Failure> {
        let request = self.request(job, piece)?;
        let (judgement, named) = (Arc::clone(judgement), self.named((job, piece)));
        Ok(HttpCall { request, judgement, named, now_ms: job.now_ms })
    }

    fn request(&self, job: &Job<'_>, piece: u32) -> Result<Request<Full<Bytes>>, Failure> {
        let key = key(job, piece);
        let Self { pipeline, step, token_key, .. } = self;
        let filling = TemplateContext { job, key: &key, pipeline, step, token_key };
        let mut url = match &self.request.hosts {
            Some(hosts) => filling.text(self.server(hosts, filling)?, Encoding::Plain)?,
            None => String::new(),
        };
        url += &filling.text(&self.request.url, Encoding::Url).map_err(of("url"))?;
        let path = url.split('?').next().unwrap_or_default();
        if path.split('/').any(|segment| matches!(segment, "." | "..")) {
            let message = "the request cannot be made: a part of the path of `url` is `.` or `..`, which would \
                           change the path";
            return Err(self.failure(FailureKind::Payload, message, (job, piece)));
        }
        let uri = Uri::try_from(url).map_err(|error| {
            // A job's text may exceed the limit of a URL.
            let message = format!("the request cannot be made: the filled `url` is not a URL: {error}");
            self.failure(FailureKind::Payload, &message, (job, piece))
        })?;
        let mut request = Request::builder().method(self.request.method.as_str()).uri(uri);
        let mut body = Vec::new();
        match &self.request.body {
            Body::None => {}
            Body::Job => body.extend_from_slice(job.payload),
            Body::Json(shape) => filling.json(shape, &mut body).map_err(of("body"))?,
        }
        let given = |name: &str| self.request.headers.iter().any(|(other, _)| other == name);
        if !given(KEY) {
            request = request.header(KEY, &key);
        }
        if !matches!(self.request.body, Body::None) && !given("content-type") {
            request = request.header("content-type", "application/json");
        }
        for (name, template) in &self.request.headers {
            let text = filling.text(template, Encoding::Plain).map_err(of(format_args!("headers.{name}")))?;
            let name_for = HeaderName::from_bytes(name.as_bytes());
            let value = HeaderValue::from_bytes(text.as_bytes());
            let (Ok(header), Ok(value)) = (name_for, value) else {
                let message = format!(
                    "the request cannot be made: the value of the header `{name}` is not allowed in a header"
                );
                return Err(self.failure(FailureKind::Payload, &message, (job, piece)));
            };
            request = request.header(header, value);
        }
        let wrong = |why: &str| {
            self.failure(FailureKind::Payload, &format!("the request cannot be made: {why}"), (job, piece))
        };
        let mut request = request.body(body).map_err(|error| wrong(&error.to_string()))?;
        let headers = request.headers_mut();
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(AGENT));
        let is_ascii = |name| headers.get(name).is_none_or(|value| value.to_str().is_ok());
        if !is_ascii(AUTHORIZATION) || !is_ascii(HOST) || head_bytes(&request) > HEAD_MAX {
            let most = format_size(HEAD_MAX as u64);
            return Err(wrong(&format!(
                "its URL and headers exceed {most}, or `authorization` or `host` is not ASCII"
            )));
        }
        Ok(request.map(Full::from))
    }

    /// The server for a job.
    fn server<'h>(&self, hosts: &'h Hosts, filling: TemplateContext<'_>) -> Result<&'h Template, Failure> {
        let name = filling.text(&hosts.host, Encoding::Plain).map_err(of("host"))?;
        hosts.table.get(&name).ok_or_else(|| {
            let known = listed(hosts.table.keys().map(String::as_str), "and");
            let name = shortened(name, NAME_MAX);
            let message = format!("`host`: `{name}` is not one of `hosts`, which has {known}");
            Failure::new(FailureKind::Payload, self.judgement.scrub.clean(&message))
        })
    }

    fn failure(&self, kind: FailureKind, why: &str, asked: (&Job<'_>, u32)) -> Failure {
        self.judgement.failure(kind, why, &self.named(asked))
    }

    /// The name of the request in messages.
    fn named(&self, (job, piece): (&Job<'_>, u32)) -> String {
        let key = key(job, piece);
        let Self { pipeline, step, token_key, .. } = self;
        let filling = TemplateContext { job, key: &key, pipeline, step, token_key };
        let hosts = self.request.hosts.as_ref();
        let server = hosts.and_then(|hosts| self.server(hosts, filling).ok());
        let server = server.map(Template::to_string).unwrap_or_default();
        format!("{} {server}{}", self.request.method.as_str(), filling.shown(&self.request.url))
    }
}

/// Bytes of the head of a request, as it is written.
fn head_bytes(request: &Request<Vec<u8>>) -> usize {
    let headers =
        request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
    let path = request.uri().path_and_query().map_or(1, |path| path.as_str().len());
    request.method().as_str().len() + path + headers.sum::<usize>()
}

#[cfg(test)]
mod tests;
