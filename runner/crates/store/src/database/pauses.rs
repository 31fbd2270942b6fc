//! `Pause`: a paused step, which starts no jobs until it is resumed, or a paused monitor, which is not asked. Both outlive
//! restarts. All pauses of one kind are one record.

use redb::{ReadableTable, WriteTransaction};
use serde::{Deserialize, Serialize};

use super::format::{Bytes, META, RecordKey};
use super::read::Store;
use crate::error::{ReadError, StoreCause};
use tidegate_model::{Address, Timestamp};

/// Part of a step that is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PausedPart {
    Step,
    Monitor,
}

/// A paused step, or its monitor.
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
        self.view(|txn| read(PausedPart::Step, &txn.open_table(META)?))
    }

    /// The steps whose monitors are paused, in order of address.
    pub fn monitor_pauses(&self) -> Result<Vec<Pause>, ReadError> {
        self.view(|txn| read(PausedPart::Monitor, &txn.open_table(META)?))
    }
}

impl PausedPart {
    pub(crate) const ALL: [Self; 2] = [Self::Step, Self::Monitor];

    /// Key of the record in `meta`.
    fn key(self) -> &'static str {
        match self {
            Self::Step => "paused",
            Self::Monitor => "paused monitors",
        }
    }
}

pub(crate) fn read(
    part: PausedPart,
    meta: &impl ReadableTable<&'static str, Bytes>,
) -> Result<Vec<Pause>, StoreCause> {
    let Some(stored) = meta.get(part.key())? else { return Ok(Vec::new()) };
    RecordKey::Meta(part.key()).unseal_json(stored.value())
}

/// Pauses and resumes steps, or monitors. One that is already paused keeps its time.
pub(crate) fn write(
    txn: &WriteTransaction,
    part: PausedPart,
    pauses: &[(Address, bool)],
    now: Timestamp,
) -> Result<(), StoreCause> {
    if pauses.is_empty() {
        return Ok(());
    }
    let mut meta = txn.open_table(META)?;
    let mut paused = read(part, &meta)?;
    for (step, pause) in pauses {
        let at = paused.binary_search_by(|one| one.step.cmp(step));
        match (at, pause) {
            (Err(at), true) => paused.insert(at, Pause { step: step.clone(), since: now }),
            (Ok(at), false) => _ = paused.remove(at),
            (Ok(_), true) | (Err(_), false) => {}
        }
    }
    put(part, &mut meta, &paused)
}

/// Restores a pause from an export. Returns whether it is new.
pub(crate) fn restore(txn: &WriteTransaction, part: PausedPart, pause: Pause) -> Result<bool, StoreCause> {
    let mut meta = txn.open_table(META)?;
    let mut paused = read(part, &meta)?;
    let Err(at) = paused.binary_search_by(|one| one.step.cmp(&pause.step)) else { return Ok(false) };
    paused.insert(at, pause);
    put(part, &mut meta, &paused)?;
    Ok(true)
}

fn put(
    part: PausedPart,
    meta: &mut redb::Table<'_, &'static str, Bytes>,
    paused: &[Pause],
) -> Result<(), StoreCause> {
    meta.insert(part.key(), &*RecordKey::Meta(part.key()).seal_json(&paused)?)?;
    Ok(())
}
