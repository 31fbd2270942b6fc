//! Ingestion tests: compare groups of keyed pushes with a plain model.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::*;
use crate::commit::committed_state::CommittedStep;
use crate::generation::current::NumberedGeneration;
use crate::step::declared::DeclaredStep;
use tidegate_components::command_source::PrintedLines;
use tidegate_config::{LoadOptions, load};
use tidegate_model::Progress;
use tidegate_store::testing::FaultyDisk;
use tidegate_store::{Writer, open_disk};

/// A pipeline `p` with a source `requests`, and a queue `other` of a second pipeline.
fn committed_state() -> CommittedState {
    let folder = tempfile::tempdir().unwrap();
    let toml = "[source.requests]\ntype = \"http\"\ndedupe = \"10s\"\n[source.other]\ntype = \"http\"\n\
                [step.a]\nfrom = \"requests\"\n[step.b]\nfrom = \"other\"\n";
    std::fs::write(folder.path().join("p.toml"), toml).unwrap();
    std::fs::write(folder.path().join("tidegate.toml"), "[runner]\nlisten = \"127.0.0.1:0\"\n").unwrap();
    let (configuration, _) = load(folder.path(), &LoadOptions::default()).finish().unwrap();
    let generation = NumberedGeneration::first(&Arc::new(configuration));
    let mut committed_state = CommittedState::new(Arc::clone(&generation));
    for &position in generation.configuration.steps.order() {
        let declared = DeclaredStep::new(&generation, position);
        let progress = vec![Progress::default(); declared.inputs.len()];
        committed_state.install(CommittedStep {
            declared,
            progress,
            snapshots: BTreeMap::new(),
            events: None,
            unmatched: None,
        });
    }
    committed_state
}

fn store() -> (Store, Writer) {
    open_disk(Box::new(FaultyDisk::new())).unwrap()
}

/// A job: its key and its content.
type Job = (u8, u8);

fn key(of: u8, content: u64) -> IdempotencyKey {
    IdempotencyKey { hash: DeliveryHash(u128::from(of) + 1), content, verbatim: content + 100 }
}

type Outcomes = Arc<Mutex<Vec<Result<Pushed, KeyConflict>>>>;

fn push(jobs: &[Job], whole: Option<u8>, outcomes: &Outcomes) -> Push {
    let outcomes = Arc::clone(outcomes);
    let texts: Vec<String> = jobs.iter().map(|job| format!("{job:?}")).collect();
    Push {
        queue: QueueRef(1),
        jobs: texts.iter().map(String::as_bytes).collect(),
        whole: whole.map(|of| key(100 + of, jobs.iter().fold(7, |sum, job| sum * 31 + content(*job)))),
        each: jobs.iter().map(|&job| key(job.0, content(job))).collect(),
        late: BTreeMap::new(),
        answer: Box::new(move |outcome| outcomes.lock().unwrap().push(outcome)),
    }
}

fn content((of, more): Job) -> u64 {
    u64::from(of) * 256 + u64::from(more)
}

/// Commits a group like the committer does, and returns the answers.
fn commit(
    pushes: Vec<Push>,
    (committed_state, store, writer): (&mut CommittedState, &Store, &mut Writer),
    outcomes: &Outcomes,
    now: i64,
) -> Vec<Result<Pushed, KeyConflict>> {
    let ingest = IngestGroup::of(pushes, committed_state, store, Timestamp(now)).unwrap();
    commit_group(ingest, (committed_state, writer), outcomes, now)
}

fn commit_group(
    mut ingest: IngestGroup,
    (committed_state, writer): (&mut CommittedState, &mut Writer),
    outcomes: &Outcomes,
    now: i64,
) -> Vec<Result<Pushed, KeyConflict>> {
    let mut changes = Changes { now: Timestamp(now), ..Changes::default() };
    ingest.add_to(committed_state, &mut changes);
    let committed = writer.commit(&changes).unwrap();
    let late = committed.late.iter().map(|key| key.id).collect();
    ingest.committed(committed.appended.iter().map(|appended| appended.first), late);
    for (queue, first, jobs) in ingest.take_pieces() {
        committed_state.extend_queue(queue, first, jobs.len());
    }
    assert!(outcomes.lock().unwrap().is_empty(), "no answer comes before the commit");
    ingest.answer();
    std::mem::take(&mut outcomes.lock().unwrap())
}

/// Expected results of pushes, computed in the simplest way.
#[derive(Default)]
struct Model {
    queue: Vec<Job>,
    keys: HashMap<u8, (u64, Job)>,
    bodies: HashMap<u8, (u64, u64, Vec<Job>)>,
}

impl Model {
    fn push(&mut self, jobs: &[Job], whole: Option<u8>) -> Result<Pushed, KeyConflict> {
        if let Some((first, new, before)) = whole.and_then(|of| self.bodies.get(&of)) {
            return if before == jobs {
                Ok(Pushed::Known { first: *first, jobs: *new, late_first: ParkedId(0), late: 0 })
            } else {
                Err(KeyConflict { position: None, earlier: Some(PushedPlace::Index(*first)) })
            };
        }
        let (mut keys, mut queue, mut known) = (self.keys.clone(), self.queue.clone(), Vec::new());
        for (position, &job) in jobs.iter().enumerate() {
            match keys.get(&job.0) {
                Some(&(index, before)) if before == job => known.push((position, PushedPlace::Index(index))),
                Some(&(index, _)) => {
                    let index = Some(index).filter(|&index| index <= self.queue.len() as u64);
                    return Err(KeyConflict {
                        position: Some(position),
                        earlier: index.map(PushedPlace::Index),
                    });
                }
                None => {
                    queue.push(job);
                    keys.insert(job.0, (queue.len() as u64, job));
                }
            }
        }
        let new = (queue.len() - self.queue.len()) as u64;
        let first = if new == 0 { 0 } else { self.queue.len() as u64 + 1 };
        (self.keys, self.queue) = (keys, queue);
        if let Some(of) = whole.filter(|_| new > 0) {
            self.bodies.insert(of, (first, new, jobs.to_vec()));
        }
        Ok(Pushed::Appended { first, jobs: new, known, late: Vec::new() })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn keys_are_known_again_as_in_the_model(
        groups in prop::collection::vec(
            prop::collection::vec(
                (prop::collection::vec((0_u8..12, prop::bool::weighted(0.05).prop_map(u8::from)), 1..6), prop::option::weighted(0.3, 0_u8..4)),
                1..5,
            ),
            1..8,
        )
    ) {
        let (mut committed_state, (store, mut writer), outcomes) = (committed_state(), store(), Outcomes::default());
        let mut model = Model::default();
        for group in groups {
            let pushes = group.iter().map(|(jobs, whole)| push(jobs, *whole, &outcomes)).collect();
            let results = commit(pushes, (&mut committed_state, &store, &mut writer), &outcomes, 1);
            let expected: Vec<_> =
                group.iter().map(|(jobs, whole)| model.push(jobs, *whole)).collect();
            prop_assert_eq!(results, expected);
        }
        let address = &committed_state.configuration().queues[1].address;
        let batch = store.read(address, 1, usize::MAX, usize::MAX).unwrap();
        let stored: Vec<String> = batch.iter().flat_map(|batch| {
            batch.payloads.iter().map(|job| String::from_utf8(job.to_vec()).unwrap())
        }).collect();
        let expected: Vec<String> = model.queue.iter().map(|job| format!("{job:?}")).collect();
        prop_assert_eq!(stored, expected);
    }
}

#[test]
fn a_key_is_forgotten_after_its_time() {
    let (mut committed_state, (store, mut writer), outcomes) =
        (committed_state(), store(), Outcomes::default());
    let mut at = |now| {
        let pushes = vec![push(&[(1, 0)], None, &outcomes)];
        commit(pushes, (&mut committed_state, &store, &mut writer), &outcomes, now).remove(0)
    };
    let new = |first| Ok(Pushed::Appended { first, jobs: 1, known: Vec::new(), late: Vec::new() });
    let known = |index| {
        let known = vec![(0, PushedPlace::Index(index))];
        Ok(Pushed::Appended { first: 0, jobs: 0, known, late: Vec::new() })
    };
    assert_eq!(at(0), new(1));
    assert_eq!(at(9_999), known(1));
    // No commit has removed the expired record.
    assert_eq!(at(10_000), new(2));
    assert_eq!(at(19_999), known(2));
    assert_eq!(at(20_000), new(3));
}

#[test]
fn late_jobs_keep_their_keys_before_and_after_they_are_on_the_queue() {
    let (mut committed_state, (store, mut writer), outcomes) =
        (committed_state(), store(), Outcomes::default());
    let body = || {
        let late = BTreeMap::from([(0, Timestamp(50)), (2, Timestamp(60))]);
        Push { late, ..push(&[(1, 0), (2, 0), (3, 0)], Some(1), &outcomes) }
    };
    let one = |job| push(&[job], None, &outcomes);
    let mut outcomes_of = |pushes| commit(pushes, (&mut committed_state, &store, &mut writer), &outcomes, 1);
    let late = vec![(0, ParkedId(1)), (2, ParkedId(2))];
    let known = |place| Ok(Pushed::Appended { first: 0, jobs: 0, known: vec![(0, place)], late: Vec::new() });
    // A later push of the group knows the jobs of an earlier one.
    let both = outcomes_of(vec![body(), one((3, 0))]);
    let new = Ok(Pushed::Appended { first: 1, jobs: 1, known: Vec::new(), late });
    assert_eq!(both, [new, known(PushedPlace::Late(ParkedId(2)))]);
    let again = Ok(Pushed::Known { first: 1, jobs: 1, late_first: ParkedId(1), late: 2 });
    let conflict = KeyConflict { position: Some(0), earlier: Some(PushedPlace::Late(ParkedId(1))) };
    assert_eq!(outcomes_of(vec![body(), one((1, 1))]), [again, Err(conflict)]);

    let due = IngestGroup::default();
    let due = due.with_due(vec![QueueRef(1), QueueRef(1)], &committed_state, &store, Timestamp(50)).unwrap();
    commit_group(due, (&mut committed_state, &mut writer), &outcomes, 50);
    let address = committed_state.configuration().queues[1].address.clone();
    assert_eq!(store.late_count(&address).unwrap(), 1);
    assert_eq!(store.next_late(&address).unwrap(), Some(Timestamp(60)));
    let mut outcomes_of = |pushes| commit(pushes, (&mut committed_state, &store, &mut writer), &outcomes, 51);
    let places = outcomes_of(vec![one((1, 0)), one((3, 0))]);
    assert_eq!(places, [known(PushedPlace::Index(2)), known(PushedPlace::Late(ParkedId(2)))]);
    assert_eq!(store.queue(&address).unwrap().map(|queue| queue.head), Some(2), "each is appended once");
}

#[test]
fn jobs_wait_for_the_slowest_reader_and_for_nobody_where_nobody_reads() {
    let mut committed_state = committed_state();
    committed_state.set_head(0, 5);
    committed_state.set_head(1, 7);
    assert_eq!((committed_state.waiting(QueueRef(0)), committed_state.waiting(QueueRef(1))), (5, 7));
    let is_a = |step: &tidegate_config::Step| step.address.name.as_str() == "a";
    let step = committed_state.configuration().steps.position(is_a).unwrap();
    let mut progress = Progress::default();
    progress.finish(1, 4);
    committed_state.set_progress((step, 0), progress);
    assert_eq!((committed_state.waiting(QueueRef(0)), committed_state.waiting(QueueRef(1))), (5, 3));
    for step in 0..2 {
        committed_state.remove(step);
    }
    assert_eq!((committed_state.waiting(QueueRef(0)), committed_state.waiting(QueueRef(1))), (0, 0));
}

#[test]
fn many_jobs_are_kept_for_readers_in_pieces() {
    let ((store, _writer), outcomes) = (store(), Outcomes::default());
    let jobs: Vec<Job> = (0..25).flat_map(|one| (0..200).map(move |other| (other, one))).collect();
    let mut pushed = push(&jobs, None, &outcomes);
    pushed.each.clear();
    let mut ingest = IngestGroup::of(vec![pushed], &committed_state(), &store, Timestamp(0)).unwrap();
    ingest.committed([7].into_iter(), Vec::new());
    let mut next = 7;
    for (queue, first, piece) in ingest.take_pieces() {
        assert!(queue == QueueRef(1) && first == next && piece.len() <= PIECE_JOBS);
        next += piece.len() as u64;
    }
    assert_eq!(next, 5007);
}

/// One line of a command with its cursor, and the receiver of its fate.
fn printed(queue: QueueRef, line: &str, cursor: &str) -> (PrintedCommit, crossbeam_channel::Receiver<bool>) {
    let (durable, answer) = crossbeam_channel::bounded(1);
    let jobs = [line.as_bytes()].into_iter().collect();
    let lines = PrintedLines { jobs, bad: Vec::new(), cursor: Some(cursor.to_owned()) };
    (PrintedCommit { queue, lines, errors: None, epoch: 1, durable }, answer)
}

#[test]
fn lines_of_a_command_are_durable_with_the_last_cursor_and_those_of_a_removed_source_are_not() {
    let (mut committed_state, (store, mut writer)) = (committed_state(), store());
    let queue = QueueRef(1);
    let (first, first_answer) = printed(queue, "1", "a");
    let (second, second_answer) = printed(queue, "2", "b");
    let (removed, removed_answer) = printed(QueueRef(9), "3", "c");
    let lines = vec![first, removed, second];
    let ingest = IngestGroup::default().with_printed(lines, &committed_state, Timestamp(0));
    assert!(!ingest.is_empty());
    commit_group(ingest, (&mut committed_state, &mut writer), &Outcomes::default(), 0);
    let answers = [first_answer, second_answer, removed_answer].map(|answer| answer.recv().unwrap());
    assert_eq!(answers, [true, true, false]);
    let source = committed_state.configuration().queues[1].address.clone();
    let jobs = store.read(&source, 1, 9, 999).unwrap().unwrap();
    assert_eq!(jobs.payloads.iter().collect::<Vec<_>>(), [b"1", b"2"]);
    assert_eq!(store.cursors().unwrap(), [(source, "b".to_owned())]);
}

#[test]
fn a_cursor_without_lines_is_made_durable() {
    let committed_state = committed_state();
    let (mut cursor, _answer) = printed(QueueRef(1), "1", "a");
    cursor.lines.jobs = Payloads::new();
    let ingest = IngestGroup::default().with_printed(vec![cursor], &committed_state, Timestamp(0));
    assert!(!ingest.is_empty());
    let (nothing, _answer) = printed(QueueRef(9), "1", "a");
    assert!(IngestGroup::default().with_printed(vec![nothing], &committed_state, Timestamp(0)).is_empty());
}
