//! `HttpResponse`: the answer of a service, and its conversion to an output or a failure.

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, DATE, HeaderName, LOCATION, RETRY_AFTER};
use hyper::{HeaderMap, Response, StatusCode};
use tidegate_plugin::{Cause, Failure, FailureKind};
use tokio::time::Instant;

use super::client::{Unanswered, within};
use super::retry_after::retry_after;
use crate::redact::Redactor;
use crate::script::values::json;
use tidegate_model::{format_size, plain};

/// Bytes of a failure's body that are read.
const BEGINNING: u64 = 8 << 10;
/// Characters of the body that a message, and its context, shows.
const SHOWN: usize = 200;
const KEPT: usize = 2000;
/// Bytes of an unneeded body that are read, so that the connection can be reused.
const UNWANTED: u64 = 64 << 10;

/// The answer of a service.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl HttpResponse {
    /// The whole answer, unless its body exceeds `most` bytes.
    pub(crate) async fn whole(response: Response<Incoming>, most: u64) -> Result<Self, Unanswered> {
        let mut answer = Self::head(&response);
        read(response.into_body(), most.saturating_add(1), |data| answer.body.extend_from_slice(data))
            .await?;
        if answer.body.len() as u64 > most { Err(Unanswered::Large) } else { Ok(answer) }
    }

    /// The answer with the beginning of its body; unreadable bytes are left out.
    pub(crate) async fn beginning(response: Response<Incoming>, until: Option<Instant>) -> Self {
        let mut answer = Self::head(&response);
        let beginning = read(response.into_body(), BEGINNING, |data| answer.body.extend_from_slice(data));
        let read = within(until, beginning).await;
        // The answer is already a failure, and its status is more useful than the error of reading its body.
        if !matches!(read, Ok(Ok(()))) {
            answer.body.clear();
        }
        answer
    }

    /// The answer without its body, which is read if it is short.
    pub(crate) async fn without_body(response: Response<Incoming>) -> Result<Self, Unanswered> {
        let answer = Self::head(&response);
        read(response.into_body(), UNWANTED, |_| ()).await?;
        Ok(answer)
    }

    fn head(response: &Response<Incoming>) -> Self {
        Self { status: response.status(), headers: response.headers().clone(), body: Vec::new() }
    }

    /// The body as JSON: unchanged if it is JSON, otherwise as a text; `null` if it is empty.
    ///
    /// # Errors
    /// The body is declared as JSON and is not, or is not a text: a sentence fragment.
    pub(crate) fn json(&self) -> Result<Vec<u8>, String> {
        if self.body.iter().all(u8::is_ascii_whitespace) {
            return Ok(b"null".to_vec());
        }
        let error = match json::check(&self.body) {
            Ok(()) => return Ok(self.body.clone()),
            Err(error) => error,
        };
        let kind = self.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if kind.ends_with("/json") || kind.ends_with("+json") {
            return Err(format!("the answer is declared as JSON but is not: {error}"));
        }
        let text =
            std::str::from_utf8(&self.body).map_err(|_| "the answer is not a text (UTF-8)".to_owned())?;
        Ok(serde_json::Value::from(text).to_string().into_bytes())
    }

    /// A map of the job and the whole answer; `body` is JSON.
    pub(crate) fn full(&self, job: &[u8], body: &[u8]) -> Vec<u8> {
        let mut headers = serde_json::Map::new();
        for name in self.headers.keys() {
            headers.insert(name.as_str().to_owned(), self.header(name).into());
        }
        let mut full = b"{\"job\":".to_vec();
        full.extend_from_slice(job);
        let headers = serde_json::Value::from(headers);
        full.extend_from_slice(
            format!(",\"status\":{},\"headers\":{headers},\"body\":", self.status.as_u16()).as_bytes(),
        );
        full.extend_from_slice(body);
        full.push(b'}');
        full
    }

    /// The failure for this answer. `named` is the request.
    pub(crate) fn refusal(&self, named: &str, scrub: &Redactor, now_ms: i64) -> Failure {
        let status = self.status.as_u16();
        let mut message = status.to_string();
        if let Some(reason) = self.status.canonical_reason() {
            message = format!("{message} {reason}");
        }
        if self.status.is_redirection() {
            // The query of the address may hold a secret of the service.
            let to = self.header(&LOCATION);
            let to = scrub.clean(to.split('?').next().unwrap_or_default());
            message =
                format!("{message}, to `{to}`; redirects are not followed: put the right address in `url`");
        }
        let text = scrub.clean(&String::from_utf8_lossy(&self.body));
        let text = text.trim();
        if !text.is_empty() {
            message = format!("{message}: {}", on_one_line(&plain::beginning(text, SHOWN)));
        }
        let message = format!("{message} ({named})");
        let context = serde_json::json!({ "status": status, "body": plain::beginning(text, KEPT) });
        let failure = Failure::new(self.kind(now_ms), message).because(Cause::Http(status));
        failure.with_context(context.to_string())
    }

    fn kind(&self, now_ms: i64) -> FailureKind {
        let status = self.status.as_u16();
        if status != 429 && status < 500 {
            return FailureKind::Rejected;
        }
        let wait = matches!(status, 429 | 503)
            .then(|| retry_after(&self.header(&RETRY_AFTER), &self.header(&DATE), now_ms))
            .flatten();
        wait.map_or(FailureKind::Failed, FailureKind::RetryIn)
    }

    /// All values of a header; empty if it is missing.
    fn header(&self, name: &HeaderName) -> String {
        let values: Vec<_> = self
            .headers
            .get_all(name)
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()))
            .collect();
        values.join(", ")
    }
}

/// Reads at most `most` bytes of a body. A body that is not read to its end closes its connection.
async fn read(mut body: Incoming, most: u64, mut to: impl FnMut(&[u8])) -> Result<(), Unanswered> {
    let mut room = usize::try_from(most).unwrap_or(usize::MAX);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Unanswered::of(&error))?;
        let Some(data) = frame.data_ref() else { continue };
        to(&data[..data.len().min(room)]);
        room = room.saturating_sub(data.len());
        if room == 0 {
            break;
        }
    }
    Ok(())
}

pub(crate) fn too_large(most: u64) -> String {
    format!("the answer exceeds the `max_response` of {}", format_size(most))
}

fn on_one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}
