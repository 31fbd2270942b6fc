//! Model: computes the expected deliveries of a step from the jobs of its inputs.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::history::{History, Known, Row};
use super::pass::Pass;
use super::twin::{self, Given, Made};
use tidegate_config::{Input, InputMode, Meta, QueueRef, SourceKind, SourceRef};
use tidegate_model::{Address, DeliveryHash, delivery_hash, rfc3339};

/// Provenance as JSON, by queue.
pub(crate) type Carried = BTreeMap<String, BTreeSet<String>>;

/// Job that a step has accounted for.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    /// Pass that has accounted for it, and the one that has delivered it, by position.
    pub(crate) pass: usize,
    pub(crate) delivered: usize,
    /// Index by input of the first one; 0 if the input has no job here.
    pub(crate) indices: Vec<u64>,
    /// Inputs as the delivering pass names them.
    pub(crate) inputs: Vec<(String, u64)>,
    /// Number of the last attempt.
    pub(crate) attempt: u32,
    pub(crate) given: Given,
    pub(crate) carried: Carried,
    pub(crate) hash: DeliveryHash,
    /// Outputs; `None` if the delivery was made before and the step makes none twice.
    pub(crate) made: Option<Made>,
    /// Error that was retried.
    pub(crate) retried: Option<(Address, u64)>,
}

/// Readable inputs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inputs<'a> {
    pub(crate) history: &'a History,
}

/// Hashes of the deliveries of steps that had other names, each with the number of the first pass that has made it.
/// Such a name may have belonged to several steps, one after the other.
pub(crate) fn hashes_of_renamed_steps(inputs: Inputs<'_>) -> BTreeMap<DeliveryHash, usize> {
    let mut hashes = BTreeMap::new();
    for known in inputs.history.steps.values() {
        if known.passes.iter().all(|pass| pass.step.address == known.address) {
            continue;
        }
        for delivery in deliveries(inputs, known, &[], &BTreeMap::new()) {
            let pass = &known.passes[delivery.delivered];
            if pass.configuration.dedupes(&pass.step) && gives(delivery.made.as_ref()) {
                let first = hashes.entry(delivery.hash).or_insert(pass.number);
                *first = pass.number.min(*first);
            }
        }
    }
    hashes
}

fn gives(made: Option<&Made>) -> bool {
    let gave = |made: &Made| made.as_ref().is_ok_and(|made| made.iter().any(|jobs| !jobs.is_empty()));
    made.is_some_and(gave)
}

/// Deliveries of a step so far, in order except for retried errors. `of_renamed`: see [`hashes_of_renamed_steps`].
pub(crate) fn deliveries(
    inputs: Inputs<'_>,
    known: &Known,
    retried: &[(&Address, u64)],
    of_renamed: &BTreeMap<DeliveryHash, usize>,
) -> Vec<Delivery> {
    let mut all = Vec::new();
    for (at, pass) in known.passes.iter().enumerate() {
        all.extend(rows(pass).into_iter().map(|indices| inputs.delivery(known, at, indices)));
    }
    for &(queue, index) in retried {
        let row = inputs.history.row(queue, index);
        if row.origin.as_ref().is_some_and(|origin| origin.step == known.address) {
            all.push(inputs.again(known, (queue, index), row));
        }
    }
    let mut there = BTreeSet::new();
    for delivery in &mut all {
        let pass = &known.passes[delivery.delivered];
        if !pass.configuration.dedupes(&pass.step) {
            continue;
        }
        let is_other = of_renamed.get(&delivery.hash).is_some_and(|&first| first < pass.number);
        if there.contains(&delivery.hash) || is_other {
            delivery.made = None;
        } else if gives(delivery.made.as_ref()) {
            there.insert(delivery.hash);
        }
    }
    all
}

/// Next deliveries of the step; several if any of its inputs may be next.
pub(crate) fn next(inputs: Inputs<'_>, known: &Known) -> Vec<Delivery> {
    let (next, last) = (known.next(), known.last());
    let has = |at: usize| next[at] <= inputs.head(last, at);
    let only = |at: usize| (0..next.len()).map(|input| if input == at { next[at] } else { 0 }).collect();
    let rows: Vec<Vec<u64>> = match last.step.take {
        InputMode::Join if (0..next.len()).all(has) => vec![next.to_vec()],
        InputMode::Join => Vec::new(),
        InputMode::From | InputMode::Alts => (0..next.len()).filter(|&at| has(at)).map(only).collect(),
    };
    let at = known.passes.len() - 1;
    rows.into_iter().map(|indices| inputs.delivery(known, at, indices)).collect()
}

/// Indices of each delivery of a pass.
fn rows(pass: &Pass) -> Vec<Vec<u64>> {
    let width = pass.start.len();
    let mut rows = Vec::new();
    if pass.step.take == InputMode::Join {
        let counts: BTreeSet<usize> = (0..width).map(|input| pass.taken(input).count()).collect();
        assert_eq!(counts.len(), 1, "a join takes the same number of each input: {pass:?}");
        let mut inputs: Vec<_> = (0..width).map(|input| pass.taken(input)).collect();
        while let Some(row) = inputs.iter_mut().map(Iterator::next).collect() {
            rows.push(row);
        }
        return rows;
    }
    for input in 0..width {
        for index in pass.taken(input) {
            rows.push((0..width).map(|at| if at == input { index } else { 0 }).collect());
        }
    }
    rows
}

impl<'a> Inputs<'a> {
    fn head(self, pass: &Pass, input: usize) -> u64 {
        match pass.step.inputs[input].input {
            Input::Source(source) => self.lines(pass, source).len() as u64,
            Input::Queue(_) => self.history.head(&pass.inputs[input]),
        }
    }

    fn lines(self, pass: &Pass, SourceRef(source): SourceRef) -> &'a [String] {
        let SourceKind::File(file) = &pass.configuration.sources[source].kind else {
            panic!("simulated sources are files")
        };
        &self.history.sources[&file.path]
    }

    fn delivery(self, known: &Known, pass: usize, indices: Vec<u64>) -> Delivery {
        let of = &known.passes[pass];
        let Pass { step, configuration, inputs, .. } = of;
        let (mut parts, mut carried) = (Vec::new(), Carried::new());
        for ((input, now), &index) in step.inputs.iter().zip(inputs).zip(&indices) {
            if index == 0 {
                continue;
            }
            let payload = match input.input {
                Input::Source(source) => {
                    self.lines(of, source)[usize::try_from(index).unwrap() - 1].clone().into_bytes()
                }
                Input::Queue(QueueRef(queue)) => {
                    let row = self.history.row(now, index);
                    merge(&mut carried, &row.carried);
                    stamp(&mut carried, &input.address, configuration.queues[queue].meta, index, row);
                    row.payload.clone()
                }
            };
            parts.push((input.binding.as_str(), payload));
        }
        let sound = parts.iter().all(|(_, payload)| serde_json::from_slice::<Value>(payload).is_ok());
        let wrapped = match step.take {
            InputMode::From => false,
            InputMode::Join => true,
            InputMode::Alts => !step.processors.is_empty() || !step.filter.is_empty(),
        };
        let whole = if wrapped { wrap(&parts) } else { parts[0].1.clone() };
        let given = Given { whole, sound };
        // A later pass may have attempted it again.
        let later = known.passes.iter().enumerate().rev().find_map(|(at, later)| {
            let taken = later.taken_over.iter().find(|job| job.pass == pass && job.indices == indices)?;
            // It may have been in flight when its input got another name.
            let now = of.inputs.iter().map(ToString::to_string).zip(indices.iter().copied());
            let now = now.filter(|(_, index)| *index > 0).collect();
            let inputs = self.history.named_in_attempt(&known.address, now).unwrap_or(&taken.inputs);
            Some((at, taken.attempt + 1, inputs.to_vec()))
        });
        let (delivered, first, inputs) = later.unwrap_or_else(|| (pass, 1, of.origin(&indices)));
        let by = &known.passes[delivered];
        let hash = hash(&by.step.address, &inputs);
        let (attempt, made) = twin::attempts(&by.step, &given, first, hash);
        let (made, retried) = (Some(made), None);
        Delivery { pass, delivered, indices, inputs, attempt, given, carried, hash, made, retried }
    }

    /// Delivery of a retried error.
    fn again(self, known: &Known, from: (&Address, u64), row: &Row) -> Delivery {
        let record: Record<'_> = serde_json::from_slice(&row.payload).unwrap();
        let last = known.passes.len() - 1;
        let indices = indices(known.last(), &row.origin.as_ref().unwrap().inputs);
        let mut delivery = self.delivery(known, last, indices);
        if let Some(job) = record.job {
            delivery.given.whole = job.get().as_bytes().to_vec();
        }
        let first = record.attempt + 1;
        let (attempt, made) = twin::attempts(&known.last().step, &delivery.given, first, delivery.hash);
        (delivery.attempt, delivery.made) = (attempt, Some(made));
        delivery.retried = Some((from.0.clone(), from.1));
        delivery
    }
}

#[derive(Deserialize)]
struct Record<'a> {
    attempt: u32,
    #[serde(borrow)]
    job: Option<&'a RawValue>,
}

/// Index by input of the step.
fn indices(pass: &Pass, inputs: &[(String, u64)]) -> Vec<u64> {
    let of = |name: String| inputs.iter().find(|(one, _)| *one == name).map_or(0, |(_, index)| *index);
    pass.step.inputs.iter().map(|input| of(input.hash_name())).collect()
}

fn hash(step: &Address, inputs: &[(String, u64)]) -> DeliveryHash {
    let gave = inputs.iter().map(|(name, index)| (name.as_str(), std::slice::from_ref(index)));
    delivery_hash(step.pipeline.as_str(), step.name.as_str(), gave)
}

fn wrap(parts: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut whole = Vec::new();
    for (at, (binding, payload)) in parts.iter().enumerate() {
        whole.extend_from_slice(if at == 0 { b"{" } else { b"," });
        whole.extend_from_slice(format!("\"{binding}\":").as_bytes());
        whole.extend_from_slice(payload);
    }
    whole.push(b'}');
    whole
}

/// Adds the provenance in a text.
pub(crate) fn merge(carried: &mut Carried, text: &str) {
    if text.is_empty() {
        return;
    }
    let Value::Object(all) = serde_json::from_str(text).unwrap() else { panic!("{text}") };
    for (queue, passed) in all {
        let passed = if let Value::Array(passed) = passed { passed } else { vec![passed] };
        carried.entry(queue).or_default().extend(passed.iter().map(Value::to_string));
    }
}

fn stamp(carried: &mut Carried, queue: &Address, meta: Meta, index: u64, row: &Row) {
    if meta.is_empty() {
        return;
    }
    let mut passed = Map::new();
    if meta.index {
        passed.insert("index".into(), json!(index));
    }
    if meta.time {
        passed.insert("time".into(), json!(rfc3339(row.stamp.time)));
    }
    if meta.transaction {
        passed.insert("tx".into(), json!(row.stamp.transaction));
    }
    carried.entry(queue.to_string()).or_default().insert(Value::Object(passed).to_string());
}
