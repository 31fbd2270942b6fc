//! Test bed: runs a test on one thread, and moves its clock to the next due time when no work is left.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crossbeam_channel::Receiver;
use tidegate_plugin::Payloads;

use super::results::{Ended, TestResults};
use crate::commit::committer::Committer;
use crate::commit::committer::group::{CommitGroup, MoreRequests};
use crate::commit::inbox::{Inbox, Push};
use crate::commit::queue_tables::QueueTables;
use crate::commit::request::CommitRequest;
use crate::commit::sinks::Sinks;
use crate::coordinator::{Action, Coordinator};
use crate::error::EngineError;
use crate::generation::Generation;
use crate::generation::current::NumberedGeneration;
use crate::processor::mock::Mocks;
use crate::recovery::open::{OpenRun, RunContext, open};
use crate::recovery::start;
use crate::runtime::message::Message;
use crate::runtime::readers::{StoreRequest, read_store};
use crate::runtime::workers::{WorkerContext, WorkerTask, WorkerThread};
use crate::step::stats::Stats;
use tidegate_components::calls::Calls;
use tidegate_components::plugin::Setups;
use tidegate_components::source::BatchLimit;
use tidegate_config::{Configuration, LaterJobs, TestCase};
use tidegate_dispatch::RunOutcome;
use tidegate_model::{Address, Clock as _, ManualClock, Timestamp, millis};
use tidegate_store::{Append, Block, Changes, CrashGuard, Details, Store, Writer, open_in_memory};

/// Number of workers that the run counts with.
const WORKERS: usize = 4;
/// Maximum number of events of a run; a queue that leads back to its step may otherwise keep it going for ever.
const EVENTS_MAX: u64 = 2_000_000;
/// Maximum number of times that the clock moves; a gate that stays closed may otherwise keep it going for ever.
const WAITS_MAX: u64 = 100_000;
/// Maximum time of the run's clock, if the test has none.
const LASTS_MAX: Duration = Duration::from_hours(366 * 24);
const BATCH: BatchLimit = BatchLimit { jobs: 1024, bytes: 128 << 10 };

/// Run of a test.
struct TestBed<'c> {
    configuration: Arc<Configuration>,
    store: Store,
    clock: Arc<ManualClock>,
    coordinator: Coordinator,
    committer: Committer,
    /// Messages of the committer.
    committed: Receiver<Message>,
    worker: WorkerThread<'c>,
    stats: Arc<Stats>,
    messages: VecDeque<Message>,
    reads: VecDeque<StoreRequest>,
    tasks: VecDeque<WorkerTask>,
    commits: VecDeque<CommitRequest>,
    /// Number of attempts, by step.
    attempts: BTreeMap<Address, u64>,
    /// Jobs that come later, in the order of time.
    later: VecDeque<LaterJobs>,
    /// Whether the coordinator waits for them.
    expecting: bool,
    stopped: bool,
    end: Option<RunOutcome>,
}

/// Runs a test, and reads its results.
pub(crate) fn run(generation: &Generation, test: &TestCase) -> Result<TestResults, EngineError> {
    let configuration = Arc::new(generation.configuration.for_test(test));
    let clock = Arc::new(ManualClock::at(test.at.0));
    let (store, mut writer) = open_in_memory()?;
    give(&mut writer, test)?;
    let (messages, committed) = crossbeam_channel::unbounded();
    let (stats, tables) = (Arc::new(Stats::new(test.at)), Arc::<QueueTables>::default());
    let OpenRun { coordinator, committer, token_key, .. } = {
        let never = AtomicBool::new(false);
        let (plugins, files) = (Arc::clone(&generation.plugins), Arc::default());
        let generation = Arc::new(NumberedGeneration::new(1, Arc::clone(&configuration), plugins, files));
        tables.build(&configuration, &[], &store, &never)?;
        let started = start::start(&generation, Sinks::default(), &store, test.at, &never)?;
        // Nothing sets `never`, so the start is not stopped.
        let recovered = started.ok_or(EngineError::Died)?;
        let context = RunContext {
            store: store.clone(),
            writer,
            attempts: CrashGuard::none(),
            inbox: Arc::new(Inbox::default()),
            stats: Arc::clone(&stats),
            tables: Arc::clone(&tables),
            clock: Arc::clone(&clock) as Arc<_>,
            workers: WORKERS,
            batch: BATCH,
            until_idle: false,
            retry_after: Duration::ZERO,
            messages,
            stop: crossbeam_channel::bounded(0).1,
            ending: Arc::default(),
        };
        open(recovered, context)
    };
    let mocks = Arc::new(Mocks::new(&test.mocks, &generation.configuration));
    let context = WorkerContext {
        store: store.clone(),
        clock: Arc::clone(&clock) as Arc<_>,
        token_key,
        tables,
        running_commands: Arc::default(),
        calls: Calls::default(),
        ending: Arc::default(),
        deaths: Arc::default(),
        attempts: CrashGuard::none(),
        setups: Setups::none(),
        live: Arc::default(),
        mocks: Some(Arc::clone(&mocks)),
    };
    let mut bed = TestBed {
        worker: WorkerThread::new(&context),
        configuration,
        store,
        clock,
        coordinator,
        committer,
        committed,
        stats,
        messages: VecDeque::new(),
        reads: VecDeque::new(),
        tasks: VecDeque::new(),
        commits: VecDeque::new(),
        attempts: BTreeMap::new(),
        later: test.later.iter().cloned().collect(),
        expecting: !test.later.is_empty(),
        stopped: false,
        end: None,
    };
    let ended = bed.work(test)?;
    bed.results(test, ended, &mocks)
}

/// Puts the given jobs on their queues.
fn give(writer: &mut Writer, test: &TestCase) -> Result<(), EngineError> {
    let append = |(queue, jobs): &(Address, Vec<String>)| {
        let payloads: Payloads = jobs.iter().map(String::as_bytes).collect();
        Append { queue: queue.clone(), block: Block::encode(&payloads, Details::default()) }
    };
    let given = test.given.iter().filter(|(_, jobs)| !jobs.is_empty());
    let changes = Changes { now: test.at, appends: given.map(append).collect(), ..Changes::default() };
    writer.commit(&changes)?;
    Ok(())
}

/// Requests that wait for a commit.
struct Queued<'a>(&'a mut VecDeque<CommitRequest>);

impl MoreRequests for Queued<'_> {
    fn next(&mut self, _: bool) -> Option<CommitRequest> {
        self.0.pop_front()
    }
}

impl TestBed<'_> {
    /// Handles events until the run ends.
    fn work(&mut self, test: &TestCase) -> Result<Ended, EngineError> {
        self.committer.open()?;
        let mut actions = Vec::new();
        self.coordinator.expect_pushes(self.expecting);
        self.coordinator.start(self.clock.now(), &mut actions);
        self.carry_out(actions);
        let mut waits = 0;
        for _ in 0..EVENTS_MAX {
            if self.end.is_some() {
                return self.commit_the_rest().map(|()| Ended::Done);
            }
            if self.step()? {
                continue;
            }
            if !self.sleep(test) {
                return Ok(Ended::Waiting);
            }
            waits += 1;
            let elapsed = self.clock.now().since(test.at);
            if waits > WAITS_MAX || test.lasts.is_none() && elapsed > LASTS_MAX {
                return Ok(Ended::TooLong);
            }
        }
        Ok(Ended::TooMany)
    }

    /// Handles one event; `false` if none is left.
    fn step(&mut self) -> Result<bool, EngineError> {
        if let Some(message) = self.messages.pop_front() {
            let mut actions = Vec::new();
            self.coordinator.handle_message(message, self.clock.now(), &mut actions)?;
            self.carry_out(actions);
        } else if let Some(ask) = self.reads.pop_front() {
            self.messages.extend(read_store(&self.store, BATCH, &ask, self.clock.now()));
        } else if let Some(task) = self.tasks.pop_front() {
            let message = self.worker.carry_out(task);
            if let Message::Ran { step, ran, .. } = &message {
                let step = self.configuration.steps[*step].address.clone();
                *self.attempts.entry(step).or_default() += ran.attempts.attempts;
            }
            self.messages.push_back(message);
        } else if let Some(first) = self.commits.pop_front() {
            self.commit(first)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Moves the clock to the next due time or to the next jobs, or stops the run at its end. Returns `false` if
    /// nothing is due any more.
    fn sleep(&mut self, test: &TestCase) -> bool {
        if self.expecting && self.later.is_empty() {
            // The last jobs are done, so the run may end.
            self.expecting = false;
            self.coordinator.expect_pushes(false);
            self.tick();
            return true;
        }
        let until = test.lasts.map(|lasts| test.at + lasts);
        let wakes = self.coordinator.wakes(self.clock.now()).filter(|_| !self.stopped);
        let comes = self.later.front().map(|later| test.at + later.after).filter(|_| !self.stopped);
        match (wakes.into_iter().chain(comes).min(), until) {
            (Some(next), until) if until.is_none_or(|until| next <= until) => {
                self.advance(next);
                if comes == Some(next) {
                    self.push();
                }
                self.tick();
            }
            (_, Some(until)) if !self.stopped => {
                self.advance(until);
                self.stopped = true;
                self.committer.inbox.close();
                self.messages.push_back(Message::Stop);
            }
            _ => return false,
        }
        true
    }

    fn tick(&mut self) {
        let mut actions = Vec::new();
        self.coordinator.tick(self.clock.now(), &mut actions);
        self.carry_out(actions);
    }

    /// Pushes the next jobs that come later.
    fn push(&mut self) {
        let Some(LaterJobs { given, .. }) = self.later.pop_front() else { return };
        let queues = self.configuration.queues_by_address();
        for (queue, jobs) in given.iter().filter(|(_, jobs)| !jobs.is_empty()) {
            // The names of a test are checked, so the queue is known.
            let Some(&queue) = queues.get(queue) else { continue };
            let jobs = jobs.iter().map(String::as_bytes).collect();
            let push = Push {
                queue,
                jobs,
                whole: None,
                each: Vec::new(),
                late: BTreeMap::new(),
                answer: Box::new(|_| {}),
            };
            if self.committer.inbox.put(push) == Some(true) {
                self.messages.push_back(Message::Arrived);
            }
        }
    }

    fn advance(&self, to: Timestamp) {
        self.clock.advance(millis(to.since(self.clock.now())));
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                // A test has no sources: they are queues.
                Action::ReadSource(_)
                | Action::OpenReader { .. }
                | Action::CloseReaders(_)
                | Action::Command(_)
                | Action::Publish(_)
                | Action::AnswerReload(..)
                | Action::RollBack(_)
                | Action::KeepVersions(_)
                | Action::EndClaims(_) => {}
                Action::ReadStore(ask) => self.reads.push_back(ask),
                Action::Run(task) => self.tasks.push_back(WorkerTask::Batch(task)),
                Action::LookAtGate { step, epoch } => self.tasks.push_back(WorkerTask::Gate { step, epoch }),
                Action::AskStatus(asking) => self.tasks.push_back(WorkerTask::Status(asking)),
                Action::Commit(order) => self.commits.push_back(order),
                Action::Finish(end) => self.end = Some(end),
            }
        }
    }

    fn commit(&mut self, first: CommitRequest) -> Result<(), EngineError> {
        let group = CommitGroup::collect(first, &self.committer.inbox, &mut Queued(&mut self.commits));
        for part in group.parts() {
            self.committer.commit_part(part)?;
        }
        self.messages.extend(self.committed.try_iter());
        Ok(())
    }

    /// Commits the requests that are left at the end of the run.
    fn commit_the_rest(&mut self) -> Result<(), EngineError> {
        while let Some(first) = self.commits.pop_front() {
            self.commit(first)?;
        }
        Ok(())
    }

    fn results(self, test: &TestCase, ended: Ended, mocks: &Mocks) -> Result<TestResults, EngineError> {
        let Self { configuration, store, clock, coordinator, attempts, stats, .. } = self;
        let dropped = configuration.steps.order().iter().map(|&step| stats.step(step).dropped());
        let mut results = TestResults {
            jobs: BTreeMap::new(),
            errors: BTreeMap::new(),
            events: BTreeSet::new(),
            attempts,
            elapsed: clock.now().since(test.at),
            halts: coordinator.halts,
            waiting: 0,
            dropped: dropped.sum(),
            ended,
            problems: mocks.problems(),
        };
        results.read(&configuration, &store, test)?;
        Ok(results)
    }
}
