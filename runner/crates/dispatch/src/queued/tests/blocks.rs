//! Job queue over blocks: tests each sentence of its description. A job is a block, and its index is the
//! height.

use super::*;

#[test]
fn however_many_say_that_there_is_more_it_costs_one_look_and_none_is_lost() {
    let mut play = Play::new(DurabilityBarrier::Nothing, picking());
    assert_eq!(play.start(), "read 1");
    let grew = |head| Event::Grew { queue: 0, head };
    // While a read is open, later heads change nothing.
    for head in 10..20 {
        assert_eq!(play.on(grew(head)), "");
    }
    // The answer leads to one more read, up to the last head.
    assert_eq!(play.read(1, 9), "forget 1, pick #0 1, pick #1 2, read 10");
    assert_eq!(play.on(grew(20)), "");
    assert_eq!(play.read(10, 11), "forget 10");
    // An old or repeated head changes nothing.
    assert_eq!(play.on(grew(20)), "");
    assert_eq!(play.on(grew(12)), "");
    assert_eq!(play.on(grew(21)), "read 21");
}

#[test]
fn a_job_that_is_reported_again_late_or_unasked_changes_nothing() {
    let mut play = Play::new(DurabilityBarrier::Nothing, picking());
    play.start();
    play.read(1, 9);
    play.picked(0);
    play.picked(1);
    // This batch was never started.
    assert_eq!(play.ran(7, &[JobOutcome::Finished]), "");
    assert_eq!(play.committed(7), "");
    assert_eq!(play.ran(1, &[JobOutcome::Finished]), "commit #1+1");
    // A repeated report, and one with another outcome, change nothing.
    assert_eq!(play.ran(1, &[JobOutcome::Finished]), "");
    assert_eq!(play.ran(1, &[JobOutcome::Delayed(Timestamp(50))]), "");
    assert_eq!(play.committed(1), "pick #2 3");
    assert_eq!(play.ran(1, &[JobOutcome::Finished]), "");
    assert_eq!(play.committed(1), "");
    // The watermark has not moved.
    assert_eq!(play.done(0), "passed 2, pick #3 4");
}

#[test]
fn a_job_that_waits_for_its_next_attempt_or_is_pending_holds_the_watermark_and_search_ahead() {
    let mut play = Play::new(DurabilityBarrier::Nothing, QueuePlan { search_ahead: 3, ..picking() });
    let watermark = |play: &Play| play.dispatcher.job_counts(0, 0, play.now).unwrap().watermark;
    play.start();
    assert_eq!(play.read(1, 6), "forget 1, pick #0 1, pick #1 2");
    play.picked(0);
    play.picked(1);
    assert_eq!(play.done(1), "pick #2 3");
    // The store accounts for the delayed job, and will not read it again.
    play.ran(0, &[JobOutcome::Delayed(Timestamp(100))]);
    assert_eq!(play.committed(0), "passed 2");
    assert_eq!(watermark(&play), Some(0));
    play.picked(2);
    assert_eq!(play.done(2), "passed 3");
    // Job 4 is more than three jobs past the watermark.
    play.now = Timestamp(100);
    assert_eq!(play.on(Event::Tick), "pick #3 1");
    play.picked(3);
    play.ran(3, &[JobOutcome::Pending]);
    assert_eq!(play.committed(3), "");
    assert_eq!(watermark(&play), Some(0));
    assert_eq!(play.settle(&[1]), "pick #4 1");
    play.picked(4);
    assert_eq!(play.done(4), "pick #5 4, pick #6 5");
    assert_eq!(watermark(&play), Some(3));
    // A job of an earlier run holds it, too.
    let before = JobAttributes { index: Some(2), ..JobAttributes::new(JobKey::stored(9), 2) };
    play.dispatcher.saw(0, &before, WaitingState::Pending);
    assert_eq!(watermark(&play), Some(1));
    play.dispatcher.cancel(0, JobKey::stored(9), play.now);
    assert_eq!(watermark(&play), Some(3));
}

#[test]
fn without_a_bound_jobs_start_however_far_past_the_watermark() {
    let rules = QueuePolicy { max_processing: None, ..picking().rules };
    let mut play = Play::new(DurabilityBarrier::Nothing, QueuePlan { search_ahead: 0, rules, ..picking() });
    play.start();
    let picked: Vec<String> = (0..9).map(|batch| format!("pick #{batch} {}", batch + 1)).collect();
    assert_eq!(play.read(1, 9), format!("forget 1, {}", picked.join(", ")));
}

#[test]
fn a_job_that_failed_for_good_and_halts_is_not_passed_by_the_watermark() {
    let mut play = Play::new(DurabilityBarrier::Nothing, picking());
    play.start();
    play.read(1, 9);
    play.picked(0);
    play.picked(1);
    assert_eq!(play.done(1), "pick #2 3");
    assert_eq!(play.halts(0), "commit #0+0, drop #2");
    assert_eq!(play.committed(0), "Halted");
}

#[test]
fn a_stop_waits_for_what_runs_and_what_finishes_meanwhile_counts() {
    let mut play = Play::new(DurabilityBarrier::Nothing, picking());
    play.start();
    play.read(1, 9);
    play.picked(0);
    play.picked(1);
    assert_eq!(play.on(Event::Stop), "");
    assert_eq!(play.ran(1, &[JobOutcome::Finished]), "commit #1+1");
    // Nothing starts in its place, and nothing more is read.
    assert_eq!(play.committed(1), "");
    assert_eq!(play.on(Event::Grew { queue: 0, head: 20 }), "");
    assert_eq!(play.ran(0, &[JobOutcome::Finished]), "commit #0+1");
    assert_eq!(play.committed(0), "passed 2, Stopped");
}
