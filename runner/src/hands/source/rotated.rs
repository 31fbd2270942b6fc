//! Which files stood at a followed path between the one that was read last and the one there now.
//!
//! Guarantee: a file that moves from name to name meanwhile is not missed. Where the files cannot be
//! told to be older or newer, they are named instead of being passed over in silence.

use std::cmp::Reverse;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::error::SourceError;
use super::files::{FileId, Found, Named, folder_of, found, is_gzip, settled, still_begins_like};
use crate::words::Segment;

/// When a file was written to: seconds and nanoseconds since 1970.
pub(super) type Written = (i64, i64);

pub(super) fn written(metadata: &Metadata) -> Written {
    (metadata.mtime(), metadata.mtime_nsec())
}

/// What was rotated away since a file was read.
#[derive(Debug, Default)]
pub(super) struct Rotated {
    /// Oldest first.
    pub(super) files: Vec<Found>,
    /// The file that was read last is gone, so nothing says which of these came after it.
    pub(super) doubtful: Vec<(PathBuf, FileId)>,
}

/// What stood at `path` after the file of `last` did: a log may be rotated more than once before its
/// reader gets to it. Such files are known by the name (`path` with something behind a `.` or `-`)
/// and by having been written to after `last` was. `open`: when `last` was written to, if a reader
/// has it open, so that it needs no name to be known. `None` where the names do not stand still: to be
/// looked at again.
pub(super) fn rotated_since(
    path: &Path,
    last: &Segment,
    open: Option<Written>,
) -> Result<Option<Rotated>, SourceError> {
    let Some(name) = path.file_name() else { return Ok(Some(Rotated::default())) };
    let id = FileId::of_segment(last);
    let wanted = |candidate: &[u8], file| file == id || suffix(name.as_bytes(), candidate).is_some();
    let Some(mut siblings) = settled(folder_of(path), wanted) else { return Ok(None) };
    let mut since = open;
    if since.is_none()
        && let Some(named) = siblings.iter().find(|named| named.id == id)
        // A file that was removed leaves its identity to the next one that is made.
        && still_begins_like(&named.path, last)?
    {
        since = Some(written(&named.metadata));
    }
    let Some(since) = since else {
        siblings.retain(|named| named.path != path);
        let doubtful = siblings.into_iter().map(|named| (named.path, named.id)).collect();
        return Ok(Some(Rotated { files: vec![], doubtful }));
    };
    siblings.retain(|named| named.id != id && written(&named.metadata) >= since && !is_gzip(&named.path));
    // The clock of a file system is coarse: of files written in one tick, the greater number is older.
    siblings.sort_by_key(|named| (written(&named.metadata), Reverse(number(name.as_bytes(), named))));
    let files: Result<_, _> = siblings.into_iter().map(|named| found(named.path, &named.metadata)).collect();
    Ok(Some(Rotated { files: files?, doubtful: vec![] }))
}

/// What stands behind `name` and a `.` or `-` in the name of a rotated file.
fn suffix<'a>(name: &[u8], candidate: &'a [u8]) -> Option<&'a [u8]> {
    match candidate.strip_prefix(name)? {
        [b'.' | b'-', suffix @ ..] if !suffix.is_empty() => Some(suffix),
        _ => None,
    }
}

/// The number at the end of the name. A date is greater the later it is, and no number.
fn number(name: &[u8], named: &Named) -> Option<u16> {
    let digits = suffix(name, named.path.file_name()?.as_bytes())?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
