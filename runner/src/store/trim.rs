//! Retention: takes whole values off the front of a queue.

use redb::{ReadableTable as _, WriteTransaction};

use super::block::Value;
use super::error::Cause;
use super::format::{LOG, NAMES, Place, QUEUES, QueueRecord};
use crate::words::{Address, Timestamp};

/// Lets go of the oldest jobs of a queue. Values go whole: jobs that share one with a job which
/// stays, stay too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trim {
    pub queue: Address,
    /// The last index that may go.
    pub up_to: u64,
    /// Only what was committed before this time may go.
    pub older_than: Option<Timestamp>,
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

/// `None` where nothing had to go. Takes as long as there are values to take away, however long the
/// queue is.
pub(super) fn trim(txn: &WriteTransaction, trim: &Trim) -> Result<Option<Trimmed>, Cause> {
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
    log: &redb::Table<'_, (u32, u64), &'static [u8]>,
    queue: u32,
    record: QueueRecord,
    trim: &Trim,
) -> Result<Going, Cause> {
    let mut going = Going { values: Vec::new(), bytes: 0, next: record.first };
    let mut candidate: Option<(u64, u64)> = None;
    for entry in log.range((queue, record.first)..=(queue, u64::MAX))? {
        let (key, stored) = entry?;
        let (_, first) = key.value();
        if !going.take(candidate.take(), first, trim.up_to) {
            return Ok(going);
        }
        if let Some(older_than) = trim.older_than {
            let value = Value::parse(stored.value(), Place::Log(queue, first).seed());
            // Nobody knows how old a damaged value is: it stays, and with it all that follow.
            if value.is_err() || value.is_ok_and(|value| value.time >= older_than) {
                return Ok(going);
            }
        }
        candidate = Some((first, stored.value().len() as u64));
    }
    going.take(candidate, record.head + 1, trim.up_to);
    Ok(going)
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
