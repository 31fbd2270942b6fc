//! Tests of the write-ahead log: a commit in it is as durable as one in the store, and a log that does not fit is
//! refused.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::history::{COMMITS, assert_is_after, run};
use super::*;
use crate::testing::{DiskBytes, DiskFailure};
use crate::{CommitError, OpenError, WalBounds, import, open, open_existing, verify};

/// The log is long enough for all commits of a test.
const LONG: WalBounds = WalBounds { bytes: 1 << 20, records: 1000 };

fn disk() -> FaultyDisk {
    FaultyDisk::new().bound_wal(LONG)
}

fn with(bytes: &DiskBytes) -> FaultyDisk {
    FaultyDisk::with(bytes.clone()).bound_wal(LONG)
}

fn push(number: u64) -> Changes {
    appends([append("a/q", [&*number.to_string()])])
}

/// Commits `numbers`, of which the first two are checkpoints if the store was just opened.
fn push_all(writer: &mut Writer, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        assert_eq!(writer.commit(&push(number)).unwrap().transaction, number);
    }
}

fn assert_has(store: &Store, commits: u64) {
    assert_eq!(store.transaction().unwrap(), commits);
    let expected: Vec<_> = (1..=commits).map(|number| number.to_string().into_bytes()).collect();
    assert_eq!(jobs(store, &address("a/q")), expected);
    assert_eq!(verify(store).unwrap().problems, Vec::<String>::new());
}

/// The commits of a store, after its process died.
fn assert_recovers(bytes: &DiskBytes, commits: u64) {
    let disk = with(bytes);
    let (store, mut writer) = open_on(&disk);
    assert_has(&store, commits);
    push_all(&mut writer, commits + 1..=commits + 4);
    assert_has(&store, commits + 4);
    drop(writer);
    assert_eq!(disk.bytes().wal, b"", "a store that was closed needs no log");
    let (store, _writer) = open_on(&with(&disk.bytes().store.into()));
    assert_has(&store, commits + 4);
}

/// A store with six commits, of which the last four are in the log, and the bytes of its disk before the last one.
fn logged() -> (DiskBytes, DiskBytes) {
    let disk = disk();
    let (_store, mut writer) = open_on(&disk);
    push_all(&mut writer, 1..=5);
    let before = disk.bytes();
    push_all(&mut writer, [6]);
    (before, disk.bytes())
}

fn refusal(bytes: &DiskBytes) -> String {
    let error = open_disk(Box::new(with(bytes))).unwrap_err();
    assert!(matches!(error, OpenError::Wal { .. }), "{error:?}");
    error.to_string()
}

#[test]
fn a_small_commit_is_one_write_and_one_sync_and_leaves_the_store_alone() {
    let disk = disk();
    let (store, mut writer) = open_on(&disk);
    push_all(&mut writer, 1..=3);
    let before = disk.bytes();
    for number in 4..=20 {
        disk.fail(DiskFailure::From(u64::MAX));
        push_all(&mut writer, [number]);
        // Three reads prove that no other process has written. The last operation reads the length of the log.
        assert_eq!((disk.syncs(), disk.operations()), (1, 6));
    }
    assert_eq!(disk.bytes().store, before.store);
    assert_has(&store, 20);
    assert_recovers(&disk.bytes(), 20);
    for seed in 0..4 {
        assert_recovers(&disk.survivors(seed), 20);
    }
}

#[test]
fn large_and_rare_commits_between_small_ones_are_checkpoints() {
    let disk = FaultyDisk::new().bound_wal(WalBounds { bytes: 20 << 10, records: 3 });
    let (store, mut writer) = open_on(&disk);
    assert_eq!(run(&mut writer, COMMITS), COMMITS);
    assert_is_after(&store, COMMITS);
    assert!(disk.bytes().wal.len() <= 20 << 10);
    let (store, _writer) = open_on(&FaultyDisk::with(disk.survivors(0)));
    assert_is_after(&store, COMMITS);
}

#[test]
fn a_log_never_exceeds_its_bounds_and_its_checkpoints_lose_nothing() {
    let bounds = WalBounds { bytes: 1000, records: 7 };
    let disk = FaultyDisk::new().bound_wal(bounds);
    let (_store, mut writer) = open_on(&disk);
    let mut checkpoints = 0;
    for number in 1..=60 {
        let before = disk.bytes().store;
        push_all(&mut writer, [number]);
        checkpoints += u64::from(disk.bytes().store != before);
        assert!(disk.bytes().wal.len() <= 1000);
        assert_recovers(&disk.survivors(number), number);
    }
    // Seven commits are in the log, and the eighth is a checkpoint.
    assert_eq!(checkpoints, 2 + 58 / 8);
}

#[test]
fn the_last_frame_may_end_at_any_byte() {
    let (before, after) = logged();
    let changed: Vec<_> = (0..after.wal.len()).filter(|&at| before.wal[at] != after.wal[at]).collect();
    let (start, end) = (changed[0], changed[changed.len() - 1] + 1);
    for cut in start..end {
        let mut torn = after.clone();
        torn.wal[cut..end].copy_from_slice(&before.wal[cut..end]);
        assert_recovers(&torn, 5);
    }
    assert_recovers(&after, 6);
}

#[test]
fn frames_behind_a_checkpoint_are_not_applied_again() {
    let disk = disk();
    let (_store, mut writer) = open_on(&disk);
    push_all(&mut writer, 1..=6);
    let pauses = vec![(address("a/step"), true)];
    writer.commit(&Changes { pauses, ..push(7) }).unwrap();
    let after_checkpoint = disk.bytes();
    assert_recovers(&after_checkpoint, 7);
    push_all(&mut writer, [8]);
    // The old frames begin where the new one ends: their length is the same.
    let found = disk.bytes();
    assert_recovers(&found, 8);
    // The write of frame 8 is lost, or only a part of it is there.
    for part in 0..120 {
        let mut torn = found.clone();
        torn.wal[part..120].copy_from_slice(&after_checkpoint.wal[part..120]);
        let (store, _writer) = open_on(&with(&torn));
        let commits = store.transaction().unwrap();
        assert!(commits == 7 || commits == 8 && torn == found, "{part}: {commits}");
        assert_has(&store, commits);
    }
}

#[test]
fn damage_in_the_middle_is_refused_with_what_to_do() {
    let (_, after) = logged();
    let mut damaged = after.clone();
    damaged.wal[70] ^= 1;
    insta::assert_snapshot!(refusal(&damaged), @"the write-ahead log `store.wal` is damaged at byte 40: commit 3 cannot be read, and commit 4 behind it can; restore a copy of the store and its log, or replace the log by an empty file to go on with commit 2: later commits are lost then");
    // The way out that the message names.
    let (store, _writer) = open_on(&with(&after.store.clone().into()));
    assert_has(&store, 2);
}

#[test]
fn a_log_of_another_store_or_of_a_later_state_is_refused() {
    let (_, one) = logged();
    let (_, other) = logged();
    insta::assert_snapshot!(refusal(&DiskBytes { wal: other.wal, ..one.clone() }), @"the write-ahead log `store.wal` belongs to another store; move it to that store");
    // A copy of the store, from before the log began.
    let disk = disk();
    let (_store, mut writer) = open_on(&disk);
    push_all(&mut writer, 1..=3);
    drop(writer);
    let copy = disk.bytes().store;
    let (_store, mut writer) = open_on(&disk);
    push_all(&mut writer, 4..=8);
    insta::assert_snapshot!(refusal(&DiskBytes { store: copy, wal: disk.bytes().wal }), @"the write-ahead log `store.wal` is newer than the store: it has commits behind a later state of the store; restore that state of the store, or remove the log to go on without these commits");
}

#[test]
fn a_log_of_an_earlier_opening_is_refused_while_a_later_one_is_missing() {
    let disk = disk();
    let (_store, mut writer) = open_on(&disk);
    push_all(&mut writer, 1..=4);
    let earlier = disk.bytes().wal;
    drop(writer);
    let (_store, mut writer) = open_on(&disk);
    push_all(&mut writer, 5..=9);
    let crashed = disk.bytes();
    insta::assert_snapshot!(refusal(&DiskBytes { wal: earlier, ..crashed.clone() }), @"the write-ahead log `store.wal` is older than the store, which has a later log; restore that log, or replace this one by an empty file to go on with commit 6: later commits are lost then");
    assert_recovers(&crashed, 9);
}

#[test]
fn a_recovery_that_is_cut_off_is_made_again() {
    let (_, image) = logged();
    for operation in 1.. {
        let disk = with(&image);
        disk.fail(DiskFailure::From(operation));
        drop(open_disk(Box::new(disk.clone())));
        for left in [disk.bytes(), disk.survivors(0), disk.survivors(operation)] {
            assert_recovers(&left, 6);
        }
        if !disk.struck() {
            break;
        }
    }
    for sync in 1.. {
        let disk = with(&image);
        disk.fail(DiskFailure::FreezeAt(sync));
        drop(open_disk(Box::new(disk.clone())));
        for seed in 0..4 {
            assert_recovers(&disk.survivors(seed), 6);
        }
        if !disk.struck() {
            break;
        }
    }
}

#[test]
fn a_crash_at_any_operation_and_another_in_the_recovery_lose_nothing() {
    let fresh = {
        let disk = disk();
        drop(open_on(&disk));
        disk.bytes()
    };
    let bounds = WalBounds { bytes: 2000, records: 3 };
    for operation in 1.. {
        let disk = FaultyDisk::with(fresh.clone()).bound_wal(bounds);
        disk.fail(DiskFailure::From(operation));
        let mut promised = 0;
        if let Ok((_store, mut writer)) = open_disk(Box::new(disk.clone())) {
            while promised < 7 && writer.commit(&push(promised + 1)).is_ok() {
                promised += 1;
            }
        }
        if !disk.struck() {
            break;
        }
        for left in [disk.bytes(), disk.survivors(operation)] {
            let whole = open_on(&with(&left)).0.transaction().unwrap();
            assert!(whole == promised || whole == promised + 1, "{operation}: {whole}, {promised} promised");
            // Each fifth operation of a recovery, beginning with another one each time.
            for second in (1 + operation % 5..).step_by(5) {
                let disk = FaultyDisk::with(left.clone()).bound_wal(bounds);
                disk.fail(DiskFailure::From(second));
                drop(open_disk(Box::new(disk.clone())));
                // A commit that was found once is found again.
                for left in [disk.bytes(), disk.survivors(second)] {
                    let (store, _writer) = open_on(&with(&left));
                    assert_has(&store, whole);
                }
                if !disk.struck() {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_failed_write_to_the_log_is_told_and_reopening_knows_whether_it_is_durable() {
    let mut kept = [0, 0];
    for operation in 1.. {
        let disk = disk();
        let (store, mut writer) = open_on(&disk);
        push_all(&mut writer, 1..=4);
        disk.fail(DiskFailure::From(operation));
        if writer.commit(&push(5)).is_ok() {
            break;
        }
        assert!(matches!(writer.commit(&push(5)), Err(CommitError::MustReopen)));
        disk.heal();
        let reopened = writer.reopen().unwrap();
        assert_eq!(reopened.kept.is_some(), reopened.transaction == 5);
        kept[usize::from(reopened.kept.is_some())] += 1;
        if let Some(committed) = &reopened.kept {
            assert_eq!((committed.transaction, committed.appended[0].first), (5, 5));
        }
        // It is as durable as it is visible.
        for seed in 0..3 {
            let (survived, _writer) = open_on(&with(&disk.survivors(seed)));
            assert_has(&survived, reopened.transaction);
        }
        push_all(&mut writer, reopened.transaction + 1..=9);
        assert_has(&store, 9);
        assert_recovers(&disk.bytes(), 9);
    }
    // The write fails, or the sync behind it.
    assert!(kept[0] > 0 && kept[1] > 0, "{kept:?}");
}

#[test]
fn a_full_disk_at_the_log_is_told_as_such_and_loses_nothing() {
    for operation in 1.. {
        let disk = FaultyDisk::new().bound_wal(WalBounds { bytes: 1000, records: 3 });
        let (store, mut writer) = open_on(&disk);
        push_all(&mut writer, [1]);
        disk.fail(DiskFailure::FullFrom(operation));
        let mut number = 2;
        let error = loop {
            match writer.commit(&push(number)) {
                Ok(_) if number == 12 => break None,
                Ok(_) => number += 1,
                Err(error) => break Some(error),
            }
        };
        let Some(error) = error else { break };
        assert!(error.is_full(), "{error:?}");
        if let Err(error) = writer.reopen() {
            assert!(error.is_full(), "{error:?}");
            // The store can be read, with the commits of the log.
            assert!(store.transaction().unwrap() >= number - 1);
            if operation % 2 == 0 {
                // The process ends while the disk is full.
                drop(writer);
                let (store, _writer) = open_on(&with(&disk.bytes()));
                let found = store.transaction().unwrap();
                assert!(found == number || found == number - 1, "{found}");
                assert_has(&store, found);
                continue;
            }
        }
        disk.heal();
        let found = writer.reopen().unwrap().transaction;
        assert!(found == number || found == number - 1, "{found}");
        push_all(&mut writer, found + 1..=found + 5);
        assert_has(&store, found + 5);
    }
}

#[test]
fn a_writer_that_finds_another_one_stops_before_it_writes_to_the_log() {
    let disk = disk();
    let (_, mut first) = open_on(&disk);
    push_all(&mut first, 1..=4);
    // As two processes would, on a file system without locks.
    let (store, mut second) = open_on(&disk);
    assert_has(&store, 4);
    push_all(&mut second, 5..=8);
    let before = disk.bytes();
    assert!(matches!(first.commit(&push(5)), Err(CommitError::Taken { .. })));
    assert!(matches!(first.reopen(), Err(OpenError::Taken { .. })));
    drop(first);
    assert_eq!(disk.bytes(), before);
    push_all(&mut second, [9]);
    assert_recovers(&disk.bytes(), 9);
    // It only closes.
    let (_, mut third) = open_on(&disk);
    push_all(&mut third, 10..=12);
    drop(third);
    let before = disk.bytes();
    drop(second);
    assert_eq!(disk.bytes(), before);
}

/// The folder as it is while the runner has it, and after its death.
fn copy(from: &Path, names: &[&str]) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for name in names {
        fs::copy(from.join(name), copy.path().join(name)).unwrap();
    }
    copy
}

fn message(error: &OpenError, folder: &Path) -> String {
    assert!(matches!(error, OpenError::Wal { .. }), "{error:?}");
    error.to_string().replace(&folder.display().to_string(), "DATA")
}

#[test]
fn a_store_in_a_folder_is_recovered_with_its_log_and_refused_without() {
    let folder = tempfile::tempdir().unwrap();
    let (_store, mut writer) = open(folder.path()).unwrap();
    push_all(&mut writer, [1]);
    assert!(!folder.path().join("store.wal").exists(), "one commit needs no log");
    push_all(&mut writer, 2..=6);
    assert_eq!(fs::metadata(folder.path().join("store.wal")).unwrap().permissions().mode() & 0o777, 0o600);
    let crashed = copy(folder.path(), &["store.redb", "store.wal"]);
    let (store, other) = open(crashed.path()).unwrap();
    assert_has(&store, 6);
    drop(other);
    assert_eq!(fs::metadata(crashed.path().join("store.wal")).unwrap().len(), 0);
    let alone = copy(folder.path(), &["store.redb"]);
    for error in [open(alone.path()).map(drop), open_existing(alone.path()).map(drop)] {
        insta::allow_duplicates! {
            insta::assert_snapshot!(message(&error.unwrap_err(), alone.path()), @"the write-ahead log `DATA/store.wal` is missing, and commits behind commit 2 may be in it; restore it, or create an empty file in its place to go on with commit 2: later commits are lost then");
        }
    }
    fs::write(alone.path().join("store.wal"), "").unwrap();
    let (store, _writer) = open(alone.path()).unwrap();
    assert_has(&store, 2);
    let cut = copy(folder.path(), &["store.redb", "store.wal"]);
    let file = fs::OpenOptions::new().write(true).open(cut.path().join("store.wal")).unwrap();
    file.set_len(100).unwrap();
    insta::assert_snapshot!(message(&open(cut.path()).unwrap_err(), cut.path()), @"the write-ahead log `DATA/store.wal` is cut short: it has 100 bytes, so commits behind commit 2 may be lost; restore it, or replace it by an empty file to go on with commit 2");
    assert_eq!(file.metadata().unwrap().len(), 100, "it stays as it is");
    let unusable = copy(folder.path(), &["store.redb"]);
    fs::create_dir(unusable.path().join("store.wal")).unwrap();
    let error = message(&open(unusable.path()).unwrap_err(), unusable.path());
    assert!(
        error.starts_with(
            "the write-ahead log `DATA/store.wal` cannot be read, and commits behind commit 2 may be in it"
        ),
        "{error}"
    );
    drop(writer);
    let at_rest = copy(folder.path(), &["store.redb"]);
    let (store, _writer) = open(at_rest.path()).unwrap();
    assert_has(&store, 6);
}

#[test]
fn a_log_without_its_store_is_not_taken_for_an_empty_store() {
    let folder = tempfile::tempdir().unwrap();
    let (_store, mut writer) = open(folder.path()).unwrap();
    push_all(&mut writer, 1..=6);
    let log = copy(folder.path(), &["store.wal"]);
    insta::assert_snapshot!(message(&open(log.path()).unwrap_err(), log.path()), @"the write-ahead log `DATA/store.wal` has no store beside it; restore the store, or move the log away, too");
    assert!(import(log.path(), &b""[..]).is_err());
    assert!(!log.path().join("store.redb").exists());
    assert!(open_existing(log.path()).unwrap().is_none());
    fs::remove_file(log.path().join("store.wal")).unwrap();
    open(log.path()).unwrap();
}

#[test]
fn an_empty_log_that_is_deleted_is_created_again() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("store.wal");
    let (_store, mut writer) = open(folder.path()).unwrap();
    push_all(&mut writer, 1..=3);
    drop(writer);
    assert_eq!(fs::metadata(&log).unwrap().len(), 0);
    let (_store, mut writer) = open(folder.path()).unwrap();
    fs::remove_file(&log).unwrap();
    push_all(&mut writer, 4..=9);
    let (store, _writer) = open(copy(folder.path(), &["store.redb", "store.wal"]).path()).unwrap();
    assert_has(&store, 9);
}

#[test]
fn a_store_that_is_whole_needs_no_log_that_can_be_read_or_created() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()).unwrap());
    fs::create_dir(folder.path().join("store.wal")).unwrap();
    for first in [1, 5] {
        let (store, mut writer) = open(folder.path()).unwrap();
        push_all(&mut writer, first..=first + 3);
        assert_has(&store, first + 3);
    }
}

#[test]
fn a_log_that_is_cut_under_its_writer_is_noticed_and_the_store_is_whole_without() {
    let folder = tempfile::tempdir().unwrap();
    let (_store, mut writer) = open(folder.path()).unwrap();
    push_all(&mut writer, 1..=6);
    fs::write(folder.path().join("store.wal"), "").unwrap();
    assert!(matches!(writer.commit(&push(7)), Err(CommitError::WalMissing { .. })));
    drop(writer);
    let (store, _writer) = open(folder.path()).unwrap();
    assert!(store.transaction().unwrap() >= 6);
}

#[test]
fn a_log_that_is_deleted_under_its_writer_is_noticed_and_the_store_is_whole_without() {
    let folder = tempfile::tempdir().unwrap();
    let (_store, mut writer) = open(folder.path()).unwrap();
    push_all(&mut writer, 1..=6);
    fs::remove_file(folder.path().join("store.wal")).unwrap();
    let error = writer.commit(&push(7)).unwrap_err();
    let CommitError::WalMissing { .. } = &error else { panic!("{error:?}") };
    assert!(
        error.to_string().contains("store.wal` is not as this process has left it: it was deleted, moved"),
        "{error}"
    );
    assert!(matches!(writer.commit(&push(7)), Err(CommitError::MustReopen)));
    drop(writer);
    let (store, _writer) = open(folder.path()).unwrap();
    let found = store.transaction().unwrap();
    assert!(found == 6 || found == 7);
    assert_has(&store, found);
}
