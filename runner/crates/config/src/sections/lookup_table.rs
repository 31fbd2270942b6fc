//! `[table.NAME]`: parses a lookup table and reads its file.

pub(crate) mod rows;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Weak};

use twox_hash::XxHash3_128;

use crate::diagnostic::Diagnostic;
use crate::diagnostic::files::Files;
use crate::model::lookup_table::Rows;
use crate::model::{DataFormat, LookupTable};
use crate::parse::context::{ParseContext, Text, Value};
use crate::parse::keys::TableKind;
use crate::parse::table::TableReader;
use tidegate_model::FieldPath;
use tidegate_model::sync::Mutex;

use self::rows::Faults;
use super::lines::{delimiter, refuse_outside_csv};

const FORMATS: [(&str, DataFormat); 2] = [("csv", DataFormat::Csv), ("ndjson", DataFormat::Ndjson)];

/// The tables in use, by the hash of all that they consist of: a reload reads only those that have changed.
static IN_USE: Mutex<Option<HashMap<u128, Weak<LookupTable>>>> = Mutex::new(None);

/// `None` after an error.
pub(crate) fn read(
    reading: &mut ParseContext<'_>,
    files: &mut Files,
    title: &str,
    value: &Value<'_>,
) -> Option<Arc<LookupTable>> {
    let section = TableReader::open(reading, TableKind::LookupTable, title, value)?;
    let path = section.required(reading, "path", "name the file of the rows: `path = \"hosts.csv\"`");
    let key = section.required(reading, "key", "name the field by which rows are found: `key = \"host\"`");
    let key = key.and_then(|field| field.path_in_job(reading));
    let written = path.and_then(|field| field.filled_text(reading));
    let format = format(reading, &section, written.as_ref());
    if format == Some(DataFormat::Ndjson) {
        refuse_outside_csv(reading, &section);
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
            return Some(Arc::new(LookupTable { path, key, format, delimiter: separator, text, rows }));
        }
    };
    let hash = hash(&path, &text, &key, (format, separator));
    if let Some(table) = in_use(hash) {
        return Some(table);
    }
    let mut faults = Faults::new(&path, &text, &written.place);
    let rows = rows::read(&text, &key, (format, separator), &mut faults);
    let is_whole = faults.report(reading);
    let table = Arc::new(LookupTable { path, key, format, delimiter: separator, text, rows });
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
