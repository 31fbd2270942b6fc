//! Tests of compaction: it returns space, and loses nothing when it is interrupted.

use super::history::{COMMITS, assert_is_after, run};
use super::*;
use crate::database::compact::{compact, compact_at};
use crate::database::origin::StoreLocation;
use crate::open;
use crate::testing::{DiskBytes, DiskFailure};
use crate::{OpenError, Trim, TrimWhen};

fn origin(disk: &FaultyDisk) -> StoreLocation {
    StoreLocation::of_disk(Box::new(disk.clone()))
}

/// A history after many deleted jobs.
fn airy() -> DiskBytes {
    let disk = FaultyDisk::new();
    let (_, mut writer) = open_on(&disk);
    assert_eq!(run(&mut writer, COMMITS), COMMITS);
    drop(writer);
    disk.bytes()
}

#[test]
fn a_stopped_store_gets_smaller_and_keeps_everything() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(compact(folder.path()).unwrap(), None);
    let (_, mut writer) = open(folder.path()).unwrap();
    let noise: Vec<u8> =
        (0..100_000_u64).flat_map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()).collect();
    for _ in 0..4 {
        let gone = Append { queue: address("a/gone"), block: block([&noise[..]]) };
        writer.commit(&appends([gone, append("a/q", ["1"])])).unwrap();
    }
    let trims = vec![Trim { queue: address("a/gone"), up_to: 9, when: TrimWhen::Always, max_bytes: None }];
    writer.commit(&Changes { trims, ..Changes::default() }).unwrap();
    assert!(matches!(compact(folder.path()), Err(OpenError::Locked { .. })));
    drop(writer);
    let compacted = compact(folder.path()).unwrap().unwrap();
    assert!(compacted.after * 10 < compacted.before, "{compacted:?}");
    let len = std::fs::metadata(folder.path().join("store.redb")).unwrap().len();
    assert_eq!(compacted.after, len);
    let (store, _writer) = open(folder.path()).unwrap();
    assert_eq!(jobs(&store, &address("a/q")).len(), 4);
}

#[test]
fn nothing_is_lost_wherever_it_is_cut_off() {
    let image = airy();
    for operation in 1.. {
        let disk = FaultyDisk::with(image.clone());
        disk.fail(DiskFailure::From(operation));
        let _ = compact_at(&origin(&disk));
        if !disk.struck() {
            break;
        }
        for left in [disk.bytes(), disk.survivors(operation)] {
            let (store, _writer) = open_on(&FaultyDisk::with(left));
            assert_is_after(&store, COMMITS);
        }
    }
}
