//! Choice of the next file: decides on the file, and the start in it, after the known segments.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::copies::FileCopy;
use super::{Fresh, SegmentStart, Segments, TailPosition, Why};
use crate::source::error::SourceError;
use crate::source::files::{
    FINGERPRINT_BYTES, FileId, FoundFile, Head, is_gzip, list, open_if_there, still_continues,
};
use crate::source::rotated::{rotated_since, siblings};
use tidegate_config::{DataFormat, FileSource};
use tidegate_model::{Address, Segment};

impl Segments {
    /// The part after the last segment, for the reader at `here` (`None`: no segment exists), which has
    /// reached its end.
    pub(crate) fn next(
        &mut self,
        address: &Address,
        spec: &FileSource,
        here: Option<&TailPosition>,
    ) -> Result<Option<Fresh>, SourceError> {
        if self.single {
            // Rotation may change the file at a single path at any moment, so no list is kept.
            self.waiting.clear();
        }
        let mut listed = false;
        loop {
            while let Some(found) = self.waiting.front() {
                let found = found.clone();
                if let Some(part) = self.judge(spec, &found, here)? {
                    let (part, like) = match self.copied(address, spec, &found, part, here)? {
                        FileCopy::Passed => {
                            self.waiting.pop_front();
                            continue;
                        }
                        FileCopy::Goes(part) => (part, None),
                        FileCopy::Other { like } => (part, like),
                    };
                    if let Some(fresh) = begin(spec, &found, part, like)? {
                        return Ok(Some(fresh));
                    }
                    if self.single {
                        // It was rotated a moment ago: the order must be determined again.
                        return Ok(None);
                    }
                }
                self.waiting.pop_front();
            }
            if listed {
                return Ok(None);
            }
            self.list(address, spec, here)?;
            listed = true;
        }
    }

    fn list(
        &mut self,
        address: &Address,
        spec: &FileSource,
        here: Option<&TailPosition>,
    ) -> Result<(), SourceError> {
        let listing = list(address, &spec.path, spec.follow)?;
        self.single = listing.single;
        self.present.clear();
        if !self.single {
            let present = listing.files.iter().map(|found| (found.id, (found.path.clone(), found.len)));
            self.present.extend(present);
        }
        self.waiting = listing.files.into();
        self.doubtful.clear();
        self.passed.clear();
        if !(self.single && spec.follow) {
            return Ok(());
        }
        if let Some(last) = self.entries.last().map(|entry| &entry.segment) {
            let id = FileId::of_segment(last);
            // A reader that lost the file has none open.
            let open = here.filter(|here| here.id == Some(id)).and_then(|here| here.written);
            if open.is_some() && self.waiting.front().is_some_and(|found| found.id == id) {
                return Ok(());
            }
            let is_known = |path: &Path, id, len| self.is_known(path, id, len);
            match rotated_since(&spec.path, last, open, is_known)? {
                Some(rotated) => {
                    rotated.files.into_iter().rev().for_each(|found| self.waiting.push_front(found));
                    self.passed = rotated.passed;
                    self.doubtful = rotated.doubtful;
                }
                // The next file is undecided while the one before it is.
                None => self.waiting.clear(),
            }
        } else if let Some(siblings) = siblings(&spec.path)? {
            self.passed = siblings;
        } else {
            self.waiting.clear();
        }
        Ok(())
    }

    /// Whether a listed file has content that no segment holds, and its start.
    fn judge(
        &mut self,
        spec: &FileSource,
        found: &FoundFile,
        here: Option<&TailPosition>,
    ) -> Result<Option<SegmentStart>, SourceError> {
        // An empty beginning matches every file, and the file system reuses the identity of a removed one.
        let is_distinctive = |segment: &&Segment| {
            let was_empty = segment.fingerprint_len == 0 && segment.end.is_some_and(|end| end.offset == 0);
            spec.format == DataFormat::Bytes || !was_empty || !holds_bytes(found)
        };
        let segment = |at: &usize| self.entries.get(*at).map(|entry| &entry.segment).filter(is_distinctive);
        let by_id = self.by_id.get(&found.id).and_then(segment);
        let Some(known) = by_id.or_else(|| self.by_path.get(&found.path).and_then(segment)) else {
            return Ok(holds_jobs(spec, found).then(|| SegmentStart::whole(Why::New)));
        };
        let here = here.filter(|here| here.segment == known.ordinal);
        if known.end.is_none() && here.is_some_and(|here| here.id == Some(found.id)) {
            // It is being read: its reader notices changes itself.
            return Ok(None);
        }
        let Some(end) = known.end.or(here.map(|here| here.at)) else { return Ok(None) };
        let whole = spec.format == DataFormat::Bytes || is_gzip(&found.path);
        let seen = found.len == end.offset && self.seen.get(&found.id) == Some(&found.written);
        if by_id.is_some() && !self.single && found.path == known.path && (seen || is_gzip(&found.path)) {
            // The usual case of a folder's files is not worth opening them.
            return Ok(None);
        }
        // The next file of a rotated log may have the same beginning. It can be a copy only if the file that
        // was read is gone.
        let rotated = by_id.is_none() && spec.follow && here.is_none_or(|here| here.linked);
        let same = !rotated && still_continues(&found.path, known)?;
        let longer = found.len > end.offset && self.left_at.get(&found.id).is_none_or(|&len| found.len > len);
        let why = match same {
            true if is_gzip(&found.path) || found.len == end.offset => {
                self.seen.insert(found.id, found.written);
                return Ok(None);
            }
            true if whole && longer => Why::Replaced,
            true if longer => {
                return Ok(Some(SegmentStart { offset: end.offset, line: end.line, why: Why::Grown }));
            }
            true if found.len > end.offset => return Ok(None),
            true => Why::Truncated,
            // A newly rotated file may be empty for a moment; until then, the one before it may grow.
            false if by_id.is_none() && !holds_jobs(spec, found) => return Ok(None),
            false if found.len < end.offset && by_id.is_some() && !is_gzip(&found.path) => Why::Truncated,
            false if rotated => Why::New,
            false => Why::Replaced,
        };
        Ok(Some(SegmentStart::whole(why)))
    }
}

impl SegmentStart {
    fn whole(why: Why) -> Self {
        Self { offset: 0, line: 1, why }
    }
}

/// An empty file has no jobs, unless files are jobs.
fn holds_jobs(spec: &FileSource, found: &FoundFile) -> bool {
    found.len > 0 || spec.format == DataFormat::Bytes
}

/// Whether a file has content. A compressed file without any is not empty itself.
fn holds_bytes(found: &FoundFile) -> bool {
    if !is_gzip(&found.path) {
        return found.len > 0;
    }
    // A file that cannot be read now has no content that could be another one.
    let opened = open_if_there(&found.path).ok().flatten();
    let head = opened.and_then(|(file, _)| Head::of(&file, true).ok());
    head.is_some_and(|head| head.fingerprint(1).1 > 0)
}

/// `None` if the file is gone or replaced.
fn begin(
    spec: &FileSource,
    found: &FoundFile,
    part: SegmentStart,
    like: Option<PathBuf>,
) -> Result<Option<Fresh>, SourceError> {
    let Some((file, metadata)) = open_if_there(&found.path)? else { return Ok(None) };
    if FileId::of(&metadata) != found.id {
        return Ok(None);
    }
    let failed = |error| SourceError::open(&found.path, error);
    let packed = is_gzip(&found.path) && spec.format != DataFormat::Bytes;
    let fingerprint = Head::of(&file, packed).map_err(failed)?.fingerprint(FINGERPRINT_BYTES);
    let lines = spec.format != DataFormat::Bytes && !packed;
    let mid_line = lines && goes_on_in_line(&file, part.offset).map_err(failed)?;
    let opened = (file, metadata);
    Ok(Some(Fresh { path: found.path.clone(), id: found.id, fingerprint, part, mid_line, like, opened }))
}

/// Whether no newline is at `offset`, on either side.
fn goes_on_in_line(file: &File, offset: u64) -> io::Result<bool> {
    let Some(before) = offset.checked_sub(1) else { return Ok(false) };
    let mut bytes = [b'\n'; 2];
    match file.read_exact_at(&mut bytes, before) {
        // It was truncated a moment ago, which its reader will notice.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        read => read?,
    }
    Ok(!bytes.iter().any(|byte| b"\r\n".contains(byte)))
}
