//! Histories: test the written rules of each strategy.

use super::play::{Play, key, names};
use super::*;

fn play(strategy: StartOrder) -> Play {
    Play::new(rules(strategy))
}

fn until(seconds: i64) -> Timestamp {
    Timestamp(seconds * 1000)
}

#[test]
fn fifo_takes_the_oldest_up_to_max_processing() {
    let mut play = Play::new(QueuePolicy { max_processing: most(2), ..rules(StartOrder::Fifo) });
    assert_eq!(play.on("+a2 +b1 +a3 go"), "b1 a2");
    assert_eq!(play.on("go"), "");
    assert_eq!(play.why("a3"), WaitReason::MaxProcessing);
    assert_eq!(play.room.next_wake(play.now), None);
    assert_eq!(play.on("a2✓ go"), "a3");
    // A pending job does not run.
    assert_eq!(play.on("+a4 b1… go"), "a4");
}

#[test]
fn a_delayed_job_steps_aside_under_fifo_and_comes_back_at_its_age() {
    let mut play = play(StartOrder::Fifo);
    assert_eq!(play.on("+a1 +a2 +a3 go1"), "a1");
    assert_eq!(play.on("a1✗15 go1"), "a2");
    assert_eq!(play.why("a1"), WaitReason::Delayed { until: until(15) });
    assert_eq!(play.on("15s go1"), "a1");
}

#[test]
fn unknown_jobs_go_first_and_then_those_that_were_put_back() {
    let mut play = play(StartOrder::Fifo);
    assert_eq!(play.on("+a1 +a2 +a3 +a4 go3"), "a1 a2 a3");
    assert_eq!(play.on("a1↩ a2↩ a3? go"), "a3 a1 a2 a4");
    assert_eq!(play.on("a1↩ a2↩ a3↩ a4↩ go"), "a3 a1 a2 a4");
}

#[test]
fn serial_runs_one_at_a_time_and_everything_waits_for_a_delayed_or_pending_one() {
    let mut play = play(StartOrder::Serial);
    assert_eq!(play.on("+a1 +b2 +c3 go"), "a1");
    assert_eq!(play.on("go"), "");
    assert_eq!(play.on("a1✗15 go"), "");
    assert_eq!(
        play.why("b2"),
        WaitReason::Lane { job: key("a1"), state: WaitingState::Delayed { until: until(15) } }
    );
    assert_eq!(play.room.next_wake(play.now), Some(until(15)));
    assert_eq!(play.on("15s go"), "a1");
    assert_eq!(play.on("a1… go"), "");
    assert_eq!(play.on("a1? go"), "a1");
    assert_eq!(play.on("a1↩ go"), "a1");
    assert_eq!(play.on("a1✓ go"), "b2");
    assert_eq!(play.why("c3"), WaitReason::Lane { job: key("b2"), state: WaitingState::Running });
}

#[test]
fn one_round_serial_takes_one_of_each_lane_and_none_of_a_lane_that_has_one_on_its_way() {
    let mut play = play(StartOrder::OneRoundSerial);
    assert_eq!(play.on("+a1 +a2 +b3 +c4 +c5 go"), "a1 b3 c4");
    assert_eq!(play.on("c4… b3✓ a1✗15 +b6 go"), "b6");
    assert_eq!(
        play.why("a2"),
        WaitReason::Lane { job: key("a1"), state: WaitingState::Delayed { until: until(15) } }
    );
    assert_eq!(play.why("c5"), WaitReason::Lane { job: key("c4"), state: WaitingState::Pending });
    assert_eq!(play.on("c4? go"), "c4");
    assert_eq!(play.on("14s go"), "");
    assert_eq!(play.on("1s go"), "a1");
    assert_eq!(play.on("a1✓ c4✓ go"), "a2 c5");
}

#[test]
fn a_round_takes_what_is_unknown_then_what_is_due_then_the_lanes() {
    let mut play = play(StartOrder::OneRoundSerial);
    play.on("+a1 +b2 ~c3@5 ~d9@20 ?e8 ?f7 +f1 5s");
    assert_eq!(play.preview(9), "5s: f7 e8 c3 +2, 5s: f1, 20s: d9");
    assert_eq!(play.on("go"), "f7 e8 c3 a1 b2");
}

#[test]
fn what_is_unknown_goes_before_what_is_due_of_its_lane_though_bounds_held_it() {
    let mut play = Play::new(QueuePolicy { max_per_lane: most(2), ..rules(StartOrder::OneRoundParallel) });
    assert_eq!(play.on("+a1 +a2 +a3 +b4 go"), "a1 b4 a2");
    // It has its turn in the list while the lane is full. The other jobs are due when the lane has room
    // again.
    assert_eq!(play.on("?a5 go"), "");
    assert_eq!(play.on("a1✗1 a2✗1 1s go"), "a5 a1");
    assert_eq!(play.on("a5✓ go"), "a2");
}

#[test]
fn what_becomes_unknown_during_a_round_goes_before_what_is_due_of_its_lane() {
    let mut play = play(StartOrder::OneRoundSerial);
    // Both due jobs are in the round.
    assert_eq!(play.on("=a2 a2… ~b1@5 ~a3@5 5s go1"), "b1");
    assert_eq!(play.on("a2? go"), "a2");
    assert_eq!(play.on("a2✓ go"), "a3");
}

#[test]
fn a_round_is_handed_out_before_the_next_begins() {
    let mut play = play(StartOrder::OneRoundSerial);
    assert_eq!(play.on("+a1 +a2 +b3 +c4 go1"), "a1");
    // Lane a is free again and has the oldest job, but no second place in this round.
    assert_eq!(play.on("a1✓ go1"), "b3");
    assert_eq!(play.why("a2"), WaitReason::NextRound);
    assert_eq!(play.on("b3✓ ?d9 go1"), "c4");
    assert_eq!(play.on("go"), "d9 a2");
}

#[test]
fn a_lane_that_gets_an_unknown_job_loses_its_place_in_the_round() {
    let mut play = play(StartOrder::OneRoundSerial);
    assert_eq!(play.on("+a1 +b2 +c3 go1"), "a1");
    assert_eq!(play.on("?b9 go"), "c3 b9");
    assert_eq!(play.on("b9✓ go"), "b2");
}

#[test]
fn equally_old_jobs_go_by_id() {
    let mut room = WaitingRoom::new(rules(StartOrder::OneRoundSerial));
    let ids = [
        (1, JobId::Text("b".into())),
        (2, JobId::Text("ab".into())),
        (3, JobId::Number(10)),
        (4, JobId::Number(9)),
        (5, JobId::None),
    ];
    for (key, id) in ids {
        room.add(JobAttributes { id, ..JobAttributes::new(JobKey(key), 7) }, WaitingState::Waiting).unwrap();
    }
    let mut started = Vec::new();
    for _ in 0..5 {
        room.start(Timestamp(0), 1, &mut started);
        room.finished(*started.last().unwrap(), Timestamp(0)).unwrap();
    }
    assert_eq!(started, [5, 4, 3, 2, 1].map(JobKey));
}

#[test]
fn one_round_parallel_holds_what_is_in_conflict_with_earlier_jobs() {
    let mut play = play(StartOrder::OneRoundParallel);
    // a2 writes a key that a1 reads. a3 reads a key that a2 would write, so a2 blocks it although a2 is
    // blocked.
    assert_eq!(play.on("+a1r1 +a2w1w2 +a3r2 +a4r1 +a5w3 +b6w1 go"), "a1 a5 b6");
    assert_eq!(play.why("a2"), WaitReason::Conflict { job: key("a1"), state: WaitingState::Running });
    assert_eq!(play.why("a3"), WaitReason::Conflict { job: key("a2"), state: WaitingState::Waiting });
    assert_eq!(play.on("a5✓ b6✓ a1✗9 go"), "");
    assert_eq!(play.on("9s go"), "a1");
    assert_eq!(play.on("a1… go"), "");
    assert_eq!(play.on("a1? go"), "a1");
    assert_eq!(play.on("a1✓ go"), "a2");
    assert_eq!(play.on("a2↩ +a0w1 go"), "a2");
    assert_eq!(play.on("a2✓ go"), "a0 a3");
    assert_eq!(play.on("a0× a0✓ go"), "a4");
}

#[test]
fn reads_go_together_and_a_cancelled_job_holds_nobody() {
    let mut play = play(StartOrder::OneRoundParallel);
    assert_eq!(play.on("+a1r1 +a2r1 +a3w1 +a4r1 go"), "a1 a2");
    assert_eq!(play.on("a3× go"), "a4");
}

#[test]
fn what_is_forgotten_goes_before_others_of_its_lane_that_have_a_place_in_the_round_already() {
    let mut play = play(StartOrder::OneRoundParallel);
    assert_eq!(play.on("+a1w1 +a2w2 +a3w3 +b4w4 go1"), "a1");
    assert_eq!(play.on("a1… a1? go"), "a1 a2 a3 b4");
}

#[test]
fn priority_goes_by_priority_and_by_age_within() {
    let mut play = play(PRIORITY);
    assert_eq!(play.on("+a1 +a2!5 +a3!5 +a4!9 go"), "a4 a2 a3 a1");
}

#[test]
fn aging_lets_the_old_overtake() {
    let mut play = play(AGING);
    play.on("+a1!1 2s +a2!2 +a3!4");
    // Three priorities are worth three seconds, and a1 has waited two.
    assert_eq!(play.on("go"), "a3 a1 a2");
}

#[test]
fn a_round_of_rounds_has_what_was_there_and_the_next_begins_after_the_pause() {
    let mut play = Play::new(QueuePolicy { max_processing: most(1), ..rules(ROUNDS) });
    assert_eq!(play.on("+a1 +a2 go"), "a1");
    assert_eq!(play.on("+a0 a1✓ go"), "a2");
    assert_eq!(play.why("a0"), WaitReason::NextRound);
    assert_eq!(play.on("1s a2✗99 go"), "");
    assert_eq!(play.why("a0"), WaitReason::Pause { until: until(6) });
    assert_eq!(play.room.next_wake(play.now), Some(until(6)));
    assert_eq!(play.on("4s +a3 go"), "");
    assert_eq!(play.preview(9), "6s: a0 a3, 100s: a2");
    assert_eq!(play.on("1s go"), "a0");
    // The gate is closed: the job stays first of its round.
    assert_eq!(play.on("a0↩ +a4 go"), "a0");
    assert_eq!(play.on("a0? go"), "a0");
    assert_eq!(play.on("a0… go"), "a3");
}

#[test]
fn withdrawals_run_one_at_a_time_per_pool_and_each_pool_on_its_own() {
    let mut play = Play::new(QueuePolicy { max_per_lane: most(1), ..rules(ROUNDS) });
    assert_eq!(play.on("+a1 +a2 +b3 go"), "a1 b3");
    assert_eq!(play.why("a2"), WaitReason::MaxPerLane);
    assert_eq!(play.on("b3✓ +b4 go"), "");
    assert_eq!(play.on("a1✓ go"), "a2");
    assert_eq!(play.on("a2✓ 4s go"), "");
    assert_eq!(play.on("1s go"), "b4");
}

#[test]
fn each_lane_has_rounds_of_its_own_so_that_a_busy_one_blocks_no_other() {
    let mut play = Play::new(QueuePolicy { max_processing: most(2), ..rules(ROUNDS) });
    assert_eq!(play.on("+a1 +a2 +b3 +b4 go"), "a1 a2");
    assert_eq!(play.why("b3"), WaitReason::MaxProcessing);
    assert_eq!(play.on("a1✓ +a5 +c6 go"), "b3");
    assert_eq!(play.why("a5"), WaitReason::NextRound);
    // The round of a ends, and its pause begins, while that of b goes on and that of c begins.
    assert_eq!(play.on("a2✓ go"), "b4");
    assert_eq!(play.why("a5"), WaitReason::Pause { until: until(5) });
    assert_eq!(play.on("3s b3✓ b4✓ go"), "c6");
    assert_eq!(play.on("+b7 go"), "");
    assert_eq!(play.why("b7"), WaitReason::Pause { until: until(8) });
    assert_eq!(play.preview(9), "5s: a5, 8s: b7");
    assert_eq!(play.room.next_wake(play.now), Some(until(5)));
    assert_eq!(play.on("2s go"), "a5");
    // A lane keeps its pause though its last job has left.
    assert_eq!(play.on("a5✓ +a8 3s go"), "b7");
    assert_eq!(play.on("c6✓ 2s go"), "a8");
}

#[test]
fn no_job_starts_that_could_be_one_pending_job_too_many() {
    let mut play = Play::new(QueuePolicy { max_pending: most(2), ..rules(StartOrder::Fifo) });
    assert_eq!(play.on("+a1 +a2 +a3 +a4 go"), "a1 a2");
    assert_eq!(play.on("a1… go"), "");
    assert_eq!(play.why("a3"), WaitReason::MaxPending);
    assert_eq!(play.room.next_wake(play.now), None);
    // One that does not become pending makes room.
    assert_eq!(play.on("a2✓ go"), "a3");
    assert_eq!(play.on("a3… go"), "");
    // A worker reports late, and a job that the external system forgot is not held there.
    assert_eq!(play.on("a1✓ go"), "a4");
    assert_eq!(play.on("a4… a3? go"), "a3");
}

#[test]
fn a_lane_counts_its_pending_jobs_against_its_limit() {
    for strategy in [StartOrder::Fifo, PRIORITY, ROUNDS] {
        let mut play = Play::new(QueuePolicy { max_per_lane: most(2), ..rules(strategy) });
        assert_eq!(play.on("+a1 +a2 +a3 +b4 go"), "a1 a2 b4");
        assert_eq!(play.on("a1… a2… go"), "");
        assert_eq!(play.why("a3"), WaitReason::MaxPerLane);
        assert_eq!(play.on("a2✓ go"), "a3");
    }
}

#[test]
fn jobs_of_a_lane_that_began_under_other_rules_go_one_after_the_other() {
    let mut play = play(StartOrder::OneRoundSerial);
    assert_eq!(play.on("~a1@5 ~a2@5 +a3 +b4 5s go"), "a1 b4");
    assert_eq!(play.why("a2"), WaitReason::Lane { job: key("a1"), state: WaitingState::Running });
    assert_eq!(play.on("a1… go"), "");
    assert_eq!(play.on("a1✓ go"), "a2");
    assert_eq!(play.on("a2✓ go"), "a3");
}

#[test]
fn jobs_in_conflict_that_began_under_other_rules_go_one_after_the_other() {
    let mut play = play(StartOrder::OneRoundParallel);
    assert_eq!(play.on("~a1w5@5 ~a2w5@5 ~a3w6@5 +a4w5 5s go"), "a1 a3");
    let reason = WaitReason::Conflict { job: key("a1"), state: WaitingState::Running };
    assert_eq!(play.why("a2"), reason);
    assert_eq!(play.on("a1… go"), "");
    assert_eq!(play.on("a1✓ go"), "a2");
    assert_eq!(play.on("a2✓ go"), "a4");
}

#[test]
fn an_unknown_job_waits_for_a_job_in_conflict_that_began_beside_it_and_others_go_on() {
    let mut play = play(StartOrder::OneRoundParallel);
    assert_eq!(play.on("=a3w5 ?a1w5 ?a2w5 ?a4w6 +a5w7 +a6w5 go"), "a4 a5");
    let reason = WaitReason::Conflict { job: key("a3"), state: WaitingState::Running };
    assert_eq!(play.why("a1"), reason);
    // An older job that began waits no longer for one that is delayed.
    assert_eq!(play.on("a3✗9 go"), "a1");
    assert_eq!(play.on("a1… go"), "");
    assert_eq!(play.on("a1✓ go"), "a2");
    assert_eq!(play.on("a2? go"), "a2");
    assert_eq!(play.on("a2✓ 9s go"), "a3");
    assert_eq!(play.on("a3✓ go"), "a6");
}

#[test]
fn a_job_that_is_forgotten_after_it_freed_its_lane_waits_for_the_job_that_took_it() {
    let mut play = play(StartOrder::OneRoundParallel);
    assert_eq!(play.on("+a1w5 +a2w5 +a3w5 go"), "a1");
    assert_eq!(play.on("a1… go"), "");
    play.room.free_lane_of(key("a1"), play.now).unwrap();
    assert_eq!(play.on("go"), "a2");
    assert_eq!(play.on("a1? go"), "");
    assert_eq!(play.on("a2✓ go"), "a1");
    assert_eq!(play.on("a1✓ go"), "a3");
}

#[test]
fn a_clock_set_back_does_not_make_the_pause_longer() {
    let mut play = play(ROUNDS);
    play.on("60s +a1 go a1✓ +a2 go");
    assert_eq!(play.on("-60s go"), "a2");
}

#[test]
fn a_rate_is_kept_in_any_time_of_its_length() {
    let mut play = Play::new(QueuePolicy { rate: rate(2, 10_000), ..rules(StartOrder::Fifo) });
    assert_eq!(play.on("+a1 +a2 +a3 +a4 go1"), "a1");
    assert_eq!(play.on("4s go"), "a2");
    assert_eq!(play.why("a3"), WaitReason::Rate { until: until(10) });
    assert_eq!(play.room.next_wake(play.now), Some(until(10)));
    assert_eq!(play.on("6s go"), "a3");
    assert_eq!(play.on("3s go"), "");
    // A job that was put back has started, and counts.
    assert_eq!(play.on("a3↩ 1s go"), "a3");
    // A clock that was set back does not extend the wait for the rate.
    assert_eq!(play.on("-14s go"), "");
    assert_eq!(play.on("10s go"), "a4");
}

#[test]
fn a_lane_that_used_up_its_rate_does_not_slow_the_others() {
    for strategy in [StartOrder::Fifo, StartOrder::OneRoundSerial, StartOrder::OneRoundParallel] {
        let mut play = Play::new(QueuePolicy { lane_rate: rate(1, 10_000), ..rules(strategy) });
        assert_eq!(play.on("+a1 +a2 +b3 go"), "a1 b3");
        assert_eq!(play.on("a1✓ b3✓ +c4 go"), "c4");
        assert_eq!(play.why("a2"), WaitReason::LaneRate { until: until(10) });
        assert_eq!(play.room.next_wake(play.now), Some(until(10)));
        assert_eq!(play.on("10s go"), "a2");
    }
}

#[test]
fn what_cannot_be_true_is_refused_and_has_no_effect() {
    let mut play = play(StartOrder::Fifo);
    assert_eq!(play.on("a9✓"), "job `416611827721` is not in this step");
    assert_eq!(play.on("+a1 a1✓"), "job `416611827713` cannot finish: it is waiting");
    assert_eq!(play.on("go a1×"), "job `416611827713` cannot be cancelled: it is running");
    assert_eq!(play.on("a1…"), "");
    assert_eq!(play.on("a1…"), "job `416611827713` cannot be pending: it is pending");
    assert_eq!(play.on("a1↩"), "job `416611827713` cannot be put back: it is pending");
    assert_eq!(play.on("a1✗5"), "");
    assert_eq!(play.on("a1✓"), "job `416611827713` cannot finish: it is delayed");
    assert_eq!(play.on("a1×"), "");
    assert_eq!(play.on("a1×"), "job `416611827713` is not in this step");
    // A pending job can be cancelled, because its external system may be gone.
    assert_eq!(play.on("+a2 go a2… a2×"), "");
    assert_eq!(play.room.counts(), StateCounts::default());
}

#[test]
fn a_delay_can_be_moved() {
    let mut play = play(StartOrder::Fifo);
    play.on("~a1@60");
    assert_eq!(play.room.reschedule(key("a1"), until(0)), Ok(()));
    assert_eq!(play.on("go"), "a1");
    assert!(play.room.reschedule(key("a1"), until(0)).is_err());
}

#[test]
fn a_preview_changes_nothing_and_tells_what_then_happens() {
    let mut play = Play::new(QueuePolicy { max_processing: most(2), ..rules(StartOrder::OneRoundSerial) });
    play.on("+a1 +a2 +a3 +b4 +c5 +d6 go");
    assert_eq!(play.preview(2), "0s: c5 d6, 0s: a2");
    assert_eq!(play.preview(9), "0s: c5 d6, 0s: a2, 0s: a3");
    assert_eq!(play.on("a1✓ b4✓ go"), "c5 d6");
}

#[test]
fn a_preview_tells_without_rounds_what_starts_at_once() {
    let mut play = Play::new(QueuePolicy { rate: rate(2, 10_000), ..rules(StartOrder::Fifo) });
    play.on("+a1 +a2 +b3 +b4 +c5");
    assert_eq!(play.preview(9), "0s: a1 a2, 10s: b3 b4, 20s: c5");
    let mut play = Play::new(QueuePolicy {
        lane_rate: rate(1, 10_000),
        max_processing: most(2),
        ..rules(StartOrder::Fifo)
    });
    play.on("+a1 +b2 +c3 +a4 +b5 +c6");
    assert_eq!(play.preview(9), "0s: a1 b2, 0s: c3, 10s: a4 b5, 10s: c6");
    play =
        Play::new(QueuePolicy { rate: rate(1, 10_000), max_processing: most(3), ..rules(StartOrder::Fifo) });
    play.on("+a1 +b2 +c3 +a4");
    assert_eq!(play.preview(3), "0s: a1, 10s: b2, 20s: c3");
}

#[test]
fn a_preview_ends_where_nobody_knows_a_time_and_after_as_many_jobs_as_wanted() {
    let mut room = play(StartOrder::Fifo);
    room.on("+a1 +a2 +a3 +a4 +a5 +a6 +a7 +a8 +a9 +b1 +b2");
    assert_eq!(room.preview(2), "0s: a1 b1 a2 +6 …");
    let mut serial = play(StartOrder::Serial);
    serial.on("+a1 +b2 go a1…");
    assert_eq!(serial.preview(2), "");
    let mut delayed = WaitingRoom::new(rules(StartOrder::Fifo));
    delayed
        .add(JobAttributes::new(JobKey(1), 1), WaitingState::Delayed { until: Timestamp(i64::MAX) })
        .unwrap();
    assert_eq!(
        delayed.preview(Timestamp(0), PreviewHorizon { rounds: 1, listed: 1, jobs: 1 }),
        (Vec::new(), false)
    );
}

#[test]
fn the_lanes_with_the_most_waiting_are_told_first() {
    let mut play = play(StartOrder::OneRoundSerial);
    play.on("+a1 +b2 +b3 +c5 +c4 +c6 go");
    let top = |held: &[&str]| {
        let held = held.iter().map(|job| key(job)).collect();
        let LaneSummary { oldest, due, lanes } = play.room.summary(2, &held, Timestamp(7));
        assert_eq!(due, 0);
        let rendered = |lane: LaneCounts| {
            let oldest = names(&lane.oldest.into_iter().collect::<Vec<_>>());
            format!("{} {}/{} {oldest}", char::from(lane.lane[0]), lane.waiting, lane.running)
        };
        let lanes: Vec<String> = lanes.into_iter().map(rendered).collect();
        format!("{}: {}", names(&oldest.into_iter().collect::<Vec<_>>()), lanes.join(", "))
    };
    assert_eq!(top(&[]), "b3: c 2/1 c5, b 1/1 b3");
    // The job is not begun yet.
    assert_eq!(top(&["a1"]), "a1: c 2/1 c5, b 1/1 b3");
    assert_eq!(play.room.summary(0, &[].into(), Timestamp(7)).lanes, []);
    let counts = StateCounts { waiting: 3, running: 3, delayed: 0, pending: 0, finished: 0, lanes: 3 };
    assert_eq!(play.room.counts(), counts);
}

#[test]
fn what_is_due_waits_though_nobody_has_looked_at_the_clock() {
    let mut room = WaitingRoom::new(rules(StartOrder::OneRoundSerial));
    for (key, until) in [(1, 5), (2, 9)] {
        room.add(JobAttributes::new(JobKey(key), 1), WaitingState::Delayed { until: Timestamp(until) })
            .unwrap();
    }
    let summary = |now| {
        let LaneSummary { oldest, due, lanes } = room.summary(1, &[].into(), Timestamp(now));
        (oldest.map(|key| key.0), due, lanes[0].waiting, lanes[0].delayed)
    };
    assert_eq!(summary(4), (None, 0, 0, 2));
    assert_eq!(summary(5), (Some(1), 1, 1, 1));
    assert_eq!(summary(9), (Some(1), 2, 2, 0));
}
