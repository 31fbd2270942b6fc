//! `Copy`: a file whose content was read before under another name, unchanged or compressed.
//!
//! Guarantee: content that a copy repeats is not read again, and content that it adds is read once. The name of
//! a copy belongs to the same log. Its beginning, and the bytes before the read position, are those of the
//! original. A file that is too short to be recognized is read, with a warning: a duplicate job can be
//! found, a lost one cannot.

use std::fs::{File, Metadata};
use std::io::{self, Seek as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_64;

use super::{SegmentStart, Segments, TailPosition, Why, log_copy};
use crate::source::byte_window::ByteWindow;
use crate::source::error::SourceError;
use crate::source::files::{
    FINGERPRINT_BYTES, FileId, FoundFile, Head, folder_of, is_gzip, list, open_if_there, settled_by_name,
    still_begins_like,
};
use crate::source::rotated::suffix;
use tidegate_config::{DataFormat, FileSource};
use tidegate_model::log_target;
use tidegate_model::{Address, Segment, SourceOffset};

/// A shorter beginning does not distinguish a copy from another file with the same beginning.
const RECOGNIZED_BYTES_MIN: u32 = 64;

/// The relation of an unknown file to the segments.
#[derive(Debug)]
pub(crate) enum FileCopy {
    /// Its content was read, or it cannot be judged yet.
    Passed,
    /// It continues after the end of its original.
    Goes(SegmentStart),
    /// No file that was read is known to be its original.
    Other {
        /// A file with the same beginning, which is too short to decide.
        like: Option<PathBuf>,
    },
}

/// The comparison of a file with the read part of its original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compared {
    Other,
    /// Its compression is not finished.
    Unfinished,
    Same,
    Longer,
}

impl Segments {
    /// Whether `found`, which would be read as `part`, is a copy of a file that was read.
    pub(crate) fn copied(
        &mut self,
        address: &Address,
        spec: &FileSource,
        found: &FoundFile,
        part: SegmentStart,
        here: Option<&TailPosition>,
    ) -> Result<FileCopy, SourceError> {
        let other = FileCopy::Other { like: None };
        if spec.format == DataFormat::Bytes || part.why == Why::Grown || found.path == spec.path {
            return Ok(other);
        }
        if self.copies.get(&found.id) == Some(&found.len) {
            return Ok(FileCopy::Passed);
        }
        let Some(log) = LogName::of(&found.path) else { return Ok(other) };
        let Some(candidates) = self.by_log.get(&log) else { return Ok(other) };
        let candidates: Vec<_> = candidates.iter().rev().filter_map(|&at| self.entries.get(at)).collect();
        let Some((file, _)) = open_if_there(&found.path)? else { return Ok(other) };
        let failed = |error| SourceError::open(&found.path, error);
        let packed = is_gzip(&found.path);
        let head = Head::of(&file, packed).map_err(failed)?;
        if spec.follow && head.is_cut() {
            if self.unfinished.insert(found.id) {
                let path = found.path.display();
                tracing::info!(target: log_target::SOURCE, source = %address, %path, "waits for the end of the file's compression");
            }
            return Ok(FileCopy::Passed);
        }
        let mut like = None;
        for segment in candidates.iter().map(|entry| &entry.segment) {
            let same = segment.fingerprint_len > 0 && head.is_of(segment) && segment.path != found.path;
            if !same || !may_be_copy(&segment.path, &found.path) {
                continue;
            }
            if segment.fingerprint_len < RECOGNIZED_BYTES_MIN {
                like.get_or_insert_with(|| segment.path.clone());
                continue;
            }
            let here = here.filter(|here| here.segment == segment.ordinal);
            let Some(end) = segment.end.or(here.map(|here| here.at)) else { return Ok(FileCopy::Passed) };
            let is_same = match self.present.get(&FileId::of_segment(segment)) {
                // Another file may have received its identity.
                Some((path, len)) => *len >= end.offset && still_begins_like(path, segment)?,
                None => false,
            };
            if is_same && both_numbered(&segment.path, &found.path) {
                // Rotation leaves no original beside its copy under another number.
                continue;
            }
            if !packed && is_gzip(&segment.path) && u64::from(segment.fingerprint_len) < end.offset {
                // Rotation unpacks no file, and of a compressed one only the beginning is known.
                continue;
            }
            let compared = compare(&file, found.id, packed, segment, end).map_err(failed)?;
            let original = segment.path.clone();
            match compared {
                Compared::Other => continue,
                Compared::Unfinished if spec.follow => return Ok(FileCopy::Passed),
                Compared::Unfinished => return Ok(other),
                Compared::Same => {}
                Compared::Longer => {
                    log_copy(address, found, &original, Some(end));
                    return Ok(FileCopy::Goes(SegmentStart {
                        offset: end.offset,
                        line: end.line,
                        why: Why::Grown,
                    }));
                }
            }
            log_copy(address, found, &original, None);
            self.copies.insert(found.id, found.len);
            return Ok(FileCopy::Passed);
        }
        Ok(FileCopy::Other { like })
    }

    /// Finds the file of a segment as a copy, if the file itself is gone: its content up to `at` exists under
    /// another name, unchanged or compressed. The segment belongs to that file from then on.
    pub(crate) fn find_copy(
        &mut self,
        address: &Address,
        spec: &FileSource,
        ordinal: u32,
        at: SourceOffset,
    ) -> Result<Option<(File, Metadata)>, SourceError> {
        let Some(segment) = self.get(ordinal) else { return Ok(None) };
        if spec.format == DataFormat::Bytes || segment.fingerprint_len < RECOGNIZED_BYTES_MIN {
            return Ok(None);
        }
        for (path, id) in possible_copies(address, spec, segment)? {
            let Some((mut file, metadata)) = open_if_there(&path)? else { continue };
            let failed = |error| SourceError::open(&path, error);
            let packed = is_gzip(&path);
            if FileId::of(&metadata) != id || !Head::of(&file, packed).map_err(failed)?.is_of(segment) {
                continue;
            }
            let compared = compare(&file, id, packed, segment, at).map_err(failed)?;
            if matches!(compared, Compared::Same | Compared::Longer) {
                file.rewind().map_err(failed)?;
                tracing::info!(
                    target: log_target::SOURCE,
                    source = %address, path = %path.display(), original = %segment.path.display(),
                    "continues in a copy of the file that was read",
                );
                self.change(ordinal, |segment| {
                    (segment.device, segment.inode) = (id.device, id.inode);
                    segment.path.clone_from(&path);
                    true
                });
                // The file system may reuse the identity of the removed file.
                self.by_id.retain(|_, at| *at != ordinal as usize);
                self.by_path.retain(|_, at| *at != ordinal as usize);
                self.by_path.insert(path, ordinal as usize);
                self.by_id.insert(id, ordinal as usize);
                return Ok(Some((file, metadata)));
            }
        }
        Ok(None)
    }
}

/// The files that may be a copy of the file of `segment`, by their names.
fn possible_copies(
    address: &Address,
    spec: &FileSource,
    segment: &Segment,
) -> Result<Vec<(PathBuf, FileId)>, SourceError> {
    let listing = list(address, &spec.path, spec.follow)?;
    let mut files: Vec<_> = listing.files.into_iter().map(|found| (found.path, found.id)).collect();
    if listing.single
        && let Some(name) = spec.path.file_name()
    {
        let siblings =
            settled_by_name(folder_of(&spec.path), |other| suffix(name.as_bytes(), other).is_some());
        files = siblings.unwrap_or_default().into_iter().map(|named| (named.path, named.id)).collect();
    }
    files.retain(|(path, _)| *path != segment.path && may_be_copy(&segment.path, path));
    Ok(files)
}

/// Compares a file that has the beginning of `segment`'s file with the read part of that file, up to `end`.
fn compare(
    file: &File,
    id: FileId,
    packed: bool,
    segment: &Segment,
    end: SourceOffset,
) -> io::Result<Compared> {
    // The stream of a compressed file moves the position in the file.
    file.try_clone()?.rewind()?;
    match compare_content(ByteWindow::new(file.try_clone()?, id, packed), segment, end) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Compared::Unfinished),
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput) => {
            Ok(Compared::Other)
        }
        compared => compared,
    }
}

fn compare_content(mut stream: ByteWindow, segment: &Segment, end: SourceOffset) -> io::Result<Compared> {
    if let Some(tail) = segment.tail {
        // A damaged store may hold any number.
        let Some(begin) = tail.at.offset.checked_sub(u64::from(tail.len)) else { return Ok(Compared::Other) };
        if !stream.skip_to(begin)? {
            return Ok(Compared::Other);
        }
        let len = tail.len as usize;
        while stream.window().len() < len {
            if stream.fill()? == 0 {
                return Ok(Compared::Other);
            }
        }
        if XxHash3_64::oneshot(&stream.window()[..len]) != tail.hash {
            return Ok(Compared::Other);
        }
    } else if segment.fingerprint_len < FINGERPRINT_BYTES && u64::from(segment.fingerprint_len) < end.offset {
        return Ok(Compared::Other);
    }
    // A reader may begin before the place of the second fingerprint.
    if end.offset < stream.offset() {
        return Ok(Compared::Longer);
    }
    if !stream.skip_to(end.offset)? {
        return Ok(Compared::Other);
    }
    let more = !stream.window().is_empty() || stream.fill()? > 0;
    Ok(if more { Compared::Longer } else { Compared::Same })
}

/// The common part of the names of a log's files: the folder, and the name without the numbers and dates of
/// rotation and without `.gz`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LogName {
    folder: PathBuf,
    base: String,
}

impl LogName {
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let (base, _) = name_parts(path)?;
        Some(Self { folder: folder_of(path).to_owned(), base })
    }
}

/// Whether rotation can create `copy` from a file called `original`, which belongs to the same log. The
/// number or date of one continues that of the other, which may have none, or both end in a number.
fn may_be_copy(original: &Path, copy: &Path) -> bool {
    let (Some((base, mark)), Some((other_base, other))) = (name_parts(original), name_parts(copy)) else {
        return false;
    };
    let goes_on = |short: &str, long: &str| {
        long.strip_prefix(short)
            .is_some_and(|rest| short.is_empty() || !rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    base == other_base
        && folder_of(original) == folder_of(copy)
        && (goes_on(&mark, &other) || goes_on(&other, &mark) || both_numbered(original, copy))
}

/// Both names end in a small number, which rotation increments.
fn both_numbered(one: &Path, other: &Path) -> bool {
    [one, other].into_iter().all(|path| {
        name_of(path).is_some_and(|name| {
            let digits = name.rsplit(['.', '-', '_']).next().unwrap_or_default();
            digits.len() < name.len() && digits.len() <= 3 && digits.parse::<u16>().is_ok()
        })
    }) && name_of(one) != name_of(other)
}

/// The name without `.gz`.
fn name_of(path: &Path) -> Option<&str> {
    let path = if is_gzip(path) { path.file_stem() } else { path.file_name() };
    path?.to_str()
}

/// The name of a file without `.gz` and without its numbers and dates, and these.
fn name_parts(path: &Path) -> Option<(String, String)> {
    let mut rest = name_of(path)?;
    let (mut base, mut marks) = (String::new(), String::new());
    while let Some(at) = rest.find(['.', '-', '_']) {
        let (before, behind) = rest.split_at(at);
        base.push_str(before);
        let separator = &behind[..1];
        let run = &behind[1..];
        let is_part = |letter: char| letter.is_ascii_digit() || ".-_:TZ+".contains(letter);
        let len = run.find(|letter| !is_part(letter)).unwrap_or(run.len());
        let mark = run[..len].trim_end_matches(|letter: char| !letter.is_ascii_digit() && letter != 'Z');
        if mark.starts_with(|first: char| first.is_ascii_digit()) {
            marks.push_str(if marks.is_empty() { "" } else { separator });
            marks.push_str(mark);
            rest = &run[mark.len()..];
        } else {
            base.push_str(separator);
            rest = run;
        }
    }
    base.push_str(rest);
    Some((base, marks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_log_are_told_from_those_of_other_files() {
        let may = |original, copy| may_be_copy(Path::new(original), Path::new(copy));
        for (original, copy) in [
            ("app.log", "app.log.1"),
            ("app.log", "app.log.1.gz"),
            ("app.log.1", "app.log.1.gz"),
            ("app.log.1", "app.log.2.gz"),
            ("app.log", "app-2026-11-22.log.gz"),
            ("app.log", "app-2026-11-22T10-30-00.123.log"),
            ("app.log", "app.log-20261122"),
            ("app-2026-11-22.log", "app-2026-11-22.1.log.gz"),
            ("log", "log.1"),
        ] {
            assert!(may(original, copy), "{original} {copy}");
        }
        for (original, copy) in [
            ("day1.ndjson", "day2.ndjson"),
            ("orders-2026-11-21.ndjson", "orders-2026-11-22.ndjson"),
            ("part-1.ndjson", "part-2.ndjson"),
            ("app.log", "web.log"),
            ("a/app.log", "b/app.log.1"),
            ("app.log-20261121", "app.log-20261122.gz"),
        ] {
            assert!(!may(original, copy), "{original} {copy}");
        }
    }
}
