//! Compaction: returns the unused space of a stopped store to the disk.

use std::path::Path;

use super::catch_panics::{close, guarded};
use super::open::find;
use super::origin::{Opened, StoreLocation};
use crate::error::{OpenError, StoreCause};

/// The result of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// Length of the file before, in bytes.
    pub before: u64,
    /// Length of the file after, in bytes.
    pub after: u64,
}

/// Makes the store in `folder` as small as possible; `None` if none exists. It may be interrupted at any
/// moment without a loss.
///
/// # Errors
/// The store cannot be opened, as while a runner has it, or cannot be written.
pub fn compact(folder: &Path) -> Result<Option<Compacted>, OpenError> {
    let Some((origin, _lock)) = find(folder)? else { return Ok(None) };
    compact_at(&origin).map(Some)
}

pub(crate) fn compact_at(origin: &StoreLocation) -> Result<Compacted, OpenError> {
    let at = |cause: StoreCause| cause.at(origin.path.clone());
    let len = || origin.medium.disk().len().map_err(|error| at(StoreCause::Io(error)));
    let before = len()?;
    let Opened { mut database, .. } = origin.open_at_least(0)?;
    let compacted = guarded(|| Ok(database.compact()?));
    // The last space is returned when the database is closed.
    close(Some(database));
    compacted.map_err(at)?;
    Ok(Compacted { before, after: len()? })
}
