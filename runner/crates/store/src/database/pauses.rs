//! `Pause`: a paused step, which starts no jobs until it is resumed, also after restarts. All pauses are one
//! record.

use redb::{ReadableTable, WriteTransaction};
use serde::{Deserialize, Serialize};

use super::format::{Bytes, META, RecordKey};
use super::read::Store;
use crate::error::{ReadError, StoreCause};
use tidegate_model::{Address, Timestamp};

/// Their key in `meta`.
const KEY: &str = "paused";

/// A paused step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    pub step: Address,
    /// When it was paused.
    pub since: Timestamp,
}

impl Store {
    /// The paused steps, in order of address.
    pub fn pauses(&self) -> Result<Vec<Pause>, ReadError> {
        self.view(|txn| read(&txn.open_table(META)?))
    }
}

pub(crate) fn read(meta: &impl ReadableTable<&'static str, Bytes>) -> Result<Vec<Pause>, StoreCause> {
    let Some(stored) = meta.get(KEY)? else { return Ok(Vec::new()) };
    RecordKey::Meta(KEY).unseal_json(stored.value())
}

/// Pauses and resumes steps. A step that is already paused keeps its time.
pub(crate) fn write(
    txn: &WriteTransaction,
    pauses: &[(Address, bool)],
    now: Timestamp,
) -> Result<(), StoreCause> {
    if pauses.is_empty() {
        return Ok(());
    }
    let mut meta = txn.open_table(META)?;
    let mut paused = read(&meta)?;
    for (step, pause) in pauses {
        let at = paused.binary_search_by(|one| one.step.cmp(step));
        match (at, pause) {
            (Err(at), true) => paused.insert(at, Pause { step: step.clone(), since: now }),
            (Ok(at), false) => _ = paused.remove(at),
            (Ok(_), true) | (Err(_), false) => {}
        }
    }
    put(&mut meta, &paused)
}

/// Restores a pause from an export. Returns whether it is new.
pub(crate) fn restore(txn: &WriteTransaction, pause: Pause) -> Result<bool, StoreCause> {
    let mut meta = txn.open_table(META)?;
    let mut paused = read(&meta)?;
    let Err(at) = paused.binary_search_by(|one| one.step.cmp(&pause.step)) else { return Ok(false) };
    paused.insert(at, pause);
    put(&mut meta, &paused)?;
    Ok(true)
}

fn put(meta: &mut redb::Table<'_, &'static str, Bytes>, paused: &[Pause]) -> Result<(), StoreCause> {
    meta.insert(KEY, &*RecordKey::Meta(KEY).seal_json(&paused)?)?;
    Ok(())
}
