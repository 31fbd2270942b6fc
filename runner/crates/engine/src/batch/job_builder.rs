//! Job builder: makes the input of each attempt, a payload with its origin, from the jobs of a batch.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use super::input::{BatchInput, BatchSlice, FailedAttempt, RedeliveredJob};
use super::provenance;
use tidegate_components::script::json;
use tidegate_config::{Configuration, Input, InputMode, Meta, Step};
use tidegate_model::{Address, Batch, DeliveryHash, Form, HashPrefix, Timestamp, delivery_hash};
use tidegate_store::{
    CompletionRecord, DeliveryTimes, FinishedResult, JobForm, ParkReason, ParkedId, ParkedJob,
};

/// Inputs of a step, as its attempts get them.
#[derive(Debug)]
pub(crate) struct JobBuilder {
    pipeline: String,
    step: String,
    pub(crate) take: InputMode,
    pub(crate) inputs: Vec<StepInput>,
    /// Common prefix of all delivery hashes of a step with `from`.
    prefix: HashPrefix,
    /// Whether a job is wrapped in a map with its binding (`alts`).
    wraps_in_binding: bool,
    /// Buffer for the payload of a join or of an alternative.
    payload: Vec<u8>,
    carries: bool,
}

/// Input of a step.
#[derive(Debug)]
pub(crate) struct StepInput {
    /// Name in a map of jobs; empty for `from`.
    binding: String,
    /// Name in the delivery hash.
    pub(crate) name: String,
    pub(crate) address: Address,
    meta: Meta,
}

/// Input that a job was made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GivenInput<'a> {
    /// Name in the delivery hash.
    pub(crate) name: &'a str,
    /// `None` for a binding that the step has no more.
    address: Option<&'a Address>,
    pub(crate) index: u64,
}

/// One job for one attempt.
#[derive(Clone, Debug)]
pub(crate) struct JobInput<'a> {
    pub(crate) payload: &'a [u8],
    pub(crate) form: Form,
    /// Reason for which it cannot run: the source could not read it, or a part of it is not JSON.
    pub(crate) fault: Option<Cow<'a, str>>,
    /// Index by input; 0 if the input has no job here.
    pub(crate) indices: &'a [u64],
    row: &'a [InputCell<'a>],
    inputs: &'a [StepInput],
    pub(crate) hash: DeliveryHash,
    /// Number of the attempt, from 1.
    pub(crate) attempt: u32,
    /// Start of the first attempt, if this is a later one.
    pub(crate) first_attempt: Option<Timestamp>,
    /// Output of the step that it is for, if it is a delayed output.
    pub(crate) to: Option<&'a str>,
    /// Provenance as JSON; empty if there is none.
    pub(crate) carried: String,
    /// Last attempt, if it was made in this run and the job is not parked.
    before: Option<&'a FailedAttempt>,
}

/// Cursor over the jobs of a batch.
#[derive(Debug)]
pub(crate) struct BatchCursor<'w> {
    /// Portions of each side of a row, with the position in them.
    sides: Vec<(&'w [BatchSlice], usize)>,
    row: Vec<InputCell<'w>>,
    indices: Vec<u64>,
}

/// Position of one job of a row.
#[derive(Clone, Copy, Debug)]
struct InputCell<'w> {
    input: Option<usize>,
    batch: &'w Batch,
    position: usize,
    returned: Option<&'w RedeliveredJob>,
}

impl JobBuilder {
    pub(crate) fn new(configuration: &Configuration, step: &Step) -> Self {
        let (pipeline, name) = (step.address.pipeline.to_string(), step.address.name.to_string());
        let inputs: Vec<StepInput> = step
            .inputs
            .iter()
            .map(|input| StepInput {
                binding: input.binding.clone(),
                name: input.hash_name(),
                address: input.address.clone(),
                meta: match input.input {
                    Input::Queue(queue) => configuration.queues[queue.0].meta,
                    Input::Source(source) => configuration.sources[source.0].meta,
                },
            })
            .collect();
        let first = inputs.first().map_or("", |input| &input.name);
        Self {
            prefix: HashPrefix::new(&pipeline, &name, first),
            wraps_in_binding: step.take == InputMode::Alts
                && (!step.processors.is_empty() || !step.filter.is_empty() || step.joins.is_some()),
            carries: inputs.iter().any(|input| !input.meta.is_empty()),
            pipeline,
            step: name,
            take: step.take,
            inputs,
            payload: Vec::new(),
        }
    }

    /// Whether the jobs of `work` have provenance.
    pub(crate) fn has_provenance(&self, work: &BatchInput) -> bool {
        self.carries
            || work.portions.iter().any(|portion| {
                portion.batch.carried.is_some()
                    || portion.returned.iter().flat_map(|all| all.iter()).any(|one| one.job.carried.is_some())
            })
    }

    /// Builds the next job of the batch.
    pub(crate) fn next<'a>(
        &'a mut self,
        walk: &'a mut BatchCursor<'_>,
        carries: bool,
    ) -> Option<JobInput<'a>> {
        walk.advance(self.inputs.len())?;
        // Fast path: a single job without provenance, which is the most frequent case.
        if let (InputMode::From, &[place @ InputCell { input: Some(input), returned: None, batch, .. }]) =
            (self.take, &walk.row[..])
            && !carries
        {
            let index = place.index();
            walk.indices[input] = index;
            return Some(JobInput {
                payload: payload(batch, place.position),
                form: batch.form,
                fault: batch.fault(place.position).map(Cow::from),
                indices: &walk.indices,
                row: &walk.row,
                inputs: &self.inputs,
                hash: self.prefix.hash(index),
                attempt: 1,
                first_attempt: None,
                to: None,
                carried: String::new(),
                before: None,
            });
        }
        Some(self.gather(walk, carries))
    }

    fn gather<'a>(&'a mut self, walk: &'a mut BatchCursor<'_>, carries: bool) -> JobInput<'a> {
        let carried = if carries { self.carried(&walk.row) } else { String::new() };
        let fault = self.fault(&walk.row);
        let form = if walk.row.iter().all(|place| place.batch.form == Form::Json) {
            Form::Json
        } else {
            Form::Unchecked
        };
        if let [InputCell { returned: Some(returned), batch, position, .. }] = walk.row[..] {
            walk.indices.fill(0);
            for (name, index) in &returned.job.inputs {
                if let Some(input) = self.inputs.iter().position(|input| input.name == *name) {
                    walk.indices[input] = *index;
                }
            }
            let inputs = returned.job.inputs.iter();
            let hash = self.hash(inputs.map(|(name, index)| (name.as_str(), index)));
            return JobInput {
                payload: payload(batch, position),
                form: if returned.job.form == JobForm::Json { form } else { Form::Unchecked },
                fault,
                indices: &walk.indices,
                row: &walk.row,
                inputs: &self.inputs,
                hash,
                attempt: returned.job.attempt.saturating_add(1),
                first_attempt: returned.job.first_attempt,
                to: returned.job.output(),
                carried,
                before: None,
            };
        }
        for place in &walk.row {
            if let Some(input) = place.input {
                walk.indices[input] = place.index();
            }
        }
        let hash = match (self.take, &walk.row[..]) {
            (InputMode::From, [place]) => self.prefix.hash(place.index()),
            _ => {
                let inputs = self.inputs.iter().map(|input| input.name.as_str());
                self.hash(inputs.zip(&walk.indices).filter(|&(_, &index)| index > 0))
            }
        };
        let whole = match (self.take, &walk.row[..]) {
            (InputMode::From, [place]) => payload(place.batch, place.position),
            (InputMode::Alts, [place]) if !self.wraps_in_binding => payload(place.batch, place.position),
            _ => {
                self.wrap(&walk.row);
                &self.payload
            }
        };
        JobInput {
            payload: whole,
            form,
            fault,
            indices: &walk.indices,
            row: &walk.row,
            inputs: &self.inputs,
            hash,
            attempt: 1,
            first_attempt: None,
            to: None,
            carried,
            before: None,
        }
    }

    /// Delivery hash of a job with these input indices.
    fn hash<'i>(&self, given: impl Iterator<Item = (&'i str, &'i u64)>) -> DeliveryHash {
        let given = given.map(|(name, index)| (name, std::slice::from_ref(index)));
        delivery_hash(&self.pipeline, &self.step, given)
    }

    /// Makes `payload` a map of binding → job.
    fn wrap(&mut self, row: &[InputCell<'_>]) {
        self.payload.clear();
        for (at, place) in row.iter().enumerate() {
            self.payload.extend_from_slice(if at == 0 { b"{\"" } else { b",\"" });
            // Names of bindings need no escapes.
            let name = place.input.map_or("", |input| &*self.inputs[input].binding);
            self.payload.extend_from_slice(name.as_bytes());
            self.payload.extend_from_slice(b"\":");
            self.payload.extend_from_slice(payload(place.batch, place.position));
        }
        self.payload.push(b'}');
    }

    /// Reason for which a part is not JSON. Each part is checked on its own, because the parts could become
    /// valid JSON together.
    fn fault<'w>(&self, row: &[InputCell<'w>]) -> Option<Cow<'w, str>> {
        if let Some(fault) = row.iter().find_map(|place| place.batch.fault(place.position)) {
            return Some(fault.into());
        }
        if let [InputCell { returned: Some(returned), .. }] = row {
            let is_json = returned.job.form == JobForm::Json;
            return (!is_json).then(|| "the job is not JSON".into());
        }
        if self.take != InputMode::Join && !self.wraps_in_binding {
            return None;
        }
        let unchecked = row.iter().filter(|place| place.batch.form == Form::Unchecked);
        unchecked.into_iter().find_map(|place| {
            let error = json::check(payload(place.batch, place.position)).err()?;
            let name = &self.inputs.get(place.input?)?.name;
            Some(format!("the job of `{name}` is not JSON: {error}").into())
        })
    }

    fn carried(&self, row: &[InputCell<'_>]) -> String {
        let mut merged = provenance::MergedProvenance::default();
        for place in row {
            if let Some(returned) = place.returned {
                merged.add(returned.job.carried.as_deref().unwrap_or_default());
                continue;
            }
            let carried = place.batch.carried.as_ref().and_then(|carried| carried.get(place.position));
            merged.add(carried.and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default());
            let Some(seen) = place.input.and_then(|input| self.inputs.get(input)) else { continue };
            merged.stamp(&seen.address, seen.meta, (place.batch, place.position));
        }
        merged.into_text()
    }
}

impl<'w> BatchCursor<'w> {
    pub(crate) fn new(work: &'w BatchInput) -> Self {
        let sides = work.portions.chunk_by(|one, other| work.is_picked || one.input == other.input);
        Self { sides: sides.map(|portions| (portions, 0)).collect(), row: Vec::new(), indices: Vec::new() }
    }

    fn advance(&mut self, inputs: usize) -> Option<()> {
        self.row.clear();
        // Every row has jobs of the same inputs, unless jobs were redelivered.
        self.indices.resize(inputs, 0);
        for (portions, at) in &mut self.sides {
            while *at >= portions.first()?.jobs {
                *portions = &portions[1..];
                *at = 0;
            }
            let portion = portions.first()?;
            let position = portion.skip + *at;
            *at += 1;
            let returned = portion.returned.as_ref().and_then(|all| all.get(position));
            self.row.push(InputCell { input: portion.input, batch: &portion.batch, position, returned });
        }
        (!self.row.is_empty()).then_some(())
    }
}

impl<'a> JobInput<'a> {
    /// Continues after the last attempt of this run.
    pub(crate) fn goes_on_after(&mut self, before: &'a FailedAttempt) {
        self.attempt = before.number.saturating_add(1);
        self.first_attempt = before.first;
        self.before = Some(before);
    }

    /// Error queue that it was retried from, and its index there.
    pub(crate) fn put_back_from(&self) -> Option<&(Address, u64)> {
        self.row.iter().find_map(|place| place.returned?.job.from_error.as_ref())
    }

    /// File and line that it was read from.
    pub(crate) fn file(&self) -> Option<(Arc<Path>, u64)> {
        self.row.iter().find_map(|place| {
            let places = place.batch.places.as_ref()?;
            Some((Arc::clone(&places.file), places.line(place.position)))
        })
    }

    /// Error of the last attempt, if there was one.
    pub(crate) fn last_error(&self) -> Option<&str> {
        if let Some(before) = self.before {
            return before.error.as_deref();
        }
        self.row.iter().find_map(|place| place.returned?.job.last_error.as_deref())
    }

    /// Times up to its delivery. `began`: the begin of its attempt, if it has one now.
    pub(crate) fn times(&self, began: Option<Timestamp>) -> DeliveryTimes {
        let created = self.row.iter().filter_map(|place| match place.returned {
            Some(returned) => returned.job.created,
            None => place.batch.stamp(place.position).map(|stamp| stamp.time),
        });
        // A tuple could be made when its youngest job was there.
        let created = created.max();
        let submitted = self.row.iter().find_map(|place| place.returned?.job.submitted());
        let first_attempt = self.first_attempt.or(began);
        DeliveryTimes { attempts: self.attempt, created, first_attempt, submitted }
    }

    /// Handle under which an external system has it.
    pub(crate) fn handle(&self) -> Option<&str> {
        self.row.iter().find_map(|place| Some(place.returned?.job.reason.outside()?.0))
    }

    /// Result that is in the store, and is to be delivered now.
    pub(crate) fn finished_result(&self) -> Option<&'a FinishedResult> {
        let row: &'a [InputCell<'a>] = self.row;
        row.iter().find_map(|place| match &place.returned?.job.reason {
            ParkReason::Finished { result } => Some(result),
            _ => None,
        })
    }

    /// External completion that is to be delivered now.
    pub(crate) fn completion(&self) -> Option<&CompletionRecord> {
        self.row.iter().find_map(|place| place.returned?.job.reason.outside()?.2)
    }

    /// Its row, if it was parked.
    pub(crate) fn returned_row(&self) -> Option<(ParkedId, &'a ParkedJob)> {
        self.row.iter().find_map(|place| place.returned.map(|returned| (returned.key.id, &returned.job)))
    }

    /// Inputs that have a job here. A job that was parked names its own, which the step may not read any more.
    pub(crate) fn given(&self) -> impl Iterator<Item = GivenInput<'_>> {
        let parked = match self.row {
            [InputCell { returned: Some(returned), .. }] => Some(&returned.job.inputs),
            _ => None,
        };
        let is_parked = parked.is_some();
        let own = self.inputs.iter().zip(self.indices).filter(move |(_, index)| !is_parked && **index > 0);
        let own =
            own.map(|(seen, &index)| GivenInput { name: &seen.name, address: Some(&seen.address), index });
        let parked = parked.into_iter().flatten().map(|(name, index)| {
            let seen = self.inputs.iter().find(|input| input.name == *name);
            GivenInput { name, address: seen.map(|seen| &seen.address), index: *index }
        });
        parked.chain(own)
    }

    /// The input with its only job, and the index of the job; `None` if it was made from several jobs.
    pub(crate) fn only_input(&self) -> Option<(&str, u64)> {
        let mut given = self.given();
        let GivenInput { name, index, .. } = given.next()?;
        (index > 0 && given.next().is_none()).then_some((name, index))
    }

    /// Index in the first input that has a job here.
    pub(crate) fn index(&self) -> u64 {
        self.given().next().map_or(0, |given| given.index)
    }
}

impl GivenInput<'_> {
    /// Address of the input. A binding that the step has no more is given by its name.
    pub(crate) fn from(&self) -> String {
        self.address.map_or_else(|| self.name.to_owned(), ToString::to_string)
    }
}

impl InputCell<'_> {
    fn index(&self) -> u64 {
        self.batch.first + self.position as u64
    }
}

fn payload(batch: &Batch, position: usize) -> &[u8] {
    // The cursor ends with the batch.
    batch.payloads.get(position).unwrap_or_default()
}

#[cfg(test)]
mod tests;
