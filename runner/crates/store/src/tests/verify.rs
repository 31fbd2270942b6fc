//! Tests of verification: it reports parts that contradict each other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use redb::{Database, TableDefinition};

use super::history::{COMMITS, run};
use super::{address, append, appends, open_on};
use crate::codec::delivered_record::DeliveredRange;
use crate::database::delivered::DELIVERED;
use crate::database::format;
use crate::database::format::{
    DELIVERIES, EXPIRIES, PARKED, PARKED_COUNTS, PARKED_DUE, PARKED_OF, SNAPSHOTS,
};
use crate::testing::FaultyDisk;
use crate::{Changes, DeliveryOutcome, ReadError, Store};
use crate::{open, verify};
use tidegate_model::{Progress, Timestamp};

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
fn a_lost_parked_job_is_told() {
    insta::assert_snapshot!(problems_after(|txn| drop(remove_first(txn, PARKED))), @r"
    the index of parked jobs by their due times must have 18 entries, but has 19
    the index of parked jobs by their inputs must have 36 entries, but has 38
    the recorded totals of step `a/step` are 7, 4, 5 and 4 instead of 6 delayed, 4 outputs, 5 started and 4 pending
    ");
}

#[test]
fn a_lost_count_of_parked_jobs_is_told() {
    insta::assert_snapshot!(problems_after(|txn| drop(remove_first(txn, PARKED_COUNTS))), @"the recorded totals of step `a/step` are 0, 0, 0 and 0 instead of 7 delayed, 4 outputs, 5 started and 4 pending");
}

#[test]
fn a_parked_job_that_no_index_has_is_told() {
    insta::assert_snapshot!(problems_after(|txn| {
        txn.open_table(PARKED_DUE).unwrap().pop_first().unwrap().unwrap();
    }), @r"
    the parked job 21 is missing in an index
    the index of parked jobs by their due times must have 19 entries, but has 18
    ");
    insta::assert_snapshot!(problems_after(|txn| {
        txn.open_table(PARKED_OF).unwrap().pop_first().unwrap().unwrap();
    }), @r"
    the parked job 21 is missing in an index
    the index of parked jobs by their inputs must have 38 entries, but has 37
    ");
}

#[test]
fn a_delivery_that_nobody_would_forget_is_told() {
    insta::assert_snapshot!(problems_after(|txn| drop(remove_first(txn, EXPIRIES))), @"14 deliveries have an expiry, but only 12 of them are in its table");
}

#[test]
fn deliveries_by_place_that_contradict_each_other_are_told() {
    insta::assert_snapshot!(problems_after(|txn| {
        let mut expiries = txn.open_table(EXPIRIES).unwrap();
        // The first one has hashes.
        expiries.pop_first().unwrap().unwrap();
        expiries.pop_first().unwrap().unwrap();
    }), @"14 deliveries have an expiry, but only 10 of them are in its table");
    let of = |last, jobs| {
        let runs = vec![(DeliveryOutcome::Error, jobs)];
        let range = DeliveredRange::new(last + 1 - jobs, (Timestamp(1), None), runs, Vec::new()).unwrap();
        move |series| format::RecordKey::Delivered(series, last).seal(range.encode())
    };
    insta::assert_snapshot!(problems_after(|txn| {
        let mut table = txn.open_table(DELIVERED).unwrap();
        table.insert((1, 90), &*of(90, 8)(1)).unwrap();
        table.insert((2, 5), &*of(5, 5)(2)).unwrap();
        table.insert((1, 100), &*of(100, 1)(3)).unwrap();
    }), @r"
    step `a/step`: the delivery of job 83 of `a/in` is recorded twice
    the store is damaged: the checksum of the record Delivered(1, 100) is wrong
    the deliveries number 2 have no step and no input
    ");
}

#[test]
fn records_in_the_wrong_place_are_told() {
    insta::assert_snapshot!(problems_after(|txn| {
        let parked = remove_first(txn, PARKED);
        txn.open_table(PARKED).unwrap().insert((77, 9_999), &*parked).unwrap();
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
