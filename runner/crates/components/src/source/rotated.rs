//! `Rotated`: the rotated files of a followed path, between the file that was read last and the present one.
//!
//! Guarantee: a file that is renamed meanwhile is not missed, with any modification time. Each rotated file
//! that existed when a source began, or that was read, has a segment; any other is new. Stores of older
//! runners lack such segments, so times decide for them. If the times are ambiguous, a warning names the
//! files.

use std::cmp::Reverse;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::error::SourceError;
use super::files::{
    FileId, FoundFile, Named, Written, folder_of, found, is_gzip, rotation_number, settled, settled_by_name,
    still_begins_like, written,
};
use tidegate_model::Segment;

/// Rotated files beside a followed path.
#[derive(Debug, Default)]
pub(crate) struct Rotated {
    /// To be read, oldest first.
    pub(crate) files: Vec<FoundFile>,
    /// Rotated before the file that was read last.
    pub(crate) passed: Vec<FoundFile>,
    /// The file that was read last is gone, so their order relative to it is unknown.
    pub(crate) doubtful: Vec<FoundFile>,
}

/// The files that were rotated away from `path` before any read of it. `None` if the names keep changing:
/// retry.
pub(crate) fn siblings(path: &Path) -> Result<Option<Vec<FoundFile>>, SourceError> {
    let Some(name) = path.file_name() else { return Ok(Some(vec![])) };
    let wanted = |candidate: &[u8]| suffix(name.as_bytes(), candidate).is_some();
    let Some(siblings) = settled_by_name(folder_of(path), wanted) else { return Ok(None) };
    all_found(siblings).map(Some)
}

/// The files that were rotated away from `path` since the file of `last` was there: a log may be rotated more
/// than once before its reader gets to it. Such files are recognized by the name (`path` with a suffix after
/// `.` or `-`). `open`: modification time of `last`, if a reader has it open. `is_known`: a segment holds the
/// file. `None` if the names keep changing: retry.
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
        // The identity of a removed file is reused for a new one.
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

/// Oldest first. If all names have numbers, their relation to that of the last read file determines whether
/// numbers grow or shrink with age. If none has a number, their names are dates.
fn put_in_order(name: &[u8], files: &mut [Named], last: Option<u16>) {
    let numbers: Option<Vec<_>> = files.iter().map(|named| number(name, named)).collect();
    match numbers {
        // Rotation with increasing numbers gives the newest file the greatest one.
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

/// The clock of a file system is coarse: among files of one tick, the greater number is older.
fn by_time(name: &[u8], files: &mut [Named]) {
    files.sort_by_key(|named| (written(&named.metadata), Reverse(number(name, named))));
}

fn all_found(files: Vec<Named>) -> Result<Vec<FoundFile>, SourceError> {
    files.into_iter().map(|named| found(named.path, &named.metadata)).collect()
}

/// The part of a rotated file's name after `name` and a `.` or `-`.
pub(crate) fn suffix<'a>(name: &[u8], candidate: &'a [u8]) -> Option<&'a [u8]> {
    match candidate.strip_prefix(name)? {
        [b'.' | b'-', suffix @ ..] if !suffix.is_empty() => Some(suffix),
        _ => None,
    }
}

/// The number at the end of the name.
fn number(name: &[u8], named: &Named) -> Option<u16> {
    rotation_number(suffix(name, named.path.file_name()?.as_bytes())?)
}
