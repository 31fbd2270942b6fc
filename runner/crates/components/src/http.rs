//! `HttpStep`: sends one request to an HTTP service for each job.
//!
//! The class of a failure depends on whether a retry can succeed: connection errors, timeouts, 429 and 5xx
//! can be retried, other refusals cannot. Redirects are not followed. Each instance has its own connections,
//! and instances share nothing.

pub(crate) mod response;
pub(crate) mod retry_after;

use std::time::Duration;

use tidegate_plugin::{Cause, Failure, FailureKind, Job, Outputs};
use ureq::Agent;
use ureq::http::{HeaderName, HeaderValue, Request, Uri};
use ureq::tls::{RootCerts, TlsConfig};

use self::response::HttpResponse;
use crate::outputs_from_json::outputs_from_json;
use crate::redact::Redactor;
use crate::render::{Encoding, TemplateContext, key, of};
use tidegate_config::{Body, Hosts, HttpRequest, Response};
use tidegate_model::suggest::listed;
use tidegate_model::template::Template;
use tidegate_model::{TokenKey, format_duration, format_size, shortened};

const KEY: &str = "idempotency-key";
const AGENT: &str = concat!("tidegate/", env!("CARGO_PKG_VERSION"));
/// Idle connections are closed after this time, since services close theirs without notice.
const IDLE_MAX: Duration = Duration::from_secs(15);
/// Bytes of the read buffer of each connection.
const BUFFER: usize = 16 << 10;
/// Most idle connections of an instance to different servers.
const CONNECTIONS_MAX: usize = 16;
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
}

/// Sends requests. Lives on one thread.
#[derive(Debug)]
pub struct HttpStep {
    request: HttpRequest,
    pipeline: String,
    step: String,
    timeout: Option<Duration>,
    response_max: u64,
    token_key: TokenKey,
    agent: Agent,
    scrub: Redactor,
}

impl HttpStep {
    #[must_use]
    pub fn new(spec: &HttpSpec<'_>) -> Self {
        let request = spec.request.clone();
        let timeout = request.timeout.or(spec.timeout);
        let scrub = Redactor::new(request.secrets());
        let hosts = request.hosts.as_ref().map_or(1, |hosts| hosts.table.len());
        Self {
            agent: agent(timeout, hosts.min(CONNECTIONS_MAX)),
            response_max: request.max_response.unwrap_or(spec.memory),
            token_key: spec.token_key.clone(),
            pipeline: spec.pipeline.to_owned(),
            step: spec.step.to_owned(),
            request,
            timeout,
            scrub,
        }
    }

    /// Sends the request for `job`, the piece with this number (from 1), and adds the answer to `outputs`.
    ///
    /// # Errors
    /// The failure, with its class.
    pub fn process(&mut self, job: &Job<'_>, piece: u32, outputs: &mut Outputs) -> Result<(), Failure> {
        let answer = self.ask(job, piece, self.response_max)?;
        let body = answer.json().map_err(|why| self.failure(FailureKind::Output, &why, (job, piece)))?;
        match self.request.response {
            Response::Body => outputs_from_json(&body, outputs, "the answer"),
            Response::Full => outputs_from_json(&answer.full(job.payload, &body), outputs, "the answer"),
        }
    }

    /// As [`Self::process`], without the answer.
    ///
    /// # Errors
    /// The failure, with its class.
    pub fn send(&mut self, job: &Job<'_>, piece: u32) -> Result<(), Failure> {
        self.ask(job, piece, u64::MAX).map(drop)
    }

    fn ask(&self, job: &Job<'_>, piece: u32, most: u64) -> Result<HttpResponse, Failure> {
        let request = self.request(job, piece)?;
        let unanswered = |error: ureq::Error| self.unanswered(&error, (job, piece));
        let response = self.agent.run(request).map_err(unanswered)?;
        let accepted = self.request.accept.iter().any(|range| range.contains(&response.status().as_u16()));
        let answer = if !accepted {
            Ok(HttpResponse::beginning(response))
        } else if most == u64::MAX {
            HttpResponse::without_body(response)
        } else {
            HttpResponse::whole(response, most)
        };
        let answer = answer.map_err(unanswered)?;
        if accepted {
            return Ok(answer);
        }
        Err(answer.refusal(&self.named((job, piece)), &self.scrub, job.now_ms))
    }

    fn request(&self, job: &Job<'_>, piece: u32) -> Result<Request<Vec<u8>>, Failure> {
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
        let failed = |error: ureq::http::Error| {
            self.failure(FailureKind::Payload, &format!("the request cannot be made: {error}"), (job, piece))
        };
        request.body(body).map_err(failed)
    }

    /// The server for a job.
    fn server<'h>(&self, hosts: &'h Hosts, filling: TemplateContext<'_>) -> Result<&'h Template, Failure> {
        let name = filling.text(&hosts.host, Encoding::Plain).map_err(of("host"))?;
        hosts.table.get(&name).ok_or_else(|| {
            let known = listed(hosts.table.keys().map(String::as_str), "and");
            let name = shortened(name, NAME_MAX);
            let message = format!("`host`: `{name}` is not one of `hosts`, which has {known}");
            Failure::new(FailureKind::Payload, self.scrub.clean(&message))
        })
    }

    /// The failure of a request without a complete answer.
    #[cold]
    fn unanswered(&self, error: &ureq::Error, asked: (&Job<'_>, u32)) -> Failure {
        use ureq::Error as E;
        let (kind, cause, why) = match error {
            error if self.spoke_tls_to_plain_http(error, asked) => {
                let why = "the other side does not speak TLS; is `url` meant to begin with `http://`?";
                (FailureKind::Failed, Some(Cause::Connection), why.to_owned())
            }
            E::Timeout(_) => {
                let timeout = format_duration(self.timeout.unwrap_or_default());
                let why = format!("no answer within the `timeout` of {timeout}");
                (FailureKind::Failed, Some(Cause::Timeout), why)
            }
            E::BodyExceedsLimit(_) | E::LargeResponseHeader(..) => {
                (FailureKind::Limit, None, response::too_large(self.response_max))
            }
            E::HostNotFound => (FailureKind::Failed, Some(Cause::Connection), "the host is unknown".into()),
            E::Protocol(error) if is_of_request(&error.to_string()) => {
                let most = format_size(BUFFER as u64);
                let why = format!(
                    "the request cannot be made: its URL and headers exceed {most}, or `authorization` or `host` \
                     is not ASCII"
                );
                (FailureKind::Payload, None, why)
            }
            E::Protocol(error) => {
                (FailureKind::Failed, Some(Cause::Connection), format!("the answer is not HTTP: {error}"))
            }
            E::BadUri(_) | E::Http(_) => (FailureKind::Payload, None, "the request cannot be made".into()),
            E::Io(error) => {
                (FailureKind::Failed, Some(Cause::Connection), format!("the request failed: {error}"))
            }
            other => (FailureKind::Failed, Some(Cause::Connection), format!("the request failed: {other}")),
        };
        let mut failure = self.failure(kind, &why, asked);
        failure.cause = cause;
        failure
    }

    /// The answer is no TLS record. The library has no other error for it.
    fn spoke_tls_to_plain_http(&self, error: &ureq::Error, asked: (&Job<'_>, u32)) -> bool {
        self.named(asked).contains(" https:") && error.to_string().contains("InvalidContentType")
    }

    /// The failure first, then the request: the failure is new, the request is known.
    fn failure(&self, kind: FailureKind, why: &str, asked: (&Job<'_>, u32)) -> Failure {
        Failure::new(kind, format!("{} ({})", self.scrub.clean(why), self.named(asked)))
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

/// The library has no kinds of these errors. The request was not sent.
fn is_of_request(error: &str) -> bool {
    error == "output too small to write output" || error.ends_with("header is not a string")
}

fn agent(timeout: Option<Duration>, hosts: usize) -> Agent {
    // The roots that the system trusts are those that its administrator maintains.
    let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
    let config = Agent::config_builder()
        .tls_config(tls)
        .proxy(None)
        .timeout_global(timeout)
        .http_status_as_error(false)
        .allow_non_standard_methods(true)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .max_idle_connections(hosts)
        .max_idle_connections_per_host(1)
        .max_idle_age(IDLE_MAX)
        .input_buffer_size(BUFFER)
        .output_buffer_size(BUFFER)
        .user_agent(AGENT);
    config.build().into()
}

#[cfg(test)]
mod tests;
