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

fn any_times() -> impl Strategy<Value = DeliveryTimes> {
    let time = || prop::option::of(prop_oneof![any::<i64>(), 0_i64..3].prop_map(Timestamp));
    let attempts = prop_oneof![any::<u32>(), 0_u32..3];
    (attempts, time(), time(), time()).prop_map(|(attempts, created, first_attempt, submitted)| {
        DeliveryTimes { attempts, created, first_attempt, submitted }
    })
}

/// Outcomes and times of up to 40 jobs, some of them equal.
fn any_jobs() -> impl Strategy<Value = Vec<(DeliveryOutcome, DeliveryTimes)>> {
    let run = (any_outcome(), any_times(), 1_usize..4);
    prop::collection::vec(run, 1..14).prop_map(|runs| {
        runs.into_iter().flat_map(|(outcome, times, jobs)| vec![(outcome, times); jobs]).collect()
    })
}

fn jobs(first: u64, jobs: Vec<(DeliveryOutcome, DeliveryTimes)>) -> Vec<DeliveredJob> {
    let job = |(index, (outcome, times))| DeliveredJob { index, outcome, times };
    (first..).zip(jobs).map(job).collect()
}

fn without_times(range: &DeliveredRange) -> DeliveredRange {
    DeliveredRange { times: Vec::new(), ..range.clone() }
}

proptest! {
    #[test]
    fn a_range_comes_back_from_its_bytes(
        first in 1..u64::MAX - RANGE_JOBS_MAX,
        given in any_jobs(),
        keep_until in prop::option::of(-9..i64::MAX),
    ) {
        let jobs = jobs(first, given);
        let keep_until = keep_until.map(Timestamp);
        let ranges = DeliveredRange::of_jobs(&jobs, (Timestamp(-7), keep_until));
        prop_assert_eq!(ranges.len(), 1);
        let range = &ranges[0];
        prop_assert_eq!(&DeliveredRange::decode(range.last(), &range.encode()).unwrap(), range);
        for &DeliveredJob { index, outcome, times } in &jobs {
            prop_assert_eq!((range.outcome(index), range.times(index)), (Some(outcome), Some(times)));
        }
        prop_assert_eq!(range.outcome(first - 1), None);
        prop_assert_eq!(range.outcome(range.last() + 1), None);
        prop_assert_eq!(range.times(range.last() + 1), None);
        let old = without_times(range);
        prop_assert_eq!(&DeliveredRange::decode(old.last(), &old.encode()).unwrap(), &old);
        prop_assert_eq!(old.times(first), None);
    }

    #[test]
    fn the_parts_beside_a_job_have_all_others(
        given in any_jobs(),
        at in 1_u64..60,
    ) {
        let range = &DeliveredRange::of_jobs(&jobs(10, given), TIMES)[0];
        let (before, behind) = (range.before(at), range.behind(at));
        let parts = || [&before, &behind].into_iter().flatten();
        for index in 1..80 {
            let found = parts().find_map(|part| Some((part.outcome(index)?, part.times(index))));
            let whole = range.outcome(index).map(|outcome| (outcome, range.times(index)));
            prop_assert_eq!(found, whole.filter(|_| index != at));
        }
        let old = without_times(range);
        prop_assert_eq!(old.before(at), before.as_ref().map(without_times));
        prop_assert_eq!(old.behind(at), behind.as_ref().map(without_times));
    }

    #[test]
    fn damaged_bytes_are_an_error_or_a_range_that_ends_there(
        kind in KIND_WITHOUT_TIMES..=KIND,
        bytes in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let record = [&[kind][..], &bytes].concat();
        if let Ok(range) = DeliveredRange::decode(50, &record) {
            prop_assert_eq!(range.last(), 50);
        }
    }
}

#[test]
fn a_gap_and_the_longest_range_begin_a_new_one() {
    let times = DeliveryTimes { attempts: 1, first_attempt: Some(Timestamp(-9)), ..DeliveryTimes::default() };
    let nothing = |index| DeliveredJob { index, outcome: DeliveryOutcome::Nothing, times };
    let jobs: Vec<_> = (1..=RANGE_JOBS_MAX + 1).chain([RANGE_JOBS_MAX + 3]).map(nothing).collect();
    let ranges = DeliveredRange::of_jobs(&jobs, TIMES);
    let ends: Vec<_> = ranges.iter().map(|range| (range.first, range.last())).collect();
    let next = RANGE_JOBS_MAX + 1;
    assert_eq!(ends, [(1, RANGE_JOBS_MAX), (next, next), (next + 2, next + 2)]);
    // Kind, times, one run of outcomes, its number of two bytes; one run of times with as many jobs and one time.
    assert_eq!(ranges[0].encode().len(), 1 + 16 + (1 + 1 + 2) + (1 + 2 + 1));
}

#[test]
fn jobs_that_follow_each_other_in_time_take_few_bytes() {
    let time = |index: u64, of: i64| Some(Timestamp(1_700_000_000_000 + of + index.cast_signed()));
    let job = |index| DeliveredJob {
        index,
        outcome: DeliveryOutcome::Output { jobs: 1 },
        times: DeliveryTimes {
            attempts: 3,
            created: time(index, 0),
            first_attempt: time(index, 40),
            submitted: time(index, 60_000),
        },
    };
    let jobs: Vec<_> = (1..=RANGE_JOBS_MAX).map(job).collect();
    let range = &DeliveredRange::of_jobs(&jobs, (Timestamp(1_700_000_100_000), None))[0];
    let bytes = range.encode().len() as u64;
    assert_eq!(bytes / RANGE_JOBS_MAX, 5, "attempts, number of jobs, and three times");
}

#[test]
fn a_record_of_version_9_has_no_times() {
    let record = [&[1][..], &(-7_i64).to_le_bytes(), &9_i64.to_le_bytes(), &[3, 2, 0, 1]].concat();
    let range = DeliveredRange::decode(6, &record).unwrap();
    let found = (3..=7).map(|index| range.outcome(index));
    let (one, error) = (Some(DeliveryOutcome::Output { jobs: 1 }), Some(DeliveryOutcome::Error));
    assert!(found.eq([None, one, one, error, None]));
    assert_eq!((range.times(4), range.encode()), (None, record));
}

#[test]
fn impossible_ranges_are_refused() {
    let of = |first, jobs: &[u64]| {
        let runs = jobs.iter().map(|&jobs| (DeliveryOutcome::Error, jobs)).collect();
        DeliveredRange::new(first, TIMES, runs, Vec::new())
    };
    let timed = |jobs: &[u64]| {
        let runs = jobs.iter().map(|&jobs| (DeliveryTimes::default(), jobs)).collect();
        DeliveredRange::new(1, TIMES, vec![(DeliveryOutcome::Error, 3)], runs)
    };
    assert!(timed(&[1, 2]).is_some());
    for jobs in [&[2][..], &[4], &[3, 0], &[u64::MAX, 4]] {
        assert_eq!(timed(jobs), None, "{jobs:?}");
    }
    assert!(of(1, &[RANGE_JOBS_MAX]).is_some());
    for (first, jobs) in
        [(0, &[1][..]), (1, &[]), (1, &[0]), (1, &[RANGE_JOBS_MAX, 1]), (u64::MAX, &[1]), (1, &[u64::MAX, 2])]
    {
        assert_eq!(of(first, jobs), None, "{first} {jobs:?}");
    }
    let record = of(1, &[5]).unwrap().encode();
    assert!(DeliveredRange::decode(4, &record).is_err(), "its first index would be 0");
    assert!(DeliveredRange::decode(5, &[&[3], &record[1..]].concat()).is_err(), "a later kind");
    let record = timed(&[1, 2]).unwrap().encode();
    assert!(DeliveredRange::decode(3, &record).is_ok());
    for len in 0..record.len() {
        assert!(DeliveredRange::decode(3, &record[..len]).is_err(), "{len} bytes");
    }
}
