//! The segments of a source, shared by its readers. Which file comes next is decided in [`choosing`].
//!
//! Guarantee: segments are only ever added at the end, and the index at which one ends never
//! changes once it is known. So readers at different paces agree about which index is which line.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{File, Metadata};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_64;

use super::files::{
    FINGERPRINT_BYTES, FileId, Found, Head, Written, begins_like, is_gzip, still_begins_like,
};
use tidegate_model::log_target;
use tidegate_model::{Address, Segment, SourceOffset, TailFingerprint};

pub(crate) mod copies;
pub(crate) mod next;

use copies::LogName;

/// Where a reader stands that has come to the end of the last segment.
#[derive(Debug)]
pub(crate) struct TailPosition {
    pub(crate) segment: u32,
    pub(crate) at: SourceOffset,
    /// The file it reads; `None` where it was lost.
    pub(crate) id: Option<FileId>,
    /// The file still has a name somewhere.
    pub(crate) linked: bool,
    /// When it was written to last.
    pub(crate) written: Option<Written>,
}

/// A part of a file that no segment holds yet.
#[derive(Debug)]
pub(crate) struct Fresh {
    path: PathBuf,
    id: FileId,
    fingerprint: (u64, u32),
    part: Part,
    /// The bytes before the part end in the middle of a line, and the part goes on with it.
    mid_line: bool,
    /// A file that was read begins alike, too briefly to say that this one is a copy of it.
    like: Option<PathBuf>,
    /// The file itself: its name may be another one's by the time it is read.
    opened: (File, Metadata),
}

/// From where on, and why it is one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    offset: u64,
    line: u64,
    why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    New,
    /// It goes on after it was taken as ended.
    Grown,
    /// It is shorter than it was.
    Truncated,
    /// It begins otherwise than it did, or is another file of the same name.
    Replaced,
}

#[derive(Debug)]
pub(crate) struct Segments {
    entries: Vec<Entry>,
    /// The last segment of each file, by what the file system calls it and by its path.
    by_id: HashMap<FileId, usize>,
    by_path: HashMap<PathBuf, usize>,
    /// The segments of each log, whatever numbers and dates its rotated files have.
    by_log: HashMap<LogName, Vec<usize>>,
    /// The files of the last listing, and how long they were; not where the path names one file.
    present: HashMap<FileId, (PathBuf, u64)>,
    /// When files were written to of which nothing is left to be read.
    seen: HashMap<FileId, Written>,
    /// Copies of files that were read, and how long they were then.
    copies: HashMap<FileId, u64>,
    /// Packed files whose content ends too early for now.
    unfinished: HashSet<FileId>,
    /// Rotated files that were there before the first one that is read: they are not read.
    passed: Vec<Found>,
    /// Files of the last listing that were not looked at yet, in order of name.
    waiting: VecDeque<Found>,
    /// Rotated files of the last listing of which nothing says whether they were to be read.
    doubtful: Vec<Found>,
    /// The path names one file, not a folder or a pattern.
    single: bool,
    /// How long a file was when it was left before an unfinished line.
    left_at: HashMap<FileId, u64>,
    /// The furthest place that a reader of this run has come to.
    furthest: Option<SourceOffset>,
    /// No index below it may get another meaning.
    floor: u64,
    revision: u64,
}

/// A segment, and how often it was changed since it was loaded.
#[derive(Debug)]
struct Entry {
    segment: Segment,
    /// 0: as the store has it. Greater than all before, otherwise.
    revision: u64,
}

impl Segments {
    /// `known`: what the store has, in order.
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

    /// Those that are new, or were changed since they were loaded.
    pub(crate) fn news(&self) -> Vec<Segment> {
        let news = self.entries.iter().filter(|entry| entry.revision > 0);
        news.map(|entry| entry.segment.clone()).collect()
    }

    /// The index that comes after all that have a meaning.
    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    /// The segment that holds `index`, or will.
    pub(crate) fn holding(&self, index: u64) -> Option<&Segment> {
        let after = self.entries.partition_point(|entry| entry.segment.first <= index);
        self.entries.get(after.checked_sub(1)?).map(|entry| &entry.segment)
    }

    /// Where a segment ends, if that is known.
    pub(crate) fn end_of(&self, ordinal: u32) -> Option<SourceOffset> {
        let segment = self.get(ordinal)?;
        segment.end.or_else(|| {
            let next = self.get(ordinal + 1)?;
            Some(SourceOffset { index: next.first, segment: ordinal, offset: u64::MAX, line: u64::MAX })
        })
    }

    /// A reader begins at `next`: what is before it has been delivered.
    pub(crate) fn join(&mut self, next: u64) {
        self.floor = self.floor.max(next);
    }

    /// A reader has given every job before `place`.
    pub(crate) fn reach(&mut self, place: SourceOffset) {
        self.floor = self.floor.max(place.index);
        if self.furthest.is_none_or(|furthest| furthest.index < place.index) {
            self.furthest = Some(place);
        }
    }

    /// Ends the segment at the furthest place known, at least `at`. Ends stay where they are.
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

    /// The file of a segment was found as another one with the same content.
    pub(crate) fn adopt(&mut self, ordinal: u32, id: FileId) {
        self.change(ordinal, |segment| {
            let known = FileId::of_segment(segment) == id;
            (segment.device, segment.inode) = (id.device, id.inode);
            !known
        });
        self.by_id.insert(id, ordinal as usize);
    }

    /// Takes a second fingerprint before `at`, up to which `file` was read. One that cannot be had now is
    /// taken later.
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

    /// Takes a longer fingerprint of a file that was short when it was found. A hash that cannot be
    /// had now is taken later.
    pub(crate) fn strengthen(&mut self, ordinal: u32, file: &File, read_to: u64) {
        let Some(segment) = self.get(ordinal) else { return };
        let now = u32::try_from(read_to).unwrap_or(u32::MAX).min(FINGERPRINT_BYTES);
        let worth =
            now > segment.fingerprint_len && (now == FINGERPRINT_BYTES || now / 2 >= segment.fingerprint_len);
        if !worth || is_gzip(&segment.path) {
            return;
        }
        // The beginning as it was known must still be there, or it is another file's already.
        if let (Ok(true), Ok(head)) = (begins_like(file, segment), Head::of(file, false)) {
            let (hash, len) = head.fingerprint(now);
            self.change(ordinal, |segment| {
                (segment.fingerprint, segment.fingerprint_len) = (hash, len);
                true
            });
        }
    }

    /// Adds what [`Self::next`] answered as the last segment, and hands over its ordinal and its file.
    pub(crate) fn push(&mut self, address: &Address, fresh: Fresh) -> (u32, (File, Metadata)) {
        if self.waiting.front().is_some_and(|found| found.path == fresh.path) {
            self.waiting.pop_front();
        }
        let first = self.floor;
        self.tell_doubts(address, &fresh);
        tell(address, &fresh, first);
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

    /// Gives rotated files that are not read a segment without jobs, so that they are known from then on.
    fn pass_over(&mut self, fresh: &Fresh) {
        for found in std::mem::take(&mut self.passed) {
            // One that is gone again, or cannot be read, is no rotated file that could be mistaken later.
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

    /// Four billion rotations are out of reach.
    fn next_ordinal(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// Whether a file was read before, or passed over, under whatever name.
    fn is_known(&self, path: &Path, id: FileId, len: u64) -> bool {
        let entry = self.by_id.get(&id).and_then(|&at| self.entries.get(at));
        entry.is_some_and(|entry| {
            // An empty beginning is that of each file.
            (entry.segment.fingerprint_len > 0 || len == 0)
                && still_begins_like(path, &entry.segment).unwrap_or(false)
        })
    }

    /// Warns of rotated files that nobody read and nobody will.
    fn tell_doubts(&mut self, address: &Address, fresh: &Fresh) {
        let doubtful = std::mem::take(&mut self.doubtful);
        let unread = doubtful.iter().filter(|found| found.id != fresh.id);
        let names: Vec<_> = unread.map(|found| found.path.display().to_string()).collect();
        if !names.is_empty() {
            tracing::warn!(
                target: log_target::SOURCE,
                source = %address,
                path = %fresh.path.display(),
                rotated = names.join(", "),
                "the file that was read last is gone, so nothing says which rotated files came after it: \
                 they are not read, and jobs in them may be lost",
            );
        }
    }

    /// Remembers that the file was left before an unfinished line: it is of no interest until it
    /// grows.
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

    /// Applies `change`, which answers whether it changed anything.
    fn change(&mut self, ordinal: u32, change: impl FnOnce(&mut Segment) -> bool) {
        if let Some(entry) = self.entries.get_mut(ordinal as usize)
            && change(&mut entry.segment)
        {
            self.revision += 1;
            entry.revision = self.revision;
        }
    }
}

/// Says that a file repeats one that was read, and from where on it does not.
fn tell_copy(address: &Address, found: &Found, original: &Path, from: Option<SourceOffset>) {
    let (path, original) = (found.path.display(), original.display());
    match from {
        None => {
            tracing::info!(target: log_target::SOURCE, source = %address, %path, %original, "passes over a copy of a file that was read");
        }
        Some(SourceOffset { offset: byte, line, .. }) => tracing::info!(
            target: log_target::SOURCE,
            source = %address, %path, %original, byte, line,
            "goes on in a copy of a file that was read, behind what was read of it",
        ),
    }
}

/// Says what is read next.
fn tell(address: &Address, fresh: &Fresh, index: u64) {
    let path = fresh.path.display();
    if let Some(like) = &fresh.like {
        tracing::warn!(
            target: log_target::SOURCE,
            source = %address, %path, like = %like.display(), index,
            "the file begins as one that was read, and that beginning is too short to tell a copy: it is \
             read, and its jobs come twice if it is one",
        );
    }
    match fresh.part.why {
        // The first one is what the configuration says anyway.
        Why::New if index == 1 => {
            tracing::debug!(target: log_target::SOURCE, source = %address, %path, "begins a file");
        }
        Why::New => {
            tracing::info!(target: log_target::SOURCE, source = %address, %path, index, "begins a file");
        }
        Why::Grown if fresh.mid_line => {
            let Part { line, offset: byte, .. } = fresh.part;
            tracing::warn!(
                target: log_target::SOURCE,
                source = %address, %path, line, byte, index,
                "goes on in a file after a line that had no end: line {line} was taken as complete when \
                 the run before ended, and what was added to it is a job of its own",
            );
        }
        Why::Grown => {
            tracing::info!(target: log_target::SOURCE, source = %address, %path, index, "goes on in a file");
        }
        Why::Truncated => {
            tracing::warn!(target: log_target::SOURCE, source = %address, %path, index, "the file became shorter; begins it anew");
        }
        Why::Replaced => {
            tracing::warn!(target: log_target::SOURCE, source = %address, %path, index, "the file was replaced; begins it anew");
        }
    }
}
