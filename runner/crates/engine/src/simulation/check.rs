//! Check: compares queues and sinks with the model, at any time between two runs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::compare::{Expected, Seen, compare, in_order, versions_rise, without_versions};
use super::history::{History, Known};
use super::model::{Carried, Delivery, Inputs, deliveries, indices, merge, next};
use super::outcome::Ended;
use super::outlets::{Feed, check_file, check_printed, lines};
use super::world::World;
use tidegate_config::{DeliveryGuarantee, InputMode, QueueRef, Retain, SinkKind, SinkRef, Target};
use tidegate_dispatch::RunOutcome;
use tidegate_model::{Address, Counters};
use tidegate_store::Store;

/// Expected jobs by queue or sink.
type Targets = BTreeMap<Address, Vec<Expected>>;

pub(crate) fn check(world: &World, store: &Store, ended: Option<&Ended>) {
    let inputs = Inputs { history: &world.history, sources: &world.plan.sources };
    let retried = world.requests.retried();
    let mut feeds: BTreeMap<Address, Vec<Feed<'_>>> = BTreeMap::new();
    for known in world.history.steps.values() {
        let mut done = deliveries(inputs, known, &retried);
        let waits = put_off(known, store, &mut done);
        let mut targets = Targets::new();
        for target in known.targets() {
            targets.insert(known.address(target), Vec::new());
        }
        for delivery in &done {
            expect(known, delivery, &mut targets);
        }
        for (target, expected) in targets {
            if world.configuration.sinks.iter().any(|sink| sink.address == target) {
                feeds.entry(target).or_default().push(Feed { known, lines: expected });
            } else {
                check_queue(&world.history, known, &target, &expected);
            }
        }
        check_counters(known, store, &done, waits.as_ref());
        if let Some(ended) = ended.filter(|_| !known.retired) {
            check_end((inputs, waits), known, store, ended);
        }
    }
    check_origins(&world.history);
    world.requests.check_pushes(&world.history);
    for sink in &world.configuration.sinks {
        let feeds = feeds.remove(&sink.address).unwrap_or_default();
        let committed = store.sink(&sink.address).unwrap().map_or(0, |position| position.offset);
        match &sink.kind {
            SinkKind::File(file) => {
                let mut bytes = std::fs::read(&file.path).unwrap_or_default();
                bytes.truncate(usize::try_from(committed).unwrap());
                check_file(&sink.address, &lines(&bytes), &feeds);
            }
            SinkKind::Stdout(_) => {
                let printed = lines(&world.effects.lines(&sink.address));
                check_printed(&sink.address, &printed, &feeds, world.tally.crashes);
            }
            SinkKind::Http(_) | SinkKind::Null => {}
        }
    }
    check_retention(world, store, ended);
}

/// Removes the retried errors that wait for their step, and the job that waits for its next attempt. That job
/// keeps its turn, so no job behind it is delivered. Returns it.
fn put_off(known: &Known, store: &Store, done: &mut Vec<Delivery>) -> Option<Delivery> {
    let step = &known.step.address;
    let waiting = store.due(step, tidegate_model::Due::Never, None, usize::MAX, usize::MAX).unwrap();
    assert_eq!(waiting.len() as u64, store.parked_count(step).unwrap());
    let mut waits = None;
    for (_, job) in waiting {
        let before = done.len();
        if job.from_error.is_some() {
            done.retain(|delivery| delivery.retried != job.from_error);
            assert_eq!(
                done.len() + 1,
                before,
                "{step} has a redelivered job that was never put back: {job:?}"
            );
            continue;
        }
        let indices = indices(known, &job.inputs);
        let at = done.iter().rposition(|one| one.retried.is_none() && one.indices == indices);
        let at = at.unwrap_or_else(|| panic!("{step} retries a job that it has not begun: {job:?}"));
        assert!(known.is_last(&indices), "{step} has delivered jobs behind {job:?}");
        assert!(known.step.retry.is_some(), "{step} retries without a policy: {job:?}");
        assert!(waits.is_none(), "{step} has {waits:?} in the store, and behind it {job:?}");
        waits = Some(done.remove(at));
    }
    waits
}

/// Adds the jobs that a delivery puts on the targets of a step.
fn expect(known: &Known, delivery: &Delivery, targets: &mut Targets) {
    let step = &known.step;
    let Some(made) = &delivery.made else { return };
    let most_once = step.delivery == DeliveryGuarantee::AtMostOnce;
    let input = delivery.indices.iter().position(|&index| index > 0).unwrap();
    let fresh = delivery.retried.is_none();
    let lost = if fresh {
        known.lost.fresh.contains(&(input, delivery.indices[input]))
    } else {
        known.lost.returned > 0
    };
    let mut add = |target: Target, payload: String, lost: bool| {
        let (indices, carried) = (delivery.indices.clone(), delivery.carried.clone());
        let seen = Seen { indices, payload, carried };
        targets.entry(known.address(target)).or_default().push(Expected { seen, retried: !fresh, lost });
    };
    match made {
        Ok(outputs) => {
            for (output, jobs) in step.outputs.iter().zip(outputs) {
                for job in jobs {
                    add(output.target, without_versions(job.clone()).to_string(), lost);
                }
            }
        }
        Err(kind) => {
            let halts = step.errors.is_none() && !most_once;
            assert!(!halts, "{} has accounted for a job that halts it: {delivery:?}", step.address);
            if let Some(errors) = step.errors {
                let dropped = most_once && known.was_without_errors;
                let record = without_versions(error(known, delivery, kind));
                add(Target::Queue(errors), record.to_string(), lost || dropped);
            }
        }
    }
}

impl Known {
    /// Whether no job behind this one is accounted for, in some pass of the step over its inputs.
    fn is_last(&self, indices: &[u64]) -> bool {
        let is_last = |next: &[u64]| {
            let given = indices.iter().zip(next).filter(|(index, _)| **index > 0);
            given.into_iter().all(|(index, next)| index + 1 == *next)
        };
        self.passes.iter().any(|pass| is_last(&pass.next))
    }

    /// Targets of its jobs and of its errors.
    fn targets(&self) -> impl Iterator<Item = Target> {
        let errors = self.step.errors.map(Target::Queue);
        self.step.outputs.iter().map(|output| output.target).chain(errors)
    }

    fn address(&self, target: Target) -> Address {
        match target {
            Target::Queue(QueueRef(queue)) => self.configuration.queues[queue].address.clone(),
            Target::Sink(SinkRef(sink)) => self.configuration.sinks[sink].address.clone(),
        }
    }
}

/// Error record, without the fields that depend on the time of the failure.
fn error(known: &Known, delivery: &Delivery, kind: &str) -> Value {
    let step = &known.step;
    let inputs = step.inputs.iter().zip(&delivery.indices).filter(|(_, index)| **index > 0);
    let given: serde_json::Map<String, Value> = inputs
        .clone()
        .map(|(input, index)| {
            (input.hash_name(), json!({ "from": input.address.to_string(), "index": index }))
        })
        .collect();
    let (first, index) = inputs.clone().next().unwrap();
    let mut record = json!({
        "pipeline": step.address.pipeline.as_str(),
        "step": step.address.name.as_str(),
        "input": first.address.to_string(),
        "index": index,
        "attempt": delivery.attempt,
        "kind": kind,
        "hash": delivery.hash.to_string(),
    });
    if step.take != InputMode::From {
        record["inputs"] = given.into();
    }
    let whole = &delivery.given.whole;
    match serde_json::from_slice::<Value>(whole) {
        Ok(job) if delivery.given.sound => record["job"] = job,
        _ => record["job_text"] = String::from_utf8(whole.clone()).unwrap().into(),
    }
    record
}

/// Error record on a queue, without the fields that depend on the time of the failure; these are checked
/// here.
fn without_circumstances(mut record: Value) -> Value {
    let fields = record.as_object_mut().unwrap();
    let time = fields.remove("time").unwrap();
    assert!(time.as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{time}");
    assert!(fields.remove("generation").unwrap().as_u64().unwrap() > 0);
    // The settings of the step, which a reload may have changed since.
    fields.remove("configuration");
    assert!(!fields.remove("message").unwrap().as_str().unwrap().is_empty());
    let rejected = fields["kind"] == "rejected";
    assert_eq!(fields.remove("context").is_some(), rejected, "{fields:?}");
    let at = fields.remove("at");
    assert!(!rejected || at.unwrap()["path"].as_str().unwrap().ends_with("work.rhai"));
    fields.remove("file");
    fields.remove("meta");
    record
}

fn check_queue(history: &History, known: &Known, queue: &Address, expected: &[Expected]) {
    let step = &known.step;
    let is_error =
        step.errors.is_some_and(|QueueRef(errors)| known.configuration.queues[errors].address == *queue);
    let (mut actual, mut versions) = (Vec::new(), Vec::new());
    let rows = history.rows.get(queue).map(Vec::as_slice).unwrap_or_default();
    let unseen = rows.iter().any(Option::is_none);
    for row in rows.iter().flatten() {
        let Some(origin) = row.origin.as_ref().filter(|origin| origin.step == step.address) else { continue };
        let value: Value = serde_json::from_slice(&row.payload)
            .unwrap_or_else(|_| panic!("{queue} holds {:?}", String::from_utf8_lossy(&row.payload)));
        let mut carried = Carried::new();
        merge(&mut carried, &row.carried);
        if is_error && let Some(meta) = value.get("meta") {
            let mut told = Carried::new();
            merge(&mut told, &meta.to_string());
            assert_eq!(told, carried, "{queue}");
        }
        let value = if is_error { without_circumstances(value) } else { value };
        // A job that is retried, by itself or on request, is attempted by the present script. Results of an earlier
        // one behind it are delivered later.
        let indices = indices(known, &origin.inputs);
        let is_retried = step.retry_policy().is_some()
            || expected.iter().any(|one| one.retried && one.seen.indices == indices);
        if !is_error && !step.processors.is_empty() && !is_retried {
            versions.extend(value["version"].as_u64());
        }
        let value = without_versions(value);
        actual.push(Seen { indices, payload: value.to_string(), carried });
    }
    let what = format!("{} on {queue}", step.address);
    compare(&what, expected, &actual, unseen);
    versions_rise(&what, &versions);
    let targets = step.outputs.iter().filter(|output| match output.target {
        Target::Queue(QueueRef(target)) => known.configuration.queues[target].address == *queue,
        Target::Sink(_) => false,
    });
    if targets.count() <= 1 && !unseen {
        in_order(known, queue, expected, &actual);
    }
}

/// Checks that the stored origins of jobs match their steps and inputs.
fn check_origins(history: &History) {
    for (queue, rows) in &history.rows {
        let mut last = 0;
        for row in rows.iter().flatten() {
            assert!(row.stamp.transaction >= last, "{queue} is not in order of commits");
            last = row.stamp.transaction;
            let Some(origin) = &row.origin else { continue };
            let known = history.steps.get(&origin.step);
            let known = known.unwrap_or_else(|| panic!("{queue} holds jobs of {}", origin.step));
            assert!(
                known.targets().any(|target| known.address(target) == *queue),
                "{} delivers to {queue}",
                origin.step
            );
        }
    }
}

fn check_counters(known: &Known, store: &Store, done: &[Delivery], waits: Option<&Delivery>) {
    let step = &known.step;
    if step.delivery == DeliveryGuarantee::AtMostOnce {
        return;
    }
    let mut counted = Counters::default();
    for input in &step.inputs {
        let progress = store.progress(&step.address, &input.address).unwrap().unwrap_or_default();
        counted.add(&progress.counters);
    }
    let mut wanted = Counters::default();
    if waits.is_some() && step.take == InputMode::Join {
        // A finished join counts on its first input only: the other inputs have counted it.
        wanted.taken += step.inputs.len() as u64 - 1;
    }
    for delivery in done {
        let joined = step.take == InputMode::Join && delivery.retried.is_none();
        wanted.taken += if joined { step.inputs.len() as u64 } else { 1 };
        match &delivery.made {
            Some(Err(_)) => wanted.failed += 1,
            Some(Ok(outputs)) => {
                let given: u64 = outputs.iter().map(|jobs| jobs.len() as u64).sum();
                wanted.given += given;
                wanted.filtered += u64::from(given == 0 && !outputs.is_empty());
            }
            None => wanted.filtered += u64::from(!step.outputs.is_empty()),
        }
    }
    assert_eq!(counted, wanted, "{}", step.address);
}

/// Checks that a run that ended by itself has left no jobs, except behind a halt.
fn check_end((inputs, waits): (Inputs<'_>, Option<Delivery>), known: &Known, store: &Store, ended: &Ended) {
    let step = &known.step;
    if ended.end == RunOutcome::Stopped || ended.asked {
        return;
    }
    let left = next(inputs, known);
    if ended.halted.contains(&step.address) {
        let halts = |delivery: &Delivery| matches!(delivery.made, Some(Err(_)));
        let is_reason = waits.as_ref().map_or_else(|| left.iter().any(halts), halts);
        assert!(step.errors.is_none() && is_reason, "{} had no reason to stop", step.address);
        return;
    }
    assert!(left.is_empty(), "{} has left jobs: {left:?}", step.address);
    assert_eq!(store.parked_count(&step.address).unwrap(), 0, "{}", step.address);
    assert_eq!(store.snapshots(&step.address).unwrap(), [], "{}", step.address);
}

/// Checks that no job is deleted before every step has accounted for it, and that consumed jobs are deleted.
fn check_retention(world: &World, store: &Store, ended: Option<&Ended>) {
    for queue in &world.configuration.queues {
        let Some(state) = store.queue(&queue.address).unwrap() else { continue };
        let of = |known: &&Known| known.step.inputs.iter().any(|input| input.address == queue.address);
        let all: Vec<&Known> = world.history.steps.values().filter(of).collect();
        let readers: Vec<&Known> = all.iter().copied().filter(|known| !known.retired).collect();
        for known in &readers {
            let input = known.step.inputs.iter().position(|input| input.address == queue.address).unwrap();
            // The jobs of a rewound step may have been deleted before.
            let replayed = world.history.replayed.contains(&known.step.address);
            let next = known.next()[input];
            assert!(
                replayed || state.first <= next,
                "{} is trimmed before {}",
                queue.address,
                known.step.address
            );
        }
        let drained = ended.is_some_and(|ended| ended.end == RunOutcome::Drained && !ended.asked);
        // Jobs that a removed step held back are deleted with the next delivery.
        let none_gone = readers.len() == all.len();
        let all_read = none_gone && readers.iter().all(|known| known.step.take != InputMode::Join);
        // The retention of an error queue depends on its readers, which a reload may have changed since.
        let held_errors = ["e", "failed"].iter().any(|name| queue.address.name.as_str().starts_with(name));
        let deletes = queue.retain == Retain::Consumed && !held_errors;
        if drained && all_read && !readers.is_empty() && deletes {
            assert_eq!(state.first, state.head + 1, "{} keeps consumed jobs", queue.address);
        }
        if queue.retain == Retain::Forever && queue.max_size.is_none() {
            assert_eq!(state.first, 1, "{} keeps all jobs", queue.address);
        }
    }
}
