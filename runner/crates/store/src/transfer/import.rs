//! Import: creates a store from an export.
//!
//! The store is created under another name and renamed when it is complete, so that a failed import leaves
//! nothing. Memory does not depend on the length of the export.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::Path;

use redb::Database;
use serde_json::Value;

use super::export_format::{ExportLine, Header, Inventory, Start, VERSION};
use super::import_writer::{Filling, Stop, wrong};
use crate::database::catch_panics::{close, guarded};
use crate::database::data_folder;
use crate::database::disk::{FileDisk, Medium, sync_folder};
use crate::database::migrate;
use crate::database::open;
use crate::database::open::FILE_IN_THE_MAKING;
use crate::database::origin::{FILE, StoreLocation, open_database};
use crate::error::{ImportError, OpenError};
use tidegate_model::{Timestamp, create_private};

/// The longest line that is read, in bytes.
const LINE_BYTES_MAX: u64 = 1 << 30;
/// The longest header that counts as one, in bytes.
const HEADER_BYTES_MAX: u64 = 1 << 20;
/// Bytes of lines that are committed together.
const COMMIT_BYTES: usize = 16 << 20;

/// Creates the store in `folder` from an export, and returns its inventory. A missing `folder` is created.
///
/// # Errors
/// A store with a commit already exists, the export is damaged or cut short, or the store cannot be created.
/// Nothing is changed then.
pub fn import(folder: &Path, input: impl BufRead) -> Result<Inventory, ImportError> {
    let at_folder = |source| OpenError::Folder { path: folder.to_path_buf(), source };
    data_folder::make_folder(folder).map_err(at_folder)?;
    let path = folder.join(FILE);
    let _lock = open::take_lock(folder, &path)?;
    if !path.try_exists().map_err(at_folder)? {
        open::refuse_wal_without_store(folder)?;
    } else if is_used(&path)? {
        return Err(ImportError::Occupied { path });
    }
    let in_the_making = folder.join(FILE_IN_THE_MAKING);
    let made = make(&in_the_making, input).and_then(|inventory| {
        fs::rename(&in_the_making, &path).and_then(|()| sync_folder(folder)).map_err(at_folder)?;
        Ok(inventory)
    });
    if made.is_err() {
        // No open accepts the file as a store, and the next import replaces it.
        let _ = fs::remove_file(&in_the_making);
    }
    made
}

/// Whether the file begins like an export, of any version.
///
/// # Errors
/// The file cannot be read.
pub fn is_export(path: &Path) -> io::Result<bool> {
    let mut line = Vec::new();
    BufReader::new(File::open(path)?).take(HEADER_BYTES_MAX).read_until(b'\n', &mut line)?;
    // Other programs may write headers, too, with other fields and beside other values.
    let Ok(Value::Object(start)) = serde_json::from_slice(&line) else { return Ok(false) };
    let Some(Value::Object(header)) = start.get("header").filter(|_| start.len() == 1) else {
        return Ok(false);
    };
    Ok(["version", "created", "transaction"].iter().all(|key| header.get(*key).is_some_and(Value::is_i64)))
}

/// Whether the store has a commit.
fn is_used(path: &Path) -> Result<bool, OpenError> {
    let opened = StoreLocation::of_file(path.to_path_buf())?.open_at_least(0)?;
    close(Some(opened.database));
    Ok(opened.transaction > 0)
}

fn make(path: &Path, input: impl BufRead) -> Result<Inventory, ImportError> {
    let mut reader = LineReader { input, line: Vec::new(), number: 0 };
    let made = guarded(|| {
        let medium = Medium::new(Box::new(FileDisk::new(create_private(path)?, path)?));
        let database = open_database(&medium)?;
        let filled = fill(&database, &mut reader);
        drop(database);
        medium.disk().sync()?;
        Ok(filled)
    });
    let line = reader.number;
    match made {
        Ok(Ok(inventory)) => Ok(inventory),
        // The input may be empty.
        Ok(Err(Stop::Line(what))) => Err(ImportError::Line { line: line.max(1), what }),
        Ok(Err(Stop::Input(source))) => Err(ImportError::Read { line: line + 1, source }),
        Ok(Err(Stop::Store(cause))) | Err(cause) => Err(cause.at(path.to_path_buf()).into()),
    }
}

fn fill<R: BufRead>(database: &Database, reader: &mut LineReader<R>) -> Result<Inventory, Stop> {
    let header = read_header(reader)?;
    let mut txn = database.begin_write()?;
    migrate::initialise(&txn, Timestamp(header.created))?;
    let mut filling = Filling::new(header);
    let mut bytes = 0;
    let expected = loop {
        let Some(line) = reader.next()? else {
            return wrong("the export is cut short: an end line must follow this one");
        };
        bytes += line.len();
        match parse(line)? {
            ExportLine::End(expected) => break expected,
            line => filling.take(&txn, line)?,
        }
        if bytes >= COMMIT_BYTES {
            bytes = 0;
            txn.commit()?;
            txn = database.begin_write()?;
        }
    };
    let inventory = filling.finish(&txn, expected)?;
    txn.commit()?;
    match reader.next()? {
        Some(_) => wrong("it must not follow the end line"),
        None => Ok(inventory),
    }
}

/// The header, which determines whether this version can read the rest.
fn read_header<R: BufRead>(reader: &mut LineReader<R>) -> Result<Header, Stop> {
    const NO_EXPORT: &str = "this is not an export of Tidegate, which begins with a header";
    let Some(line) = reader.next()? else { return wrong(NO_EXPORT) };
    let Ok(start) = serde_json::from_slice::<Start>(line) else { return wrong(NO_EXPORT) };
    let version = start.header.version;
    if version > VERSION {
        return wrong(format!(
            "the export is of a newer Tidegate: its version is {version}, and this Tidegate reads up to version \
             {VERSION}; import it with the newer Tidegate"
        ));
    }
    match parse(line)? {
        ExportLine::Header(header) if header.transaction.max(header.sequence) < u64::MAX => Ok(header),
        _ => wrong(NO_EXPORT),
    }
}

fn parse(line: &[u8]) -> Result<ExportLine<'_>, Stop> {
    serde_json::from_slice(line).map_err(|error| {
        let text = error.to_string();
        // The line number of this error is relative to this line.
        let what = text.rsplit_once(" at line ").map_or(&*text, |(what, _)| what);
        Stop::Line(format!("it cannot be read: {what}, at column {}", error.column()))
    })
}

struct LineReader<R> {
    input: R,
    line: Vec<u8>,
    /// Number of the last line that was read, from 1.
    number: u64,
}

impl<R: BufRead> LineReader<R> {
    /// The next line, without its end; `None` after the last one.
    fn next(&mut self) -> Result<Option<&[u8]>, Stop> {
        self.line.clear();
        let mut input = self.input.by_ref().take(LINE_BYTES_MAX);
        input.read_until(b'\n', &mut self.line).map_err(Stop::Input)?;
        if self.line.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        match self.line.split_last() {
            Some((b'\n', line)) => Ok(Some(line)),
            _ if self.line.len() as u64 == LINE_BYTES_MAX => {
                wrong(format!("it exceeds {LINE_BYTES_MAX} bytes"))
            }
            _ => Ok(Some(&self.line)),
        }
    }
}
