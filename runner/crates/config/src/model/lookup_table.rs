//! `LookupTable`: rows of a file or of a queue, found by a key. Scripts read them with `lookup`.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::DataFormat;
use tidegate_model::{Address, FieldPath, Name};

/// `[table.NAME]`
#[derive(Debug)]
pub enum LookupTable {
    File(FileTable),
    Queue(QueueTable),
}

/// A table whose rows are in a file: read with the configuration, and shared by all workers.
pub struct FileTable {
    /// The file, for messages.
    pub path: PathBuf,
    /// The field of a row by which it is found.
    pub key: FieldPath,
    pub format: DataFormat,
    /// Between the fields of a CSV file.
    pub delimiter: u8,
    /// The content of the file.
    pub text: Arc<str>,
    pub(crate) rows: Rows,
}

/// A table whose rows are the newest jobs of a queue, by key. A run fills it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueTable {
    pub queue: Address,
    /// The field of a job by which it is found.
    pub key: FieldPath,
    /// The field of a job that removes the row of its key, unless the field is missing, `null` or `false`.
    pub tombstone: Option<FieldPath>,
    /// Maximum bytes of all rows with their keys.
    pub max_size: u64,
}

/// The tables that a step, a gate or a monitor may read, by name.
pub type LookupTables = BTreeMap<Name, Arc<LookupTable>>;

/// Rows as JSON, back to back, so that 100,000 of them are two allocations and their keys.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    json: String,
    places: HashMap<Box<str>, Range<usize>>,
}

impl LookupTable {
    #[must_use]
    pub fn as_queue(&self) -> Option<&QueueTable> {
        match self {
            Self::Queue(table) => Some(table),
            Self::File(_) => None,
        }
    }
}

impl FileTable {
    /// The JSON of the row with this key, in constant time; an object.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.rows.get(key)
    }

    /// The number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.places.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Without the rows, which may be many.
impl fmt::Debug for FileTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileTable")
            .field("path", &self.path)
            .field("key", &self.key)
            .field("rows", &self.len())
            .finish_non_exhaustive()
    }
}

impl Rows {
    /// Adds a row, which replaces an earlier one of its key. Returns whether there was one.
    pub(crate) fn add(&mut self, key: &str, json: &str) -> bool {
        let start = self.json.len();
        self.json.push_str(json);
        self.places.insert(key.into(), start..self.json.len()).is_some()
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.json.get(self.places.get(key)?.clone())
    }
}
