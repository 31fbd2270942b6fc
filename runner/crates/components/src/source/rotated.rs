//! Rotated files: those that stood at a followed path between the file that was read last and the one
//! there now.
//!
//! Guarantee: a file that moves from name to name meanwhile is not missed, whatever time it carries. Each
//! rotated file that was there when a source began, or that was read, has a segment; any other is new.
//! Stores of older runners lack that, so for them times decide, and where these cannot, a warning names
//! the files.

use std::cmp::Reverse;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::error::SourceError;
use super::files::{
    FileId, Found, Named, Written, folder_of, found, is_gzip, settled, settled_by_name, still_begins_like,
    written,
};
use tidegate_model::Segment;

/// Rotated files beside a followed path.
#[derive(Debug, Default)]
pub(crate) struct Rotated {
    /// To be read, oldest first.
    pub(crate) files: Vec<Found>,
    /// Rotated away before the file that was read last.
    pub(crate) passed: Vec<Found>,
    /// The file that was read last is gone, so nothing says which of these came after it.
    pub(crate) doubtful: Vec<Found>,
}

/// The files that were rotated away from `path` before anything of it was read. `None` where the names
/// do not stand still: to be looked at again.
pub(crate) fn siblings(path: &Path) -> Result<Option<Vec<Found>>, SourceError> {
    let Some(name) = path.file_name() else { return Ok(Some(vec![])) };
    let wanted = |candidate: &[u8]| suffix(name.as_bytes(), candidate).is_some();
    let Some(siblings) = settled_by_name(folder_of(path), wanted) else { return Ok(None) };
    all_found(siblings).map(Some)
}

/// Which files were rotated away from `path` since the file of `last` stood there: a log may be rotated
/// more than once before its reader gets to it. Such files are recognized by the name (`path` with
/// something behind a `.` or `-`). `open`: when `last` was written to, if a reader has it open.
/// `is_known`: a segment holds the file. `None` where the names do not stand still: to be looked at again.
pub(crate) fn rotated_since(
    path: &Path,
    last: &Segment,
    open: Option<Written>,
    is_known: impl Fn(&Path, FileId, u64) -> bool,
) -> Result<Option<Rotated>, SourceError> {
    let Some(name) = path.file_name() else { return Ok(Some(Rotated::default())) };
    let name = name.as_bytes();
    let id = FileId::of_segment(last);
    let wanted = |candidate: &[u8], file| file == id || suffix(name, candidate).is_some();
    let Some(mut siblings) = settled(folder_of(path), wanted) else { return Ok(None) };
    let mut last_read = None;
    if let Some(named) = siblings.iter().find(|named| named.id == id)
        // A file that was removed leaves its identity to the next one that is made.
        && still_begins_like(&named.path, last)?
    {
        last_read = Some((number(name, named), written(&named.metadata)));
    }
    siblings.retain(|named| {
        named.path != path
            && !(named.id == id && last_read.is_some())
            && !is_known(&named.path, named.id, named.metadata.len())
    });
    if last.siblings_known {
        put_in_order(name, &mut siblings, last_read.and_then(|(number, _)| number));
        return Ok(Some(Rotated { files: all_found(siblings)?, ..Rotated::default() }));
    }
    let Some(since) = open.or(last_read.map(|(_, written)| written)) else {
        let doubtful = all_found(siblings)?;
        return Ok(Some(Rotated { passed: doubtful.clone(), doubtful, files: vec![] }));
    };
    let is_new = |named: &Named| written(&named.metadata) >= since && !is_gzip(&named.path);
    let (mut files, passed): (Vec<_>, Vec<_>) = siblings.into_iter().partition(is_new);
    by_time(name, &mut files);
    Ok(Some(Rotated { files: all_found(files)?, passed: all_found(passed)?, doubtful: vec![] }))
}

/// Oldest first. Where all have numbers, on which side of the file that was read last they are says
/// whether these grow or shrink with age; where none has one, their names are dates.
fn put_in_order(name: &[u8], files: &mut [Named], last: Option<u16>) {
    let numbers: Option<Vec<_>> = files.iter().map(|named| number(name, named)).collect();
    match numbers {
        // Rotation that counts up gives the newest the greatest number.
        Some(numbers) if last.is_some_and(|last| numbers.iter().all(|&number| number > last)) => {
            files.sort_by_key(|named| number(name, named));
        }
        Some(numbers) if last.is_none_or(|last| numbers.iter().all(|&number| number < last)) => {
            files.sort_by_key(|named| Reverse(number(name, named)));
        }
        None if files.iter().all(|named| number(name, named).is_none()) => {
            files.sort_by(|a, b| a.path.cmp(&b.path));
        }
        _ => by_time(name, files),
    }
}

/// The clock of a file system is coarse: of files written in one tick, the greater number is older.
fn by_time(name: &[u8], files: &mut [Named]) {
    files.sort_by_key(|named| (written(&named.metadata), Reverse(number(name, named))));
}

fn all_found(files: Vec<Named>) -> Result<Vec<Found>, SourceError> {
    files.into_iter().map(|named| found(named.path, &named.metadata)).collect()
}

/// The part of a rotated file's name behind `name` and a `.` or `-`.
pub(crate) fn suffix<'a>(name: &[u8], candidate: &'a [u8]) -> Option<&'a [u8]> {
    match candidate.strip_prefix(name)? {
        [b'.' | b'-', suffix @ ..] if !suffix.is_empty() => Some(suffix),
        _ => None,
    }
}

/// The number at the end of the name. A date is greater the later it is, and no number.
fn number(name: &[u8], named: &Named) -> Option<u16> {
    let digits = suffix(name, named.path.file_name()?.as_bytes())?;
    std::str::from_utf8(digits).ok()?.trim_end_matches(".gz").parse().ok()
}
