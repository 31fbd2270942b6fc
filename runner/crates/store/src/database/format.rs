//! Format of the store: defines its tables and their records.
//!
//! Names are written once, in `names`, and are numbers elsewhere, so that a key of the log takes twelve
//! bytes.
//!
//! | table | key | record |
//! | --- | --- | --- |
//! | meta | `format` | the version, u32; never sealed, never moved: every version must be able to read it |
//! | meta | `created` | time i64 |
//! | meta | `commit` | number u64, time i64 of the last commit |
//! | meta | `parked` | u64, the last number that a parked job received |
//! | meta | `paused` | JSON, see [`super::pauses`]; missing if no step was ever paused |
//! | meta | `paused monitors` | JSON, as `paused`; missing if no monitor was ever paused |
//! | meta | `stopped` | JSON, see [`super::stops`]; missing until a step stopped; ignored by older versions |
//! | meta | `token key` | 32 bytes, see [`super::token_key`]; missing until the first run |
//! | meta | `wal` | store u64, generation u64, salt u64, open u8, see [`super::wal::state`] |
//! | names | `pipeline/name` | u32, from 1 |
//! | queues | queue | head u64, first u64, bytes u64 |
//! | log | queue, first index | see [`crate::codec::log_record`] |
//! | progress | step, or 0 for errors that an operator handled; input | JSON |
//! | marks | source, index | segment u32, offset u64, line u64 |
//! | segments | source, ordinal | JSON |
//! | sinks | sink | JSON |
//! | delivered | series, last index | see [`crate::codec::delivered_record`] |
//! | `delivery_series` | step, input, both as in the delivery hash | u32, from 1; see [`super::delivered`] |
//! | deliveries | hash | kind u8, jobs u32, time i64, keep until i64; before version 2 without times; an arrival (kind 3) has also first u64, content u64; a completion (kind 4) has the status for jobs, and content u64; an arrival with late jobs (kind 5) has, behind the content, the first number u64 and the number u32 of the late ones |
//! | expiries | keep until, commit, part u32 | the hashes of some deliveries, u128 each; if the part has the bit [`SPANS`], spans of `delivered`: series, first index and number of jobs, varints each |
//! | snapshots | step, number u64 | JSON |
//! | parked | step, number u64 | see [`crate::codec::parked_record`]; all but started jobs; late jobs of a queue are under its number with the bit [`LATE`] |
//! | `parked_due` | step, due time as kind u8 and time u64, number u64 | none; the jobs of `parked` |
//! | `parked_of` | step, input and index u64 (see [`crate::codec::parked_record`]), number u64 | none; the jobs of `parked` |
//! | `parked_started` | step, number u64 | as `parked`; the jobs with a started attempt |
//! | `parked_counts` | step | numbers of its delayed jobs, outputs, started and pending jobs, u64 each |
//! | generations | number u64 | fingerprint u64, time i64 |
//! | ticks | source | time i64 up to which all ticks of the schedule are handled |
//! | renames | number u64 | JSON, see [`super::name_history`]; missing until a part was renamed; ignored by older versions |
//! | bindings | step, binding | number of the input, see [`super::bindings`]; missing until a step has bindings; ignored by older versions |
//! | `sink_files` | sink, path | JSON, see [`super::sink_files`]; missing until a sink left a file; ignored by older versions |
//! | cursors | source | UTF-8, see [`super::cursors`]; missing until a command printed a cursor; ignored by older versions |
//! | `held_lanes` | step, lane | JSON, see [`super::held_lanes`] |
//! | history, texts | | see [`super::history`]; missing until the first run; ignored by older versions |
//!
//! A record is *sealed*: it is followed by its XXH3-64, seeded with its table and key. Numbers are
//! little-endian. JSON is for records that are few, or whose texts vary in length. The highest bit of a time
//! in a key is flipped, so that keys are in order of time.
//!
//! Version 2 added the tables from `expiries` on, the columns of a section, and the times of deliveries. It
//! also added the number of the commit to each value of the log. Version 3 added deliveries that are arrivals. Version 4
//! added the table `ticks`, and paused steps, which an older version would run. Version 5 added the
//! completions that external systems send, and the key of their tokens. Version 6 gave parked jobs numbers that
//! do not depend on their due time. Before, the table `delayed` had them by step, due time and number. Version 7 added
//! late jobs, and deliveries that are arrivals of which some are late. Version 8 added held lanes and paused monitors, which
//! an older version would not hold. Version 9 records deliveries of single jobs by place, in the table `delivered`. Older ones
//! stay under their hashes until they expire. The keys of `parked_of` are in the order of the index; before, they were
//! hashes. Version 12 added the write-ahead log, without which an older version would read an incomplete store.

use redb::{ReadableTable, TableDefinition, WriteTransaction};
use serde::Serialize;
use serde::de::DeserializeOwned;
use twox_hash::XxHash3_64;

use crate::error::StoreCause;
use tidegate_model::{DeliveryHash, SourceOffset, Timestamp};

pub(crate) mod names;

pub(crate) use names::{Names, exchange_ids, find_id, intern, names};

pub(crate) type Bytes = &'static [u8];
pub(crate) const META: TableDefinition<'_, &str, Bytes> = TableDefinition::new("meta");
pub(crate) const NAMES: TableDefinition<'_, &str, Bytes> = TableDefinition::new("names");
pub(crate) const QUEUES: TableDefinition<'_, u32, Bytes> = TableDefinition::new("queues");
pub(crate) const LOG: TableDefinition<'_, (u32, u64), Bytes> = TableDefinition::new("log");
pub(crate) const PROGRESS: TableDefinition<'_, (u32, u32), Bytes> = TableDefinition::new("progress");
pub(crate) const MARKS: TableDefinition<'_, (u32, u64), Bytes> = TableDefinition::new("marks");
pub(crate) const SEGMENTS: TableDefinition<'_, (u32, u32), Bytes> = TableDefinition::new("segments");
pub(crate) const SINKS: TableDefinition<'_, u32, Bytes> = TableDefinition::new("sinks");
pub(crate) const DELIVERIES: TableDefinition<'_, u128, Bytes> = TableDefinition::new("deliveries");
pub(crate) const EXPIRIES: TableDefinition<'_, (u64, u64, u32), Bytes> = TableDefinition::new("expiries");
pub(crate) const SNAPSHOTS: TableDefinition<'_, (u32, u64), Bytes> = TableDefinition::new("snapshots");
pub(crate) const PARKED: TableDefinition<'_, (u32, u64), Bytes> = TableDefinition::new("parked");
pub(crate) const PARKED_DUE: TableDefinition<'_, (u32, u8, u64, u64), ()> =
    TableDefinition::new("parked_due");
pub(crate) const PARKED_OF: TableDefinition<'_, (u32, u64, u64), ()> = TableDefinition::new("parked_of");
pub(crate) const PARKED_STARTED: TableDefinition<'_, (u32, u64), Bytes> =
    TableDefinition::new("parked_started");
pub(crate) const PARKED_COUNTS: TableDefinition<'_, u32, Bytes> = TableDefinition::new("parked_counts");
pub(crate) const GENERATIONS: TableDefinition<'_, u64, Bytes> = TableDefinition::new("generations");
pub(crate) const TICKS: TableDefinition<'_, u32, Bytes> = TableDefinition::new("ticks");

/// The step number in the progress of errors that an operator handled; no name has this number.
pub(crate) const BY_HAND: u32 = 0;

/// The bit in the part of an expiry whose record has spans of deliveries.
pub(crate) const SPANS: u32 = 1 << 31;

/// The bit by which the number of a queue becomes the number that its late jobs are parked under: a step may have the
/// name of the queue. No name has such a number.
pub(crate) const LATE: u32 = 1 << 31;

/// A record's table and key, which seed its checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RecordKey<'a> {
    Meta(&'a str),
    Name(&'a str),
    Queue(u32),
    Log(u32, u64),
    Progress(u32, u32),
    Mark(u32, u64),
    Segment(u32, u32),
    Sink(u32),
    Delivery(DeliveryHash),
    Expiry(u64, u64, u32),
    Delivered(u32, u64),
    Series(&'a str, &'a str),
    Snapshot(u32, u64),
    /// Before version 6.
    Delayed(u32, u64, u64),
    Generation(u64),
    Tick(u32),
    History(u64),
    Parked(u32, u64),
    ParkedStarted(u32, u64),
    ParkedCount(u32),
    Rename(u64),
    SinkFile(u32, &'a str),
    Cursor(u32),
    Binding(u32, &'a str),
    HeldLane(u32, &'a str),
}

/// The record of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueRecord {
    /// The index of the last job; 0 if none was ever appended.
    pub(crate) head: u64,
    /// The index of the oldest job that is kept; `head + 1` if none is.
    pub(crate) first: u64,
    /// Bytes of the kept values in the log.
    pub(crate) bytes: u64,
}

/// The last commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommitRecord {
    pub(crate) number: u64,
    pub(crate) time: Timestamp,
}

impl RecordKey<'_> {
    pub(crate) fn seed(self) -> u64 {
        let text = |text: &str| XxHash3_64::oneshot(text.as_bytes());
        let (table, a, b, c) = match self {
            RecordKey::Meta(key) => (0_u8, text(key), 0, 0),
            RecordKey::Name(name) => (1, text(name), 0, 0),
            RecordKey::Queue(id) => (2, u64::from(id), 0, 0),
            RecordKey::Log(id, first) => (3, u64::from(id), first, 0),
            RecordKey::Progress(step, input) => (4, u64::from(step), u64::from(input), 0),
            RecordKey::Mark(id, index) => (5, u64::from(id), index, 0),
            RecordKey::Segment(id, ordinal) => (6, u64::from(id), u64::from(ordinal), 0),
            RecordKey::Sink(id) => (7, u64::from(id), 0, 0),
            RecordKey::Delivery(DeliveryHash(hash)) => {
                let [low, high] = halves(hash);
                (8, low, high, 0)
            }
            RecordKey::Expiry(until, commit, part) => (9, until, commit, u64::from(part)),
            RecordKey::Snapshot(step, number) => (10, u64::from(step), number, 0),
            RecordKey::Delayed(step, due, sequence) => (11, u64::from(step), due, sequence),
            RecordKey::Generation(number) => (13, number, 0, 0),
            RecordKey::Tick(source) => (14, u64::from(source), 0, 0),
            RecordKey::History(sequence) => (15, sequence, 0, 0),
            RecordKey::Parked(step, number) => (16, u64::from(step), number, 0),
            RecordKey::ParkedStarted(step, number) => (17, u64::from(step), number, 0),
            RecordKey::ParkedCount(step) => (18, u64::from(step), 0, 0),
            RecordKey::Rename(number) => (19, number, 0, 0),
            RecordKey::SinkFile(sink, path) => (20, u64::from(sink), text(path), 0),
            RecordKey::Cursor(source) => (24, u64::from(source), 0, 0),
            RecordKey::HeldLane(step, lane) => (25, u64::from(step), text(lane), 0),
            RecordKey::Delivered(series, last) => (26, u64::from(series), last, 0),
            RecordKey::Series(step, input) => (27, text(step), text(input), 0),
            RecordKey::Binding(step, binding) => (21, u64::from(step), text(binding), 0),
        };
        let mut key = [0; 25];
        key[0] = table;
        key[1..9].copy_from_slice(&a.to_le_bytes());
        key[9..17].copy_from_slice(&b.to_le_bytes());
        key[17..].copy_from_slice(&c.to_le_bytes());
        // The tables of version 1 have keys of two parts.
        XxHash3_64::oneshot(if table < 9 { &key[..17] } else { &key })
    }

    /// Appends the checksum to the record.
    pub(crate) fn seal(self, mut record: Vec<u8>) -> Vec<u8> {
        let checksum = XxHash3_64::oneshot_with_seed(self.seed(), &record);
        record.extend_from_slice(&checksum.to_le_bytes());
        record
    }

    /// Removes the checksum that [`Self::seal`] appended, and verifies it.
    pub(crate) fn unseal(self, stored: &[u8]) -> Result<&[u8], StoreCause> {
        match stored.split_last_chunk() {
            Some((record, checksum))
                if XxHash3_64::oneshot_with_seed(self.seed(), record) == u64::from_le_bytes(*checksum) =>
            {
                Ok(record)
            }
            _ => Err(StoreCause::Damaged(format!("the checksum of the record {self:?} is wrong"))),
        }
    }

    pub(crate) fn seal_json(self, record: &impl Serialize) -> Result<Vec<u8>, StoreCause> {
        // Serialization fails only for keys that are not texts, or in a writer that fails.
        let json = serde_json::to_vec(record).map_err(|error| StoreCause::Io(error.into()))?;
        Ok(self.seal(json))
    }

    pub(crate) fn unseal_json<T: DeserializeOwned>(self, stored: &[u8]) -> Result<T, StoreCause> {
        serde_json::from_slice(self.unseal(stored)?)
            .map_err(|error| StoreCause::Damaged(format!("the record {self:?} is invalid: {error}")))
    }

    pub(crate) fn unseal_exact<const N: usize>(self, stored: &[u8]) -> Result<[u8; N], StoreCause> {
        self.unseal(stored)?
            .try_into()
            .map_err(|_| StoreCause::Damaged(format!("the record {self:?} has the wrong length")))
    }
}

impl QueueRecord {
    pub(crate) const EMPTY: Self = Self { head: 0, first: 1, bytes: 0 };

    pub(crate) fn seal(self, queue: u32) -> Vec<u8> {
        let numbers = [self.head, self.first, self.bytes];
        RecordKey::Queue(queue).seal(numbers.into_iter().flat_map(u64::to_le_bytes).collect())
    }

    pub(crate) fn unseal(queue: u32, stored: &[u8]) -> Result<Self, StoreCause> {
        let bytes: [u8; 24] = RecordKey::Queue(queue).unseal_exact(stored)?;
        Ok(Self { head: u64_at(&bytes, 0), first: u64_at(&bytes, 8), bytes: u64_at(&bytes, 16) })
    }
}

impl CommitRecord {
    const KEY: &str = "commit";

    pub(crate) fn read(meta: &impl ReadableTable<&'static str, Bytes>) -> Result<Self, StoreCause> {
        let stored = meta
            .get(Self::KEY)?
            .ok_or_else(|| StoreCause::Damaged("the record of the last commit is missing".into()))?;
        let bytes: [u8; 16] = RecordKey::Meta(Self::KEY).unseal_exact(stored.value())?;
        Ok(Self { number: u64_at(&bytes, 0), time: Timestamp(u64_at(&bytes, 8).cast_signed()) })
    }

    pub(crate) fn write(self, txn: &WriteTransaction) -> Result<(), StoreCause> {
        let record = [self.number.to_le_bytes(), self.time.0.to_le_bytes()].concat();
        txn.open_table(META)?.insert(Self::KEY, &*RecordKey::Meta(Self::KEY).seal(record))?;
        Ok(())
    }
}

pub(crate) fn seal_mark(source: u32, mark: &SourceOffset) -> Vec<u8> {
    let record =
        [&mark.segment.to_le_bytes()[..], &mark.offset.to_le_bytes(), &mark.line.to_le_bytes()].concat();
    RecordKey::Mark(source, mark.index).seal(record)
}

pub(crate) fn unseal_mark(source: u32, index: u64, stored: &[u8]) -> Result<SourceOffset, StoreCause> {
    let bytes: [u8; 20] = RecordKey::Mark(source, index).unseal_exact(stored)?;
    Ok(SourceOffset {
        index,
        segment: u32_at(&bytes, 0),
        offset: u64_at(&bytes, 4),
        line: u64_at(&bytes, 12),
    })
}

/// An error if damage hides some of the records of a table.
pub(crate) fn whole(table: &str, found: u64, expected: u64) -> Result<(), StoreCause> {
    if found == expected {
        return Ok(());
    }
    Err(StoreCause::Damaged(format!("the table `{table}` has {expected} records, and {found} can be found")))
}

/// A time in a key: in order, also before 1970.
pub(crate) fn ordered(time: Timestamp) -> u64 {
    time.0.cast_unsigned() ^ 1 << 63
}

/// The inverse of [`ordered`].
pub(crate) fn from_ordered(key: u64) -> Timestamp {
    Timestamp((key ^ 1 << 63).cast_signed())
}

fn halves(number: u128) -> [u64; 2] {
    let bytes = number.to_le_bytes();
    [u64_at(&bytes, 0), u64_at(&bytes, 8)]
}

/// The number at `at`; `bytes` is an array that is long enough.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte))
}
