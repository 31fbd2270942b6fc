//! Table of parked jobs: keeps them in order of their due time.

use std::collections::BTreeMap;
use std::ops::Bound;

use redb::{ReadableTable, WriteTransaction};

use super::format::{self, DELAYED, DELAYED_COUNTS, META, NAMES, RecordKey, from_ordered, ordered};
use super::read::Store;
use crate::api::parked_job::{NO_DUE_TIME, NewParkedJob, ParkedJob, ParkedKey};
use crate::codec::parked_record::{is_of, record};
pub(crate) use crate::codec::parked_record::{seal, unseal};
use crate::error::{ReadError, StoreCause};
use tidegate_model::{Address, Timestamp};

/// The key of the last sequence in `meta`.
const SEQUENCE_KEY: &str = "delayed";

impl Store {
    /// The jobs of `step` that are due at `now`, in order of due time, after `after`. At most `jobs` of them,
    /// and at most `bytes` bytes with their provenance, but at least one.
    pub fn due(
        &self,
        step: &Address,
        now: Timestamp,
        after: Option<&ParkedKey>,
        jobs: usize,
        bytes: usize,
    ) -> Result<Vec<(ParkedKey, ParkedJob)>, ReadError> {
        self.view(|txn| {
            let Some(id) = format::find_id(&txn.open_table(NAMES)?, step)? else { return Ok(Vec::new()) };
            let start = match after {
                Some(after) => Bound::Excluded((id, ordered(after.due), after.sequence)),
                None => Bound::Included((id, 0, 0)),
            };
            let end = (id, ordered(now), u64::MAX);
            // If `after` is not due yet, no later row is.
            if matches!(start, Bound::Excluded(start) if start >= end) {
                return Ok(Vec::new());
            }
            let (mut found, mut found_bytes) = (Vec::new(), 0);
            for entry in txn.open_table(DELAYED)?.range((start, Bound::Included(end)))? {
                let (key, stored) = entry?;
                let (_, due, sequence) = key.value();
                let job = unseal(key.value(), stored.value())?;
                found_bytes += job.payload.len() + job.carried.as_ref().map_or(0, String::len);
                if !found.is_empty() && (found.len() >= jobs || found_bytes > bytes) {
                    break;
                }
                found.push((ParkedKey { step: step.clone(), due: from_ordered(due), sequence }, job));
            }
            Ok(found)
        })
    }

    /// The parked jobs with these keys; `None` for missing ones.
    pub fn delayed(&self, keys: &[ParkedKey]) -> Result<Vec<Option<ParkedJob>>, ReadError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        self.view(|txn| {
            let (names, table) = (txn.open_table(NAMES)?, txn.open_table(DELAYED)?);
            let find = |key: &ParkedKey| {
                let Some(id) = format::find_id(&names, &key.step)? else { return Ok(None) };
                let key = (id, ordered(key.due), key.sequence);
                table.get(key)?.map(|stored| unseal(key, stored.value())).transpose()
            };
            keys.iter().map(find).collect()
        })
    }

    /// As [`Store::delayed_of`]. Scans all rows before it, and none after it.
    pub(crate) fn delayed_of_all(
        &self,
        step: &Address,
        (input, index): (&str, u64),
    ) -> Result<Option<(ParkedKey, ParkedJob)>, ReadError> {
        self.view(|txn| {
            let Some(id) = format::find_id(&txn.open_table(NAMES)?, step)? else { return Ok(None) };
            for entry in txn.open_table(DELAYED)?.range((id, 0, 0)..=(id, u64::MAX, u64::MAX))? {
                let (key, stored) = entry?;
                if is_of(record(key.value(), stored.value())?, input, index) {
                    let job = unseal(key.value(), stored.value())?;
                    let (_, due, sequence) = key.value();
                    return Ok(Some((
                        ParkedKey { step: step.clone(), due: from_ordered(due), sequence },
                        job,
                    )));
                }
            }
            Ok(None)
        })
    }

    /// The last sequence that a parked job received; 0 if none ever did.
    pub fn delayed_sequence(&self) -> Result<u64, ReadError> {
        self.view(|txn| last_sequence(&txn.open_table(META)?))
    }

    /// The due time of the first parked job of `step`, or of the first one after `after`. Jobs without a due
    /// time do not count.
    pub fn next_due(&self, step: &Address, after: Option<Timestamp>) -> Result<Option<Timestamp>, ReadError> {
        self.view(|txn| {
            let Some(id) = format::find_id(&txn.open_table(NAMES)?, step)? else { return Ok(None) };
            let start = match after {
                Some(after) => Bound::Excluded((id, ordered(after), u64::MAX)),
                None => Bound::Included((id, 0, 0)),
            };
            let end = Bound::Excluded((id, ordered(NO_DUE_TIME), 0));
            if matches!((start, end), (Bound::Excluded(start), Bound::Excluded(end)) if start >= end) {
                return Ok(None);
            }
            let first = txn.open_table(DELAYED)?.range((start, end))?.next().transpose()?;
            Ok(first.map(|(key, _)| from_ordered(key.value().1)))
        })
    }

    /// Number of parked jobs of `step`. The time does not depend on it.
    pub fn delayed_count(&self, step: &Address) -> Result<u64, ReadError> {
        self.view(|txn| {
            let Some(id) = format::find_id(&txn.open_table(NAMES)?, step)? else { return Ok(0) };
            count(&txn.open_table(DELAYED_COUNTS)?, id)
        })
    }
}

/// Removes the rows that are no longer parked, then adds the new ones. Returns their keys.
pub(crate) fn write(
    txn: &WriteTransaction,
    undelayed: &[ParkedKey],
    delayed: &[NewParkedJob],
) -> Result<Vec<ParkedKey>, StoreCause> {
    if undelayed.is_empty() && delayed.is_empty() {
        return Ok(Vec::new());
    }
    let mut ids = Ids::default();
    let mut table = txn.open_table(DELAYED)?;
    let mut grown: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for key in undelayed {
        let id = ids.get(txn, &key.step)?;
        if table.remove((id, ordered(key.due), key.sequence))?.is_some() {
            grown.entry(id).or_default().1 += 1;
        }
    }
    let mut keys = Vec::with_capacity(delayed.len());
    let mut records = Vec::with_capacity(delayed.len());
    let mut sequence = last_sequence(&txn.open_table(META)?)?;
    for NewParkedJob { step, due, job } in delayed {
        let id = ids.get(txn, step)?;
        sequence += 1;
        records.push(((id, ordered(*due), sequence), job));
        grown.entry(id).or_default().0 += 1;
        keys.push(ParkedKey { step: step.clone(), due: *due, sequence });
    }
    // Neighbours in the table are written together.
    records.sort_unstable_by_key(|&(key, _)| key);
    for (key, job) in records {
        table.insert(key, &*seal(key, job))?;
    }
    write_last_sequence(txn, sequence)?;
    let mut counts = txn.open_table(DELAYED_COUNTS)?;
    for (id, (more, less)) in grown {
        let left = (count(&counts, id)? + more).saturating_sub(less);
        counts.insert(id, &*seal_count(id, left))?;
    }
    Ok(keys)
}

/// Numbers of names, each looked up once.
#[derive(Default)]
struct Ids<'a>(BTreeMap<&'a Address, u32>);

impl<'a> Ids<'a> {
    fn get(&mut self, txn: &WriteTransaction, address: &'a Address) -> Result<u32, StoreCause> {
        if let Some(&id) = self.0.get(address) {
            return Ok(id);
        }
        let id = format::intern(txn, address)?;
        self.0.insert(address, id);
        Ok(id)
    }
}

/// Number of parked jobs of the step with this number.
pub(crate) fn count(counts: &impl ReadableTable<u32, format::Bytes>, step: u32) -> Result<u64, StoreCause> {
    let stored = counts.get(step)?;
    let unseal = |stored: redb::AccessGuard<'_, format::Bytes>| {
        RecordKey::DelayedCount(step).unseal_exact(stored.value()).map(u64::from_le_bytes)
    };
    stored.map_or(Ok(0), unseal)
}

pub(crate) fn seal_count(step: u32, count: u64) -> Vec<u8> {
    RecordKey::DelayedCount(step).seal(count.to_le_bytes().to_vec())
}

/// The last sequence that a job received; 0 if none ever did.
pub(crate) fn last_sequence(
    meta: &impl ReadableTable<&'static str, format::Bytes>,
) -> Result<u64, StoreCause> {
    let Some(stored) = meta.get(SEQUENCE_KEY)? else { return Ok(0) };
    RecordKey::Meta(SEQUENCE_KEY).unseal_exact(stored.value()).map(u64::from_le_bytes)
}

pub(crate) fn write_last_sequence(txn: &WriteTransaction, sequence: u64) -> Result<(), StoreCause> {
    let record = RecordKey::Meta(SEQUENCE_KEY).seal(sequence.to_le_bytes().to_vec());
    txn.open_table(META)?.insert(SEQUENCE_KEY, &*record)?;
    Ok(())
}
