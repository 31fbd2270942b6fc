//! `[table.NAME]`: parses a lookup table, and reads its file if it has one.

pub(crate) mod rows;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Weak};

use twox_hash::XxHash3_128;

use crate::diagnostic::Diagnostic;
use crate::model::lookup_table::Rows;
use crate::model::{DataFormat, FileTable, LookupTable, QueueTable};
use crate::parse::context::{ParseContext, Text, Value};
use crate::parse::keys::TableKind;
use crate::parse::reference::{Reference, reference};
use crate::parse::table::TableReader;
use crate::parse::text_reader::TextReader;
use tidegate_model::sync::Mutex;
use tidegate_model::{FieldPath, Name, parse_size};

use self::rows::Faults;
use super::lines::{delimiter, refuse_outside_csv};

const FORMATS: [(&str, DataFormat); 2] = [("csv", DataFormat::Csv), ("ndjson", DataFormat::Ndjson)];

/// Maximum bytes of the rows of a queue, without `max_size`.
const QUEUE_BYTES_MAX_DEFAULT: u64 = 256 << 20;

/// The keys that only one kind of table has.
const OF_FILES: [&str; 3] = ["path", "format", "delimiter"];
const OF_QUEUES: [&str; 2] = ["tombstone", "max_size"];

/// A table as written.
#[derive(Clone, Debug)]
pub(crate) enum TableDeclaration {
    File(Arc<LookupTable>),
    Queue(QueueTableDeclaration),
}

#[derive(Clone, Debug)]
pub(crate) struct QueueTableDeclaration {
    pub(crate) queue: Reference,
    key: FieldPath,
    tombstone: Option<FieldPath>,
    max_size: u64,
}

impl TableDeclaration {
    /// The name of the queue, if its rows are in one.
    pub(crate) fn queue(&self) -> Option<&Reference> {
        match self {
            Self::Queue(declared) => Some(&declared.queue),
            Self::File(_) => None,
        }
    }

    /// The table for scripts of the pipeline `home`. `None` after an error: a queue without a pipeline, for all.
    pub(crate) fn linked(&self, home: Option<&Name>) -> Option<Arc<LookupTable>> {
        match self {
            Self::File(table) => Some(Arc::clone(table)),
            Self::Queue(QueueTableDeclaration { queue, key, tombstone, max_size }) => {
                let queue = queue.address(queue.pipeline().or(home)?);
                let (key, tombstone, max_size) = (key.clone(), tombstone.clone(), *max_size);
                Some(Arc::new(LookupTable::Queue(QueueTable { queue, key, tombstone, max_size })))
            }
        }
    }
}

/// The tables in use, by the hash of all that they consist of: a reload reads only those that have changed.
static IN_USE: Mutex<Option<HashMap<u128, Weak<LookupTable>>>> = Mutex::new(None);

/// `None` after an error.
pub(crate) fn read(
    reading: &mut ParseContext<'_>,
    files: &mut TextReader,
    title: &str,
    value: &Value<'_>,
) -> Option<TableDeclaration> {
    let section = TableReader::open(reading, TableKind::LookupTable, title, value)?;
    if let Some(queue) = section.field("queue") {
        refuse(reading, &section, &OF_FILES, "the rows are the jobs of the `queue`");
        let max_size = section.field("max_size");
        let max_size =
            max_size.and_then(|field| field.quantity(reading, ("size", "256MiB"), parse_size, Some(&0)));
        let tombstone = section.field("tombstone").and_then(|field| field.path_in_job(reading));
        let key = key(reading, &section);
        let queue = reference(reading, queue)?;
        return Some(TableDeclaration::Queue(QueueTableDeclaration {
            queue,
            key: key?,
            tombstone,
            max_size: max_size.unwrap_or(QUEUE_BYTES_MAX_DEFAULT),
        }));
    }
    refuse(reading, &section, &OF_QUEUES, "a file has a fixed number of rows");
    file(reading, files, &section).map(TableDeclaration::File)
}

/// Refuses keys of the other kind of table.
fn refuse(reading: &mut ParseContext<'_>, section: &TableReader<'_>, keys: &[&'static str], why: &str) {
    for field in keys.iter().filter_map(|key| section.field(key)) {
        let message = format!("`{}` has no effect: {why}", field.name);
        let help = format!("leave `{}` out", field.name);
        reading.report(Diagnostic::error_at(&field.place(reading), message).help(help));
    }
}

fn key(reading: &mut ParseContext<'_>, section: &TableReader<'_>) -> Option<FieldPath> {
    let key = section.required(reading, "key", "name the field by which rows are found: `key = \"host\"`");
    key.and_then(|field| field.path_in_job(reading))
}

/// A table whose rows are in a file.
fn file(
    reading: &mut ParseContext<'_>,
    files: &mut TextReader,
    section: &TableReader<'_>,
) -> Option<Arc<LookupTable>> {
    let help = "name the file or the queue of the rows: `path = \"hosts.csv\"`, or `queue = \"hosts\"`";
    let path = section.required(reading, "path", help);
    let key = key(reading, section);
    let written = path.and_then(|field| field.filled_text(reading));
    let format = format(reading, section, written.as_ref());
    if format == Some(DataFormat::Ndjson) {
        refuse_outside_csv(reading, section);
    }
    let separator = section.field("delimiter").map(|field| delimiter(reading, field));
    let (written, key, format) = (written?, key?, format?);
    let separator = separator.unwrap_or(Some(b','))?;
    let path = reading.folder().join(&written.value);
    let text = match files.read(&path) {
        Ok(text) => text,
        Err(error) => {
            let named = if written.secret { "named here".into() } else { written.quoted() };
            let message = format!("the file {named} of the table {error}");
            reading.report(Diagnostic::error_at(&written.place, message));
            // Without rows, so that a script that names it has no mistake of its own.
            let (text, rows) = ("".into(), Rows::default());
            return Some(Arc::new(LookupTable::File(FileTable {
                path,
                key,
                format,
                delimiter: separator,
                text,
                rows,
            })));
        }
    };
    let hash = hash(&path, &text, &key, (format, separator));
    if let Some(table) = in_use(hash) {
        return Some(table);
    }
    let mut faults = Faults::new(&path, &text, &written.place);
    let rows = rows::read(&text, &key, (format, separator), &mut faults);
    let is_whole = faults.report(reading);
    let table =
        Arc::new(LookupTable::File(FileTable { path, key, format, delimiter: separator, text, rows }));
    // A table with warnings is read again, so that they are reported again.
    if is_whole {
        remember(hash, &table);
    }
    Some(table)
}

/// `format`, or that of the file's ending.
fn format(
    reading: &mut ParseContext<'_>,
    section: &TableReader<'_>,
    path: Option<&Text>,
) -> Option<DataFormat> {
    if let Some(field) = section.field("format") {
        return field.choice(reading, &FORMATS);
    }
    let path = path?;
    if reading.is_unset(&path.place) {
        // Any format will do, since the file is not read.
        return Some(DataFormat::Csv);
    }
    let ending = Path::new(&path.value).extension().and_then(|ending| ending.to_str());
    let of_ending = match ending {
        Some("csv") => Some(DataFormat::Csv),
        Some("ndjson" | "jsonl") => Some(DataFormat::Ndjson),
        _ => None,
    };
    if of_ending.is_none() {
        let help = "name the format: `csv` or `ndjson`";
        section.required(reading, "format", help);
    }
    of_ending
}

fn hash(path: &Path, text: &str, key: &FieldPath, (format, separator): (DataFormat, u8)) -> u128 {
    let about = format!("{}\0{key}\0{format:?}\0{separator}\0", path.display());
    let mut hasher = XxHash3_128::new();
    hasher.write(about.as_bytes());
    hasher.write(text.as_bytes());
    hasher.finish_128()
}

fn in_use(hash: u128) -> Option<Arc<LookupTable>> {
    IN_USE.lock().as_ref()?.get(&hash)?.upgrade()
}

fn remember(hash: u128, table: &Arc<LookupTable>) {
    let mut tables = IN_USE.lock();
    let tables = tables.get_or_insert_default();
    tables.retain(|_, table| table.strong_count() > 0);
    tables.insert(hash, Arc::downgrade(table));
}
