//! Histories: what happens on the left, what the dispatcher wants done on the right.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const BOUNDS: Bounds = Bounds { slots: 2, batches: 4, bytes: 1000 };

/// Plays events and keeps the commands as words: `read 0@1`, `run 0#0`, `commit 0@1+3`, `drop #2`; how
/// a batch is made up is told where it has several parts: `#1 = a1+2 b1+2`.
struct Play {
    dispatcher: Dispatcher,
    now: Timestamp,
    commands: Vec<Command>,
    /// By read: the index of its first job.
    reads: Vec<u64>,
    /// By batch: input, first job, and how many, in order.
    batches: BTreeMap<BatchId, Vec<(usize, u64, usize)>>,
}

impl Play {
    fn new(flows: &[Flow], heads: &[u64]) -> Self {
        Self::with(flows, heads, BOUNDS, false)
    }

    fn with(flows: &[Flow], heads: &[u64], room: Bounds, until_idle: bool) -> Self {
        let dispatcher = Dispatcher::new(flows.to_vec(), heads.to_vec(), room, until_idle);
        let now = Timestamp(0);
        Self { dispatcher, now, commands: Vec::new(), reads: Vec::new(), batches: BTreeMap::new() }
    }

    fn start(&mut self) -> String {
        self.dispatcher.start(self.now, &mut self.commands);
        self.words()
    }

    fn on(&mut self, event: Event) -> String {
        self.dispatcher.handle(event, self.now, &mut self.commands);
        self.words()
    }

    fn read(&mut self, step: usize, first: u64, jobs: usize) -> String {
        self.read_from(step, 0, first, jobs)
    }

    fn read_from(&mut self, step: usize, input: usize, first: u64, jobs: usize) -> String {
        let read = ReadId(self.reads.len() as u64);
        self.reads.push(first);
        self.on(Event::Read { port: Port { step, input }, read, first, jobs, bytes: 10 })
    }

    fn ran(&mut self, step: usize, batch: u64, taken: usize) -> String {
        self.on(Event::Ran { step, batch: BatchId(batch), taken, halts: false, bytes: 10, ends: Vec::new() })
    }

    fn halts(&mut self, step: usize, batch: u64, taken: usize) -> String {
        self.on(Event::Ran { step, batch: BatchId(batch), taken, halts: true, bytes: 10, ends: Vec::new() })
    }

    fn committed(&mut self, step: usize, batch: u64) -> String {
        self.on(Event::Committed { step, batch: BatchId(batch) })
    }

    fn begun(&mut self, step: usize, batch: u64) -> String {
        self.on(Event::Begun { step, batch: BatchId(batch) })
    }

    fn words(&mut self) -> String {
        let commands: Vec<Command> = self.commands.drain(..).collect();
        for command in &commands {
            if let &Command::Part { batch, port, read, skip, jobs } = command {
                let first = self.reads[usize::try_from(read.0).unwrap()] + skip as u64;
                self.batches.entry(batch).or_default().push((port.input, first, jobs));
            }
        }
        let mut told = BTreeSet::new();
        let words = commands.into_iter().filter_map(|command| {
            Some(match command {
                Command::Read { port: Port { step, input: 0 }, from } => format!("read {step}@{from}"),
                Command::Read { port: Port { step, input }, from } => format!("read {step}.{input}@{from}"),
                Command::Part { batch, .. } => {
                    let parts = &self.batches[&batch];
                    if parts.len() == 1 && parts[0].0 == 0 || !told.insert(batch) {
                        return None;
                    }
                    let name = |input: usize| char::from(b'a' + u8::try_from(input).unwrap());
                    let part = |&(input, first, jobs): &(usize, u64, usize)| {
                        format!("{}{first}+{jobs}", name(input))
                    };
                    format!("#{} = {}", batch.0, parts.iter().map(part).collect::<Vec<_>>().join(" "))
                }
                Command::Forget { .. } | Command::Passed { .. } => return None,
                Command::Begin { step, batch, .. } => format!("begin {step}#{}", batch.0),
                Command::Run { step, batch } => format!("run {step}#{}", batch.0),
                Command::Commit { step, batch, taken } => {
                    format!("commit {step}@{}+{taken}", self.batches[&batch][0].1)
                }
                Command::Drop { batch } => format!("drop #{}", batch.0),
                Command::Rewind { step } => format!("rewind {step}"),
                Command::Pick { step, batch, jobs } => {
                    let keys: Vec<String> = jobs.iter().map(|key| key.0.to_string()).collect();
                    format!("pick {step}#{} {}", batch.0, keys.join("+"))
                }
                Command::LookAtGate { step } => format!("look {step}"),
                Command::Finish(end) => format!("{end:?}"),
            })
        });
        words.collect::<Vec<_>>().join(", ")
    }
}

fn flow(gather: Gather, feeds: &[Feed]) -> Flow {
    let inputs = feeds.iter().map(|&feed| FlowInput { feed, next: 1, finished: Vec::new() }).collect();
    Flow { gather, inputs, due: None, picking: None, before: Before::Nothing, redo: Vec::new() }
}

fn source() -> Flow {
    flow(Gather::Any, &[Feed::Source])
}

fn queue() -> Flow {
    flow(Gather::Any, &[Feed::Queue(0)])
}

fn join() -> Flow {
    flow(Gather::Each, &[Feed::Queue(0), Feed::Queue(1)])
}

const PORT: Port = Port { step: 0, input: 0 };

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
    let input = FlowInput { next: 2, finished: finished.clone(), ..queue().inputs.remove(0) };
    let mut play = Play::new(&[Flow { inputs: vec![input.clone()], ..queue() }], &[13]);
    assert_eq!(play.start(), "read 0@2");
    assert_eq!(play.read(0, 2, 6), "read 0@8, run 0#0, run 0#1");
    assert_eq!(play.ran(0, 0, 1), "commit 0@2+1");
    assert_eq!(play.ran(0, 1, 1), "commit 0@5+1");
    // All of it is.
    assert_eq!(play.read(0, 8, 2), "read 0@10");
    assert_eq!(play.read(0, 10, 4), "run 0#2, run 0#3");
    assert_eq!(play.batches[&BatchId(2)], [(0, 10, 1)]);
    assert_eq!(play.batches[&BatchId(3)], [(0, 12, 2)]);
    play.ran(0, 2, 1);
    assert_eq!(play.ran(0, 3, 2), "commit 0@12+2");
    play.committed(0, 0);
    play.committed(0, 1);
    play.committed(0, 2);
    assert_eq!(play.committed(0, 3), "Drained");

    // What a join takes together are the next ones of each that are left.
    let other = join().inputs.remove(1);
    let mut play = Play::new(&[Flow { inputs: vec![input, other], ..join() }], &[5, 2]);
    play.start();
    play.read_from(0, 0, 2, 4);
    assert_eq!(play.read_from(0, 1, 1, 2), "#0 = a2+1 b1+1, #1 = a5+1 b2+1, run 0#0, run 0#1");
}

#[test]
fn what_is_put_back_is_run_again_with_what_was_finished_behind_it() {
    let input = FlowInput { next: 2, finished: vec![(3, 3)], ..queue().inputs.remove(0) };
    let mut play = Play::new(&[Flow { inputs: vec![input], ..queue() }], &[3]);
    assert_eq!(play.start(), "read 0@2");
    assert_eq!(play.on(Event::Rewind { step: 0 }), "");
    assert_eq!(play.on(Event::Idle { port: PORT }), "rewind 0");
    play.dispatcher.rewound(0, &[1], play.now, &mut play.commands);
    assert_eq!(play.words(), "read 0@1");
    play.read(0, 1, 3);
    assert_eq!(play.batches[&BatchId(0)], [(0, 1, 3)]);
}

#[test]
fn nothing_to_do_is_done_at_once() {
    let mut play = Play::new(&[queue()], &[0]);
    assert_eq!(play.start(), "Drained");
}

#[test]
fn a_queue_that_is_filled_from_outside_is_waited_for() {
    let pushed = [flow(Gather::Any, &[Feed::Pushed(0)])];
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
    let mut play = Play::with(&[source()], &[], Bounds { slots: 1, batches: 2, bytes: 1000 }, false);
    play.start();
    assert_eq!(play.read(0, 1, 1), "read 0@2, run 0#0");
    assert_eq!(play.read(0, 2, 1), "");
    assert_eq!(play.ran(0, 0, 1), "commit 0@1+1, run 0#1");
    assert_eq!(play.committed(0, 0), "read 0@3");
}

#[test]
fn outputs_count_against_the_room_until_they_are_committed() {
    let mut play = Play::with(&[source()], &[], Bounds { slots: 4, batches: 9, bytes: 100 }, false);
    play.start();
    play.read(0, 1, 1);
    play.read(0, 2, 1);
    play.on(Event::Ran { step: 0, batch: BatchId(0), taken: 1, halts: false, bytes: 500, ends: Vec::new() });
    assert_eq!(play.read(0, 3, 1), "run 0#2");
    assert_eq!(play.committed(0, 0), "read 0@4");
}

#[test]
fn a_queue_is_read_when_it_grows_and_downstream_goes_first() {
    let mut play =
        Play::with(&[source(), queue()], &[0], Bounds { slots: 1, batches: 4, bytes: 1000 }, false);
    assert_eq!(play.start(), "read 0@1");
    assert_eq!(play.read(0, 1, 2), "read 0@3, run 0#0");
    assert_eq!(play.read(0, 3, 2), "read 0@5");
    assert_eq!(play.ran(0, 0, 2), "commit 0@1+2, run 0#1");
    play.committed(0, 0);
    assert_eq!(play.on(Event::Grew { queue: 0, head: 2 }), "read 1@1");
    assert_eq!(play.read(1, 1, 2), "");
    assert_eq!(play.read(0, 5, 1), "read 0@6");
    // Both wait for the one worker; the step behind the queue has the right of way.
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
    play.on(Event::Ended { port: Port { step: 1, input: 0 } });
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
    assert_eq!(play.on(Event::Ended { port: Port { step: 1, input: 0 } }), "Halted");
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
    let mut play = Play::with(&[source()], &[], Bounds { slots: 1, batches: 4, bytes: 1000 }, false);
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
fn a_join_takes_as_many_of_each_and_leaves_the_rest() {
    let mut play = Play::new(&[join()], &[5, 3]);
    assert_eq!(play.start(), "read 0@1, read 0.1@1");
    assert_eq!(play.read_from(0, 0, 1, 5), "");
    assert_eq!(play.read_from(0, 1, 1, 2), "#0 = a1+2 b1+2, read 0.1@3, run 0#0");
    assert_eq!(play.read_from(0, 1, 3, 1), "#1 = a3+1 b3+1, run 0#1");
    assert_eq!(play.ran(0, 0, 2), "commit 0@1+2");
    assert_eq!(play.ran(0, 1, 1), "commit 0@3+1");
    play.committed(0, 0);
    // Jobs 4 and 5 of the first wait for partners that nobody makes any more.
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
    let room = Bounds { slots: 2, batches: 2, bytes: 15 };
    let mut play = Play::with(&[source(), join()], &[9, 0], room, false);
    play.start();
    play.read_from(1, 0, 1, 2);
    play.read_from(1, 0, 3, 2);
    assert_eq!(play.on(Event::Grew { queue: 1, head: 1 }), "read 1.1@1");
}

#[test]
fn alternatives_are_taken_as_they_come() {
    let mut play = Play::new(&[flow(Gather::Any, &[Feed::Queue(0), Feed::Queue(1)])], &[2, 1]);
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
    let mut play = Play::new(&[Flow { before: Before::Snapshot, ..source() }], &[]);
    play.start();
    assert_eq!(play.read(0, 1, 2), "begin 0#0, read 0@3");
    assert_eq!(play.begun(0, 0), "run 0#0");
    assert_eq!(play.ran(0, 0, 2), "commit 0@1+2");
}

#[test]
fn what_is_begun_is_seen_through_when_the_run_is_stopped() {
    let mut play = Play::new(&[Flow { before: Before::Progress, ..source() }], &[]);
    play.start();
    play.read(0, 1, 2);
    play.read(0, 3, 2);
    play.read(0, 5, 2);
    assert_eq!(play.on(Event::Stop), "drop #2");
    assert_eq!(play.begun(0, 0), "run 0#0");
    assert_eq!(play.begun(0, 1), "run 0#1");
    play.ran(0, 0, 2);
    play.ran(0, 1, 2);
    play.committed(0, 0);
    assert_eq!(play.committed(0, 1), "Stopped");
}

#[test]
fn a_batch_that_was_begun_is_formed_again_just_as_it_was() {
    let redo = vec![Redo { number: 4, inputs: vec![(1, 1)], jobs: 3 }];
    let alts = flow(Gather::Any, &[Feed::Queue(0), Feed::Queue(1)]);
    let mut play = Play::new(&[Flow { before: Before::Snapshot, redo, ..alts }], &[2, 5]);
    assert_eq!(play.start(), "read 0@1, read 0.1@1");
    assert_eq!(play.read_from(0, 0, 1, 2), "");
    assert_eq!(play.read_from(0, 1, 1, 2), "read 0.1@3");
    // It runs at once, since its snapshot is there; what follows has to be begun first.
    assert_eq!(play.read_from(0, 1, 3, 2), "#4 = b1+2 b3+1, #6 = b4+1, begin 0#5, read 0.1@5, run 0#4");
}

#[test]
fn a_batch_whose_jobs_are_gone_is_not_formed_again() {
    let redo = vec![Redo { number: 0, inputs: vec![(0, 1)], jobs: 3 }];
    let mut play = Play::new(&[Flow { before: Before::Snapshot, redo, ..source() }], &[]);
    play.start();
    assert_eq!(play.read(0, 1, 2), "read 0@3");
    assert_eq!(play.on(Event::Ended { port: PORT }), "begin 0#1");
}

const RETURNED: Event = Event::Returned { step: 0, due: Timestamp(0) };

fn none_due(next: Option<i64>) -> Event {
    Event::NoneDue { step: 0, next: next.map(Timestamp) }
}

#[test]
fn jobs_that_come_again_are_a_batch_of_their_own() {
    let mut play = Play::new(&[Flow { due: Some(Timestamp(0)), ..join() }], &[0, 0]);
    assert_eq!(play.start(), "read 0.2@0");
    // There may be more than one read holds.
    assert_eq!(play.read_from(0, 2, 7, 2), "#0 = c7+2, read 0.2@9, run 0#0");
    // More come while it is looked for them.
    play.on(RETURNED);
    assert_eq!(play.on(none_due(None)), "read 0.2@9");
    assert_eq!(play.on(none_due(None)), "");
    assert_eq!(play.ran(0, 0, 2), "commit 0@7+2");
    assert_eq!(play.on(RETURNED), "read 0.2@9");
    play.on(none_due(None));
    assert_eq!(play.committed(0, 0), "Drained");
}

#[test]
fn what_is_due_later_is_waited_for() {
    let mut play = Play::new(&[Flow { due: Some(Timestamp(50)), ..queue() }], &[0]);
    assert_eq!(play.start(), "");
    assert_eq!(play.dispatcher.wakes(play.now), Some(Timestamp(50)));
    // An earlier one is written.
    assert_eq!(play.on(Event::Returned { step: 0, due: Timestamp(20) }), "");
    assert_eq!(play.dispatcher.wakes(play.now), Some(Timestamp(20)));
    play.now = Timestamp(20);
    assert_eq!(play.on(Event::Tick), "read 0.1@0");
    assert_eq!(play.dispatcher.wakes(play.now), None);
    assert_eq!(play.read_from(0, 1, 1, 1), "#0 = b1+1, read 0.1@2, run 0#0");
    assert_eq!(play.on(none_due(Some(50))), "");
    assert_eq!(play.ran(0, 0, 1), "commit 0@1+1");
    assert_eq!(play.committed(0, 0), "");
    // The clock is set back: the others wait that much longer.
    play.now = Timestamp(-1000);
    assert_eq!((play.on(Event::Tick), play.dispatcher.wakes(play.now)), (String::new(), Some(Timestamp(50))));
    play.now = Timestamp(9000);
    assert_eq!(play.on(Event::Tick), "read 0.1@2");
    assert_eq!(play.on(none_due(None)), "Drained");
}

#[test]
fn what_is_due_later_is_not_waited_for_until_idle() {
    let flow = Flow { due: Some(Timestamp(50)), ..queue() };
    let mut play = Play::with(&[flow], &[0], BOUNDS, true);
    assert_eq!(play.start(), "Drained");
}

#[test]
fn a_step_that_stops_is_not_woken() {
    let flow = Flow { due: Some(Timestamp(50)), ..queue() };
    let mut play = Play::new(std::slice::from_ref(&flow), &[0]);
    play.start();
    assert_eq!(play.on(Event::Failed { step: 0 }), "Halted");
    assert_eq!(play.dispatcher.wakes(play.now), None);
    let mut play = Play::new(&[flow], &[0]);
    play.start();
    assert_eq!(play.on(Event::Stop), "Stopped");
    assert_eq!(play.dispatcher.wakes(play.now), None);
}

#[test]
fn progress_is_put_back_when_nothing_is_on_its_way() {
    let mut play = Play::new(&[queue()], &[9]);
    play.start();
    assert_eq!(play.read(0, 1, 5), "read 0@6, run 0#0");
    assert_eq!(play.on(Event::Rewind { step: 0 }), "");
    assert_eq!(play.read(0, 6, 4), "");
    assert_eq!(play.ran(0, 0, 5), "commit 0@1+5");
    assert_eq!(play.committed(0, 0), "rewind 0");
    play.dispatcher.rewound(0, &[3], play.now, &mut play.commands);
    assert_eq!(play.words(), "read 0@3");
}

#[test]
fn what_was_to_be_formed_again_is_formed_anew_when_progress_was_put_back() {
    let redo = vec![Redo { number: 4, inputs: vec![(0, 1)], jobs: 3 }];
    let mut play = Play::new(&[Flow { before: Before::Snapshot, redo, ..queue() }], &[5]);
    assert_eq!(play.start(), "read 0@1");
    play.on(Event::Rewind { step: 0 });
    assert_eq!(play.read(0, 1, 2), "rewind 0");
    play.dispatcher.rewound(0, &[1], play.now, &mut play.commands);
    assert_eq!(play.words(), "read 0@1");
    // Its snapshot went with the progress, so that it needs another one.
    assert_eq!(play.read(0, 1, 5), "begin 0#5");
}

proptest! {
    /// Whatever the order in which workers and readers answer: each job is committed once, in
    /// order, up to the one that halts, and the run ends.
    #[test]
    fn every_job_is_committed_once_and_in_order(
        sizes in prop::collection::vec(1_usize..4, 0..12),
        choices in prop::collection::vec(any::<prop::sample::Index>(), 0..400),
        halt_at in prop::option::of(1_u64..30),
    ) {
        let mut dispatcher = Dispatcher::new(vec![source()], vec![], Bounds { slots: 3, batches: 5, bytes: 100 }, false);
        let mut commands = Vec::new();
        dispatcher.start(Timestamp(0), &mut commands);
        let (mut possible, mut committed, mut finished): (Vec<Event>, Vec<u64>, Option<End>) = Default::default();
        let (mut reads, mut spans) = (Vec::new(), BTreeMap::new());
        let (mut sizes, mut choices) = (sizes.into_iter(), choices.into_iter());
        let total: u64 = sizes.clone().map(|size| size as u64).sum();
        loop {
            for command in commands.drain(..) {
                match command {
                    Command::Read { from, .. } => match sizes.next() {
                        Some(jobs) => {
                            let read = ReadId(reads.len() as u64);
                            reads.push(from);
                            possible.push(Event::Read { port: PORT, read, first: from, jobs, bytes: 9 });
                        }
                        None => possible.push(Event::Ended { port: PORT }),
                    },
                    Command::Part { batch, read, skip, jobs, .. } => {
                        let first: u64 = reads[usize::try_from(read.0).unwrap()];
                        spans.insert(batch, (first + skip as u64, jobs));
                    }
                    Command::Run { batch, .. } => {
                        let (first, jobs) = spans[&batch];
                        let halt = halt_at.filter(|at| (first..first + jobs as u64).contains(at));
                        let taken = halt.map_or(jobs, |at| usize::try_from(at - first).unwrap());
                        possible.push(Event::Ran { step: 0, batch, taken, halts: halt.is_some(), bytes: 9, ends: Vec::new() });
                    }
                    Command::Commit { batch, taken, .. } => {
                        let (first, _) = spans[&batch];
                        committed.extend(first..first + taken as u64);
                        possible.push(Event::Committed { step: 0, batch });
                    }
                    Command::Begin { .. }
                    | Command::Rewind { .. }
                    | Command::Pick { .. }
                    | Command::LookAtGate { .. }
                    | Command::Passed { .. } => unreachable!(),
                    Command::Drop { .. } | Command::Forget { .. } => {}
                    Command::Finish(end) => finished = Some(end),
                }
            }
            if possible.is_empty() {
                break;
            }
            let mut at = choices.next().map_or(0, |choice| choice.index(possible.len()));
            // The committer answers in order.
            if matches!(possible[at], Event::Committed { .. }) {
                at = possible.iter().position(|event| matches!(event, Event::Committed { .. })).unwrap();
            }
            let event = possible.remove(at);
            dispatcher.handle(event, Timestamp(0), &mut commands);
        }
        let last = halt_at.map_or(total, |at| total.min(at - 1));
        prop_assert_eq!(committed, (1..=last).collect::<Vec<_>>());
        let halted = halt_at.is_some_and(|at| at <= total);
        prop_assert_eq!(finished, Some(if halted { End::Halted } else { End::Drained }));
    }
}

#[test]
fn a_glance_counts_what_is_read_and_what_is_behind_it() {
    let mut play = Play::with(&[queue()], &[20], Bounds { slots: 1, ..BOUNDS }, false);
    let glance = |play: &Play| {
        let Glance { inputs, running, picked } = play.dispatcher.glance(0, 9, Timestamp(0));
        assert_eq!(picked, None);
        (inputs[0].jobs, inputs[0].first, running)
    };
    play.start();
    assert_eq!(glance(&play), (20, Some(1), 0));
    play.read(0, 1, 3);
    assert_eq!(glance(&play), (17, Some(4), 3));
    // No worker is free for it.
    play.read(0, 4, 5);
    assert_eq!(glance(&play), (17, Some(4), 3));
    play.ran(0, 0, 3);
    assert_eq!(glance(&play), (12, Some(9), 8));
    play.committed(0, 0);
    assert_eq!(glance(&play), (12, Some(9), 5));
}
