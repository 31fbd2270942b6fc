//! Version of the store's format: creates the tables of a new store, migrates older stores, and checks on
//! opening that all records that recovery needs are valid.

use redb::{
    Database, ReadTransaction, ReadableDatabase as _, ReadableTable, ReadableTableMetadata as _,
    TableDefinition, WriteTransaction,
};

use super::delivered::{self, DELIVERED, SERIES};
use super::format::{
    Bytes, CommitRecord, DELIVERIES, EXPIRIES, GENERATIONS, LOG, MARKS, META, NAMES, PARKED_COUNTS, PROGRESS,
    QUEUES, QueueRecord, RecordKey, SEGMENTS, SINKS, SNAPSHOTS, TICKS, from_ordered, names, whole,
};
use super::held_lanes::{self, HELD_LANES};
use super::parked::ParkedRows;
use super::pauses::{self, PausedPart};
use super::wal::state::WalState;
use super::{parked, token_key};
use crate::api::parked_job::ParkedId;
use crate::codec::old_parked_record;
use crate::error::StoreCause;
use tidegate_model::Timestamp;

/// The format that this code writes.
pub(crate) const VERSION: u32 = 13;

/// The key of the version in `meta`.
const FORMAT_KEY: &str = "format";
/// The key of the creation time in `meta`.
const CREATED_KEY: &str = "created";

/// Parked jobs before version 6: by step, due time and number.
const DELAYED: TableDefinition<'_, (u32, u64, u64), Bytes> = TableDefinition::new("delayed");
/// The number of parked jobs by step, before version 6.
const DELAYED_COUNTS: TableDefinition<'_, u32, Bytes> = TableDefinition::new("delayed_counts");
/// The key of the last number of a parked job in `meta`, before version 6.
const DELAYED_KEY: &str = "delayed";

/// Writes the initial records of every store.
pub(crate) fn initialise(txn: &WriteTransaction, now: Timestamp) -> Result<(), StoreCause> {
    txn.open_table(NAMES)?;
    txn.open_table(QUEUES)?;
    txn.open_table(LOG)?;
    txn.open_table(PROGRESS)?;
    txn.open_table(MARKS)?;
    txn.open_table(SEGMENTS)?;
    txn.open_table(SINKS)?;
    txn.open_table(DELIVERIES)?;
    make_tables_of_version_2(txn)?;
    txn.open_table(TICKS)?;
    txn.open_table(HELD_LANES)?;
    make_tables_of_version_9(txn)?;
    parked::initialise(txn)?;
    {
        let mut meta = txn.open_table(META)?;
        meta.insert(FORMAT_KEY, &VERSION.to_le_bytes()[..])?;
        meta.insert(CREATED_KEY, &*RecordKey::Meta(CREATED_KEY).seal(now.0.to_le_bytes().to_vec()))?;
    }
    WalState::initial().write(txn)?;
    CommitRecord { number: 0, time: now }.write(txn)
}

fn make_tables_of_version_2(txn: &WriteTransaction) -> Result<(), StoreCause> {
    txn.open_table(EXPIRIES)?;
    txn.open_table(SNAPSHOTS)?;
    txn.open_table(GENERATIONS)?;
    Ok(())
}

fn make_tables_of_version_9(txn: &WriteTransaction) -> Result<(), StoreCause> {
    txn.open_table(DELIVERED)?;
    txn.open_table(SERIES)?;
    Ok(())
}

/// Migrates a store of an older version to this one, in one transaction. The records of parked jobs are
/// rewritten. All others remain: this version reads the values and records of older ones. Version 10 added times to the
/// records of deliveries by place and of parked jobs, and version 11 to those of deliveries by hash. Version 12 added the
/// record of the write-ahead log, and version 13 packs the records in the log.
pub(crate) fn migrate(database: &Database) -> Result<(), StoreCause> {
    let found = version(&database.begin_read()?.open_table(META)?)?;
    if found >= VERSION {
        return Ok(());
    }
    let txn = database.begin_write()?;
    if found < 2 {
        make_tables_of_version_2(&txn)?;
    }
    txn.open_table(TICKS)?;
    txn.open_table(HELD_LANES)?;
    make_tables_of_version_9(&txn)?;
    parked::initialise(&txn)?;
    if (2..6).contains(&found) {
        move_parked_jobs(&txn)?;
    }
    if (6..9).contains(&found) {
        parked::renew_inputs(&txn)?;
    }
    if found < 12 {
        WalState::initial().write(&txn)?;
    }
    txn.open_table(META)?.insert(FORMAT_KEY, &VERSION.to_le_bytes()[..])?;
    txn.commit()?;
    Ok(())
}

/// Moves the parked jobs of version 2 to 5 to the tables of version 6. They keep their numbers.
fn move_parked_jobs(txn: &WriteTransaction) -> Result<(), StoreCause> {
    let (last, jobs) = {
        let mut meta = txn.open_table(META)?;
        let last = match meta.remove(DELAYED_KEY)? {
            Some(stored) => {
                RecordKey::Meta(DELAYED_KEY).unseal_exact(stored.value()).map(u64::from_le_bytes)?
            }
            None => 0,
        };
        (last, txn.open_table(DELAYED)?)
    };
    let (mut rows, mut moved) = (ParkedRows::new(txn), 0);
    for entry in jobs.iter()? {
        let (key, stored) = entry?;
        let (step, due, id) = key.value();
        let record = RecordKey::Delayed(step, due, id).unseal(stored.value())?;
        let job = old_parked_record::decode(record, from_ordered(due))
            .map_err(|what| StoreCause::Damaged(format!("the delayed job {id} cannot be read: {what}")))?;
        rows.insert((step, ParkedId(id)), &job)?;
        moved += 1;
    }
    rows.finish()?;
    whole("delayed", moved, jobs.len()?)?;
    drop(jobs);
    parked::write_last_id(txn, last)?;
    txn.delete_table(DELAYED)?;
    txn.delete_table(DELAYED_COUNTS)?;
    Ok(())
}

fn version(meta: &impl ReadableTable<&'static str, Bytes>) -> Result<u32, StoreCause> {
    let stored = meta.get(FORMAT_KEY)?;
    match stored.and_then(|stored| stored.value().try_into().ok()).map(u32::from_le_bytes) {
        None | Some(0) => Err(StoreCause::Damaged("its version is missing".into())),
        Some(version) => Ok(version),
    }
}

/// The creation time of the store.
pub(crate) fn created(meta: &impl ReadableTable<&'static str, Bytes>) -> Result<Timestamp, StoreCause> {
    let stored = meta.get(CREATED_KEY)?;
    let stored = stored.ok_or_else(|| StoreCause::Damaged("its creation time is missing".into()))?;
    Ok(Timestamp(i64::from_le_bytes(RecordKey::Meta(CREATED_KEY).unseal_exact(stored.value())?)))
}

/// Checks that the store is of this version, and that every record that recovery needs is present and valid.
/// Returns the last commit.
///
/// The tables that grow with the jobs are checked when they are read: their records have checksums of their
/// own, and opening must not take longer with a longer backlog.
pub(crate) fn check(txn: &ReadTransaction) -> Result<CommitRecord, StoreCause> {
    let meta = txn.open_table(META)?;
    match version(&meta)? {
        VERSION => {}
        newer if newer > VERSION => return Err(StoreCause::Newer { found: newer, known: VERSION }),
        older => return Err(StoreCause::Damaged(format!("it is still of version {older}"))),
    }
    let names_table = txn.open_table(NAMES)?;
    let found = names(&names_table)?.len() as u64;
    whole("names", found, names_table.len()?)?;

    let queues = txn.open_table(QUEUES)?;
    count("queues", &queues, |id, stored| QueueRecord::unseal(id, stored).map(drop))?;
    let progress = txn.open_table(PROGRESS)?;
    count("progress", &progress, |(step, input), stored| {
        RecordKey::Progress(step, input).unseal(stored).map(drop)
    })?;
    let segments = txn.open_table(SEGMENTS)?;
    count("segments", &segments, |(id, ordinal), stored| {
        RecordKey::Segment(id, ordinal).unseal(stored).map(drop)
    })?;
    let sinks = txn.open_table(SINKS)?;
    count("sinks", &sinks, |id, stored| RecordKey::Sink(id).unseal(stored).map(drop))?;
    let snapshots = txn.open_table(SNAPSHOTS)?;
    count("snapshots", &snapshots, |(step, number), stored| {
        RecordKey::Snapshot(step, number).unseal(stored).map(drop)
    })?;
    let generations = txn.open_table(GENERATIONS)?;
    count("generations", &generations, |number, stored| {
        RecordKey::Generation(number).unseal(stored).map(drop)
    })?;
    let series = txn.open_table(SERIES)?;
    count("delivery_series", &series, |place, stored| delivered::unseal_series(place, stored).map(drop))?;
    let ticks = txn.open_table(TICKS)?;
    count("ticks", &ticks, |source, stored| RecordKey::Tick(source).unseal(stored).map(drop))?;
    let counts = txn.open_table(PARKED_COUNTS)?;
    count("parked_counts", &counts, |step, stored| RecordKey::ParkedCount(step).unseal(stored).map(drop))?;
    for part in PausedPart::ALL {
        pauses::read(part, &meta)?;
    }
    held_lanes::read(txn)?;
    token_key::read(&meta)?;
    WalState::read(&meta)?;
    CommitRecord::read(&meta)
}

/// Scans a whole table, since a record that damage hides would look like a missing one.
fn count<K: redb::Key + 'static>(
    table: &str,
    records: &redb::ReadOnlyTable<K, Bytes>,
    check: impl for<'a> Fn(K::SelfType<'a>, &[u8]) -> Result<(), StoreCause>,
) -> Result<(), StoreCause> {
    let mut found = 0;
    for entry in records.iter()? {
        let (key, stored) = entry?;
        check(key.value(), stored.value())?;
        found += 1;
    }
    whole(table, found, records.len()?)
}
