//! Compacting: gives the room that a stopped store does not use back to the disk.

use std::path::Path;

use super::catch_panics::{close, guarded};
use super::open::find;
use super::origin::{Opened, Origin};
use crate::error::{Cause, OpenError};

/// What compacting came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// How long the file was, in bytes.
    pub before: u64,
    /// How long it is now.
    pub after: u64,
}

/// Makes the store in `folder` as small as it can be; `None` where there is none. It may be cut off
/// at any moment and loses nothing then.
///
/// # Errors
/// Where the store cannot be opened, as when a runner has it, or written to.
pub fn compact(folder: &Path) -> Result<Option<Compacted>, OpenError> {
    let Some((origin, _lock)) = find(folder)? else { return Ok(None) };
    compact_at(&origin).map(Some)
}

pub(crate) fn compact_at(origin: &Origin) -> Result<Compacted, OpenError> {
    let at = |cause: Cause| cause.at(origin.path.clone());
    let len = || origin.medium.disk().len().map_err(|error| at(Cause::Io(error)));
    let before = len()?;
    let Opened { mut database, .. } = origin.open_at_least(0)?;
    let compacted = guarded(|| Ok(database.compact()?));
    // The last of the room is given back when it is closed.
    close(Some(database));
    compacted.map_err(at)?;
    Ok(Compacted { before, after: len()? })
}
