//! Tests of `CrashGuard`: check each rule, and compare random deaths with a model.

use std::mem;

use super::begun::BegunJobs;
use super::*;
use crate::testing::{DiskFailure, FaultyDisk};
use tidegate_model::Address;

pub(crate) mod deaths;

fn step(address: &str) -> Address {
    Address::parse(address).unwrap()
}

fn span(first: u64, jobs: u64) -> AttemptSpan {
    AttemptSpan::new(&step("a/step"), &[("a/in", first)], jobs)
}

/// The guard of a run with one guarded step, `a/step`.
fn open(folder: &Path) -> CrashGuard {
    CrashGuard::open(folder, [&step("a/step")])
}

#[test]
fn the_slot_of_a_worker_that_has_ended_is_used_again() {
    let process = Process::first();
    let (first, second) = (process.attempts.slot(), process.attempts.slot());
    let places = [first.record.0.offset, second.record.0.offset];
    assert_ne!(places[0], places[1]);
    // Another record of the worker may live longer.
    let record = first.record();
    drop(first);
    let third = process.attempts.slot();
    assert!(!places.contains(&third.record.0.offset));
    drop(record);
    assert_eq!(process.attempts.slot().record.0.offset, places[0]);
    assert_eq!(process.attempts.slot().record.0.offset, places[0]);
}

/// A process that can die; its writes remain.
struct Process {
    disk: FaultyDisk,
    attempts: CrashGuard,
}

impl Process {
    fn first() -> Self {
        Self::after(&[])
    }

    fn after(bytes: &[u8]) -> Self {
        let suspects = Suspects::gather(cell::decode_all(bytes));
        let disk = FaultyDisk::with(first_bytes(&suspects));
        let attempts =
            CrashGuard::on(Some(Box::new(disk.clone())), "attempts".into(), (suspects, BegunJobs::default()));
        Self { disk, attempts }
    }

    /// The next process, after this one died. Its attempts must be forgotten, not dropped.
    fn next(&self) -> Self {
        Self::after(&self.disk.bytes().store)
    }

    /// Dies within a batch.
    fn die_together(&self, batch: &[AttemptSpan]) -> Self {
        let mut slot = self.attempts.slot();
        let BatchMode::Together(attempt) = slot.begin(batch, 3) else { panic!("one by one") };
        let next = self.next();
        drop(attempt);
        next
    }

    /// Dies within a job of a batch that has suspects.
    fn die_alone(&self, job: &AttemptSpan) -> Self {
        let mut slot = self.attempts.slot();
        let SuspectVerdict::Run(attempt) = careful(slot.begin(&[*job], 3)).attempt(job) else {
            panic!("set aside")
        };
        let next = self.next();
        drop(attempt);
        next
    }

    fn pace(&self, batch: &[AttemptSpan]) -> &'static str {
        match self.attempts.slot().begin(batch, 3) {
            BatchMode::Together(_) => "together",
            BatchMode::OneByOne(_) => "one by one",
        }
    }

    /// The decision on a job with a limit; a job that runs succeeds.
    fn verdict(&self, job: &AttemptSpan, crash_limit: u32) -> Option<u32> {
        let mut slot = self.attempts.slot();
        match slot.begin(&[*job], crash_limit) {
            BatchMode::Together(_) => None,
            BatchMode::OneByOne(mut careful) => match careful.attempt(job) {
                SuspectVerdict::Run(_) => None,
                SuspectVerdict::SetAside { crashes } => Some(crashes),
            },
        }
    }

    /// The first indices and lengths of all suspects of the next run.
    fn found(&self) -> Vec<(u64, u64, u32)> {
        let found = cell::decode_all(&self.disk.bytes().store).into_iter();
        found.map(|suspect| (suspect.span.first, suspect.span.jobs, suspect.crashes)).collect()
    }
}

fn careful(pace: BatchMode<'_>) -> SuspectRun<'_> {
    match pace {
        BatchMode::OneByOne(careful) => careful,
        BatchMode::Together(_) => panic!("together"),
    }
}

#[test]
fn an_attempt_that_ends_leaves_nothing() {
    let process = Process::first();
    let mut slot = process.attempts.slot();
    let attempt = slot.begin(&[span(1, 1024)], 3);
    assert_eq!(process.found(), [(1, 1024, 1)]);
    drop(attempt);
    assert_eq!(process.found(), []);
}

#[test]
fn a_batch_that_has_a_suspect_runs_one_by_one_and_the_others_do_not() {
    let process = Process::first().die_together(&[span(1, 10)]);
    assert_eq!(process.pace(&[span(10, 10)]), "one by one");
    assert_eq!(process.pace(&[span(50, 1), span(5, 1)]), "one by one");
    assert_eq!(process.pace(&[span(11, 10)]), "together");
}

#[test]
fn one_batch_of_suspects_runs_at_a_time_and_all_others_run_beside_it() {
    let process = Process::first().die_together(&[span(1, 10), span(50, 10)]);
    assert!(process.attempts.has_suspects());
    let (mut one, mut other) = (process.attempts.slot(), process.attempts.slot());
    assert!(one.suspects(&[span(5, 1)]) && !one.suspects(&[span(11, 10)]));
    let suspect = one.begin(&[span(1, 10)], 3);
    let beside = other.begin(&[span(11, 10)], 3);
    assert!(matches!((&suspect, &beside), (BatchMode::OneByOne(_), BatchMode::Together(_))));
    assert!(process.attempts.0.turn.try_lock().is_none());
    drop(suspect);
    assert!(process.attempts.0.turn.try_lock().is_some());
}

#[test]
fn what_an_attempt_does_outside_of_the_process_makes_no_suspect() {
    let process = Process::first();
    let mut slot = process.attempts.slot();
    let record = slot.record();
    assert!(record.lift().is_none());
    let attempt = slot.begin(&[span(1, 3)], 3);
    assert_eq!(process.found(), [(1, 3, 1)]);
    let lifted = record.lift();
    assert_eq!(process.found(), []);
    // It runs code of this process again.
    drop(lifted);
    assert_eq!(process.found(), [(1, 3, 1)]);
    let lifted = record.lift();
    process.attempts.close();
    drop(lifted);
    assert_eq!(process.found(), []);
    drop(attempt);
}

#[test]
fn a_job_is_set_aside_when_it_has_used_up_its_limit_and_not_before() {
    let (job, other) = (span(5, 1), span(6, 1));
    let mut process = Process::first().die_together(&[span(1, 10)]);
    for crashes in 2..=3 {
        assert_eq!(process.attempts.0.crashes(&job).0, crashes - 1);
        process = process.die_alone(&job);
    }
    assert_eq!(process.verdict(&job, 3), Some(3));
    assert_eq!(process.verdict(&other, 3), None);
}

#[test]
fn an_attempt_that_goes_well_ends_the_row() {
    let job = span(5, 1);
    let process = Process::first().die_together(&[job]).die_alone(&job);
    assert_eq!(process.verdict(&job, 3), None);
    assert_eq!(process.found(), []);
    assert_eq!(process.pace(&[job]), "together");
}

#[test]
fn what_was_not_reached_stays_a_suspect() {
    let batches = [span(1, 10), span(100, 10)];
    let process = Process::first().die_together(&batches);
    assert_eq!(process.verdict(&span(1, 1), 3), None);
    let process = process.die_alone(&span(2, 1));
    let mut found = process.found();
    found.sort_unstable();
    assert_eq!(found, [(2, 1, 2), (2, 9, 1), (100, 10, 1)]);
    assert_eq!(process.pace(&[span(105, 1)]), "one by one");
}

#[test]
fn a_job_is_not_set_aside_for_its_company() {
    // The limit was lowered after a crash within a batch.
    let process = Process::first().die_together(&[span(1, 10)]);
    assert_eq!(process.verdict(&span(3, 1), 1), None);
    let process = process.die_alone(&span(4, 1));
    assert_eq!(process.verdict(&span(4, 1), 1), Some(2));
    assert_eq!(process.verdict(&span(5, 1), 1), None);
}

#[test]
fn a_limit_of_one_needs_one_crash() {
    let process = Process::first();
    let mut slot = process.attempts.slot();
    let mut batch = careful(slot.begin(&[span(1, 10)], 1));
    assert!(matches!(batch.attempt(&span(1, 1)), SuspectVerdict::Run(_)));
    let attempt = batch.attempt(&span(2, 1));
    let next = process.next();
    drop(attempt);
    let verdicts: Vec<_> = (1..=3).map(|index| next.verdict(&span(index, 1), 1)).collect();
    assert_eq!(verdicts, [None, Some(1), None]);
}

#[test]
fn a_job_that_was_set_aside_stays_so_until_that_is_durable() {
    let job = span(5, 1);
    let mut process = Process::first().die_together(&[job]);
    for _ in 0..2 {
        process = process.die_alone(&job);
    }
    assert_eq!(process.verdict(&job, 3), Some(3));
    let process = process.next();
    assert_eq!(process.verdict(&job, 3), Some(3));
    process.attempts.settle(&span(1, 10));
    assert_eq!(process.verdict(&job, 3), None);
    assert_eq!(process.next().found(), []);
}

#[test]
fn a_panic_is_no_crash() {
    let process = Process::first();
    let attempts = process.attempts.clone();
    let thread = std::thread::spawn(move || {
        let mut slot = attempts.slot();
        let _attempt = slot.begin(&[span(1, 10)], 3);
        panic!("a bug");
    });
    assert!(thread.join().is_err());
    assert_eq!(process.found(), []);
}

#[test]
fn a_panic_among_suspects_lets_the_others_go_on() {
    let process = Process::first().die_together(&[span(1, 10)]);
    let attempts = process.attempts.clone();
    let thread = std::thread::spawn(move || {
        let mut slot = attempts.slot();
        let _batch = slot.begin(&[span(1, 10)], 3);
        panic!("a bug");
    });
    assert!(thread.join().is_err());
    assert_eq!(process.pace(&[span(1, 10)]), "one by one");
}

#[test]
fn an_end_on_purpose_is_no_crash_and_no_pardon() {
    let process = Process::first().die_together(&[span(1, 10)]);
    let (mut one, mut other) = (process.attempts.slot(), process.attempts.slot());
    let attempt = one.begin(&[span(11, 10)], 3);
    process.attempts.close();
    let attempt_behind = other.begin(&[span(21, 10)], 3);
    assert_eq!(process.found(), [(1, 10, 1)]);
    drop((attempt, attempt_behind));
    assert_eq!(process.found(), [(1, 10, 1)]);
}

#[test]
fn a_batch_of_more_pieces_than_a_slot_holds_runs_one_by_one() {
    let process = Process::first();
    let pieces: Vec<_> = (0..9).map(|number| span(10 * number + 1, 2)).collect();
    assert_eq!(process.pace(&pieces[..8]), "together");
    assert_eq!(process.pace(&pieces), "one by one");
    let next = process.die_together(&pieces[..8]);
    assert_eq!(next.pace(&[span(72, 1)]), "one by one");
    assert_eq!(next.pace(&[span(73, 1)]), "together");
}

#[test]
fn each_worker_has_a_place_of_its_own() {
    let process = Process::first();
    let mut slots: Vec<_> = (0..100).map(|_| process.attempts.slot()).collect();
    let attempts: Vec<_> = slots
        .iter_mut()
        .zip(0_u64..)
        .map(|(slot, number)| slot.begin(&[span(10 * number + 1, 10)], 3))
        .collect();
    assert_eq!(process.found().len(), 100);
    drop(attempts);
    assert_eq!(process.found(), []);
}

#[test]
fn what_cannot_be_written_stops_nothing() {
    let process = Process::first().die_together(&[span(1, 10)]);
    process.disk.fail(DiskFailure::From(1));
    assert_eq!(process.pace(&[span(11, 10)]), "together");
    assert_eq!(process.verdict(&span(1, 1), 3), None);
    assert!(process.disk.struck());
}

#[test]
fn without_a_file_everything_runs_together() {
    let mut slot = CrashGuard::none().slot();
    assert!(matches!(slot.begin(&[span(1, 10)], 1), BatchMode::Together(_)));
}

#[test]
fn a_file_in_a_folder_carries_suspects_over() {
    let folder = tempfile::tempdir().unwrap();
    let attempts = open(folder.path());
    let mut slot = attempts.slot();
    mem::forget(slot.begin(&[span(1, 10)], 3));
    let attempts = open(folder.path());
    assert!(attempts.0.concerns(&[span(10, 1)]));
    // No job ran, and the suspects remain.
    let attempts_again = open(folder.path());
    assert!(attempts_again.0.concerns(&[span(10, 1)]));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn suspects_of_steps_that_are_no_longer_guarded_are_dropped_with_their_records() {
    let folder = tempfile::tempdir().unwrap();
    let other = AttemptSpan::new(&step("a/other"), &[("a/in", 1)], 10);
    // As an earlier version has written it.
    let unknown = AttemptSpan { step: 0, ..span(20, 10) };
    for batch in [span(1, 10), other, unknown] {
        mem::forget(
            CrashGuard::open(folder.path(), [&step("a/step"), &step("a/other")]).slot().begin(&[batch], 3),
        );
    }
    let attempts = open(folder.path());
    assert!(attempts.0.concerns(&[span(1, 1)]) && attempts.0.concerns(&[unknown]));
    assert!(!attempts.0.concerns(&[other]));
    assert_eq!(cell::decode_all(&fs::read(folder.path().join(FILE)).unwrap()).len(), 2);
    assert!(!CrashGuard::open(folder.path(), []).0.concerns(&[span(1, 1)]));
}

#[test]
fn a_file_that_is_something_else_is_no_reason_to_stop() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join(FILE)).unwrap();
    let mut slot = open(folder.path()).slot();
    assert!(matches!(slot.begin(&[span(1, 10)], 3), BatchMode::Together(_)));
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(FILE), vec![0xA5; 100_000]).unwrap();
    assert!(open(folder.path()).0.is_unsuspicious());
    assert!(open(&folder.path().join("nowhere")).0.disk.is_none());
}
