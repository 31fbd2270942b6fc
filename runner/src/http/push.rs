//! `POST /sources/PIPELINE/SOURCE`: appends the jobs of a body to the source's queue.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::timeout;

use super::job_status::unreadable;
use super::parameters::Parameters;
use super::parse_body;
use super::parse_body::{BodyForm, Intake, IntakeRules, KeyOwner};
use super::response::{HttpRefusal, Response, at_job, json};
use super::route::JobAddress;
use super::{HttpContext, PARSED_BYTES, aside, body, job_status, late_jobs, only};
use crate::client::ipc::RunnerContext;
use crate::connection_limit::ConnectionPermit;
use crate::due_time;
use crate::query::late::LateAddress;
use tidegate_components::accept::AcceptCheck;
use tidegate_config::{Configuration, HttpSource, PushSource, QueueRef};
use tidegate_engine::{IdempotencyKey, KeyConflict, Push, Pushed, PushedPlace};
use tidegate_model::suggest::nearest;
use tidegate_model::{Address, Clock as _, SystemClock, Timestamp, rfc3339};
use tidegate_store::{DedupeOutcome, ParkedId, Store};

/// Larger bodies are parsed on a thread of their own, so that no other request waits.
pub(crate) const AT_ONCE_BYTES: usize = 32 << 10;
/// Bodies whose parsing needs at most this many bytes need no permit, as most requests: at most 64 MiB for
/// all requests in work.
const PARSED_FREE_BYTES: usize = 64 << 10;
/// How long a request waits for its commit. A commit takes milliseconds, unless the disk is full.
const COMMIT_PATIENCE: Duration = Duration::from_secs(30);
/// Interval of the checks for a full disk.
const LOOKS: Duration = Duration::from_millis(250);
/// The preference of a client for the job in the answer.
const REPRESENTATION: &str = "return=representation";
/// The longest key in a header, in bytes.
const KEY_BYTES_MAX: usize = 1024;

pub(crate) async fn take(
    request: Request<Incoming>,
    address: &Address,
    http: &HttpContext,
    place: &ConnectionPermit,
) -> Result<Response, HttpRefusal> {
    let configuration = http.context.configuration();
    let (queue, source) = find(address, &configuration)?;
    only(&request, &[Method::POST])?;
    admit(request.headers(), source)?;
    let form = BodyForm::of(request.headers().get(CONTENT_TYPE)).ok_or_else(unknown_form)?;
    let header = header_key(request.headers())?;
    let represents = prefers_representation(request.headers());
    let now = SystemClock.now();
    let due = due(&Parameters::of(request.uri().query())?, now)?;
    refuse_while_full(&http.context)?;
    have_room(queue, source, http)?;
    let limit = ("(`max_body` of the source); send fewer jobs at a time", source.max_body);
    let body = body::collect(request.into_body(), limit, &http.room, place).await?;
    let cost = parse_body::cost(&body.bytes, form, source);
    let room = match cost.checked_sub(PARSED_FREE_BYTES) {
        Some(_) => Some(body::reserve_parsed(&http.parsed, cost.min(PARSED_BYTES)).await?),
        None => None,
    };
    let schema = http.schemas.of(address, source)?;
    let names = http.context.store.name_history().map_err(|error| unreadable(&error))?;
    let owner = KeyOwner::of(address, &names);
    let rules = IntakeRules { schema, header, due, now };
    let store = http.context.store.clone();
    let is_known = move |key: &IdempotencyKey| is_known(&store, key, now);
    let intake = if let Some(accept) = source.accept.clone() {
        let (bytes, source) = (body.bytes.clone(), source.clone());
        let work = move |check: &mut AcceptCheck| {
            parse_body::read(&bytes, form, (&owner, &source), (&rules, &is_known), Some(check))
        };
        http.accepts.run(address.clone(), *accept, work).await?
    } else if body.bytes.len() <= AT_ONCE_BYTES {
        parse_body::read(&body.bytes, form, (&owner, source), (&rules, &is_known), None)?
    } else {
        let (bytes, source) = (body.bytes.clone(), source.clone());
        let reading = tokio::task::spawn_blocking(move || {
            parse_body::read(&bytes, form, (&owner, &source), (&rules, &is_known), None)
        });
        reading.await.unwrap_or_else(|error| Err(HttpRefusal::broken(&error.to_string())))?
    };
    drop(body);
    let (response, place) = push((intake, room), form, (address, queue), http).await?;
    match place.filter(|_| represents) {
        Some(place) => Ok(represented(response, (address, place), http).await),
        None => Ok(response),
    }
}

/// Whether the store remembers the key with this content. A key that cannot be read counts as new.
fn is_known(store: &Store, key: &IdempotencyKey, now: Timestamp) -> bool {
    match store.known_keys(&[key.hash], now).as_deref() {
        Ok([Some(DedupeOutcome::Ingested { content, .. } | DedupeOutcome::IngestedLate { content, .. })]) => {
            key.is_of(*content)
        }
        _ => false,
    }
}

/// The due time of the jobs that the parameters name.
fn due(parameters: &Parameters, now: Timestamp) -> Result<Option<Timestamp>, HttpRefusal> {
    let (name, due) = match (parameters.get("due"), parameters.get("delay")) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            let error = "`due` and `delay` cannot both be the due time: send one of them";
            return Err(HttpRefusal::wrong(error).closing());
        }
        (Some(due), None) => ("due", due_time::at(due)),
        (None, Some(delay)) => ("delay", due_time::after(delay, now)),
    };
    due.map(Some).map_err(|why| HttpRefusal::wrong(format!("parameter `{name}`: {why}")).closing())
}

/// Whether the client asks for the job itself in the answer.
fn prefers_representation(headers: &HeaderMap) -> bool {
    let preferences = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    let mut preferences = preferences.flat_map(|value| value.split([',', ';']));
    preferences.any(|preference| preference.trim().eq_ignore_ascii_case(REPRESENTATION))
}

/// The answer with the job as a `GET` of it shows it.
async fn represented(
    response: Response,
    (queue, place): (&Address, PushedPlace),
    http: &HttpContext,
) -> Response {
    let context = http.context.clone();
    let _turn = http.looks.acquire().await;
    // The job is accepted in any case.
    let queue = queue.clone();
    let found = aside(move || match place {
        PushedPlace::Index(index) => job_status::status(&JobAddress { queue, index }, &context),
        PushedPlace::Late(id) => late_jobs::status(&LateAddress { queue, id }, &context),
    });
    let Ok(found) = found.await else { return response };
    let (parts, _) = response.into_parts();
    let mut response = Response::from_parts(parts, found.into_body());
    response.headers_mut().insert("preference-applied", HeaderValue::from_static(REPRESENTATION));
    response
}

/// The source at `address`, and its queue.
pub(crate) fn find<'c>(
    address: &Address,
    configuration: &'c Configuration,
) -> Result<(QueueRef, &'c HttpSource), HttpRefusal> {
    let mut names = Vec::new();
    for (position, queue) in configuration.queues.entries() {
        match &queue.source {
            Some(PushSource::Http(source)) if queue.address == *address => {
                return Ok((QueueRef(position), source));
            }
            Some(PushSource::Http(_)) => names.push(queue.address.to_string()),
            Some(PushSource::Schedule(_) | PushSource::Exec(_)) | None => {}
        }
    }
    let near = nearest(&address.to_string(), names.iter().map(String::as_str));
    let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    Err(HttpRefusal::missing(format!("HTTP source `{address}` is unknown{near}")).closing())
}

/// Refuses a request without the source's token.
pub(crate) fn admit(headers: &HeaderMap, source: &HttpSource) -> Result<(), HttpRefusal> {
    let Some(token) = &source.token else { return Ok(()) };
    let Some(shown) = headers.get(AUTHORIZATION) else {
        return Err(HttpRefusal::unknown_caller("a token is missing: send `authorization: Bearer TOKEN`"));
    };
    let shown = shown.as_bytes();
    match shown.split_at_checked(7) {
        Some((scheme, shown)) if scheme.eq_ignore_ascii_case(b"bearer ") && token.is(shown.trim_ascii()) => {
            Ok(())
        }
        _ => Err(HttpRefusal::unknown_caller("the token does not match the source")),
    }
}

/// Refuses a request about jobs without a token: that of their HTTP source. Jobs that no client pushed need the token of
/// an HTTP source of their pipeline or, if none has one, of any pipeline.
pub(crate) fn admit_reader(
    headers: &HeaderMap,
    queue: &Address,
    configuration: &Configuration,
) -> Result<(), HttpRefusal> {
    if let Ok((_, source)) = find(queue, configuration) {
        return admit(headers, source);
    }
    let with_token = |own: bool| {
        let queues = configuration.queues.iter();
        let queues = queues.filter(move |other| !own || other.address.pipeline == queue.pipeline);
        queues.filter_map(|other| match &other.source {
            Some(PushSource::Http(source)) if source.token.is_some() => Some(source),
            _ => None,
        })
    };
    let mut sources: Vec<&HttpSource> = with_token(true).collect();
    if sources.is_empty() {
        sources = with_token(false).collect();
    }
    let mut refusal = Ok(());
    for source in sources {
        refusal = admit(headers, source);
        if refusal.is_ok() {
            break;
        }
    }
    refusal
}

fn unknown_form() -> HttpRefusal {
    let error = "the content type is missing or unknown: send `content-type: application/json` for one job, \
                 or `application/x-ndjson` for one job per line";
    HttpRefusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error).closing()
}

fn header_key(headers: &HeaderMap) -> Result<Option<Vec<u8>>, HttpRefusal> {
    let Some(key) = headers.get("idempotency-key").map(|key| key.as_bytes().trim_ascii()) else {
        return Ok(None);
    };
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        let error = format!("`Idempotency-Key` must have 1 to {KEY_BYTES_MAX} bytes");
        return Err(HttpRefusal::wrong(error).closing());
    }
    Ok(Some(key.to_vec()))
}

/// No commit succeeds while a disk is full, so no job is accepted.
pub(crate) fn refuse_while_full(context: &RunnerContext) -> Result<(), HttpRefusal> {
    let Some(why) = context.handle.stats().full() else { return Ok(()) };
    let error = format!("the disk is full, so nothing was accepted: {why}");
    Err(HttpRefusal::later(StatusCode::SERVICE_UNAVAILABLE, error).closing())
}

/// Waits for the answer that comes with a commit. `None`: the wait timed out, or the disk is full, so the
/// time of the next commit is unknown.
pub(crate) async fn committed<T>(answer: impl Future<Output = T>, context: &RunnerContext) -> Option<T> {
    let mut answer = std::pin::pin!(answer);
    let until = Instant::now() + COMMIT_PATIENCE;
    loop {
        match timeout(LOOKS, &mut answer).await {
            Ok(answer) => return Some(answer),
            Err(_) if context.handle.stats().full().is_some() || Instant::now() >= until => return None,
            Err(_) => {}
        }
    }
}

/// Backpressure: refuses jobs while too many of the source wait for their steps.
fn have_room(queue: QueueRef, source: &HttpSource, http: &HttpContext) -> Result<(), HttpRefusal> {
    let waiting = http.context.handle.waiting(queue);
    match source.max_waiting {
        Some(most) if waiting >= most => {
            let error = format!("{waiting} jobs of the source wait (`max_waiting` is {most}): send it again");
            Err(HttpRefusal::later(StatusCode::TOO_MANY_REQUESTS, error).closing())
        }
        _ => Ok(()),
    }
}

/// Returns the answer, and the place of the one job of a body. `room` is held until the jobs are on disk, also if the client disconnects.
async fn push(
    (intake, room): (Intake, Option<OwnedSemaphorePermit>),
    form: BodyForm,
    (address, queue): (&Address, QueueRef),
    http: &HttpContext,
) -> Result<(Response, Option<PushedPlace>), HttpRefusal> {
    let (sender, answered) = oneshot::channel();
    let Intake { jobs, whole, each, lines, late, .. } = intake;
    let due = late.clone();
    // A client that disconnected needs no answer.
    let answer = Box::new(move |outcome| {
        drop(room);
        let _ = sender.send(outcome);
    });
    if !http.context.handle.push(Push { queue, jobs, whole, each, late, answer }) {
        return Err(HttpRefusal::ending());
    }
    match committed(answered, &http.context).await {
        Some(Ok(Ok(pushed))) => Ok(taken(&pushed, form, address, (&lines, &due))),
        Some(Ok(Err(conflict))) => Err(other_content(conflict, form, address, &lines)),
        // The request can no longer be withdrawn.
        Some(Err(_)) | None => {
            let error = "the jobs may have been accepted: send them again with the same key";
            Err(HttpRefusal::later(StatusCode::SERVICE_UNAVAILABLE, error).closing())
        }
    }
}

/// The answer for one job on the queue.
#[derive(Serialize)]
struct One {
    job: String,
    /// The time at which it is appended, if it is late.
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<String>,
    /// The job is a duplicate.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    known: bool,
}

/// The answer for several jobs on the queue.
#[derive(Serialize)]
struct Many {
    queue: String,
    /// Number of new jobs.
    jobs: u64,
    /// The indices of the first and the last new job.
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<u64>,
    /// The whole body is a duplicate, and these jobs were new at the time.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    known: bool,
    /// The duplicates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    known_lines: Vec<KnownLine>,
    /// The new jobs that are appended later.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    late_lines: Vec<LateLine>,
}

#[derive(Serialize)]
struct LateLine {
    /// Missing in the answer to a duplicate.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    job: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<String>,
}

#[derive(Serialize)]
struct KnownLine {
    line: u32,
    job: String,
}

/// The answer, and the place of the one job of a body. `due`: the due times by position.
fn taken(
    pushed: &Pushed,
    form: BodyForm,
    address: &Address,
    (lines, due): (&[u32], &BTreeMap<usize, Timestamp>),
) -> (Response, Option<PushedPlace>) {
    let (first, jobs, known, late) = match pushed {
        Pushed::Appended { first, jobs, known, late } => (*first, *jobs, &known[..], &late[..]),
        Pushed::Known { first, jobs, .. } => (*first, *jobs, &[][..], &[][..]),
    };
    let all_known = matches!(pushed, Pushed::Known { .. });
    let is_new = !all_known && (jobs > 0 || !late.is_empty());
    let status = if is_new { StatusCode::ACCEPTED } else { StatusCode::OK };
    let due = |position: &usize| due.get(position).copied().map(rfc3339);
    if form == BodyForm::Json {
        let new = late.first().map(|&(_, id)| PushedPlace::Late(id));
        let before = match pushed {
            Pushed::Known { jobs: 0, late_first, .. } => Some(PushedPlace::Late(*late_first)),
            _ => known.first().map(|&(_, place)| place),
        };
        let place = before.or(new).unwrap_or(PushedPlace::Index(first));
        let due = late.first().and_then(|(position, _)| due(position));
        let one = One { job: name(address, place), due, known: !is_new };
        return (at_job(status, &one, &name(address, place)), Some(place));
    }
    let known_lines = known
        .iter()
        .map(|&(position, place)| KnownLine { line: line(lines, position), job: name(address, place) });
    let new_late = late.iter().map(|(position, id)| LateLine {
        line: Some(line(lines, *position)),
        job: name(address, PushedPlace::Late(*id)),
        due: due(position),
    });
    let known_late = match pushed {
        Pushed::Known { late_first: ParkedId(first), late, .. } => *first..*first + late,
        Pushed::Appended { .. } => 0..0,
    };
    let known_late = known_late.map(|id| LateLine {
        line: None,
        job: name(address, PushedPlace::Late(ParkedId(id))),
        due: None,
    });
    let some = (jobs > 0).then_some(first);
    let many = Many {
        queue: address.to_string(),
        jobs,
        first: some,
        last: some.map(|first| first + jobs - 1),
        known: all_known,
        known_lines: known_lines.collect(),
        late_lines: new_late.chain(known_late).collect(),
    };
    (json(status, &many), None)
}

fn other_content(conflict: KeyConflict, form: BodyForm, address: &Address, lines: &[u32]) -> HttpRefusal {
    let job = conflict.earlier.map(|earlier| name(address, earlier));
    let error = match (conflict.position, form) {
        (None, _) => {
            "another body was already accepted with this `Idempotency-Key`; nothing was accepted".to_owned()
        }
        (Some(_), BodyForm::Json) => {
            "another job was already accepted with this key; this one was not accepted".to_owned()
        }
        (Some(position), BodyForm::Ndjson) => {
            let line = line(lines, position);
            let place =
                if conflict.earlier.is_some() { "was already accepted" } else { "is on an earlier line" };
            format!("line {line}: another job {place} with this key; no job was accepted")
        }
    };
    HttpRefusal::conflict(error, job)
}

/// The address of a job, as text.
fn name(queue: &Address, place: PushedPlace) -> String {
    match place {
        PushedPlace::Index(index) => format!("{queue}/{index}"),
        PushedPlace::Late(id) => LateAddress { queue: queue.clone(), id }.to_string(),
    }
}

/// The line of the job at `position`.
fn line(lines: &[u32], position: usize) -> u32 {
    lines.get(position).copied().unwrap_or(1)
}
