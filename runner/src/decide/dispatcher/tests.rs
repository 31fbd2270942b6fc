//! Histories: what happens on the left, what the dispatcher wants done on the right.

use proptest::prelude::*;

use super::*;

const ROOM: Room = Room { slots: 2, batches: 4, bytes: 1000 };

/// Plays events and keeps the commands as words: `read s@1`, `run 0`, `commit s 1+3`, `drop 2`.
struct Play {
    dispatcher: Dispatcher,
    commands: Vec<Command>,
    batches: u64,
}

impl Play {
    fn new(flows: &[Flow], heads: &[u64]) -> Self {
        Self::with(flows, heads, ROOM, false)
    }

    fn with(flows: &[Flow], heads: &[u64], room: Room, until_idle: bool) -> Self {
        let dispatcher = Dispatcher::new(flows.to_vec(), heads.to_vec(), room, until_idle);
        Self { dispatcher, commands: Vec::new(), batches: 0 }
    }

    fn start(&mut self) -> String {
        self.dispatcher.start(&mut self.commands);
        self.words()
    }

    fn on(&mut self, event: Event) -> String {
        self.dispatcher.handle(event, &mut self.commands);
        self.words()
    }

    fn read(&mut self, step: usize, first: u64, jobs: usize) -> String {
        let batch = BatchId(self.batches);
        self.batches += 1;
        self.on(Event::Read { step, batch, first, jobs, bytes: 10 })
    }

    fn ran(&mut self, step: usize, batch: u64, taken: usize) -> String {
        self.on(Event::Ran { step, batch: BatchId(batch), taken, halts: false, bytes: 10 })
    }

    fn halts(&mut self, step: usize, batch: u64, taken: usize) -> String {
        self.on(Event::Ran { step, batch: BatchId(batch), taken, halts: true, bytes: 10 })
    }

    fn committed(&mut self, step: usize, batch: u64) -> String {
        self.on(Event::Committed { step, batch: BatchId(batch) })
    }

    fn words(&mut self) -> String {
        let words: Vec<String> = self
            .commands
            .drain(..)
            .map(|command| match command {
                Command::Read { step, from } => format!("read {step}@{from}"),
                Command::Run { step, batch } => format!("run {step}#{}", batch.0),
                Command::Commit { step, first, taken, .. } => format!("commit {step}@{first}+{taken}"),
                Command::Drop { batch } => format!("drop #{}", batch.0),
                Command::Finish(end) => format!("{end:?}"),
            })
            .collect();
        words.join(", ")
    }
}

const SOURCE: Flow = Flow { input: FlowInput::Source, next: 1 };
const QUEUE: Flow = Flow { input: FlowInput::Queue(0), next: 1 };

#[test]
fn a_bounded_source_is_read_run_committed_and_done() {
    let mut play = Play::new(&[SOURCE], &[]);
    assert_eq!(play.start(), "read 0@1");
    assert_eq!(play.read(0, 1, 3), "read 0@4, run 0#0");
    assert_eq!(play.on(Event::Ended { step: 0 }), "");
    assert_eq!(play.ran(0, 0, 3), "commit 0@1+3");
    assert_eq!(play.committed(0, 0), "Drained");
}

#[test]
fn nothing_to_do_is_done_at_once() {
    let mut play = Play::new(&[QUEUE], &[0]);
    assert_eq!(play.start(), "Drained");
}

#[test]
fn batches_run_in_any_order_and_are_committed_in_theirs() {
    let mut play = Play::new(&[SOURCE], &[]);
    play.start();
    play.read(0, 1, 2);
    assert_eq!(play.read(0, 3, 2), "read 0@5, run 0#1");
    assert_eq!(play.ran(0, 1, 2), "");
    assert_eq!(play.ran(0, 0, 2), "commit 0@1+2, commit 0@3+2");
}

#[test]
fn no_more_is_read_than_there_is_room_for() {
    let mut play = Play::with(&[SOURCE], &[], Room { slots: 1, batches: 2, bytes: 1000 }, false);
    play.start();
    assert_eq!(play.read(0, 1, 1), "read 0@2, run 0#0");
    assert_eq!(play.read(0, 2, 1), "");
    assert_eq!(play.ran(0, 0, 1), "commit 0@1+1, run 0#1");
    assert_eq!(play.committed(0, 0), "read 0@3");
}

#[test]
fn outputs_count_against_the_room_until_they_are_committed() {
    let mut play = Play::with(&[SOURCE], &[], Room { slots: 4, batches: 9, bytes: 100 }, false);
    play.start();
    play.read(0, 1, 1);
    play.read(0, 2, 1);
    play.on(Event::Ran { step: 0, batch: BatchId(0), taken: 1, halts: false, bytes: 500 });
    assert_eq!(play.read(0, 3, 1), "run 0#2");
    assert_eq!(play.committed(0, 0), "read 0@4");
}

#[test]
fn a_queue_is_read_when_it_grows_and_downstream_goes_first() {
    let mut play = Play::with(&[SOURCE, QUEUE], &[0], Room { slots: 1, batches: 4, bytes: 1000 }, false);
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
    let mut play = Play::new(&[SOURCE], &[]);
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
    let mut play = Play::new(&[SOURCE], &[]);
    play.start();
    play.read(0, 1, 1);
    play.read(0, 2, 1);
    assert_eq!(play.halts(0, 0, 0), "commit 0@1+0");
    assert_eq!(play.committed(0, 0), "");
    assert_eq!(play.ran(0, 1, 1), "Halted");
}

#[test]
fn other_steps_go_on_beside_a_halted_one() {
    let mut play = Play::new(&[SOURCE, SOURCE], &[]);
    play.start();
    play.read(0, 1, 1);
    play.read(1, 1, 1);
    play.on(Event::Ended { step: 1 });
    play.halts(0, 0, 0);
    assert_eq!(play.committed(0, 0), "");
    assert_eq!(play.ran(1, 1, 1), "commit 1@1+1");
    assert_eq!(play.committed(1, 1), "Halted");
}

#[test]
fn a_delivery_that_is_refused_halts_the_step_at_once() {
    let mut play = Play::new(&[SOURCE], &[]);
    play.start();
    play.read(0, 1, 1);
    play.read(0, 2, 1);
    play.ran(0, 0, 1);
    play.ran(0, 1, 1);
    assert_eq!(play.on(Event::Failed { step: 0 }), "drop #0, drop #1, Halted");
}

#[test]
fn a_step_that_cannot_begin_does_not_keep_the_others_from_their_work() {
    let mut play = Play::new(&[SOURCE, SOURCE], &[]);
    play.dispatcher.exclude(0);
    assert_eq!(play.start(), "read 1@1");
    assert_eq!(play.on(Event::Ended { step: 1 }), "Halted");
}

#[test]
fn what_a_broken_source_has_given_is_worked_off() {
    let mut play = Play::new(&[SOURCE], &[]);
    play.start();
    play.read(0, 1, 1);
    assert_eq!(play.on(Event::Broken { step: 0 }), "");
    assert_eq!(play.ran(0, 0, 1), "commit 0@1+1");
    assert_eq!(play.committed(0, 0), "Halted");
}

#[test]
fn stopping_finishes_what_runs_and_starts_nothing() {
    let mut play = Play::with(&[SOURCE], &[], Room { slots: 1, batches: 4, bytes: 1000 }, false);
    play.start();
    play.read(0, 1, 1);
    play.read(0, 2, 1);
    assert_eq!(play.on(Event::Stop), "drop #1");
    assert_eq!(play.read(0, 3, 1), "drop #2");
    assert_eq!(play.ran(0, 0, 1), "commit 0@1+1");
    assert_eq!(play.committed(0, 0), "Stopped");
}

#[test]
fn a_followed_source_ends_only_when_asked_to_end_idle() {
    let mut play = Play::new(&[SOURCE], &[]);
    play.start();
    assert_eq!(play.on(Event::Idle { step: 0 }), "");
    assert_eq!(play.read(0, 1, 1), "read 0@2, run 0#0");
    let mut play = Play::with(&[SOURCE], &[], ROOM, true);
    play.start();
    assert_eq!(play.on(Event::Idle { step: 0 }), "Drained");
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
        let mut dispatcher = Dispatcher::new(vec![SOURCE], vec![], Room { slots: 3, batches: 5, bytes: 100 }, false);
        let mut commands = Vec::new();
        dispatcher.start(&mut commands);
        let (mut possible, mut committed, mut finished): (Vec<Event>, Vec<u64>, Option<End>) = Default::default();
        let (mut spans, mut sizes, mut choices) = (Vec::new(), sizes.into_iter(), choices.into_iter());
        let total: u64 = sizes.clone().map(|size| size as u64).sum();
        loop {
            for command in commands.drain(..) {
                match command {
                    Command::Read { from, .. } => match sizes.next() {
                        Some(jobs) => {
                            let batch = BatchId(spans.len() as u64);
                            spans.push((from, jobs));
                            possible.push(Event::Read { step: 0, batch, first: from, jobs, bytes: 9 });
                        }
                        None => possible.push(Event::Ended { step: 0 }),
                    },
                    Command::Run { batch, .. } => {
                        let (first, jobs): (u64, usize) = spans[usize::try_from(batch.0).unwrap()];
                        let halt = halt_at.filter(|at| (first..first + jobs as u64).contains(at));
                        let taken = halt.map_or(jobs, |at| usize::try_from(at - first).unwrap());
                        possible.push(Event::Ran { step: 0, batch, taken, halts: halt.is_some(), bytes: 9 });
                    }
                    Command::Commit { batch, first, taken, .. } => {
                        committed.extend(first..first + taken as u64);
                        possible.push(Event::Committed { step: 0, batch });
                    }
                    Command::Drop { .. } => {}
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
            dispatcher.handle(event, &mut commands);
        }
        let last = halt_at.map_or(total, |at| total.min(at - 1));
        prop_assert_eq!(committed, (1..=last).collect::<Vec<_>>());
        let halted = halt_at.is_some_and(|at| at <= total);
        prop_assert_eq!(finished, Some(if halted { End::Halted } else { End::Drained }));
    }
}
