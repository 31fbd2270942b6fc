//! `Reader`: reads the batches of a source, from segment to segment ([`advance`]).

pub(crate) mod advance;

use std::fs::{File, Metadata};
use std::path::Path;
use std::sync::Arc;

use super::SourceShared;
use super::batch_builder::{BatchBuilder, BatchLimit};
use super::byte_window::ByteWindow;
use super::cursor::{Cursor, CursorError};
use super::error::SourceError;
use super::files::{FileId, begins_like, find_again, goes_on_like, is_gzip};
use tidegate_config::DataFormat;
use tidegate_model::log_target;
use tidegate_model::{Batch, Form, Segment, SourceOffset};

/// Number of jobs and of bytes between two marks in the store.
const MARK_JOBS: u64 = 1024;
const MARK_BYTES: u64 = 256 << 10;

/// The result of a read.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly every read finds a batch")]
pub enum Read {
    Batch(SourceBatch),
    /// The source has no more jobs in this run.
    End,
    /// No job is available, but the source is followed, and may have more later.
    Idle,
    /// Jobs may be on their way from a service.
    Busy,
}

/// Jobs, and the records of their place for the store.
#[derive(Debug)]
pub struct SourceBatch {
    pub batch: Batch,
    /// The start of the first job, if it is far enough from the last mark of this reader. A segment's own
    /// start needs no mark.
    pub mark: Option<SourceOffset>,
    /// Segments that are new or changed. To be committed with the delivery of the batch, or before it; a row
    /// replaces an earlier one of the same ordinal.
    pub segments: Vec<Segment>,
}

/// Reads a source at its own pace; lives on one thread.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<SourceShared>,
    /// A read for display only: its findings are not shared.
    looking: bool,
    /// The first requested job may not exist yet: if a file ends before it, no job is lost.
    early: bool,
    /// `None` before the first file was found.
    place: Option<ReaderPosition>,
    cursor: Cursor,
    stream: Option<ByteWindow>,
    /// The file of the present segment, if it is already open.
    opened: Option<(File, Metadata)>,
    /// The place of the last mark.
    marked: SourceOffset,
    /// Rows of earlier segments that no batch has carried yet.
    owed: Vec<Segment>,
    /// The error after the last batch.
    failed: Option<SourceError>,
}

/// The segment that is being read.
#[derive(Debug)]
struct ReaderPosition {
    ordinal: u32,
    path: Arc<Path>,
    /// The revision of its row in the last batch.
    carried: u64,
    /// The last observed length of its file.
    len: u64,
    /// Its content has changed.
    lost: bool,
    /// Its file is complete: an unfinished line is a job.
    over: bool,
}

/// Why a reader stopped to fill a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Full,
    /// The content ends here, for now or (`close`) for ever.
    Dry {
        close: bool,
    },
}

impl Reader {
    pub(crate) fn new(shared: Arc<SourceShared>, next: u64, mark: Option<SourceOffset>) -> Self {
        let nowhere = SourceOffset { index: next, segment: 0, offset: 0, line: 1 };
        Self::at(shared, nowhere, next, mark)
    }

    /// As [`Self::new`], for a step that skips jobs before `next`, some of which may not exist yet.
    pub(crate) fn early(shared: Arc<SourceShared>, next: u64, mark: Option<SourceOffset>) -> Self {
        let nowhere = SourceOffset { index: 1, segment: 0, offset: 0, line: 1 };
        Self { early: true, ..Self::at(shared, nowhere, next, mark) }
    }

    fn at(shared: Arc<SourceShared>, nowhere: SourceOffset, next: u64, mark: Option<SourceOffset>) -> Self {
        let mut reader = Self {
            looking: false,
            early: false,
            place: None,
            cursor: Cursor::new(&shared.spec, Path::new(""), nowhere, next),
            stream: None,
            opened: None,
            marked: nowhere,
            owed: Vec::new(),
            failed: None,
            shared,
        };
        let found = reader.shared.segments().holding(next).cloned();
        if let Some(segment) = found {
            let mark = mark.filter(|mark| mark.segment == segment.ordinal && mark.index <= next);
            let done = segment.end.filter(|end| end.index <= next);
            // An earlier reader of this run may have stopped before a commit carried them.
            let news = reader.shared.segments().news().into_iter();
            reader.owed = news.filter(|earlier| earlier.ordinal < segment.ordinal).collect();
            reader.enter(&segment, done.or(mark).unwrap_or_else(|| segment.start()));
        }
        reader
    }

    pub(crate) fn looking(shared: Arc<SourceShared>, index: u64, mark: Option<SourceOffset>) -> Self {
        Self { looking: true, ..Self::new(shared, index, mark) }
    }

    /// Reads the next batch, from one file. Does not wait for more.
    ///
    /// # Errors
    /// A file cannot be read; the jobs before that place were returned. The next call retries from there.
    pub fn read(&mut self, limit: BatchLimit) -> Result<Read, SourceError> {
        loop {
            match self.turn(limit) {
                Ok(Some(read)) => {
                    if let (Read::Idle, Some(stream)) = (&read, &mut self.stream) {
                        stream.give_back();
                    }
                    return Ok(read);
                }
                // Each iteration makes progress: it ends a file, opens one, or reads on.
                Ok(None) => {}
                Err(error) => {
                    self.start_again_at(self.cursor.at(), self.cursor.next());
                    return Err(error);
                }
            }
        }
    }

    /// The path of the source: a file, a folder, or a glob.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.spec.path
    }

    /// The place of the next job, which may not exist yet; `None` before the first file was found.
    pub(crate) fn stands_at(&self) -> Option<SourceOffset> {
        self.place.as_ref().map(|_| self.cursor.at())
    }

    fn turn(&mut self, limit: BatchLimit) -> Result<Option<Read>, SourceError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let Some(place) = &self.place else { return self.step_on() };
        let end = self.shared.segments().end_of(place.ordinal);
        if end.is_some_and(|end| self.cursor.at().index >= end.index) {
            return self.step_on();
        }
        if place.lost {
            return Ok(self.give_up(limit, end));
        }
        if self.stream.is_none() {
            self.open()?;
            return Ok(None);
        }
        let mut draft = BatchBuilder::new(limit);
        let stop = self.fill(&mut draft, end)?;
        let batch = self.deliver(draft, end, stop);
        match (batch, stop) {
            (Some(batch), _) => Ok(Some(Read::Batch(batch))),
            (None, Stop::Dry { close: false }) if end.is_none() && !self.is_lost() => self.step_on(),
            (None, _) => Ok(None),
        }
    }

    /// Opens the file of the cursor's segment, or detects that it is lost.
    fn open(&mut self) -> Result<(), SourceError> {
        let Some(place) = &mut self.place else { return Ok(()) };
        let Some(mut segment) = self.shared.segments().get(place.ordinal).cloned() else { return Ok(()) };
        let (spec, at) = (&self.shared.spec, self.cursor.at());
        let mut opened = self.opened.take();
        if opened.is_none() {
            opened = find_again(&segment, at.offset, spec.follow)?;
        }
        if opened.is_none() {
            let mut segments = self.shared.segments();
            opened = segments.find_copy(&self.shared.address, spec, segment.ordinal, at)?;
            segment = segments.get(segment.ordinal).cloned().unwrap_or(segment);
            place.path = Arc::from(segment.path.as_path());
        }
        let Some((file, metadata)) = opened else {
            place.lost = true;
            return Ok(());
        };
        let id = FileId::of(&metadata);
        if !self.looking && id != FileId::of_segment(&segment) {
            self.shared.segments().adopt(segment.ordinal, id);
        }
        let gzip = is_gzip(&segment.path) && self.shared.spec.format != DataFormat::Bytes;
        place.len = if gzip { 0 } else { metadata.len() };
        let mut stream = ByteWindow::new(file, id, gzip);
        match self.cursor.seek(&mut stream) {
            Ok(true) => self.stream = Some(stream),
            Ok(false) => place.lost = true,
            Err(trouble) => return Err(explain(&place.path, &stream, trouble)),
        }
        Ok(())
    }

    /// Fills the draft from the open file.
    fn fill(&mut self, draft: &mut BatchBuilder, end: Option<SourceOffset>) -> Result<Stop, SourceError> {
        let (Some(place), Some(stream)) = (&mut self.place, &mut self.stream) else {
            return Ok(Stop::Dry { close: false });
        };
        loop {
            if let Err(trouble) = self.cursor.split(stream, draft, end) {
                return Err(explain(&place.path, stream, trouble));
            }
            if draft.is_full() || end.is_some_and(|end| self.cursor.at().index >= end.index) {
                // The length is read now, in case the file is truncated later.
                place.len = stream.plain().and_then(|it| it.metadata().ok()).map_or(0, |it| it.len());
                return Ok(Stop::Full);
            }
            if end.is_some_and(|end| stream.read_to() >= end.offset) {
                break;
            }
            if end.is_none() && stream.is_dry() && !is_whole(&self.shared, place, stream)? {
                place.lost = true;
                break;
            }
            match stream.fill() {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if draft.start().is_none() => {
                    return Err(explain(&place.path, stream, error.into()));
                }
                Err(error) => {
                    self.failed = Some(explain(&place.path, stream, error.into()));
                    return Ok(Stop::Full);
                }
            }
        }
        if end.is_none() && self.cursor.is_skipping() && !self.early {
            // The file is shorter than the delivered part.
            place.lost = true;
            return Ok(Stop::Dry { close: false });
        }
        let spec = &self.shared.spec;
        let whole = spec.format == DataFormat::Bytes || stream.plain().is_none();
        if !(end.is_some() || whole || place.over || place.lost || !spec.follow) {
            return Ok(Stop::Dry { close: false });
        }
        let finished = self.cursor.finish(stream, draft, end);
        let finished = finished.map_err(|trouble| explain(&place.path, stream, trouble))?;
        // A known end that was not reached cannot be reached any more.
        place.lost |= end.is_some_and(|end| self.cursor.at().index < end.index);
        Ok(Stop::Dry { close: end.is_none() && (finished || whole || place.lost) })
    }

    /// Makes a batch of the draft, and shares its progress. `None` if the draft is empty, or another reader
    /// has ended the segment before this position in the meantime.
    fn deliver(&mut self, draft: BatchBuilder, end: Option<SourceOffset>, stop: Stop) -> Option<SourceBatch> {
        let shared = Arc::clone(&self.shared);
        let mut segments = shared.segments();
        let place = self.place.as_mut()?;
        let at = self.cursor.at();
        if let (None, Some(now)) = (end, segments.end_of(place.ordinal))
            && (at.index > now.index || (at.index < now.index && at.offset > now.offset))
        {
            let start = draft.start().unwrap_or(at);
            drop(segments);
            self.start_again_at(start, start.index);
            return None;
        }
        let far = draft.start().is_some_and(|start| {
            start.index.saturating_sub(self.marked.index) >= MARK_JOBS
                || start.offset.saturating_sub(self.marked.offset) >= MARK_BYTES
        });
        if !self.looking {
            if self.early || !self.cursor.is_skipping() {
                segments.reach(at);
            }
            if stop == (Stop::Dry { close: true }) {
                if place.lost && at.offset < place.len {
                    warn_of_cut(&shared, place, at, place.len);
                }
                segments.close(place.ordinal, at);
            }
            if let Some(file) = self.stream.as_ref().and_then(ByteWindow::plain).filter(|_| !place.lost) {
                segments.strengthen(place.ordinal, file, at.offset);
                if far || stop != Stop::Full {
                    segments.note_tail(place.ordinal, file, at);
                }
            }
        }
        let start = draft.start()?;
        let batch = draft.finish(self.cursor.codec(), Arc::clone(&place.path))?;
        let mark = far.then_some(start);
        self.marked = mark.unwrap_or(self.marked);
        let mut rows = std::mem::take(&mut self.owed);
        if let Some((segment, revision)) = segments.changed_since(place.ordinal, place.carried) {
            rows.push(segment.clone());
            place.carried = revision;
        }
        Some(SourceBatch { batch, mark, segments: rows })
    }

    /// The rest of the segment is lost: ends it, or returns faults up to its known end.
    fn give_up(&mut self, limit: BatchLimit, end: Option<SourceOffset>) -> Option<Read> {
        let place = self.place.as_ref()?;
        if self.looking {
            return Some(Read::End);
        }
        let Some(end) = end else {
            // Its true end is unknown, but lies after the present content.
            let at = self.cursor.at();
            let index = if self.early { at.index } else { self.cursor.next() };
            let mut segments = self.shared.segments();
            let tail = segments.get(place.ordinal).and_then(|segment| segment.tail);
            // A mark may be far before the next job.
            let known = tail.map(|tail| tail.at).into_iter().chain([at]).find(|at| at.index == index);
            warn_of_loss(&self.shared, place, index, known);
            let end = SourceOffset { index, offset: known.unwrap_or(at).offset + 1, ..at };
            segments.close(place.ordinal, end);
            return None;
        };
        let message = format!(
            "the job was lost: `{}` was cut short, overwritten or removed before it was read",
            place.path.display()
        );
        let mut draft = BatchBuilder::new(limit);
        while self.cursor.at().index < end.index && !draft.is_full() {
            self.cursor.lose(&mut draft, &message);
        }
        let mut read = self.deliver(draft, Some(end), Stop::Full)?;
        read.batch.form = Form::Unchecked;
        read.batch.places = None;
        read.mark = None;
        Some(Read::Batch(read))
    }

    fn is_lost(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.lost)
    }
}

/// Whether a file that was read to its end is still the same, and not shorter.
fn is_whole(shared: &SourceShared, place: &ReaderPosition, stream: &ByteWindow) -> Result<bool, SourceError> {
    let Some(file) = stream.plain() else { return Ok(true) };
    let failed = |error: std::io::Error| explain(&place.path, stream, error.into());
    let len = file.metadata().map_err(failed)?.len();
    if len < stream.read_to() {
        return Ok(false);
    }
    // A truncated file may have grown to the same length again.
    match shared.segments().get(place.ordinal) {
        Some(segment) => {
            Ok(begins_like(file, segment).map_err(failed)? && goes_on_like(file, segment).map_err(failed)?)
        }
        None => Ok(true),
    }
}

/// Warns that the bytes of a file from `at` to `len` are lost.
fn warn_of_cut(shared: &SourceShared, place: &ReaderPosition, at: SourceOffset, len: u64) {
    let (source, path) = (&shared.address, place.path.display());
    let SourceOffset { offset: byte, line, index, .. } = at;
    tracing::warn!(
        target: log_target::SOURCE,
        %source, %path, byte, line, index,
        "the file was truncated or overwritten while it was read: its bytes from {byte} (line {line}) to \
         {len} are lost",
    );
}

/// Warns that a file is gone, with the jobs from `index` on, which began at `at` if that is known.
fn warn_of_loss(shared: &SourceShared, place: &ReaderPosition, index: u64, at: Option<SourceOffset>) {
    let (source, path) = (&shared.address, place.path.display());
    match at {
        Some(SourceOffset { offset: byte, line, .. }) => tracing::warn!(
            target: log_target::SOURCE,
            %source, %path, byte, line, index,
            "the file that was being read is gone or changed: its content from job {index} \
             on, past byte {byte} (line {line}), is lost if it was not read",
        ),
        None => tracing::warn!(
            target: log_target::SOURCE,
            %source, %path, index,
            "the file that was being read is gone or changed: its content from job {index} \
             on is lost if it was not read",
        ),
    }
}

fn explain(path: &Path, stream: &ByteWindow, trouble: CursorError) -> SourceError {
    let path = path.to_owned();
    let offset = stream.read_to();
    match trouble {
        CursorError::Header(reason) => SourceError::Header { path, reason },
        CursorError::Read(source) if stream.plain().is_some() => SourceError::Read { path, offset, source },
        CursorError::Read(source) => SourceError::Gzip { path, offset, source },
    }
}
