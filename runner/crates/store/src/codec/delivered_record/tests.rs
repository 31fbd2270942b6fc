//! Tests of ranges of deliveries: they come back from their bytes, and are cut where a later one overlaps.

use proptest::prelude::*;

use super::*;

const TIMES: (Timestamp, Option<Timestamp>) = (Timestamp(-7), Some(Timestamp(9)));

fn any_outcome() -> impl Strategy<Value = DeliveryOutcome> {
    prop_oneof![
        any::<u32>().prop_map(|jobs| DeliveryOutcome::Output { jobs }),
        Just(DeliveryOutcome::Output { jobs: 1 }),
        Just(DeliveryOutcome::Error),
        Just(DeliveryOutcome::Nothing),
    ]
}

proptest! {
    #[test]
    fn a_range_comes_back_from_its_bytes(
        first in 1..u64::MAX - RANGE_JOBS_MAX,
        outcomes in prop::collection::vec(any_outcome(), 1..40),
        keep_until in prop::option::of(-9..i64::MAX),
    ) {
        let jobs: Vec<_> = (first..).zip(outcomes).collect();
        let keep_until = keep_until.map(Timestamp);
        let ranges = DeliveredRange::of_jobs(&jobs, (Timestamp(-7), keep_until));
        prop_assert_eq!(ranges.len(), 1);
        let range = &ranges[0];
        prop_assert_eq!(&DeliveredRange::decode(range.last(), &range.encode()).unwrap(), range);
        for (index, outcome) in &jobs {
            prop_assert_eq!(range.outcome(*index), Some(*outcome));
        }
        prop_assert_eq!(range.outcome(first - 1), None);
        prop_assert_eq!(range.outcome(range.last() + 1), None);
    }

    #[test]
    fn the_parts_beside_a_job_have_all_others(
        outcomes in prop::collection::vec(any_outcome(), 1..40),
        at in 1_u64..60,
    ) {
        let jobs: Vec<_> = (10..).zip(outcomes).collect();
        let range = &DeliveredRange::of_jobs(&jobs, TIMES)[0];
        let (before, behind) = (range.before(at), range.behind(at));
        for index in 1..80 {
            let found = [&before, &behind].into_iter().flatten().find_map(|part| part.outcome(index));
            prop_assert_eq!(found, range.outcome(index).filter(|_| index != at));
        }
    }

    #[test]
    fn damaged_bytes_are_an_error_or_a_range_that_ends_there(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let record = [&[KIND][..], &bytes].concat();
        if let Ok(range) = DeliveredRange::decode(50, &record) {
            prop_assert_eq!(range.last(), 50);
        }
    }
}

#[test]
fn a_gap_and_the_longest_range_begin_a_new_one() {
    let nothing = |index| (index, DeliveryOutcome::Nothing);
    let jobs: Vec<_> = (1..=RANGE_JOBS_MAX + 1).chain([RANGE_JOBS_MAX + 3]).map(nothing).collect();
    let ranges = DeliveredRange::of_jobs(&jobs, TIMES);
    let ends: Vec<_> = ranges.iter().map(|range| (range.first, range.last())).collect();
    let next = RANGE_JOBS_MAX + 1;
    assert_eq!(ends, [(1, RANGE_JOBS_MAX), (next, next), (next + 2, next + 2)]);
    // Kind, times, one outcome, and a number of two bytes.
    assert_eq!(ranges[0].encode().len(), 1 + 16 + 1 + 2);
}

#[test]
fn impossible_ranges_are_refused() {
    let of = |first, jobs: &[u64]| {
        let runs = jobs.iter().map(|&jobs| (DeliveryOutcome::Error, jobs)).collect();
        DeliveredRange::new(first, TIMES, runs)
    };
    assert!(of(1, &[RANGE_JOBS_MAX]).is_some());
    for (first, jobs) in
        [(0, &[1][..]), (1, &[]), (1, &[0]), (1, &[RANGE_JOBS_MAX, 1]), (u64::MAX, &[1]), (1, &[u64::MAX, 2])]
    {
        assert_eq!(of(first, jobs), None, "{first} {jobs:?}");
    }
    let record = of(1, &[5]).unwrap().encode();
    assert!(DeliveredRange::decode(4, &record).is_err(), "its first index would be 0");
    assert!(DeliveredRange::decode(5, &[&[2], &record[1..]].concat()).is_err(), "a later kind");
}
