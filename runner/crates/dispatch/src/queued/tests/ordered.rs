//! Ordered deliveries: jobs run side by side, and their results are delivered in the order of the input.

use super::*;
use crate::protocol::RunOutcome;

/// Jobs that act outside, at most four at once, one a batch.
fn outside() -> QueuePlan {
    let rules = QueuePolicy { max_processing: std::num::NonZeroU32::new(4), ..picking().rules };
    QueuePlan { rules, ordered: true, in_order: true, ..picking() }
}

/// Pure jobs in batches.
fn pure() -> QueuePlan {
    QueuePlan { batch: 256, uses_pool: false, ..outside() }
}

/// Starts a step whose first four jobs run.
fn running(before: DurabilityBarrier, picking: QueuePlan) -> Play {
    let mut play = Play::new(before, picking);
    assert_eq!(play.start(), "read 1");
    assert_eq!(play.read(1, 5), "forget 1, pick #0 1, pick #1 2, pick #2 3, pick #3 4, read 6");
    for batch in 0..4 {
        play.picked(batch);
        if before != DurabilityBarrier::Nothing {
            play.on(Event::Begun { step: 0, batch: BatchId(batch) });
        }
    }
    play
}

#[test]
fn a_result_waits_in_memory_for_the_jobs_before_it_if_the_attempt_can_be_repeated() {
    let mut play = running(DurabilityBarrier::Nothing, outside());
    // A finished job makes room for another one.
    assert_eq!(play.ran(2, &[JobOutcome::Finished]), "pick #4 5");
    assert_eq!(play.dispatcher.state(0, JobKey::fresh(3)), Some(WaitingState::Finished));
    assert_eq!(play.ran(1, &[JobOutcome::Finished]), "");
    assert_eq!(play.ran(0, &[JobOutcome::Finished]), "commit #0+1, commit #1+1, commit #2+1");
    assert_eq!(play.committed(0), "passed 1");
    assert_eq!(play.committed(1), "passed 2");
    assert_eq!(play.committed(2), "passed 3");
    assert_eq!(play.ran(3, &[JobOutcome::Finished]), "commit #3+1");
}

#[test]
fn a_result_waits_in_the_store_if_the_attempt_must_not_be_repeated() {
    let mut play = running(DurabilityBarrier::Snapshot, outside());
    assert_eq!(play.ran(1, &[JobOutcome::Finished]), "keep #1, pick #4 5");
    assert_eq!(play.ran(2, &[JobOutcome::Finished]), "keep #2");
    assert_eq!(play.committed(2), "");
    assert_eq!(play.committed(1), "");
    assert_eq!(play.dispatcher.state(0, JobKey::fresh(2)), Some(WaitingState::Finished));
    // Its turn has come: it needs no row in the store.
    assert_eq!(play.ran(0, &[JobOutcome::Finished]), "commit #0+1, pick #5 2+3");
    // The stored results are delivered before the job behind them.
    assert_eq!(play.ran(3, &[JobOutcome::Finished]), "keep #3");
    assert_eq!(play.picked(5), "run #5");
    assert_eq!(play.ran(5, &[JobOutcome::Finished, JobOutcome::Finished]), "commit #5+2");
    assert_eq!(play.committed(3), "pick #6 4");
    // The store accounts for the jobs with stored results.
    assert_eq!(play.committed(0), "passed 4");
    assert_eq!(play.committed(5), "");
    let watermark = play.dispatcher.job_counts(0, 0, play.now).unwrap().watermark;
    assert_eq!(watermark, Some(3));
}

#[test]
fn a_job_that_is_delayed_or_pending_holds_the_results_behind_it() {
    let mut play = running(DurabilityBarrier::Nothing, outside());
    assert_eq!(play.ran(0, &[JobOutcome::Pending]), "commit #0+1");
    assert_eq!(play.ran(1, &[JobOutcome::Delayed(Timestamp(100))]), "commit #1+1");
    assert_eq!(play.ran(2, &[JobOutcome::Finished]), "pick #4 5");
    assert_eq!(play.committed(0), "passed 1");
    assert_eq!(play.committed(1), "passed 2");
    assert_eq!(play.settle(&[1]), "pick #5 1");
    play.picked(5);
    assert_eq!(play.ran(5, &[JobOutcome::Finished]), "commit #5+1");
    assert_eq!(play.committed(5), "");
    play.now = Timestamp(100);
    assert_eq!(play.on(Event::Tick), "pick #6 2");
    play.picked(6);
    assert_eq!(play.ran(6, &[JobOutcome::Finished]), "commit #6+1, commit #2+1");
}

#[test]
fn a_completed_job_waits_for_its_turn_unless_it_is_submitted_again() {
    let mut play = running(DurabilityBarrier::Nothing, outside());
    assert_eq!(play.ran(1, &[JobOutcome::Pending]), "commit #1+1");
    assert_eq!(play.ran(2, &[JobOutcome::Pending]), "commit #2+1");
    assert_eq!(play.committed(1), "pick #4 5");
    assert_eq!(play.committed(2), "");
    assert_eq!(play.settle(&[3]), "");
    assert_eq!(play.dispatcher.state(0, JobKey::fresh(3)), Some(WaitingState::Finished));
    let mut commands = Vec::new();
    let again = SettledJob { key: JobKey::fresh(2), resubmits: true };
    play.dispatcher.settle(0, &[again], play.now, &mut commands);
    assert_eq!(words(commands), "pick #5 2");
    play.picked(5);
    assert_eq!(play.ran(5, &[JobOutcome::Forgotten]), "commit #5+1");
    assert_eq!(play.committed(5), "pick #6 2");
    play.picked(6);
    assert_eq!(play.ran(6, &[JobOutcome::Finished]), "");
    assert_eq!(play.ran(0, &[JobOutcome::Finished]), "commit #0+1, commit #6+1, pick #7 3");
}

#[test]
fn a_delayed_job_is_split_off_the_quick_jobs_that_it_shares_a_batch_with() {
    let rules = QueuePolicy { max_processing: None, ..picking().rules };
    let mut play = Play::new(DurabilityBarrier::Nothing, QueuePlan { rules, ..pure() });
    play.start();
    play.read(1, 6);
    play.picked(0);
    assert_eq!(play.ran(0, &[JobOutcome::Finished]), "commit #0+1, pick #1 2+3+4+5+6");
    play.committed(0);
    assert_eq!(play.picked(1), "run #1");
    let ending = BatchCut::Waits(Timestamp(100));
    let ran = BatchEnd { ending, ..BatchEnd::picked(&[JobOutcome::Finished, JobOutcome::Finished]) };
    let ran = play.on(Event::Ran { step: 0, batch: BatchId(1), ran });
    assert_eq!(ran, "split #1 2 #2, commit #2+1, commit #1+2, pick #3 5+6");
    assert_eq!(play.committed(2), "");
    assert_eq!(play.committed(1), "passed 4");
    play.picked(3);
    assert_eq!(play.ran(3, &[JobOutcome::Finished, JobOutcome::Finished]), "");
    play.now = Timestamp(100);
    assert_eq!(play.on(Event::Tick), "pick #4 4");
    play.picked(4);
    assert_eq!(play.ran(4, &[JobOutcome::Finished]), "commit #4+1, commit #3+2");
}

#[test]
fn results_that_fill_the_memory_let_only_the_job_start_that_they_wait_for() {
    let rules = QueuePolicy { max_processing: None, ..picking().rules };
    let mut play = Play::new(DurabilityBarrier::Nothing, QueuePlan { rules, ..outside() });
    play.start();
    play.read(1, 2);
    play.picked(0);
    play.picked(1);
    play.ran(0, &[JobOutcome::Delayed(Timestamp(5000))]);
    play.committed(0);
    // The result has 100 bytes, as many as the step may hold.
    let ran = BatchEnd { bytes: 100, ..BatchEnd::picked(&[JobOutcome::Finished]) };
    assert_eq!(play.on(Event::Ran { step: 0, batch: BatchId(1), ran }), "");
    assert_eq!(play.read(3, 2), "forget 3, read 5");
    // Jobs 3 and 4 could start at once, but for the line.
    assert_eq!(play.dispatcher.wakes(), Some(Timestamp(5000)));
    play.now = Timestamp(5000);
    assert_eq!(play.on(Event::Tick), "pick #2 1");
    play.picked(2);
    assert_eq!(play.ran(2, &[JobOutcome::Finished]), "commit #2+1, commit #1+1");
    play.committed(2);
    assert_eq!(play.committed(1), "passed 2, pick #3 3, pick #4 4");
}

#[test]
fn a_retried_job_joins_the_round_whose_jobs_wait_for_its_delivery() {
    let strategy = StartOrder::Rounds { pause: Duration::from_millis(100) };
    let rules = QueuePolicy { strategy, ..picking().rules };
    let plan = QueuePlan { rules, ..outside() };
    let mut play = Play::with_head(3, InputKind::Queue(0), DurabilityBarrier::Nothing, plan);
    play.start();
    assert_eq!(play.read(1, 3), "forget 1, pick #0 1, pick #1 2");
    play.picked(0);
    play.picked(1);
    play.ran(0, &[JobOutcome::Delayed(Timestamp(50))]);
    let ran = BatchEnd { bytes: 100, ..BatchEnd::picked(&[JobOutcome::Finished]) };
    assert_eq!(play.on(Event::Ran { step: 0, batch: BatchId(1), ran }), "");
    assert_eq!(play.committed(0), "passed 1");
    // Job 3 is of this round, but the result of job 2 fills the memory.
    play.now = Timestamp(50);
    assert_eq!(play.on(Event::Tick), "pick #2 1");
    play.picked(2);
    assert_eq!(play.ran(2, &[JobOutcome::Finished]), "commit #2+1, commit #1+1");
    play.committed(2);
    assert_eq!(play.committed(1), "passed 2, pick #3 3");
}

#[test]
fn a_stop_delivers_what_is_next_and_drops_what_waits_behind_an_unfinished_job() {
    let mut play = running(DurabilityBarrier::Nothing, outside());
    play.ran(2, &[JobOutcome::Finished]);
    play.ran(1, &[JobOutcome::Delayed(Timestamp(100))]);
    play.committed(1);
    assert_eq!(play.on(Event::Stop), "drop #4");
    assert_eq!(play.ran(3, &[JobOutcome::Finished]), "");
    assert_eq!(play.ran(0, &[JobOutcome::Finished]), "commit #0+1");
    assert_eq!(play.committed(0), "passed 2, drop #2, drop #3, Stopped");
}

#[test]
fn a_halting_job_lets_the_results_before_it_through_and_none_behind_it() {
    let mut play = running(DurabilityBarrier::Snapshot, outside());
    assert_eq!(play.ran(2, &[JobOutcome::Finished]), "keep #2, pick #4 5");
    play.committed(2);
    assert_eq!(play.halts(1), "commit #1+0, drop #4");
    play.committed(1);
    // The result behind it stays in the store for the next run.
    assert_eq!(play.ran(3, &[JobOutcome::Finished]), "keep #3");
    play.committed(3);
    assert_eq!(play.ran(0, &[JobOutcome::Finished]), "commit #0+1");
    assert_eq!(play.committed(0), format!("passed 1, {:?}", RunOutcome::Halted));
}

#[test]
fn stored_results_of_an_earlier_run_are_delivered_in_their_turn() {
    for ordered in [true, false] {
        let mut progress = Progress::default();
        progress.finish(2, 3);
        let plan = QueuePlan { ordered, progress, ..outside() };
        let mut play = Play::with_head(3, InputKind::Queue(0), DurabilityBarrier::Snapshot, plan);
        for index in [2, 3] {
            let kept = JobAttributes::new(JobKey::stored(index), i64::try_from(index).unwrap());
            let kept = JobAttributes { index: Some(index), ..kept };
            play.dispatcher.saw(0, &kept, WaitingState::Finished);
        }
        let kept = JobKey::stored(2).0.to_string() + "+" + &JobKey::stored(3).0.to_string();
        // A step without the order delivers them at once.
        let start = if ordered { "read 1".to_owned() } else { format!("pick #0 {kept}, read 1") };
        assert_eq!(play.start(), start);
        if ordered {
            assert_eq!(play.read(1, 1), "forget 1, pick #0 1, read 2");
            play.picked(0);
            play.on(Event::Begun { step: 0, batch: BatchId(0) });
            assert_eq!(play.ran(0, &[JobOutcome::Finished]), format!("commit #0+1, pick #1 {kept}"));
        }
    }
}

#[test]
fn jobs_without_a_place_in_the_order_are_delivered_at_once() {
    let mut play = running(DurabilityBarrier::Nothing, outside());
    // A job that was retried from an error queue.
    let again = JobAttributes { index: None, ..JobAttributes::new(JobKey::stored(7), 0) };
    play.dispatcher.saw(0, &again, WaitingState::Waiting);
    let key = JobKey::stored(7).0;
    assert_eq!(play.ran(3, &[JobOutcome::Finished]), format!("pick #4 {key}"));
    play.picked(4);
    assert_eq!(play.ran(4, &[JobOutcome::Finished]), "commit #4+1");
    assert_eq!(play.committed(4), "pick #5 5");
}

#[test]
fn a_job_without_a_place_starts_if_the_first_one_waits_for_it_and_the_memory_is_full() {
    let rules = QueuePolicy {
        strategy: StartOrder::OneRoundSerial,
        max_processing: None,
        has_lanes: true,
        ..picking().rules
    };
    let plan = QueuePlan { rules, ..outside() };
    let mut play = Play::with_head(2, InputKind::Queue(0), DurabilityBarrier::Nothing, plan);
    play.start();
    let mut saw = |key: JobKey, lane: &[u8], state| {
        let index = key.is_fresh().then_some(key.0);
        play.dispatcher.saw(0, &JobAttributes { index, lane, ..JobAttributes::new(key, 0) }, state);
    };
    // A job that was retried from an error queue, and has failed again.
    let again = JobKey::stored(7);
    saw(again, b"a", WaitingState::Delayed { until: Timestamp(5000) });
    saw(JobKey::fresh(1), b"a", WaitingState::Waiting);
    saw(JobKey::fresh(2), b"b", WaitingState::Waiting);
    let (port, read) = (InputPort::of_input(0, 0), ReadId(1));
    let picked = play.on(Event::Read { port, read, first: 1, jobs: 2, bytes: 60 });
    assert_eq!(picked, "forget 1, pick #0 2");
    play.picked(0);
    let ran = BatchEnd { bytes: 100, ..BatchEnd::picked(&[JobOutcome::Finished]) };
    assert_eq!(play.on(Event::Ran { step: 0, batch: BatchId(0), ran }), "");
    assert_eq!(play.dispatcher.wakes(), Some(Timestamp(5000)));
    play.now = Timestamp(5000);
    assert_eq!(play.on(Event::Tick), format!("pick #1 {}", again.0));
    play.picked(1);
    assert_eq!(play.ran(1, &[JobOutcome::Finished]), "commit #1+1");
    assert_eq!(play.committed(1), "pick #2 1");
    play.picked(2);
    assert_eq!(play.ran(2, &[JobOutcome::Finished]), "commit #2+1, commit #0+1");
}

#[test]
fn stored_results_that_a_batch_leaves_over_keep_their_turn() {
    let mut play = running(DurabilityBarrier::Snapshot, outside());
    for batch in [1, 2, 3] {
        play.ran(batch, &[JobOutcome::Finished]);
        play.committed(batch);
    }
    assert_eq!(play.ran(0, &[JobOutcome::Finished]), "commit #0+1, pick #5 2+3+4");
    play.committed(0);
    play.picked(5);
    let ran = BatchEnd { ending: BatchCut::Cut, ..BatchEnd::picked(&[JobOutcome::Finished]) };
    let ran = play.on(Event::Ran { step: 0, batch: BatchId(5), ran });
    assert_eq!(ran, "commit #5+1, pick #6 3+4");
}
