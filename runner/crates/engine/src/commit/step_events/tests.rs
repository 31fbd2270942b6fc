//! Step events: tests of the watermarks.

use super::*;
use crate::generation::current::NumberedGeneration;
use std::sync::Arc;
use tidegate_config::{LoadOptions, load};
use tidegate_model::Address;

fn step() -> DeclaredStep {
    let folder = tempfile::tempdir().unwrap();
    let toml = "[step.work]\nfrom = \"in\"\nto = \"out\"\nevents = \"events\"\n";
    std::fs::write(folder.path().join("p.toml"), toml).unwrap();
    let configuration = Arc::new(load(folder.path(), &LoadOptions::default()).finish().unwrap().0);
    DeclaredStep::new(&NumberedGeneration::first(&configuration), 0)
}

/// Row of the job at `index`, with this number.
fn row(id: u64, index: u64) -> (ParkedKey, ParkedJob) {
    let job = ParkedJob { inputs: vec![("p/in".into(), index)], ..ParkedJob::default() };
    (ParkedId(id).of(&Address::parse("p/work").unwrap()), job)
}

fn up_to(index: u64) -> Progress {
    let mut progress = Progress::default();
    progress.finish(1, index);
    progress
}

/// Watermark of the event that a commit adds.
fn moved(events: &mut StepEvents, index: u64, mut pending: PendingEvents) -> Option<u64> {
    let progress = up_to(index);
    events.move_watermarks([&progress].into_iter(), &mut pending, Timestamp(0));
    events.apply(&pending);
    let event: serde_json::Value = serde_json::from_slice(pending.records.get(0)?).unwrap();
    assert_eq!(event["event"], "watermark");
    event["index"].as_u64()
}

#[test]
fn a_parked_job_holds_the_watermark_until_its_row_is_removed() {
    let mut events = StepEvents::new(&step(), &[up_to(5)], &[row(1, 2), row(2, 4)]).unwrap();
    assert_eq!(events.watermarks, [1]);
    assert_eq!(moved(&mut events, 7, PendingEvents::default()), None);
    let removes = |ids: &[u64]| PendingEvents {
        removed: ids.iter().map(|id| ParkedId(*id)).collect(),
        ..PendingEvents::default()
    };
    assert_eq!(moved(&mut events, 7, removes(&[2])), None);
    assert_eq!(moved(&mut events, 7, removes(&[1])), Some(7));
}

#[test]
fn a_job_that_is_parked_again_in_the_same_commit_holds_the_watermark() {
    let mut events = StepEvents::new(&step(), &[up_to(5)], &[row(1, 3)]).unwrap();
    let again = PendingEvents { removed: vec![ParkedId(1)], added: vec![(0, 3)], ..PendingEvents::default() };
    assert_eq!(moved(&mut events, 5, again), None);
    let (key, job) = row(2, 3);
    events.add(key.id, &job);
    let done = PendingEvents { removed: vec![key.id], ..PendingEvents::default() };
    assert_eq!(moved(&mut events, 5, done), Some(5));
}

#[test]
fn a_delayed_output_and_a_job_that_was_set_aside_before_hold_no_watermark() {
    let (late, mut job) = row(1, 2);
    job.reason = tidegate_store::ParkReason::Output { to: String::new() };
    let (retried, mut other) = row(2, 3);
    other.from_error = Some((Address::parse("p/failed").unwrap(), 1));
    let events = StepEvents::new(&step(), &[up_to(5)], &[(late, job), (retried, other)]).unwrap();
    assert_eq!(events.watermarks, [5]);
}

#[test]
fn a_replay_moves_the_watermark_back() {
    let mut events = StepEvents::new(&step(), &[up_to(5)], &[]).unwrap();
    assert_eq!(moved(&mut events, 2, PendingEvents::default()), Some(2));
}
