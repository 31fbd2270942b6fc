//! Batch size tests: play histories of batches that are cut, and check the sizes of the next ones.

use super::*;
use crate::queued::tests::play::picking;

impl Play {
    /// Reports that `taken` jobs of the batch ran in `millis` milliseconds and the rest was not attempted.
    fn cut(&mut self, batch: u64, taken: usize, millis: u64) -> String {
        let took = Duration::from_millis(millis);
        let ran = BatchEnd { ending: BatchCut::Cut, took, ..BatchEnd::whole(taken) };
        self.on(Event::Ran { step: 0, batch: BatchId(batch), ran })
    }

    /// Reports that the whole batch ran in `micros` microseconds.
    fn took(&mut self, batch: u64, taken: usize, micros: u64) -> String {
        let ran = BatchEnd { took: Duration::from_micros(micros), ..BatchEnd::whole(taken) };
        self.on(Event::Ran { step: 0, batch: BatchId(batch), ran })
    }
}

#[test]
fn slow_jobs_spread_over_all_workers_and_are_delivered_as_they_end() {
    let mut play = Play::with(&[queue()], &[9], Bounds { slots: 3, beside: 3, ..BOUNDS }, false);
    play.start();
    assert_eq!(play.read(0, 1, 9), "run 0#0");
    assert_eq!(
        play.cut(0, 1, 500),
        "split #0+1 #1, commit 0@1+1, split #1+1 #2, run 0#1 aside, split #2+1 #3, run 0#2 aside, split #3+1 #4, \
         run 0#3 aside"
    );
    assert_eq!(play.took(2, 1, 500_000), "split #4+1 #5, run 0#4 aside");
    assert_eq!(play.took(1, 1, 500_000), "commit 0@2+1, commit 0@3+1, split #5+1 #6, run 0#5 aside");
}

/// Two steps, and as many workers.
fn two_steps() -> Play {
    two_steps_of(queue())
}

fn two_steps_of(first: StepPlan) -> Play {
    let other = StepPlan {
        inputs: vec![InputPlan { feed: InputKind::Queue(1), next: 1, finished: Vec::new() }],
        ..queue()
    };
    let mut play = Play::with(&[first, other], &[9, 9], Bounds { slots: 2, ..BOUNDS }, false);
    play.start();
    play
}

#[test]
fn a_step_that_has_found_all_workers_busy_for_long_goes_before_steps_downstream() {
    let mut play = two_steps();
    // Each has three batches.
    assert_eq!(play.read(1, 1, 1), "read 1@2, run 1#0");
    assert_eq!(play.read(1, 2, 1), "read 1@3, run 1#1");
    play.read(1, 3, 1);
    play.read(1, 4, 1);
    assert_eq!(play.read(0, 1, 1), "read 0@2");
    play.read(0, 2, 1);
    play.now = Timestamp(9);
    assert_eq!(play.ran(1, 0, 1), "commit 1@1+1, run 1#2");
    play.now = Timestamp(10);
    assert_eq!(play.ran(1, 1, 1), "commit 1@2+1, run 0#4");
    // It takes one worker, and waits for the next one as long again.
    play.now = Timestamp(11);
    assert_eq!(play.ran(1, 2, 1), "commit 1@3+1, run 1#3");
    play.now = Timestamp(20);
    assert_eq!(play.ran(1, 3, 1), "commit 1@4+1, run 0#5");
}

#[test]
fn a_step_whose_readers_have_found_all_workers_busy_too_does_not_go_before_them() {
    let mut play = two_steps_of(StepPlan { fills: vec![1], ..queue() });
    play.read(1, 1, 1);
    play.read(1, 2, 1);
    play.read(1, 3, 1);
    play.read(1, 4, 1);
    play.read(0, 1, 1);
    play.now = Timestamp(20);
    assert_eq!(play.ran(1, 0, 1), "commit 1@1+1, run 1#2");
    assert_eq!(play.ran(1, 1, 1), "commit 1@2+1, run 1#3");
    // Nothing downstream waits any more.
    assert_eq!(play.ran(1, 2, 1), "commit 1@3+1, run 0#4");
}

#[test]
fn a_step_without_a_batch_has_not_found_all_workers_busy() {
    let mut play = two_steps();
    for batch in 1..=4 {
        play.read(1, batch, 1);
    }
    play.now = Timestamp(100);
    assert_eq!(play.ran(1, 0, 1), "commit 1@1+1, run 1#2");
    assert_eq!(play.read(0, 1, 1), "read 0@2");
    play.now = Timestamp(109);
    assert_eq!(play.ran(1, 1, 1), "commit 1@2+1, run 1#3");
    play.now = Timestamp(110);
    assert_eq!(play.ran(1, 2, 1), "commit 1@3+1, run 0#4");
}

#[test]
fn a_step_whose_jobs_are_quick_again_returns_to_the_workers_at_once() {
    let mut play = two_steps();
    assert_eq!(play.read(0, 1, 9), "run 0#0");
    play.cut(0, 1, 500);
    assert_eq!(play.took(1, 1, 0), "commit 0@2+1, split #3+1 #4, run 0#3 aside");
    assert_eq!(play.took(2, 1, 0), "commit 0@3+1, split #4+1 #5, run 0#4 aside");
    assert_eq!(play.took(3, 1, 0), "commit 0@4+1, split #5+1 #6, run 0#5 aside");
    // Another batch still runs beside the workers.
    assert_eq!(play.took(4, 1, 0), "commit 0@5+1, split #6+1 #7, run 0#6, split #7+1 #8, run 0#7");
}

#[test]
fn after_the_clock_was_set_back_a_step_that_found_all_workers_busy_goes_first() {
    let mut play = two_steps();
    play.now = Timestamp(100);
    play.read(1, 1, 1);
    play.read(1, 2, 1);
    play.read(1, 3, 1);
    assert_eq!(play.read(0, 1, 1), "read 0@2");
    play.now = Timestamp(50);
    assert_eq!(play.ran(1, 0, 1), "commit 1@1+1, run 0#3");
}

#[test]
fn outputs_that_come_due_while_all_workers_are_busy_are_delivered_when_one_is_free() {
    let picking = QueuePlan { uses_pool: false, ..picking() };
    let inputs = vec![InputPlan { feed: InputKind::Queue(2), next: 1, finished: Vec::new() }];
    let mut play = two_steps_of(StepPlan { inputs, picking: Some(picking), ..queue() });
    assert_eq!(play.read(1, 1, 1), "read 1@2, run 1#0");
    assert_eq!(play.read(1, 2, 1), "read 1@3, run 1#1");
    play.dispatcher.saw_late(0, JobKey::stored(7), Due::At(Timestamp(0)));
    let key = JobKey::stored(7).0;
    assert_eq!(play.on(Event::Tick), format!("pick 0#2 {key}"));
    // Attempts of a step that was not measured run beside the workers, and outputs that were made before do not.
    assert_eq!(play.on(Event::Picked { step: 0, batch: BatchId(2), bytes: 5 }), "");
    assert_eq!(play.ran(1, 0, 1), "commit 1@1+1, run 0#2");
}

#[test]
fn a_job_that_is_due_again_while_all_workers_are_busy_runs_when_one_is_free() {
    let mut play = two_steps();
    assert_eq!(play.read(0, 1, 1), "read 0@2, run 0#0");
    assert_eq!(play.read(0, 2, 1), "read 0@3, run 0#1");
    let ran = BatchEnd { ending: BatchCut::Waits(Timestamp(5)), ..BatchEnd::whole(0) };
    assert_eq!(play.on(Event::Ran { step: 0, batch: BatchId(1), ran }), "");
    assert_eq!(play.read(1, 1, 1), "read 1@2, run 1#2");
    play.now = Timestamp(5);
    assert_eq!(play.on(Event::Tick), "");
    assert_eq!(play.ran(1, 2, 1), "commit 1@1+1, run 0#1");
}

#[test]
fn batches_that_run_long_leave_their_workers_to_other_steps() {
    let mut play = two_steps();
    let aside = |batch| Event::WentAside { step: 0, batch: BatchId(batch) };
    assert_eq!(play.read(0, 1, 4), "read 0@5, run 0#0");
    assert_eq!(play.read(0, 5, 5), "run 0#1");
    // Both workers are taken.
    assert_eq!(play.read(1, 1, 4), "read 1@5");
    assert_eq!(play.on(aside(0)), "run 1#2");
    assert_eq!(play.on(aside(1)), "");
    assert_eq!(play.read(1, 5, 5), "run 1#3");
    // The ends of the long ones free no worker again.
    assert_eq!(play.ran(0, 0, 4), "commit 0@1+4");
    assert_eq!(play.ran(0, 1, 5), "commit 0@5+5");
    assert_eq!(play.ran(1, 2, 4), "commit 1@1+4");
}

#[test]
fn batches_of_a_slow_step_take_no_worker_from_others() {
    let mut play = two_steps();
    assert_eq!(play.read(0, 1, 9), "run 0#0");
    assert_eq!(
        play.cut(0, 1, 500),
        "split #0+1 #1, commit 0@1+1, split #1+1 #2, run 0#1 aside, split #2+1 #3, run 0#2 aside"
    );
    assert_eq!(play.read(1, 1, 4), "read 1@5, run 1#4");
    assert_eq!(play.read(1, 5, 5), "run 1#5");
}

#[test]
fn while_a_batch_runs_long_others_of_its_step_run_beside_it_and_beside_the_workers() {
    let mut play = two_steps();
    assert_eq!(play.read(0, 1, 4), "read 0@5, run 0#0");
    assert_eq!(play.on(Event::WentAside { step: 0, batch: BatchId(0) }), "");
    assert_eq!(play.read(0, 5, 5), "run 0#1 aside");
    assert_eq!(play.read(1, 1, 4), "read 1@5, run 1#2");
    assert_eq!(play.read(1, 5, 5), "run 1#3");
}

#[test]
fn the_first_batches_are_small_and_those_of_fast_jobs_are_as_large_as_they_were_read() {
    let bounds = Bounds { slots: 2, jobs: 10_000, ..BOUNDS };
    let mut play = Play::with(&[source()], &[], bounds, false);
    play.start();
    assert_eq!(play.read(0, 1, 1024), "read 0@1025, split #0+16 #1, run 0#0, split #1+16 #2, run 0#1");
    assert_eq!(play.took(0, 16, 16), "commit 0@1+16, run 0#2");
    assert_eq!(play.batches[&BatchId(2)], [(PortInput::Input(0), 33, 992)]);
    play.took(1, 16, 16);
    assert_eq!(play.read(0, 1025, 1024), "read 0@2049, run 0#3");
}

#[test]
fn what_has_effects_is_split_before_it_is_begun() {
    let mut play = Play::new(&[StepPlan { before: DurabilityBarrier::Snapshot, ..source() }], &[]);
    play.start();
    assert_eq!(play.read(0, 1, 40), "split #0+16 #1, begin 0#0, split #1+16 #2, begin 0#1, read 0@41");
    play.begun(0, 0);
    // The cut rest stays begun.
    assert_eq!(play.cut(0, 4, 4), "split #0+4 #3, commit 0@1+4, run 0#3");
}

#[test]
fn while_outputs_fill_the_room_only_the_first_batch_runs() {
    let mut play = Play::with(&[queue()], &[4], Bounds { slots: 2, bytes: 100, ..BOUNDS }, false);
    play.start();
    play.read(0, 1, 4);
    let ran = BatchEnd { ending: BatchCut::Cut, bytes: 500, ..BatchEnd::whole(1) };
    let run =
        |play: &mut Play, batch| play.on(Event::Ran { step: 0, batch: BatchId(batch), ran: ran.clone() });
    assert_eq!(run(&mut play, 0), "split #0+1 #1, commit 0@1+1, run 0#1");
    assert_eq!(run(&mut play, 1), "split #1+1 #2, commit 0@2+1, run 0#2");
    // A batch behind the running one does not start: its outputs could not be delivered yet.
    play.on(Event::Grew { queue: 0, head: 6 });
    play.committed(0, 0);
    assert_eq!(play.read(0, 5, 2), "");
    play.committed(0, 1);
    assert_eq!(play.on(Event::Tick), "");
}
