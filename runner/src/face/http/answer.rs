//! Answers, and refusals with what was wrong, both JSON.

use std::fmt::Display;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    ALLOW, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::{Method, StatusCode};
use serde::Serialize;

use crate::words::Address;

pub(super) type Response = hyper::Response<Full<Bytes>>;

/// Why a request is not carried out.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    error: String,
    /// The job that stands in the way.
    job: Option<String>,
    header: Option<(HeaderName, HeaderValue)>,
    /// What the client still sends is not read.
    closes: bool,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into(), job: None, header: None, closes: false }
    }

    pub(super) fn missing(error: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, error)
    }

    pub(super) fn wrong(error: impl Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error.to_string())
    }

    /// It may be another way in a moment.
    pub(super) fn later(status: StatusCode, error: impl Into<String>) -> Self {
        let header = Some((RETRY_AFTER, HeaderValue::from_static("1")));
        Self { header, ..Self::new(status, error) }
    }

    pub(super) fn ending() -> Self {
        Self::later(StatusCode::SERVICE_UNAVAILABLE, "the runner is ending; nothing was taken").closing()
    }

    pub(super) fn broken(error: &str) -> Self {
        tracing::error!(error, "a request cannot be answered");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "the runner cannot answer; its log says why")
    }

    pub(super) fn method(method: &Method, methods: &[Method]) -> Self {
        let allowed: Vec<&str> = methods.iter().map(Method::as_str).collect();
        let allowed = allowed.join(", ");
        let error = format!("{method} is not for this path; it takes {allowed}");
        let header = HeaderValue::from_str(&allowed).ok().map(|value| (ALLOW, value));
        Self { header, ..Self::new(StatusCode::METHOD_NOT_ALLOWED, error) }
    }

    pub(super) fn unknown_caller(error: &str) -> Self {
        let header = Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")));
        Self { header, ..Self::new(StatusCode::UNAUTHORIZED, error) }.closing()
    }

    /// Something else came before under the same key, and stands at `job`.
    pub(super) fn conflict(error: String, job: Option<String>) -> Self {
        Self { job, ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, error) }
    }

    pub(super) fn closing(mut self) -> Self {
        self.closes = true;
        self
    }

    pub(super) fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Said {
            error: String,
            #[serde(skip_serializing_if = "Option::is_none")]
            job: Option<String>,
        }
        let Self { status, error, job, header, closes } = self;
        let mut response = json(status, &Said { error, job });
        if let Some((name, value)) = header {
            response.headers_mut().insert(name, value);
        }
        if closes {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

pub(super) fn json(status: StatusCode, said: &impl Serialize) -> Response {
    // What is told has names for keys, so that it can be written.
    let mut body = serde_json::to_vec(said).unwrap_or_default();
    body.push(b'\n');
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// As [`json`], and where the job is looked at.
pub(super) fn at_job(status: StatusCode, said: &impl Serialize, queue: &Address, index: u64) -> Response {
    let mut response = json(status, said);
    if let Ok(location) = HeaderValue::from_str(&format!("/jobs/{queue}/{index}")) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

pub(super) fn healthy() -> Response {
    #[derive(Serialize)]
    struct Health {
        status: &'static str,
    }
    json(StatusCode::OK, &Health { status: "ok" })
}
