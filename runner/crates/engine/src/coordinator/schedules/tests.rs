//! Schedule and retention tests: run a coordinator and a committer on one thread with a manual clock.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crossbeam_channel::Receiver;

use super::*;
use crate::commit::committer::Committer;
use crate::commit::committer::group::GroupChanges;
use crate::commit::inbox::Inbox;
use crate::commit::request::CommitRequest;
use crate::commit::sinks::Sinks;
use crate::coordinator::{Action, Coordinator};
use crate::generation::current::NumberedGeneration;
use crate::recovery::open::{OpenRun, RunContext, open};
use crate::recovery::start;
use crate::runtime::message::Message;
use crate::step::stats::Stats;
use tidegate_components::source::BatchLimit;
use tidegate_config::{LoadOptions, load};
use tidegate_model::{Address, Clock as _, ManualClock};
use tidegate_store::testing::{DiskFailure, FaultyDisk};
use tidegate_store::verify;
use tidegate_store::{Append, Block, Changes, CrashGuard, Details, open_disk};

/// A pipeline `p` between its runs.
#[derive(Clone)]
struct Place {
    configuration: Arc<Configuration>,
    clock: Arc<ManualClock>,
    disk: FaultyDisk,
}

/// A run whose steps do nothing.
struct Running {
    clock: Arc<ManualClock>,
    coordinator: Coordinator,
    committer: Committer,
    received: Receiver<Message>,
    finished: bool,
    /// The disk failed.
    failed: bool,
}

fn configuration(toml: &str) -> Arc<Configuration> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("p.toml"), toml).unwrap();
    let (configuration, _) = load(folder.path(), &LoadOptions::default()).finish().unwrap();
    Arc::new(configuration)
}

fn millis(text: &str) -> i64 {
    text.parse::<jiff::Timestamp>().unwrap().as_millisecond()
}

impl Place {
    fn new(toml: &str, now: &str) -> Self {
        let clock = Arc::new(ManualClock::at(millis(now)));
        Self { configuration: configuration(toml), clock, disk: FaultyDisk::new() }
    }

    /// Creates a pipeline with a source `tick` that a step reads.
    fn ticking(settings: &str, now: &str) -> Self {
        Self::new(&ticking(settings), now)
    }

    fn set_clock(&self, to: &str) {
        self.clock.advance(millis(to) - self.clock.now().0);
    }

    fn run(&self, until_idle: bool) -> Running {
        let generation = NumberedGeneration::first(&self.configuration);
        let (store, writer) = open_disk(Box::new(self.disk.clone())).unwrap();
        let started =
            start::start(&generation, Sinks::default(), &store, self.clock.now(), &AtomicBool::new(false))
                .unwrap()
                .unwrap();
        let (messages, received) = crossbeam_channel::unbounded();
        let context = RunContext {
            store,
            writer,
            attempts: CrashGuard::none(),
            inbox: Arc::new(Inbox::default()),
            stats: Arc::new(Stats::new(self.clock.now())),
            tables: Arc::default(),
            clock: Arc::clone(&self.clock) as Arc<_>,
            workers: 1,
            batch: BatchLimit { jobs: 10, bytes: 1000 },
            until_idle,
            retry_after: Duration::ZERO,
            messages,
            stop: crossbeam_channel::bounded(0).1,
            ending: Arc::default(),
        };
        let OpenRun { coordinator, committer, .. } = open(started, context);
        let mut running = Running {
            clock: Arc::clone(&self.clock),
            coordinator,
            committer,
            received,
            finished: false,
            failed: false,
        };
        running.committer.open().unwrap();
        let mut actions = Vec::new();
        running.coordinator.start(self.clock.now(), &mut actions);
        running.carry_out(actions);
        running
    }

    /// Due times of the recorded ticks of `p/tick`.
    fn dues(&self) -> Vec<String> {
        let (store, _writer) = open_disk(Box::new(self.disk.clone())).unwrap();
        assert_eq!(verify(&store).unwrap().problems, Vec::<String>::new());
        let mut dues = Vec::new();
        while let Some(batch) = store.read(&address("p/tick"), dues.len() as u64 + 1, 9, 9999).unwrap() {
            for job in batch.payloads.iter() {
                let job: serde_json::Value = serde_json::from_slice(job).unwrap();
                dues.push(job["due"].as_str().unwrap().to_owned());
            }
        }
        dues
    }
}

impl Running {
    /// Carries out actions until only time is missing.
    fn carry_out(&mut self, mut actions: Vec<Action>) {
        loop {
            for action in std::mem::take(&mut actions) {
                match action {
                    Action::Commit(CommitRequest::Ticked(ticked)) => {
                        self.failed |= self
                            .committer
                            .commit(GroupChanges { ticked: vec![ticked], ..GroupChanges::default() })
                            .is_err();
                    }
                    Action::Commit(CommitRequest::ApplyRetention) => {
                        self.committer.apply_retention().unwrap();
                    }
                    Action::Commit(order) => panic!("{order:?}"),
                    Action::Finish(_) => self.finished = true,
                    _ => {}
                }
            }
            let Ok(message) = self.received.try_recv() else { return };
            self.coordinator.handle_message(message, self.clock.now(), &mut actions).unwrap();
        }
    }

    /// Advances the clock and calls the coordinator at each of its timers.
    fn pass(&mut self, duration: i64) {
        let until = self.clock.now().0 + duration;
        while let Some(wakes) = self.coordinator.wakes(self.clock.now()).filter(|wakes| wakes.0 <= until)
            && !self.failed
        {
            self.clock.advance((wakes.0 - self.clock.now().0).max(0));
            self.tick();
        }
        self.clock.advance(until - self.clock.now().0);
    }

    fn tick(&mut self) {
        let mut actions = Vec::new();
        self.coordinator.tick(self.clock.now(), &mut actions);
        self.carry_out(actions);
    }

    fn commits(&self) -> u64 {
        self.committer.store.transaction().unwrap()
    }
}

fn ticking(settings: &str) -> String {
    format!("[source.tick]\ntype = \"schedule\"\n{settings}\n[step.a]\nfrom = \"tick\"\n")
}

fn address(text: &str) -> Address {
    Address::parse(text).unwrap()
}

const SECOND: i64 = 1000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

#[test]
fn each_tick_is_a_job_at_its_time_and_once_over_many_runs() {
    let place = Place::ticking("every = \"10s\"\nmissed = \"all\"", "2024-05-01T12:00:05Z");
    for _ in 0..3 {
        let mut running = place.run(false);
        assert_eq!(running.coordinator.wakes(place.clock.now()).unwrap().0 % (10 * SECOND), 0);
        running.pass(15 * SECOND);
        drop(running);
        // No runner is running.
        place.clock.advance(15 * SECOND);
    }
    place.run(false);
    let expected = |second: i64| {
        let due = millis("2024-05-01T12:00:10Z") + second * 10 * SECOND;
        jiff::Timestamp::from_millisecond(due).unwrap().to_string()
    };
    assert_eq!(place.dues(), (0..9).map(expected).collect::<Vec<_>>());
}

#[test]
fn what_came_between_runs_is_skipped_or_made_up_for() {
    let mut text = String::new();
    for missed in ["skip", "once", "all"] {
        let settings = format!("cron = \"0 * * * *\"\nmissed = \"{missed}\"");
        let place = Place::ticking(&settings, "2024-05-01T12:30:00Z");
        place.run(false).pass(HOUR);
        place.set_clock("2024-05-01T16:30:00Z");
        place.run(false).pass(HOUR);
        place.set_clock("2024-05-01T20:00:30Z");
        place.run(false);
        // The skipped ticks are recorded.
        place.run(false).pass(MINUTE);
        writeln!(text, "{missed}\n  {}", place.dues().join("\n  ")).unwrap();
    }
    insta::assert_snapshot!(text);
}

#[test]
fn the_clock_on_the_wall_of_a_place_ticks_through_its_change() {
    let settings = "cron = \"30 2,3 * * *\"\ntime_zone = \"Europe/Berlin\"\npayload = { a = 1 }";
    let place = Place::ticking(settings, "2024-03-30T12:00:00Z");
    place.run(false).pass(48 * HOUR);
    assert_eq!(
        place.dues(),
        [
            // 02:30 does not exist on that day, and ticks at 03:00.
            "2024-03-31T01:00:00Z",
            "2024-03-31T01:30:00Z",
            "2024-04-01T00:30:00Z",
            "2024-04-01T01:30:00Z",
        ]
    );
    place.set_clock("2024-10-26T12:00:00Z");
    place.run(false).pass(24 * HOUR);
    // 02:30 comes twice on that day, and ticks the first time.
    assert_eq!(place.dues()[4..], ["2024-10-27T00:30:00Z", "2024-10-27T02:30:00Z"]);
}

#[test]
fn a_schedule_that_was_changed_goes_on_from_the_last_tick() {
    let mut place = Place::ticking("every = \"1h\"\nmissed = \"all\"", "2024-05-01T11:30:00Z");
    place.run(false).pass(HOUR);
    place.configuration = configuration(&ticking("cron = \"*/20 * * * *\"\nmissed = \"all\""));
    place.run(false).pass(MINUTE);
    let expected = ["2024-05-01T12:00:00Z", "2024-05-01T12:20:00Z"];
    assert_eq!(place.dues(), expected);
}

#[test]
fn a_clock_that_is_set_back_repeats_nothing_unless_it_was_far_off() {
    let place = Place::ticking("every = \"1h\"", "2024-05-03T11:30:00Z");
    let mut running = place.run(false);
    running.pass(HOUR);
    place.set_clock("2024-05-03T02:30:00Z");
    running.tick();
    running.pass(10 * HOUR + 40 * MINUTE);
    place.set_clock("2024-05-01T02:30:00Z");
    running.tick();
    running.pass(HOUR);
    // A clock that is set forward misses the ticks in between.
    place.set_clock("2024-05-04T07:30:00Z");
    running.tick();
    running.pass(HOUR);
    drop(running);
    assert_eq!(
        place.dues(),
        ["2024-05-03T12:00:00Z", "2024-05-03T13:00:00Z", "2024-05-01T03:00:00Z", "2024-05-04T08:00:00Z",]
    );
}

#[test]
fn what_is_made_up_for_comes_in_commits_of_bounded_size_before_an_idle_run_ends() {
    let place = Place::ticking("every = \"1s\"\nmissed = \"all\"", "2024-05-01T12:00:00Z");
    assert!(place.run(true).finished);
    place.clock.advance(2500 * SECOND);
    let running = place.run(true);
    // There are jobs to read now, but this test has no reader.
    assert!(!running.finished);
    assert_eq!(running.commits(), 1 + 3);
    drop(running);
    assert_eq!(place.dues().len(), 2500);
}

#[test]
fn a_run_that_only_ticks_does_not_end_and_makes_no_more_when_it_is_stopped() {
    let place = Place::ticking("every = \"1s\"", "2024-05-01T12:00:00Z");
    let mut running = place.run(false);
    assert!(!running.finished);
    running.committer.messages.send(Message::Stop).unwrap();
    running.carry_out(Vec::new());
    assert!(running.finished);
    assert_eq!(running.coordinator.wakes(place.clock.now()), None);
    place.clock.advance(5 * SECOND);
    running.tick();
    drop(running);
    assert_eq!(place.dues(), Vec::<String>::new());
}

#[test]
fn a_crash_at_any_moment_loses_and_repeats_no_tick() {
    const START: &str = "2024-05-01T12:00:00Z";
    let place = Place::ticking("every = \"1s\"\nmissed = \"all\"", START);
    drop(place.run(false));
    let image = place.disk.bytes();
    for operation in 1.. {
        let place = Place { disk: FaultyDisk::with(image.clone()), ..place.clone() };
        place.set_clock(START);
        let mut running = place.run(false);
        place.disk.fail(DiskFailure::From(operation));
        running.pass(3 * SECOND);
        let (disk, failed) = (&place.disk, running.failed);
        for left in [disk.bytes(), disk.survivors(0), disk.survivors(operation)] {
            let place = Place { disk: FaultyDisk::with(left), ..place.clone() };
            place.run(false);
            let expected = [1, 2, 3].map(|second| format!("2024-05-01T12:00:0{second}Z"));
            assert_eq!(place.dues(), expected, "operation {operation}");
        }
        if !failed {
            assert!(operation > 10);
            return;
        }
    }
}

#[test]
fn an_idle_run_lets_go_of_what_has_become_too_old_and_writes_nothing_else() {
    let toml = "[source.in]\ntype = \"schedule\"\nevery = \"999d\"\n[step.a]\nfrom = \"in\"\nto = \"kept\"\n\
                [queue.kept]\nretain = \"1h\"\n";
    let place = Place::new(toml, "2024-05-01T12:00:00Z");
    {
        let (_, mut writer) = open_disk(Box::new(place.disk.clone())).unwrap();
        for minute in [0, 30] {
            let payloads = [&b"1"[..]].into_iter().collect();
            let block = Block::encode(&payloads, Details::default());
            let appends = vec![Append { queue: address("p/kept"), block }];
            let now = Timestamp(place.clock.now().0 + minute * MINUTE);
            writer.commit(&Changes { now, appends, ..Changes::default() }).unwrap();
        }
    }
    let state = |running: &Running| {
        let kept = running.committer.store.queue(&address("p/kept")).unwrap().unwrap().jobs();
        format!("{kept} jobs after {} commits", running.commits())
    };
    let mut running = place.run(false);
    let mut text = String::new();
    for minute in 0..70 {
        let line = state(&running);
        if !text.ends_with(&line) {
            write!(text, "\nminute {minute}: {line}").unwrap();
        }
        running.pass(MINUTE);
    }
    drop(running);
    place.clock.advance(HOUR);
    write!(text, "\nat the next start: {}", state(&place.run(false))).unwrap();
    insta::assert_snapshot!(text, @r"
    minute 0: 2 jobs after 3 commits
    minute 61: 1 jobs after 4 commits
    at the next start: 0 jobs after 5 commits
    ");
}
