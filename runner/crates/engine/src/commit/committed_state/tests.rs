//! Committed state tests: check the changes of a group of deliveries.

use std::path::Path;

use tidegate_plugin::Payloads;

use super::*;
use crate::batch::outcomes::DeliveryOutcomes;
use crate::commit::request::{InputSpan, Rewind};
use tidegate_config::{LoadOptions, load};
use tidegate_dispatch::BatchId;
use tidegate_model::{Address, Counters, Origins};

const NOW: Timestamp = Timestamp(1_000_000);

/// A pipeline `p`: `events` → step `first` → queue `middle` → step `second`.
fn committed_state(settings: &str) -> CommittedState {
    let folder = tempfile::tempdir().unwrap();
    let toml = format!(
        "[pipeline]\nname = \"p\"\nerrors = \"failed\"\n[source.events]\ntype = \"file\"\npath = \"in\"\n\
         format = \"lines\"\n[step.first]\nfrom = \"events\"\nto = \"middle\"\n[step.second]\n\
         from = \"middle\"\n{settings}"
    );
    std::fs::write(folder.path().join("p.toml"), toml).unwrap();
    let (configuration, _) = load(folder.path(), &LoadOptions::default()).finish().unwrap();
    let generation = NumberedGeneration::first(&Arc::new(configuration));
    let mut committed_state = CommittedState::new(Arc::clone(&generation));
    for &position in generation.configuration.steps.order() {
        let declared = DeclaredStep::new(&generation, position);
        let progress = vec![Progress::default(); declared.inputs.len()];
        committed_state.install(CommittedStep {
            declared,
            progress,
            snapshots: BTreeMap::new(),
            events: None,
            unmatched: None,
        });
    }
    committed_state
}

/// Step of the pipeline or of `third`, as a delivery carries it.
fn declared(step: usize) -> DeclaredStep {
    committed_state("[step.third]\nfrom = \"middle\"\n").steps[step].declared.clone()
}

fn delivery(step: usize, first: u64, taken: usize, output: &[&str]) -> StepChange {
    StepChange::Delivery(Box::new(batch(step, first, taken, output)))
}

fn batch(step: usize, first: u64, taken: usize, output: &[&str]) -> Delivery {
    let payloads: Payloads = output.iter().map(|text| text.as_bytes()).collect();
    let origins = Origins::new(Address::parse("p/first").unwrap(), vec!["p/events".into()]);
    let origins = payloads.iter().fold(origins, |mut origins, _| {
        origins.push(&[first]);
        origins
    });
    Delivery {
        step: declared(step),
        id: BatchId(first),
        jobs: jobs(first, taken as u64),
        outputs: if step == 0 { vec![OutputBlock::for_queue(payloads, &origins, None)] } else { Vec::new() },
        delayed: Vec::new(),
        provisional: Vec::new(),
        keyed: Vec::new(),
        halted_lanes: Vec::new(),
        errors: None,
        outcomes: DeliveryOutcomes::default(),
        events: Payloads::new(),
        settles: Vec::new(),
        counters: Counters { taken: taken as u64, ..Counters::default() },
        bytes: 0,
        places: Vec::new(),
        rest: None,
    }
}

fn jobs(first: u64, jobs: u64) -> BatchJobs {
    let spans = if jobs > 0 { vec![InputSpan { input: 0, first, jobs }] } else { Vec::new() };
    BatchJobs { spans, returned: Vec::new() }
}

fn placed(mark: Option<SourceOffset>, segments: Vec<Segment>, delivery: Delivery) -> StepChange {
    StepChange::Delivery(Box::new(Delivery { places: vec![(0, mark, segments)], ..delivery }))
}

fn segment(ordinal: u32, end: Option<SourceOffset>) -> Segment {
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
        tail: None,
        siblings_known: true,
        end,
    }
}

#[test]
fn deliveries_of_one_step_move_its_progress_together() {
    let committed_state = committed_state("");
    let group = [delivery(0, 1, 3, &["1", "2"]), delivery(0, 4, 2, &["3"])];
    let page = committed_state.prepare(&group, &Vec::new(), NOW);
    let [(step, input, progress)] = &page.changes.progress[..] else { panic!("{:?}", page.changes) };
    assert_eq!((step.to_string(), input.to_string()), ("p/first".into(), "p/events".into()));
    assert_eq!((progress.position(), progress.counters.taken), (5, 5));
    assert_eq!(page.changes.appends.iter().map(|append| append.block.len()).sum::<usize>(), 3);
}

#[test]
fn a_delivery_of_nothing_moves_nothing() {
    let committed_state = committed_state("");
    let page = committed_state.prepare(&[delivery(0, 1, 0, &[])], &Vec::new(), NOW);
    assert_eq!(page.changes.progress[0].2.position(), 0);
    assert!(page.changes.appends.is_empty());
}

#[test]
fn what_the_slowest_reader_has_accounted_for_may_go() {
    let mut committed_state = committed_state("[step.third]\nfrom = \"middle\"\n");
    let trimmed = |committed_state: &CommittedState, group: &[StepChange]| {
        let trims = committed_state.prepare(group, &Vec::new(), NOW).changes.trims;
        trims.iter().map(|trim| (trim.queue.to_string(), trim.up_to)).collect::<Vec<_>>()
    };
    assert_eq!(trimmed(&committed_state, &[delivery(1, 1, 7, &[])]), []);
    let group = [delivery(1, 1, 7, &[])];
    let page = committed_state.prepare(&group, &Vec::new(), NOW);
    committed_state.apply(&group, page);
    assert_eq!(trimmed(&committed_state, &[delivery(2, 1, 4, &[])]), [("p/middle".to_owned(), 4)]);
}

#[test]
fn a_queue_that_keeps_its_jobs_for_a_time_lets_go_of_older_ones_only() {
    let committed_state =
        committed_state("[queue.middle]\nretain = \"10s\"\n[queue.failed]\nretain = \"1s\"\n");
    let trims = committed_state.prepare(&[delivery(1, 1, 7, &[])], &Vec::new(), NOW).changes.trims;
    let of = |name: &str| trims.iter().find(|trim| trim.queue.name.as_str() == name).unwrap();
    assert_eq!((of("middle").up_to, of("middle").when), (7, TrimWhen::OlderThan(Timestamp(990_000))));
    // No step reads the queue, so age alone decides.
    assert_eq!((of("failed").up_to, of("failed").when), (u64::MAX, TrimWhen::OlderThan(Timestamp(999_000))));
}

#[test]
fn a_size_lets_go_of_what_nobody_needs_and_of_nothing_else() {
    let committed_state = committed_state(
        "[queue.middle]\nretain = \"forever\"\nmax_size = \"1MiB\"\n[queue.failed]\nmax_size = \"1KiB\"\n",
    );
    let trims = committed_state.prepare(&[delivery(1, 1, 7, &[])], &Vec::new(), NOW).changes.trims;
    let of = |name: &str| trims.iter().find(|trim| trim.queue.name.as_str() == name).unwrap();
    let middle = of("middle");
    assert_eq!((middle.up_to, middle.when, middle.max_bytes), (7, TrimWhen::Never, Some(1 << 20)));
    let failed = of("failed");
    assert_eq!((failed.up_to, failed.when, failed.max_bytes), (u64::MAX, TrimWhen::Never, Some(1 << 10)));
}

/// Beginning of a batch of two jobs.
fn begin(id: u64, first: u64) -> StepChange {
    let before = DurabilityBarrier::Snapshot;
    StepChange::Begin(BeginBatch {
        step: declared(1),
        id: BatchId(id),
        before,
        jobs: jobs(first, 2),
        rows: Vec::new(),
        events: Payloads::new(),
        places: Vec::new(),
    })
}

#[test]
fn records_have_the_order_in_which_batches_were_begun() {
    let mut committed_state = committed_state("");
    // The second one was split off the first before it was begun, so it has a later number than the third.
    let group = [begin(4, 1), begin(7, 3)];
    let page = committed_state.prepare(&group, &Vec::new(), NOW);
    committed_state.apply(&group, page);
    let group = [begin(5, 5), begin(6, 7)];
    let page = committed_state.prepare(&group, &Vec::new(), NOW);
    let numbers: Vec<_> =
        page.changes.snapshots.iter().map(|one| (one.number, one.inputs[0].first)).collect();
    assert_eq!(numbers, [(8, 5), (9, 7)]);
    committed_state.apply(&group, page);
    // A delivery removes the record of its own batch.
    let group = [StepChange::Delivery(Box::new(Delivery { id: BatchId(5), ..batch(1, 5, 2, &[]) }))];
    let page = committed_state.prepare(&group, &Vec::new(), NOW);
    assert_eq!(page.changes.done_snapshots.iter().map(|key| key.number).collect::<Vec<_>>(), [8]);
    committed_state.apply(&group, page);
    // A batch without a record has the number of another one's record.
    let group = [StepChange::Delivery(Box::new(Delivery { id: BatchId(9), ..batch(1, 9, 2, &[]) }))];
    let page = committed_state.prepare(&group, &Vec::new(), NOW);
    assert_eq!(page.changes.done_snapshots.len(), 0);
}

#[test]
fn what_was_begun_is_on_record_until_it_is_delivered() {
    let mut committed_state = committed_state("");
    let group = [begin(4, 1), begin(5, 3)];
    let page = committed_state.prepare(&group, &Vec::new(), NOW);
    assert!(page.changes.progress.is_empty());
    let [first, _] = &page.changes.snapshots[..] else { panic!("{:?}", page.changes) };
    assert_eq!((first.number, first.jobs, first.inputs[0].first), (4, 2, 1));
    assert_eq!(first.inputs[0].name, "p/middle");
    committed_state.apply(&group, page);
    // Each is removed on its own.
    let group = [StepChange::Delivery(Box::new(Delivery { id: BatchId(5), ..batch(1, 3, 2, &[]) }))];
    let page = committed_state.prepare(&group, &Vec::new(), NOW);
    assert_eq!(page.changes.done_snapshots.iter().map(|key| key.number).collect::<Vec<_>>(), [5]);
    committed_state.apply(&group, page);
    assert!(committed_state.steps[1].snapshots.keys().eq(&[4]));
}

#[test]
fn what_is_left_of_a_batch_that_was_begun_stays_on_record() {
    let mut committed_state = committed_state("");
    let part = |id, first, taken, rest| {
        StepChange::Delivery(Box::new(Delivery { id: BatchId(id), rest, ..batch(1, first, taken, &[]) }))
    };
    let numbers =
        |page: &PendingCommit| page.changes.snapshots.iter().map(|one| one.number).collect::<Vec<_>>();
    let jobs = |first, count| jobs(first, count);
    let begun = BeginBatch {
        step: declared(1),
        id: BatchId(4),
        before: DurabilityBarrier::Snapshot,
        jobs: jobs(1, 9),
        rows: Vec::new(),
        events: Payloads::new(),
        places: Vec::new(),
    };
    let group = [StepChange::Begin(begun)];
    let page = committed_state.prepare(&group, &Vec::new(), NOW);
    committed_state.apply(&group, page);
    let group = [part(4, 1, 3, Some((BatchId(7), jobs(4, 6))))];
    let page = committed_state.prepare(&group, &Vec::new(), NOW);
    // It keeps its number: a batch behind it, perhaps of another input, has a later one.
    assert_eq!(numbers(&page), [4]);
    assert_eq!((page.changes.snapshots[0].inputs[0].first, page.changes.snapshots[0].jobs), (4, 6));
    assert_eq!(page.changes.done_snapshots.iter().map(|key| key.number).collect::<Vec<_>>(), [4]);
    committed_state.apply(&group, page);
    // If two parts are delivered together, the snapshot between them is never written.
    let group =
        [part(7, 4, 1, Some((BatchId(8), jobs(5, 5)))), part(8, 5, 1, Some((BatchId(9), jobs(6, 4))))];
    let page = committed_state.prepare(&group, &Vec::new(), NOW);
    assert_eq!(numbers(&page), [4]);
    committed_state.apply(&group, page);
    assert!(committed_state.steps[1].snapshots.iter().eq([(&9, &4)]));
    let page = committed_state.prepare(&[part(9, 6, 4, None)], &Vec::new(), NOW);
    assert_eq!(numbers(&page), [0; 0]);
    assert_eq!(page.changes.done_snapshots.iter().map(|key| key.number).collect::<Vec<_>>(), [4]);
}

#[test]
fn at_most_once_moves_progress_before_the_attempt_and_counts_after_it() {
    let mut committed_state = committed_state("");
    let begin = BeginBatch {
        step: declared(1),
        id: BatchId(3),
        before: DurabilityBarrier::Progress,
        jobs: jobs(3, 2),
        rows: Vec::new(),
        events: Payloads::new(),
        places: Vec::new(),
    };
    let group = [StepChange::Begin(begin)];
    let page = committed_state.prepare(&group, &Vec::new(), NOW);
    let progress = &page.changes.progress[0].2;
    assert_eq!((progress.finished(), progress.counters.taken), (&[(3, 4)][..], 0));
    // A crash before the delivery leaves the record of the lost jobs.
    assert_eq!(
        page.changes.snapshots.iter().map(|begun| (begun.number, begun.jobs)).collect::<Vec<_>>(),
        [(3, 2)]
    );
    committed_state.apply(&group, page);
    let page = committed_state.prepare(&[delivery(1, 3, 2, &[])], &Vec::new(), NOW);
    let progress = &page.changes.progress[0].2;
    assert_eq!((progress.finished(), progress.counters.taken), (&[(3, 4)][..], 2));
    assert_eq!(page.changes.done_snapshots.iter().map(|key| key.number).collect::<Vec<_>>(), [3]);
}

#[test]
fn putting_back_takes_everything_back_that_was_accounted_for_above() {
    let mut committed_state = committed_state("");
    let group = [delivery(1, 1, 9, &[])];
    let page = committed_state.prepare(&group, &Vec::new(), NOW);
    committed_state.apply(&group, page);
    let page = committed_state.prepare(
        &[StepChange::Rewind(Rewind {
            step: declared(1),
            to: vec![RewindTo::Index(4)],
            waiting: Vec::new(),
        })],
        &Vec::new(),
        NOW,
    );
    assert_eq!(page.changes.progress[0].2.position(), 3);
    assert_eq!(page.changes.trims[0].up_to, 3);
    // An input without deliveries has no jobs to run again.
    let page = committed_state.prepare(
        &[StepChange::Rewind(Rewind { step: declared(1), to: vec![RewindTo::Stay], waiting: Vec::new() })],
        &Vec::new(),
        NOW,
    );
    assert_eq!(page.changes.progress[0].2.position(), 9);
}

#[test]
fn a_queue_that_keeps_its_jobs_for_ever_lets_go_of_none() {
    let committed_state = committed_state("[queue.middle]\nretain = \"forever\"\n");
    assert_eq!(committed_state.prepare(&[delivery(1, 1, 7, &[])], &Vec::new(), NOW).changes.trims, []);
}

#[test]
fn places_in_a_source_are_written_once() {
    let mut committed_state = committed_state("");
    let mark = SourceOffset { index: 5, segment: 0, offset: 50, line: 5 };
    let marked = placed(Some(mark), vec![segment(0, None)], batch(0, 1, 5, &[]));
    let places = |committed_state: &CommittedState, delivery: &StepChange| {
        let changes = committed_state.prepare(std::slice::from_ref(delivery), &Vec::new(), NOW).changes;
        (changes.marks.len(), changes.segments.len())
    };
    assert_eq!(places(&committed_state, &marked), (1, 1));
    let group = [marked];
    let page = committed_state.prepare(&group, &Vec::new(), NOW);
    committed_state.apply(&group, page);
    assert_eq!(places(&committed_state, &group[0]), (0, 0));
    // A slow reader must not undo the positions of a faster one; the end of a segment is new.
    let ended = placed(None, vec![segment(0, Some(mark))], batch(0, 6, 1, &[]));
    assert_eq!(places(&committed_state, &ended), (0, 1));
    // A file that was short at first gets a longer fingerprint later.
    let longer = Segment { fingerprint_len: 100, fingerprint: 7, ..segment(0, None) };
    let strengthened = placed(None, vec![longer], batch(0, 6, 1, &[]));
    assert_eq!(places(&committed_state, &strengthened), (0, 1));
}

#[test]
fn what_was_begun_can_be_found_again_in_its_source() {
    for before in [DurabilityBarrier::Snapshot, DurabilityBarrier::Progress] {
        let mut committed_state = committed_state("");
        let mark = SourceOffset { index: 1, segment: 0, offset: 0, line: 1 };
        let places = vec![(0, Some(mark), vec![segment(0, None)])];
        let group = [StepChange::Begin(BeginBatch {
            step: declared(0),
            id: BatchId(1),
            before,
            jobs: jobs(1, 2),
            rows: Vec::new(),
            events: Payloads::new(),
            places,
        })];
        let page = committed_state.prepare(&group, &Vec::new(), NOW);
        assert_eq!((page.changes.marks.len(), page.changes.segments.len()), (1, 1));
        committed_state.apply(&group, page);
        assert_eq!((committed_state.marks[&0], committed_state.segments[&0].ordinal), (mark, 0));
    }
}

#[test]
fn a_step_is_not_put_forward_when_it_is_put_back() {
    let mut committed_state = committed_state("");
    let group = [
        delivery(1, 1, 9, &[]),
        StepChange::Rewind(Rewind { step: declared(1), to: vec![RewindTo::Stay], waiting: Vec::new() }),
    ];
    let page = committed_state.prepare(&group, &Vec::new(), NOW);
    committed_state.apply(&group, page);
    let next = |step: usize| committed_state.steps[step].progress[0].position() + 1;
    assert_eq!((next(1), next(0)), (10, 1));
}
