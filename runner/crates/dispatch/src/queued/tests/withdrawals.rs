//! Withdrawals that wait for the gas price: tests each sentence of the description. Lanes are pools, rounds
//! are runs.

use super::*;

const EVERY: Duration = Duration::from_secs(5);

/// Creates a step with one job a pool, five seconds between runs, and five seconds between checks of the
/// price.
fn runs() -> Play {
    let max_per_lane = std::num::NonZeroU32::new(1);
    let strategy = StartOrder::Rounds { pause: EVERY };
    let rules = QueuePolicy { strategy, max_per_lane, max_processing: None, ..picking().rules };
    Play::started(DurabilityBarrier::Nothing, QueuePlan { rules, gate: Some(EVERY), ..picking() })
}

fn arrive(play: &mut Play, first: u64, pools: &[&str]) -> String {
    for (index, pool) in (first..).zip(pools) {
        let attributes = JobAttributes {
            lane: pool.as_bytes(),
            ..JobAttributes::new(JobKey::fresh(index), i64::try_from(index).unwrap())
        };
        play.dispatcher.saw(0, &attributes, WaitingState::Waiting);
    }
    let (port, read) = (InputPort::of_input(0, 0), ReadId(first));
    play.on(Event::Read { port, read, first, jobs: pools.len(), bytes: 0 })
}

fn gate(play: &mut Play, open: bool) -> String {
    play.on(Event::Gate { step: 0, open })
}

#[test]
fn what_comes_during_a_run_belongs_to_the_next_five_seconds_after_this_one() {
    let mut play = runs();
    assert_eq!(arrive(&mut play, 1, &["a", "a", "b"]), "forget 1, look, read 4");
    // The first job of each pool starts at the same time.
    assert_eq!(gate(&mut play, true), "pick #0 1, pick #1 3");
    play.picked(0);
    play.picked(1);
    assert_eq!(arrive(&mut play, 4, &["b"]), "forget 4, read 5");
    // Pool b is free, but its next job belongs to its next run; the run of pool a goes on.
    assert_eq!(play.done(1), "");
    play.now = Timestamp(1000);
    assert_eq!(play.done(0), "passed 1, pick #2 2");
    play.picked(2);
    assert_eq!(play.dispatcher.wakes(), Some(Timestamp(5000)));
    play.now = Timestamp(4999);
    assert_eq!(play.on(Event::Tick), "");
    // The last answer of the gate is too old by then. Pool a, which is busy, does not slow pool b.
    play.now = Timestamp(5000);
    assert_eq!(play.on(Event::Tick), "look");
    assert_eq!(gate(&mut play, true), "pick #3 4");
    assert_eq!(arrive(&mut play, 5, &["a"]), "forget 5, read 6");
    play.now = Timestamp(6000);
    assert_eq!(play.done(2), "passed 3");
    play.now = Timestamp(11_000);
    assert_eq!(play.on(Event::Tick), "look");
    assert_eq!(gate(&mut play, true), "pick #4 5");
}

#[test]
fn a_run_ends_with_a_withdrawal_that_waits_for_another_attempt_too() {
    let mut play = runs();
    arrive(&mut play, 1, &["a"]);
    assert_eq!(gate(&mut play, true), "pick #0 1");
    play.picked(0);
    arrive(&mut play, 2, &["a"]);
    assert_eq!(play.ran(0, &[JobOutcome::Delayed(Timestamp(60_000))]), "commit #0+1");
    assert_eq!(play.committed(0), "passed 1");
    play.now = Timestamp(5000);
    assert_eq!(play.on(Event::Tick), "look");
    assert_eq!(gate(&mut play, true), "pick #1 2");
}

#[test]
fn a_run_that_finds_gas_too_dear_is_tried_again_five_seconds_later_where_it_stopped() {
    let mut play = runs();
    arrive(&mut play, 1, &["a", "a", "a"]);
    assert_eq!(gate(&mut play, true), "pick #0 1");
    play.picked(0);
    play.now = Timestamp(5000);
    // The last check with a low price is too old.
    assert_eq!(play.ran(0, &[JobOutcome::Finished]), "commit #0+1, look");
    assert_eq!(play.committed(0), "passed 1");
    assert_eq!(gate(&mut play, false), "");
    assert_eq!(play.dispatcher.wakes(), Some(Timestamp(10_000)));
    play.now = Timestamp(9999);
    assert_eq!(play.on(Event::Tick), "");
    play.now = Timestamp(10_000);
    assert_eq!(play.on(Event::Tick), "look");
    // The same job is first again, and no attempt has failed.
    assert_eq!(gate(&mut play, true), "pick #1 2");
}
