//! Name history: records each rename, with the number of the generation that made it.

use redb::{ReadTransaction, ReadableTable as _, TableDefinition, TableError, WriteTransaction};
use serde::{Deserialize, Serialize};

use super::format::{Bytes, RecordKey};
use crate::error::StoreCause;
use tidegate_model::{Address, NameHistory, NamedKind, RenamedPart};

pub(crate) const RENAMES: TableDefinition<'_, u64, Bytes> = TableDefinition::new("renames");

/// A rename without the key of its row.
#[derive(Serialize, Deserialize)]
struct Record {
    /// The number of the generation that made it.
    generation: u64,
    is_step: bool,
    from: Address,
    to: Address,
}

/// All renames.
pub(crate) fn read(txn: &ReadTransaction) -> Result<NameHistory, StoreCause> {
    let mut history = NameHistory::default();
    let table = match txn.open_table(RENAMES) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(history),
        Err(error) => return Err(error.into()),
    };
    for entry in table.iter()? {
        let (number, stored) = entry?;
        let record: Record = RecordKey::Rename(number.value()).unseal_json(stored.value())?;
        let Record { generation, is_step, from, to } = record;
        let kind = if is_step { NamedKind::Step } else { NamedKind::Endpoint };
        history.add(generation, [RenamedPart { kind, from, to }]);
    }
    Ok(history)
}

/// Adds a rename to the history of names.
pub(crate) fn record(txn: &WriteTransaction, generation: u64, part: &RenamedPart) -> Result<(), StoreCause> {
    let RenamedPart { kind, from, to } = part.clone();
    let mut table = txn.open_table(RENAMES)?;
    let number = table.last()?.map_or(1, |(number, _)| number.value() + 1);
    let record = Record { generation, is_step: kind == NamedKind::Step, from, to };
    table.insert(number, &*RecordKey::Rename(number).seal_json(&record)?)?;
    Ok(())
}
