//! Name history: records each rename, with the number of the generation that made it.

use redb::{ReadTransaction, ReadableTable as _, TableDefinition, TableError, WriteTransaction};
use serde::{Deserialize, Serialize};

use super::format::{Bytes, RecordKey};
use crate::error::StoreCause;
use tidegate_model::{Address, NameHistory, NamedKind, RenamedPart};

pub(crate) const RENAMES: TableDefinition<'_, u64, Bytes> = TableDefinition::new("renames");

/// A rename without the key of its row.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RenameRecord {
    /// The number of the generation that made it.
    generation: u64,
    is_step: bool,
    from: Address,
    to: Address,
}

/// All renames.
pub(crate) fn read(txn: &ReadTransaction) -> Result<NameHistory, StoreCause> {
    let mut history = NameHistory::default();
    for RenameRecord { generation, is_step, from, to } in records(txn)? {
        let kind = if is_step { NamedKind::Step } else { NamedKind::Endpoint };
        history.add(generation, [RenamedPart { kind, from, to }]);
    }
    Ok(history)
}

/// The records of all renames, in the order of time.
pub(crate) fn records(txn: &ReadTransaction) -> Result<Vec<RenameRecord>, StoreCause> {
    let table = match txn.open_table(RENAMES) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut records = Vec::new();
    for entry in table.iter()? {
        let (number, stored) = entry?;
        records.push(RecordKey::Rename(number.value()).unseal_json(stored.value())?);
    }
    Ok(records)
}

/// Adds a rename to the history of names.
pub(crate) fn record(txn: &WriteTransaction, generation: u64, part: &RenamedPart) -> Result<(), StoreCause> {
    let RenamedPart { kind, from, to } = part.clone();
    add(txn, &RenameRecord { generation, is_step: kind == NamedKind::Step, from, to })
}

/// Adds a record behind all others.
pub(crate) fn add(txn: &WriteTransaction, record: &RenameRecord) -> Result<(), StoreCause> {
    let mut table = txn.open_table(RENAMES)?;
    let number = table.last()?.map_or(1, |(number, _)| number.value() + 1);
    table.insert(number, &*RecordKey::Rename(number).seal_json(record)?)?;
    Ok(())
}
