//! Tests of the history: entries, texts, their removal, and damage.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::database::format::RecordKey;
use crate::database::history::{HISTORY, TEXTS};
use crate::{
    ENTRIES_MAX, HistoryChange, NewHistoryEntry, NewParkedJob, ParkReason, ParkedJob, Renames, Snapshot,
    SnapshotInput, TakeoverOutcome, TextHash, Trigger, open, verify,
};
use redb::{Database, ReadableDatabase as _, ReadableTableMetadata as _};
use tidegate_model::{NamedKind, Progress, RenamedPart};

fn entry(generation: u64, files: &[(&str, &str)]) -> HistoryChange {
    HistoryChange::Add(NewHistoryEntry {
        generation: Some(generation),
        trigger: Trigger::Start,
        outcome: TakeoverOutcome::Installed,
        files: files.iter().map(|(path, text)| ((*path).to_owned(), Arc::from(*text))).collect(),
        plugins: BTreeMap::from([("geo".to_owned(), "ab".repeat(32))]),
        digest: "{}".into(),
    })
}

fn with(now: i64, history: Vec<HistoryChange>) -> Changes {
    Changes { now: Timestamp(now), history, ..Changes::default() }
}

#[test]
fn an_entry_has_the_texts_of_its_files() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    assert_eq!(store.history().unwrap(), (Vec::new(), 0));
    assert_eq!(store.history_text(&TextHash::of("a")).unwrap(), None);
    let long = "from = \"in\"\n".repeat(1000);
    writer.commit(&with(5, vec![entry(1, &[("a.toml", &long), ("empty.rhai", "")])])).unwrap();
    let (entries, damaged) = store.history().unwrap();
    assert_eq!((entries.len(), damaged, entries[0].time), (1, 0, Timestamp(5)));
    let texts: Vec<_> =
        entries[0].files.iter().map(|(path, hash)| (&**path, store.history_text(hash).unwrap())).collect();
    assert_eq!(texts, [("a.toml", Some(long)), ("empty.rhai", Some(String::new()))]);
    assert_eq!(verify(&store).unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_generation_that_was_replaced_says_so() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let undone = HistoryChange::RolledBack { generation: 2, why: "too many errors".into() };
    writer.commit(&with(1, vec![entry(1, &[]), entry(2, &[]), undone])).unwrap();
    let outcomes: Vec<_> = store.history().unwrap().0.into_iter().map(|entry| entry.outcome).collect();
    let replaced = TakeoverOutcome::RolledBack("too many errors".into());
    assert_eq!(outcomes, [TakeoverOutcome::Installed, replaced]);
}

#[test]
fn equal_texts_are_stored_once_and_old_entries_are_removed_with_theirs() {
    let folder = tempfile::tempdir().unwrap();
    let (store, mut writer) = open(folder.path()).unwrap();
    let added = ENTRIES_MAX + 3;
    for generation in 1..=added {
        let own = generation.to_string();
        writer.commit(&with(1, vec![entry(generation, &[("a", "shared"), ("b", &own)])])).unwrap();
    }
    let (entries, _) = store.history().unwrap();
    let generations: Vec<_> = entries.iter().filter_map(|entry| entry.generation).collect();
    assert_eq!(generations, (4..=added).collect::<Vec<_>>());
    assert_eq!(store.history_text(&TextHash::of("3")).unwrap(), None);
    assert_eq!(store.history_text(&TextHash::of("4")).unwrap().as_deref(), Some("4"));
    drop(writer);
    let database = Database::open(folder.path().join("store.redb")).unwrap();
    let texts = database.begin_read().unwrap().open_table(TEXTS).unwrap().len().unwrap();
    // One a generation, the shared one, and the digest.
    assert_eq!(texts, ENTRIES_MAX + 2);
}

#[test]
fn damage_is_reported_and_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (_, mut writer) = open(folder.path()).unwrap();
    writer.commit(&with(1, vec![entry(1, &[("a", "one")]), entry(2, &[("a", "two")])])).unwrap();
    drop(writer);
    let database = Database::open(folder.path().join("store.redb")).unwrap();
    let txn = database.begin_write().unwrap();
    txn.open_table(HISTORY).unwrap().insert(1, &b"damaged"[..]).unwrap();
    txn.open_table(HISTORY).unwrap().insert(3, &*RecordKey::History(3).seal(b"{".to_vec())).unwrap();
    let two = u128::from_str_radix(TextHash::of("two").as_str(), 16).unwrap();
    txn.open_table(TEXTS).unwrap().insert(two, &[0xff; 20][..]).unwrap();
    txn.commit().unwrap();
    drop(database);

    let (store, mut writer) = open(folder.path()).unwrap();
    let problems = verify(&store).unwrap().problems;
    assert!(problems.len() == 2 && problems[0].starts_with("2 entries"), "{problems:?}");
    assert_eq!(store.history_text(&TextHash::of("two")).unwrap(), None);
    // A text that comes again repairs its copy.
    writer.commit(&with(2, vec![entry(4, &[("a", "two")])])).unwrap();
    let (entries, damaged) = store.history().unwrap();
    assert_eq!((entries.len(), damaged), (2, 2));
    assert_eq!(store.history_text(&TextHash::of("two")).unwrap().as_deref(), Some("two"));
}

#[test]
fn a_renamed_step_takes_everything_along_once() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let [old, new, other, input] = ["p/old", "p/new", "p/other", "p/in"].map(address);
    let mut progress = Progress::default();
    progress.finish(1, 3);
    let parked = |id, reason| NewParkedJob {
        step: old.clone(),
        job: ParkedJob {
            inputs: vec![("p/in".into(), id)],
            reason,
            payload: b"1".to_vec(),
            ..ParkedJob::default()
        },
    };
    let snapshot = Snapshot { step: old.clone(), number: 7, inputs: vec![], jobs: 2, time: Timestamp(1) };
    writer
        .commit(&Changes {
            now: Timestamp(1),
            // The old name is that of a queue, too.
            appends: vec![append("p/in", ["1", "2", "3", "4"]), append("p/old", ["5"])],
            progress: vec![(old.clone(), input.clone(), progress.clone())],
            snapshots: vec![snapshot.clone()],
            parked: vec![
                parked(4, ParkReason::Delayed),
                parked(3, ParkReason::Started { since: Timestamp(1) }),
            ],
            pauses: vec![(old.clone(), true)],
            ..Changes::default()
        })
        .unwrap();
    let rename = RenamedPart { kind: NamedKind::Step, from: old.clone(), to: new.clone() };
    assert!(store.known_parts().unwrap().steps.contains(&old));
    let renamed = Renames { generation: 2, parts: vec![rename] };
    let changes = Changes { now: Timestamp(2), renamed, ..Changes::default() };
    // The second move finds nothing.
    writer.commit(&changes).unwrap();
    writer.commit(&changes).unwrap();
    assert_eq!(Vec::from_iter(store.known_parts().unwrap().steps), std::slice::from_ref(&new));

    assert_eq!(store.progress(&old, &input).unwrap(), None);
    assert_eq!(store.progress(&new, &input).unwrap(), Some(progress.clone()));
    assert_eq!(store.snapshots(&new).unwrap(), [Snapshot { step: new.clone(), ..snapshot }]);
    let (before, after) = (store.parked_totals(&old).unwrap(), store.parked_totals(&new).unwrap());
    assert_eq!((before.delayed, before.started, after.delayed, after.started), (0, 0, 1, 1));
    let found = store.first_parked_of(&new, ("p/in", 4)).unwrap();
    assert!(found.is_some(), "its index moved");
    let paused: Vec<_> = store.pauses().unwrap().into_iter().map(|pause| pause.step).collect();
    assert_eq!(paused, std::slice::from_ref(&new));
    assert_eq!(jobs(&store, &old), [b"5"]);
    assert_eq!(verify(&store).unwrap().problems, Vec::<String>::new());

    // A step with progress of its own keeps it.
    let own = vec![(other.clone(), input.clone(), Progress::default())];
    writer.commit(&Changes { now: Timestamp(3), progress: own, ..Changes::default() }).unwrap();
    let parts = vec![RenamedPart { kind: NamedKind::Step, from: new.clone(), to: other.clone() }];
    let renamed = Renames { generation: 4, parts };
    writer.commit(&Changes { now: Timestamp(4), renamed, ..Changes::default() }).unwrap();
    assert_eq!(store.progress(&new, &input).unwrap(), Some(progress));
    assert_eq!(store.name_history().unwrap().since(1).step(&old), new);
}

#[test]
fn an_attempt_of_a_step_without_progress_has_the_new_name_of_its_input() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let [old, new, step] = ["p/old", "p/new", "p/step"].map(address);
    let attempt = |queue: &Address| {
        let input = SnapshotInput { name: queue.to_string(), address: queue.clone(), first: 1, jobs: 1 };
        Snapshot { step: step.clone(), number: 1, inputs: vec![input], jobs: 1, time: Timestamp(1) }
    };
    let (appends, snapshots) = (vec![append("p/old", ["1"])], vec![attempt(&old)]);
    writer.commit(&Changes { now: Timestamp(1), appends, snapshots, ..Changes::default() }).unwrap();
    let parts = vec![RenamedPart { kind: NamedKind::Endpoint, from: old.clone(), to: new.clone() }];
    let renamed = Renames { generation: 2, parts };
    writer.commit(&Changes { now: Timestamp(2), renamed, ..Changes::default() }).unwrap();
    assert_eq!(store.snapshots(&step).unwrap(), [attempt(&new)]);
}

#[test]
fn a_queue_without_jobs_continues_the_indices_of_the_name_that_it_gets() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let [used, other, empty] = ["p/used", "p/other", "p/empty"].map(address);
    let appended = |job| Changes { appends: vec![append("p/used", [job])], ..Changes::default() };
    let renamed = |generation, from: &Address, to: &Address| {
        let parts = vec![RenamedPart { kind: NamedKind::Endpoint, from: from.clone(), to: to.clone() }];
        Changes { now: Timestamp(1), renamed: Renames { generation, parts }, ..Changes::default() }
    };
    writer.commit(&appended("1")).unwrap();
    writer.commit(&renamed(2, &used, &other)).unwrap();
    writer.commit(&renamed(3, &empty, &used)).unwrap();
    writer.commit(&appended("2")).unwrap();
    let state = store.queue(&used).unwrap().unwrap();
    assert_eq!((state.first, state.head), (2, 2));
    assert_eq!(jobs(&store, &other), [b"1"]);
    assert_eq!(verify(&store).unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_renamed_queue_takes_its_jobs_and_its_readers_along() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    // A step has the old name, and another one the new name.
    let [old, new, errors, failed, reader] =
        ["p/old", "p/new", "p/errors", "p/failed", "p/reader"].map(address);
    let mut progress = Progress::default();
    progress.finish(1, 2);
    let parked = |step: &Address, id| NewParkedJob {
        step: step.clone(),
        job: ParkedJob {
            inputs: vec![(old.to_string(), id)],
            reason: ParkReason::Delayed,
            payload: b"1".to_vec(),
            from_error: Some((errors.clone(), 1)),
            ..ParkedJob::default()
        },
    };
    let input = SnapshotInput { name: old.to_string(), address: old.clone(), first: 2, jobs: 1 };
    let snapshot =
        Snapshot { step: reader.clone(), number: 7, inputs: vec![input], jobs: 1, time: Timestamp(1) };
    writer
        .commit(&Changes {
            now: Timestamp(1),
            appends: vec![append("p/old", ["1", "2"]), append("p/errors", ["3", "4"])],
            progress: vec![
                (reader.clone(), old.clone(), progress.clone()),
                (old.clone(), old.clone(), progress.clone()),
                (new.clone(), errors.clone(), progress.clone()),
            ],
            handled_errors: vec![(errors.clone(), progress.clone())],
            snapshots: vec![snapshot],
            parked: vec![parked(&reader, 2), parked(&old, 1)],
            ..Changes::default()
        })
        .unwrap();
    let rename = |from: &Address, to: &Address| RenamedPart {
        kind: NamedKind::Endpoint,
        from: from.clone(),
        to: to.clone(),
    };
    let renamed = Renames { generation: 2, parts: vec![rename(&old, &new), rename(&errors, &failed)] };
    let changes = Changes { now: Timestamp(2), renamed, ..Changes::default() };
    // The second move changes nothing.
    writer.commit(&changes).unwrap();
    writer.commit(&changes).unwrap();

    assert_eq!((jobs(&store, &old).len(), jobs(&store, &new)), (0, vec![b"1".to_vec(), b"2".to_vec()]));
    let of = |step: &Address, input: &Address| store.progress(step, input).unwrap();
    for step in [&reader, &old] {
        assert_eq!((of(step, &old), of(step, &new)), (None, Some(progress.clone())));
    }
    assert_eq!(of(&new, &failed), Some(progress.clone()), "a step stays where it is");
    assert_eq!((store.handled(&errors).unwrap(), store.handled(&failed).unwrap()), (None, Some(progress)));
    let (_, job) = store.first_parked_of(&reader, ("p/new", 2)).unwrap().expect("its index moved");
    assert_eq!(job.from_error, Some((failed, 1)));
    assert!(store.first_parked_of(&old, ("p/new", 1)).unwrap().is_some());
    let input = &store.snapshots(&reader).unwrap()[0].inputs[0];
    assert_eq!((&*input.name, &input.address), ("p/new", &new));
    assert_eq!(verify(&store).unwrap().problems, Vec::<String>::new());
    // The old name is free, and its indices go on.
    writer.commit(&Changes { appends: vec![append("p/old", ["9"])], ..Changes::default() }).unwrap();
    assert_eq!((jobs(&store, &old), jobs(&store, &new).len()), (vec![b"9".to_vec()], 2));
    assert_eq!(store.queue(&old).unwrap().map(|queue| queue.head), Some(3));
}
