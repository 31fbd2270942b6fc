//! Stepping: moves a reader from one segment to the next.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use super::{Read, Reader, ReaderPosition, explain};
use crate::source::byte_window::ByteWindow;
use crate::source::cursor::Cursor;
use crate::source::error::SourceError;
use crate::source::files::list;
use crate::source::files::written;
use crate::source::segments::{Segments, TailPosition};
use tidegate_model::{Segment, SourceOffset};

impl Reader {
    /// Moves to the segment after this one, which another reader may already have found.
    pub(crate) fn step_on(&mut self) -> Result<Option<Read>, SourceError> {
        let shared = Arc::clone(&self.shared);
        let mut segments = shared.segments();
        let here = self.place.as_ref().map(|place| place.ordinal);
        let next = here.map_or(0, |here| here + 1);
        if let Some(segment) = segments.get(next).cloned() {
            self.leave(&segments);
            self.enter(&segment, segment.start());
            return Ok(None);
        }
        let nothing = if shared.spec.follow { Read::Idle } else { Read::End };
        if self.looking {
            return Ok(Some(nothing));
        }
        let tail = here.map(|here| self.tail(here));
        let Some(fresh) = segments.next(&shared.address, &shared.spec, tail.as_ref())? else {
            return Ok(Some(nothing));
        };
        if let (Some(place), Some(stream)) = (&mut self.place, &mut self.stream)
            && segments.end_of(place.ordinal).is_none()
        {
            // The file may have grown during the search for the next one.
            if stream.fill().map_err(|error| explain(&place.path, stream, error.into()))? > 0 {
                return Ok(None);
            }
            if self.cursor.has_unfinished(stream) {
                let listed = list(&shared.address, &shared.spec.path, true)?.files;
                if !listed.iter().any(|file| file.id == stream.id()) {
                    place.over = true;
                    return Ok(None);
                }
                segments.leave_unfinished(stream.id(), stream.read_to());
            }
            segments.close(place.ordinal, self.cursor.at());
        }
        let (ordinal, opened) = segments.push(&shared.address, fresh);
        self.leave(&segments);
        // The segments between are rotated files that are skipped.
        self.owed.extend((next..ordinal).filter_map(|passed| segments.get(passed).cloned()));
        if let Some(segment) = segments.get(ordinal).cloned() {
            self.enter(&segment, segment.start());
            self.opened = Some(opened);
        }
        Ok(None)
    }

    fn tail(&self, segment: u32) -> TailPosition {
        let stream = self.stream.as_ref();
        let metadata = stream.and_then(ByteWindow::plain).and_then(|file| file.metadata().ok());
        TailPosition {
            segment,
            at: self.cursor.at(),
            id: stream.map(ByteWindow::id),
            linked: metadata.as_ref().is_some_and(|metadata| metadata.nlink() > 0),
            written: metadata.as_ref().map(written),
        }
    }

    /// Keeps the row of the segment for the next batch, if none has carried it.
    fn leave(&mut self, segments: &Segments) {
        if let Some(place) = self.place.take()
            && let Some((segment, _)) = segments.changed_since(place.ordinal, place.carried)
        {
            self.owed.push(segment.clone());
        }
    }

    pub(crate) fn enter(&mut self, segment: &Segment, at: SourceOffset) {
        let path = Arc::from(segment.path.as_path());
        self.place = Some(ReaderPosition {
            ordinal: segment.ordinal,
            path,
            carried: 0,
            len: 0,
            lost: false,
            over: false,
        });
        self.marked = at;
        self.start_again_at(at, self.cursor.next());
    }

    /// Discards everything read past `at`. The next job is the one at `wanted`.
    pub(crate) fn start_again_at(&mut self, at: SourceOffset, wanted: u64) {
        let path = self.place.as_ref().map_or(Path::new(""), |place| &place.path);
        self.cursor = Cursor::new(&self.shared.spec, path, at, wanted);
        self.stream = None;
        self.opened = None;
    }
}
