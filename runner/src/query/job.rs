//! `JobStatus`: the outcome of one job at each step that reads its queue. It is computed from progress,
//! snapshots, parked jobs, delivery records, error records and outputs that are still kept.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::explain;
use super::explain::WaitCase;
use super::job_outputs::Maker;
use super::job_payload::{Subject, raw};
use super::join_partners::Parts;
use super::pending_fields::PendingFields;
use super::{Answer, join_partners, parked_payload, rfc3339, stopped};
use crate::output::times;
use tidegate_config::{Configuration, DeliveryGuarantee, InputRef, Step, Target};
use tidegate_dispatch::Turn;
use tidegate_engine::{DropKind, Handle};
use tidegate_model::{Address, Clock as _, Progress, SystemClock, Timestamp};
use tidegate_store::{
    DedupeOutcome, DeliveryRecord, ParkReason, ParkedId, ParkedJob, ParkedKey, ReadError, Snapshot, Store,
    StoredOutput,
};

/// Parked jobs that are counted before one, at most.
const LOOKED_THROUGH_MAX: usize = 20_000;
/// Outputs per answer, and bytes of their payloads.
const OUTPUTS_MAX: usize = 100;
const OUTPUT_BYTES: usize = 1 << 20;

/// One job, and its outcome at each step.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct JobStatus {
    /// `pipeline/queue/index`
    pub(crate) job: String,
    /// The commit time, while the job is kept, or a record of it; RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) time: Option<String>,
    /// The payload, if it was requested; a text if it is not JSON. `null` if it cannot be shown.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub(crate) payload: Option<Box<RawValue>>,
    /// Why the payload cannot be shown; a sentence fragment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
    /// In the order of the configuration.
    pub(crate) steps: Vec<StepOutcome>,
}

/// The outcome of a job at one step.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StepOutcome {
    pub(crate) step: String,
    pub(crate) status: ReportedState,
    /// Number of attempts, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) attempts: Option<u32>,
    /// The commit time of the youngest job of a tuple, if it is recorded; RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<String>,
    /// Time of the first attempt, if it is recorded; RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) first_attempt: Option<String>,
    /// Time of its last submission to an external system, if it is recorded; RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) submitted: Option<String>,
    /// Time of the commit that ended it here, while its outputs, its error or its delivery record are kept; RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<String>,
    /// Number of jobs that wait before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<u64>,
    /// Time of the next attempt; RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<String>,
    #[serde(flatten)]
    pub(crate) pending: PendingFields,
    /// The error of the last attempt, or the final one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// The address of its error: `pipeline/queue/index`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// The known partners of a joined job: `pipeline/queue/index` each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) joined_with: Vec<String>,
    /// The reasons why it does not run, if requested and known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) why: Vec<String>,
    /// The jobs that were made from it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) outputs: Vec<Output>,
    /// The payload as the step has it, if it was read on the way.
    #[serde(skip)]
    kept: Option<KeptPayload>,
    /// The commit time of the job, if a record here has it.
    #[serde(skip)]
    job_created: Option<Timestamp>,
}

/// The jobs that a step made from one job.
#[derive(Debug, Default)]
struct MadeOutputs {
    outputs: Vec<Output>,
    /// The jobs that they were made from; empty if there are no outputs.
    parts: Parts,
    /// The time of the first one; RFC 3339.
    ended: Option<String>,
}

/// A payload that was read with the outcome of its job.
#[derive(Debug)]
enum KeptPayload {
    /// That of a parked job.
    Parked(Vec<u8>),
    /// An error record, which holds it.
    Failed(Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ReportedState {
    /// It has not been attempted, by the store's record.
    Waiting,
    /// An attempt with external effects was started.
    Begun,
    /// It runs again at a time.
    Delayed,
    /// An external system processes it.
    Pending,
    /// It is on an error queue.
    Failed,
    /// It is older than the step's first job, and the step skips it.
    Before,
    /// An operator dropped it, or an output of it that was due later.
    Cancelled,
    /// It is accounted for. Its outputs are listed while they are kept.
    Done,
}

impl ReportedState {
    /// The job is finished at this step.
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Self::Failed | Self::Before | Self::Cancelled | Self::Done)
    }
}

impl StepOutcome {
    fn new(step: &Address, status: ReportedState) -> Self {
        Self {
            step: step.to_string(),
            status,
            attempts: None,
            created: None,
            first_attempt: None,
            submitted: None,
            ended: None,
            before: None,
            until: None,
            pending: PendingFields::default(),
            reason: None,
            error: None,
            joined_with: Vec::new(),
            why: Vec::new(),
            outputs: Vec::new(),
            kept: None,
            job_created: None,
        }
    }

    /// With the facts of its delivery record that nothing else has.
    fn recorded(self, record: Option<DeliveryRecord>, parts: &[(String, u64)]) -> Self {
        let Some(DeliveryRecord { ended, times, .. }) = record else { return self };
        let attempts = self.attempts.or(times.map(|times| times.attempts));
        let times = times.unwrap_or_default();
        let outcome = self.created(times.created, parts);
        Self {
            attempts,
            first_attempt: times.first_attempt.map(rfc3339),
            submitted: times.submitted.map(rfc3339),
            ended: outcome.ended.or_else(|| ended.map(rfc3339)),
            ..outcome
        }
    }

    /// With the time of creation of the delivery of these jobs. That of a tuple may be the time of another job.
    fn created(self, created: Option<Timestamp>, parts: &[(String, u64)]) -> Self {
        match parts.len() {
            0 | 1 => Self { job_created: created, ..self },
            _ => Self { created: created.map(rfc3339), ..self },
        }
    }
}

/// A job that was made from this one.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Output {
    /// `pipeline/queue/index`
    pub(crate) job: String,
    /// Its payload, unless that is too long for the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<Box<RawValue>>,
    /// Its outcome at the steps that read its queue, if that is followed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) steps: Vec<StepOutcome>,
}

/// The parts of the answer that are requested.
pub(crate) struct JobSelection<'a> {
    /// The reasons why it does not run.
    pub(crate) why: bool,
    /// Its payload.
    pub(crate) whole: bool,
    /// The number of jobs before it.
    pub(crate) before: bool,
    pub(crate) run: Option<&'a Handle>,
}

pub(crate) fn status(
    store: &Store,
    configuration: &Configuration,
    (queue, index): (&str, u64),
    wanted: &JobSelection<'_>,
) -> Result<Answer, ReadError> {
    let subject = match Subject::find(store, configuration, (queue, index), wanted.whole)? {
        Ok(subject) => subject,
        Err(missing) => return Ok(missing),
    };
    let Subject { address, first, time, mut payload, note } = subject;
    let now = SystemClock.now();
    let run = wanted.why.then_some(wanted.run);
    let mut steps = Vec::new();
    for (position, step) in configuration.steps.entries() {
        for (at, input) in step.inputs.iter().enumerate().filter(|(_, input)| input.address == address) {
            let live = wanted.run.is_some();
            let counts = wanted.before;
            let look =
                JobQuery { store, configuration, run, live, counts, step, input, index, first, time, now };
            let mut outcome = look.outcome()?;
            let kept = outcome.kept.take();
            if wanted.whole && payload.is_none() {
                payload = match &kept {
                    Some(KeptPayload::Failed(record)) => parked_payload::failed(record, step, input),
                    Some(KeptPayload::Parked(payload)) => parked_payload::part(payload, step, input),
                    None if outcome.status.is_over() => None,
                    None => parked_payload::payload(store, step, input, index)?,
                };
                let in_memory = || wanted.run.and_then(|run| run.payload((position, at), index));
                if payload.is_none() && !outcome.status.is_over() {
                    payload = in_memory().as_deref().map(raw);
                }
            }
            steps.push(outcome);
        }
    }
    let gone = removed(store, configuration, (&address, index), now)?;
    if wanted.whole && payload.is_none() {
        payload = gone.iter().find(|(row, _)| row.output().is_none()).map(|(row, _)| raw(&row.payload));
    }
    steps.extend(gone.into_iter().map(|(_, outcome)| outcome));
    let recorded = || steps.iter().find_map(|step| step.job_created);
    let (job, time) = (format!("{queue}/{index}"), time.or_else(recorded).map(rfc3339));
    let note = note.filter(|_| payload.is_none());
    // The payload was requested, and none can be shown.
    let null = || RawValue::from_string("null".to_owned()).ok();
    if note.is_some() && wanted.whole {
        payload = null();
    }
    Ok(Answer::Job(JobStatus { job, time, payload, note, steps }))
}

/// The rows of the job at steps that were removed from the configuration. They continue when their step is
/// configured again.
fn removed(
    store: &Store,
    configuration: &Configuration,
    (input, index): (&Address, u64),
    now: Timestamp,
) -> Result<Vec<(ParkedJob, StepOutcome)>, ReadError> {
    let mut found = Vec::new();
    for (step, read, _) in store.all_progress()? {
        if read != *input || configuration.steps.iter().any(|one| one.address == step) {
            continue;
        }
        if let Some((_, row)) = store.first_parked_of(&step, (&input.to_string(), index))? {
            let why = vec!["its step is not in the configuration".to_owned()];
            let outcome = StepOutcome { why, ..of_row(&step, &row, false, now) };
            found.push((row, outcome));
        }
    }
    Ok(found)
}

/// The outcome from a row of the store. `runs`: an attempt is in progress.
fn of_row(step: &Address, job: &ParkedJob, runs: bool, now: Timestamp) -> StepOutcome {
    let status = match job.reason {
        ParkReason::Delayed | ParkReason::Output { .. } if runs => ReportedState::Begun,
        ParkReason::Delayed if job.waits_for_turn(now) => ReportedState::Waiting,
        ParkReason::Delayed | ParkReason::Output { .. } => ReportedState::Delayed,
        ParkReason::Started { .. } | ParkReason::Finished { .. } => ReportedState::Begun,
        ParkReason::Pending { .. } | ParkReason::Completed { .. } => ReportedState::Pending,
    };
    let mut pending = PendingFields::of(&job.reason);
    if let Some(since) = job.started() {
        pending.since = Some(rfc3339(since));
    }
    StepOutcome {
        // An output may be due and not yet delivered.
        until: job.due.waits_until(now).filter(|_| status == ReportedState::Delayed).map(rfc3339),
        attempts: Some(job.attempt),
        first_attempt: job.first_attempt.map(rfc3339),
        submitted: job.submitted().map(rfc3339),
        pending,
        reason: job.last_error.clone(),
        ..StepOutcome::new(step, status).created(job.created, &job.inputs)
    }
}

/// `null` is a payload of its own, different from a missing one.
fn some<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// One step and one job of one of its inputs.
#[expect(clippy::option_option, reason = "whether the reasons are requested, and whether a run can answer")]
struct JobQuery<'a> {
    store: &'a Store,
    configuration: &'a Configuration,
    /// Set if the reasons are requested: the run, if one is active.
    run: Option<Option<&'a Handle>>,
    /// A run has the store open.
    live: bool,
    /// The number of jobs before it is requested.
    counts: bool,
    step: &'a Step,
    input: &'a InputRef,
    index: u64,
    /// The index of the oldest job that is kept.
    first: u64,
    time: Option<Timestamp>,
    now: Timestamp,
}

impl JobQuery<'_> {
    fn outcome(&self) -> Result<StepOutcome, ReadError> {
        let store = self.store;
        let progress = tidegate_engine::progress(store, self.step, self.input)?;
        if !progress.is_done(self.index) {
            let begun = self.begun()?;
            let before = self.counted_before(&progress)?;
            let of_this = |status| StepOutcome { before, ..self.of(status) };
            let (mut why, runs) = self.why(None)?;
            if let Some(begun) = begun {
                let joined_with = join_partners::begun(self.input, self.index, &begun);
                return Ok(StepOutcome { joined_with, why, ..of_this(ReportedState::Begun) });
            }
            if runs {
                return Ok(StepOutcome { why, ..of_this(ReportedState::Begun) });
            }
            let before_it = progress.count_open(self.first, self.index - 1);
            let partners = join_partners::of_waiting(store, self.step, self.input, before_it)?;
            if self.run.is_some() {
                why.extend(partners.why);
            }
            return Ok(StepOutcome { why, joined_with: partners.with, ..of_this(ReportedState::Waiting) });
        }
        if self.index <= progress.skipped_up_to() {
            return Ok(self.of(ReportedState::Before));
        }
        if let Some((key, job)) = self.delayed()? {
            let (why, runs) = self.why(Some(key.id))?;
            let waits = job.waits_for_turn(self.now);
            let before = if waits { self.counted_before(&progress)? } else { None };
            let outcome = StepOutcome {
                before,
                joined_with: join_partners::others(self.step, self.input, &job.inputs),
                why,
                ..of_row(&self.step.address, &job, runs, self.now)
            };
            // It waits for a partner, and no attempt at it has failed.
            let outcome = match self.step.joins {
                Some(_) => StepOutcome { attempts: None, first_attempt: None, ..outcome },
                None => outcome,
            };
            // An output that is due later is another job.
            let kept = job.output().is_none().then_some(KeptPayload::Parked(job.payload));
            return Ok(StepOutcome { kept, ..outcome });
        }
        // Progress is committed before the attempt.
        if self.step.delivery == DeliveryGuarantee::AtMostOnce
            && self.live
            && let Some(begun) = self.begun()?
        {
            let joined_with = join_partners::begun(self.input, self.index, &begun);
            return Ok(StepOutcome { joined_with, ..self.of(ReportedState::Begun) });
        }
        let mut errors = self.errors()?;
        let has_errors = !errors.is_empty();
        // A retried job may have several error records: the last one counts.
        let last = errors.pop();
        let mut parts = last.as_ref().map_or_else(Vec::new, |last| last.origin.inputs.clone());
        if let Some(last) = last
            && let Some(outcome) = self.error(last)?
        {
            let (parts, record) = self.on_record(parts)?;
            return Ok(outcome.recorded(record, &parts));
        }
        let made = self.outputs()?;
        let MadeOutputs { outputs, ended, .. } = made;
        if !outputs.is_empty() {
            parts = made.parts;
        }
        let (parts, record) = self.on_record(parts)?;
        let joined_with = join_partners::others(self.step, self.input, &parts);
        let nowhere = !has_errors && outputs.is_empty();
        let input = self.input.hash_name();
        let dropped = tidegate_engine::dropped(store, &self.step.address, (&input, self.index))?;
        let status = match (nowhere, dropped) {
            (true, Some(_)) => ReportedState::Cancelled,
            (true, None) if record.is_some_and(|record| record.outcome == DedupeOutcome::Error) => {
                ReportedState::Failed
            }
            _ => ReportedState::Done,
        };
        let reason = dropped.filter(|_| nowhere).map(|dropped| match dropped {
            DropKind::Job => "it was dropped".to_owned(),
            DropKind::Output => "an output of it that was due later was dropped".to_owned(),
        });
        let outcome = StepOutcome { ended, reason, joined_with, outputs, ..self.of(status) };
        Ok(outcome.recorded(record, &parts))
    }

    /// The snapshot of its attempt that was started and is not delivered.
    fn begun(&self) -> Result<Option<Snapshot>, ReadError> {
        let has = |snapshot: &Snapshot| {
            let mut inputs = snapshot.inputs.iter();
            inputs.any(|one| {
                one.address == self.input.address && (one.first..one.first + one.jobs).contains(&self.index)
            })
        };
        Ok(self.store.snapshots(&self.step.address)?.into_iter().find(has))
    }

    /// Its delivery record; see [`join_partners::recorded`].
    fn on_record(&self, known: Parts) -> Result<(Parts, Option<DeliveryRecord>), ReadError> {
        join_partners::recorded(self.store, self.step, (self.input, self.index), known)
    }

    fn counted_before(&self, progress: &Progress) -> Result<Option<u64>, ReadError> {
        if self.counts { self.before(progress).map(Some) } else { Ok(None) }
    }

    /// Number of jobs that wait before it, parked ones included.
    fn before(&self, progress: &Progress) -> Result<u64, ReadError> {
        let (name, step) = (self.input.hash_name(), &self.step.address);
        let is_before = |(input, index): &(String, u64)| *input == name && *index < self.index;
        let mut before = progress.count_open(self.first, self.index - 1);
        for row in self.store.parked_due_by(step, self.now).take(LOOKED_THROUGH_MAX) {
            let (_, job) = row?;
            before += u64::from(job.waits_for_turn(self.now) && job.inputs.iter().any(is_before));
        }
        Ok(before)
    }

    fn of(&self, status: ReportedState) -> StepOutcome {
        StepOutcome::new(&self.step.address, status)
    }

    /// The requested reasons why the job does not run, and whether it runs. For an ordered step the first
    /// reason is the number of jobs before it.
    fn why(&self, row: Option<ParkedId>) -> Result<(Vec<String>, bool), ReadError> {
        let Some(run) = self.run else { return Ok((Vec::new(), false)) };
        let (store, configuration, step) = (self.store, self.configuration, self.step);
        let now = self.now;
        let position = configuration.steps.position(|one| one.address == step.address);
        if let Some(position) = position
            && let Some(case) = WaitCase::of(store, configuration, run, (position, Some(self.index)), now)?
        {
            return Ok((case.reasons(self.index, row)?, case.runs(self.index, row)));
        }
        let stopped = match position {
            Some(position) => stopped::sentence(store, run, (position, step), Some(self.index))?,
            None => None,
        };
        let paused = store.pauses()?.iter().any(|pause| pause.step == step.address);
        let paused = paused.then(|| explain::PAUSED.to_owned());
        // A parked job is the first in line, or outside of it.
        let first = if row.is_none() { tidegate_engine::first_in_line(store, step)? } else { None };
        let held = first.map(|(turn, due)| self.held_behind(turn, due));
        Ok((stopped.into_iter().chain(paused).chain(held).collect(), false))
    }

    fn held_behind(&self, Turn { index, input }: Turn, due: Timestamp) -> String {
        let input = &self.step.inputs[input].address;
        let of = if *input == self.input.address { String::new() } else { format!(" of `{input}`") };
        format!("it is delivered after job {index}{of}, whose next attempt is {}", times::due(due, self.now))
    }

    fn delayed(&self) -> Result<Option<(ParkedKey, ParkedJob)>, ReadError> {
        self.store.first_parked_of(&self.step.address, (&self.input.hash_name(), self.index))
    }

    /// Its records on the error queue.
    fn errors(&self) -> Result<Vec<StoredOutput>, ReadError> {
        let queue = self.step.errors.map(|queue| &self.configuration.queues[queue.0].address);
        queue.map_or(Ok(Vec::new()), |queue| self.made_on(queue, usize::MAX))
    }

    /// `None` if an operator has handled the error.
    fn error(&self, last: StoredOutput) -> Result<Option<StepOutcome>, ReadError> {
        #[derive(Deserialize)]
        struct Failed {
            attempt: u32,
            message: String,
        }
        let StoredOutput { index, time, payload: record, origin } = last;
        let Some(queue) = self.step.errors else { return Ok(None) };
        let queue = &self.configuration.queues[queue.0].address;
        if self.store.handled(queue)?.unwrap_or_default().is_done(index) {
            return Ok(None);
        }
        let failed: Option<Failed> = serde_json::from_slice(&record).ok();
        let (attempts, reason) = failed.map(|failed| (failed.attempt, failed.message)).unzip();
        let ended = Some(rfc3339(time));
        let error = Some(format!("{queue}/{index}"));
        let joined_with = join_partners::others(self.step, self.input, &origin.inputs);
        Ok(Some(StepOutcome {
            attempts,
            ended,
            reason,
            error,
            joined_with,
            kept: Some(KeptPayload::Failed(record)),
            ..self.of(ReportedState::Failed)
        }))
    }

    fn outputs(&self) -> Result<MadeOutputs, ReadError> {
        let (mut made, mut bytes) = (MadeOutputs::default(), 0);
        for output in &self.step.outputs {
            let Target::Queue(queue) = output.target else { continue };
            let queue = &self.configuration.queues[queue.0].address;
            for StoredOutput { index, time, payload, origin } in
                self.made_on(queue, OUTPUTS_MAX - made.outputs.len())?
            {
                made.ended.get_or_insert_with(|| rfc3339(time));
                made.parts = origin.inputs;
                bytes += payload.len();
                let result = String::from_utf8(payload).ok().filter(|_| bytes <= OUTPUT_BYTES);
                let result = result.and_then(|result| RawValue::from_string(result).ok());
                made.outputs.push(Output { job: format!("{queue}/{index}"), result, steps: Vec::new() });
            }
        }
        Ok(made)
    }

    fn made_on(&self, queue: &Address, most: usize) -> Result<Vec<StoredOutput>, ReadError> {
        let (store, index, since) = (self.store, self.index, self.time);
        // The job may have been delivered when its step or its input had another name.
        let names = store.name_history()?.names_of(&self.step.address, &self.input.hash_name());
        for (step, input) in &names {
            let made = Maker { store, step, input, index, since }.made_on(queue, most)?;
            if !made.is_empty() {
                return Ok(made);
            }
        }
        Ok(Vec::new())
    }
}
