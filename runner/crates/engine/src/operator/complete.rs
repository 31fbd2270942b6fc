//! External completion: checks the token of a pending job, and records the status that its external system
//! reports.
//!
//! An accepted completion is stored with the job and delivered from there, in as many attempts as it takes. A
//! record of it distinguishes repeated completions from contradicting ones.

use std::time::Duration;

use serde_json::value::RawValue;
use tidegate_plugin::{Outputs, Payloads};

use super::effect::{RequestEffect, error_text};
use super::request::{CompletionOutcome, RequestOutcome};
use crate::batch::events::{EventWriter, JobEvent};
use crate::batch::reason;
use crate::processor::monitor_protocol::JobVerdict;
use tidegate_config::{Configuration, InputMode, PluginStepConfig, Processor, Step};
use tidegate_model::{
    Address, DeliveryHash, Due, ExternalStatus, Timestamp, delivery_hash, key_hash, piece_hash,
};
use tidegate_store::{
    Changes, CompletionRecord, DedupeOutcome, DedupeRecord, ParkReason, ParkedId, ParkedJob, ParkedKey,
    ReadError, Store,
};

/// Time for which a completion is remembered.
const KNOWN: Duration = Duration::from_hours(7 * 24);

/// Maximum number of pieces of a job whose tokens are accepted.
const PIECES_MAX: u32 = 256;

/// Job that a token belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenClaim {
    pub step: Address,
    pub index: u64,
    /// Row of the job, if the search has found it.
    pub row: Option<ParkedId>,
}

/// External completion of a pending job.
pub(crate) struct ExternalCompletion<'a> {
    pub(crate) step: usize,
    pub(crate) index: u64,
    pub(crate) token: &'a str,
    pub(crate) completion: &'a CompletionRecord,
    pub(crate) row: Option<ParkedId>,
}

/// Job that `token` belongs to, among those made of the job at `index` of `queue`.
///
/// # Errors
/// The store cannot be read.
pub fn claim(
    store: &Store,
    configuration: &Configuration,
    (queue, index): (&Address, u64),
    token: &str,
) -> Result<Option<TokenClaim>, ReadError> {
    let Some(key) = store.token_key()? else { return Ok(None) };
    for step in &configuration.steps {
        let (times, pieces) = pieces(step);
        let accepts = |hash: DeliveryHash| {
            let all = (0..times).flat_map(|earlier| (0..pieces).map(move |piece| (earlier, piece)));
            let mut all = all.map(|(earlier, piece)| piece_hash(hash, earlier, piece));
            all.any(|hash| key.accepts(hash, token.as_bytes()))
        };
        let claim = |row| Some(TokenClaim { step: step.address.clone(), index, row });
        for input in step.inputs.iter().filter(|input| input.address == *queue) {
            let name = input.hash_name();
            if step.take != InputMode::Join {
                if !accepts(hash_of(step, &[(name.clone(), index)])) {
                    continue;
                }
                // For a queued step, the running engine knows the rows of the jobs.
                let row = match step.picks() {
                    Some(_) => None,
                    None => pending(store, step, (&name, index), |_| true)?,
                };
                return Ok(claim(row));
            }
            // Only the job itself has the other parts of its tuple.
            let is_it = |job: &ParkedJob| accepts(hash_of(step, &job.inputs));
            let row = pending(store, step, (&name, index), is_it)?;
            if row.is_some() || store.delivery(record(step, token))?.is_some() {
                return Ok(claim(row));
            }
        }
    }
    Ok(None)
}

/// Number of the pending job that was made of the job at `index` of an input and satisfies `is_it`.
fn pending(
    store: &Store,
    step: &Step,
    input: (&str, u64),
    is_it: impl Fn(&ParkedJob) -> bool,
) -> Result<Option<ParkedId>, ReadError> {
    // There is more than one only if a job was put back while an external system had it.
    let rows = store.parked_of(&step.address, input)?;
    let pending = rows.iter().find(|(_, job)| job.reason.outside().is_some() && is_it(job));
    Ok(pending.map(|(key, _)| key.id))
}

/// Maximum number of uses of a plugin in the step, and of pieces of a job there. Each has a token of its own,
/// and each token completes the job.
fn pieces(step: &Step) -> (u32, u32) {
    let plugins: Vec<String> =
        step.processors.iter().filter_map(Processor::plugin).map(PluginStepConfig::named).collect();
    let times = plugins.iter().map(|one| plugins.iter().filter(|other| *other == one).count()).max();
    let alone = plugins.is_empty() || step.processors.len() == 1;
    (times.and_then(|times| times.try_into().ok()).unwrap_or(1), if alone { 1 } else { PIECES_MAX })
}

/// Completion in `body`, which is JSON in the form of a monitor's verdict.
///
/// # Errors
/// The reason for which it is malformed, as a sentence fragment.
pub fn completion_of(body: &[u8]) -> Result<CompletionRecord, String> {
    let raw: &RawValue = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let word = JobVerdict::read(raw)?.ok_or("`null` is not a status of the job")?;
    let result = word.result.map(|result| result.get().to_owned());
    Ok(CompletionRecord { status: word.status, result, reason: word.reason })
}

/// Whether `step` can deliver the result.
///
/// # Errors
/// The reason for a refusal, as a sentence fragment.
pub fn check(step: &Step, completion: &CompletionRecord) -> Result<(), String> {
    if completion.status != ExternalStatus::Committed || completion.result.is_none() {
        return Ok(());
    }
    let mut outputs = Outputs::new(step.outputs.iter().map(|output| output.binding.as_str()));
    JobVerdict::of(completion).settle(b"null", &mut outputs).map_err(|failure| failure.message)
}

/// Records the completion with the job, if the job is pending.
pub(crate) fn complete(
    store: &Store,
    configuration: &Configuration,
    external: &ExternalCompletion<'_>,
    mut changes: Changes,
) -> Result<RequestEffect, String> {
    let step = &configuration.steps[external.step];
    let ExternalCompletion { index, completion, .. } = *external;
    let (record, content) = (record(step, external.token), completion.content());
    let keys: Vec<ParkedKey> = external.row.iter().map(|row| row.of(&step.address)).collect();
    let found = store.parked(&keys).map_err(|error| error_text(&error))?.pop().flatten();
    let is_it = |job: &ParkedJob| job.inputs.iter().any(|&(_, other)| other == index);
    let job = found.filter(is_it).filter(|job| job.reason.status().is_some_and(ExternalStatus::waits));
    let done = |changes, completed| Ok(RequestEffect::new(changes, RequestOutcome::Completed(completed)));
    let Some(job) = job else {
        let before = store.delivery(record).map_err(|error| error_text(&error))?;
        let completed = match before {
            Some(DedupeOutcome::CompletedExternally { content: before, .. }) if before == content => {
                CompletionOutcome::Duplicate
            }
            Some(DedupeOutcome::CompletedExternally { status, .. }) => CompletionOutcome::Conflict { status },
            _ => CompletionOutcome::NotPending,
        };
        return done(changes, completed);
    };
    let (from, status) = (job.reason.status().unwrap_or(ExternalStatus::Pending), completion.status);
    if from == status {
        return done(changes, CompletionOutcome::Duplicate);
    }
    if !from.may_become(status) {
        return done(changes, CompletionOutcome::Refused { from });
    }
    // A job that stays pending has no due time. A completed job is due at once, even if the clock is set
    // back.
    let due = if status.waits() { Due::Never } else { Due::Now };
    let keep_until = Some(changes.now + KNOWN);
    let job = ParkedJob { due, ..with_completion(job, completion.clone()) };
    changes.reparked.extend(keys.into_iter().map(|key| (key, job.clone())));
    let outcome = DedupeOutcome::CompletedExternally { status, content };
    changes.dedupe_records.push(DedupeRecord { hash: record, outcome, times: None, keep_until });
    let events = valid_event(step, &job, completion, changes.now);
    let mut effect = RequestEffect::new(changes, RequestOutcome::Completed(CompletionOutcome::Taken));
    effect.append_events(configuration, step, events);
    effect.completed = true;
    Ok(effect)
}

/// Records that a job is valid, unless it is not pending any more.
pub(crate) fn validate(
    store: &Store,
    configuration: &Configuration,
    step: usize,
    row: ParkedId,
    mut changes: Changes,
) -> Result<RequestEffect, String> {
    let step = &configuration.steps[step];
    let key = row.of(&step.address);
    let found = store.parked(std::slice::from_ref(&key)).map_err(|error| error_text(&error))?.pop().flatten();
    let status = ExternalStatus::Valid;
    let is_new = |from: ExternalStatus| from != status && from.waits() && from.may_become(status);
    let Some(job) = found.filter(|job| job.reason.status().is_some_and(is_new)) else {
        let outcome = RequestOutcome::Completed(CompletionOutcome::NotPending);
        return Ok(RequestEffect::new(changes, outcome));
    };
    let completion = CompletionRecord { status, result: None, reason: None };
    let events = valid_event(step, &job, &completion, changes.now);
    changes.reparked.push((key, with_completion(job, completion)));
    let mut effect = RequestEffect::new(changes, RequestOutcome::Completed(CompletionOutcome::Taken));
    effect.append_events(configuration, step, events);
    Ok(effect)
}

/// Event of a job that is valid. Other completions have theirs in the commit that delivers them.
fn valid_event(step: &Step, job: &ParkedJob, completion: &CompletionRecord, now: Timestamp) -> Payloads {
    let mut events = Payloads::new();
    if completion.status.waits()
        && let Some(writer) = EventWriter::new(step)
    {
        let reason = completion.reason.clone().map(reason::bounded_text);
        let event = JobEvent::Verdict { status: completion.status, reason: reason.as_deref() };
        writer.write(&writer.of_row(job), &event, now, &mut events);
    }
    events
}

fn with_completion(job: ParkedJob, completion: CompletionRecord) -> ParkedJob {
    let reason = match job.reason {
        ParkReason::Pending { handle, since } | ParkReason::Completed { handle, since, .. } => {
            ParkReason::Completed { handle, since, completion }
        }
        other => other,
    };
    ParkedJob { reason, ..job }
}

fn hash_of(step: &Step, inputs: &[(String, u64)]) -> DeliveryHash {
    let (pipeline, name) = (step.address.pipeline.as_str(), step.address.name.as_str());
    let inputs = inputs.iter().map(|(input, index)| (input.as_str(), std::slice::from_ref(index)));
    delivery_hash(pipeline, name, inputs)
}

/// Key of the record of all completions under `token`.
fn record(step: &Step, token: &str) -> DeliveryHash {
    let Address { pipeline, name, .. } = &step.address;
    key_hash(pipeline.as_str(), name.as_str(), "completion", token.as_bytes())
}
