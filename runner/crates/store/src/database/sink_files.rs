//! Files of sinks: keeps the position in each file that a sink has left, so that a sink can return to it.

use redb::{ReadTransaction, ReadableTable as _, TableDefinition, TableError, WriteTransaction};

use super::format::{self, Bytes, NAMES, Names, RecordKey, SINKS};
use super::read::Store;
use crate::error::{ReadError, StoreCause};
use tidegate_model::{Address, SinkPosition};

/// Positions by sink and absolute path. The file that a sink writes now is in [`SINKS`].
pub(crate) const SINK_FILES: TableDefinition<'_, (u32, &str), Bytes> = TableDefinition::new("sink_files");

impl Store {
    /// The position from which `sink` continues in the file at the absolute `path`. If the sink never wrote this file, it is
    /// the position in its last one.
    pub fn sink_in(&self, sink: &Address, path: Option<&str>) -> Result<Option<SinkPosition>, ReadError> {
        let own = self.sink(sink)?;
        let is_there = own.as_ref().is_some_and(|own| own.path.as_deref() == path);
        let Some(path) = path.filter(|_| !is_there) else { return Ok(own) };
        Ok(self.view(|txn| read_one(txn, sink, path))?.or(own))
    }

    /// The positions in files that sinks have left.
    pub fn sink_files(&self) -> Result<Vec<(Address, SinkPosition)>, ReadError> {
        self.view(read)
    }
}

fn read_one(txn: &ReadTransaction, sink: &Address, path: &str) -> Result<Option<SinkPosition>, StoreCause> {
    let Some(id) = format::find_id(&txn.open_table(NAMES)?, sink)? else { return Ok(None) };
    let table = match txn.open_table(SINK_FILES) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let stored = table.get((id, path))?;
    stored.map(|stored| RecordKey::SinkFile(id, path).unseal_json(stored.value())).transpose()
}

/// All positions in files that sinks have left.
pub(crate) fn read(txn: &ReadTransaction) -> Result<Vec<(Address, SinkPosition)>, StoreCause> {
    let table = match txn.open_table(SINK_FILES) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let names = Names::read(&txn.open_table(NAMES)?)?;
    let mut positions = Vec::new();
    for entry in table.iter()? {
        let (key, stored) = entry?;
        let (sink, path) = key.value();
        let position = RecordKey::SinkFile(sink, path).unseal_json(stored.value())?;
        positions.push((names.get(sink)?.clone(), position));
    }
    Ok(positions)
}

/// Records the position of a sink. If the sink wrote to another file before, that position is kept.
pub(crate) fn write(
    txn: &WriteTransaction,
    sink: &Address,
    position: &SinkPosition,
) -> Result<(), StoreCause> {
    let id = format::intern(txn, sink)?;
    let mut sinks = txn.open_table(SINKS)?;
    let before = sinks.get(id)?.map(|stored| RecordKey::Sink(id).unseal_json::<SinkPosition>(stored.value()));
    if let Some(before) = before.transpose()?
        && before.path != position.path
    {
        leave(txn, sink, &SinkPosition { open: false, ..before })?;
        if let Some(path) = &position.path {
            txn.open_table(SINK_FILES)?.remove((id, path.as_str()))?;
        }
    }
    sinks.insert(id, &*RecordKey::Sink(id).seal_json(position)?)?;
    Ok(())
}

/// Keeps the position in a file that the sink does not write now.
pub(crate) fn leave(
    txn: &WriteTransaction,
    sink: &Address,
    position: &SinkPosition,
) -> Result<(), StoreCause> {
    if let Some(path) = &position.path {
        let id = format::intern(txn, sink)?;
        let record = RecordKey::SinkFile(id, path).seal_json(position)?;
        txn.open_table(SINK_FILES)?.insert((id, path.as_str()), &*record)?;
    }
    Ok(())
}
