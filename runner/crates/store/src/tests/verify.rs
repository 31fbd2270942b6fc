//! Tests of verification: it reports parts that contradict each other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use redb::{Database, TableDefinition};

use super::history::{COMMITS, run};
use super::{address, append, appends, open_on};
use crate::database::format;
use crate::database::format::{DELAYED, DELAYED_COUNTS, DELIVERIES, EXPIRIES, SNAPSHOTS};
use crate::testing::FaultyDisk;
use crate::{Changes, ReadError, Store};
use crate::{open, verify};
use tidegate_model::Progress;

/// The problems of a history after `harm`.
fn problems_after(harm: impl FnOnce(&redb::WriteTransaction)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (_, mut writer) = open(folder.path()).unwrap();
    assert_eq!(run(&mut writer, COMMITS), COMMITS);
    drop(writer);
    let database = Database::open(folder.path().join("store.redb")).unwrap();
    let txn = database.begin_write().unwrap();
    harm(&txn);
    txn.commit().unwrap();
    drop(database);
    let (store, _writer) = open(folder.path()).unwrap();
    verify(&store).unwrap().problems.join("\n")
}

fn remove_first<K: redb::Key + 'static>(
    txn: &redb::WriteTransaction,
    table: TableDefinition<'_, K, format::Bytes>,
) -> Vec<u8> {
    let mut table = txn.open_table(table).unwrap();
    let (_, stored) = table.pop_first().unwrap().unwrap();
    stored.value().to_vec()
}

#[test]
fn a_store_that_is_written_meanwhile_is_sound() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let verified = AtomicBool::new(false);
    thread::scope(|scope| {
        let write = scope.spawn(|| {
            for index in 1_u64.. {
                let mut progress = Progress::default();
                progress.finish(1, index);
                let progress = vec![(address("a/step"), address("a/q"), progress)];
                let appends = appends([append("a/q", ["{}"])]);
                writer.commit(&Changes { progress, ..appends }).unwrap();
                if verified.load(Ordering::Relaxed) {
                    return index;
                }
            }
            unreachable!("indices do not end");
        });
        let mut seen = 0;
        while seen < 50 {
            let report = verify(&store).unwrap();
            assert_eq!(report.problems, [""; 0]);
            seen += u64::from(report.jobs > 0);
        }
        verified.store(true, Ordering::Relaxed);
        assert!(write.join().unwrap() > 1, "there were commits meanwhile");
    });
}

#[test]
fn several_questions_at_one_moment_know_nothing_of_later_commits() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let queue = address("a/q");
    let head = |store: &Store| store.queue(&queue).unwrap().map_or(0, |queue| queue.head);
    writer.commit(&appends([append("a/q", ["1"])])).unwrap();
    let mut kept = None;
    store
        .at_one_moment(|moment| {
            assert_eq!(head(moment), 1);
            writer.commit(&appends([append("a/q", ["2", "3"])])).unwrap();
            assert_eq!((head(moment), head(&store)), (1, 3));
            assert_eq!(moment.transaction()?, 1);
            // A snapshot within a snapshot is the same one.
            let same = moment.at_one_moment(|same| Ok::<_, ReadError>(head(same)))?;
            assert_eq!(same, 1);
            // A reopened file is another one.
            writer.reopen().unwrap();
            assert!(matches!(moment.queue(&queue), Err(ReadError::Interrupted)));
            kept = Some(moment.clone());
            Ok::<_, ReadError>(())
        })
        .unwrap();
    assert!(matches!(kept.unwrap().queue(&queue), Err(ReadError::Interrupted)));
    assert_eq!(head(&store), 3);
}

#[test]
fn a_lost_delayed_job_is_told() {
    insta::assert_snapshot!(problems_after(|txn| drop(remove_first(txn, DELAYED))), @"step `a/step` must have 20 delayed jobs, but has 19");
}

#[test]
fn a_lost_count_of_delayed_jobs_is_told() {
    insta::assert_snapshot!(problems_after(|txn| drop(remove_first(txn, DELAYED_COUNTS))), @"step `a/step` must have 0 delayed jobs, but has 20");
}

#[test]
fn a_delivery_that_nobody_would_forget_is_told() {
    insta::assert_snapshot!(problems_after(|txn| drop(remove_first(txn, EXPIRIES))), @"3 deliveries have an expiry, but only 2 of them are in its table");
}

#[test]
fn records_in_the_wrong_place_are_told() {
    insta::assert_snapshot!(problems_after(|txn| {
        let delayed = remove_first(txn, DELAYED);
        txn.open_table(DELAYED).unwrap().insert((77, 1, 9_999), &*delayed).unwrap();
        let delivery = remove_first(txn, DELIVERIES);
        txn.open_table(DELIVERIES).unwrap().insert(9_999, &*delivery).unwrap();
        let expiry = remove_first(txn, EXPIRIES);
        txn.open_table(EXPIRIES).unwrap().insert((1, 2, 3), &*expiry).unwrap();
    }));
}

#[test]
fn a_snapshot_of_nobody_is_told() {
    insta::assert_snapshot!(problems_after(|txn| {
        let record = format::RecordKey::Snapshot(77, 1).seal(b"{\"inputs\":[],\"jobs\":0,\"time\":0}".to_vec());
        txn.open_table(SNAPSHOTS).unwrap().insert((77, 1), &*record).unwrap();
    }), @"the store has snapshots of the unknown step number 77");
}
