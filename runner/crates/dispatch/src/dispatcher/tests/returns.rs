//! Redelivery tests: play histories of jobs that are redelivered out of order.

use super::*;

const RETURNED: Event = Event::Returned { step: 0, due: Timestamp(0) };

fn none_due(next: Option<i64>) -> Event {
    Event::NoneDue { step: 0, next: next.map(Timestamp) }
}

#[test]
fn jobs_that_come_again_are_a_batch_of_their_own() {
    let mut play = Play::new(&[StepPlan { due: Some(Timestamp(0)), ..join() }], &[0, 0]);
    assert_eq!(play.start(), "read 0.r@0");
    // There may be more jobs than one read can hold.
    assert_eq!(play.read_port(0, PortInput::Redelivery, 7, 2), "#0 = r7+2, read 0.r@9, run 0#0");
    // More jobs become due while the read is open.
    play.on(RETURNED);
    assert_eq!(play.on(none_due(None)), "read 0.r@9");
    assert_eq!(play.on(none_due(None)), "");
    assert_eq!(play.ran(0, 0, 2), "commit 0@7+2");
    assert_eq!(play.on(RETURNED), "read 0.r@9");
    play.on(none_due(None));
    assert_eq!(play.committed(0, 0), "Drained");
}

#[test]
fn what_is_being_committed_is_awaited_when_a_job_that_came_again_halts_the_step() {
    let mut play = Play::new(&[StepPlan { due: Some(Timestamp(0)), ..source() }], &[]);
    assert_eq!(play.start(), "read 0@1, read 0.r@0");
    assert_eq!(play.read_port(0, PortInput::Redelivery, 7, 1), "#0 = r7+1, read 0.r@8, run 0#0");
    play.on(none_due(None));
    assert_eq!(play.read(0, 1, 2), "read 0@3, run 0#1");
    assert_eq!(play.halts(0, 0, 0), "commit 0@7+0");
    assert_eq!(play.ran(0, 1, 2), "commit 0@1+2");
    // The outputs of the other commit are for readers that may run on.
    assert_eq!(play.committed(0, 0), "");
    assert_eq!(play.committed(0, 1), "Halted");
}

#[test]
fn what_is_due_later_is_waited_for() {
    let mut play = Play::new(&[StepPlan { due: Some(Timestamp(50)), ..queue() }], &[0]);
    assert_eq!(play.start(), "");
    assert_eq!(play.dispatcher.wakes(), Some(Timestamp(50)));
    // A job with an earlier due time is written.
    assert_eq!(play.on(Event::Returned { step: 0, due: Timestamp(20) }), "");
    assert_eq!(play.dispatcher.wakes(), Some(Timestamp(20)));
    play.now = Timestamp(20);
    assert_eq!(play.on(Event::Tick), "read 0.r@0");
    assert_eq!(play.dispatcher.wakes(), None);
    assert_eq!(play.read_port(0, PortInput::Redelivery, 1, 1), "#0 = r1+1, read 0.r@2, run 0#0");
    assert_eq!(play.on(none_due(Some(50))), "");
    assert_eq!(play.ran(0, 0, 1), "commit 0@1+1");
    assert_eq!(play.committed(0, 0), "");
    // The clock is set back: the other jobs wait longer by the same time.
    play.now = Timestamp(-1000);
    assert_eq!((play.on(Event::Tick), play.dispatcher.wakes()), (String::new(), Some(Timestamp(50))));
    play.now = Timestamp(9000);
    assert_eq!(play.on(Event::Tick), "read 0.r@2");
    assert_eq!(play.on(none_due(None)), "Drained");
}

#[test]
fn what_is_due_later_is_not_waited_for_until_idle() {
    let flow = StepPlan { due: Some(Timestamp(50)), ..queue() };
    let mut play = Play::with(&[flow], &[0], BOUNDS, true);
    assert_eq!(play.start(), "Drained");
}

#[test]
fn a_step_that_stops_is_not_woken() {
    let flow = StepPlan { due: Some(Timestamp(50)), ..queue() };
    let mut play = Play::new(std::slice::from_ref(&flow), &[0]);
    play.start();
    assert_eq!(play.on(Event::Failed { step: 0 }), "Halted");
    assert_eq!(play.dispatcher.wakes(), None);
    let mut play = Play::new(&[flow], &[0]);
    play.start();
    assert_eq!(play.on(Event::Stop), "Stopped");
    assert_eq!(play.dispatcher.wakes(), None);
}
