//! Held lanes: lanes of a step that start no jobs until an operator resumes them, also after restarts.

use redb::{ReadTransaction, ReadableTable as _, TableDefinition, WriteTransaction};
use serde::{Deserialize, Serialize};

use super::format::{self, Bytes, NAMES, Names, RecordKey};
use super::read::Store;
use crate::error::{ReadError, StoreCause};
use tidegate_model::{Address, Timestamp};

pub(crate) const HELD_LANES: TableDefinition<'_, (u32, &str), Bytes> = TableDefinition::new("held_lanes");

/// Hold of a lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaneHold {
    pub since: Timestamp,
    /// The invalid job at which the lane halted, with the reason; `None`: an operator paused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halted: Option<String>,
}

/// A held lane. Jobs without a lane are in the lane with the empty name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaneRecord {
    pub step: Address,
    pub lane: String,
    pub hold: LaneHold,
}

/// Change of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneChange {
    pub step: Address,
    pub lane: String,
    /// `None` resumes the lane.
    pub hold: Option<LaneHold>,
}

impl Store {
    /// The held lanes of a step, in order of name.
    pub fn held_lanes(&self, step: &Address) -> Result<Vec<(String, LaneHold)>, ReadError> {
        self.view(|txn| {
            let Some(id) = format::find_id(&txn.open_table(NAMES)?, step)? else { return Ok(Vec::new()) };
            of_step(&txn.open_table(HELD_LANES)?, id)
        })
    }
}

/// All held lanes.
pub(crate) fn read(txn: &ReadTransaction) -> Result<Vec<LaneRecord>, StoreCause> {
    let table = txn.open_table(HELD_LANES)?;
    let names = Names::read(&txn.open_table(NAMES)?)?;
    let mut held = Vec::new();
    for entry in table.iter()? {
        let (key, stored) = entry?;
        let (step, lane) = key.value();
        let hold = RecordKey::HeldLane(step, lane).unseal_json(stored.value())?;
        held.push(LaneRecord { step: names.get(step)?.clone(), lane: lane.to_owned(), hold });
    }
    Ok(held)
}

/// Holds and resumes lanes. A lane that is held already keeps its hold, unless a job halts a paused one.
pub(crate) fn write(txn: &WriteTransaction, changes: &[LaneChange]) -> Result<(), StoreCause> {
    for LaneChange { step, lane, hold } in changes {
        let id = format::intern(txn, step)?;
        let mut table = txn.open_table(HELD_LANES)?;
        let key = (id, lane.as_str());
        let Some(hold) = hold else {
            table.remove(key)?;
            continue;
        };
        let before = table.get(key)?.map(|stored| unseal(id, lane, stored.value())).transpose()?;
        if before.is_none_or(|before| before.halted.is_none() && hold.halted.is_some()) {
            table.insert(key, &*RecordKey::HeldLane(id, lane).seal_json(hold)?)?;
        }
    }
    Ok(())
}

/// Restores a held lane from an export. Returns whether it is new.
pub(crate) fn restore(txn: &WriteTransaction, held: LaneRecord) -> Result<bool, StoreCause> {
    let LaneRecord { step, lane, hold } = held;
    let id = format::intern(txn, &step)?;
    let is_new = txn.open_table(HELD_LANES)?.get((id, lane.as_str()))?.is_none();
    write(txn, &[LaneChange { step, lane, hold: Some(hold) }])?;
    Ok(is_new)
}

/// Removes the held lanes of a step.
pub(crate) fn take(txn: &WriteTransaction, step: u32) -> Result<Vec<(String, LaneHold)>, StoreCause> {
    let mut table = txn.open_table(HELD_LANES)?;
    let taken = of_step(&table, step)?;
    for (lane, _) in &taken {
        table.remove((step, lane.as_str()))?;
    }
    Ok(taken)
}

/// Adds held lanes to a step.
pub(crate) fn put(txn: &WriteTransaction, step: u32, held: &[(String, LaneHold)]) -> Result<(), StoreCause> {
    let mut table = txn.open_table(HELD_LANES)?;
    for (lane, hold) in held {
        table.insert((step, lane.as_str()), &*RecordKey::HeldLane(step, lane).seal_json(hold)?)?;
    }
    Ok(())
}

fn of_step(
    table: &impl redb::ReadableTable<(u32, &'static str), Bytes>,
    step: u32,
) -> Result<Vec<(String, LaneHold)>, StoreCause> {
    let mut held = Vec::new();
    for entry in table.range((step, "")..)? {
        let (key, stored) = entry?;
        let (of, lane) = key.value();
        if of != step {
            break;
        }
        held.push((lane.to_owned(), unseal(step, lane, stored.value())?));
    }
    Ok(held)
}

fn unseal(step: u32, lane: &str, stored: &[u8]) -> Result<LaneHold, StoreCause> {
    RecordKey::HeldLane(step, lane).unseal_json(stored)
}
