//! From the jobs of a batch, input by input, to what an attempt is given: one payload and its origin.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use super::held::{Attempt, Portion, Returned, Work};
use super::provenance;
use tidegate_components::script::json;
use tidegate_config::{Configuration, Input, Meta, Step, Take};
use tidegate_model::{Address, Batch, DeliveryHash, Form, HashPrefix, Timestamp, delivery_hash};
use tidegate_store::{Completion, JobForm};

/// How a step sees its inputs.
#[derive(Debug)]
pub(crate) struct Gatherer {
    pipeline: String,
    step: String,
    pub(crate) take: Take,
    pub(crate) inputs: Vec<Seen>,
    /// For `from`: what is the same in all its hashes.
    prefix: HashPrefix,
    /// Jobs of alternatives come as a map with their binding.
    wraps: bool,
    /// The payload of a join, or of an alternative, in the making.
    payload: Vec<u8>,
    carries: bool,
}

/// An input as its step sees it.
#[derive(Debug)]
pub(crate) struct Seen {
    /// As it enters the delivery hash: the binding, or for `from` the address.
    pub(crate) name: String,
    pub(crate) address: Address,
    meta: Meta,
}

/// One job for one attempt.
#[derive(Clone, Debug)]
pub(crate) struct Item<'a> {
    pub(crate) payload: &'a [u8],
    pub(crate) form: Form,
    /// Why it cannot be run: the source could not make sense of it, or a part of it is no JSON.
    pub(crate) fault: Option<Cow<'a, str>>,
    /// By input, the index that it gave; 0 where it gave nothing.
    pub(crate) indices: &'a [u64],
    row: &'a [Place<'a>],
    inputs: &'a [Seen],
    pub(crate) hash: DeliveryHash,
    /// From 1.
    pub(crate) attempt: u32,
    /// When the first attempt began, if this is not the first.
    pub(crate) first_attempt: Option<Timestamp>,
    /// It was made already, for this output of the step.
    pub(crate) to: Option<&'a str>,
    /// Its provenance as JSON; empty where it carries none.
    pub(crate) carried: String,
    /// The attempt before this one, if that was made in this run and the job stands nowhere since.
    before: Option<&'a Attempt>,
}

/// Walks over the jobs of a batch.
#[derive(Debug)]
pub(crate) struct Walk<'w> {
    /// Of each side of a row: its portions, and where in them the walk is.
    sides: Vec<(&'w [Portion], usize)>,
    row: Vec<Place<'w>>,
    indices: Vec<u64>,
}

/// Where one job of a row stands.
#[derive(Clone, Copy, Debug)]
struct Place<'w> {
    input: usize,
    batch: &'w Batch,
    position: usize,
    returned: Option<&'w Returned>,
}

impl Gatherer {
    pub(crate) fn new(configuration: &Configuration, step: &Step) -> Self {
        let (pipeline, name) = (step.address.pipeline.to_string(), step.address.name.to_string());
        let inputs: Vec<Seen> = step
            .inputs
            .iter()
            .map(|input| Seen {
                name: input.hash_name(),
                address: input.address.clone(),
                meta: match input.input {
                    Input::Queue(queue) => configuration.queues[queue.0].meta,
                    Input::Source(_) => Meta::default(),
                },
            })
            .collect();
        let first = inputs.first().map_or("", |input| &input.name);
        Self {
            prefix: HashPrefix::new(&pipeline, &name, first),
            wraps: step.take == Take::Alts && (!step.processors.is_empty() || !step.filter.is_empty()),
            carries: inputs.iter().any(|input| !input.meta.is_empty()),
            pipeline,
            step: name,
            take: step.take,
            inputs,
            payload: Vec::new(),
        }
    }

    /// Whether the jobs of `work` carry anything.
    pub(crate) fn carries(&self, work: &Work) -> bool {
        self.carries
            || work.portions.iter().any(|portion| {
                portion.batch.carried.is_some()
                    || portion.returned.iter().flat_map(|all| all.iter()).any(|one| one.job.carried.is_some())
            })
    }

    /// The next job of the walk.
    pub(crate) fn next<'a>(&'a mut self, walk: &'a mut Walk<'_>, carries: bool) -> Option<Item<'a>> {
        walk.advance(self.inputs.len())?;
        // What most jobs are: one by itself, that carries nothing.
        if let (Take::From, &[place @ Place { returned: None, batch, .. }]) = (self.take, &walk.row[..])
            && !carries
        {
            let index = place.index();
            walk.indices[place.input] = index;
            return Some(Item {
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

    fn gather<'a>(&'a mut self, walk: &'a mut Walk<'_>, carries: bool) -> Item<'a> {
        let carried = if carries { self.carried(&walk.row) } else { String::new() };
        let fault = self.fault(&walk.row);
        let form = if walk.row.iter().all(|place| place.batch.form == Form::Json) {
            Form::Json
        } else {
            Form::Unchecked
        };
        if let [Place { returned: Some(returned), batch, position, .. }] = walk.row[..] {
            walk.indices.fill(0);
            for (name, index) in &returned.job.inputs {
                if let Some(input) = self.inputs.iter().position(|input| input.name == *name) {
                    walk.indices[input] = *index;
                }
            }
            let inputs = returned.job.inputs.iter();
            let hash = self.hash(inputs.map(|(name, index)| (name.as_str(), index)));
            return Item {
                payload: payload(batch, position),
                form: if returned.job.form == JobForm::Json { form } else { Form::Unchecked },
                fault,
                indices: &walk.indices,
                row: &walk.row,
                inputs: &self.inputs,
                hash,
                attempt: returned.job.attempt.saturating_add(1),
                first_attempt: returned.job.first_attempt,
                to: returned.job.to.as_deref(),
                carried,
                before: None,
            };
        }
        for place in &walk.row {
            walk.indices[place.input] = place.index();
        }
        let hash = match (self.take, &walk.row[..]) {
            (Take::From, [place]) => self.prefix.hash(place.index()),
            _ => {
                let inputs = self.inputs.iter().map(|input| input.name.as_str());
                self.hash(inputs.zip(&walk.indices).filter(|&(_, &index)| index > 0))
            }
        };
        let whole = match (self.take, &walk.row[..]) {
            (Take::From, [place]) => payload(place.batch, place.position),
            (Take::Alts, [place]) if !self.wraps => payload(place.batch, place.position),
            _ => {
                self.wrap(&walk.row);
                &self.payload
            }
        };
        Item {
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

    /// Of a job that the inputs gave at these indices.
    fn hash<'i>(&self, given: impl Iterator<Item = (&'i str, &'i u64)>) -> DeliveryHash {
        let given = given.map(|(name, index)| (name, std::slice::from_ref(index)));
        delivery_hash(&self.pipeline, &self.step, given)
    }

    /// Makes `payload` a map of binding → job.
    fn wrap(&mut self, row: &[Place<'_>]) {
        self.payload.clear();
        for (at, place) in row.iter().enumerate() {
            self.payload.extend_from_slice(if at == 0 { b"{\"" } else { b",\"" });
            // Names of bindings need no escapes.
            self.payload.extend_from_slice(self.inputs[place.input].name.as_bytes());
            self.payload.extend_from_slice(b"\":");
            self.payload.extend_from_slice(payload(place.batch, place.position));
        }
        self.payload.push(b'}');
    }

    /// A part that is no JSON could become another one's part in the whole, so each is looked at by
    /// itself where there is a whole.
    fn fault<'w>(&self, row: &[Place<'w>]) -> Option<Cow<'w, str>> {
        if let Some(fault) = row.iter().find_map(|place| place.batch.fault(place.position)) {
            return Some(fault.into());
        }
        if let [Place { returned: Some(returned), .. }] = row {
            let is_json = returned.job.form == JobForm::Json;
            return (!is_json).then(|| "the job is no JSON".into());
        }
        if self.take != Take::Join && !self.wraps {
            return None;
        }
        let unchecked = row.iter().filter(|place| place.batch.form == Form::Unchecked);
        unchecked.into_iter().find_map(|place| {
            let error = json::check(payload(place.batch, place.position)).err()?;
            let name = &self.inputs[place.input].name;
            Some(format!("the job of `{name}` is no JSON: {error}").into())
        })
    }

    fn carried(&self, row: &[Place<'_>]) -> String {
        let mut merged = provenance::Merged::default();
        for place in row {
            if let Some(returned) = place.returned {
                merged.add(returned.job.carried.as_deref().unwrap_or_default());
                continue;
            }
            let carried = place.batch.carried.as_ref().and_then(|carried| carried.get(place.position));
            merged.add(carried.and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default());
            let seen = &self.inputs[place.input];
            merged.stamp(&seen.address, seen.meta, place.index(), place.batch.stamp(place.position));
        }
        merged.into_text()
    }
}

impl<'w> Walk<'w> {
    pub(crate) fn new(work: &'w Work) -> Self {
        let sides = work.portions.chunk_by(|one, other| work.sequential || one.input == other.input);
        Self { sides: sides.map(|portions| (portions, 0)).collect(), row: Vec::new(), indices: Vec::new() }
    }

    fn advance(&mut self, inputs: usize) -> Option<()> {
        self.row.clear();
        // The same inputs give something each time, but where jobs came again.
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
            self.row.push(Place { input: portion.input, batch: &portion.batch, position, returned });
        }
        (!self.row.is_empty()).then_some(())
    }
}

impl<'a> Item<'a> {
    /// Takes up where the attempt before this one ended.
    pub(crate) fn goes_on_after(&mut self, before: &'a Attempt) {
        self.attempt = before.number.saturating_add(1);
        self.first_attempt = before.first;
        self.before = Some(before);
    }

    /// The error queue that it was put back from, and its index there.
    pub(crate) fn put_back_from(&self) -> Option<&(Address, u64)> {
        self.row.iter().find_map(|place| place.returned?.job.from_error.as_ref())
    }

    /// Where it stood in a file.
    pub(crate) fn file(&self) -> Option<(Arc<Path>, u64)> {
        self.row.iter().find_map(|place| {
            let places = place.batch.places.as_ref()?;
            Some((Arc::clone(&places.file), places.line(place.position)))
        })
    }

    /// What its last attempt failed of, if it was tried.
    pub(crate) fn last_error(&self) -> Option<&str> {
        if let Some(before) = self.before {
            return before.error.as_deref();
        }
        self.row.iter().find_map(|place| place.returned?.job.last_error.as_deref())
    }

    /// How the outside knows it that has it.
    pub(crate) fn handle(&self) -> Option<&str> {
        self.row.iter().find_map(|place| Some(place.returned?.job.standing.outside()?.0))
    }

    /// What an outside system has said of it, if that is to be delivered now.
    pub(crate) fn said(&self) -> Option<&Completion> {
        self.row.iter().find_map(|place| place.returned?.job.standing.outside()?.2)
    }

    /// The inputs that gave something, each with the index.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&Seen, u64)> {
        let given = self.inputs.iter().zip(self.indices);
        given.filter(|&(_, &index)| index > 0).map(|(seen, &index)| (seen, index))
    }

    /// The index of the first input that gave something.
    pub(crate) fn index(&self) -> u64 {
        self.given().next().map_or(0, |(_, index)| index)
    }
}

impl Place<'_> {
    fn index(&self) -> u64 {
        self.batch.first + self.position as u64
    }
}

fn payload(batch: &Batch, position: usize) -> &[u8] {
    // The walk ends where the batch does.
    batch.payloads.get(position).unwrap_or_default()
}

#[cfg(test)]
mod tests;
