//! Check: compares queues and sinks with the model, at any time between two runs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::compare::{Expected, Seen, compare, in_order, versions_follow, without_versions};
use super::history::{History, Known};
use super::model::{Carried, Delivery, Inputs, deliveries, hashes_of_renamed_steps, merge, next};
use super::outcome::Ended;
use super::outlets::{Feed, Outlet, check_file, check_printed, lines};
use super::pass::Pass;
use super::records::Records;
use super::world::World;
use tidegate_config::{DeliveryGuarantee, InputMode, InputRef, Retain, Target};
use tidegate_dispatch::RunOutcome;
use tidegate_model::{Address, Counters};
use tidegate_store::Store;

/// Expected jobs of the steps that had a name, on one queue.
#[derive(Default)]
struct QueueFeed<'h> {
    passes: Vec<&'h Pass>,
    jobs: Vec<Expected>,
    is_replayed: bool,
}

/// Expected jobs: by queue and name of the step, and by outlet and present name.
#[derive(Default)]
struct Targets<'h> {
    queues: BTreeMap<(Address, Address), QueueFeed<'h>>,
    outlets: BTreeMap<Outlet, BTreeMap<Address, Feed>>,
}

pub(crate) fn check(world: &World, store: &Store, ended: Option<&Ended>) {
    let history = &world.history;
    let inputs = Inputs { history };
    let retried = world.requests.retried();
    let (mut targets, mut records) = (Targets::default(), Records::default());
    let of_renamed = hashes_of_renamed_steps(inputs);
    for known in history.in_order() {
        let mut done = deliveries(inputs, known, &retried, &of_renamed);
        let waits = put_off(known, store, &mut done);
        for pass in &known.passes {
            targets.add(known, pass);
        }
        for delivery in &done {
            targets.expect(known, delivery);
        }
        records.expect(history, known, &done);
        check_counters(known, store, &done, &waits);
        if let Some(ended) = ended.filter(|_| !known.retired) {
            check_end((inputs, waits), known, store, ended);
        }
    }
    records.check(store);
    for ((queue, step), feed) in &targets.queues {
        check_queue(history, (queue, step), feed);
    }
    check_origins(history);
    world.requests.check_pushes(history);
    for (outlet, feeds) in targets.outlets {
        let feeds: Vec<Feed> = feeds.into_values().collect();
        match outlet {
            Outlet::File(path) => {
                let mut bytes = std::fs::read(&path).unwrap_or_default();
                if let Some(committed) = world.committed_in(store, &path) {
                    bytes.truncate(usize::try_from(committed.offset).unwrap());
                }
                check_file(&path.display().to_string(), &lines(&bytes), &feeds);
            }
            Outlet::Printed(sink) => {
                let printed = lines(&world.effects.lines(&sink));
                check_printed(&sink, &printed, &feeds, world.tally.crashes);
            }
        }
    }
    check_retention(world, store, ended);
}

/// Removes the retried errors that wait for their step, and the jobs that wait for their next attempt. Such a job
/// keeps its turn, so no job behind it is delivered. Returns them.
fn put_off(known: &Known, store: &Store, done: &mut Vec<Delivery>) -> Vec<Delivery> {
    let step = &known.address;
    let waiting = store.due(step, tidegate_model::Due::Never, None, usize::MAX, usize::MAX).unwrap();
    assert_eq!(waiting.len() as u64, store.parked_count(step).unwrap());
    let mut waits: Vec<Delivery> = Vec::new();
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
        let begun = known.find(&job.inputs);
        let (pass, indices) =
            begun.unwrap_or_else(|| panic!("{step} retries a job that it has not begun: {job:?}"));
        let is_it = |one: &Delivery| one.retried.is_none() && one.pass == pass && one.indices == indices;
        let at = done.iter().rposition(is_it).unwrap_or_else(|| panic!("{step} has two rows of {job:?}"));
        assert!(known.passes[pass].is_last(&indices), "{step} has delivered jobs behind {job:?}");
        assert!(known.passes[pass].step.retry.is_some(), "{step} retries without a policy: {job:?}");
        let another = waits.iter().find(|other| other.pass == pass);
        assert!(another.is_none(), "{step} has {another:?} in the store, and behind it {job:?}");
        waits.push(done.remove(at));
    }
    waits
}

impl<'h> Targets<'h> {
    /// Adds the targets of a pass.
    fn add(&mut self, known: &'h Known, pass: &'h Pass) {
        for (output, address) in pass.step.outputs.iter().zip(&pass.outputs) {
            if let Some(outlet) = Outlet::of(pass, output.target, address) {
                self.outlet(known, outlet).add(pass);
            }
        }
        for queue in pass.queues() {
            let feed = self.queues.entry((queue.clone(), pass.step.address.clone())).or_default();
            feed.is_replayed |= known.passes.len() > 1;
            feed.passes.push(pass);
        }
    }

    fn outlet(&mut self, known: &Known, outlet: Outlet) -> &mut Feed {
        self.outlets.entry(outlet).or_default().entry(known.address.clone()).or_insert_with(Feed::new)
    }

    /// Adds the jobs of a delivery.
    fn expect(&mut self, known: &'h Known, delivery: &Delivery) {
        let Some(made) = &delivery.made else { return };
        let (taken, pass) = (&known.passes[delivery.pass], &known.passes[delivery.delivered]);
        let input = delivery.indices.iter().position(|&index| index > 0).unwrap();
        let fresh = delivery.retried.is_none();
        let lost = if fresh {
            taken.lost.fresh.contains(&(input, delivery.indices[input]))
        } else {
            known.passes.iter().any(|pass| pass.lost.returned > 0)
        };
        // A job that was attempted again comes behind others.
        let retried = !fresh || delivery.delivered != delivery.pass;
        let expected = |payload: String| {
            // An input that the step does not read any more has no place in the origin.
            let names: Vec<String> = pass.step.inputs.iter().map(InputRef::hash_name).collect();
            let mut origin: Vec<_> =
                delivery.inputs.iter().filter(|(name, _)| names.contains(name)).cloned().collect();
            origin.sort();
            let carried = delivery.carried.clone();
            Expected { seen: Seen { origin, payload, carried }, retried, lost }
        };
        let mut add_to_queue = |queue: &Address, payload: String| {
            let feed = self.queues.entry((queue.clone(), pass.step.address.clone())).or_default();
            feed.jobs.push(expected(payload));
        };
        match made {
            Ok(outputs) => {
                for ((output, address), jobs) in pass.step.outputs.iter().zip(&pass.outputs).zip(outputs) {
                    let payloads = jobs.iter().map(|job| without_versions(job.clone()).to_string());
                    match output.target {
                        Target::Queue(_) => {
                            payloads.for_each(|payload| add_to_queue(address, payload));
                        }
                        Target::Sink(_) => {
                            if let Some(outlet) = Outlet::of(pass, output.target, address) {
                                let feeds = self.outlets.entry(outlet).or_default();
                                let feed = feeds.entry(known.address.clone()).or_insert_with(Feed::new);
                                feed.lines.extend(payloads.map(expected));
                            }
                        }
                    }
                }
            }
            Err(kind) => {
                let halts = pass.errors.is_none() && pass.step.delivery != DeliveryGuarantee::AtMostOnce;
                assert!(!halts, "{} has accounted for a job that halts it: {delivery:?}", known.address);
                if let Some(errors) = &pass.errors {
                    let record = without_versions(error(pass, delivery, kind));
                    add_to_queue(errors, record.to_string());
                }
            }
        }
    }
}

impl Pass {
    /// Present names of the queues that it fills.
    fn queues(&self) -> impl Iterator<Item = &Address> {
        let outputs = self.step.outputs.iter().zip(&self.outputs);
        let queues = outputs.filter(|(output, _)| matches!(output.target, Target::Queue(_)));
        queues.map(|(_, address)| address).chain(&self.errors)
    }
}

/// Error record, without the fields that depend on the time of the failure.
fn error(pass: &Pass, delivery: &Delivery, kind: &str) -> Value {
    let step = &pass.step;
    let from = |name: &String| {
        let input = step.inputs.iter().find(|input| input.hash_name() == *name);
        input.map_or_else(|| name.clone(), |input| input.address.to_string())
    };
    let given: serde_json::Map<String, Value> = delivery
        .inputs
        .iter()
        .map(|(name, index)| (name.clone(), json!({ "from": from(name), "index": index })))
        .collect();
    let (first, index) = delivery.inputs.first().unwrap();
    let mut record = json!({
        "pipeline": step.address.pipeline.as_str(),
        "step": step.address.name.as_str(),
        "input": from(first),
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

fn check_queue(history: &History, (queue, step): (&Address, &Address), feed: &QueueFeed<'_>) {
    let QueueFeed { passes, jobs: expected, is_replayed } = feed;
    let is_error = passes.iter().any(|pass| pass.errors.as_ref() == Some(queue));
    let retries = passes.iter().any(|pass| pass.step.retry_policy().is_some());
    let is_scripted = passes.iter().any(|pass| !pass.step.processors.is_empty());
    let (mut actual, mut versions) = (Vec::new(), Vec::new());
    let rows = history.rows.get(queue).map(Vec::as_slice).unwrap_or_default();
    let displaced = history.displaced.get(queue).map(Vec::as_slice).unwrap_or_default();
    let unseen = rows.iter().any(Option::is_none);
    for row in displaced.iter().chain(rows.iter().flatten()) {
        let Some(origin) = row.origin.as_ref().filter(|origin| origin.step == *step) else { continue };
        let value: Value = serde_json::from_slice(&row.payload)
            .unwrap_or_else(|_| panic!("{queue} holds {:?}", String::from_utf8_lossy(&row.payload)));
        let mut carried = Carried::new();
        merge(&mut carried, &row.carried);
        if is_error && let Some(meta) = value.get("meta") {
            let mut in_meta = Carried::new();
            merge(&mut in_meta, &meta.to_string());
            assert_eq!(in_meta, carried, "{queue}");
        }
        let value = if is_error { without_circumstances(value) } else { value };
        // A job that is retried, by itself or on request, is attempted by the present script. Results of an earlier
        // one behind it are delivered later.
        let mut origin = origin.inputs.clone();
        origin.sort();
        let is_retried = retries || expected.iter().any(|one| one.retried && one.seen.origin == origin);
        if !is_error && is_scripted && !is_retried {
            versions.extend(value["version"].as_u64());
        }
        let value = without_versions(value);
        actual.push(Seen { origin, payload: value.to_string(), carried });
    }
    let what = format!("{step} on {queue}");
    compare(&what, expected, &actual, unseen);
    if displaced.is_empty() {
        versions_follow(&what, &versions, &history.versions);
    }
    let is_once = |pass: &&Pass| pass.outputs.iter().filter(|output| *output == queue).count() <= 1;
    if passes.iter().all(is_once) && !unseen && displaced.is_empty() {
        let late = *is_replayed && passes.iter().any(|pass| pass.configuration.dedupes(&pass.step));
        in_order(&what, expected, &actual, late);
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
            let passes = history.steps.values().flat_map(|known| &known.passes);
            let mut of_step = passes.filter(|pass| pass.step.address == origin.step);
            let delivers = of_step.any(|pass| pass.targets().any(|target| target == queue));
            assert!(delivers, "{queue} holds jobs of {}", origin.step);
        }
    }
}

fn check_counters(known: &Known, store: &Store, done: &[Delivery], waits: &[Delivery]) {
    let step = &known.address;
    if known.passes.iter().any(|pass| pass.step.delivery == DeliveryGuarantee::AtMostOnce) {
        return;
    }
    let mut counted = Counters::default();
    for input in known.positions.keys() {
        counted.add(&store.progress(step, input).unwrap().unwrap_or_default().counters);
    }
    let mut wanted = Counters::default();
    for waits in waits {
        // A finished join counts on its first input only: the other inputs have counted it.
        let taken = &known.passes[waits.pass].step;
        wanted.taken += if taken.take == InputMode::Join { taken.inputs.len() as u64 - 1 } else { 0 };
    }
    for delivery in done {
        let taken = &known.passes[delivery.pass].step;
        let joined = taken.take == InputMode::Join && delivery.retried.is_none();
        wanted.taken += if joined { taken.inputs.len() as u64 } else { 1 };
        match &delivery.made {
            Some(Err(_)) => wanted.failed += 1,
            Some(Ok(outputs)) => {
                let given: u64 = outputs.iter().map(|jobs| jobs.len() as u64).sum();
                wanted.given += given;
                wanted.filtered += u64::from(given == 0 && !outputs.is_empty());
            }
            None => {
                let outputs = &known.passes[delivery.delivered].outputs;
                wanted.filtered += u64::from(!outputs.is_empty());
            }
        }
    }
    assert_eq!(counted, wanted, "{step}");
}

/// Checks that a run that ended by itself has left no jobs, except behind a halt.
fn check_end((inputs, waits): (Inputs<'_>, Vec<Delivery>), known: &Known, store: &Store, ended: &Ended) {
    let step = &known.address;
    if ended.end == RunOutcome::Stopped || ended.asked {
        return;
    }
    let left = next(inputs, known);
    if ended.halted.contains(step) {
        let halts = |delivery: &Delivery| matches!(delivery.made, Some(Err(_)));
        // A job that waits since the step read other inputs holds no later job back.
        let last = known.passes.len() - 1;
        let is_blocked = waits.iter().any(|delivery| delivery.pass == last);
        let is_reason = waits.iter().any(halts) || !is_blocked && left.iter().any(halts);
        assert!(known.last().errors.is_none() && is_reason, "{step} had no reason to stop");
        return;
    }
    assert!(left.is_empty(), "{step} has left jobs: {left:?}");
    assert_eq!(store.parked_count(step).unwrap(), 0, "{step}");
    assert_eq!(store.snapshots(step).unwrap(), [], "{step}");
}

/// Checks that no job is deleted before every step has accounted for it, and that consumed jobs are deleted.
fn check_retention(world: &World, store: &Store, ended: Option<&Ended>) {
    for queue in &world.configuration.queues {
        let Some(state) = store.queue(&queue.address).unwrap() else { continue };
        let of = |known: &&Known| known.last().inputs.contains(&queue.address);
        let all: Vec<&Known> = world.history.steps.values().filter(of).collect();
        let readers: Vec<&Known> = all.iter().copied().filter(|known| !known.retired).collect();
        for known in &readers {
            let input = known.last().inputs.iter().position(|input| *input == queue.address).unwrap();
            // The jobs of a rewound step may have been deleted before.
            let replayed = world.history.replayed.contains(&known.address);
            let next = known.next()[input];
            assert!(replayed || state.first <= next, "{} is trimmed before {}", queue.address, known.address);
        }
        let drained = ended.is_some_and(|ended| ended.end == RunOutcome::Drained && !ended.asked);
        // Jobs that a removed step held back are deleted with the next delivery.
        let none_gone = readers.len() == all.len();
        let all_read = none_gone
            && world.changes.is_none()
            && readers.iter().all(|known| known.last().step.take != InputMode::Join);
        // The retention of an error queue depends on its readers, which a reload may have changed since.
        let held_errors = ["e", "failed"].iter().any(|name| queue.address.name.as_str().starts_with(name));
        let deletes = queue.retain == Retain::Consumed && !held_errors;
        if drained && all_read && !readers.is_empty() && deletes {
            assert_eq!(state.first, state.head + 1, "{} keeps consumed jobs", queue.address);
        }
        if queue.retain == Retain::Forever && queue.max_size.is_none() {
            // A queue that had another name once goes on behind its indices.
            let rows = world.history.rows.get(&queue.address).map(Vec::as_slice).unwrap_or_default();
            let deleted = rows.iter().zip(1..state.first).filter(|(row, _)| row.is_some()).count();
            assert_eq!(deleted, 0, "{} keeps all jobs", queue.address);
        }
    }
}
