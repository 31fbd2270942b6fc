//! `Segments`: the segments of a source, shared by its readers. The next file is chosen in [`next`].
//!
//! Guarantee: segments are only added at the end, and the end index of a segment never changes once it is
//! known. So readers at different paces agree on the index of each line.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{File, Metadata};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_64;

use super::files::{
    FINGERPRINT_BYTES, FileId, FoundFile, Head, Written, begins_like, is_gzip, still_begins_like,
};
use tidegate_model::log_target;
use tidegate_model::{Address, Segment, SourceOffset, TailFingerprint};

pub(crate) mod copies;
pub(crate) mod next;

use copies::LogName;

/// The position of a reader at the end of the last segment.
#[derive(Debug)]
pub(crate) struct TailPosition {
    pub(crate) segment: u32,
    pub(crate) at: SourceOffset,
    /// The file it reads; `None` if it was lost.
    pub(crate) id: Option<FileId>,
    /// The file still has a name.
    pub(crate) linked: bool,
    /// Its last modification time.
    pub(crate) written: Option<Written>,
}

/// A part of a file that no segment holds yet.
#[derive(Debug)]
pub(crate) struct Fresh {
    path: PathBuf,
    id: FileId,
    fingerprint: (u64, u32),
    part: SegmentStart,
    /// The part continues the line that the bytes before it end with.
    mid_line: bool,
    /// A file that was read has the same beginning, but one too short to identify a copy.
    like: Option<PathBuf>,
    /// The open file: its name may belong to another one when it is read.
    opened: (File, Metadata),
}

/// The start of the part, and the reason for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentStart {
    offset: u64,
    line: u64,
    why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    New,
    /// It grew after it was considered complete.
    Grown,
    /// It is shorter than before.
    Truncated,
    /// Its beginning has changed, or it is another file of the same name.
    Replaced,
}

#[derive(Debug)]
pub(crate) struct Segments {
    entries: Vec<Entry>,
    /// The last segment of each file, by its identity and by its path.
    by_id: HashMap<FileId, usize>,
    by_path: HashMap<PathBuf, usize>,
    /// The segments of each log, for any numbers and dates of its rotated files.
    by_log: HashMap<LogName, Vec<usize>>,
    /// The files of the last listing, and their lengths; empty if the path names one file.
    present: HashMap<FileId, (PathBuf, u64)>,
    /// Modification times of files without unread content.
    seen: HashMap<FileId, Written>,
    /// Copies of files that were read, and their lengths at that time.
    copies: HashMap<FileId, u64>,
    /// Compressed files whose content is incomplete.
    unfinished: HashSet<FileId>,
    /// Rotated files older than the first one that is read: they are not read.
    passed: Vec<FoundFile>,
    /// Unprocessed files of the last listing, in order of name.
    waiting: VecDeque<FoundFile>,
    /// Rotated files of the last listing whose order is unknown.
    doubtful: Vec<FoundFile>,
    /// The path names one file, not a folder or a pattern.
    single: bool,
    /// The length of a file when it was left at an unfinished line.
    left_at: HashMap<FileId, u64>,
    /// The furthest place that a reader of this run has reached.
    furthest: Option<SourceOffset>,
    /// No index below it may change its meaning.
    floor: u64,
    revision: u64,
}

/// A segment, and its number of changes since it was loaded.
#[derive(Debug)]
struct Entry {
    segment: Segment,
    /// 0: as in the store. Greater than all earlier ones, otherwise.
    revision: u64,
}

impl Segments {
    /// `known`: the segments in the store, in order.
    pub(crate) fn new(known: Vec<Segment>) -> Self {
        let mut segments = Self {
            entries: Vec::with_capacity(known.len()),
            by_id: HashMap::new(),
            by_path: HashMap::new(),
            by_log: HashMap::new(),
            present: HashMap::new(),
            seen: HashMap::new(),
            copies: HashMap::new(),
            unfinished: HashSet::new(),
            passed: Vec::new(),
            waiting: VecDeque::new(),
            doubtful: Vec::new(),
            single: false,
            left_at: HashMap::new(),
            furthest: None,
            floor: 1,
            revision: 0,
        };
        for segment in known {
            segments.floor = segments.floor.max(segment.end.map_or(segment.first, |end| end.index));
            segments.remember(segment, 0);
        }
        segments
    }

    pub(crate) fn get(&self, ordinal: u32) -> Option<&Segment> {
        self.entries.get(ordinal as usize).map(|entry| &entry.segment)
    }

    /// The segment, if it was changed since `revision`, and its revision.
    pub(crate) fn changed_since(&self, ordinal: u32, revision: u64) -> Option<(&Segment, u64)> {
        let entry = self.entries.get(ordinal as usize)?;
        (entry.revision > revision).then_some((&entry.segment, entry.revision))
    }

    /// The segments that are new, or were changed since they were loaded.
    pub(crate) fn news(&self) -> Vec<Segment> {
        let news = self.entries.iter().filter(|entry| entry.revision > 0);
        news.map(|entry| entry.segment.clone()).collect()
    }

    /// The index after all those that have a meaning.
    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    /// The segment that holds `index`, or will hold it.
    pub(crate) fn holding(&self, index: u64) -> Option<&Segment> {
        let after = self.entries.partition_point(|entry| entry.segment.first <= index);
        self.entries.get(after.checked_sub(1)?).map(|entry| &entry.segment)
    }

    /// The end of a segment, if it is known.
    pub(crate) fn end_of(&self, ordinal: u32) -> Option<SourceOffset> {
        let segment = self.get(ordinal)?;
        segment.end.or_else(|| {
            let next = self.get(ordinal + 1)?;
            Some(SourceOffset { index: next.first, segment: ordinal, offset: u64::MAX, line: u64::MAX })
        })
    }

    /// A reader begins at `next`: earlier jobs are delivered.
    pub(crate) fn join(&mut self, next: u64) {
        self.floor = self.floor.max(next);
    }

    /// A reader has returned every job before `place`.
    pub(crate) fn reach(&mut self, place: SourceOffset) {
        self.floor = self.floor.max(place.index);
        if self.furthest.is_none_or(|furthest| furthest.index < place.index) {
            self.furthest = Some(place);
        }
    }

    /// Ends the segment at the furthest place known, at least `at`. An end never changes.
    pub(crate) fn close(&mut self, ordinal: u32, at: SourceOffset) {
        let furthest = self.furthest.filter(|place| place.segment == ordinal && place.index > at.index);
        let mut end = furthest.unwrap_or(at);
        end.index = end.index.max(self.floor);
        self.floor = end.index;
        self.change(ordinal, |segment| {
            if segment.end.is_some() {
                return false;
            }
            segment.end = Some(end);
            true
        });
    }

    /// The file of a segment was replaced by one with the same content.
    pub(crate) fn adopt(&mut self, ordinal: u32, id: FileId) {
        self.change(ordinal, |segment| {
            let known = FileId::of_segment(segment) == id;
            (segment.device, segment.inode) = (id.device, id.inode);
            !known
        });
        self.by_id.insert(id, ordinal as usize);
    }

    /// Takes a second fingerprint before `at`, up to which `file` was read. After an error it is taken later.
    pub(crate) fn note_tail(&mut self, ordinal: u32, file: &File, at: SourceOffset) {
        let len = at.offset.min(FINGERPRINT_BYTES.into());
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        if len == 0 || file.read_exact_at(&mut bytes, at.offset - len).is_err() {
            return;
        }
        let tail =
            TailFingerprint { at, hash: XxHash3_64::oneshot(&bytes), len: u32::try_from(len).unwrap_or(0) };
        self.change(ordinal, |segment| {
            let further = segment.tail.is_none_or(|known| known.at.offset < at.offset);
            if further {
                segment.tail = Some(tail);
            }
            further
        });
    }

    /// Takes a longer fingerprint of a file that was short when it was found. After an error it is taken
    /// later.
    pub(crate) fn strengthen(&mut self, ordinal: u32, file: &File, read_to: u64) {
        let Some(segment) = self.get(ordinal) else { return };
        let now = u32::try_from(read_to).unwrap_or(u32::MAX).min(FINGERPRINT_BYTES);
        let worth =
            now > segment.fingerprint_len && (now == FINGERPRINT_BYTES || now / 2 >= segment.fingerprint_len);
        if !worth || is_gzip(&segment.path) {
            return;
        }
        // The known beginning must still be there, or it is already another file.
        if let (Ok(true), Ok(head)) = (begins_like(file, segment), Head::of(file, false)) {
            let (hash, len) = head.fingerprint(now);
            self.change(ordinal, |segment| {
                (segment.fingerprint, segment.fingerprint_len) = (hash, len);
                true
            });
        }
    }

    /// Adds the result of [`Self::next`] as the last segment, and returns its ordinal and its file.
    pub(crate) fn push(&mut self, address: &Address, fresh: Fresh) -> (u32, (File, Metadata)) {
        if self.waiting.front().is_some_and(|found| found.path == fresh.path) {
            self.waiting.pop_front();
        }
        let first = self.floor;
        self.warn_of_doubts(address, &fresh);
        log_start(address, &fresh, first);
        self.pass_over(&fresh);
        self.revision += 1;
        let ordinal = self.next_ordinal();
        let segment = Segment {
            ordinal,
            first,
            path: fresh.path,
            device: fresh.id.device,
            inode: fresh.id.inode,
            fingerprint: fresh.fingerprint.0,
            fingerprint_len: fresh.fingerprint.1,
            offset: fresh.part.offset,
            line: fresh.part.line,
            tail: None,
            siblings_known: true,
            end: None,
        };
        self.remember(segment, self.revision);
        (ordinal, fresh.opened)
    }

    /// Adds segments without jobs for rotated files that are not read, so that they are known from then on.
    fn pass_over(&mut self, fresh: &Fresh) {
        for found in std::mem::take(&mut self.passed) {
            // A file that is gone, or cannot be read, cannot be mistaken for a rotated file later.
            let Ok(file) = File::open(&found.path) else { continue };
            let Ok(head) = Head::of(&file, is_gzip(&found.path)) else { continue };
            if found.id == fresh.id {
                continue;
            }
            self.revision += 1;
            let (ordinal, (fingerprint, fingerprint_len)) =
                (self.next_ordinal(), head.fingerprint(FINGERPRINT_BYTES));
            let end = SourceOffset { index: self.floor, segment: ordinal, offset: found.len, line: 1 };
            let segment = Segment {
                ordinal,
                first: self.floor,
                path: found.path,
                device: found.id.device,
                inode: found.id.inode,
                fingerprint,
                fingerprint_len,
                offset: 0,
                line: 1,
                tail: None,
                siblings_known: true,
                end: Some(end),
            };
            self.remember(segment, self.revision);
        }
    }

    /// Four billion rotations are impossible.
    fn next_ordinal(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// Whether a file was read before, or skipped, under any name.
    fn is_known(&self, path: &Path, id: FileId, len: u64) -> bool {
        let entry = self.by_id.get(&id).and_then(|&at| self.entries.get(at));
        entry.is_some_and(|entry| {
            // An empty beginning matches every file.
            (entry.segment.fingerprint_len > 0 || len == 0)
                && still_begins_like(path, &entry.segment).unwrap_or(false)
        })
    }

    /// Warns of rotated files that are not read.
    fn warn_of_doubts(&mut self, address: &Address, fresh: &Fresh) {
        let doubtful = std::mem::take(&mut self.doubtful);
        let unread = doubtful.iter().filter(|found| found.id != fresh.id);
        let names: Vec<_> = unread.map(|found| found.path.display().to_string()).collect();
        if !names.is_empty() {
            tracing::warn!(
                target: log_target::SOURCE,
                source = %address,
                path = %fresh.path.display(),
                rotated = names.join(", "),
                "the file that was read last is gone, so the order of the rotated files is unknown: \
                 they are not read, and jobs in them may be lost",
            );
        }
    }

    /// Records that the file was left at an unfinished line: it is ignored until it grows.
    pub(crate) fn leave_unfinished(&mut self, id: FileId, len: u64) {
        self.left_at.insert(id, len);
    }

    fn remember(&mut self, segment: Segment, revision: u64) {
        let at = self.entries.len();
        self.by_id.insert(FileId::of_segment(&segment), at);
        self.by_path.insert(segment.path.clone(), at);
        if let Some(log) = LogName::of(&segment.path) {
            self.by_log.entry(log).or_default().push(at);
        }
        self.entries.push(Entry { segment, revision });
    }

    /// Applies `change`, which returns whether it changed the segment.
    fn change(&mut self, ordinal: u32, change: impl FnOnce(&mut Segment) -> bool) {
        if let Some(entry) = self.entries.get_mut(ordinal as usize)
            && change(&mut entry.segment)
        {
            self.revision += 1;
            entry.revision = self.revision;
        }
    }
}

/// Logs that a file repeats one that was read, and up to which place.
fn log_copy(address: &Address, found: &FoundFile, original: &Path, from: Option<SourceOffset>) {
    let (path, original) = (found.path.display(), original.display());
    match from {
        None => {
            tracing::info!(target: log_target::SOURCE, source = %address, %path, %original, "skips a copy of a file that was read");
        }
        Some(SourceOffset { offset: byte, line, .. }) => tracing::info!(
            target: log_target::SOURCE,
            source = %address, %path, %original, byte, line,
            "continues in a copy of a file that was read, after the part that was read",
        ),
    }
}

/// Logs the next file.
fn log_start(address: &Address, fresh: &Fresh, index: u64) {
    let path = fresh.path.display();
    if let Some(like) = &fresh.like {
        tracing::warn!(
            target: log_target::SOURCE,
            source = %address, %path, like = %like.display(), index,
            "the file has the beginning of one that was read, which is too short to identify a copy: it is \
             read, and its jobs occur twice if it is a copy",
        );
    }
    match fresh.part.why {
        // The first file is known from the configuration.
        Why::New if index == 1 => {
            tracing::debug!(target: log_target::SOURCE, source = %address, %path, "starts a file");
        }
        Why::New => {
            tracing::info!(target: log_target::SOURCE, source = %address, %path, index, "starts a file");
        }
        Why::Grown if fresh.mid_line => {
            let SegmentStart { line, offset: byte, .. } = fresh.part;
            tracing::warn!(
                target: log_target::SOURCE,
                source = %address, %path, line, byte, index,
                "continues a file after an unfinished line: line {line} was considered complete when \
                 the last run ended, and its later part is a job of its own",
            );
        }
        Why::Grown => {
            tracing::info!(target: log_target::SOURCE, source = %address, %path, index, "continues a file");
        }
        Why::Truncated => {
            tracing::warn!(target: log_target::SOURCE, source = %address, %path, index, "the file became shorter: it is read from its beginning");
        }
        Why::Replaced => {
            tracing::warn!(target: log_target::SOURCE, source = %address, %path, index, "the file was replaced; starts it from the beginning");
        }
    }
}
