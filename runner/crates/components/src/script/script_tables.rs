//! `ScriptTables`: the lookup tables that the scripts of one step may read, on one thread.

use std::cell::RefCell;
use std::sync::Arc;

use crate::table_rows::{RowsSnapshot, TableRows};
use tidegate_config::{FileTable, LookupTable, LookupTables, QueueTable};
use tidegate_model::Name;

/// The tables of a step, by name.
#[derive(Clone, Debug, Default)]
pub struct ScriptTables(Vec<(Name, ScriptTable)>);

#[derive(Clone, Debug)]
enum ScriptTable {
    /// Always a table of a file.
    File(Arc<LookupTable>),
    Queue {
        rows: Arc<TableRows>,
        /// The rows that the running batch sees; `None` between two batches.
        seen: RefCell<Option<RowsSnapshot>>,
    },
}

/// The reason for which a table has no answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// Its rows are in a queue, and no batch runs.
    OutsideOfBatch,
    Full {
        max_size: u64,
    },
}

impl ScriptTables {
    /// The tables of a step. `rows` finds those of a queue; `None` if it does not find them.
    pub fn new(
        tables: &LookupTables,
        mut rows: impl FnMut(&QueueTable) -> Option<Arc<TableRows>>,
    ) -> Option<Self> {
        let mut made = Vec::with_capacity(tables.len());
        for (name, declared) in tables {
            let table = match &**declared {
                LookupTable::File(_) => ScriptTable::File(Arc::clone(declared)),
                LookupTable::Queue(queue) => {
                    ScriptTable::Queue { rows: rows(queue)?, seen: RefCell::default() }
                }
            };
            made.push((name.clone(), table));
        }
        Some(Self(made))
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Reads the row with this key; `None` if there is none, or no such table.
    pub(crate) fn read<T>(
        &self,
        name: &str,
        key: &str,
        read: impl FnOnce(&str) -> T,
    ) -> Result<Option<T>, NoAnswer> {
        let table = self.0.iter().find(|(other, _)| other.as_str() == name).map(|(_, table)| table);
        match table {
            None => Ok(None),
            Some(ScriptTable::File(table)) => Ok(as_file(table).and_then(|table| table.get(key)).map(read)),
            Some(ScriptTable::Queue { rows, seen }) => {
                let seen = seen.borrow();
                let seen = seen.as_ref().ok_or(NoAnswer::OutsideOfBatch)?;
                let full = |_| NoAnswer::Full { max_size: rows.table().max_size };
                Ok(seen.get(key).map_err(full)?.map(read))
            }
        }
    }

    /// Lets the scripts see the present rows of queues until [`Self::release`].
    pub(crate) fn look(&self) {
        self.set_seen(|rows| Some(rows.snapshot()));
    }

    /// Drops the rows, so that replaced ones need no memory.
    pub(crate) fn release(&self) {
        self.set_seen(|_| None);
    }

    fn set_seen(&self, seen_now: impl Fn(&TableRows) -> Option<RowsSnapshot>) {
        for (_, table) in &self.0 {
            if let ScriptTable::Queue { rows, seen } = table {
                *seen.borrow_mut() = seen_now(rows);
            }
        }
    }
}

fn as_file(table: &LookupTable) -> Option<&FileTable> {
    match table {
        LookupTable::File(table) => Some(table),
        LookupTable::Queue(_) => None,
    }
}
