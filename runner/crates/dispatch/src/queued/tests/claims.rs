//! Tests of claims: play a step that claims its jobs before they have a place to run.

use super::*;

/// Two jobs at once, and up to four claimed ones beside them.
fn ahead() -> Play {
    Play::new(DurabilityBarrier::Snapshot, QueuePlan { ahead: 4, ..picking() })
}

fn begun(play: &mut Play, batch: u64) -> String {
    play.on(Event::Begun { step: 0, batch: BatchId(batch) })
}

/// Two jobs run, and each takes so little time that others are claimed ahead.
fn running() -> Play {
    let mut play = ahead();
    play.start();
    // Before a measurement only the jobs with a place are claimed.
    assert_eq!(play.read(1, 9), "forget 1, pick #0 1+2");
    assert_eq!(play.picked(0), "begin #0");
    assert_eq!(begun(&mut play, 0), "deal #0 from #1, run #1, run #2");
    assert_eq!(play.ran(1, &[JobOutcome::Finished]), "commit #1+1, pick #3 3+4+5+6+7");
    assert_eq!(play.picked(3), "begin #3");
    play
}

#[test]
fn claimed_jobs_run_when_the_result_of_another_is_in() {
    let mut play = running();
    // The first job is not committed, and its place is free.
    assert_eq!(begun(&mut play, 3), "deal #3 from #4, run #4");
    assert_eq!(play.ran(2, &[JobOutcome::Finished]), "commit #2+1, run #5");
    assert_eq!(play.committed(1), "passed 1");
    // Others are claimed when half of the claimed ones run.
    assert_eq!(play.ran(4, &[JobOutcome::Finished]), "commit #4+1, run #6");
    assert_eq!(play.committed(2), "passed 2, pick #9 8+9");
    assert_eq!(play.dispatcher.wakes(), None);
}

#[test]
fn a_paused_step_gives_back_the_jobs_that_it_has_claimed_and_resumes_with_them() {
    let mut play = running();
    let paused = |play: &mut Play, paused| play.on(Event::Pause { step: 0, paused });
    assert_eq!(paused(&mut play, true), "");
    // A claim that becomes durable later is given back, too.
    let unclaimed = "deal #3 from #4, unclaim #4, unclaim #5, unclaim #6, unclaim #7, unclaim #8";
    assert_eq!(begun(&mut play, 3), unclaimed);
    for batch in 4..=8 {
        assert_eq!(play.committed(batch), "");
    }
    assert_eq!(play.ran(2, &[JobOutcome::Finished]), "commit #2+1");
    assert_eq!(play.committed(1), "passed 1");
    assert_eq!(play.committed(2), "passed 7");
    assert_eq!(paused(&mut play, false), "pick #9 3+4+5+6+7+8");
}

#[test]
fn a_stop_waits_for_running_jobs_and_gives_the_claimed_ones_back() {
    let mut play = running();
    begun(&mut play, 3);
    assert_eq!(play.on(Event::Stop), "unclaim #5, unclaim #6, unclaim #7, unclaim #8");
    for batch in 5..=8 {
        assert_eq!(play.committed(batch), "");
    }
    assert_eq!(play.ran(2, &[JobOutcome::Finished]), "commit #2+1");
    assert_eq!(play.ran(4, &[JobOutcome::Finished]), "commit #4+1");
    play.committed(1);
    play.committed(2);
    assert_eq!(play.committed(4), "passed 7, Stopped");
}

#[test]
fn claimed_jobs_wait_for_the_end_of_a_hold() {
    let mut play = running();
    begun(&mut play, 3);
    assert_eq!(
        play.ran(2, &[JobOutcome::Held(Wait { since: play.now, until: Timestamp(50) })]),
        "commit #2+1, run #5"
    );
    assert_eq!(play.committed(2), "");
    assert_eq!(play.ran(4, &[JobOutcome::Finished]), "commit #4+1");
    assert_eq!(play.dispatcher.wakes(), Some(Timestamp(50)));
    play.now = Timestamp(50);
    assert_eq!(play.on(Event::Tick), "run #6");
}

#[test]
fn a_step_whose_claims_are_withheld_gives_them_back_and_claims_none() {
    let mut play = running();
    begun(&mut play, 3);
    play.dispatcher.withhold_claims(0, true);
    assert_eq!(play.on(Event::Tick), "unclaim #5, unclaim #6, unclaim #7, unclaim #8");
    let claimed = |play: &Play| {
        let mut keys: Vec<u64> = play.dispatcher.claimed(0).iter().map(|key| key.0).collect();
        keys.sort_unstable();
        keys
    };
    assert_eq!(claimed(&play), [4, 5, 6, 7]);
    for batch in 5..=8 {
        assert_eq!(play.committed(batch), "");
    }
    assert!(claimed(&play).is_empty());
    assert_eq!(play.dispatcher.wakes(), None);
    play.dispatcher.withhold_claims(0, false);
    assert_eq!(play.on(Event::Tick), "pick #9 4+5+6+7");
}

#[test]
fn a_halted_step_runs_no_claimed_job() {
    let mut play = running();
    begun(&mut play, 3);
    assert_eq!(play.halts(2), "commit #2+0, unclaim #5, unclaim #6, unclaim #7, unclaim #8");
}

#[test]
fn slow_jobs_are_claimed_when_they_have_a_place() {
    let mut play = ahead();
    play.start();
    play.read(1, 9);
    play.picked(0);
    begun(&mut play, 0);
    let took = Duration::from_secs(1);
    let ran = BatchEnd { took, ..BatchEnd::picked(&[JobOutcome::Finished]) };
    assert_eq!(play.on(Event::Ran { step: 0, batch: BatchId(1), ran }), "commit #1+1, pick #3 3+4");
}

#[test]
fn delayed_outputs_need_no_place() {
    let mut play = running();
    begun(&mut play, 3);
    play.dispatcher.saw_late(0, JobKey::stored(7), Due::At(Timestamp(0)));
    assert_eq!(play.on(Event::Tick), "pick #9 9223372036854775815");
    assert_eq!(play.picked(9), "begin #9");
    assert_eq!(begun(&mut play, 9), "run #9");
}

#[test]
fn a_pause_gives_back_no_delayed_output_and_no_completed_job() {
    let mut play = running();
    begun(&mut play, 3);
    play.ran(2, &[JobOutcome::Pending]);
    play.committed(2);
    let paused = |play: &mut Play, paused| play.on(Event::Pause { step: 0, paused });
    play.dispatcher.saw_late(0, JobKey::stored(7), Due::At(Timestamp(0)));
    assert_eq!(play.on(Event::Tick), "pick #9 9223372036854775815");
    assert_eq!(play.settle(&[2]), "pick #10 2");
    assert!(!paused(&mut play, true).contains("drop"));
    assert_eq!(play.picked(9), "");
    assert_eq!(play.picked(10), "");
    assert_eq!(paused(&mut play, false), "pick #11 8+9, begin #9, run #10");
    assert_eq!(begun(&mut play, 9), "run #9");
}

/// A step as [`running`], whose claimed jobs share places by two.
fn sharing() -> Play {
    let mut play = Play::new(DurabilityBarrier::Snapshot, QueuePlan { ahead: 4, lot: 2, ..picking() });
    play.start();
    play.read(1, 9);
    play.picked(0);
    // Before a measurement each job has a place of its own.
    assert_eq!(begun(&mut play, 0), "deal #0 from #1, run #1, run #2");
    assert_eq!(play.ran(1, &[JobOutcome::Finished]), "commit #1+1, pick #3 3+4+5+6+7");
    play.picked(3);
    assert_eq!(begun(&mut play, 3), "deal #3 from #4 by 2, run #4");
    play
}

#[test]
fn quick_claimed_jobs_share_a_place() {
    let mut play = sharing();
    assert_eq!(play.ran(2, &[JobOutcome::Finished]), "commit #2+1, run #5");
    let both = [JobOutcome::Finished, JobOutcome::Delayed(Timestamp(70))];
    assert_eq!(play.ran(4, &both), "commit #4+2, pick #7 8+9, run #6");
    play.committed(1);
    play.committed(2);
    assert_eq!(play.committed(4), "passed 4");
    assert_eq!(play.dispatcher.wakes(), Some(Timestamp(70)));
}

#[test]
fn claimed_jobs_that_are_cut_off_others_stay_claimed() {
    let mut play = sharing();
    let ran = BatchEnd { ending: BatchCut::Cut, ..BatchEnd::picked(&[JobOutcome::Finished]) };
    let cut = play.on(Event::Ran { step: 0, batch: BatchId(4), ran });
    assert_eq!(cut, "split #4 1 #7, commit #4+1, run #5");
    assert_eq!(play.ran(2, &[JobOutcome::Finished]), "commit #2+1, pick #8 8+9, run #6");
    assert_eq!(play.ran(5, &[JobOutcome::Finished; 2]), "commit #5+2, run #7");
    let claimed: Vec<u64> = play.dispatcher.claimed(0).iter().map(|key| key.0).collect();
    assert_eq!(claimed, [8, 9]);
}

#[test]
fn jobs_that_take_long_have_places_of_their_own_again() {
    let mut play = sharing();
    let took = Duration::from_millis(100);
    let ran = BatchEnd { took, ..BatchEnd::picked(&[JobOutcome::Finished; 2]) };
    play.on(Event::Ran { step: 0, batch: BatchId(4), ran });
    play.ran(2, &[JobOutcome::Finished]);
    play.ran(5, &[JobOutcome::Finished; 2]);
    for batch in [1, 2, 4, 5] {
        play.committed(batch);
    }
    assert_eq!(play.picked(7), "begin #7");
    assert_eq!(begun(&mut play, 7), "deal #7 from #8, run #8");
}

/// A step of `serial`, and up to eight claimed jobs.
fn in_turn() -> Play {
    let rules = QueuePolicy { strategy: StartOrder::Serial, max_processing: None, ..picking().rules };
    let mut play = Play::new(DurabilityBarrier::Snapshot, QueuePlan { rules, ahead: 8, lot: 4, ..picking() });
    play.start();
    // Before a measurement only the first job is claimed.
    assert_eq!(play.read(1, 9), "forget 1, pick #0 1");
    assert_eq!(play.picked(0), "begin #0");
    assert_eq!(begun(&mut play, 0), "run #0");
    play
}

/// The same, with two claimed jobs behind the one that runs.
fn third_of_serial() -> Play {
    let mut play = in_turn();
    assert_eq!(play.ran(0, &[JobOutcome::Finished]), "commit #0+1, pick #1 2");
    assert_eq!(play.picked(1), "begin #1");
    assert_eq!(begun(&mut play, 1), "");
    assert_eq!(play.committed(0), "passed 1, pick #2 3, run #1");
    assert_eq!(play.picked(2), "begin #2");
    assert_eq!(play.ran(1, &[JobOutcome::Finished]), "commit #1+1");
    assert_eq!(play.committed(1), "passed 2");
    assert_eq!(begun(&mut play, 2), "pick #3 4+5, run #2");
    assert_eq!(play.picked(3), "begin #3");
    play
}

#[test]
fn claimed_jobs_of_serial_run_when_the_result_before_them_is_durable() {
    let mut play = third_of_serial();
    assert_eq!(begun(&mut play, 3), "deal #3 from #4");
    assert_eq!(play.ran(2, &[JobOutcome::Finished]), "commit #2+1, pick #6 6+7");
    assert_eq!(play.committed(2), "passed 3, run #4");
    // One claim is begun before the next one is made.
    assert_eq!(play.ran(4, &[JobOutcome::Finished]), "commit #4+1");
    assert_eq!(play.committed(4), "passed 4, run #5");
}

#[test]
fn a_job_of_serial_that_fails_gives_the_claimed_ones_back_and_goes_before_them() {
    let mut play = third_of_serial();
    assert_eq!(begun(&mut play, 3), "deal #3 from #4");
    let failed = play.ran(2, &[JobOutcome::Delayed(Timestamp(50))]);
    assert_eq!(failed, "commit #2+1, unclaim #4, unclaim #5");
    for batch in [4, 5, 2] {
        play.committed(batch);
    }
    play.now = Timestamp(49);
    assert_eq!(play.on(Event::Tick), "");
    play.now = Timestamp(50);
    // The next claims are small again.
    assert_eq!(play.on(Event::Tick), "pick #6 3");
}

#[test]
fn claims_of_serial_that_become_durable_after_a_short_pause_follow_those_that_were_given_back() {
    let mut play = third_of_serial();
    let paused = |play: &mut Play, paused| play.on(Event::Pause { step: 0, paused });
    assert_eq!(play.ran(2, &[JobOutcome::Finished]), "commit #2+1");
    assert_eq!(begun(&mut play, 3), "deal #3 from #4, pick #6 6+7");
    assert_eq!(play.picked(6), "begin #6");
    assert_eq!(paused(&mut play, true), "unclaim #4, unclaim #5");
    assert_eq!(paused(&mut play, false), "");
    assert_eq!(play.committed(4), "");
    assert_eq!(play.committed(5), "");
    assert_eq!(play.committed(2), "passed 5");
    // Jobs 4 and 5 wait again, so jobs 6 and 7 do not run.
    assert_eq!(begun(&mut play, 6), "deal #6 from #7, unclaim #7, unclaim #8");
    assert_eq!(play.committed(7), "passed 6");
    assert_eq!(play.committed(8), "passed 7, pick #9 4+5+6+7+8");
}

#[test]
fn a_parked_job_that_joins_the_jobs_of_serial_goes_before_the_claimed_ones() {
    let mut play = third_of_serial();
    assert_eq!(begun(&mut play, 3), "deal #3 from #4");
    let attributes = JobAttributes { index: None, ..JobAttributes::new(JobKey::stored(7), 1) };
    play.dispatcher.saw(0, &attributes, WaitingState::Delayed { until: Timestamp(0) });
    assert_eq!(play.on(Event::Tick), "unclaim #4, unclaim #5");
    assert_eq!(play.ran(2, &[JobOutcome::Finished]), "commit #2+1");
    for batch in [4, 5] {
        play.committed(batch);
    }
    assert_eq!(play.committed(2), "passed 5, pick #6 9223372036854775815+4");
}

#[test]
fn jobs_of_serial_that_may_all_have_been_attempted_keep_their_order_when_one_fails() {
    let rules = QueuePolicy { strategy: StartOrder::Serial, max_processing: None, ..picking().rules };
    let mut play = Play::new(DurabilityBarrier::Snapshot, QueuePlan { rules, ahead: 8, ..picking() });
    for (number, age) in [(1, 1), (2, 2), (3, 3)] {
        let attributes = JobAttributes::new(JobKey::stored(number), age);
        play.dispatcher.saw(0, &attributes, WaitingState::Unknown);
    }
    let of_row = |number: u64| JobKey::stored(number).0;
    assert_eq!(play.start(), format!("pick #0 {}, read 1", of_row(1)));
    play.picked(0);
    begun(&mut play, 0);
    assert_eq!(play.ran(0, &[JobOutcome::Delayed(Timestamp(50))]), "commit #0+1");
    assert_eq!(play.committed(0), "");
    play.now = Timestamp(50);
    assert_eq!(play.on(Event::Tick), format!("pick #1 {}", of_row(1)));
}
