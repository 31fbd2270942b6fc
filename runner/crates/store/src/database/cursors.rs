//! Cursors: keep the text from which the command of each `exec` source continues.

use redb::{ReadTransaction, ReadableTable as _, TableDefinition, TableError, WriteTransaction};

use super::format::{self, Bytes, NAMES, Names, RecordKey};
use super::read::Store;
use crate::error::{ReadError, StoreCause};
use tidegate_model::Address;

/// Cursors by source, as UTF-8.
pub(crate) const CURSORS: TableDefinition<'_, u32, Bytes> = TableDefinition::new("cursors");

impl Store {
    /// The last cursor of the command of `source`; `None` if it printed none.
    pub fn cursor(&self, source: &Address) -> Result<Option<String>, ReadError> {
        self.view(|txn| {
            let Some(id) = format::find_id(&txn.open_table(NAMES)?, source)? else { return Ok(None) };
            let table = match txn.open_table(CURSORS) {
                Ok(table) => table,
                Err(TableError::TableDoesNotExist(_)) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            let stored = table.get(id)?;
            stored.map(|stored| unseal(id, stored.value())).transpose()
        })
    }

    /// The cursors of all commands.
    pub fn cursors(&self) -> Result<Vec<(Address, String)>, ReadError> {
        self.view(read)
    }
}

/// All cursors, with their sources.
pub(crate) fn read(txn: &ReadTransaction) -> Result<Vec<(Address, String)>, StoreCause> {
    let table = match txn.open_table(CURSORS) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let names = Names::read(&txn.open_table(NAMES)?)?;
    let mut cursors = Vec::new();
    for entry in table.iter()? {
        let (id, stored) = entry?;
        let id = id.value();
        cursors.push((names.get(id)?.clone(), unseal(id, stored.value())?));
    }
    Ok(cursors)
}

/// Records cursors; the last one of a source stays.
pub(crate) fn write(txn: &WriteTransaction, cursors: &[(Address, String)]) -> Result<(), StoreCause> {
    for (source, cursor) in cursors {
        let id = format::intern(txn, source)?;
        let record = RecordKey::Cursor(id).seal(cursor.as_bytes().to_vec());
        txn.open_table(CURSORS)?.insert(id, &*record)?;
    }
    Ok(())
}

fn unseal(source: u32, stored: &[u8]) -> Result<String, StoreCause> {
    let key = RecordKey::Cursor(source);
    let bytes = key.unseal(stored)?.to_vec();
    String::from_utf8(bytes).map_err(|_| StoreCause::Damaged(format!("the record {key:?} is not UTF-8")))
}
