//! Dispatcher tests: play histories of events and compare the commands.

pub(crate) mod order;
pub(crate) mod play;
pub(crate) mod returns;
pub(crate) mod sizes;
pub(crate) mod turns;

use std::time::Duration;

use super::*;
use play::{BOUNDS, PORT, Play, flow, join, queue, source};

#[test]
fn a_bounded_source_is_read_run_committed_and_done() {
    let mut play = Play::new(&[source()], &[]);
    assert_eq!(play.start(), "read 0@1");
    assert_eq!(play.read(0, 1, 3), "read 0@4, run 0#0");
    assert_eq!(play.on(Event::Ended { port: PORT }), "");
    assert_eq!(play.ran(0, 0, 3), "commit 0@1+3");
    assert_eq!(play.committed(0, 0), "Drained");
}

#[test]
fn what_was_finished_out_of_order_by_an_earlier_run_is_not_run_again() {
    let finished = vec![(3, 4), (6, 9), (11, 11)];
    let input = InputPlan { next: 2, finished: finished.clone(), ..queue().inputs.remove(0) };
    let mut play = Play::new(&[StepPlan { inputs: vec![input.clone()], ..queue() }], &[13]);
    assert_eq!(play.start(), "read 0@2");
    assert_eq!(play.read(0, 2, 6), "read 0@8, run 0#0, run 0#1");
    assert_eq!(play.ran(0, 0, 1), "commit 0@2+1");
    assert_eq!(play.ran(0, 1, 1), "commit 0@5+1");
    // All of it is in the batch.
    assert_eq!(play.read(0, 8, 2), "read 0@10");
    assert_eq!(play.read(0, 10, 4), "run 0#2, run 0#3");
    assert_eq!(play.batches[&BatchId(2)], [(PortInput::Input(0), 10, 1)]);
    assert_eq!(play.batches[&BatchId(3)], [(PortInput::Input(0), 12, 2)]);
    play.ran(0, 2, 1);
    assert_eq!(play.ran(0, 3, 2), "commit 0@12+2");
    play.committed(0, 0);
    play.committed(0, 1);
    play.committed(0, 2);
    assert_eq!(play.committed(0, 3), "Drained");

    // A join takes the next unfinished job of each input.
    let other = join().inputs.remove(1);
    let mut play = Play::new(&[StepPlan { inputs: vec![input, other], ..join() }], &[5, 2]);
    play.start();
    play.read_from(0, 0, 2, 4);
    assert_eq!(play.read_from(0, 1, 1, 2), "#0 = a2+1 b1+1, #1 = a5+1 b2+1, run 0#0, run 0#1");
}

#[test]
fn a_step_that_is_installed_again_runs_what_was_finished_behind_its_new_position() {
    let input = InputPlan { next: 2, finished: vec![(3, 3)], ..queue().inputs.remove(0) };
    let mut play = Play::new(&[StepPlan { inputs: vec![input], ..queue() }], &[3]);
    assert_eq!(play.start(), "read 0@2");
    play.dispatcher.expect(true);
    assert_eq!(play.on(Event::Drain { step: 0 }), "drained 0");
    // Its reader knows nothing of that.
    assert_eq!(play.on(Event::Idle { port: PORT }), "");
    assert_eq!(play.install(0, queue()), "read 0@1");
    play.read(0, 1, 3);
    assert_eq!(play.batches[&BatchId(0)], [(PortInput::Input(0), 1, 3)]);
}

#[test]
fn nothing_to_do_is_done_at_once() {
    let mut play = Play::new(&[queue()], &[0]);
    assert_eq!(play.start(), "Drained");
}

#[test]
fn a_queue_that_is_filled_from_outside_is_waited_for() {
    let pushed = [flow(BatchComposition::Merge, &[InputKind::Pushed(0)])];
    let mut play = Play::new(&pushed, &[0]);
    assert_eq!(play.start(), "");
    assert_eq!(play.on(Event::Grew { queue: 0, head: 2 }), "read 0@1");
    assert_eq!(play.read(0, 1, 2), "run 0#0");
    play.ran(0, 0, 2);
    assert_eq!(play.committed(0, 0), "");
    assert_eq!(play.on(Event::Stop), "Stopped");
    assert_eq!(Play::with(&pushed, &[0], BOUNDS, true).start(), "Drained");
}

#[test]
fn batches_run_in_any_order_and_are_committed_in_theirs() {
    let mut play = Play::new(&[source()], &[]);
    play.start();
    play.read(0, 1, 2);
    assert_eq!(play.read(0, 3, 2), "read 0@5, run 0#1");
    assert_eq!(play.ran(0, 1, 2), "");
    assert_eq!(play.ran(0, 0, 2), "commit 0@1+2, commit 0@3+2");
}

#[test]
fn no_more_is_read_than_there_is_room_for() {
    let mut play = Play::with(
        &[source()],
        &[],
        Bounds { slots: 1, beside: 1, batches: 2, jobs: 1000, bytes: 1000 },
        false,
    );
    play.start();
    assert_eq!(play.read(0, 1, 1), "read 0@2, run 0#0");
    assert_eq!(play.read(0, 2, 1), "");
    assert_eq!(play.ran(0, 0, 1), "commit 0@1+1, run 0#1");
    assert_eq!(play.committed(0, 0), "read 0@3");
}

#[test]
fn outputs_count_against_the_room_until_they_are_committed() {
    let mut play = Play::with(
        &[source()],
        &[],
        Bounds { slots: 4, beside: 4, batches: 9, jobs: 1000, bytes: 100 },
        false,
    );
    play.start();
    play.read(0, 1, 1);
    play.read(0, 2, 1);
    play.on(Event::Ran { step: 0, batch: BatchId(0), ran: BatchEnd { bytes: 500, ..BatchEnd::whole(1) } });
    // Only the first batch starts.
    assert_eq!(play.read(0, 3, 1), "");
    assert_eq!(play.committed(0, 0), "read 0@4, run 0#2");
}

#[test]
fn a_queue_is_read_when_it_grows_and_downstream_goes_first() {
    let mut play = Play::with(
        &[source(), queue()],
        &[0],
        Bounds { slots: 1, beside: 1, batches: 4, jobs: 1000, bytes: 1000 },
        false,
    );
    assert_eq!(play.start(), "read 0@1");
    assert_eq!(play.read(0, 1, 2), "read 0@3, run 0#0");
    assert_eq!(play.read(0, 3, 2), "read 0@5");
    assert_eq!(play.ran(0, 0, 2), "commit 0@1+2, run 0#1");
    play.committed(0, 0);
    assert_eq!(play.on(Event::Grew { queue: 0, head: 2 }), "read 1@1");
    assert_eq!(play.read(1, 1, 2), "");
    assert_eq!(play.read(0, 5, 1), "read 0@6");
    // Both batches wait for the one worker; the downstream step goes first.
    assert_eq!(play.ran(0, 1, 2), "commit 0@3+2, run 1#2");
}

#[test]
fn a_job_that_halts_its_step_lets_what_stands_before_it_through_and_nothing_behind_it() {
    let mut play = Play::new(&[source()], &[]);
    play.start();
    play.read(0, 1, 2);
    play.read(0, 3, 2);
    play.read(0, 5, 2);
    assert_eq!(play.halts(0, 1, 1), "");
    assert_eq!(play.ran(0, 0, 2), "commit 0@1+2, commit 0@3+1");
    assert_eq!(play.committed(0, 0), "");
    assert_eq!(play.committed(0, 1), "drop #2, Halted");
    assert!(play.dispatcher.is_halted(0));
}

#[test]
fn a_halted_step_waits_for_its_running_batches_before_the_run_ends() {
    let mut play = Play::new(&[source()], &[]);
    play.start();
    play.read(0, 1, 1);
    play.read(0, 2, 1);
    assert_eq!(play.halts(0, 0, 0), "commit 0@1+0");
    assert_eq!(play.committed(0, 0), "");
    assert_eq!(play.ran(0, 1, 1), "Halted");
}

#[test]
fn other_steps_go_on_beside_a_halted_one() {
    let mut play = Play::new(&[source(), source()], &[]);
    play.start();
    play.read(0, 1, 1);
    play.read(1, 1, 1);
    play.on(Event::Ended { port: InputPort::of_input(1, 0) });
    play.halts(0, 0, 0);
    assert_eq!(play.committed(0, 0), "");
    assert_eq!(play.ran(1, 1, 1), "commit 1@1+1");
    assert_eq!(play.committed(1, 1), "Halted");
}

#[test]
fn a_delivery_that_is_refused_halts_the_step_at_once() {
    let mut play = Play::new(&[source()], &[]);
    play.start();
    play.read(0, 1, 1);
    play.read(0, 2, 1);
    play.ran(0, 0, 1);
    play.ran(0, 1, 1);
    assert_eq!(play.on(Event::Failed { step: 0 }), "drop #0, drop #1, Halted");
}

#[test]
fn a_step_that_cannot_begin_does_not_keep_the_others_from_their_work() {
    let mut play = Play::new(&[source(), source()], &[]);
    play.dispatcher.exclude(0);
    assert_eq!(play.start(), "read 1@1");
    assert_eq!(play.on(Event::Ended { port: InputPort::of_input(1, 0) }), "Halted");
}

#[test]
fn what_a_broken_source_has_given_is_worked_off() {
    let mut play = Play::new(&[source()], &[]);
    play.start();
    play.read(0, 1, 1);
    assert_eq!(play.on(Event::Broken { port: PORT }), "");
    assert_eq!(play.ran(0, 0, 1), "commit 0@1+1");
    assert_eq!(play.committed(0, 0), "Halted");
}

#[test]
fn stopping_finishes_what_runs_and_starts_nothing() {
    let mut play = Play::with(
        &[source()],
        &[],
        Bounds { slots: 1, beside: 1, batches: 4, jobs: 1000, bytes: 1000 },
        false,
    );
    play.start();
    play.read(0, 1, 1);
    play.read(0, 2, 1);
    assert_eq!(play.on(Event::Stop), "drop #1");
    assert_eq!(play.read(0, 3, 1), "");
    assert_eq!(play.ran(0, 0, 1), "commit 0@1+1");
    assert_eq!(play.committed(0, 0), "Stopped");
}

#[test]
fn a_followed_source_ends_only_when_asked_to_end_idle() {
    let mut play = Play::new(&[source()], &[]);
    play.start();
    assert_eq!(play.on(Event::Idle { port: PORT }), "");
    assert_eq!(play.read(0, 1, 1), "read 0@2, run 0#0");
    let mut play = Play::with(&[source()], &[], BOUNDS, true);
    play.start();
    assert_eq!(play.on(Event::Idle { port: PORT }), "Drained");
}

#[test]
fn an_input_without_room_is_read_when_there_is_room_and_does_not_keep_the_run_from_ending() {
    let full = |full| Event::Full { port: PORT, full };
    let mut play = Play::new(&[source()], &[]);
    play.start();
    play.read(0, 1, 1);
    assert_eq!(play.on(full(true)), "");
    assert_eq!(play.on(full(false)), "read 0@2");
    // The request is open.
    assert_eq!(play.on(full(false)), "");
    assert_eq!(play.on(full(true)), "");
    assert_eq!(play.ran(0, 0, 1), "commit 0@1+1");
    assert_eq!(play.committed(0, 0), "Drained");
}

#[test]
fn a_join_takes_as_many_of_each_and_leaves_the_rest() {
    let mut play = Play::new(&[join()], &[5, 3]);
    assert_eq!(play.start(), "read 0@1, read 0.1@1");
    assert_eq!(play.read_from(0, 0, 1, 5), "");
    assert_eq!(play.read_from(0, 1, 1, 2), "#0 = a1+2 b1+2, read 0.1@3, run 0#0");
    assert_eq!(play.read_from(0, 1, 3, 1), "#1 = a3+1 b3+1, run 0#1");
    assert_eq!(play.ran(0, 0, 2), "commit 0@1+2");
    assert_eq!(play.ran(0, 1, 1), "commit 0@3+1");
    play.committed(0, 0);
    // Jobs 4 and 5 of the first input wait for partners that will not come.
    assert_eq!(play.committed(0, 1), "Drained");
}

#[test]
fn a_join_that_waits_for_one_input_does_not_read_the_other_without_bound() {
    let mut play = Play::new(&[source(), join()], &[9, 0]);
    assert_eq!(play.start(), "read 0@1, read 1@1");
    assert_eq!(play.read_from(1, 0, 1, 1), "read 1@2");
    assert_eq!(play.read_from(1, 0, 2, 1), "");
    assert_eq!(play.on(Event::Grew { queue: 1, head: 1 }), "read 1.1@1");
    assert_eq!(play.read_from(1, 1, 1, 1), "#0 = a1+1 b1+1, read 1@3, run 1#0");
}

#[test]
fn a_starving_input_is_read_though_the_others_have_filled_the_room() {
    let room = Bounds { slots: 2, beside: 2, batches: 2, jobs: 1000, bytes: 15 };
    let mut play = Play::with(&[source(), join()], &[9, 0], room, false);
    play.start();
    play.read_from(1, 0, 1, 2);
    play.read_from(1, 0, 3, 2);
    assert_eq!(play.on(Event::Grew { queue: 1, head: 1 }), "read 1.1@1");
}

#[test]
fn alternatives_are_taken_as_they_come() {
    let mut play =
        Play::new(&[flow(BatchComposition::Merge, &[InputKind::Queue(0), InputKind::Queue(1)])], &[2, 1]);
    assert_eq!(play.start(), "read 0@1, read 0.1@1");
    assert_eq!(play.read_from(0, 1, 1, 1), "#0 = b1+1, run 0#0");
    assert_eq!(play.read_from(0, 0, 1, 2), "run 0#1");
    assert_eq!(play.ran(0, 1, 2), "");
    assert_eq!(play.ran(0, 0, 1), "commit 0@1+1, commit 0@1+2");
    play.committed(0, 0);
    assert_eq!(play.committed(0, 1), "Drained");
}

#[test]
fn what_can_be_seen_outside_runs_only_when_its_snapshot_is_durable() {
    let mut play = Play::new(&[StepPlan { before: DurabilityBarrier::Snapshot, ..source() }], &[]);
    play.start();
    assert_eq!(play.read(0, 1, 2), "begin 0#0, read 0@3");
    assert_eq!(play.begun(0, 0), "run 0#0");
    assert_eq!(play.ran(0, 0, 2), "commit 0@1+2");
}

#[test]
fn what_is_begun_is_seen_through_when_the_run_is_stopped() {
    let mut play = Play::new(&[StepPlan { before: DurabilityBarrier::Progress, ..source() }], &[]);
    play.start();
    play.read(0, 1, 2);
    play.read(0, 3, 2);
    play.read(0, 5, 2);
    assert_eq!(play.on(Event::Stop), "drop #2");
    assert_eq!(play.begun(0, 0), "run 0#0");
    // Batches run one after the other: jobs behind one that finds the gate closed were not attempted.
    assert_eq!(play.begun(0, 1), "");
    assert_eq!(play.ran(0, 0, 2), "commit 0@1+2, run 0#1");
    play.ran(0, 1, 2);
    play.committed(0, 0);
    assert_eq!(play.committed(0, 1), "Stopped");
}

#[test]
fn a_batch_that_was_begun_is_formed_again_just_as_it_was() {
    let redo = vec![RecoveredBatch { number: 4, inputs: vec![(1, 1)], jobs: 3 }];
    let alts = flow(BatchComposition::Merge, &[InputKind::Queue(0), InputKind::Queue(1)]);
    let mut play = Play::new(&[StepPlan { before: DurabilityBarrier::Snapshot, redo, ..alts }], &[2, 5]);
    assert_eq!(play.start(), "read 0@1, read 0.1@1");
    assert_eq!(play.read_from(0, 0, 1, 2), "");
    assert_eq!(play.read_from(0, 1, 1, 2), "read 0.1@3");
    // It runs at once, since its snapshot is durable; the next batches must be begun first.
    assert_eq!(play.read_from(0, 1, 3, 2), "#4 = b1+2 b3+1, #6 = b4+1, begin 0#5, read 0.1@5, run 0#4");
}

#[test]
fn a_batch_whose_jobs_are_gone_is_not_formed_again() {
    let redo = vec![RecoveredBatch { number: 0, inputs: vec![(0, 1)], jobs: 3 }];
    let mut play = Play::new(&[StepPlan { before: DurabilityBarrier::Snapshot, redo, ..source() }], &[]);
    play.start();
    assert_eq!(play.read(0, 1, 2), "read 0@3");
    assert_eq!(play.on(Event::Ended { port: PORT }), "begin 0#1");
}

#[test]
fn a_step_that_drains_delivers_what_runs_and_takes_no_more() {
    let mut play = Play::new(&[queue()], &[9]);
    play.start();
    assert_eq!(play.read(0, 1, 5), "read 0@6, run 0#0");
    assert_eq!(play.on(Event::Drain { step: 0 }), "");
    assert_eq!(play.read(0, 6, 4), "");
    assert_eq!(play.ran(0, 0, 5), "commit 0@1+5");
    assert_eq!(play.committed(0, 0), "drained 0, Drained");
}

#[test]
fn while_a_step_is_about_to_be_installed_the_run_goes_on() {
    let mut play = Play::new(&[queue(), queue()], &[1]);
    play.start();
    play.dispatcher.expect(true);
    assert_eq!(play.on(Event::Drain { step: 0 }), "drained 0");
    play.read(1, 1, 1);
    play.ran(1, 0, 1);
    assert_eq!(play.committed(1, 0), "");
    assert_eq!(play.install(0, queue()), "read 0@1");
    play.dispatcher.expect(false);
    play.read(0, 1, 1);
    play.ran(0, 1, 1);
    assert_eq!(play.committed(0, 1), "Drained");
}

#[test]
fn a_run_without_an_end_of_its_own_goes_on_after_its_last_step_was_removed() {
    let run = |until_idle: bool| {
        let mut play = Play::with(&[queue()], &[0], BOUNDS, until_idle);
        play.dispatcher.set_unbounded(true);
        play.dispatcher.expect(true);
        play.start();
        play.on(Event::Drain { step: 0 });
        play.dispatcher.expect(false);
        play
    };
    let mut play = run(false);
    assert_eq!(play.on(Event::Tick), "");
    assert_eq!(play.on(Event::Stop), "Stopped");
    assert_eq!(run(true).on(Event::Tick), "Drained");
}

#[test]
fn a_batch_has_another_number_than_all_that_an_installed_step_begins_again() {
    let redo = vec![RecoveredBatch { number: 4, inputs: vec![(0, 1)], jobs: 3 }];
    let mut play = Play::new(&[StepPlan { before: DurabilityBarrier::Snapshot, redo, ..queue() }], &[5]);
    assert_eq!(play.start(), "read 0@1");
    play.dispatcher.expect(true);
    assert_eq!(play.on(Event::Drain { step: 0 }), "drained 0");
    // Its records are void now.
    assert_eq!(play.install(0, StepPlan { before: DurabilityBarrier::Snapshot, ..queue() }), "read 0@1");
    assert_eq!(play.read(0, 1, 5), "begin 0#5");
}

#[test]
fn a_glance_counts_what_is_read_and_what_is_behind_it() {
    let mut play = Play::with(&[queue()], &[20], Bounds { slots: 1, ..BOUNDS }, false);
    let job_counts = |play: &Play| {
        let JobCounts { inputs, running, picked, .. } =
            play.dispatcher.job_counts(0, 9, Timestamp(0)).unwrap();
        assert_eq!(picked, None);
        (inputs[0].jobs, inputs[0].first, running)
    };
    play.start();
    assert_eq!(job_counts(&play), (20, Some(1), 0));
    play.read(0, 1, 3);
    assert_eq!(job_counts(&play), (17, Some(4), 3));
    // No worker is free for it.
    play.read(0, 4, 5);
    assert_eq!(job_counts(&play), (17, Some(4), 3));
    play.ran(0, 0, 3);
    assert_eq!(job_counts(&play), (12, Some(9), 8));
    play.committed(0, 0);
    assert_eq!(job_counts(&play), (12, Some(9), 5));
}

#[test]
fn what_could_not_be_set_up_waits_and_runs_the_same_batch_again() {
    let mut play = Play::new(&[source()], &[]);
    play.start();
    assert_eq!(play.read(0, 1, 2), "read 0@3, run 0#0");
    assert_eq!(play.read(0, 3, 2), "read 0@5, run 0#1");
    play.on(Event::Hold { step: 0, until: Timestamp(50) });
    assert_eq!(play.on(Event::PutBack { step: 0, batch: BatchId(0) }), "");
    // Another worker has run the next batch, which is delivered after it.
    assert_eq!(play.ran(0, 1, 2), "");
    assert_eq!(play.dispatcher.wakes(), Some(Timestamp(50)));
    play.now = Timestamp(50);
    assert_eq!(play.on(Event::Tick), "run 0#0");
    assert_eq!(play.ran(0, 0, 2), "commit 0@1+2, commit 0@3+2");
}

#[test]
fn a_stop_and_an_idle_end_wait_for_nothing_that_cannot_be_set_up() {
    for until_idle in [false, true] {
        let mut play = Play::with(&[source()], &[], BOUNDS, until_idle);
        play.start();
        play.read(0, 1, 2);
        play.on(Event::Idle { port: PORT });
        play.on(Event::Hold { step: 0, until: Timestamp(50) });
        let put_back = play.on(Event::PutBack { step: 0, batch: BatchId(0) });
        let (end, words) = if until_idle {
            (put_back, "drop #0, Drained")
        } else {
            (play.on(Event::Stop), "drop #0, Stopped")
        };
        assert_eq!(end, words);
    }
}
