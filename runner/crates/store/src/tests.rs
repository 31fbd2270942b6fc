//! Tests of the store: compare it with a model, over disks that fail, and on damaged files.

use tidegate_plugin::Payloads;

use super::testing::FaultyDisk;
use super::{Append, Block, Changes, Details, Store, Writer, open_disk};
use tidegate_model::{Address, Timestamp};

pub(crate) mod compact;
pub(crate) mod crash;
pub(crate) mod cursors;
pub(crate) mod damage;
pub(crate) mod delivered;
pub(crate) mod delivered_ranges;
pub(crate) mod details;
pub(crate) mod export;
pub(crate) mod folder;
pub(crate) mod history;
pub(crate) mod late;
pub(crate) mod migrate;
pub(crate) mod model;
pub(crate) mod parked;
pub(crate) mod sink_files;
pub(crate) mod takeovers;
pub(crate) mod trim;
pub(crate) mod verify;
pub(crate) mod wal;

fn address(text: &str) -> Address {
    Address::parse(text).unwrap()
}

fn block<'a>(jobs: impl IntoIterator<Item = &'a [u8]>) -> Block {
    Block::encode(&jobs.into_iter().collect::<Payloads>(), Details::default())
}

fn append<'a>(queue: &str, jobs: impl IntoIterator<Item = &'a str>) -> Append {
    Append { queue: address(queue), block: block(jobs.into_iter().map(str::as_bytes)) }
}

fn appends(appends: impl IntoIterator<Item = Append>) -> Changes {
    Changes { now: Timestamp(1), appends: appends.into_iter().collect(), ..Changes::default() }
}

fn open_on(disk: &FaultyDisk) -> (Store, Writer) {
    open_disk(Box::new(disk.clone())).unwrap()
}

/// All kept jobs of a queue, a few at a time.
fn jobs(store: &Store, queue: &Address) -> Vec<Vec<u8>> {
    let Some(state) = store.queue(queue).unwrap() else { return Vec::new() };
    let mut jobs = Vec::new();
    let mut next = state.first;
    while let Some(batch) = store.read(queue, next, 7, 10_000).unwrap() {
        assert_eq!(batch.first, next);
        assert!((1..=7).contains(&batch.len()));
        next = batch.end();
        jobs.extend(batch.payloads.iter().map(<[u8]>::to_vec));
    }
    assert_eq!(next, state.head + 1);
    jobs
}
