//! Tests of delivered ranges: deliveries that are recorded by the place of their job are as in a simple model.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::export::delivery_times;
use super::*;
use crate::verify;
use crate::{
    DedupeOutcome, DedupeRecord, DeliveredJob, DeliveredJobs, DeliveryKey, DeliveryOutcome, DeliveryPlace,
    DeliveryRecord, DeliveryTimes,
};

const NOTHING: DeliveryOutcome = DeliveryOutcome::Nothing;

fn delivered(jobs: &[(u64, DeliveryOutcome)], keep_until: impl Into<Option<i64>>) -> DeliveredJobs {
    let keep_until = keep_until.into().map(Timestamp);
    let job = |&(index, outcome)| DeliveredJob { index, outcome, times: DeliveryTimes::default() };
    let jobs = jobs.iter().map(job).collect();
    DeliveredJobs { step: address("a/step"), input: "a/in".into(), jobs, keep_until }
}

fn commit(writer: &mut Writer, now: i64, delivered: Vec<DeliveredJobs>) {
    writer.commit(&Changes { now: Timestamp(now), delivered, ..Changes::default() }).unwrap();
}

fn found(store: &Store, input: &str, indices: impl IntoIterator<Item = u64>) -> Vec<Option<DedupeOutcome>> {
    assert_eq!(verify(store).unwrap().problems, Vec::<String>::new());
    let step = &address("a/step");
    let keys: Vec<_> =
        indices.into_iter().map(|index| DeliveryKey::Place(DeliveryPlace { step, input, index })).collect();
    store.deliveries(&keys).unwrap()
}

fn record(store: &Store, input: &str, index: u64) -> Option<DeliveryRecord> {
    let step = address("a/step");
    store.delivery_record(DeliveryKey::Place(DeliveryPlace { step: &step, input, index })).unwrap()
}

#[derive(Clone, Debug)]
enum Operation {
    Deliver(Vec<Delivered>),
    Reopen,
}

/// Input, first index, outcomes and times of jobs, gap behind the first one, and time to keep.
type Delivered = (usize, u64, Vec<(DeliveryOutcome, DeliveryTimes)>, u64, Option<i64>);

const INPUTS: [&str; 3] = ["a/in", "b/in", "binding=a/in"];
const LAST: u64 = 60;

fn operation() -> impl Strategy<Value = Operation> {
    let outcome = prop_oneof![
        4 => Just(DeliveryOutcome::Output { jobs: 1 }),
        1 => (0_u32..4).prop_map(|jobs| DeliveryOutcome::Output { jobs }),
        1 => Just(DeliveryOutcome::Error),
        1 => Just(NOTHING),
    ];
    let jobs = prop::collection::vec((outcome, delivery_times()), 0..12);
    let deliver = (0..INPUTS.len(), 1..LAST - 20, jobs, 0_u64..3, prop::option::weighted(0.8, -1_i64..6));
    prop_oneof![
        8 => prop::collection::vec(deliver, 0..4).prop_map(Operation::Deliver),
        1 => Just(Operation::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn deliveries_by_place_are_as_in_the_model(operations in prop::collection::vec(operation(), 1..30)) {
        let (store, mut writer) = open_on(&FaultyDisk::new());
        let mut model = BTreeMap::<(usize, u64), (DeliveryRecord, Option<i64>)>::new();
        for (now, operation) in (0_i64..).zip(operations) {
            let Operation::Deliver(deliveries) = operation else {
                prop_assert!(writer.reopen().unwrap().kept.is_none());
                continue;
            };
            model.retain(|_, (_, keep_until)| keep_until.is_none_or(|until| until > now));
            let mut delivered = Vec::new();
            for (input, first, outcomes, gap, keep) in deliveries {
                // Groups of one commit do not disagree about a job.
                let keep_until = keep.map(|keep| now + keep);
                let indices = (first..).enumerate().map(|(at, index)| index + if at > 0 { gap } else { 0 });
                let job = |(index, (outcome, times))| DeliveredJob { index, outcome, times };
                let mut jobs: Vec<_> = indices.zip(outcomes).map(job).collect();
                jobs.retain(|job| {
                    let earlier = delivered.iter().filter(|one: &&DeliveredJobs| one.input == INPUTS[input]);
                    earlier.flat_map(|one| &one.jobs).all(|before| before.index != job.index)
                });
                // Their order in a commit does not matter.
                jobs.reverse();
                model.extend(jobs.iter().map(|&DeliveredJob { index, outcome, times }| {
                    let (outcome, ended) = (outcome.into(), Some(Timestamp(now)));
                    let record = DeliveryRecord { outcome, ended, times: Some(times) };
                    ((input, index), (record, keep_until))
                }));
                let (step, input) = (address("a/step"), INPUTS[input].to_owned());
                delivered.push(DeliveredJobs { step, input, jobs, keep_until: keep_until.map(Timestamp) });
            }
            commit(&mut writer, now, delivered);
            for (input, name) in INPUTS.iter().enumerate() {
                let expected: Vec<_> =
                    (0..=LAST).map(|index| model.get(&(input, index)).map(|(record, _)| *record)).collect();
                let records: Vec<_> = (0..=LAST).map(|index| record(&store, name, index)).collect();
                prop_assert_eq!(&records, &expected);
                let outcomes: Vec<_> =
                    expected.iter().map(|record| record.map(|record| record.outcome)).collect();
                prop_assert_eq!(found(&store, name, 0..=LAST), outcomes);
            }
            prop_assert_eq!(verify(&store).unwrap().deliveries, model.len() as u64);
        }
    }
}

#[test]
fn the_last_outcome_of_a_job_in_a_commit_is_kept() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let first = delivered(&[(2, DeliveryOutcome::Error), (1, NOTHING), (2, NOTHING)], 9);
    let second = delivered(&[(1, DeliveryOutcome::Error)], 9);
    commit(&mut writer, 1, vec![first, second]);
    assert_eq!(found(&store, "a/in", 1..4), [Some(DedupeOutcome::Error), Some(DedupeOutcome::Nothing), None]);
}

#[test]
fn a_delivery_that_an_older_version_recorded_by_its_hash_is_found_until_the_job_is_delivered_again() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let step = address("a/step");
    let hash = DeliveryPlace { step: &step, input: "a/in", index: 7 }.hash();
    let older =
        DedupeRecord { hash, outcome: DedupeOutcome::Error, times: None, keep_until: Some(Timestamp(9)) };
    writer.commit(&Changes { dedupe_records: vec![older], ..Changes::default() }).unwrap();
    assert_eq!(found(&store, "a/in", [6, 7]), [None, Some(DedupeOutcome::Error)]);
    let by_hash = DeliveryRecord { outcome: DedupeOutcome::Error, ended: None, times: None };
    assert_eq!(record(&store, "a/in", 7), Some(by_hash), "its commit was at the time 0");
    commit(&mut writer, 2, vec![delivered(&[(7, NOTHING)], 20)]);
    assert_eq!(found(&store, "a/in", [6, 7]), [None, Some(DedupeOutcome::Nothing)]);
    commit(&mut writer, 20, vec![]);
    assert_eq!(found(&store, "a/in", [6, 7]), [None, None]);
}

#[test]
fn steps_and_inputs_have_deliveries_of_their_own() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let other_step =
        DeliveredJobs { step: address("a/other"), ..delivered(&[(1, DeliveryOutcome::Error)], 9) };
    let other_input = DeliveredJobs { input: "x=a/in".into(), ..delivered(&[(1, NOTHING)], 9) };
    commit(&mut writer, 1, vec![other_step, other_input]);
    assert_eq!(found(&store, "a/in", [1]), [None]);
    assert_eq!(found(&store, "x=a/in", [1]), [Some(DedupeOutcome::Nothing)]);
    let step = &address("a/other");
    let other = DeliveryKey::Place(DeliveryPlace { step, input: "a/in", index: 1 });
    let other = store.delivery_record(other).unwrap();
    assert_eq!(other.unwrap().outcome, DedupeOutcome::Error);
}

#[test]
fn deliveries_in_order_make_one_range_a_commit() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let jobs: Vec<_> = (1..=100_000).map(|index| (index, DeliveryOutcome::Output { jobs: 1 })).collect();
    for (now, part) in (0..).zip(jobs.chunks(1000)) {
        commit(&mut writer, now, vec![delivered(part, 1_000_000)]);
    }
    assert_eq!(found(&store, "a/in", [1, 100_000, 100_001]).iter().flatten().count(), 2);
    let mut lines = Vec::new();
    assert_eq!(crate::export(&store, &mut lines).unwrap().delivered, 100);
}

#[test]
fn many_ranges_are_forgotten_a_few_at_a_time() {
    let (store, mut writer) = open_on(&FaultyDisk::new());
    let jobs: Vec<_> = (1..=5_000).map(|index| (index, NOTHING)).collect();
    for part in jobs.chunks(500) {
        commit(&mut writer, 1, vec![delivered(part, 2)]);
    }
    let mut left = vec![5_000];
    while left[left.len() - 1] > 0 {
        commit(&mut writer, 3, Vec::new());
        left.push(found(&store, "a/in", 1..=5_000).iter().flatten().count());
    }
    assert_eq!(left, [5_000, 3_500, 2_000, 500, 0]);
}
