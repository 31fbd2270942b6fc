//! Queued step tests: play histories of events and compare the commands.

pub(crate) mod blocks;
pub(crate) mod claims;
pub(crate) mod consumer;
pub(crate) mod ordered;
pub(crate) mod play;
pub(crate) mod submission;
pub(crate) mod withdrawals;

use std::time::Duration;

use super::*;
use crate::counts::{InputCounts, QueuedCounts};
use crate::dispatcher::{
    BatchComposition, BatchCut, BatchEnd, Bounds, Dispatcher, Event, InputPlan, InputPort, JobOutcome,
    ReadId, Wait,
};
use crate::waiting_room::{QueuePolicy, StartOrder, StartRate};
use play::{Play, picking, words};

#[test]
fn jobs_run_beside_each_other_and_the_watermark_passes_what_is_contiguous() {
    let mut play = Play::new(DurabilityBarrier::Nothing, picking());
    assert_eq!(play.start(), "read 1");
    assert_eq!(play.read(1, 9), "forget 1, pick #0 1, pick #1 2");
    assert_eq!(play.picked(0), "run #0");
    assert_eq!(play.picked(1), "run #1");
    // The second job finishes first: the third starts, and the watermark waits.
    assert_eq!(play.done(1), "pick #2 3");
    assert_eq!(play.picked(2), "run #2");
    assert_eq!(play.done(0), "passed 2, pick #3 4");
}

/// Jobs of a pure step, at most three at once, with two workers.
fn pure() -> QueuePlan {
    let rules = QueuePolicy { max_processing: std::num::NonZeroU32::new(3), ..picking().rules };
    QueuePlan { rules, batch: 256, uses_pool: false, ..picking() }
}

#[test]
fn slow_jobs_run_beside_each_other_though_all_workers_are_busy() {
    let mut play = Play::new(DurabilityBarrier::Nothing, pure());
    play.start();
    // Before a measurement one job runs, by itself.
    assert_eq!(play.read(1, 9), "forget 1, pick #0 1");
    assert_eq!(play.picked(0), "run #0 aside");
    play.now = play.dispatcher.wakes().unwrap();
    assert_eq!(play.now, Timestamp(400));
    assert_eq!(play.on(Event::Tick), "pick #1 2, pick #2 3");
    assert_eq!(play.dispatcher.wakes(), None);
    assert_eq!(play.picked(1), "run #1 aside");
    assert_eq!(play.picked(2), "run #2 aside");
    // Each is delivered when it has run.
    let slow = |play: &mut Play, batch| {
        let took = Duration::from_secs(1);
        let ran = BatchEnd { took, ..BatchEnd::picked(&[JobOutcome::Finished]) };
        play.on(Event::Ran { step: 0, batch: BatchId(batch), ran })
    };
    assert_eq!(slow(&mut play, 2), "commit #2+1");
    assert_eq!(play.committed(2), "pick #3 4");
    assert_eq!(play.picked(3), "run #3 aside");
    assert_eq!(slow(&mut play, 0), "commit #0+1");
    assert_eq!(play.committed(0), "passed 1, pick #4 5");
    assert_eq!(play.picked(4), "run #4 aside");
}

#[test]
fn a_batch_that_leaves_its_worker_makes_room_for_another_once() {
    let mut play = Play::new(DurabilityBarrier::Nothing, QueuePlan { batch: 1, ..pure() });
    play.start();
    play.read(1, 9);
    assert_eq!(play.picked(0), "run #0 aside");
    assert_eq!(play.ran(0, &[JobOutcome::Finished]), "commit #0+1, pick #1 2, pick #2 3");
    assert_eq!(play.committed(0), "passed 1, pick #3 4");
    // The jobs are quick, and run on workers.
    assert_eq!(play.picked(1), "run #1");
    assert_eq!(play.picked(2), "run #2");
    assert_eq!(play.picked(3), "");
    let aside = |batch| Event::WentAside { step: 0, batch: BatchId(batch) };
    assert_eq!(play.on(aside(1)), "run #3");
    // A repeated report, and one about a batch that does not run, have no effect.
    assert_eq!(play.on(aside(1)), "");
    assert_eq!(play.on(aside(7)), "");
    assert_eq!(play.done(1), "passed 2, pick #4 5");
    assert_eq!(play.picked(4), "");
    assert_eq!(play.ran(2, &[JobOutcome::Finished]), "commit #2+1, run #4");
}

#[test]
fn jobs_behind_quick_ones_that_suddenly_take_long_start_beside_them() {
    let rules = QueuePolicy { max_processing: None, ..picking().rules };
    let mut play = Play::new(DurabilityBarrier::Nothing, QueuePlan { rules, batch: 1, ..pure() });
    play.start();
    play.read(1, 20);
    play.picked(0);
    assert_eq!(play.ran(0, &[JobOutcome::Finished]), "commit #0+1, pick #1 2, pick #2 3, pick #3 4");
    assert_eq!(play.committed(0), "passed 1, pick #4 5");
    assert_eq!(play.picked(1), "run #1");
    assert_eq!(play.picked(2), "run #2");
    assert_eq!(play.picked(3), "");
    assert_eq!(play.picked(4), "");
    // All batches are taken, so no time starts another one before these jobs count as slow.
    play.now = play.dispatcher.wakes().unwrap();
    assert_eq!(play.now, Timestamp(400));
    assert!(play.on(Event::Tick).starts_with("pick #5 6, "));
}

#[test]
fn a_stored_job_starts_though_the_backlog_before_it_was_cancelled_while_it_was_read() {
    let rules = QueuePolicy { strategy: StartOrder::OneRoundParallel, ..picking().rules };
    let mut play = Play::new(DurabilityBarrier::Nothing, QueuePlan { rules, ..picking() });
    play.dispatcher.saw(0, &JobAttributes::new(JobKey::stored(1), 1), WaitingState::Waiting);
    assert_eq!(play.start(), "read 1");
    for index in 1..=9 {
        play.dispatcher.account(0, index, play.now, &mut Vec::new());
    }
    let read = play.read(1, 5);
    assert!(read.contains("pick #0 "), "{read}");
}

#[test]
fn quick_jobs_share_a_batch() {
    let rules = QueuePolicy { max_processing: std::num::NonZeroU32::new(8), ..picking().rules };
    let mut play = Play::new(DurabilityBarrier::Nothing, QueuePlan { rules, ..pure() });
    play.start();
    assert_eq!(play.read(1, 9), "forget 1, pick #0 1");
    assert_eq!(play.picked(0), "run #0 aside");
    let took = Duration::from_micros(100);
    let ran = BatchEnd { took, ..BatchEnd::picked(&[JobOutcome::Finished]) };
    let ran = play.on(Event::Ran { step: 0, batch: BatchId(0), ran });
    assert_eq!(ran, "commit #0+1, pick #1 2+3+4+5+6+7+8");
    assert_eq!(play.committed(0), "passed 1, pick #2 9");
}

/// A step whose jobs wait for each other.
fn in_a_row(strategy: StartOrder) -> Play {
    let rules = QueuePolicy { strategy, max_processing: None, ..picking().rules };
    let plan = QueuePlan { rules, in_a_row: true, ..pure() };
    let mut play = Play::new(DurabilityBarrier::Nothing, plan);
    play.start();
    assert_eq!(play.read(1, 20), "forget 1, pick #0 1");
    assert_eq!(play.picked(0), "run #0 aside");
    play
}

#[test]
fn jobs_that_wait_for_each_other_share_a_batch_which_ends_at_one_that_is_not_finished() {
    let mut play = in_a_row(StartOrder::Serial);
    assert_eq!(play.ran(0, &[JobOutcome::Finished]), "commit #0+1");
    let all: Vec<String> = (2..=20).map(|index| index.to_string()).collect();
    assert_eq!(play.committed(0), format!("passed 1, pick #1 {}", all.join("+")));
    assert_eq!(play.picked(1), "run #1");
    // Job 3 waits for its next attempt, and all others wait for it.
    let ends = [JobOutcome::Finished, JobOutcome::Delayed(Timestamp(50))];
    let ran = BatchEnd { ending: BatchCut::Cut, ..BatchEnd::picked(&ends) };
    assert_eq!(play.on(Event::Ran { step: 0, batch: BatchId(1), ran }), "commit #1+2");
    assert_eq!(play.committed(1), "passed 3");
    play.now = Timestamp(50);
    // It goes first, and the next batch is shorter.
    let next: Vec<String> = (3..=18).map(|index| index.to_string()).collect();
    assert_eq!(play.on(Event::Tick), format!("pick #2 {}", next.join("+")));
}

#[test]
fn jobs_that_are_limited_by_a_rate_wait_for_each_other_one_by_one() {
    let rate = Some(StartRate { jobs: std::num::NonZeroU32::new(100).unwrap(), per: Duration::from_secs(1) });
    let rules = QueuePolicy { strategy: StartOrder::Serial, max_processing: None, rate, ..picking().rules };
    let mut play = Play::new(DurabilityBarrier::Nothing, QueuePlan { rules, in_a_row: true, ..pure() });
    play.start();
    play.read(1, 9);
    play.picked(0);
    play.ran(0, &[JobOutcome::Finished]);
    assert_eq!(play.committed(0), "passed 1, pick #1 2");
}

#[test]
fn nothing_starts_further_past_the_watermark_than_search_ahead_says() {
    let mut play = Play::new(DurabilityBarrier::Nothing, QueuePlan { search_ahead: 3, ..picking() });
    assert_eq!(play.start(), "read 1");
    assert_eq!(play.read(1, 3), "forget 1, pick #0 1, pick #1 2");
    play.picked(1);
    assert_eq!(play.done(1), "pick #2 3");
    play.picked(0);
    assert_eq!(play.done(0), "passed 2, read 4");
}

#[test]
fn what_was_read_past_search_ahead_waits_until_the_watermark_has_come_closer() {
    let mut play = Play::new(DurabilityBarrier::Nothing, QueuePlan { search_ahead: 1, ..picking() });
    assert_eq!(play.start(), "read 1");
    assert_eq!(play.read(1, 4), "forget 1, pick #0 1");
    let look = play.dispatcher.look(0).unwrap();
    assert_eq!((look.ahead, look.read), (Some(1), 1));
    assert_eq!(play.dispatcher.state(0, JobKey::fresh(3)), Some(WaitingState::Waiting));
    play.dispatcher.cancel(0, JobKey::fresh(3), play.now);
    play.picked(0);
    assert_eq!(play.done(0), "passed 1, pick #1 2");
    play.picked(1);
    assert_eq!(play.done(1), "passed 2");
    // The third is cancelled.
    let mut commands = Vec::new();
    play.dispatcher.account(0, 3, play.now, &mut commands);
    assert_eq!(words(commands), "passed 3, pick #2 4");
    play.picked(2);
    assert_eq!(play.done(2), "passed 4, read 5");
}

#[test]
fn rounds_begin_when_all_that_waited_before_is_read() {
    let rules = QueuePolicy { strategy: StartOrder::OneRoundSerial, ..picking().rules };
    let mut play = Play::new(DurabilityBarrier::Nothing, QueuePlan { rules: rules.clone(), ..picking() });
    assert_eq!(play.start(), "read 1");
    assert_eq!(play.read(1, 4), "forget 1, read 5");
    play.on(Event::Grew { queue: 0, head: 12 });
    assert_eq!(play.read(5, 5), "forget 5, pick #0 1, read 10");
    // Search-ahead blocks further reads.
    let mut play = Play::new(
        DurabilityBarrier::Nothing,
        QueuePlan { rules: rules.clone(), search_ahead: 3, ..picking() },
    );
    play.start();
    assert_eq!(play.read(1, 3), "forget 1, pick #0 1");
    // A reader without jobs blocks nothing.
    let mut play = Play::new(DurabilityBarrier::Nothing, QueuePlan { rules, ..picking() });
    play.start();
    assert_eq!(play.read(1, 4), "forget 1, read 5");
    assert_eq!(play.on(Event::Idle { port: InputPort::of_input(0, 0) }), "pick #0 1");
}

#[test]
fn a_glance_counts_as_running_what_is_begun() {
    let mut play = Play::new(DurabilityBarrier::Snapshot, QueuePlan { search_ahead: 4, ..picking() });
    let counts = |play: &Play| {
        let JobCounts { inputs, running, picked, .. } =
            play.dispatcher.job_counts(0, 1, Timestamp(0)).unwrap();
        let QueuedCounts { delayed, pending, lanes, summary } = picked.unwrap();
        assert_eq!(summary.lanes[0].waiting as u64 + summary.lanes[0].running as u64, 5 - delayed - pending);
        let oldest = summary.oldest.map_or(0, |key| key.0);
        format!("{} from {oldest}, {running}, {delayed}, {pending}, {lanes}", inputs[0].jobs)
    };
    play.start();
    assert_eq!(play.read(1, 6), "forget 1, pick #0 1, pick #1 2");
    // Two jobs are picked and not begun, two wait, two are past search-ahead, and three were not read.
    assert_eq!(
        play.dispatcher.job_counts(0, 0, Timestamp(0)).unwrap().inputs[0],
        InputCounts { jobs: 9, first: None }
    );
    play.dispatcher.saw(
        0,
        &JobAttributes::new(JobKey::stored(1), 0),
        WaitingState::Delayed { until: Timestamp(9) },
    );
    assert_eq!(counts(&play), "9 from 1, 0, 1, 0, 1");
    play.picked(0);
    assert_eq!(counts(&play), "8 from 2, 1, 1, 0, 1");
    play.on(Event::Begun { step: 0, batch: BatchId(0) });
    play.ran(0, &[JobOutcome::Pending]);
    play.committed(0);
    play.dispatcher.saw_late(0, JobKey::stored(2), Due::At(Timestamp(7)));
    let job_counts = play.dispatcher.job_counts(0, 0, Timestamp(0)).unwrap();
    let picked = job_counts.picked.unwrap();
    assert_eq!((job_counts.inputs[0].jobs, job_counts.running, picked.delayed, picked.pending), (8, 0, 2, 1));
}

#[test]
fn what_acts_outside_is_begun_first() {
    let mut play = Play::new(DurabilityBarrier::Snapshot, picking());
    play.start();
    play.read(1, 1);
    assert_eq!(play.picked(0), "begin #0");
    assert_eq!(play.on(Event::Begun { step: 0, batch: BatchId(0) }), "run #0");
    assert_eq!(play.done(0), "passed 1");
}

#[test]
fn a_failed_job_steps_aside_and_comes_back_when_it_is_due() {
    let mut play = Play::new(DurabilityBarrier::Nothing, picking());
    play.start();
    assert_eq!(play.read(1, 3), "forget 1, pick #0 1, pick #1 2, read 4");
    play.picked(0);
    assert_eq!(play.ran(0, &[JobOutcome::Delayed(Timestamp(50))]), "commit #0+1");
    // The job is accounted for: it is parked in the store.
    assert_eq!(play.committed(0), "passed 1, pick #2 3");
    play.picked(1);
    assert_eq!(play.done(1), "passed 2");
    assert_eq!(play.dispatcher.wakes(), Some(Timestamp(50)));
    play.now = Timestamp(50);
    assert_eq!(play.on(Event::Tick), "pick #3 1");
}

#[test]
fn a_job_that_finds_its_gate_closed_stays_first_and_stops_the_others() {
    let mut play = Play::new(DurabilityBarrier::Nothing, picking());
    play.start();
    play.read(1, 9);
    play.picked(0);
    assert_eq!(
        play.ran(0, &[JobOutcome::Held(Wait { since: play.now, until: Timestamp(5000) })]),
        "commit #0+1"
    );
    // This job is parked in the store, too.
    assert_eq!(play.committed(0), "passed 1");
    play.picked(1);
    assert_eq!(play.done(1), "passed 2");
    assert_eq!(play.dispatcher.wakes(), Some(Timestamp(5000)));
    play.now = Timestamp(5000);
    assert_eq!(play.on(Event::Tick), "pick #2 1, pick #3 3");
}

#[test]
fn a_gate_is_looked_at_before_anything_starts_and_every_so_often() {
    let gate = Some(Duration::from_secs(5));
    let mut play = Play::new(DurabilityBarrier::Nothing, QueuePlan { gate, ..picking() });
    assert_eq!(play.start(), "read 1");
    assert_eq!(play.read(1, 9), "forget 1, look");
    // The run does not end while the gate is checked, and it requests one check only.
    assert_eq!(play.on(Event::Tick), "");
    assert_eq!(play.on(Event::Gate { step: 0, open: false }), "");
    assert_eq!(play.dispatcher.wakes(), Some(Timestamp(5000)));
    play.now = Timestamp(4999);
    assert_eq!(play.on(Event::Tick), "");
    play.now = Timestamp(5000);
    assert_eq!(play.on(Event::Tick), "look");
    assert_eq!(play.on(Event::Gate { step: 0, open: true }), "pick #0 1, pick #1 2");
    play.picked(0);
    assert_eq!(play.done(0), "passed 1, pick #2 3");
    // The last answer of the gate is too old.
    play.now = Timestamp(10_000);
    assert_eq!(play.picked(1), "look, run #1");
    assert_eq!(play.done(1), "passed 2");
}

#[test]
fn a_job_that_halts_the_step_lets_what_runs_come_home() {
    let mut play = Play::new(DurabilityBarrier::Nothing, picking());
    play.start();
    play.read(1, 9);
    play.picked(0);
    play.picked(1);
    assert_eq!(play.halts(0), "commit #0+0");
    assert_eq!(play.committed(0), "");
    // A job that finishes meanwhile still counts.
    assert_eq!(play.ran(1, &[JobOutcome::Finished]), "commit #1+1");
    assert_eq!(play.committed(1), "Halted");
}

#[test]
fn a_step_that_cannot_deliver_waits_for_what_runs_and_gives_it_up() {
    let mut play = Play::new(DurabilityBarrier::Nothing, picking());
    play.start();
    play.read(1, 9);
    play.picked(0);
    assert_eq!(play.on(Event::Failed { step: 0 }), "drop #1");
    assert_eq!(play.ran(0, &[JobOutcome::Finished]), "drop #0, Halted");
}

#[test]
fn a_stop_gives_up_what_nobody_has_begun() {
    let mut play = Play::new(DurabilityBarrier::Nothing, picking());
    play.start();
    play.read(1, 9);
    play.picked(0);
    assert_eq!(play.on(Event::Stop), "drop #1");
    assert_eq!(play.ran(0, &[JobOutcome::Finished]), "commit #0+1");
    assert_eq!(play.committed(0), "passed 1, Stopped");
}

#[test]
fn what_is_accounted_for_above_the_watermark_is_not_picked() {
    let mut progress = Progress::default();
    progress.finish(1, 1);
    progress.finish(3, 8);
    let mut play = Play::new(DurabilityBarrier::Nothing, QueuePlan { progress, ..picking() });
    assert_eq!(play.start(), "read 2");
    assert_eq!(play.read(2, 8), "forget 2, pick #0 2, pick #1 9");
    play.picked(0);
    play.picked(1);
    assert_eq!(play.done(0), "passed 8");
    assert_eq!(play.done(1), "passed 9, Drained");
}

#[test]
fn what_the_watermark_has_passed_is_not_looked_for() {
    let mut progress = Progress::default();
    progress.finish(1, 1);
    progress.finish(3, 8);
    let mut play = Play::new(DurabilityBarrier::Nothing, QueuePlan { progress, ..picking() });
    assert_eq!(play.start(), "read 2");
    assert_eq!(play.read(2, 1), "forget 2, pick #0 2, read 3");
    play.picked(0);
    assert_eq!(play.done(0), "passed 8");
    // Retention has deleted these jobs, and the reader resumes behind them.
    assert_eq!(play.read(9, 0), "forget 9, read 9");
}

#[test]
fn the_reads_of_a_source_are_kept_until_their_jobs_are_through() {
    let mut play = Play::of(InputKind::Source, DurabilityBarrier::Nothing, picking());
    assert_eq!(play.start(), "read 1");
    assert_eq!(play.read(1, 2), "pick #0 1, pick #1 2, read 3");
    // This read exceeds the memory limit.
    assert_eq!(play.read(3, 1), "");
    play.picked(0);
    play.picked(1);
    assert_eq!(play.done(1), "pick #2 3");
    assert_eq!(play.done(0), "forget 1, passed 2, read 4");
}

#[test]
fn an_output_that_was_made_already_is_handed_on_when_it_is_due() {
    let gate = Some(Duration::from_secs(5));
    let mut play = Play::new(DurabilityBarrier::Nothing, QueuePlan { gate, ..picking() });
    play.start();
    let key = JobKey::stored(3);
    play.dispatcher.saw_late(0, key, Due::At(Timestamp(70)));
    assert_eq!(play.on(Event::Tick), "");
    assert_eq!(play.dispatcher.wakes(), Some(Timestamp(70)));
    play.now = Timestamp(70);
    // The gate does not block it.
    assert_eq!(play.on(Event::Tick), format!("pick #0 {}", key.0));
}

/// A step that runs one job at once, and has picked its only one.
fn with_one_job(now: Timestamp) -> Play {
    let rules = QueuePolicy { max_processing: std::num::NonZeroU32::new(1), ..picking().rules };
    let mut play = Play::new(DurabilityBarrier::Nothing, QueuePlan { rules, ..picking() });
    play.now = now;
    play.start();
    play.read(1, 1);
    play.picked(0);
    play
}

#[test]
fn a_clock_that_is_set_back_makes_no_step_wait_for_long_that_a_job_holds_back() {
    let mut play = with_one_job(Timestamp(10_000));
    play.ran(0, &[JobOutcome::Held(Wait { since: play.now, until: Timestamp(15_000) })]);
    assert_eq!(play.committed(0), "passed 1");
    assert_eq!(play.on(Event::Tick), "");
    play.now = Timestamp(2000);
    assert_eq!(play.on(Event::Tick), "pick #1 1");
}

#[test]
fn a_job_that_found_its_gate_closed_before_the_clock_was_set_back_holds_no_step_back() {
    let mut play = with_one_job(Timestamp(10_000));
    let wait = Wait { since: play.now, until: Timestamp(15_000) };
    play.now = Timestamp(2000);
    play.ran(0, &[JobOutcome::Held(wait)]);
    assert_eq!(play.committed(0), "passed 1, pick #1 1");
}

#[test]
fn the_longer_of_two_waits_counts_unless_a_clock_that_was_set_back_has_ended_it() {
    let wait = |since, until| Wait { since: Timestamp(since), until: Timestamp(until) };
    let beside = |before| wait(20, 50).beside(before, Timestamp(25));
    assert_eq!(beside(None), wait(20, 50));
    assert_eq!(beside(Some(wait(10, 60))), wait(10, 60));
    assert_eq!(beside(Some(wait(10, 40))), wait(20, 50));
    // Results are reported in another order than their attempts began.
    assert_eq!(beside(Some(wait(22, 60))), wait(22, 60));
    assert_eq!(beside(Some(wait(30, 60))), wait(20, 50));
    assert_eq!(wait(30, 90).beside(Some(wait(20, 50)), Timestamp(25)), wait(20, 50));
}

#[test]
fn a_paused_step_starts_nothing_until_it_goes_on() {
    let mut play = Play::new(DurabilityBarrier::Nothing, picking());
    play.start();
    play.read(1, 2);
    assert_eq!(play.on(Event::Pause { step: 0, paused: true }), "");
    assert_eq!(play.picked(0), "");
    assert_eq!(play.on(Event::Pause { step: 0, paused: false }), "run #0");
}

#[test]
fn what_a_paused_step_has_begun_is_seen_through_so_that_a_stop_does_not_wait_for_it() {
    let mut play = Play::new(DurabilityBarrier::Snapshot, picking());
    play.start();
    play.read(1, 2);
    assert_eq!(play.picked(0), "begin #0");
    assert_eq!(play.on(Event::Pause { step: 0, paused: true }), "");
    assert_eq!(play.picked(1), "");
    assert_eq!(play.on(Event::Begun { step: 0, batch: BatchId(0) }), "run #0");
    assert_eq!(play.on(Event::Stop), "drop #1");
    assert_eq!(play.ran(0, &[JobOutcome::Finished]), "commit #0+1");
    assert_eq!(play.committed(0), "passed 1, Stopped");
}

#[test]
fn what_a_paused_step_has_picked_does_not_keep_a_run_that_ends_when_idle() {
    let mut play = Play::new(DurabilityBarrier::Nothing, picking());
    play.dispatcher.until_idle = true;
    play.start();
    assert_eq!(play.read(1, 9), "forget 1, pick #0 1, pick #1 2");
    assert_eq!(play.picked(0), "run #0");
    assert_eq!(play.on(Event::Pause { step: 0, paused: true }), "");
    assert_eq!(play.ran(0, &[JobOutcome::Finished]), "commit #0+1");
    assert_eq!(play.committed(0), "passed 1, Drained");
}

#[test]
fn what_is_past_search_ahead_of_a_held_job_does_not_keep_a_run_that_ends_when_idle() {
    let rules = QueuePolicy { strategy: StartOrder::Serial, ..picking().rules };
    let mut play = Play::new(DurabilityBarrier::Nothing, QueuePlan { rules, search_ahead: 3, ..picking() });
    play.dispatcher.until_idle = true;
    play.start();
    assert_eq!(play.read(1, 3), "forget 1, pick #0 1");
    assert_eq!(play.picked(0), "run #0");
    assert_eq!(play.ran(0, &[JobOutcome::Delayed(Timestamp(9))]), "commit #0+1");
    assert_eq!(play.committed(0), "passed 1, Drained");
}

#[test]
fn what_does_not_fit_into_memory_beside_a_held_job_does_not_keep_a_run_that_ends_when_idle() {
    let rules = QueuePolicy { strategy: StartOrder::Serial, ..picking().rules };
    let mut play = Play::of(InputKind::Source, DurabilityBarrier::Nothing, QueuePlan { rules, ..picking() });
    play.dispatcher.until_idle = true;
    play.start();
    assert_eq!(play.read(1, 3), "pick #0 1, read 4");
    assert_eq!(play.read(4, 3), "");
    assert_eq!(play.picked(0), "run #0");
    assert_eq!(play.ran(0, &[JobOutcome::Delayed(Timestamp(9))]), "commit #0+1");
    assert_eq!(play.committed(0), "passed 1, Drained");
}

#[test]
fn a_job_that_is_taken_out_before_it_was_read_is_not_picked() {
    let mut play = Play::new(DurabilityBarrier::Nothing, picking());
    play.start();
    for index in [1, 2] {
        play.dispatcher.cancel(0, JobKey::fresh(index), play.now);
    }
    assert_eq!(play.read(1, 4), "forget 1, pick #0 3, pick #1 4, read 5");
    let mut commands = Vec::new();
    play.dispatcher.account(0, 1, play.now, &mut commands);
    assert_eq!(words(commands), "passed 1");
}

#[test]
fn a_job_that_was_not_there_when_it_was_to_be_taken_out_is_picked_when_it_comes() {
    let mut play = Play::new(DurabilityBarrier::Nothing, picking());
    play.start();
    play.dispatcher.cancel(0, JobKey::fresh(1), play.now);
    play.dispatcher.release(0, 1);
    assert_eq!(play.read(1, 1), "forget 1, pick #0 1, read 2");
}

#[test]
fn a_job_of_a_source_that_comes_again_does_not_let_go_of_others() {
    let rules = QueuePolicy { max_processing: std::num::NonZeroU32::new(1), ..picking().rules };
    let mut play = Play::of(InputKind::Source, DurabilityBarrier::Nothing, QueuePlan { rules, ..picking() });
    assert_eq!(play.start(), "read 1");
    assert_eq!(play.read(1, 2), "pick #0 1, read 3");
    assert_eq!(play.picked(0), "run #0");
    assert_eq!(play.ran(0, &[JobOutcome::Delayed(Timestamp(50))]), "commit #0+1");
    play.now = Timestamp(60);
    assert_eq!(play.committed(0), "passed 1, pick #1 1");
    assert_eq!(play.picked(1), "run #1");
    // The second job is still in the read.
    assert_eq!(play.done(1), "pick #2 2");
    assert_eq!(play.picked(2), "run #2");
    assert_eq!(play.done(2), "forget 1, passed 2");
}

#[test]
fn what_became_of_a_pending_job_is_delivered_without_another_attempt() {
    let rules = QueuePolicy { max_processing: std::num::NonZeroU32::new(1), ..picking().rules };
    let mut play = Play::new(DurabilityBarrier::Snapshot, QueuePlan { rules, ..picking() });
    play.start();
    assert_eq!(play.read(1, 9), "forget 1, pick #0 1");
    assert_eq!(play.picked(0), "begin #0");
    assert_eq!(play.on(Event::Begun { step: 0, batch: BatchId(0) }), "run #0");
    assert_eq!(play.ran(0, &[JobOutcome::Pending]), "commit #0+1");
    assert_eq!(play.committed(0), "passed 1, pick #1 2");
    assert_eq!(play.picked(1), "begin #1");
    assert_eq!(play.settle(&[1]), "pick #2 1");
    assert_eq!(play.picked(2), "run #2");
    assert_eq!(play.ran(2, &[JobOutcome::Forgotten]), "commit #2+1");
    assert_eq!(play.committed(2), "");
    // It goes before all other jobs.
    play.on(Event::Begun { step: 0, batch: BatchId(1) });
    assert_eq!(play.ran(1, &[JobOutcome::Pending]), "commit #1+1");
    assert_eq!(play.committed(1), "passed 2, pick #3 1");
}

#[test]
fn outputs_that_an_operator_makes_due_keep_the_order_of_their_times() {
    let mut play = Play::new(DurabilityBarrier::Nothing, picking());
    play.start();
    // The first three are due at 90, 80 and 70.
    let due = [90, 80, 70].map(|time| Due::At(Timestamp(time)));
    for (key, due) in (1..).zip(due) {
        play.dispatcher.saw_late(0, JobKey::stored(key), due);
        play.dispatcher.hold(0, JobKey::stored(key));
    }
    assert_eq!(play.on(Event::Tick), "");
    for (key, due) in (1..).zip(due) {
        play.dispatcher.reschedule(0, JobKey::stored(key), due.hastened());
    }
    let mut commands = Vec::new();
    play.dispatcher.handle(Event::Tick, play.now, &mut commands);
    let picked = commands.into_iter().find_map(|command| match command {
        Command::FetchJobs { jobs, .. } => Some(jobs),
        _ => None,
    });
    assert_eq!(picked.unwrap(), [3, 2, 1].map(JobKey::stored));
}

#[test]
fn outputs_that_are_due_later_go_one_batch_after_the_other_where_order_is_kept() {
    for in_order in [true, false] {
        let mut play = Play::new(DurabilityBarrier::Nothing, QueuePlan { in_order, ..picking() });
        play.start();
        play.dispatcher.saw_late(0, JobKey::stored(7), Due::At(Timestamp(0)));
        let first = play.on(Event::Tick);
        assert!(first.starts_with("pick #0"), "{first}");
        play.dispatcher.saw_late(0, JobKey::stored(3), Due::At(Timestamp(0)));
        let second = play.on(Event::Tick);
        assert_eq!(second.contains("pick #1"), !in_order, "{second}");
        play.picked(0);
        let third = play.done(0);
        assert_eq!(third.contains("pick #1"), in_order, "{third}");
    }
}
