//! `Cursor`: the position of a reader in a file, which turns the bytes after it into jobs.
//!
//! It depends on segments only by the end of the present one.

use std::io;
use std::path::Path;

use memchr::memchr;

use super::batch_builder::BatchBuilder;
use super::byte_window::ByteWindow;
use super::codec::{Codec, head};
use tidegate_config::FileSource;
use tidegate_model::SourceOffset;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

#[derive(Debug)]
pub(crate) struct Cursor {
    /// The start of the next record, and its index if it is a job.
    at: SourceOffset,
    /// Jobs before this index are skipped, since they are delivered.
    wanted: u64,
    codec: Codec,
    max_line: usize,
    /// A record that is too long, whose rest must be skipped.
    long: Option<Long>,
}

/// Why a cursor cannot be moved.
#[derive(Debug)]
pub(crate) enum CursorError {
    /// A sentence fragment that continues "the header …".
    Header(String),
    Read(io::Error),
}

impl From<io::Error> for CursorError {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

impl From<String> for CursorError {
    fn from(reason: String) -> Self {
        Self::Header(reason)
    }
}

#[derive(Debug)]
struct Long {
    head: Vec<u8>,
    newlines: u64,
}

impl Cursor {
    pub(crate) fn new(spec: &FileSource, path: &Path, at: SourceOffset, wanted: u64) -> Self {
        Self { at, wanted, codec: Codec::new(spec, path), max_line: spec.max_line, long: None }
    }

    /// The place of the next record.
    pub(crate) fn at(&self) -> SourceOffset {
        self.at
    }

    pub(crate) fn codec(&self) -> &Codec {
        &self.codec
    }

    /// The index of the next job.
    pub(crate) fn next(&self) -> u64 {
        self.at.index.max(self.wanted)
    }

    /// Whether the first job has not been reached yet.
    pub(crate) fn is_skipping(&self) -> bool {
        self.at.index < self.wanted
    }

    /// The job at the present index is lost: skips it with a fault.
    pub(crate) fn lose(&mut self, draft: &mut BatchBuilder, message: &str) {
        if self.at.index >= self.wanted {
            draft.push_fault(self.at, b"", message.to_owned());
        }
        self.at.index += 1;
    }

    /// Moves `stream`, which is at the start of its file, to the cursor, through the header if the format has
    /// one. `false` if the file is too short.
    ///
    /// # Errors
    /// A read failed, or the header is invalid.
    pub(crate) fn seek(&mut self, stream: &mut ByteWindow) -> Result<bool, CursorError> {
        if self.at.offset > 0 && self.codec.wants_header() {
            let at = self.at;
            self.at.offset = 0;
            let found = self.read_header(stream);
            self.at = at;
            if !found? {
                return Ok(false);
            }
        }
        Ok(stream.skip_to(self.at.offset)?)
    }

    fn read_header(&mut self, stream: &mut ByteWindow) -> Result<bool, CursorError> {
        while !self.take_header(stream, None)? {
            if stream.fill()? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads jobs from the window of `stream` until the draft is full, the segment ends (at `end`), or the
    /// window holds no complete record.
    ///
    /// # Errors
    /// The header is invalid.
    pub(crate) fn split(
        &mut self,
        stream: &mut ByteWindow,
        draft: &mut BatchBuilder,
        end: Option<SourceOffset>,
    ) -> Result<(), CursorError> {
        if self.codec.wants_header() && !self.take_header(stream, end)? {
            return Ok(());
        }
        draft.expect(stream.window().len());
        while !draft.is_full() && !self.is_past(end) {
            if self.at.offset == 0 {
                self.pass_byte_order_mark(stream);
            }
            if self.long.is_some() {
                if !self.pass_long(stream, draft, end) {
                    return Ok(());
                }
                continue;
            }
            let window = visible(stream, end);
            let Some(len) = self.codec.record_end(window) else {
                if window.len() <= self.max_line {
                    return Ok(());
                }
                let newlines = self.codec.inner_lines(window);
                self.long = Some(Long { head: head(window).to_vec(), newlines });
                let passed = window.len();
                stream.consume(passed);
                continue;
            };
            let record = &window[..len];
            let lines = 1 + self.codec.inner_lines(record);
            self.take(record, draft);
            stream.consume(len + 1);
            self.at.offset = stream.offset();
            self.at.line += lines;
        }
        Ok(())
    }

    /// The content ends with bytes without a newline.
    pub(crate) fn has_unfinished(&self, stream: &ByteWindow) -> bool {
        self.long.is_some() || !stream.window().is_empty()
    }

    /// The content is complete: bytes without a newline are a job too. Returns whether any exist.
    ///
    /// # Errors
    /// The header is invalid.
    pub(crate) fn finish(
        &mut self,
        stream: &mut ByteWindow,
        draft: &mut BatchBuilder,
        end: Option<SourceOffset>,
    ) -> Result<bool, CursorError> {
        let before = self.at.index;
        let window = visible(stream, end);
        let len = window.len();
        if self.is_past(end) {
            return Ok(false);
        }
        if self.codec.wants_header() {
            if !window.is_empty() {
                self.codec.set_header(window)?;
            }
        } else if let Some(long) = self.long.take() {
            self.give_long(&long, draft);
            self.at.line += long.newlines;
        } else if matches!(self.codec, Codec::Bytes { .. }) || !window.is_empty() {
            self.take(window, draft);
            self.at.line += self.codec.inner_lines(window);
        }
        stream.consume(len);
        self.at.offset = stream.offset();
        Ok(self.at.index > before)
    }

    fn is_past(&self, end: Option<SourceOffset>) -> bool {
        end.is_some_and(|end| self.at.index >= end.index)
    }

    /// Files of jobs are passed on unchanged.
    fn pass_byte_order_mark(&mut self, stream: &mut ByteWindow) {
        if stream.window().starts_with(BYTE_ORDER_MARK) && !matches!(self.codec, Codec::Bytes { .. }) {
            stream.consume(BYTE_ORDER_MARK.len());
            self.at.offset = stream.offset();
        }
    }

    /// Uses the first record that is not blank as the header, if it is complete.
    fn take_header(&mut self, stream: &mut ByteWindow, end: Option<SourceOffset>) -> Result<bool, String> {
        if self.at.offset == 0 {
            self.pass_byte_order_mark(stream);
        }
        loop {
            let window = visible(stream, end);
            let Some(len) = self.codec.record_end(window) else {
                return if window.len() > self.max_line {
                    Err(format!("exceeds `max_line` ({} bytes)", self.max_line))
                } else {
                    Ok(false)
                };
            };
            let record = &window[..len];
            let blank = self.codec.is_blank(record);
            let lines = 1 + self.codec.inner_lines(record);
            if !blank {
                self.codec.set_header(record)?;
            }
            stream.consume(len + 1);
            self.at.offset = stream.offset();
            self.at.line += lines;
            if !blank {
                return Ok(true);
            }
        }
    }

    fn take(&mut self, record: &[u8], draft: &mut BatchBuilder) {
        if self.codec.is_blank(record) {
            return;
        }
        if self.at.index >= self.wanted {
            if record.len() > self.max_line {
                draft.push_fault(self.at, record, self.codec.too_long(self.max_line));
            } else {
                draft.push(self.at, &mut self.codec, record);
            }
        }
        self.at.index += 1;
    }

    /// Skips the rest of a record that is too long; `false` if the window ends before it.
    fn pass_long(
        &mut self,
        stream: &mut ByteWindow,
        draft: &mut BatchBuilder,
        end: Option<SourceOffset>,
    ) -> bool {
        let window = visible(stream, end);
        let newline = if matches!(self.codec, Codec::Bytes { .. }) { None } else { memchr(b'\n', window) };
        let passed = newline.map_or(window.len(), |newline| newline + 1);
        stream.consume(passed);
        if newline.is_none() {
            return false;
        }
        if let Some(long) = self.long.take() {
            self.give_long(&long, draft);
            self.at.offset = stream.offset();
            self.at.line += long.newlines + 1;
        }
        true
    }

    fn give_long(&mut self, long: &Long, draft: &mut BatchBuilder) {
        if self.at.index >= self.wanted {
            draft.push_fault(self.at, &long.head, self.codec.too_long(self.max_line));
        }
        self.at.index += 1;
    }
}

/// The part of the window that belongs to the segment.
fn visible(stream: &ByteWindow, end: Option<SourceOffset>) -> &[u8] {
    let window = stream.window();
    let Some(end) = end else { return window };
    let ahead = usize::try_from(end.offset.saturating_sub(stream.offset())).unwrap_or(usize::MAX);
    &window[..window.len().min(ahead)]
}
