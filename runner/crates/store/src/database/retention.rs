//! Retention: takes whole values off the front of a queue.

use redb::{ReadableTable, WriteTransaction};

use super::format::{Bytes, LOG, NAMES, QUEUES, QueueRecord, RecordKey};
use super::read::Store;
use crate::codec::log_record::Value;
use crate::error::{Cause, ReadError};
use tidegate_model::{Address, Timestamp};

/// Lets go of the oldest jobs of a queue. Values go whole: jobs that share one with a job which
/// stays, stay too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trim {
    pub queue: Address,
    /// The last index that may go.
    pub up_to: u64,
    /// What makes a job go that may go.
    pub when: TrimWhen,
    /// While the queue takes more than this, in bytes, jobs that may go do so whatever `when` says.
    pub max_bytes: Option<u64>,
}

/// What makes a job go, besides the size of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimWhen {
    /// That it may.
    Always,
    /// That it was committed before this time.
    OlderThan(Timestamp),
    /// Nothing: only the size of the queue counts.
    Never,
}

/// What a trim took away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trimmed {
    pub queue: Address,
    /// The oldest index that is left; `head + 1` where none is.
    pub first: u64,
    pub jobs: u64,
    pub bytes: u64,
}

impl Store {
    /// Whether a trim would take anything away, were it committed now.
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

/// `None` where nothing had to go. Takes as long as there are values to take away, however long the
/// queue is.
pub(crate) fn trim(txn: &WriteTransaction, trim: &Trim) -> Result<Option<Trimmed>, Cause> {
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
    /// The first index of each.
    values: Vec<u64>,
    bytes: u64,
    /// The index after the last job that goes.
    next: u64,
}

/// Where a value ends is read from where the next one starts, so that a damaged value can go too.
fn going(
    log: &impl ReadableTable<(u32, u64), Bytes>,
    queue: u32,
    record: QueueRecord,
    trim: &Trim,
) -> Result<Going, Cause> {
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

/// Whether the time of a value is over. Nobody knows how old a damaged one is: it stays.
fn is_over(stored: &[u8], place: u64, when: TrimWhen) -> bool {
    match when {
        TrimWhen::Always => true,
        TrimWhen::OlderThan(time) => Value::parse(stored, place).is_ok_and(|value| value.time < time),
        TrimWhen::Never => false,
    }
}

impl Going {
    /// Adds the value that ends where `end` starts; answers whether there may be more.
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
