//! What the walk over everything says of parts that do not fit together.

use redb::{Database, TableDefinition};

use super::history::{COMMITS, run};
use crate::store::format::{self, DELAYED, DELAYED_COUNTS, DELIVERIES, EXPIRIES, SNAPSHOTS};
use crate::store::{open, verify};

/// What is said of a history after somebody has done `harm` to it.
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
fn a_lost_delayed_job_is_told() {
    insta::assert_snapshot!(problems_after(|txn| drop(remove_first(txn, DELAYED))));
}

#[test]
fn a_lost_count_of_delayed_jobs_is_told() {
    insta::assert_snapshot!(problems_after(|txn| drop(remove_first(txn, DELAYED_COUNTS))));
}

#[test]
fn a_delivery_that_nobody_would_forget_is_told() {
    insta::assert_snapshot!(problems_after(|txn| drop(remove_first(txn, EXPIRIES))));
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
        let record = format::Place::Snapshot(77, 1).seal(b"{\"inputs\":[],\"jobs\":0,\"time\":0}".to_vec());
        txn.open_table(SNAPSHOTS).unwrap().insert((77, 1), &*record).unwrap();
    }));
}
