//! Ordered submission to a ledger: tests each sentence of its description. Lanes are services, jobs are
//! batches.

use super::*;

/// Creates a step under `one-round-serial` with one job a batch and a snapshot before each submission.
fn submitter() -> Play {
    let rules = QueuePolicy { strategy: StartOrder::OneRoundSerial, max_processing: None, ..picking().rules };
    Play::started(DurabilityBarrier::Snapshot, QueuePlan { rules, ..picking() })
}

/// Adds jobs with their services.
fn arrive(play: &mut Play, jobs: &[(u64, &str)]) -> String {
    for &(index, lane) in jobs {
        see(play, JobKey::fresh(index), index, lane, WaitingState::Waiting);
    }
    let (port, read) = (InputPort::of_input(0, 0), ReadId(jobs[0].0));
    play.on(Event::Read { port, read, first: jobs[0].0, jobs: jobs.len(), bytes: 0 })
}

fn see(play: &mut Play, key: JobKey, index: u64, lane: &str, state: WaitingState) {
    let attributes =
        JobAttributes { lane: lane.as_bytes(), ..JobAttributes::new(key, i64::try_from(index).unwrap()) };
    play.dispatcher.saw(0, &attributes, state);
}

/// Submits the batch with this outcome, and returns the commands that follow.
fn submit(play: &mut Play, batch: u64, end: JobOutcome) -> String {
    assert_eq!(play.picked(batch), format!("begin #{batch}"));
    assert_eq!(play.on(Event::Begun { step: 0, batch: BatchId(batch) }), format!("run #{batch}"));
    play.ran(batch, &[end]);
    play.committed(batch)
}

/// Completes a pending job with this outcome, and returns the commands that follow.
fn settle(play: &mut Play, job: u64, batch: u64, end: JobOutcome) -> String {
    assert_eq!(play.settle(&[job]), format!("pick #{batch} {job}"));
    assert_eq!(play.picked(batch), format!("run #{batch}"));
    play.ran(batch, &[end]);
    play.committed(batch)
}

#[test]
fn a_batch_in_the_submitters_hands_is_never_queued_again_meanwhile() {
    let mut play = submitter();
    assert_eq!(arrive(&mut play, &[(1, "a"), (2, "a")]), "forget 1, pick #0 1, read 3");
    for time in [0, 60_000, 86_400_000] {
        play.now = Timestamp(time);
        assert_eq!(play.on(Event::Tick), "");
    }
    assert_eq!(play.picked(0), "begin #0");
    assert_eq!(play.on(Event::Tick), "");
    assert_eq!(play.on(Event::Begun { step: 0, batch: BatchId(0) }), "run #0");
    assert_eq!(play.on(Event::Tick), "");
    assert_eq!(play.ran(0, &[JobOutcome::Pending]), "commit #0+1");
    // No other job of its service starts either, until the ledger has answered.
    assert_eq!(play.committed(0), "passed 1");
    assert_eq!(play.on(Event::Tick), "");
}

#[test]
fn a_round_has_one_batch_of_each_service() {
    let mut play = submitter();
    let jobs = [(1, "a"), (2, "a"), (3, "a"), (4, "b"), (5, "c")];
    assert_eq!(arrive(&mut play, &jobs), "forget 1, pick #0 1, pick #1 4, pick #2 5, read 6");
    // The next job of the busy service waits for its turn, even if the first one finishes early.
    assert_eq!(submit(&mut play, 0, JobOutcome::Finished), "passed 1, pick #3 2");
}

#[test]
fn what_is_committed_or_invalid_is_never_submitted_again() {
    let mut play = submitter();
    assert_eq!(arrive(&mut play, &[(1, "a"), (2, "a")]), "forget 1, pick #0 1, read 3");
    assert_eq!(submit(&mut play, 0, JobOutcome::Pending), "passed 1");
    assert_eq!(settle(&mut play, 1, 1, JobOutcome::Finished), "pick #2 2");
    play.now = Timestamp(86_400_000);
    assert_eq!(play.on(Event::Tick), "");
    assert_eq!(play.dispatcher.state(0, JobKey::fresh(1)), None);
}

#[test]
fn what_the_ledger_does_not_know_is_submitted_again_before_anything_else_of_its_service() {
    let mut play = submitter();
    assert_eq!(arrive(&mut play, &[(1, "a"), (2, "a"), (3, "b")]), "forget 1, pick #0 1, pick #1 3, read 4");
    assert_eq!(submit(&mut play, 0, JobOutcome::Pending), "passed 1");
    assert_eq!(settle(&mut play, 1, 2, JobOutcome::Forgotten), "pick #3 1");
    // It is finished, and the next one starts.
    assert_eq!(submit(&mut play, 3, JobOutcome::Finished), "pick #4 2");
}

#[test]
fn answering_that_it_is_unknown_clears_that_it_was_submitted() {
    let mut play = submitter();
    assert_eq!(arrive(&mut play, &[(1, "a")]), "forget 1, pick #0 1, read 2");
    assert_eq!(submit(&mut play, 0, JobOutcome::Pending), "passed 1");
    assert_eq!(play.dispatcher.state(0, JobKey::fresh(1)), Some(WaitingState::Pending));
    assert_eq!(settle(&mut play, 1, 1, JobOutcome::Forgotten), "pick #2 1");
    assert_eq!(submit(&mut play, 2, JobOutcome::Pending), "");
    // A repeated answer submits it again.
    assert_eq!(settle(&mut play, 1, 3, JobOutcome::Forgotten), "pick #4 1");
}

#[test]
fn a_pending_batch_that_somebody_takes_out_holds_its_service_no_longer() {
    let mut play = submitter();
    assert_eq!(arrive(&mut play, &[(1, "a"), (2, "a"), (3, "b")]), "forget 1, pick #0 1, pick #1 3, read 4");
    assert_eq!(submit(&mut play, 0, JobOutcome::Pending), "passed 1");
    assert_eq!(submit(&mut play, 1, JobOutcome::Pending), "");
    play.now = Timestamp(86_400_000);
    assert_eq!(play.on(Event::Tick), "");
    play.dispatcher.cancel(0, JobKey::fresh(1), play.now);
    assert_eq!(play.dispatcher.state(0, JobKey::fresh(1)), None);
    assert_eq!(play.on(Event::Tick), "pick #2 2");
    // The job was accounted for when it became pending, and nothing withholds it.
    assert!(!play.dispatcher.withholds(0, 1));
    assert_eq!(submit(&mut play, 2, JobOutcome::Finished), "passed 3");
    // A running job cannot be cancelled.
    assert_eq!(arrive(&mut play, &[(4, "a")]), "forget 4, pick #3 4, read 5");
    play.dispatcher.cancel(0, JobKey::fresh(4), play.now);
    assert_eq!(play.dispatcher.state(0, JobKey::fresh(4)), Some(WaitingState::Running));
}

#[test]
fn a_failed_batch_holds_its_service_until_the_delay_window_is_over() {
    let mut play = submitter();
    assert_eq!(arrive(&mut play, &[(1, "a"), (2, "a"), (3, "b")]), "forget 1, pick #0 1, pick #1 3, read 4");
    assert_eq!(submit(&mut play, 0, JobOutcome::Delayed(Timestamp(15_000))), "passed 1");
    play.now = Timestamp(14_999);
    assert_eq!(play.on(Event::Tick), "");
    play.now = Timestamp(15_000);
    assert_eq!(play.on(Event::Tick), "pick #2 1");
    assert_eq!(submit(&mut play, 2, JobOutcome::Finished), "pick #3 2");
}

#[test]
fn stopping_lets_running_submissions_finish_and_starts_no_new_ones() {
    let mut play = submitter();
    let jobs = [(1, "a"), (2, "a"), (3, "b"), (4, "c")];
    assert_eq!(arrive(&mut play, &jobs), "forget 1, pick #0 1, pick #1 3, pick #2 4, read 5");
    for batch in [0, 1] {
        play.picked(batch);
        play.on(Event::Begun { step: 0, batch: BatchId(batch) });
    }
    // The third is not begun yet and stays for the next run.
    assert_eq!(play.on(Event::Stop), "drop #2");
    assert_eq!(play.ran(0, &[JobOutcome::Finished]), "commit #0+1");
    assert_eq!(play.committed(0), "passed 1");
    assert_eq!(play.ran(1, &[JobOutcome::Pending]), "commit #1+1");
    assert_eq!(play.committed(1), "Stopped");
}

#[test]
fn a_restart_finds_every_batch_as_it_stood() {
    let mut play = submitter();
    let stored = |number| JobKey::stored(number);
    // One attempt was begun, the ledger has the second job, and the third waits for its delay window.
    see(&mut play, stored(7), 1, "a", WaitingState::Unknown);
    see(&mut play, stored(8), 2, "b", WaitingState::Pending);
    see(&mut play, stored(9), 3, "c", WaitingState::Delayed { until: Timestamp(15_000) });
    let first = format!("forget 4, pick #0 {}, pick #1 7, read 8", stored(7).0);
    assert_eq!(arrive(&mut play, &[(4, "a"), (5, "b"), (6, "c"), (7, "d")]), first);
    play.now = Timestamp(15_000);
    assert_eq!(play.on(Event::Tick), format!("pick #2 {}", stored(9).0));
    // The jobs run in the order of each service, and none is left.
    assert_eq!(submit(&mut play, 0, JobOutcome::Finished), "pick #3 4");
    assert_eq!(submit(&mut play, 2, JobOutcome::Finished), "pick #4 6");
    let mut commands = Vec::new();
    play.dispatcher.settle(0, &[SettledJob { key: stored(8), resubmits: false }], play.now, &mut commands);
    assert_eq!(words(commands), format!("pick #5 {}", stored(8).0));
    play.picked(5);
    play.ran(5, &[JobOutcome::Finished]);
    assert_eq!(play.committed(5), "pick #6 5");
}

#[test]
fn services_that_are_held_at_once_start_no_batch_that_is_due_then() {
    let mut play = submitter();
    for (row, lane) in [(7, "a"), (8, "b")] {
        see(&mut play, JobKey::stored(row), row, lane, WaitingState::Delayed { until: Timestamp(10) });
    }
    assert_eq!(play.on(Event::Tick), "");
    play.now = Timestamp(20);
    for lane in ["a", "b"] {
        play.dispatcher.hold_lane(0, lane, Some(Hold::Halted));
    }
    assert_eq!(play.on(Event::Tick), "");
    play.dispatcher.hold_lane(0, "b", None);
    assert_eq!(play.on(Event::Tick), format!("pick #0 {}", JobKey::stored(8).0));
}
