//! Renamed steps: moves everything that belongs to a step to another address, in one transaction.

use redb::{ReadableTable as _, WriteTransaction};

use super::format::{self, Bytes, META, NAMES, PARKED, PARKED_STARTED, PROGRESS, RecordKey, SNAPSHOTS};
use super::parked::{self, ParkedRows};
use super::pauses;
use super::read::Store;
use crate::api::parked_job::{ParkedId, ParkedJob};
use crate::error::{ReadError, StoreCause};
use tidegate_model::{Address, Timestamp};

/// A step under a new address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenamedStep {
    pub from: Address,
    pub to: Address,
}

impl Store {
    /// Whether a step was known by the old address, and none by the new one.
    pub fn would_rename(&self, RenamedStep { from, to }: &RenamedStep) -> Result<bool, ReadError> {
        self.view(|txn| {
            let names = txn.open_table(NAMES)?;
            let progress = txn.open_table(PROGRESS)?;
            let has_progress = |step: &Address| -> Result<bool, StoreCause> {
                let Some(id) = format::find_id(&names, step)? else { return Ok(false) };
                Ok(progress.range((id, 0)..=(id, u32::MAX))?.next().is_some())
            };
            Ok(has_progress(from)? && !has_progress(to)?)
        })
    }
}

/// Moves progress, snapshots, parked jobs and pauses. A step that has progress of its own receives nothing.
pub(crate) fn write(
    txn: &WriteTransaction,
    renamed: &[RenamedStep],
    now: Timestamp,
) -> Result<(), StoreCause> {
    for RenamedStep { from, to } in renamed {
        let Some(old) = format::find_id(&txn.open_table(NAMES)?, from)? else { continue };
        let new = format::intern(txn, to)?;
        if txn.open_table(PROGRESS)?.range((new, 0)..=(new, u32::MAX))?.next().is_some() {
            continue;
        }
        let progress = rows(&txn.open_table(PROGRESS)?, (old, 0)..=(old, u32::MAX))?;
        let mut table = txn.open_table(PROGRESS)?;
        for ((_, input), stored) in progress {
            let record = RecordKey::Progress(old, input).unseal(&stored)?.to_vec();
            table.remove((old, input))?;
            table.insert((new, input), &*RecordKey::Progress(new, input).seal(record))?;
        }
        let snapshots = rows(&txn.open_table(SNAPSHOTS)?, (old, 0)..=(old, u64::MAX))?;
        let mut table = txn.open_table(SNAPSHOTS)?;
        for ((_, number), stored) in snapshots {
            let record = RecordKey::Snapshot(old, number).unseal(&stored)?.to_vec();
            table.remove((old, number))?;
            table.insert((new, number), &*RecordKey::Snapshot(new, number).seal(record))?;
        }
        move_parked(txn, old, new)?;
        let paused = pauses::read(&txn.open_table(META)?)?.into_iter().any(|pause| pause.step == *from);
        if paused {
            pauses::write(txn, &[(from.clone(), false), (to.clone(), true)], now)?;
        }
    }
    Ok(())
}

fn move_parked(txn: &WriteTransaction, old: u32, new: u32) -> Result<(), StoreCause> {
    let mut jobs: Vec<(ParkedId, ParkedJob)> = Vec::new();
    for ((_, id), stored) in rows(&txn.open_table(PARKED)?, (old, 0)..=(old, u64::MAX))? {
        jobs.push((ParkedId(id), parked::unseal(old, ParkedId(id), &stored)?));
    }
    for ((_, id), stored) in rows(&txn.open_table(PARKED_STARTED)?, (old, 0)..=(old, u64::MAX))? {
        jobs.push((ParkedId(id), parked::unseal_started(old, ParkedId(id), &stored)?));
    }
    let mut moving = ParkedRows::new(txn);
    for (id, job) in jobs {
        moving.remove((old, id))?;
        moving.insert((new, id), &job)?;
    }
    moving.finish()
}

/// The rows of a range, with their keys.
fn rows<K>(
    table: &impl redb::ReadableTable<K, Bytes>,
    range: std::ops::RangeInclusive<K>,
) -> Result<Vec<(K, Vec<u8>)>, StoreCause>
where
    K: redb::Key + for<'k> redb::Value<SelfType<'k> = K> + for<'k> std::borrow::Borrow<K> + 'static,
{
    let mut rows = Vec::new();
    for entry in table.range(range)? {
        let (key, stored) = entry?;
        rows.push((key.value(), stored.value().to_vec()));
    }
    Ok(rows)
}
