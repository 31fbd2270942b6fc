//! Crashes at every operation and every sync of a history: each durable commit is complete, and no commit is
//! partial.

use super::history::{COMMITS, assert_is_after, commit, run};
use super::*;
use crate::OpenError;
use crate::testing::{DiskBytes, DiskFailure};

/// A store that is created and synced, so that only the history can fail. (In a folder, an incomplete store
/// has another name.)
fn fresh() -> FaultyDisk {
    let disk = FaultyDisk::new();
    drop(open_on(&disk));
    FaultyDisk::with(disk.bytes())
}

/// Opens the file that a crash left, and asserts that it has `promised` commits, or one more, and accepts
/// further commits.
fn assert_recovers(bytes: DiskBytes, promised: u64, what: &str) {
    let (store, mut writer) = open_on(&FaultyDisk::with(bytes));
    let found = store.transaction().unwrap();
    assert!(
        found == promised || found == promised + 1,
        "{what}: {found} commits, and {promised} were promised"
    );
    assert_is_after(&store, found);
    if found < COMMITS {
        writer.commit(commit(found + 1)).unwrap();
        assert_is_after(&store, found + 1);
    }
}

/// Number of commits whose operations all fail once. They are those of two eras, and the rare ones of a third.
const CRASHED_COMMITS: u64 = 17;

/// redb commits in two ways; see `QUICK_REPAIR_BYTES_MIN`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum File {
    Small,
    Large,
}

fn open_as(file: File, disk: &FaultyDisk) -> Result<Writer, OpenError> {
    let (_, mut writer) = open_disk(Box::new(disk.clone()))?;
    if file == File::Large {
        writer.commit_as_in_a_large_file();
    }
    Ok(writer)
}

#[test]
fn nothing_is_lost_or_torn_whichever_operation_is_the_last() {
    crash_at_every_operation(File::Small, CRASHED_COMMITS);
}

#[test]
fn nothing_is_lost_or_torn_in_a_large_file_whichever_operation_is_the_last() {
    // Its commits take many more operations.
    crash_at_every_operation(File::Large, 10);
}

#[test]
fn nothing_is_lost_or_torn_whichever_sync_is_the_last() {
    lose_power_at_every_sync(File::Small);
}

#[test]
fn nothing_is_lost_or_torn_in_a_large_file_whichever_sync_is_the_last() {
    lose_power_at_every_sync(File::Large);
}

fn crash_at_every_operation(file: File, commits: u64) {
    let image = fresh().bytes();
    for operation in 1.. {
        let disk = FaultyDisk::with(image.clone());
        disk.fail(DiskFailure::From(operation));
        let promised = open_as(file, &disk).map_or(0, |mut writer| run(&mut writer, commits));
        if !disk.struck() {
            assert_eq!(promised, commits);
            break;
        }
        let what = format!("operation {operation}");
        assert_recovers(disk.bytes(), promised, &what);
        assert_recovers(disk.survivors(operation), promised, &format!("{what}, power lost"));
    }
}

fn lose_power_at_every_sync(file: File) {
    let image = fresh().bytes();
    for sync in 1.. {
        let disk = FaultyDisk::with(image.clone());
        disk.fail(DiskFailure::FreezeAt(sync));
        let mut writer = open_as(file, &disk).unwrap();
        // The commit during which the disk froze is reported as durable, as are all later ones.
        let mut promised = 0;
        while promised < COMMITS && writer.commit(commit(promised + 1)).is_ok() && !disk.struck() {
            promised += 1;
        }
        if !disk.struck() {
            assert_eq!(promised, COMMITS);
            break;
        }
        for seed in 0..4 {
            assert_recovers(disk.survivors(seed), promised, &format!("sync {sync}, seed {seed}"));
        }
    }
}

#[test]
fn a_full_disk_loses_nothing_and_work_goes_on_when_there_is_room() {
    let image = fresh().bytes();
    for operation in 1.. {
        let disk = FaultyDisk::with(image.clone());
        let (store, mut writer) = open_on(&disk);
        disk.fail(DiskFailure::FullFrom(operation));
        let mut number = 1;
        let error = loop {
            match writer.commit(commit(number)) {
                Ok(_) if number == CRASHED_COMMITS => break None,
                Ok(_) => number += 1,
                Err(error) => break Some(error),
            }
        };
        let Some(error) = error else { break };
        assert!(error.is_full(), "operation {operation}: {error:?}");
        // Before the store is reopened, no commit succeeds.
        assert!(writer.commit(commit(number)).is_err());
        if let Err(error) = writer.reopen() {
            assert!(error.is_full(), "operation {operation}: {error:?}");
        }
        disk.heal();
        let found = writer.reopen().unwrap().transaction;
        assert!(found == number || found == number - 1);
        assert_is_after(&store, found);
        if found < COMMITS {
            writer.commit(commit(found + 1)).unwrap();
            assert_is_after(&store, found + 1);
        }
    }
}

#[test]
fn a_failed_commit_that_became_durable_is_told() {
    let image = fresh().bytes();
    let whole = open_on(&FaultyDisk::with(image.clone())).1.commit(commit(1)).unwrap();
    let mut kept = [0, 0];
    for operation in 1.. {
        let disk = FaultyDisk::with(image.clone());
        let (store, mut writer) = open_on(&disk);
        disk.fail(DiskFailure::From(operation));
        let failed = writer.commit(commit(1)).is_err();
        if !disk.struck() {
            break;
        }
        disk.heal();
        let reopened = writer.reopen().unwrap();
        let expected = (failed && reopened.transaction == 1).then(|| whole.clone());
        assert_eq!(reopened.kept, expected, "operation {operation}");
        kept[usize::from(reopened.kept.is_some())] += 1;
        assert_is_after(&store, reopened.transaction);
    }
    // Only a failure at the very end of a commit is too late to undo it.
    assert!(kept[0] > 0, "{kept:?}");
}

#[test]
fn what_a_failed_sync_left_in_doubt_is_written_again() {
    let disk = fresh();
    let (store, mut writer) = open_on(&disk);
    let operations = {
        disk.fail(DiskFailure::From(u64::MAX));
        writer.commit(commit(1)).unwrap();
        disk.operations()
    };
    for operation in 1..=operations {
        disk.fail(DiskFailure::From(operation));
        let next = store.transaction().unwrap() + 1;
        if writer.commit(commit(next)).is_ok() {
            continue;
        }
        disk.heal();
        let found = writer.reopen().unwrap().transaction;
        // The power may fail at once: the bytes that are visible now must be durable.
        let survivors = FaultyDisk::with(disk.survivors(0));
        let (survived, _writer) = open_on(&survivors);
        assert_is_after(&survived, found);
    }
}
