//! External completion tests: run a committer on one thread.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crossbeam_channel::Receiver;

use super::*;
use crate::commit::inbox::Inbox;
use crate::commit::queue_cache::QueueCaches;
use crate::commit::request::CommitRequest;
use crate::commit::sinks::Sinks;
use crate::generation::current::NumberedGeneration;
use crate::operator::request::{CompletionOutcome, RequestOutcome};
use crate::recovery::start;
use crate::step::stats::Stats;
use tidegate_config::{LoadOptions, load};
use tidegate_model::{Address, Clock as _, Due, ExternalStatus, ManualClock, Timestamp};
use tidegate_store::testing::{DiskFailure, FaultyDisk};
use tidegate_store::{
    CompletionRecord, CrashGuard, NewParkedJob, ParkReason, ParkedJob, ParkedKey, Store, open_disk,
};

/// Run with a step that has handed jobs to an external system.
struct World {
    committer: Committer,
    store: Store,
    received: Receiver<Message>,
    rows: Vec<ParkedKey>,
}

fn step() -> Address {
    Address::parse("p/submit").unwrap()
}

impl World {
    /// Creates a run with `jobs` pending jobs.
    fn new(disk: &FaultyDisk, jobs: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let toml = "[step.submit]\nfrom = \"in\"\nto = \"out\"\n";
        std::fs::write(folder.path().join("p.toml"), toml).unwrap();
        let configuration = Arc::new(load(folder.path(), &LoadOptions::default()).finish().unwrap().0);
        let (store, mut writer) = open_disk(Box::new(disk.clone())).unwrap();
        let delayed = (1..=jobs).map(|index| {
            let reason = ParkReason::Pending { handle: index.to_string(), since: Timestamp(0) };
            let (inputs, payload) = (vec![("p/in".into(), index)], b"{}".to_vec());
            NewParkedJob { step: step(), job: ParkedJob { inputs, reason, payload, ..ParkedJob::default() } }
        });
        let delayed = delayed.collect();
        let rows = writer.commit(&Changes { parked: delayed, ..Changes::default() }).unwrap().parked;
        let clock = Arc::new(ManualClock::at(1000));
        let generation = NumberedGeneration::first(&configuration);
        let started =
            start::start(&generation, Sinks::default(), &store, clock.now(), &AtomicBool::new(false))
                .unwrap()
                .unwrap();
        let (messages, received) = crossbeam_channel::unbounded();
        let committer = Committer {
            writer,
            store: store.clone(),
            attempts: CrashGuard::none(),
            opening: None,
            committed_state: started.committed,
            sinks: started.sinks,
            sources: started.sources,
            ending: Arc::default(),
            broken_steps: BTreeSet::new(),
            inbox: Arc::new(Inbox::default()),
            tables: Arc::default(),
            tails: Arc::new(QueueCaches::default()),
            stats: Arc::new(Stats::new(clock.now())),
            clock,
            batches_awaiting_commit: Arc::default(),
            retry_after: Duration::ZERO,
            messages,
            stop: crossbeam_channel::bounded(0).1,
        };
        Self { committer, store, received, rows }
    }

    /// Completion of the job at `index`, with the channel of its answer.
    fn completion(
        &self,
        index: usize,
        status: ExternalStatus,
    ) -> (CommitRequest, Receiver<Result<RequestOutcome, String>>) {
        let (reply, answer) = crossbeam_channel::bounded(1);
        let completion = CompletionRecord { status, result: None, reason: None };
        let (token, row) = (format!("token of {index}"), self.rows.get(index - 1).map(|row| row.id));
        let request = Request::Complete { step: step(), index: index as u64, token, completion, row };
        (CommitRequest::Amend(PendingRequest::new(request, reply)), answer)
    }

    /// Commits the completions; returns the answers and the number of commits.
    fn commit(
        self,
        completions: &[(usize, ExternalStatus)],
    ) -> (Vec<Result<CompletionOutcome, String>>, u64) {
        let (sender, orders) = crossbeam_channel::unbounded();
        let answers: Vec<_> = completions
            .iter()
            .map(|&(index, status)| {
                let (order, answer) = self.completion(index, status);
                sender.send(order).unwrap();
                answer
            })
            .collect();
        drop(sender);
        let before = self.store.transaction().unwrap();
        // A failure of the disk is reported in the answers. The store can be read as long as the writer
        // exists.
        let writer = self.committer.run(&orders);
        let answers = answers.iter().map(|answer| match answer.recv().unwrap() {
            Ok(RequestOutcome::Completed(completed)) => Ok(completed),
            Ok(other) => panic!("{other:?}"),
            Err(why) => Err(why),
        });
        let commits = writer.map_or(0, |_writer| self.store.transaction().unwrap() - before);
        (answers.collect(), commits)
    }
}

#[test]
fn completions_that_wait_together_share_a_commit() {
    let world = World::new(&FaultyDisk::new(), 100);
    let (received, keys) = (world.received.clone(), world.rows.clone());
    let completions: Vec<_> = (1..=100).map(|index| (index, ExternalStatus::Committed)).collect();
    assert_eq!(world.commit(&completions), (vec![Ok(CompletionOutcome::Taken); 100], 1));
    let Message::Committed(durable) = received.recv().unwrap() else { panic!("a commit notice") };
    let taken: Vec<u64> = durable.completions.iter().map(|notice| notice.index).collect();
    assert_eq!(taken, (1..=100).collect::<Vec<_>>());
    for (notice, key) in durable.completions.iter().zip(&keys) {
        let (row, job) = notice.taken.as_ref().unwrap();
        assert_eq!((row, job.due, job.inputs[0].1), (key, Due::Now, notice.index));
    }
}

#[test]
fn completions_of_one_commit_are_judged_as_if_they_had_come_one_by_one() {
    let world = World::new(&FaultyDisk::new(), 3);
    let completions = [
        (1, ExternalStatus::Committed),
        (2, ExternalStatus::Valid),
        // This job is not pending.
        (4, ExternalStatus::Committed),
        (1, ExternalStatus::Committed),
        (1, ExternalStatus::Invalid),
        (3, ExternalStatus::Pending),
    ];
    let (answers, _) = world.commit(&completions);
    let otherwise = CompletionOutcome::Conflict { status: ExternalStatus::Committed };
    let expected = [
        CompletionOutcome::Taken,
        CompletionOutcome::Taken,
        CompletionOutcome::NotPending,
        CompletionOutcome::Duplicate,
        otherwise,
        CompletionOutcome::Duplicate,
    ];
    assert_eq!(answers, expected.map(Ok));
}

#[test]
fn a_completion_that_changes_nothing_is_not_committed() {
    let world = World::new(&FaultyDisk::new(), 2);
    let completions =
        [(1, ExternalStatus::Pending), (2, ExternalStatus::Pending), (9, ExternalStatus::Committed)];
    let expected =
        [CompletionOutcome::Duplicate, CompletionOutcome::Duplicate, CompletionOutcome::NotPending];
    assert_eq!(world.commit(&completions), (expected.map(Ok).to_vec(), 0));
}

#[test]
fn where_the_disk_fails_nobody_is_told_that_it_was_taken() {
    let disk = FaultyDisk::new();
    let world = World::new(&disk, 2);
    disk.fail(DiskFailure::From(0));
    let (answers, _) = world.commit(&[(1, ExternalStatus::Committed), (2, ExternalStatus::Committed)]);
    for answer in answers {
        let why = answer.unwrap_err();
        assert!(why.starts_with("the run ends, and the outcome of the request is unknown: "), "{why}");
    }
}
