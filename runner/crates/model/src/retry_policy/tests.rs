//! Tests of `RetryPolicy`: the documented waits, and bounds that hold for every policy.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp(1_700_000_000_000);

fn tried(attempt: u32) -> FailedTry {
    FailedTry {
        attempt,
        first_attempt: NOW,
        now: NOW,
        trouble: FailureClass::Script,
        asked: None,
        ttl: None,
        hash: 7,
    }
}

fn again(at: i64) -> Decision {
    Decision::Again { at: Timestamp(at), quick: false }
}

fn plain(backoff: Backoff) -> RetryPolicy {
    RetryPolicy { backoff, jitter: Jitter::None, ..RetryPolicy::default() }
}

/// The waits after the first attempts, and the decision after them.
fn waits(policy: &RetryPolicy) -> String {
    let mut text = String::new();
    let mut now = NOW;
    for attempt in 1.. {
        match policy.next(&FailedTry { now, ..tried(attempt) }) {
            Decision::Again { at, .. } => {
                let wait = Duration::from_millis(u64::try_from(at.0 - now.0).unwrap());
                let _ = write!(text, "{}, ", format_duration(wait)); // writing to a String cannot fail
                now = at;
            }
            Decision::Exhausted(why) => return format!("{text}{why}"),
            Decision::NotRetried => return format!("{text}not retried"),
        }
    }
    text
}

#[test]
fn each_backoff_waits_as_it_says() {
    let list = ["1s", "10s", "1m"].map(|text| crate::parse_duration(text).unwrap());
    insta::assert_snapshot!(
        [
            waits(&plain(Backoff::Fixed)),
            waits(&plain(Backoff::Linear)),
            waits(&plain(Backoff::Exponential)),
            waits(&RetryPolicy { factor: 1.5, ..plain(Backoff::Exponential) }),
            waits(&plain(Backoff::Fibonacci)),
            waits(&RetryPolicy { max_attempts: 6, ..plain(Backoff::List(list.to_vec())) }),
            waits(&RetryPolicy { max: Duration::from_secs(5), ..plain(Backoff::Linear) }),
            waits(&RetryPolicy { max_attempts: 1, ..plain(Backoff::Fixed) }),
            waits(&RetryPolicy { ttl: Some(Duration::from_secs(20)), ..plain(Backoff::Exponential) }),
            waits(&RetryPolicy { jitter: Jitter::Full, ..plain(Backoff::Exponential) }),
            waits(&RetryPolicy { jitter: Jitter::Equal, ..plain(Backoff::Exponential) }),
        ]
        .join("\n")
    );
}

#[test]
fn what_is_asked_for_is_waited_and_counts_as_an_attempt() {
    let policy = RetryPolicy { ttl: Some(Duration::from_hours(24)), ..RetryPolicy::default() };
    let asked = |hours, attempt| {
        let asked = Some(Duration::from_hours(hours));
        policy.next(&FailedTry { trouble: FailureClass::Asked, asked, ..tried(attempt) })
    };
    assert_eq!(asked(5, 11), again(NOW.0 + 5 * 3_600_000));
    assert_eq!(asked(5, 12), Decision::Exhausted(Exhausted::Attempts(12)));
    assert_eq!(asked(24, 1), again(NOW.0 + 24 * 3_600_000));
    assert_eq!(asked(25, 1), Decision::Exhausted(Exhausted::Time(Duration::from_hours(24))));
    assert_eq!(asked(u64::MAX / 3600, 1), Decision::Exhausted(Exhausted::Time(Duration::from_hours(24))));
}

#[test]
fn what_cannot_get_better_is_not_tried_again() {
    let choosy =
        RetryPolicy { on: vec![FailureClass::Timeout, FailureClass::Http5xx], ..RetryPolicy::default() };
    let everything = RetryPolicy::default();
    for trouble in [FailureClass::Rejected, FailureClass::Payload, FailureClass::Crashed] {
        assert_eq!(everything.next(&FailedTry { trouble, ..tried(1) }), Decision::NotRetried, "{trouble:?}");
    }
    for (_, trouble) in FailureClass::WORDS {
        assert!(everything.retries(trouble), "{trouble:?}");
        assert_eq!(choosy.retries(trouble), choosy.on.contains(&trouble), "{trouble:?}");
    }
    assert!(choosy.retries(FailureClass::Asked), "a requested retry is made");
}

#[test]
fn zero_attempts_stand_for_as_many_as_it_takes() {
    let policy = RetryPolicy { max_attempts: 0, jitter: Jitter::None, ..RetryPolicy::default() };
    let hour = Timestamp(NOW.0 + 3_600_000);
    assert_eq!(policy.next(&tried(u32::MAX)), again(hour.0));
    let fibonacci = RetryPolicy { backoff: Backoff::Fibonacci, ..policy };
    assert_eq!(fibonacci.next(&tried(u32::MAX)), again(hour.0));
}

#[test]
fn jobs_that_failed_together_come_back_apart() {
    let policy =
        RetryPolicy { backoff: Backoff::Fixed, initial: Duration::from_secs(1000), ..RetryPolicy::default() };
    let mut tenths = [0; 10];
    for hash in 0..1000 {
        let Decision::Again { at, .. } = policy.next(&FailedTry { hash, ..tried(1) }) else {
            panic!("no attempt left")
        };
        let tenth = usize::try_from((at.0 - NOW.0) / 100_000).unwrap();
        tenths[tenth.min(9)] += 1;
    }
    assert!(tenths.iter().all(|&count| (60..140).contains(&count)), "{tenths:?}");
}

#[test]
fn failures_are_told_apart_by_what_they_came_from() {
    let of = |failure: Failure| FailureClass::of(&failure, false);
    let delay = Duration::from_secs(5);
    let busy = Failure::retry_in(delay, "busy");
    assert_eq!(of(busy.clone()), Some(FailureClass::Asked));
    assert_eq!(of(busy.because(Cause::Http(429))), Some(FailureClass::Http429));
    assert_eq!(of(Failure::failed("503").because(Cause::Http(503))), Some(FailureClass::Http5xx));
    assert_eq!(of(Failure::reject("404").because(Cause::Http(404))), Some(FailureClass::Http4xx));
    assert_eq!(of(Failure::reject("no")), Some(FailureClass::Rejected));
    assert_eq!(of(Failure::halt("wrong key")), None);
    assert_eq!(
        of(Failure::new(FailureKind::Limit, "late").because(Cause::Timeout)),
        Some(FailureClass::Timeout)
    );
    assert_eq!(of(Failure::new(FailureKind::Limit, "large")), Some(FailureClass::Limit));
    assert_eq!(of(Failure::failed("thrown")), Some(FailureClass::Script));
    assert_eq!(FailureClass::of(&Failure::failed("given up"), true), Some(FailureClass::Plugin));
    assert_eq!(of(Failure::gate_closed("no")), None);
    assert_eq!(of(Failure::pending("tx")), None);
}

#[test]
fn quick_attempts_come_in_rows_with_a_delay_between_them() {
    let quick = Some(QuickRow { attempts: 3, delay: Duration::from_millis(50) });
    let policy = RetryPolicy { quick, max_attempts: 9, ..plain(Backoff::Exponential) };
    insta::assert_snapshot!(waits(&policy), @"50ms, 50ms, 1s, 50ms, 50ms, 2s, 50ms, 50ms, all 9 attempts failed");
    let list = vec![Duration::from_secs(15)];
    let grid = RetryPolicy { quick, max_attempts: 5, ..plain(Backoff::List(list)) };
    insta::assert_snapshot!(waits(&grid), @"50ms, 50ms, 15s, 50ms, all 5 attempts failed");
}

#[test]
fn a_job_may_have_a_time_of_its_own() {
    let policy = RetryPolicy { ttl: Some(Duration::from_hours(24)), ..plain(Backoff::Fixed) };
    let own = |ttl| policy.next(&FailedTry { ttl, ..tried(1) });
    assert_eq!(own(None), again(NOW.0 + 1000));
    let short = Duration::from_millis(500);
    assert_eq!(own(Some(short)), Decision::Exhausted(Exhausted::Time(short)));
}

#[test]
fn a_failure_that_halts_is_retried_only_if_it_is_named_twice() {
    let on = |on: &[FailureClass]| RetryPolicy {
        on: on.to_vec(),
        halt_on: vec![FailureClass::Timeout, FailureClass::Http4xx],
        ..RetryPolicy::default()
    };
    assert!(!on(&[]).retries(FailureClass::Timeout));
    assert!(on(&[]).retries(FailureClass::Connection));
    assert!(on(&[FailureClass::Timeout]).retries(FailureClass::Timeout));
    assert!(!on(&[FailureClass::Timeout]).retries(FailureClass::Connection));
    for (_, class) in FailureClass::WORDS {
        assert!(FailureClass::HALTING_WORDS.iter().any(|(_, halting)| *halting == class), "{class:?}");
    }
}

fn any_policy() -> impl Strategy<Value = RetryPolicy> {
    let length = || any::<u64>().prop_map(Duration::from_millis);
    let backoff = prop_oneof![
        Just(Backoff::Fixed),
        Just(Backoff::Linear),
        Just(Backoff::Exponential),
        Just(Backoff::Fibonacci),
        proptest::collection::vec(length(), 0..4).prop_map(Backoff::List),
    ];
    let jitter = prop_oneof![Just(Jitter::None), Just(Jitter::Full), Just(Jitter::Equal)];
    let small = prop_oneof![length(), (0..100_000_u64).prop_map(Duration::from_millis)];
    (backoff, jitter, small.clone(), small, any::<f64>(), 0..20_u32, proptest::option::of(length())).prop_map(
        |(backoff, jitter, initial, max, factor, max_attempts, ttl)| RetryPolicy {
            backoff,
            initial,
            factor,
            max,
            jitter,
            max_attempts,
            ttl,
            ..RetryPolicy::default()
        },
    )
}

proptest! {
    #[test]
    fn every_wait_is_within_its_bounds(
        policy in any_policy(),
        attempt in prop_oneof![1..30_u32, any::<u32>()],
        first in any::<i64>(),
        now in any::<i64>(),
        hash in any::<u128>(),
    ) {
        let first_attempt = Timestamp(first);
        let tried = FailedTry { attempt, first_attempt, now: Timestamp(now), hash, ..tried(attempt) };
        let decision = policy.next(&tried);
        prop_assert_eq!(policy.next(&tried), decision);
        match decision {
            Decision::Again { at, .. } => {
                prop_assert!(policy.max_attempts == 0 || attempt < policy.max_attempts);
                prop_assert!(at >= tried.now && at <= tried.now + policy.max);
                if let Some(ttl) = policy.ttl {
                    prop_assert!(at <= first_attempt + ttl);
                }
                if policy.jitter == Jitter::Equal {
                    prop_assert!(at >= tried.now + policy.wait(attempt) / 2);
                }
            }
            Decision::Exhausted(Exhausted::Attempts(most)) => prop_assert!(most > 0 && attempt >= most),
            Decision::Exhausted(Exhausted::Time(ttl)) => {
                prop_assert!(tried.now + policy.max > first_attempt + ttl);
            }
            Decision::NotRetried => prop_assert!(false, "errors of scripts are retried"),
        }
    }

    #[test]
    fn delays_do_not_shrink(mut policy in any_policy(), attempt in 1..1000_u32) {
        policy.factor = 1.0 + policy.factor.abs();
        if !matches!(policy.backoff, Backoff::List(_)) {
            prop_assert!(policy.delay(attempt) <= policy.delay(attempt + 1));
        }
    }
}

#[test]
fn the_longest_wait_is_that_before_the_last_attempt_as_far_as_the_policy_allows() {
    let policy = RetryPolicy { max_attempts: 4, ..RetryPolicy::DEFAULT };
    assert_eq!(policy.longest_wait(), Duration::from_secs(4));
    assert_eq!(RetryPolicy { max_attempts: 1, ..policy.clone() }.longest_wait(), Duration::ZERO);
    assert_eq!(RetryPolicy { max_attempts: 0, ..policy.clone() }.longest_wait(), Duration::from_hours(1));
    let ttl = Some(Duration::from_secs(3));
    assert_eq!(RetryPolicy { ttl, ..policy.clone() }.longest_wait(), Duration::from_secs(3));
    let delays = [1, 90, 2].map(Duration::from_secs).to_vec();
    let list = RetryPolicy { backoff: Backoff::List(delays), ..policy };
    assert_eq!(list.longest_wait(), Duration::from_secs(90));
    assert_eq!(RetryPolicy { max_attempts: 2, ..list }.longest_wait(), Duration::from_secs(1));
}
