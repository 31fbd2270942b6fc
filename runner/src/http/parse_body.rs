//! `Intake`: the jobs and keys in the bytes of a body. Uses no connection, and does no I/O.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyper::header::HeaderValue;
use serde_json::Value;
use tidegate_plugin::Payloads;

use super::response::{HttpRefusal, Place};
use crate::due_time;
use tidegate_components::accept::{AcceptCheck, RefusalReason};
use tidegate_components::script::json;
use tidegate_config::{HttpSource, RequestSchema, SchemaFault};
use tidegate_engine::IdempotencyKey;
use tidegate_model::log_target;
use tidegate_model::{
    Address, DeliveryHash, FieldPath, NameHistory, Timestamp, content_hash, key_hash, on_one_line, value_hash,
};

/// Places in one answer about jobs that do not match a schema.
const PLACES_MAX: usize = 100;

/// The format of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyForm {
    /// One job.
    Json,
    /// One job per line.
    Ndjson,
}

/// The owner of idempotency keys: the first name of a source, so that a rename forgets none.
#[derive(Clone, Debug)]
pub(crate) struct KeyOwner {
    /// As the queue is named now.
    address: Address,
    pipeline: String,
    queue: String,
}

impl KeyOwner {
    pub(crate) fn of(queue: &Address, names: &NameHistory) -> Self {
        let address = queue.clone();
        let (Address { pipeline, name }, number) = names.first_name(queue);
        let pipeline = pipeline.to_string();
        // No name has a space.
        let queue = if number == 0 { name.to_string() } else { format!("{name} {number}") };
        Self { address, pipeline, queue }
    }

    pub(crate) fn hash(&self, sort: &str, key: &[u8]) -> DeliveryHash {
        key_hash(&self.pipeline, &self.queue, sort, key)
    }
}

/// Whether the job of a key, with this content, was accepted before.
pub(crate) type IsKnown<'a> = dyn Fn(&IdempotencyKey) -> bool + 'a;

/// The part of a request besides its body, and the rules for its jobs.
#[derive(Clone, Debug)]
pub(crate) struct IntakeRules {
    pub(crate) schema: Option<Arc<RequestSchema>>,
    /// The `Idempotency-Key`.
    pub(crate) header: Option<Vec<u8>>,
    /// The due time of jobs that name none.
    pub(crate) due: Option<Timestamp>,
    pub(crate) now: Timestamp,
}

/// The content of a body.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    pub(crate) jobs: Payloads,
    pub(crate) whole: Option<IdempotencyKey>,
    pub(crate) each: Vec<IdempotencyKey>,
    /// Due times of the jobs that are appended later, by position.
    pub(crate) late: BTreeMap<usize, Timestamp>,
    /// With [`BodyForm::Ndjson`]: the line of each job, from 1.
    pub(crate) lines: Vec<u32>,
    /// A job is missing, since the body is refused.
    is_partial: bool,
    /// The `accept` script refuses a job.
    by_script: bool,
}

impl BodyForm {
    /// The form of a content type. A missing one is refused, since any page in a browser could post without
    /// it.
    pub(crate) fn of(content_type: Option<&HeaderValue>) -> Option<Self> {
        let written = content_type?.to_str().ok()?;
        let kind = written.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match kind.as_str() {
            "application/x-ndjson"
            | "application/ndjson"
            | "application/jsonl"
            | "application/json-lines"
            | "application/x-jsonlines" => Some(Self::Ndjson),
            "application/json" => Some(Self::Json),
            kind if kind.starts_with("application/") && kind.ends_with("+json") => Some(Self::Json),
            _ => None,
        }
    }
}

/// Estimated bytes for parsing a body, until its jobs are on disk: the jobs twice, the end and the line of
/// each, and each key several times.
pub(crate) fn cost(body: &[u8], form: BodyForm, source: &HttpSource) -> usize {
    const JOB_BYTES: usize = 40;
    const KEY_BYTES: usize = 160;
    let jobs = match form {
        BodyForm::Json => 1,
        BodyForm::Ndjson => memchr::memchr_iter(b'\n', body).count() + 1,
    };
    let each = if source.key.is_none() { JOB_BYTES } else { JOB_BYTES + KEY_BYTES };
    2 * body.len() + jobs.saturating_mul(each)
}

/// Reads all jobs, or returns the error of the first invalid one. Jobs that were accepted before need not match the
/// present schema and script.
pub(crate) fn read(
    body: &[u8],
    form: BodyForm,
    (queue, source): (&KeyOwner, &HttpSource),
    (rules, is_known): (&IntakeRules, &IsKnown<'_>),
    mut accept: Option<&mut AcceptCheck>,
) -> Result<Intake, HttpRefusal> {
    let mut intake = Intake::default();
    let mut places = Vec::new();
    match form {
        BodyForm::Json => {
            let checks = (rules, is_known, accept.as_deref_mut());
            intake.take((body, None), (queue, source), checks, &mut places).map_err(HttpRefusal::wrong)?;
        }
        BodyForm::Ndjson => {
            for (line, number) in body.split(|&byte| byte == b'\n').zip(1_u32..) {
                if line.trim_ascii().is_empty() {
                    continue;
                }
                let job = (line, Some(number));
                let checks = (rules, is_known, accept.as_deref_mut());
                intake.take(job, (queue, source), checks, &mut places).map_err(|why| {
                    HttpRefusal::wrong(format!("line {number}: {why}; no job was accepted"))
                })?;
                intake.lines.push(number);
            }
            if intake.jobs.is_empty() && places.is_empty() {
                return Err(HttpRefusal::wrong("the body has no job: send one JSON value per line"));
            }
        }
    }
    let whole = rules.header.as_ref().filter(|_| !intake.is_partial).map(|key| IdempotencyKey {
        hash: queue.hash("header", key),
        content: intake.content(),
        verbatim: content_hash(body.trim_ascii()),
    });
    if !places.is_empty() && !whole.as_ref().is_some_and(is_known) {
        places.truncate(PLACES_MAX);
        return Err(HttpRefusal::unfit(places, intake.by_script));
    }
    intake.whole = whole;
    Ok(intake)
}

/// The parts of a job that do not match the schema. `Err`: it cannot be checked.
fn faults(schema: &RequestSchema, job: &[u8], line: Option<u32>) -> Result<Vec<Place>, Place> {
    let job: Value = serde_json::from_slice(job).map_err(|error| {
        let error = error.to_string();
        // Its line is one of the job, not of the body.
        let why = error.split(" at line ").next().unwrap_or_default();
        Place { line, at: String::new(), error: format!("the schema cannot check it: {why}") }
    })?;
    let faults = schema.faults(&job).into_iter();
    Ok(faults.map(|SchemaFault { at, error }| Place { line, at, error }).collect())
}

/// The reasons for which the script of the source refuses a job.
fn refusals(accept: &mut AcceptCheck, job: &[u8], (queue, line): (&KeyOwner, Option<u32>)) -> Vec<Place> {
    match accept.reasons(job) {
        Ok(reasons) => {
            let place = |RefusalReason { at, reason }| Place { line, at, error: reason };
            reasons.into_iter().map(place).collect()
        }
        Err(failure) => {
            let error = failure.to_string();
            let source = &queue.address;
            tracing::warn!(target: log_target::HTTP, %source, error, "the `accept` script of a source has failed");
            vec![Place { line, at: String::new(), error: "the source cannot check the job".to_owned() }]
        }
    }
}

impl Intake {
    /// Adds a job, or the places at which it does not match the schema. The error is a fragment.
    fn take(
        &mut self,
        (job, line): (&[u8], Option<u32>),
        source: (&KeyOwner, &HttpSource),
        (rules, is_known, accept): (&IntakeRules, &IsKnown<'_>, Option<&mut AcceptCheck>),
        places: &mut Vec<Place>,
    ) -> Result<(), String> {
        // The body is refused already.
        if places.len() >= PLACES_MAX {
            self.is_partial = true;
            return Ok(());
        }
        let found = rules.schema.as_ref().map(|schema| faults(schema, job, line)).transpose();
        let has_faults = matches!(&found, Ok(Some(found)) if !found.is_empty());
        // Its message about a text that is not JSON has more details.
        match self.add(job, source, rules) {
            Err(_) if has_faults => self.is_partial = true,
            added => added?,
        }
        // It is JSON, but it may have a number beyond a double.
        let mut found = found.unwrap_or_else(|fault| Some(vec![fault])).unwrap_or_default();
        let mut by_script = false;
        if let Some(accept) = accept.filter(|_| found.is_empty()) {
            let stored = self.jobs.get(self.jobs.len() - 1).unwrap_or_default();
            (found, by_script) = (refusals(accept, stored, (source.0, line)), true);
        }
        let key = || self.each.last().filter(|_| !self.is_partial);
        if !found.is_empty() && !key().is_some_and(is_known) {
            places.extend(found);
            self.by_script |= by_script;
        }
        Ok(())
    }

    /// The error is a fragment.
    fn add(
        &mut self,
        job: &[u8],
        (queue, source): (&KeyOwner, &HttpSource),
        rules: &IntakeRules,
    ) -> Result<(), String> {
        json::check(job).map_err(|error| match job.trim_ascii() {
            [] => "the body is empty".to_owned(),
            _ => format!("the job is not JSON: {error}"),
        })?;
        let job = job.trim_ascii();
        let text = std::str::from_utf8(job).map_err(|_| "the job is not JSON: it is not UTF-8".to_owned())?;
        if job.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
            self.jobs.push(on_one_line(text).as_bytes());
        } else {
            self.jobs.push(job);
        }
        if let Some(path) = &source.key {
            let stored = self.jobs.get(self.jobs.len() - 1).unwrap_or_default();
            let verbatim = content_hash(stored);
            self.each.push(key(text, path, queue, verbatim)?);
        }
        // A job that is due by now is appended at once.
        if let Some(due) = due(text, source, rules)?.filter(|due| *due > rules.now) {
            self.late.insert(self.jobs.len() - 1, due);
        }
        Ok(())
    }

    /// A hash of the content of all jobs together.
    fn content(&self) -> u64 {
        let each = self.jobs.iter().map(|job| value_hash(std::str::from_utf8(job).unwrap_or_default()));
        content_hash(&each.flat_map(u64::to_le_bytes).collect::<Vec<u8>>())
    }
}

/// The due time of a job: that of its own fields, or that of the request.
fn due(job: &str, source: &HttpSource, rules: &IntakeRules) -> Result<Option<Timestamp>, String> {
    let value = |path: &Option<FieldPath>| {
        let path = path.as_ref()?;
        path.find(job.as_bytes()).filter(|value| *value != "null").map(|value| (path.clone(), value))
    };
    let (path, due) = match (value(&source.due), value(&source.delay)) {
        (None, None) => return Ok(rules.due),
        (Some((due, _)), Some((delay, _))) => {
            return Err(format!("the job has `{due}` and `{delay}`, and one of them must be its due time"));
        }
        (Some((path, value)), None) => {
            let due = text(value).map_or_else(|| due_time::at_millis(value), |text| due_time::at(&text));
            (path, due)
        }
        (None, Some((path, value))) => {
            let now = rules.now;
            let due = text(value)
                .map_or_else(|| due_time::after_millis(value, now), |text| due_time::after(&text, now));
            (path, due)
        }
    };
    due.map(Some).map_err(|why| format!("`{path}`: {why}"))
}

/// The text of a JSON string.
fn text(value: &str) -> Option<String> {
    value.starts_with('"').then(|| serde_json::from_str(value).ok()).flatten()
}

/// The key of a job, at the given path.
fn key(job: &str, path: &FieldPath, queue: &KeyOwner, verbatim: u64) -> Result<IdempotencyKey, String> {
    let lacks = || {
        if job.starts_with('[') {
            return format!(
                "a list is one job and has no `{path}`: send one job per line as `application/x-ndjson`"
            );
        }
        format!("the job lacks `{path}`, the key of its source")
    };
    let value = path.find(job.as_bytes()).ok_or_else(lacks)?;
    let hash = match value.as_bytes().first() {
        Some(b'"') => {
            let text: String = serde_json::from_str(value).map_err(|error| error.to_string())?;
            queue.hash("text", text.as_bytes())
        }
        Some(b'0'..=b'9' | b'-') => queue.hash("number", value.as_bytes()),
        Some(b'n') => return Err(lacks()),
        _ => return Err(format!("`{path}` must be a text or a number, since it is the key")),
    };
    Ok(IdempotencyKey { hash, content: value_hash(job), verbatim })
}

#[cfg(test)]
mod tests;
