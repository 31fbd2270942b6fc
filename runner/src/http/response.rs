//! `Refusal`: the error answers of the port, and the JSON form of all answers.

use std::fmt::{self, Display};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    ALLOW, CONNECTION, CONTENT_TYPE, DATE, HeaderValue, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::{Method, StatusCode};
use jiff::fmt::rfc2822::DateTimePrinter;
use serde::Serialize;

use crate::output::hint::disk_full;
use tidegate_model::log_target;
use tidegate_model::{Clock as _, SystemClock, Timestamp};

pub(crate) type Response = hyper::Response<Full<Bytes>>;

/// Why a request is refused.
#[derive(Debug)]
pub(crate) struct HttpRefusal {
    status: StatusCode,
    error: String,
    /// The job that conflicts with the request.
    job: Option<String>,
    /// The parts of the body that do not match.
    places: Vec<Place>,
    hint: Option<Hint>,
    /// The rest of the request is not read.
    closes: bool,
}

/// A part of a body that does not match.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Place {
    /// From 1; only in a body of lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<u32>,
    /// A JSON pointer; empty for the whole job.
    pub(crate) at: String,
    pub(crate) error: String,
}

/// A header that shows programs how to succeed.
#[derive(Debug)]
enum Hint {
    /// Repeat the request later.
    Later,
    /// Repeat the request with a token.
    Token,
    /// Use one of these methods.
    Methods(String),
}

impl HttpRefusal {
    pub(crate) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into(), job: None, places: Vec::new(), hint: None, closes: false }
    }

    pub(crate) fn missing(error: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, error)
    }

    pub(crate) fn wrong(error: impl Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error.to_string())
    }

    /// A refusal that may not hold a moment later.
    pub(crate) fn later(status: StatusCode, error: impl Into<String>) -> Self {
        Self { hint: Some(Hint::Later), ..Self::new(status, error) }
    }

    pub(crate) fn ending() -> Self {
        Self::later(StatusCode::SERVICE_UNAVAILABLE, "the runner is ending; nothing was accepted").closing()
    }

    pub(crate) fn broken(error: &str) -> Self {
        tracing::error!(target: log_target::HTTP, error, "a request cannot be answered");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "the runner cannot answer; see its log for the cause")
    }

    pub(crate) fn method(method: &Method, methods: &[Method]) -> Self {
        let allowed: Vec<&str> = methods.iter().map(Method::as_str).collect();
        let allowed = allowed.join(", ");
        let error = format!("{method} does not match this path: it accepts {allowed}");
        Self { hint: Some(Hint::Methods(allowed)), ..Self::new(StatusCode::METHOD_NOT_ALLOWED, error) }
    }

    pub(crate) fn unknown_caller(error: &str) -> Self {
        Self { hint: Some(Hint::Token), ..Self::new(StatusCode::UNAUTHORIZED, error) }.closing()
    }

    /// Another content was accepted before under the same key, as `job`.
    pub(crate) fn conflict(error: String, job: Option<String>) -> Self {
        Self { job, ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, error) }
    }

    /// The jobs do not match the schema of their source at these places, of which there is at least one; or its script
    /// refuses them.
    pub(crate) fn unfit(places: Vec<Place>, by_script: bool) -> Self {
        let first = places.first().map(|Place { line, at, error }| {
            let line = line.map_or_else(String::new, |line| format!("line {line}, "));
            let at = if at.is_empty() { "the job" } else { at };
            format!("{line}{at}: {error}")
        });
        let error = format!(
            "the {}; nothing was accepted: {}",
            if by_script {
                "source does not accept the body"
            } else {
                "body does not match the schema of the source"
            },
            first.unwrap_or_default()
        );
        Self { places, ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, error) }
    }

    pub(crate) fn closing(mut self) -> Self {
        self.closes = true;
        self
    }

    pub(crate) fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct ErrorBody {
            error: String,
            #[serde(skip_serializing_if = "Option::is_none")]
            job: Option<String>,
            #[serde(skip_serializing_if = "Vec::is_empty")]
            places: Vec<Place>,
        }
        let Self { status, error, job, places, hint, closes } = self;
        let mut response = json(status, &ErrorBody { error, job, places });
        let headers = response.headers_mut();
        match hint {
            Some(Hint::Later) => _ = headers.insert(RETRY_AFTER, HeaderValue::from_static("1")),
            Some(Hint::Token) => _ = headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")),
            Some(Hint::Methods(methods)) => {
                headers.extend(HeaderValue::from_str(&methods).ok().map(|methods| (ALLOW, methods)));
            }
            None => {}
        }
        if closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl fmt::Display for HttpRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.status.as_u16(), self.error)
    }
}

pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    // Answers have text keys, so serialization cannot fail.
    let mut body = serde_json::to_vec(value).unwrap_or_default();
    body.push(b'\n');
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// As [`json`], with the URL of the job at this address.
pub(crate) fn at_job(status: StatusCode, value: &impl Serialize, job: &str) -> Response {
    let mut response = json(status, value);
    if let Ok(location) = HeaderValue::from_str(&format!("/jobs/{job}")) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// Adds the time of the answer.
pub(crate) fn dated(mut response: Response) -> Response {
    let date = http_date(SystemClock.now()).and_then(|date| HeaderValue::from_str(&date).ok());
    response.headers_mut().extend(date.map(|date| (DATE, date)));
    response
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`, as RFC 9110 requires it; `None` beyond the year 9999.
fn http_date(time: Timestamp) -> Option<String> {
    let time = jiff::Timestamp::from_millisecond(time.0).ok()?;
    DateTimePrinter::new().timestamp_to_rfc9110_string(&time).ok()
}

/// Whether the runner accepts jobs; `full`: the error, if a disk is full.
pub(crate) fn health(full: Option<String>) -> Response {
    #[derive(Serialize)]
    struct Health {
        status: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    }
    let Some(why) = full else { return json(StatusCode::OK, &Health { status: "ok", error: None }) };
    let error = disk_full(&why);
    json(StatusCode::SERVICE_UNAVAILABLE, &Health { status: "full", error: Some(error) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_stands_before_1970_is_no_trouble() {
        let date = |millis| http_date(Timestamp(millis));
        assert_eq!(date(784_111_777_999).as_deref(), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
        assert_eq!(date(-1).as_deref(), Some("Wed, 31 Dec 1969 23:59:59 GMT"));
        assert_eq!(date(i64::MIN), None);
    }
}
