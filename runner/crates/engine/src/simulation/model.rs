//! Model: computes the expected deliveries of a step from the jobs of its inputs.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::history::{History, Known, Pass, Row};
use super::twin::{self, Given, Made};
use tidegate_config::{Input, InputMode, Meta, QueueRef};
use tidegate_model::{Address, DeliveryHash, delivery_hash, rfc3339};

/// Provenance as JSON, by queue.
pub(crate) type Carried = BTreeMap<String, BTreeSet<String>>;

/// Job that a step has accounted for.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    /// Index by input; 0 if the input has no job here.
    pub(crate) indices: Vec<u64>,
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
    pub(crate) sources: &'a BTreeMap<String, Vec<String>>,
}

/// Deliveries of a step so far, in order except for retried errors.
pub(crate) fn deliveries(inputs: Inputs<'_>, known: &Known, retried: &[(&Address, u64)]) -> Vec<Delivery> {
    let mut all = Vec::new();
    for pass in &known.passes {
        all.extend(rows(known.step.take, pass).into_iter().map(|indices| inputs.delivery(known, indices)));
    }
    for &(queue, index) in retried {
        let row = inputs.history.row(queue, index);
        if row.origin.as_ref().is_some_and(|origin| origin.step == known.step.address) {
            all.push(inputs.again(known, (queue, index), row));
        }
    }
    if known.configuration.dedupes(&known.step) {
        let mut there = BTreeSet::new();
        for delivery in &mut all {
            let gave = |made: &Made| made.as_ref().is_ok_and(|made| made.iter().any(|jobs| !jobs.is_empty()));
            if there.contains(&delivery.hash) {
                delivery.made = None;
            } else if delivery.made.as_ref().is_some_and(gave) {
                there.insert(delivery.hash);
            }
        }
    }
    all
}

/// Next deliveries of the step; several if any of its inputs may be next.
pub(crate) fn next(inputs: Inputs<'_>, known: &Known) -> Vec<Delivery> {
    let next = known.next();
    let has = |at: usize| next[at] <= inputs.head(&known.step.inputs[at].address);
    let only = |at: usize| (0..next.len()).map(|input| if input == at { next[at] } else { 0 }).collect();
    let rows: Vec<Vec<u64>> = match known.step.take {
        InputMode::Join if (0..next.len()).all(has) => vec![next.to_vec()],
        InputMode::Join => Vec::new(),
        InputMode::From | InputMode::Alts => (0..next.len()).filter(|&at| has(at)).map(only).collect(),
    };
    rows.into_iter().map(|indices| inputs.delivery(known, indices)).collect()
}

/// Indices of each delivery of a pass.
fn rows(take: InputMode, pass: &Pass) -> Vec<Vec<u64>> {
    let width = pass.start.len();
    let mut rows = Vec::new();
    if take == InputMode::Join {
        let counts: BTreeSet<u64> =
            pass.start.iter().zip(&pass.next).map(|(start, next)| next - start).collect();
        assert_eq!(counts.len(), 1, "a join takes the same number of each input: {pass:?}");
        for more in 0..pass.next[0] - pass.start[0] {
            rows.push(pass.start.iter().map(|start| start + more).collect());
        }
        return rows;
    }
    for input in 0..width {
        for index in pass.start[input]..pass.next[input] {
            rows.push((0..width).map(|at| if at == input { index } else { 0 }).collect());
        }
    }
    rows
}

impl Inputs<'_> {
    pub(crate) fn head(&self, input: &Address) -> u64 {
        match self.sources.get(&input.to_string()) {
            Some(lines) => lines.len() as u64,
            None => self.history.head(input),
        }
    }

    fn delivery(&self, known: &Known, indices: Vec<u64>) -> Delivery {
        let step = &known.step;
        let (mut parts, mut carried) = (Vec::new(), Carried::new());
        for (input, &index) in step.inputs.iter().zip(&indices).filter(|(_, index)| **index > 0) {
            let payload = match input.input {
                Input::Source(_) => {
                    let lines = &self.sources[&input.address.to_string()];
                    lines[usize::try_from(index).unwrap() - 1].clone().into_bytes()
                }
                Input::Queue(QueueRef(queue)) => {
                    let row = self.history.row(&input.address, index);
                    merge(&mut carried, &row.carried);
                    stamp(&mut carried, &input.address, known.configuration.queues[queue].meta, index, row);
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
        let hash = hash(known, &indices);
        let given = Given { whole, sound };
        let (attempt, made) = twin::attempts(step, &given, 1, hash);
        Delivery { indices, attempt, given, carried, hash, made: Some(made), retried: None }
    }

    /// Delivery of a retried error.
    fn again(&self, known: &Known, from: (&Address, u64), row: &Row) -> Delivery {
        let record: Record<'_> = serde_json::from_slice(&row.payload).unwrap();
        let indices = indices(known, &row.origin.as_ref().unwrap().inputs);
        let mut delivery = self.delivery(known, indices);
        if let Some(job) = record.job {
            delivery.given.whole = job.get().as_bytes().to_vec();
        }
        let first = record.attempt + 1;
        let (attempt, made) = twin::attempts(&known.step, &delivery.given, first, delivery.hash);
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
pub(crate) fn indices(known: &Known, inputs: &[(String, u64)]) -> Vec<u64> {
    let of = |name: String| inputs.iter().find(|(one, _)| *one == name).map_or(0, |(_, index)| *index);
    known.step.inputs.iter().map(|input| of(input.hash_name())).collect()
}

fn hash(known: &Known, indices: &[u64]) -> DeliveryHash {
    let address = &known.step.address;
    let names: Vec<String> = known.step.inputs.iter().map(tidegate_config::InputRef::hash_name).collect();
    let gave = names.iter().map(String::as_str).zip(indices.iter().map(std::slice::from_ref));
    let gave = gave.filter(|(_, index)| index[0] > 0);
    delivery_hash(address.pipeline.as_str(), address.name.as_str(), gave)
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
