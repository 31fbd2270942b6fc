//! Turn tests: play histories of jobs that wait for their next attempt in their turn.

use super::*;

fn turn(index: u64) -> Turn {
    Turn { index, input: 0 }
}

fn parked(index: u64, due: i64) -> Event {
    Event::Parked { step: 0, turn: turn(index), due: Timestamp(due) }
}

impl Play {
    /// Reports that the job behind the first `taken` of the batch waits for its next attempt.
    fn waits(&mut self, batch: u64, taken: usize, due: i64) -> String {
        self.ends(batch, taken, BatchCut::Waits(Timestamp(due)))
    }

    fn ends(&mut self, batch: u64, taken: usize, ending: BatchCut) -> String {
        let ran = BatchEnd { ending, ..BatchEnd::whole(taken) };
        self.on(Event::Ran { step: 0, batch: BatchId(batch), ran })
    }

    fn at(&mut self, now: i64) -> String {
        self.now = Timestamp(now);
        self.on(Event::Tick)
    }
}

#[test]
fn what_comes_behind_a_job_that_waits_runs_and_is_delivered_after_it() {
    let mut play = Play::new(&[source()], &[]);
    play.start();
    assert_eq!(play.read(0, 1, 5), "read 0@6, run 0#0");
    // Two jobs are finished, the third waits, and the rest runs at once.
    assert_eq!(play.waits(0, 2, 50), "split #0+2 #1, split #1+1 #2, commit 0@1+2, commit 0@3+1, run 0#2");
    assert_eq!(play.ran(0, 2, 2), "");
    assert_eq!(play.committed(0, 0), "");
    assert_eq!(play.on(parked(3, 50)), "");
    assert_eq!(play.committed(0, 1), "");
    assert_eq!(play.dispatcher.wakes(), Some(Timestamp(50)));
    assert_eq!(play.read(0, 6, 2), "read 0@8, run 0#3");
    assert_eq!(play.ran(0, 3, 2), "");
    assert_eq!(play.at(50), "return 0@3");
    assert_eq!(play.read_port(0, PortInput::Turn, 3, 1), "#4 = t3+1, run 0#4");
    // It fails again.
    assert_eq!(play.waits(4, 0, 90), "commit 0@3+1");
    assert_eq!(play.on(parked(3, 90)), "");
    assert_eq!(play.committed(0, 4), "");
    assert_eq!(play.at(90), "return 0@3");
    assert_eq!(play.read_port(0, PortInput::Turn, 3, 1), "#5 = t3+1, run 0#5");
    assert_eq!(play.ran(0, 5, 1), "commit 0@3+1");
    assert_eq!(play.committed(0, 5), "commit 0@4+2, commit 0@6+2");
    play.on(Event::Ended { port: PORT });
    play.committed(0, 2);
    assert_eq!(play.committed(0, 3), "Drained");
}

#[test]
fn jobs_held_behind_a_waiting_one_are_tried_again_in_memory() {
    let mut play = Play::new(&[source()], &[]);
    play.start();
    play.read(0, 1, 3);
    assert_eq!(play.waits(0, 0, 50), "split #0+1 #1, commit 0@1+1, run 0#1");
    assert_eq!(play.waits(1, 0, 20), "split #1+1 #2, run 0#2");
    play.on(parked(1, 50));
    play.committed(0, 0);
    assert_eq!(play.ran(0, 2, 1), "");
    assert_eq!(play.dispatcher.wakes(), Some(Timestamp(20)));
    assert_eq!(play.at(20), "run 0#1");
    assert_eq!(play.ran(0, 1, 1), "");
    assert_eq!(play.at(50), "return 0@1");
    play.read_port(0, PortInput::Turn, 1, 1);
    assert_eq!(play.ran(0, 3, 1), "commit 0@1+1");
    assert_eq!(play.committed(0, 3), "commit 0@2+1, commit 0@3+1");
}

#[test]
fn no_job_held_in_memory_waits_for_a_clock_that_was_set_back() {
    let mut play = Play::new(&[source()], &[]);
    play.now = Timestamp(9000);
    play.start();
    play.read(0, 1, 2);
    play.waits(0, 0, 9500);
    play.waits(1, 0, 9900);
    play.on(parked(1, 9500));
    play.committed(0, 0);
    assert_eq!(play.at(1000), "run 0#1");
}

#[test]
fn a_job_whose_turn_comes_while_it_waits_is_parked_and_holds_the_others() {
    let mut play = Play::new(&[source()], &[]);
    play.start();
    play.read(0, 1, 2);
    play.read(0, 3, 2);
    assert_eq!(play.waits(1, 0, 50), "split #1+1 #2, run 0#2");
    assert_eq!(play.ran(0, 2, 1), "");
    assert_eq!(play.ran(0, 0, 2), "commit 0@1+2, commit 0@3+1");
    play.committed(0, 0);
    play.on(parked(3, 50));
    assert_eq!(play.committed(0, 1), "");
    assert_eq!(play.on(Event::Gone { step: 0, turn: turn(3) }), "commit 0@4+1");
}

#[test]
fn a_rewound_step_runs_a_parked_job_before_it_reads_that_job_again() {
    // The step was rewound to 1 while job 2 waited for its next attempt.
    let mut play = Play::new(&[queue()], &[3]);
    play.dispatcher.park(0, turn(2), Timestamp(50));
    assert_eq!(play.start(), "read 0@1");
    assert_eq!(play.read(0, 1, 3), "");
    assert_eq!(play.at(50), "return 0@2");
    assert_eq!(play.read_port(0, PortInput::Turn, 2, 1), "#1 = t2+1, run 0#1");
    assert_eq!(play.waits(1, 0, 90), "commit 0@2+1");
    assert_eq!(play.on(parked(2, 90)), "");
    assert_eq!(play.committed(0, 1), "");
    assert_eq!(play.at(90), "return 0@2");
    play.read_port(0, PortInput::Turn, 2, 1);
    assert_eq!(play.ran(0, 2, 1), "commit 0@2+1");
    assert_eq!(play.committed(0, 2), "run 0#0");
    assert_eq!(play.ran(0, 0, 3), "commit 0@1+3");
    assert_eq!(play.committed(0, 0), "Drained");
}

#[test]
fn a_job_that_was_moved_while_it_is_read_is_read_where_it_stands() {
    let input = InputPlan { next: 8, ..queue().inputs.remove(0) };
    let mut play = Play::new(&[StepPlan { inputs: vec![input], ..queue() }], &[7]);
    play.dispatcher.park(0, turn(7), Timestamp(0));
    assert_eq!(play.start(), "return 0@7");
    assert_eq!(play.on(parked(7, 30)), "");
    assert_eq!(play.at(30), "return 0@7");
    play.read_port(0, PortInput::Turn, 7, 1);
    play.ran(0, 0, 1);
    assert_eq!(play.committed(0, 0), "Drained");
}

#[test]
fn jobs_that_stepped_aside_in_an_earlier_run_come_one_after_the_other_and_first() {
    let input = InputPlan { next: 5, ..source().inputs.remove(0) };
    let mut play = Play::new(&[StepPlan { inputs: vec![input], ..source() }], &[]);
    for (index, due) in [(4, 90), (2, 30)] {
        play.dispatcher.park(0, turn(index), Timestamp(due));
    }
    assert_eq!(play.start(), "read 0@5");
    assert_eq!(play.read(0, 5, 1), "read 0@6, run 0#0");
    assert_eq!(play.ran(0, 0, 1), "");
    assert_eq!(play.at(95), "return 0@2");
    play.read_port(0, PortInput::Turn, 2, 1);
    play.ran(0, 1, 1);
    assert_eq!(play.committed(0, 1), "return 0@4");
    play.read_port(0, PortInput::Turn, 4, 1);
    play.ran(0, 2, 1);
    assert_eq!(play.committed(0, 2), "commit 0@5+1");
}

#[test]
fn what_is_held_back_is_bounded_by_jobs_and_bytes() {
    let bounds = |jobs, bytes| Bounds { slots: 2, beside: 2, batches: 2, jobs, bytes };
    for room in [bounds(9, 1000), bounds(1000, 65)] {
        let mut play = Play::with(&[source()], &[], room, false);
        play.start();
        play.read(0, 1, 4);
        play.waits(0, 0, 50);
        play.on(parked(1, 50));
        play.committed(0, 0);
        play.ran(0, 1, 3);
        // Finished batches that are blocked do not count against the limit of two batches.
        play.read(0, 5, 2);
        play.ran(0, 2, 2);
        assert_eq!(play.read(0, 7, 2), "read 0@9, run 0#3");
        play.ran(0, 3, 2);
        assert_eq!(play.read(0, 9, 2), "run 0#4");
        assert_eq!(play.ran(0, 4, 2), "");
        // A delayed output does not need that room.
        assert_eq!(play.on(Event::Returned { step: 0, due: Timestamp(0) }), "read 0.r@0");
        assert_eq!(play.on(Event::NoneDue { step: 0, next: None }), "");
        assert_eq!(play.dispatcher.wakes(), Some(Timestamp(50)));
    }
}

#[test]
fn a_job_that_halts_behind_one_that_waits_halts_after_it() {
    let mut play = Play::new(&[source()], &[]);
    play.start();
    play.read(0, 1, 4);
    play.waits(0, 0, 50);
    assert_eq!(play.ends(1, 1, BatchCut::Halts), "");
    play.on(parked(1, 50));
    play.committed(0, 0);
    assert_eq!(play.at(50), "return 0@1");
    play.read_port(0, PortInput::Turn, 1, 1);
    play.ran(0, 2, 1);
    assert_eq!(play.committed(0, 2), "commit 0@2+1");
    assert_eq!(play.committed(0, 1), "Halted");
}

#[test]
fn a_job_whose_turn_it_is_is_begun_though_one_behind_it_halts() {
    let mut play = Play::new(&[StepPlan { before: DurabilityBarrier::Snapshot, ..source() }], &[]);
    play.start();
    play.read(0, 1, 4);
    play.begun(0, 0);
    assert_eq!(play.waits(0, 0, 50), "split #0+1 #1, commit 0@1+1, run 0#1");
    assert_eq!(play.on(Event::Returned { step: 0, due: Timestamp(0) }), "read 0.r@0");
    assert_eq!(play.ends(1, 1, BatchCut::Halts), "");
    play.on(parked(1, 50));
    play.committed(0, 0);
    // A job redelivered out of order waits for the next run.
    assert_eq!(play.read_port(0, PortInput::Redelivery, 9, 1), "#2 = r9+1");
    assert_eq!(play.at(50), "return 0@1");
    assert_eq!(play.read_port(0, PortInput::Turn, 1, 1), "#3 = t1+1, begin 0#3");
    assert_eq!(play.begun(0, 3), "run 0#3");
    assert_eq!(play.ran(0, 3, 1), "commit 0@1+1");
    assert_eq!(play.committed(0, 3), "commit 0@2+1");
    assert_eq!(play.committed(0, 1), "drop #2, Halted");
}

#[test]
fn a_closed_gate_holds_back_what_was_not_started() {
    let mut play = Play::new(&[source()], &[]);
    play.start();
    play.read(0, 1, 4);
    assert_eq!(
        play.ends(0, 1, BatchCut::Holds(Wait { since: play.now, until: Timestamp(50) })),
        "split #0+1 #1, split #1+1 #2, commit 0@1+1, commit 0@2+1"
    );
    play.committed(0, 0);
    play.on(parked(2, 50));
    assert_eq!(play.committed(0, 1), "");
    assert_eq!(play.read(0, 5, 1), "read 0@6");
    assert_eq!(play.at(50), "return 0@2, run 0#2, run 0#3");
    // A clock that was set back ends the wait.
    assert_eq!(play.ends(3, 0, BatchCut::Holds(Wait { since: play.now, until: Timestamp(90) })), "");
    play.ran(0, 2, 2);
    assert_eq!(play.read_port(0, PortInput::Turn, 2, 1), "#4 = t2+1");
    assert_eq!(play.at(-10), "run 0#4");
}

#[test]
fn what_is_held_back_when_the_run_stops_runs_again_in_the_next() {
    let mut play = Play::new(&[source()], &[]);
    play.start();
    play.read(0, 1, 4);
    play.read(0, 5, 1);
    play.waits(0, 0, 50);
    play.on(parked(1, 50));
    play.committed(0, 0);
    play.ran(0, 2, 3);
    // The running batch must finish first.
    assert_eq!(play.on(Event::Stop), "drop #2");
    assert_eq!(play.ran(0, 1, 1), "drop #1, Stopped");
}

#[test]
fn a_job_whose_turn_it_is_when_the_run_stops_is_parked() {
    let mut play = Play::new(&[source()], &[]);
    play.start();
    play.read(0, 1, 4);
    assert_eq!(play.on(Event::Stop), "");
    assert_eq!(play.waits(0, 1, 50), "split #0+1 #1, split #1+1 #2, drop #2, commit 0@1+1, commit 0@2+1");
    play.committed(0, 0);
    play.on(parked(2, 50));
    assert_eq!(play.committed(0, 1), "Stopped");
}

#[test]
fn until_idle_does_not_wait_for_what_is_held_back() {
    let mut play = Play::with(&[queue()], &[9], BOUNDS, true);
    play.start();
    play.read(0, 1, 4);
    play.waits(0, 0, 50);
    play.on(parked(1, 50));
    play.committed(0, 0);
    play.read(0, 5, 5);
    play.ran(0, 1, 3);
    assert_eq!(play.ran(0, 2, 5), "drop #1, drop #2, Drained");
}

#[test]
fn a_step_drains_though_a_job_waits_and_the_job_goes_first_when_it_is_installed_again() {
    let mut play = Play::new(&[queue()], &[5]);
    play.start();
    play.read(0, 1, 5);
    play.waits(0, 0, 50);
    play.on(parked(1, 50));
    play.committed(0, 0);
    play.ran(0, 1, 4);
    play.dispatcher.expect(true);
    assert_eq!(play.on(Event::Drain { step: 0 }), "drop #1, drained 0");
    play.dispatcher.install(0, queue());
    play.dispatcher.park(0, Turn { index: 1, input: 0 }, Timestamp(50));
    assert_eq!(play.on(Event::Tick), "read 0@1");
    play.read(0, 1, 5);
    play.ran(0, 2, 5);
    assert_eq!(play.at(50), "return 0@1");
    play.read_port(0, PortInput::Turn, 1, 1);
    play.ran(0, 3, 1);
    assert_eq!(play.committed(0, 3), "commit 0@1+5");
}

#[test]
fn a_paused_step_does_not_try_again() {
    let mut play = Play::new(&[source()], &[]);
    play.start();
    play.read(0, 1, 3);
    play.waits(0, 0, 50);
    play.on(parked(1, 50));
    play.committed(0, 0);
    play.waits(1, 0, 60);
    play.on(Event::Pause { step: 0, paused: true });
    assert_eq!(play.at(70), "");
    play.ran(0, 2, 1);
    assert_eq!(play.on(Event::Pause { step: 0, paused: false }), "return 0@1, run 0#1");
}

#[test]
fn what_can_be_seen_outside_is_not_begun_behind_a_job_that_waits() {
    let mut play = Play::new(&[StepPlan { before: DurabilityBarrier::Snapshot, ..source() }], &[]);
    play.start();
    play.read(0, 1, 4);
    assert_eq!(play.begun(0, 0), "run 0#0");
    // The rest was begun with the batch.
    assert_eq!(play.waits(0, 1, 50), "split #0+1 #1, split #1+1 #2, commit 0@1+1, commit 0@2+1, run 0#2");
    play.committed(0, 0);
    play.on(parked(2, 50));
    play.committed(0, 1);
    assert_eq!(play.read(0, 5, 2), "read 0@7");
    play.ran(0, 2, 2);
    assert_eq!(play.at(50), "return 0@2");
    // A parked job that was read again is in the store; no snapshot is written for it.
    assert_eq!(play.read_port(0, PortInput::Turn, 2, 1), "#4 = t2+1, begin 0#4");
    assert_eq!(play.begun(0, 4), "run 0#4");
    assert_eq!(play.ran(0, 4, 1), "commit 0@2+1");
    assert_eq!(play.committed(0, 4), "begin 0#3, commit 0@3+2");
}

#[test]
fn at_most_once_attempts_nothing_behind_a_job_that_may_find_the_gate_closed() {
    let mut play = Play::new(&[StepPlan { before: DurabilityBarrier::Progress, ..source() }], &[]);
    play.start();
    play.read(0, 1, 4);
    play.read(0, 5, 2);
    assert_eq!(play.begun(0, 0), "run 0#0");
    assert_eq!(play.begun(0, 1), "");
    assert_eq!(
        play.ends(0, 1, BatchCut::Holds(Wait { since: play.now, until: Timestamp(50) })),
        "split #0+1 #2, split #2+1 #3, commit 0@1+1, commit 0@2+1"
    );
    play.committed(0, 0);
    play.on(parked(2, 50));
    assert_eq!(play.committed(0, 2), "");
    // Jobs that were accounted for and not attempted are not lost.
    assert_eq!(play.on(Event::Stop), "give back 0 #3 #1, drop #3, drop #1");
    assert_eq!(play.on(Event::GivenBack { step: 0 }), "Stopped");
}

#[test]
fn jobs_that_come_again_beside_the_others_do_not_wait_for_a_turn() {
    let mut play = Play::new(&[source()], &[]);
    play.start();
    play.read(0, 1, 2);
    play.waits(0, 0, 50);
    play.on(parked(1, 50));
    play.committed(0, 0);
    play.ran(0, 1, 1);
    assert_eq!(play.on(Event::Returned { step: 0, due: Timestamp(0) }), "read 0.r@0");
    assert_eq!(play.read_port(0, PortInput::Redelivery, 1, 1), "#2 = r1+1, read 0.r@2, run 0#2");
    assert_eq!(play.ran(0, 2, 1), "commit 0@1+1");
}
