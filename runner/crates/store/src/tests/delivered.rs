//! Tests of delivery records: each is remembered until its expiry.

use proptest::prelude::*;

use super::export::delivery_times;
use super::*;
use crate::database::dedupe::StoredRecord;
use crate::database::format::RecordKey;
use crate::verify;
use crate::{DedupeOutcome, DedupeRecord, DeliveryKey, DeliveryTimes, IngestedKey};
use tidegate_model::DeliveryHash;

fn delivered(hash: u128, outcome: DedupeOutcome, keep_until: impl Into<Option<i64>>) -> DedupeRecord {
    let keep_until = keep_until.into().map(Timestamp);
    DedupeRecord { hash: DeliveryHash(hash), outcome, times: None, keep_until }
}

fn commit(writer: &mut Writer, now: i64, deliveries: Vec<DedupeRecord>) {
    writer
        .commit(&Changes { now: Timestamp(now), dedupe_records: deliveries, ..Changes::default() })
        .unwrap();
}

fn remembered(store: &Store, hashes: impl IntoIterator<Item = u128>) -> Vec<Option<DedupeOutcome>> {
    assert_eq!(verify(store).unwrap().problems, Vec::<String>::new());
    let keys: Vec<_> = hashes.into_iter().map(DeliveryHash).map(DeliveryKey::Hash).collect();
    store.deliveries(&keys).unwrap()
}

#[test]
fn an_arrival_is_remembered_with_what_it_was() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let outcome = DedupeOutcome::Ingested { first: u64::MAX, jobs: u32::MAX, content: 7 };
    commit(&mut writer, 1, vec![delivered(1, outcome, 5), delivered(2, outcome, None)]);
    assert_eq!(remembered(&store, [1, 2]), [Some(outcome), Some(outcome)]);
    commit(&mut writer, 5, Vec::new());
    assert_eq!(remembered(&store, [1, 2]), [None, Some(outcome)]);
}

#[test]
fn the_key_of_pushed_jobs_is_remembered_with_the_index_that_they_got() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let key = |hash, append, position| {
        let (hash, keep_until) = (DeliveryHash(hash), None);
        IngestedKey { hash, append, position, jobs: 1, late_position: 0, late: 0, content: 7, keep_until }
    };
    for _ in 0..2 {
        let appends = ["a/one", "a/two", "a/one"].map(|queue| append(queue, ["1", "2"])).to_vec();
        // The last one names an append that does not exist.
        let ingested = vec![key(1, 0, 1), key(2, 1, 0), key(3, 2, 1), key(4, 3, 0)];
        writer.commit(&Changes { appends, ingested, ..Changes::default() }).unwrap();
    }
    let at = |first| Some(DedupeOutcome::Ingested { first, jobs: 1, content: 7 });
    assert_eq!(remembered(&store, 1..=4), [at(6), at(3), at(8), None]);
}

proptest! {
    #[test]
    fn the_times_of_a_delivery_come_back(
        jobs in any::<u32>(),
        times in prop::option::of(delivery_times()),
        (time, keep_until) in (any::<i64>(), prop::option::of(..i64::MAX)),
    ) {
        let hash = DeliveryHash(7);
        for outcome in [DedupeOutcome::Output { jobs }, DedupeOutcome::Error, DedupeOutcome::Nothing] {
            let (time, keep_until) = (Timestamp(time), keep_until.map(Timestamp));
            let record = StoredRecord { outcome, time, times, keep_until };
            prop_assert_eq!(StoredRecord::unseal(hash, &record.seal(hash)).unwrap(), record);
        }
    }

    #[test]
    fn damaged_times_are_told(bytes in prop::collection::vec(any::<u8>(), 1..40), outcome in 0_u8..3) {
        let record = [&[outcome][..], &[0; 20], &bytes].concat();
        let stored = RecordKey::Delivery(DeliveryHash(7)).seal(record);
        if let Ok(record) = StoredRecord::unseal(DeliveryHash(7), &stored) {
            prop_assert!(record.times.is_some());
        }
    }
}

#[test]
fn times_of_anything_but_a_delivery_are_not_stored() {
    let ingested = DedupeOutcome::Ingested { first: 1, jobs: 2, content: 3 };
    let record = StoredRecord {
        outcome: ingested,
        time: Timestamp(1),
        times: Some(DeliveryTimes::default()),
        keep_until: None,
    };
    let stored = record.seal(DeliveryHash(7));
    let expected = StoredRecord { times: None, ..record };
    assert_eq!(StoredRecord::unseal(DeliveryHash(7), &stored).unwrap(), expected);
}

#[test]
fn the_times_of_a_tuple_take_few_bytes() {
    let time = |of: i64| Some(Timestamp(1_700_000_000_000 + of));
    let times =
        DeliveryTimes { attempts: 2, created: time(0), first_attempt: time(3), submitted: time(2_000) };
    let record = |times| {
        let outcome = DedupeOutcome::Output { jobs: 1 };
        let record = StoredRecord { outcome, time: time(5_000).unwrap(), times, keep_until: None };
        record.seal(DeliveryHash(7)).len()
    };
    assert_eq!(record(Some(times)) - record(None), 8, "attempts, number of deliveries, and three times");
}

#[test]
fn a_delivery_is_forgotten_when_its_time_is_over() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let kinds = [DedupeOutcome::Output { jobs: 3 }, DedupeOutcome::Error, DedupeOutcome::Nothing];
    let [output, error, nothing] = kinds;
    commit(
        &mut writer,
        1,
        vec![delivered(1, output, 5), delivered(2, error, 9), delivered(3, nothing, None)],
    );
    let mut at = |now| {
        commit(&mut writer, now, Vec::new());
        remembered(&store, [1, 2, 3, 4])
    };
    assert_eq!(at(4), [Some(output), Some(error), Some(nothing), None]);
    assert_eq!(at(5), [None, Some(error), Some(nothing), None]);
    assert_eq!(at(100), [None, None, Some(nothing), None]);
    assert_eq!(at(i64::MAX), [None, None, Some(nothing), None]);
}

#[test]
fn a_delivery_that_is_recorded_again_is_kept_for_its_later_time() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    commit(
        &mut writer,
        1,
        vec![delivered(1, DedupeOutcome::Error, 5), delivered(2, DedupeOutcome::Error, 5)],
    );
    commit(&mut writer, 2, vec![delivered(1, DedupeOutcome::Nothing, 10)]);
    commit(&mut writer, 3, vec![delivered(2, DedupeOutcome::Nothing, 4)]);
    commit(&mut writer, 6, Vec::new());
    assert_eq!(remembered(&store, [1, 2]), [Some(DedupeOutcome::Nothing), None]);
    commit(&mut writer, 10, Vec::new());
    assert_eq!(remembered(&store, [1, 2]), [None, None]);
}

#[test]
fn of_one_hash_in_one_commit_the_last_record_stands() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    commit(
        &mut writer,
        1,
        vec![delivered(1, DedupeOutcome::Error, 9), delivered(1, DedupeOutcome::Nothing, 5)],
    );
    assert_eq!(remembered(&store, [1]), [Some(DedupeOutcome::Nothing)]);
    commit(&mut writer, 5, Vec::new());
    assert_eq!(remembered(&store, [1]), [None]);
}

#[test]
fn many_deliveries_are_forgotten_a_few_at_a_time() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let all = (0..5_000).map(|hash| delivered(hash, DedupeOutcome::Nothing, 2)).collect();
    commit(&mut writer, 1, all);
    let mut left = vec![5_000];
    while left[left.len() - 1] > 0 {
        commit(&mut writer, 3, Vec::new());
        left.push(remembered(&store, 0..5_000).iter().flatten().count());
    }
    assert_eq!(left, [5_000, 3_976, 2_952, 1_928, 904, 0]);
}

#[test]
fn an_endless_run_does_not_remember_more_and_more() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    for now in 0..20_u64 {
        let hashes = (0..3_000).map(|hash| u128::from(now * 3_000 + hash));
        let keep_until = i64::try_from(now).unwrap() + 2;
        let deliveries = hashes.map(|hash| delivered(hash, DedupeOutcome::Nothing, keep_until)).collect();
        commit(&mut writer, keep_until - 2, deliveries);
    }
    assert_eq!(remembered(&store, 0..60_000).iter().flatten().count(), 6_000);
}
