//! `Trim`: retention, which deletes whole values from the front of a queue.

use redb::{ReadableTable, WriteTransaction};

use super::format::{Bytes, LOG, NAMES, QUEUES, QueueRecord, RecordKey};
use super::read::Store;
use crate::codec::log_record::LogValue;
use crate::error::{ReadError, StoreCause};
use tidegate_model::{Address, Timestamp};

/// A deletion of the oldest jobs of a queue. Values are deleted as a whole: a job stays while another job of
/// its value stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trim {
    pub queue: Address,
    /// The last index that may be deleted.
    pub up_to: u64,
    /// The condition for a job that may be deleted.
    pub when: TrimWhen,
    /// While the queue exceeds this number of bytes, jobs that may be deleted are, without regard to `when`.
    pub max_bytes: Option<u64>,
}

/// The condition for a deletion, besides the size of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimWhen {
    /// None.
    Always,
    /// The job was committed before this time.
    OlderThan(Timestamp),
    /// Never: only the size of the queue counts.
    Never,
}

/// The result of a trim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trimmed {
    pub queue: Address,
    /// The oldest index that is left; `head + 1` if none is.
    pub first: u64,
    pub jobs: u64,
    pub bytes: u64,
}

impl Store {
    /// Whether a trim would delete jobs if it were committed now.
    pub fn would_trim(&self, trim: &Trim) -> Result<bool, ReadError> {
        self.view(|txn| {
            let Some(queue) = super::format::find_id(&txn.open_table(NAMES)?, &trim.queue)? else {
                return Ok(false);
            };
            let stored = txn.open_table(QUEUES)?.get(queue)?;
            let record = stored.map(|stored| QueueRecord::unseal(queue, stored.value())).transpose()?;
            let Some(record) = record else { return Ok(false) };
            Ok(!going(&txn.open_table(LOG)?, queue, record, trim)?.values.is_empty())
        })
    }
}

/// `None` if no job is deleted. The time depends on the number of deleted values, not on the length of the
/// queue.
pub(crate) fn trim(txn: &WriteTransaction, trim: &Trim) -> Result<Option<Trimmed>, StoreCause> {
    let Some(queue) = super::format::find_id(&txn.open_table(NAMES)?, &trim.queue)? else { return Ok(None) };
    let mut queues = txn.open_table(QUEUES)?;
    let Some(record) =
        queues.get(queue)?.map(|stored| QueueRecord::unseal(queue, stored.value())).transpose()?
    else {
        return Ok(None);
    };
    let mut log = txn.open_table(LOG)?;
    let going = going(&log, queue, record, trim)?;
    if going.values.is_empty() {
        return Ok(None);
    }
    for first in &going.values {
        log.remove((queue, *first))?;
    }
    let left = QueueRecord { first: going.next, bytes: record.bytes.saturating_sub(going.bytes), ..record };
    queues.insert(queue, &*left.seal(queue))?;
    Ok(Some(Trimmed {
        queue: trim.queue.clone(),
        first: left.first,
        jobs: left.first - record.first,
        bytes: going.bytes,
    }))
}

struct Going {
    /// The first index of each value.
    values: Vec<u64>,
    bytes: u64,
    /// The index after the last deleted job.
    next: u64,
}

/// The end of a value is read from the start of the next one, so that a damaged value can be deleted too.
fn going(
    log: &impl ReadableTable<(u32, u64), Bytes>,
    queue: u32,
    record: QueueRecord,
    trim: &Trim,
) -> Result<Going, StoreCause> {
    let mut going = Going { values: Vec::new(), bytes: 0, next: record.first };
    let mut candidate: Option<(u64, u64)> = None;
    for entry in log.range((queue, record.first)..=(queue, u64::MAX))? {
        let (key, stored) = entry?;
        let (_, first) = key.value();
        let bytes = stored.value().len() as u64;
        if !going.take(candidate.take(), first, trim.up_to) {
            return Ok(going);
        }
        let too_large = trim.max_bytes.is_some_and(|most| record.bytes.saturating_sub(going.bytes) > most);
        if !too_large && !is_over(stored.value(), RecordKey::Log(queue, first).seed(), trim.when) {
            return Ok(going);
        }
        candidate = Some((first, bytes));
    }
    going.take(candidate, record.head + 1, trim.up_to);
    Ok(going)
}

/// Whether the value is too old. The age of a damaged value is unknown: it stays.
fn is_over(stored: &[u8], place: u64, when: TrimWhen) -> bool {
    match when {
        TrimWhen::Always => true,
        TrimWhen::OlderThan(time) => LogValue::parse(stored, place).is_ok_and(|value| value.time < time),
        TrimWhen::Never => false,
    }
}

impl Going {
    /// Adds the value that ends where `end` starts. Returns whether there may be more.
    fn take(&mut self, value: Option<(u64, u64)>, end: u64, up_to: u64) -> bool {
        let Some((first, bytes)) = value else { return true };
        if end - 1 > up_to {
            return false;
        }
        self.values.push(first);
        self.bytes += bytes;
        self.next = end;
        true
    }
}
