//! Move request tests: run conflicting requests on a coordinator without threads.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::commit::queue_cache::QueueCaches;
use crate::commit::request::{CommitRequest, ReloadChange};
use crate::commit::sinks::Sinks;
use crate::coordinator::command_sources::CommandSources;
use crate::coordinator::handover::NextStep;
use crate::coordinator::{Action, CoordinatorInit};
use crate::generation::current::NumberedGeneration;
use crate::processor::monitor_protocol::{JobVerdict, StatusQuery, StatusReport};
use crate::recovery::start;
use crate::recovery::start::RecoveredState;
use crate::runtime::message::{CommitNotice, CompletionNotice, Message};
use crate::step::stats::Stats;
use tidegate_components::source::BatchLimit;
use tidegate_config::{LoadOptions, load};
use tidegate_model::{Address, Due, ExternalStatus};
use tidegate_store::testing::FaultyDisk;
use tidegate_store::{
    Changes, CompletionRecord, NewParkedJob, ParkReason, ParkedId, ParkedJob, Store, Writer, open_disk,
};

const NOW: Timestamp = Timestamp(1000);

/// Coordinator of one step with one delayed job.
struct Play {
    coordinator: Coordinator,
    store: Store,
    /// Keeps the store open.
    _writer: Writer,
}

impl Play {
    /// Creates a step with the configuration lines `queuer`.
    fn new(queuer: &str) -> Self {
        Self::with(queuer, Due::At(Timestamp(5000)), ParkReason::Delayed)
    }

    /// Creates a step with one job that is pending in an external system.
    fn pending(queuer: &str) -> Self {
        Self::with(queuer, Due::Never, ParkReason::Pending { handle: "h".to_owned(), since: NOW })
    }

    fn with(queuer: &str, due: Due, reason: ParkReason) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let toml = format!(
            "[pipeline]\nname = \"p\"\nerrors = \"failed\"\n\
             [source.in]\ntype = \"file\"\npath = \"in\"\nformat = \"lines\"\n\
             [step.first]\nfrom = \"in\"\nto = \"q\"\n\
             [step.t]\nfrom = \"q\"\nto = \"out\"\n{queuer}\n"
        );
        std::fs::write(folder.path().join("p.toml"), toml).unwrap();
        for name in ["in", "submit.rhai", "status.rhai"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let configuration = Arc::new(load(folder.path(), &LoadOptions::default()).finish().unwrap().0);
        let (store, mut writer) = open_disk(Box::new(FaultyDisk::new())).unwrap();
        let job = ParkedJob {
            due,
            inputs: vec![("p/q".into(), 1)],
            payload: b"1".to_vec(),
            reason,
            ..ParkedJob::default()
        };
        let delayed = vec![NewParkedJob { step: step(), job }];
        writer.commit(&Changes { parked: delayed, ..Changes::default() }).unwrap();
        let generation = NumberedGeneration::first(&configuration);
        let started = start::start(&generation, Sinks::default(), &store, NOW, &AtomicBool::new(false));
        let RecoveredState { steps, tickers, late, .. } = started.unwrap().unwrap();
        let mut coordinator = Coordinator::new(CoordinatorInit {
            commands: CommandSources::new(&configuration, false, NOW),
            generation,
            tickers,
            late,
            tails: Arc::new(QueueCaches::default()),
            workers: 1,
            batch: BatchLimit { jobs: 10, bytes: 1000 },
            until_idle: false,
            stats: Arc::new(Stats::new(NOW)),
        });
        for step in steps {
            coordinator.install(step, NOW, &mut Vec::new());
        }
        coordinator.start(NOW, &mut Vec::new());
        Self { coordinator, store, _writer: writer }
    }

    fn row(&self) -> ParkedKey {
        self.store.due(&step(), Due::Never, None, 9, 999).unwrap().remove(0).0
    }

    /// Request that reaches the committer, with the number of jobs that it leaves alone.
    fn ask(&mut self, request: Request) -> (Request, u64) {
        let (reply, _) = crossbeam_channel::bounded(1);
        let mut actions = Vec::new();
        self.coordinator
            .handle_message(Message::Asked(PendingRequest::new(request, reply)), NOW, &mut actions)
            .unwrap();
        let asked = actions.into_iter().find_map(|action| match action {
            Action::Commit(CommitRequest::Amend(asked)) => {
                Some((asked.request, asked.moved.busy + asked.moved.gone))
            }
            _ => None,
        });
        asked.unwrap()
    }

    fn hasten(&mut self) -> (Request, u64) {
        let rows = vec![self.row().id];
        self.ask(Request::MakeDue { step: step(), rows })
    }

    fn cancel(&mut self, rows: Vec<ParkedId>, jobs: Vec<u64>) -> (Request, u64) {
        self.ask(Request::Cancel { step: step(), rows, jobs, drop: false, pending: true })
    }

    /// Completes the job externally; returns its row, as far as the coordinator knows it.
    fn complete(&mut self, status: ExternalStatus) -> Option<ParkedId> {
        let completion = CompletionRecord { status, result: None, reason: None };
        let token = String::new();
        match self.ask(Request::Complete { step: step(), index: 1, token, completion, row: None }) {
            (Request::Complete { row, .. }, _) => row,
            odd => panic!("{odd:?}"),
        }
    }

    /// Reports the completion as durable.
    fn is_completed(&mut self, completion: CompletionRecord) {
        let row = self.row();
        let mut job = self.store.parked(std::slice::from_ref(&row)).unwrap().remove(0).unwrap();
        let ParkReason::Pending { handle, since } = job.reason else { panic!("{:?}", job.reason) };
        job.reason = ParkReason::Completed { handle, since, completion };
        let completions = vec![CompletionNotice { step: 1, index: 1, taken: Some((row, job)) }];
        let durable = CommitNotice { completions, ..CommitNotice::default() };
        self.coordinator.handle_message(Message::Committed(durable), NOW, &mut Vec::new()).unwrap();
    }

    /// Returns the next poll of the monitor.
    fn asks(&mut self, now: Timestamp) -> StatusQuery {
        let mut actions = Vec::new();
        self.coordinator.tick(now, &mut actions);
        let asking = actions.into_iter().find_map(|action| match action {
            Action::AskStatus(asking) => Some(asking),
            _ => None,
        });
        asking.unwrap()
    }

    /// Answers a poll; returns whether that delivers anything.
    fn answers(&mut self, asking: &StatusQuery, status: ExternalStatus, now: Timestamp) -> bool {
        let word = JobVerdict { status, result: None, reason: None };
        let answers = asking.jobs.iter().map(|&(key, _)| (key, word.clone())).collect();
        let (step, epoch, ask) = (asking.step.position, asking.epoch, asking.ask);
        let seen = Ok(StatusReport { answers, ..StatusReport::default() });
        let mut actions = Vec::new();
        self.coordinator
            .handle_message(Message::StatusResult { step, epoch, ask, seen }, now, &mut actions)
            .unwrap();
        actions.iter().any(|action| matches!(action, Action::ReadStore(_)))
    }

    /// Reports that the job is unchanged.
    fn is_left(&mut self) {
        let row = self.row();
        let job = self.store.parked(std::slice::from_ref(&row)).unwrap().remove(0).unwrap();
        self.is_moved(vec![(row, Some(job))]);
    }

    fn is_moved(&mut self, rows: Vec<(ParkedKey, Option<ParkedJob>)>) {
        let position = 1;
        let moves = MoveNotice { step: position, rows, jobs: Vec::new(), left: Vec::new() };
        let durable = CommitNotice { moved: Some(moves), ..CommitNotice::default() };
        self.coordinator.handle_message(Message::Committed(durable), NOW, &mut Vec::new()).unwrap();
    }
}

fn step() -> Address {
    Address::parse("p/t").unwrap()
}

const MONITORED: &str = "run = \"submit.rhai\"\nqueuer = { strategy = \"serial\" }\n\
                         monitor = { run = \"status.rhai\", every = \"2s\" }";
const QUEUERS: [&str; 2] = ["", "queuer = { strategy = \"serial\" }"];

#[test]
fn a_job_that_somebody_moves_is_left_alone_by_others_until_that_is_durable() {
    for queuer in QUEUERS {
        let mut play = Play::new(queuer);
        let row = play.row().id;
        let hastened = play.hasten();
        assert!(matches!(hastened, (Request::MakeDue { rows, .. }, 0) if rows == [row]), "{queuer}");
        // A cancelled job must not return with the answer to the first request.
        let cancelled = play.cancel(vec![row], Vec::new());
        assert!(matches!(cancelled, (Request::Cancel { rows, .. }, 1) if rows.is_empty()), "{queuer}");
        play.is_left();
        let cancelled = play.cancel(vec![row], Vec::new());
        assert!(matches!(cancelled, (Request::Cancel { rows, .. }, 0) if rows == [row]), "{queuer}");
    }
}

#[test]
fn a_job_that_somebody_takes_out_is_left_alone_by_others_though_it_was_not_read_yet() {
    let mut play = Play::new(QUEUERS[1]);
    let first = play.cancel(Vec::new(), vec![7]);
    assert!(matches!(first, (Request::Cancel { jobs, .. }, 0) if jobs == [7]));
    let second = play.cancel(Vec::new(), vec![7, 8]);
    assert!(matches!(second, (Request::Cancel { jobs, .. }, 1) if jobs == [8]));
}

#[test]
fn a_pending_job_that_somebody_takes_out_is_nobodys_from_then_on() {
    let mut play = Play::pending(QUEUERS[1]);
    let row = play.row().id;
    let asked = play.ask(Request::Cancel {
        step: step(),
        rows: vec![row],
        jobs: Vec::new(),
        drop: false,
        pending: false,
    });
    assert!(matches!(asked, (Request::Cancel { rows, .. }, 1) if rows.is_empty()));
    let cancelled = play.cancel(vec![row], Vec::new());
    assert!(matches!(cancelled, (Request::Cancel { rows, .. }, 0) if rows == [row]));
    assert_eq!(play.complete(ExternalStatus::Committed), None);
    let watch = &play.coordinator.steps[1].queued.as_ref().unwrap().pending;
    assert!(watch.monitor.is_empty() && watch.by_index.is_empty());
    // The request had no effect, so the job is pending as before.
    play.is_left();
    assert_eq!(play.complete(ExternalStatus::Committed), Some(row));
}

#[test]
fn a_pending_job_that_is_out_stays_out() {
    let mut play = Play::pending(QUEUERS[1]);
    let row = play.row();
    play.cancel(vec![row.id], Vec::new());
    play.is_moved(vec![(row.clone(), None)]);
    assert_eq!(play.complete(ExternalStatus::Committed), None);
    assert_eq!(play.coordinator.dispatcher.state(1, JobKey::stored(row.id.0)), None);
    let queued = play.coordinator.steps[1].queued.as_ref().unwrap();
    assert!(queued.buffer.row(JobKey::stored(row.id.0)).is_none());
}

#[test]
fn what_the_outside_says_of_a_job_goes_before_taking_it_out() {
    for status in [ExternalStatus::Valid, ExternalStatus::Committed] {
        let mut play = Play::pending(QUEUERS[1]);
        let row = play.row().id;
        assert_eq!(play.complete(status), Some(row));
        // The row changes as soon as the completion is durable.
        let cancelled = play.cancel(vec![row], Vec::new());
        assert!(matches!(cancelled, (Request::Cancel { rows, .. }, 1) if rows.is_empty()), "{status:?}");
    }
}

#[test]
fn a_monitor_is_not_believed_while_what_somebody_has_said_is_on_its_way_to_the_store() {
    let mut play = Play::pending(MONITORED);
    let row = play.row().id;
    let asking = play.asks(Timestamp(3000));
    assert_eq!(play.complete(ExternalStatus::Valid), Some(row));
    // The row to deliver is about to change.
    assert!(!play.answers(&asking, ExternalStatus::Committed, Timestamp(3000)));
    play.is_completed(CompletionRecord { status: ExternalStatus::Valid, result: None, reason: None });
    // The monitor is polled again, and its answer counts.
    let asking = play.asks(Timestamp(5000));
    assert!(play.answers(&asking, ExternalStatus::Committed, Timestamp(5000)));
}

#[test]
fn requests_for_a_step_that_a_reload_removes_are_answered() {
    let mut play = Play::new("queuer = { strategy = \"fifo\" }");
    let coordinator = &mut play.coordinator;
    let (position, other) = (coordinator.position(&step()).unwrap(), usize::MAX);
    let (mut commands, mut actions) = (Vec::new(), Vec::new());
    let (reply, replayed) = crossbeam_channel::bounded(1);
    let replay = PendingRequest::new(Request::Replay { step: step(), from: Vec::new() }, reply);
    let declared = coordinator.steps[position].declared.clone();
    let next = NextStep::Install { step: declared, replay: Some(Box::new((Vec::new(), replay))) };
    coordinator.hand_over(position, next, [other].into(), NOW, &mut commands);
    let next = NextStep::Remove { address: step() };
    coordinator.hand_over(position, next, BTreeSet::new(), NOW, &mut commands);
    assert_eq!(replayed.try_recv().unwrap().unwrap_err(), "the runner has no step `p/t`");
    coordinator.drained(position, NOW, &mut commands, &mut actions);
    let (reply, polled) = crossbeam_channel::bounded(1);
    let poll = PendingRequest::new(Request::Poll { step: step() }, reply);
    coordinator.accept_request(poll, NOW, &mut commands, &mut actions);
    assert!(polled.is_empty());
    coordinator.drained(other, NOW, &mut commands, &mut actions);
    assert_eq!(polled.try_recv().unwrap().unwrap_err(), "the runner has no step `p/t` with a monitor");
}

#[test]
fn a_step_on_its_way_to_another_installation_ends_if_a_reload_removes_it() {
    let mut play = Play::new("");
    let position = play.coordinator.position(&step()).unwrap();
    let declared = play.coordinator.steps.get(position).unwrap().declared.clone();
    let (mut commands, mut actions) = (Vec::new(), Vec::new());
    // It waits for a step that still has its sink.
    let (other, next) = (usize::MAX, NextStep::Install { step: declared, replay: None });
    play.coordinator.hand_over(position, next, BTreeSet::from([other]), NOW, &mut commands);
    play.coordinator.drained(position, NOW, &mut commands, &mut actions);
    let folder = tempfile::tempdir().unwrap();
    let first = "[source.in]\ntype = \"file\"\npath = \"in\"\nformat = \"lines\"\n[step.first]\nfrom = \"in\"\nto = \"q\"\n";
    std::fs::write(folder.path().join("p.toml"), first).unwrap();
    let without = Arc::new(load(folder.path(), &LoadOptions::default()).finish().unwrap().0);
    assert!(without.steps.get(position).is_none());
    play.coordinator.remove_handed_over(&NumberedGeneration::first(&without), NOW, &mut commands);
    play.coordinator.drained(other, NOW, &mut commands, &mut actions);
    let changes: Vec<&ReloadChange> = actions
        .iter()
        .filter_map(|action| match action {
            Action::Commit(CommitRequest::Reload(change)) => Some(change),
            _ => None,
        })
        .collect();
    assert!(matches!(changes[..], [ReloadChange::Remove { step }] if *step == position), "{changes:?}");
    assert!(play.coordinator.lingering().is_empty());
}
