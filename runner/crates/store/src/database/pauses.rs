//! Steps that somebody has paused: they start nothing until they are resumed, however often a runner is
//! started in between. They are few, and stand in one record.

use redb::{ReadableTable, WriteTransaction};
use serde::{Deserialize, Serialize};

use super::format::{Bytes, META, RecordKey};
use super::read::Store;
use crate::error::{Cause, ReadError};
use tidegate_model::{Address, Timestamp};

/// Where they stand in `meta`.
const KEY: &str = "paused";

/// A step that starts nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    pub step: Address,
    /// When somebody has paused it.
    pub since: Timestamp,
}

impl Store {
    /// The steps that are paused, in order of address.
    pub fn pauses(&self) -> Result<Vec<Pause>, ReadError> {
        self.view(|txn| read(&txn.open_table(META)?))
    }
}

pub(crate) fn read(meta: &impl ReadableTable<&'static str, Bytes>) -> Result<Vec<Pause>, Cause> {
    let Some(stored) = meta.get(KEY)? else { return Ok(Vec::new()) };
    RecordKey::Meta(KEY).unseal_json(stored.value())
}

/// Pauses and resumes steps. One that is paused already stays so since it was.
pub(crate) fn write(txn: &WriteTransaction, pauses: &[(Address, bool)], now: Timestamp) -> Result<(), Cause> {
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

/// Writes down one more, as an export has it; answers whether it was not there yet.
pub(crate) fn restore(txn: &WriteTransaction, pause: Pause) -> Result<bool, Cause> {
    let mut meta = txn.open_table(META)?;
    let mut paused = read(&meta)?;
    let Err(at) = paused.binary_search_by(|one| one.step.cmp(&pause.step)) else { return Ok(false) };
    paused.insert(at, pause);
    put(&mut meta, &paused)?;
    Ok(true)
}

fn put(meta: &mut redb::Table<'_, &'static str, Bytes>, paused: &[Pause]) -> Result<(), Cause> {
    meta.insert(KEY, &*RecordKey::Meta(KEY).seal_json(&paused)?)?;
    Ok(())
}
