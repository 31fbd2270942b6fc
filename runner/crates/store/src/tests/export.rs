//! Tests of export and import: a store is restored unchanged, and damaged exports are refused.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::history::{COMMITS, assert_has_come_back, commit, run};
use super::*;
use crate::{
    CompletionRecord, DedupeOutcome, DedupeRecord, DeliveredJob, DeliveredJobs, DeliveryOutcome,
    DeliveryTimes, FinishedEnd, FinishedOutput, FinishedResult, GenerationRecord, ImportError, JobForm,
    LateJob, NewLateJob, NewParkedJob, ParkReason, ParkedId, ParkedJob, Snapshot, SnapshotInput, Trim,
    TrimWhen,
};
use crate::{export, import};
use crate::{open, verify};
use tidegate_model::{DeliveryHash, Due, ExternalStatus, Origins, Progress, TokenKey};

fn exported(store: &Store) -> Vec<u8> {
    let mut out = Vec::new();
    let inventory = export(store, &mut out).unwrap();
    let lines: u64 = inventory.kinds().iter().map(|(_, count)| count).sum();
    assert_eq!(out.split(|&byte| byte == b'\n').count() as u64, lines + 3);
    out
}

/// The export of a store that was imported from `lines`, and is valid.
fn exported_again(lines: &[u8]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    import(folder.path(), lines).unwrap();
    let (store, _writer) = open(folder.path()).unwrap();
    assert_eq!(verify(&store).unwrap().problems, Vec::<String>::new());
    exported(&store)
}

fn history() -> Vec<u8> {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    assert_eq!(run(&mut writer, COMMITS), COMMITS);
    exported(&store)
}

/// A store with one record of each kind, and its export.
fn small() -> String {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    writer.commit(&Changes { now: Timestamp(1), ..commit(1).clone() }).unwrap();
    let lines = String::from_utf8(exported(&store)).unwrap();
    let header = lines.lines().next().unwrap();
    // The only part of it that differs every time.
    let created = header.split_once("\"created\":").unwrap().1.split_once(',').unwrap().0;
    lines.replace(&format!("\"created\":{created}"), "\"created\":1")
}

#[test]
fn each_thing_has_a_line() {
    insta::assert_snapshot!(small());
}

#[test]
fn a_history_comes_back_and_goes_on() {
    let lines = history();
    let folder = tempfile::tempdir().unwrap();
    import(folder.path(), &lines[..]).unwrap();
    let (store, mut writer) = open(folder.path()).unwrap();
    assert_has_come_back(&store, COMMITS);
    assert_eq!(exported(&store), lines);
    writer.commit(commit(COMMITS + 1)).unwrap();
    assert_has_come_back(&store, COMMITS + 1);
}

/// One change to commit.
#[derive(Clone, Debug)]
enum Thing {
    Jobs { queue: usize, step: Option<usize>, jobs: Vec<(Vec<u8>, Vec<u8>, [u64; 2])> },
    Progress { queue: usize, first: u64, by_hand: bool },
    Delivery { hash: u8, outcome: DedupeOutcome, times: Option<DeliveryTimes>, keep: Option<i64> },
    Delivered { input: usize, first: u64, jobs: Vec<(DeliveryOutcome, DeliveryTimes)>, keep: Option<i64> },
    Snapshot { number: u64 },
    Delayed { step: usize, due: i64, payload: Vec<u8>, rich: bool },
    Late { queue: usize, due: i64, payload: Vec<u8> },
    Generation(u64),
    Ticked { source: usize, time: i64 },
    Trim { queue: usize, up_to: u64 },
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20),
        "\\PC{0,9}".prop_map(String::into_bytes),
        prop::sample::select(&[r#"{"id": 1,  "a":[1.0e3]}"#, " 7", "{\n}", "\"\\u00e4\"", "1 2"][..])
            .prop_map(|text| text.as_bytes().to_vec()),
        (any::<u8>(), 60_000_usize..300_000).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

fn delivery_outcome() -> impl Strategy<Value = DeliveryOutcome> {
    prop_oneof![
        any::<u32>().prop_map(|jobs| DeliveryOutcome::Output { jobs }),
        Just(DeliveryOutcome::Error),
        Just(DeliveryOutcome::Nothing),
    ]
}

pub(super) fn delivery_times() -> impl Strategy<Value = DeliveryTimes> {
    let time = || prop::option::of(prop_oneof![any::<i64>(), 0_i64..9].prop_map(Timestamp));
    let attempts = prop_oneof![any::<u32>(), 0_u32..3];
    (attempts, time(), time(), time()).prop_map(|(attempts, created, first_attempt, submitted)| {
        DeliveryTimes { attempts, created, first_attempt, submitted }
    })
}

fn thing() -> impl Strategy<Value = Thing> {
    let index = || prop_oneof![Just(0), 1_u64..50, any::<u64>()];
    let job = (bytes(), prop_oneof![3 => Just(Vec::new()), 1 => bytes()], [index(), index()]);
    let outcome = prop_oneof![
        any::<u32>().prop_map(|jobs| DedupeOutcome::Output { jobs }),
        Just(DedupeOutcome::Error),
        Just(DedupeOutcome::Nothing),
        any::<(u64, u32, u64)>().prop_map(|(first, jobs, content)| DedupeOutcome::Ingested {
            first,
            jobs,
            content
        }),
        any::<(u64, u32, u64, u32)>().prop_map(|(first, jobs, id, late)| DedupeOutcome::IngestedLate {
            first,
            jobs,
            content: !first,
            late_first: ParkedId(id),
            late,
        }),
        any::<u64>().prop_map(|content| DedupeOutcome::CompletedExternally {
            status: ExternalStatus::Invalid,
            content
        }),
    ];
    prop_oneof![
        4 => (0_usize..3, prop::option::of(0_usize..2), prop::collection::vec(job, 0..9))
            .prop_map(|(queue, step, jobs)| Thing::Jobs { queue, step, jobs }),
        1 => (0_usize..3, 1_u64..9, any::<bool>())
            .prop_map(|(queue, first, by_hand)| Thing::Progress { queue, first, by_hand }),
        1 => (any::<u8>(), outcome, prop::option::of(delivery_times()), prop::option::of(-2_i64..9))
            .prop_map(|(hash, outcome, times, keep)| Thing::Delivery { hash, outcome, times, keep }),
        2 => (0_usize..3, 1_u64..30, prop::collection::vec((delivery_outcome(), delivery_times()), 1..9), prop::option::of(-2_i64..9))
            .prop_map(|(input, first, jobs, keep)| Thing::Delivered { input, first, jobs, keep }),
        1 => (0_u64..5).prop_map(|number| Thing::Snapshot { number }),
        2 => (0_usize..2, -9_i64..9, bytes(), any::<bool>())
            .prop_map(|(step, due, payload, rich)| Thing::Delayed { step, due, payload, rich }),
        2 => (0_usize..3, -9_i64..9, bytes()).prop_map(|(queue, due, payload)| Thing::Late { queue, due, payload }),
        1 => any::<u64>().prop_map(Thing::Generation),
        1 => (0_usize..3, any::<i64>()).prop_map(|(source, time)| Thing::Ticked { source, time }),
        1 => (0_usize..3, 0_u64..20).prop_map(|(queue, up_to)| Thing::Trim { queue, up_to }),
    ]
}

/// A reason of each kind, with a due time that goes with it.
fn parked_by(due: i64) -> (ParkReason, Due) {
    let time = Timestamp(due);
    match due.rem_euclid(7) {
        0 => (ParkReason::Delayed, Due::Now),
        1 => (ParkReason::Started { since: time }, Due::Now),
        2 => (ParkReason::Output { to: "late".into() }, Due::At(time)),
        3 => (completed(), Due::Now),
        4 => (ParkReason::Delayed, Due::Hastened(time)),
        5 => (ParkReason::Finished { result: finished(due) }, Due::Never),
        _ => (ParkReason::Pending { handle: String::new(), since: time }, Due::Never),
    }
}

/// A result of each end, with outputs that are no text.
fn finished(due: i64) -> FinishedResult {
    let end = match due.rem_euclid(3) {
        0 => FinishedEnd::Delivered,
        1 => FinishedEnd::SetAside { record: b"{}".to_vec() },
        _ => FinishedEnd::Dropped,
    };
    let output = |due| FinishedOutput { to: "out".into(), due, payload: vec![b'"', 0xff, 0] };
    let outputs = vec![output(None), output(Some(Timestamp(due)))];
    FinishedResult { end, outputs, events: vec![b"[]".to_vec()] }
}

fn completed() -> ParkReason {
    let completion =
        CompletionRecord { status: ExternalStatus::Committed, result: Some("[1.50]".into()), reason: None };
    ParkReason::Completed { handle: "h".into(), since: Timestamp(-7), completion }
}

fn name(number: usize) -> Address {
    address(["a/one", "a-b/two", "b/one"][number])
}

impl Thing {
    fn enter(&self, now: i64, progress: &mut BTreeMap<usize, Progress>, changes: &mut Changes) {
        match self.clone() {
            Self::Jobs { queue, step, jobs } => {
                let origins = step.map(|step| {
                    let names = [["new", "old"], ["x", "a"]][step].map(str::to_owned);
                    let mut origins = Origins::new(name(step), names.to_vec());
                    for (_, _, row) in &jobs {
                        origins.push(row);
                    }
                    origins
                });
                let carried: Payloads = jobs.iter().map(|(_, carried, _)| &carried[..]).collect();
                let payloads: Payloads = jobs.iter().map(|(payload, ..)| &payload[..]).collect();
                let details = Details { origins: origins.as_ref(), carried: Some(&carried) };
                changes.appends.push(Append { queue: name(queue), block: Block::encode(&payloads, details) });
            }
            Self::Progress { queue, first, by_hand } => {
                let progress = progress.entry(queue + 3 * usize::from(by_hand)).or_default();
                progress.finish(first, first + 1);
                progress.counters.taken += 2;
                if by_hand {
                    changes.handled_errors.push((name(queue), progress.clone()));
                } else {
                    // The store does not hold the jobs of a source.
                    changes.progress.push((name(0), address("c/source"), progress.clone()));
                }
            }
            Self::Delivery { hash, outcome, times, keep } => {
                let keep_until = keep.map(|keep| Timestamp(now + keep));
                changes.dedupe_records.push(DedupeRecord {
                    hash: DeliveryHash(hash.into()),
                    outcome,
                    times,
                    keep_until,
                });
            }
            Self::Delivered { input, first, jobs, keep } => {
                let (step, input) = (name(2), name(input).to_string());
                let job = |(index, (outcome, times))| DeliveredJob { index, outcome, times };
                let jobs = (first..).zip(jobs).map(job).collect();
                let keep_until = keep.map(|keep| Timestamp(now + keep));
                changes.delivered.push(DeliveredJobs { step, input, jobs, keep_until });
            }
            Self::Snapshot { number } => {
                let input = SnapshotInput { name: "x".into(), address: name(1), first: 3, jobs: 1 << 40 };
                let inputs = vec![input; usize::try_from(number).unwrap()];
                changes.snapshots.push(Snapshot {
                    step: name(2),
                    number,
                    inputs,
                    jobs: 9,
                    time: Timestamp(now),
                });
            }
            Self::Delayed { step, due, payload, rich } => {
                let (reason, due) = parked_by(due);
                let job = ParkedJob {
                    due,
                    inputs: vec![("x".into(), 7); usize::from(rich)],
                    attempt: 3,
                    first_attempt: rich.then_some(Timestamp(-1)),
                    created: rich.then_some(Timestamp(-3)),
                    last_submitted: rich.then_some(Timestamp(i64::MAX)),
                    last_error: rich.then(|| "no\n\"use\"".into()),
                    from_error: rich.then(|| (name(0), u64::MAX)),
                    reason,
                    form: [JobForm::Json, JobForm::Bytes][usize::from(rich)],
                    payload,
                    carried: rich.then(|| "{}".into()),
                };
                changes.parked.push(NewParkedJob { step: name(step), job });
            }
            Self::Late { queue, due, payload } => {
                let due = if due % 3 == 0 { Due::Now } else { Due::At(Timestamp(due)) };
                changes.late.new.push(NewLateJob { queue: name(queue), job: LateJob { due, payload } });
            }
            Self::Generation(number) => {
                let time = Timestamp(now);
                changes.generation = Some(GenerationRecord { number, fingerprint: !number, time });
                changes.token_key = TokenKey::new(&[number.to_le_bytes()[0]; 32]);
            }
            Self::Ticked { source, time } => changes.schedule_positions.push((name(source), Timestamp(time))),
            Self::Trim { queue, up_to } => {
                let when = TrimWhen::Always;
                changes.trims.push(Trim { queue: name(queue), up_to, when, max_bytes: None });
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn an_export_that_is_imported_and_exported_again_is_the_same(
        commits in prop::collection::vec(prop::collection::vec(thing(), 0..6), 0..12),
    ) {
        let (store, mut writer) = open_on(&FaultyDisk::new());
        let mut progress = BTreeMap::new();
        for (now, things) in (0..).zip(commits) {
            let mut changes = Changes { now: Timestamp(now), ..Changes::default() };
            for thing in things {
                thing.enter(now, &mut progress, &mut changes);
            }
            writer.commit(&changes).unwrap();
        }
        let first = exported(&store);
        let again = exported_again(&first);
        prop_assert_eq!(String::from_utf8(again).unwrap(), String::from_utf8(first).unwrap());
    }

    #[test]
    fn a_store_that_is_recovered_from_its_log_is_the_same(
        commits in prop::collection::vec(prop::collection::vec(thing(), 0..6), 0..20),
    ) {
        let disk = FaultyDisk::new();
        let (store, mut writer) = open_on(&disk);
        let mut progress = BTreeMap::new();
        for (now, things) in (0..).zip(commits) {
            let mut changes = Changes { now: Timestamp(now), ..Changes::default() };
            for thing in things {
                thing.enter(now, &mut progress, &mut changes);
            }
            writer.commit(&changes).unwrap();
        }
        let (recovered, _writer) = open_on(&FaultyDisk::with(disk.survivors(0)));
        prop_assert_eq!(
            String::from_utf8(exported(&recovered)).unwrap(),
            String::from_utf8(exported(&store)).unwrap()
        );
    }

    #[test]
    fn a_damaged_export_is_refused_or_makes_a_whole_store(
        at in any::<prop::sample::Index>(), harm in 0_usize..4, byte in any::<u8>(),
    ) {
        let small = small();
        let mut lines: Vec<Vec<u8>> = small.lines().map(|line| line.as_bytes().to_vec()).collect();
        let line = at.index(lines.len());
        match harm {
            0 => drop(lines.remove(line)),
            1 => lines.insert(line, lines[line].clone()),
            2 => {
                let place = at.index(lines[line].len());
                lines[line][place] = byte;
            }
            _ => {
                let other = usize::from(byte) % lines.len();
                lines.swap(line, other);
            }
        }
        let folder = tempfile::tempdir().unwrap();
        match import(folder.path(), &*lines.join(&b'\n')) {
            Ok(_) => {
                let (store, _writer) = open(folder.path()).unwrap();
                prop_assert_eq!(verify(&store).unwrap().problems, Vec::<String>::new());
            }
            Err(ImportError::Line { .. }) => {
                let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
                // Only the lock file.
                prop_assert_eq!(left.len(), 1, "{:?}", left);
            }
            Err(error) => prop_assert!(false, "{error:?}"),
        }
    }
}

/// The error with which `lines` are refused.
fn refusal(lines: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let error = import(folder.path(), lines.as_bytes()).unwrap_err();
    assert!(!folder.path().join("store.redb").exists());
    error.to_string()
}

#[test]
fn a_mistake_is_told_with_its_line() {
    let small = small();
    let without = |what: &str| -> String {
        small.lines().filter(|line| !line.starts_with(what)).flat_map(|line| [line, "\n"]).collect()
    };
    let cut = small.lines().count() - 1;
    let cases = [
        ("empty", String::new()),
        ("something else", "{\"id\":1}\n".to_owned()),
        ("newer", "{\"header\":{\"version\":7,\"colour\":1}}\n".to_owned()),
        ("cut after a line", small.lines().take(cut).flat_map(|line| [line, "\n"]).collect()),
        ("cut in a line", small[..small.len() / 2].to_owned()),
        ("cut in the end", small[..small.len() - 3].to_owned()),
        ("something behind", format!("{small}{{}}")),
        ("no queues", without("{\"queue\"")),
        ("no jobs", without("{\"job\"")),
        ("no mark", without("{\"mark\"")),
        ("another index", small.replacen("\"index\":1,\"time\"", "\"index\":2,\"time\"", 1)),
        ("too many jobs", small.replacen("\"head\":2", "\"head\":1", 1)),
        ("a queue without an end", small.replacen("\"head\":2", "\"head\":18446744073709551615", 1)),
        (
            "a watermark without an end",
            small.replacen("\"watermark\":", "\"watermark\":1844674407370955161", 1),
        ),
        ("a mark without an end", small.replacen("\"index\":10,", "\"index\":18446744073709551615,", 1)),
        (
            "a snapshot without an end",
            small.replacen("\"first\":1,\"jobs\":2", "\"first\":1,\"jobs\":18446744073709551615", 1),
        ),
        ("a later commit", small.replacen("\"transaction\":1", "\"transaction\":0", 1)),
        ("a later sequence", small.replacen("\"sequence\":1", "\"sequence\":0", 1)),
        ("a bad name", small.replacen("\"step\":\"a/step\"", "\"step\":\"step\"", 1)),
        ("unknown keys", small.replacen("\"attempt\"", "\"atempt\"", 1)),
        ("a bad hash", small.replacen("\"hash\":\"0", "\"hash\":\"+", 1)),
        ("a range that ends before it begins", small.replacen("[\"error\",1]", "[\"error\",0]", 1)),
        ("a range without an end", small.replacen("\"first\":2,", "\"first\":18446744073709551615,", 1)),
        (
            "deliveries twice",
            small.replacen(
                "{\"delivered\"",
                &format!("{}\n{{\"delivered\"", line_of(&small, "{\"delivered\"")),
                1,
            ),
        ),
        ("bad base64", small.replacen("{\"text\":\"delayed 1\"}", "{\"base64\":\"x\"}", 1)),
        ("a bad watermark", small.replacen("\"finished\":[]", "\"finished\":[[1,4]]", 1)),
        ("twice", small.replacen("{\"sink\"", &format!("{}\n{{\"sink\"", line_of(&small, "{\"sink\"")), 1)),
    ];
    let refusals: Vec<_> =
        cases.iter().map(|(what, lines)| format!("{what}\n  {}", refusal(lines))).collect();
    insta::assert_snapshot!(refusals.join("\n"));
}

fn line_of<'a>(lines: &'a str, start: &str) -> &'a str {
    lines.lines().find(|line| line.starts_with(start)).unwrap()
}

#[test]
fn only_a_store_that_nothing_was_committed_to_is_replaced() {
    let small = small();
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()).unwrap());
    import(folder.path(), small.as_bytes()).unwrap();
    let error = import(folder.path(), small.as_bytes()).unwrap_err();
    insta::assert_snapshot!(error.to_string().replace(&folder.path().display().to_string(), "DATA"), @"the store `DATA/store.redb` is not empty, and an import would replace it; choose another folder with `--data`, or move it away");
    let (store, _writer) = open(folder.path()).unwrap();
    assert_has_come_back(&store, 1);
    assert!(matches!(import(folder.path(), small.as_bytes()), Err(ImportError::Store(_))));
}

#[test]
fn a_failed_import_leaves_an_unused_store_alone() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()).unwrap());
    let small = small();
    assert!(import(folder.path(), &small.as_bytes()[..small.len() - 5]).is_err());
    assert!(!folder.path().join("store.redb.new").exists());
    let (store, _writer) = open(folder.path()).unwrap();
    assert_has_come_back(&store, 0);
}

#[test]
fn an_output_that_fails_is_told_apart_from_a_store_that_does() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let (store, writer) = open_on(&FaultyDisk::new());
    assert!(matches!(export(&store, Full), Err(crate::ExportError::Write(_))));
    drop(writer);
    assert!(matches!(export(&store, Vec::new()), Err(crate::ExportError::Read(_))));
}
