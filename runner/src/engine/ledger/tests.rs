//! What a group of deliveries comes to.

use std::path::Path;

use tidegate_plugin::Payloads;

use super::*;
use crate::config::{LoadOptions, load};
use crate::decide::{BatchId, Counters};

const NOW: Timestamp = Timestamp(1_000_000);

/// A pipeline `p`: `events` → step `first` → queue `middle` → step `second`.
fn ledger(settings: &str) -> Ledger {
    let folder = tempfile::tempdir().unwrap();
    let toml = format!(
        "[pipeline]\nname = \"p\"\nerrors = \"failed\"\n[source.events]\ntype = \"file\"\npath = \"in\"\n\
         format = \"lines\"\n[step.first]\nfrom = \"events\"\nto = \"middle\"\n[step.second]\n\
         from = \"middle\"\n{settings}"
    );
    std::fs::write(folder.path().join("p.toml"), toml).unwrap();
    let (configuration, _) = load(folder.path(), &LoadOptions::default()).finish().unwrap();
    let progress = vec![Progress::default(); configuration.steps.len()];
    let heads = vec![0; configuration.queues.len()];
    let configuration = Arc::new(configuration);
    Ledger { configuration, progress, heads, marks: BTreeMap::new(), segments: BTreeMap::new() }
}

fn delivery(step: usize, first: u64, taken: usize, output: &[&str]) -> Delivery {
    let payloads: Payloads = output.iter().map(|text| text.as_bytes()).collect();
    Delivery {
        step,
        id: BatchId(first),
        first,
        taken,
        outputs: if step == 0 { vec![Made::for_queue(payloads)] } else { Vec::new() },
        errors: None,
        counters: Counters { taken: taken as u64, ..Counters::default() },
        bytes: 0,
        mark: None,
        segments: Vec::new(),
    }
}

fn segment(ordinal: u32, end: Option<Mark>) -> Segment {
    let (path, device, inode) = (Path::new("in").to_owned(), 1, 1);
    Segment {
        ordinal,
        first: 1,
        path,
        device,
        inode,
        fingerprint: 0,
        fingerprint_len: 0,
        offset: 0,
        line: 1,
        end,
    }
}

#[test]
fn deliveries_of_one_step_move_its_progress_together() {
    let ledger = ledger("");
    let group = [delivery(0, 1, 3, &["1", "2"]), delivery(0, 4, 2, &["3"])];
    let entry = ledger.enter(&group, &Vec::new(), NOW);
    let [(step, input, progress)] = &entry.changes.progress[..] else { panic!("{:?}", entry.changes) };
    assert_eq!((step.to_string(), input.to_string()), ("p/first".into(), "p/events".into()));
    assert_eq!((progress.watermark(), progress.counters.taken), (5, 5));
    assert_eq!(entry.changes.appends.iter().map(|append| append.block.len()).sum::<usize>(), 3);
}

#[test]
fn a_delivery_of_nothing_moves_nothing() {
    let ledger = ledger("");
    let entry = ledger.enter(&[delivery(0, 1, 0, &[])], &Vec::new(), NOW);
    assert_eq!(entry.changes.progress[0].2.watermark(), 0);
    assert!(entry.changes.appends.is_empty());
}

#[test]
fn what_the_slowest_reader_has_accounted_for_may_go() {
    let mut ledger = ledger("[step.third]\nfrom = \"middle\"\n");
    let trimmed = |ledger: &Ledger, group: &[Delivery]| {
        let trims = ledger.enter(group, &Vec::new(), NOW).changes.trims;
        trims.iter().map(|trim| (trim.queue.to_string(), trim.up_to)).collect::<Vec<_>>()
    };
    assert_eq!(trimmed(&ledger, &[delivery(1, 1, 7, &[])]), []);
    let group = [delivery(1, 1, 7, &[])];
    let entry = ledger.enter(&group, &Vec::new(), NOW);
    ledger.settle(&group, entry);
    assert_eq!(trimmed(&ledger, &[delivery(2, 1, 4, &[])]), [("p/middle".to_owned(), 4)]);
}

#[test]
fn a_queue_that_keeps_its_jobs_for_a_time_lets_go_of_older_ones_only() {
    let ledger = ledger("[queue.middle]\nretain = \"10s\"\n[queue.failed]\nretain = \"1s\"\n");
    let trims = ledger.enter(&[delivery(1, 1, 7, &[])], &Vec::new(), NOW).changes.trims;
    let of = |name: &str| trims.iter().find(|trim| trim.queue.name.as_str() == name).unwrap();
    assert_eq!((of("middle").up_to, of("middle").when), (7, TrimWhen::OlderThan(Timestamp(990_000))));
    // Nobody reads it, so age alone decides.
    assert_eq!((of("failed").up_to, of("failed").when), (u64::MAX, TrimWhen::OlderThan(Timestamp(999_000))));
}

#[test]
fn a_queue_that_keeps_its_jobs_for_ever_lets_go_of_none() {
    let ledger = ledger("[queue.middle]\nretain = \"forever\"\n");
    assert_eq!(ledger.enter(&[delivery(1, 1, 7, &[])], &Vec::new(), NOW).changes.trims, []);
}

#[test]
fn places_in_a_source_are_written_once() {
    let mut ledger = ledger("");
    let mark = Mark { index: 5, segment: 0, offset: 50, line: 5 };
    let told = Delivery { mark: Some(mark), segments: vec![segment(0, None)], ..delivery(0, 1, 5, &[]) };
    let places = |ledger: &Ledger, delivery: &Delivery| {
        let changes = ledger.enter(std::slice::from_ref(delivery), &Vec::new(), NOW).changes;
        (changes.marks.len(), changes.segments.len())
    };
    assert_eq!(places(&ledger, &told), (1, 1));
    let group = [told];
    let entry = ledger.enter(&group, &Vec::new(), NOW);
    ledger.settle(&group, entry);
    assert_eq!(places(&ledger, &group[0]), (0, 0));
    // A reader that is behind must not take back what another one knows; the end of a segment is new.
    let ended = Delivery { segments: vec![segment(0, Some(mark))], ..delivery(0, 6, 1, &[]) };
    assert_eq!(places(&ledger, &ended), (0, 1));
    // A file that was short at first is known by more of its beginning later.
    let longer = Segment { fingerprint_len: 100, fingerprint: 7, ..segment(0, None) };
    let strengthened = Delivery { segments: vec![longer], ..delivery(0, 6, 1, &[]) };
    assert_eq!(places(&ledger, &strengthened), (0, 1));
}

#[test]
fn an_index_is_given_once() {
    let mut ledger = ledger("");
    assert_eq!(ledger.grow(QueueRef(0), 3), 1);
    assert_eq!(ledger.grow(QueueRef(0), 1), 4);
    assert_eq!(ledger.heads[0], 4);
}
