//! Histories of a job consumer: a worker processes at most three jobs at once, and reports them in any order.
//!
//! | word of a history | meaning |
//! | --- | --- |
//! | `+1` | job 1 arrives |
//! | `1*` | the worker reports job 1 as done |
//! | `stop` | the run ends |
//! | `restart` | a new run begins with the durable progress |
//!
//! | word of the result | meaning |
//! | --- | --- |
//! | `3#` | the watermark |
//! | `4!` | job 4 is being processed |
//! | `5*` | job 5 is done, behind one that is not |
//! | `6` | job 6 waits |
//!
//! Each history is played twice: with a worker whose attempt lasts until the job is done, and with an external worker
//! that takes the job and reports later.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU32;

use super::*;
use tidegate_model::Progress;

/// How a job is processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worker {
    /// The attempt ends when the job is done.
    Command,
    /// The attempt ends when an external system has the job, which is pending from then on.
    Outside,
}

struct Consumer {
    dispatcher: Dispatcher,
    worker: Worker,
    search_ahead: u64,
    ordered: bool,
    /// Number of jobs that have arrived.
    head: u64,
    batches: BTreeMap<BatchId, (Vec<u64>, JobOutcome)>,
    running: BTreeMap<u64, BatchId>,
    pending: BTreeSet<u64>,
    /// Jobs that were started, in the order of their starts.
    started: Vec<u64>,
    /// Jobs by the order of their deliveries.
    delivered: Vec<u64>,
    /// Jobs that the worker has reported as done.
    reported: BTreeSet<u64>,
    ended: bool,
}

impl Consumer {
    fn new(worker: Worker, search_ahead: u64, ordered: bool) -> Self {
        let mut consumer = Self {
            dispatcher: Dispatcher::of(&[], &[], BOUNDS, false),
            worker,
            search_ahead,
            ordered,
            head: 0,
            batches: BTreeMap::new(),
            running: BTreeMap::new(),
            pending: BTreeSet::new(),
            started: Vec::new(),
            delivered: Vec::new(),
            reported: BTreeSet::new(),
            ended: false,
        };
        consumer.start(Progress::default());
        consumer
    }

    /// Begins a run that has accounted for these jobs.
    fn start(&mut self, progress: Progress) {
        let three = NonZeroU32::new(3);
        let (max_processing, max_pending) = match self.worker {
            Worker::Command => (three, None),
            Worker::Outside => (None, three),
        };
        let rules = QueuePolicy { max_processing, max_pending, ..picking().rules };
        let next = progress.position() + 1;
        let (ordered, search_ahead) = (self.ordered, self.search_ahead);
        let picking = QueuePlan { rules, ordered, search_ahead, progress, ..picking() };
        let plan = StepPlan {
            gather: BatchComposition::Merge,
            inputs: vec![InputPlan { feed: InputKind::Pushed(0), next, finished: Vec::new() }],
            due: None,
            before: DurabilityBarrier::Nothing,
            picking: Some(picking),
            redo: Vec::new(),
            fills: Vec::new(),
        };
        self.dispatcher = Dispatcher::of(&[plan], &[self.head], BOUNDS, false);
        for &index in &self.pending {
            let job = JobAttributes::new(JobKey::stored(index), i64::try_from(index).unwrap());
            let job = JobAttributes { index: Some(index), ..job };
            self.dispatcher.saw(0, &job, WaitingState::Pending);
        }
        let mut commands = Vec::new();
        self.dispatcher.start(Timestamp(0), &mut commands);
        self.carry_out(commands);
    }

    fn play(&mut self, history: &str) {
        for word in history.split_whitespace() {
            match word {
                "stop" => self.handle(Event::Stop),
                "restart" => self.restart(),
                _ => match word.strip_prefix('+') {
                    Some(index) => {
                        self.head = index.parse().unwrap();
                        self.handle(Event::Grew { queue: 0, head: self.head });
                    }
                    None => self.report(word.trim_end_matches('*').parse().unwrap()),
                },
            }
        }
    }

    /// The process dies: jobs that are being processed begin again, and pending ones stay with the external system.
    fn restart(&mut self) {
        let mut progress = Progress::default();
        for &index in self.delivered.iter().chain(&self.pending) {
            progress.finish(index, index);
        }
        self.batches.clear();
        self.running.clear();
        self.started.clear();
        if self.worker == Worker::Command {
            self.reported = self.delivered.iter().copied().collect();
        }
        self.start(progress);
    }

    /// The worker reports that a job is done.
    fn report(&mut self, index: u64) {
        self.reported.insert(index);
        if let Some(batch) = self.running.remove(&index) {
            let ran = BatchEnd::picked(&[JobOutcome::Finished]);
            return self.handle(Event::Ran { step: 0, batch, ran });
        }
        // A job that is not pending is reported without effect.
        if !self.pending.remove(&index) {
            return;
        }
        let stored = self.dispatcher.state(0, JobKey::stored(index)).is_some();
        let key = if stored { JobKey::stored(index) } else { JobKey::fresh(index) };
        let mut commands = Vec::new();
        let job = SettledJob { key, resubmits: false };
        self.dispatcher.settle(0, &[job], Timestamp(0), &mut commands);
        self.carry_out(commands);
    }

    fn handle(&mut self, event: Event) {
        let mut commands = Vec::new();
        self.dispatcher.handle(event, Timestamp(0), &mut commands);
        self.carry_out(commands);
    }

    fn carry_out(&mut self, commands: Vec<Command>) {
        let mut waiting = VecDeque::from(commands);
        while let Some(command) = waiting.pop_front() {
            let event = match command {
                Command::Read { port, from } => {
                    for index in from..=self.head {
                        let job = JobAttributes::new(JobKey::fresh(index), i64::try_from(index).unwrap());
                        self.dispatcher.saw(0, &job, WaitingState::Waiting);
                    }
                    let jobs = usize::try_from(self.head + 1 - from).unwrap();
                    Event::Read { port, read: ReadId(from), first: from, jobs, bytes: 0 }
                }
                Command::FetchJobs { step, batch, jobs } => {
                    let index = |key: &JobKey| key.0 & !JobKey::stored(0).0;
                    let jobs = jobs.iter().map(index).collect();
                    self.batches.insert(batch, (jobs, JobOutcome::Finished));
                    Event::Picked { step, batch, bytes: 0 }
                }
                Command::Run { step, batch, .. } => {
                    let (jobs, outcome) = self.batches.get_mut(&batch).unwrap();
                    if !jobs.iter().all(|index| self.reported.contains(index)) {
                        self.started.extend(&*jobs);
                        if self.worker == Worker::Command {
                            self.running.extend(jobs.iter().map(|&index| (index, batch)));
                            continue;
                        }
                        *outcome = JobOutcome::Pending;
                    }
                    Event::Ran { step, batch, ran: BatchEnd::picked(&vec![*outcome; jobs.len()]) }
                }
                Command::Commit { step, batch, .. } => {
                    let (jobs, outcome) = self.batches.remove(&batch).unwrap();
                    match outcome {
                        JobOutcome::Pending => self.pending.extend(jobs),
                        _ => self.delivered.extend(jobs),
                    }
                    Event::Committed { step, batch }
                }
                Command::Finish(_) => {
                    self.ended = true;
                    continue;
                }
                _ => continue,
            };
            let mut more = Vec::new();
            self.dispatcher.handle(event, Timestamp(0), &mut more);
            waiting.extend(more);
        }
    }

    /// State of the jobs as words.
    fn state(&self) -> String {
        let watermark = self.dispatcher.job_counts(0, 0, Timestamp(0)).unwrap().watermark.unwrap();
        let mut words = vec![format!("{watermark}#")];
        for index in watermark + 1..=self.head {
            let is_done = self.reported.contains(&index) || self.delivered.contains(&index);
            let is_processed = self.running.contains_key(&index) || self.pending.contains(&index);
            let mark = if is_processed {
                "!"
            } else if is_done {
                "*"
            } else {
                ""
            };
            words.push(format!("{index}{mark}"));
        }
        words.join(" ")
    }
}

const BOUNDS: Bounds = Bounds { slots: 9, beside: 9, batches: 9, jobs: 1000, bytes: 1000 };

/// Asserts the state after a history, for both workers, and with results in the order of the input too.
fn assert_history(search_ahead: u64, history: &str, state: &str) {
    for worker in [Worker::Command, Worker::Outside] {
        for ordered in [false, true] {
            let mut consumer = Consumer::new(worker, search_ahead, ordered);
            consumer.play(history);
            assert_eq!(consumer.state(), state, "{history}, {worker:?}, ordered: {ordered}");
            if ordered {
                assert!(consumer.delivered.is_sorted(), "{:?}", consumer.delivered);
            }
        }
    }
}

#[test]
fn jobs_are_processed_as_they_arrive() {
    assert_history(0, "", "0#");
    assert_history(0, "+1", "0# 1!");
    assert_history(0, "+1 1*", "1#");
    assert_history(0, "+1 +2 1* 2*", "2#");
}

#[test]
fn a_job_behind_three_that_are_processed_waits() {
    assert_history(0, "+1 +2 +3 +4", "0# 1! 2! 3! 4");
    assert_history(0, "+1 +2 +3 +4 3*", "0# 1! 2! 3* 4!");
    assert_history(0, "+1 +2 +3 +4 3* 2* +5", "0# 1! 2* 3* 4! 5!");
    assert_history(0, "+1 +2 +3 +4 3* 2* +5 +6", "0# 1! 2* 3* 4! 5! 6");
}

#[test]
fn the_watermark_waits_for_the_next_job_and_then_passes_all_that_are_done() {
    assert_history(0, "+1 +2 +3 +4 3* 2*", "0# 1! 2* 3* 4!");
    assert_history(0, "+1 +2 +3 +4 3* 2* +5 1*", "3# 4! 5!");
    assert_history(0, "+1 +2 +3 +4 3* 4*", "0# 1! 2! 3* 4*");
    assert_history(0, "+1 +2 +3 +4 3* 4* 1*", "1# 2! 3* 4*");
    assert_history(0, "+1 +2 +3 +4 3* 4* 1* 2*", "4#");
}

#[test]
fn nothing_starts_past_search_ahead_until_the_watermark_moves() {
    assert_history(5, "+1 +2 +3 +4 +5 2* 3* 4* 5* +6", "0# 1! 2* 3* 4* 5* 6");
    assert_history(5, "+1 +2 +3 +4 +5 2* 3* 4* 5* +6 +7 1*", "5# 6! 7!");
}

#[test]
fn a_job_that_is_reported_again_late_or_unasked_has_no_effect() {
    assert_history(0, "+1 1* 1* +2", "1# 2!");
    assert_history(0, "+1 +2 2* 2* 1* 2*", "2#");
}

#[test]
fn a_stop_starts_no_job_and_what_was_being_processed_still_counts() {
    let mut consumer = Consumer::new(Worker::Command, 0, false);
    consumer.play("+1 +2 +3 +4 stop 2*");
    assert_eq!(consumer.state(), "0# 1! 2* 3! 4");
    consumer.play("1* 3*");
    assert_eq!((&*consumer.state(), consumer.ended), ("3# 4", true));
}

#[test]
fn a_restart_goes_on_behind_the_watermark_and_repeats_no_job_whose_end_is_durable() {
    let history = "+1 +2 +3 +4 3* 2* +5 1* +6 +7 6* restart";
    let mut consumer = Consumer::new(Worker::Command, 0, false);
    consumer.play(history);
    assert_eq!((&*consumer.state(), &consumer.started[..]), ("3# 4! 5! 6* 7!", &[4, 5, 7][..]));
    // In order, the result of job 6 was not delivered, and the attempt is repeated.
    let mut consumer = Consumer::new(Worker::Command, 0, true);
    consumer.play(history);
    assert_eq!(consumer.started, [4, 5, 6]);
    // An external worker keeps its jobs. It has reported job 6, which is delivered once.
    for ordered in [false, true] {
        let mut consumer = Consumer::new(Worker::Outside, 0, ordered);
        consumer.play(history);
        assert_eq!((&*consumer.state(), &consumer.started[..]), ("3# 4! 5! 6* 7!", &[][..]));
        consumer.play("5* 4* 7*");
        assert_eq!(consumer.state(), "7#");
        assert_eq!(consumer.delivered.len(), 7);
    }
}
