//! What has become of one job: for each step that reads its queue, from progress, snapshots, delayed
//! jobs, error records and outputs, as far as they are still kept.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::made::Maker;
use super::subject::Subject;
use super::why::{self, Case};
use super::{Answer, partners, rfc3339};
use crate::config::{Configuration, InputRef, Step, Take, Target};
use crate::decide::{self, Progress};
use crate::engine::{self, Handle, Row};
use crate::store::{DelayedJob, DelayedKey, Made, Outcome, ReadError, Standing, Store};
use crate::words::{Address, Clock as _, SystemClock, Timestamp, delivery_hash};

/// So many delayed jobs are counted that wait before one.
const LOOKED_THROUGH_MAX: usize = 20_000;
/// So many outputs are told, and their payloads up to so many bytes.
const OUTPUTS_MAX: usize = 100;
const OUTPUT_BYTES: usize = 1 << 20;

/// One job, and what each step has made of it.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::face) struct JobStatus {
    /// `pipeline/queue/index`
    pub(in crate::face) job: String,
    /// When it was committed, where it is still kept; RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::face) time: Option<String>,
    /// Why what it is cannot be seen; ends a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::face) unreadable: Option<String>,
    /// What it is, where that was asked for; what is no JSON, as a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::face) payload: Option<Box<RawValue>>,
    /// In the order of the configuration.
    pub(in crate::face) steps: Vec<StepOutcome>,
}

/// What one step has made of a job.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::face) struct StepOutcome {
    pub(in crate::face) step: String,
    pub(in crate::face) status: Status,
    /// Attempts that were made, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::face) attempts: Option<u32>,
    /// Jobs that wait before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::face) before: Option<u64>,
    /// When it runs again; RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::face) until: Option<String>,
    /// Of a pending job: how the outside system knows it …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::face) handle: Option<String>,
    /// … since when it has it; RFC 3339 …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::face) since: Option<String>,
    /// … and what it has said of it unasked, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::face) told: Option<decide::Status>,
    /// Why it failed, last or for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::face) reason: Option<String>,
    /// Where its error stands: `pipeline/queue/index`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::face) error: Option<String>,
    /// What it is, or will be, joined with, as far as that is known: `pipeline/queue/index` each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::face) joined_with: Vec<String>,
    /// What keeps it from running, where that was asked for and is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::face) why: Vec<String>,
    /// What was made of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::face) outputs: Vec<Output>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::face) enum Status {
    /// It has not been attempted, as far as the store knows.
    Waiting,
    /// An attempt was begun that may be seen outside.
    Running,
    /// It runs again at a time.
    Delayed,
    /// An outside system finishes it.
    Pending,
    /// It stands on an error queue.
    Failed,
    /// It was there before the step began, and is none of its jobs.
    Before,
    /// It is accounted for. What came of it is told where it is still kept.
    Done,
}

/// Something that was made of a job.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::face) struct Output {
    /// `pipeline/queue/index`
    pub(in crate::face) job: String,
    /// What stands there, unless that is too long to be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::face) result: Option<Box<RawValue>>,
}

#[expect(clippy::option_option, reason = "whether it is asked why, and whether there is a run to ask")]
pub(super) fn status(
    store: &Store,
    configuration: &Configuration,
    (queue, index): (&str, u64),
    run: Option<Option<&Handle>>,
) -> Result<Answer, ReadError> {
    let subject = match Subject::find(store, configuration, (queue, index), run.is_some())? {
        Ok(subject) => subject,
        Err(missing) => return Ok(missing),
    };
    let Subject { address, first, time, payload, unreadable } = subject;
    let now = SystemClock.now();
    let mut steps = Vec::new();
    for step in &configuration.steps {
        for input in step.inputs.iter().filter(|input| input.address == address) {
            let look = Look { store, configuration, run, step, input, index, first, time, now };
            steps.push(look.outcome()?);
        }
    }
    let time = time.map(rfc3339);
    Ok(Answer::Job(JobStatus { job: format!("{queue}/{index}"), time, unreadable, payload, steps }))
}

/// One step and one job of one of its inputs.
#[expect(clippy::option_option, reason = "whether it is asked why, and whether there is a run to ask")]
struct Look<'a> {
    store: &'a Store,
    configuration: &'a Configuration,
    /// Where it is asked why a job does not run: the run, if there is one.
    run: Option<Option<&'a Handle>>,
    step: &'a Step,
    input: &'a InputRef,
    index: u64,
    /// The index of the oldest job that is kept.
    first: u64,
    time: Option<Timestamp>,
    now: Timestamp,
}

impl Look<'_> {
    fn outcome(&self) -> Result<StepOutcome, ReadError> {
        let (store, step) = (self.store, &self.step.address);
        let progress = engine::progress(store, self.step, self.input)?;
        if !progress.has(self.index) {
            let snapshots = store.snapshots(step)?;
            let begun = snapshots.iter().find(|snapshot| {
                let mut inputs = snapshot.inputs.iter();
                inputs.any(|one| {
                    one.address == self.input.address
                        && (one.first..one.first + one.jobs).contains(&self.index)
                })
            });
            let before = self.before(&progress)?;
            let of_this = |status| StepOutcome { before: Some(before), ..self.of(status) };
            let (mut why, runs) = self.why(None)?;
            if let Some(begun) = begun {
                let joined_with = partners::begun(self.input, self.index, begun);
                return Ok(StepOutcome { joined_with, why, ..of_this(Status::Running) });
            }
            if runs {
                return Ok(StepOutcome { why, ..of_this(Status::Running) });
            }
            let before_it = progress.open(self.first, self.index - 1);
            let partners = partners::of_waiting(store, self.step, self.input, before_it)?;
            if self.run.is_some() {
                why.extend(partners.why);
            }
            return Ok(StepOutcome { why, joined_with: partners.with, ..of_this(Status::Waiting) });
        }
        if self.index <= progress.before() {
            return Ok(self.of(Status::Before));
        }
        if let Some((key, job)) = self.delayed()? {
            let row = Row { due: key.due, sequence: key.sequence };
            let (why, runs) = self.why(Some(row))?;
            let waits = job.waits_for_turn(key.due, self.now);
            let before = if waits { Some(self.before(&progress)?) } else { None };
            let status = match job.standing {
                Standing::Delayed if runs => Status::Running,
                Standing::Delayed if waits => Status::Waiting,
                Standing::Delayed => Status::Delayed,
                Standing::Started => Status::Running,
                Standing::Pending { .. } | Standing::Told { .. } => Status::Pending,
            };
            let outside = job.standing.outside();
            let handle = outside.map(|(handle, ..)| handle.to_owned());
            let since = outside.map(|(_, since, _)| rfc3339(since));
            let told = outside.and_then(|(.., said)| said).map(|said| said.status);
            return Ok(StepOutcome {
                // An output may be due, and not be handed on yet.
                until: (status == Status::Delayed && key.due > self.now).then(|| rfc3339(key.due)),
                before,
                attempts: Some(job.attempt),
                handle,
                since,
                told,
                joined_with: partners::others(self.step, self.input, &job.inputs),
                reason: job.last_error,
                why,
                ..self.of(status)
            });
        }
        let errors = self.errors()?;
        if let Some(outcome) = self.error(&errors)? {
            return Ok(outcome);
        }
        let (outputs, joined_with) = self.outputs()?;
        let nowhere = errors.is_empty() && outputs.is_empty();
        let failed = nowhere && self.on_record()? == Some(Outcome::Error);
        let status = if failed { Status::Failed } else { Status::Done };
        Ok(StepOutcome { joined_with, outputs, ..self.of(status) })
    }

    /// How its delivery ended, where that is on record: longer than what it has made may be kept.
    fn on_record(&self) -> Result<Option<Outcome>, ReadError> {
        // Only the other jobs that were joined with it would tell the hash.
        if self.step.take == Take::Join {
            return Ok(None);
        }
        let (name, Address { pipeline, name: step, .. }) = (self.input.hash_name(), &self.step.address);
        let inputs = [(name.as_str(), std::slice::from_ref(&self.index))];
        self.store.delivery(delivery_hash(pipeline.as_str(), step.as_str(), inputs))
    }

    /// How many jobs wait before it, those among them that stand in the store by themselves.
    fn before(&self, progress: &Progress) -> Result<u64, ReadError> {
        let (name, step) = (self.input.hash_name(), &self.step.address);
        let is_before = |(input, index): &(String, u64)| *input == name && *index < self.index;
        let mut before = progress.open(self.first, self.index - 1);
        for row in self.store.delayed_by(step, self.now).take(LOOKED_THROUGH_MAX) {
            let (key, job) = row?;
            before += u64::from(job.waits_for_turn(key.due, self.now) && job.inputs.iter().any(is_before));
        }
        Ok(before)
    }

    fn of(&self, status: Status) -> StepOutcome {
        StepOutcome {
            step: self.step.address.to_string(),
            status,
            attempts: None,
            before: None,
            until: None,
            handle: None,
            since: None,
            told: None,
            reason: None,
            error: None,
            joined_with: Vec::new(),
            why: Vec::new(),
            outputs: Vec::new(),
        }
    }

    /// What keeps the job from running, and whether it runs, as far as that is asked for. Of a step that takes
    /// its jobs as they come the first is what is before it.
    fn why(&self, row: Option<Row>) -> Result<(Vec<String>, bool), ReadError> {
        let Some(run) = self.run else { return Ok((Vec::new(), false)) };
        let (store, configuration, step) = (self.store, self.configuration, self.step);
        let now = self.now;
        let position = configuration.steps.iter().position(|one| one.address == step.address);
        if let Some(position) = position
            && let Some(case) = Case::of(store, configuration, run, position, now)?
        {
            return Ok((case.reasons(self.index, row)?, case.runs(self.index, row)));
        }
        let paused = store.pauses()?.iter().any(|pause| pause.step == step.address);
        Ok((paused.then(|| why::paused(&step.address.to_string())).into_iter().collect(), false))
    }

    fn delayed(&self) -> Result<Option<(DelayedKey, DelayedJob)>, ReadError> {
        self.store.delayed_of(&self.step.address, (&self.input.hash_name(), self.index))
    }

    /// What stands of it on the error queue.
    fn errors(&self) -> Result<Vec<Made>, ReadError> {
        let queue = self.step.errors.map(|queue| &self.configuration.queues[queue.0].address);
        queue.map_or(Ok(Vec::new()), |queue| self.made_on(queue, usize::MAX))
    }

    fn error(&self, errors: &[Made]) -> Result<Option<StepOutcome>, ReadError> {
        #[derive(Deserialize)]
        struct Failed {
            attempt: u32,
            message: String,
        }
        // One that was retried may stand there more than once: the last one counts.
        let (Some(queue), Some(Made { index, payload: record, origin })) = (self.step.errors, errors.last())
        else {
            return Ok(None);
        };
        let queue = &self.configuration.queues[queue.0].address;
        if self.store.handled(queue)?.unwrap_or_default().has(*index) {
            return Ok(None);
        }
        let record: Option<Failed> = serde_json::from_slice(record).ok();
        let (attempts, reason) = record.map(|record| (record.attempt, record.message)).unzip();
        let error = Some(format!("{queue}/{index}"));
        let joined_with = partners::others(self.step, self.input, &origin.inputs);
        Ok(Some(StepOutcome { attempts, reason, error, joined_with, ..self.of(Status::Failed) }))
    }

    /// What was made of it, and what went into that with it.
    fn outputs(&self) -> Result<(Vec<Output>, Vec<String>), ReadError> {
        let (mut outputs, mut with, mut bytes) = (Vec::new(), Vec::new(), 0);
        for output in &self.step.outputs {
            let Target::Queue(queue) = output.target else { continue };
            let queue = &self.configuration.queues[queue.0].address;
            for Made { index, payload, origin } in self.made_on(queue, OUTPUTS_MAX - outputs.len())? {
                with = partners::others(self.step, self.input, &origin.inputs);
                bytes += payload.len();
                let result = String::from_utf8(payload).ok().filter(|_| bytes <= OUTPUT_BYTES);
                let result = result.and_then(|result| RawValue::from_string(result).ok());
                outputs.push(Output { job: format!("{queue}/{index}"), result });
            }
        }
        Ok((outputs, with))
    }

    fn made_on(&self, queue: &Address, most: usize) -> Result<Vec<Made>, ReadError> {
        let input = self.input.hash_name();
        let (store, step, index, since) = (self.store, &self.step.address, self.index, self.time);
        Maker { store, step, input: &input, index, since }.made_on(queue, most)
    }
}
