//! `Stream`: the content of one file, as a window of bytes that moves forward.
//!
//! Offsets count decompressed bytes. The window grows for a long line and shrinks afterwards.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;

use flate2::bufread::MultiGzDecoder;

use super::files::FileId;

/// Maximum bytes per read.
const BLOCK: usize = 256 << 10;
/// Minimum bytes per read, for files with little more content.
const BLOCK_MIN: usize = 4 << 10;

#[derive(Debug)]
pub(crate) struct ByteWindow {
    content: Content,
    /// Always filled to its length with initialised bytes; the window is `start..end`.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset of the window's first byte.
    offset: u64,
    id: FileId,
    dry: bool,
}

#[derive(Debug)]
enum Content {
    Plain(File),
    Gzip(Box<MultiGzDecoder<BufReader<File>>>),
}

impl ByteWindow {
    /// The content of `file` from its start.
    pub(crate) fn new(file: File, id: FileId, gzip: bool) -> Self {
        let content = if gzip {
            let input = BufReader::with_capacity(BLOCK / 4, file);
            Content::Gzip(Box::new(MultiGzDecoder::new(input)))
        } else {
            Content::Plain(file)
        };
        Self { content, buffer: Vec::new(), start: 0, end: 0, offset: 0, id, dry: false }
    }

    pub(crate) fn id(&self) -> FileId {
        self.id
    }

    /// The file, unless it is compressed.
    pub(crate) fn plain(&self) -> Option<&File> {
        match &self.content {
            Content::Plain(file) => Some(file),
            Content::Gzip(_) => None,
        }
    }

    /// The bytes that were read and not consumed.
    pub(crate) fn window(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Start of the window, in bytes from the start of the content.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// End of the window.
    pub(crate) fn read_to(&self) -> u64 {
        self.offset + (self.end - self.start) as u64
    }

    /// Whether the last attempt to read more returned no bytes.
    pub(crate) fn is_dry(&self) -> bool {
        self.dry
    }

    /// Drops the first `bytes` of the window.
    pub(crate) fn consume(&mut self, bytes: usize) {
        debug_assert!(self.start + bytes <= self.end);
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// Reads more after the window. Returns the number of bytes, 0 at the present end.
    pub(crate) fn fill(&mut self) -> io::Result<usize> {
        self.make_room();
        let room = &mut self.buffer[self.end..];
        let at = self.offset + (self.end - self.start) as u64;
        let read = loop {
            let read = match &mut self.content {
                Content::Plain(file) => file.read_at(room, at),
                Content::Gzip(decoder) => decoder.read(room),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.end += read;
        self.dry = read == 0;
        Ok(read)
    }

    /// Moves the window forward to `offset`; `false` if the content ends before it.
    pub(crate) fn skip_to(&mut self, offset: u64) -> io::Result<bool> {
        if let Content::Plain(file) = &self.content
            && offset > self.read_to()
        {
            if file.metadata()?.len() < offset {
                return Ok(false);
            }
            (self.start, self.end, self.offset) = (0, 0, offset);
            return Ok(true);
        }
        while self.offset < offset {
            let ahead = usize::try_from(offset - self.offset).unwrap_or(usize::MAX);
            self.consume(ahead.min(self.end - self.start));
            if self.offset < offset && self.fill()? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Frees the memory that an empty window does not need.
    pub(crate) fn give_back(&mut self) {
        if self.start == self.end {
            (self.buffer, self.start, self.end) = (Vec::new(), 0, 0);
        }
    }

    /// Approximate number of remaining bytes; unknown for compressed content.
    fn rest(&self) -> usize {
        let Content::Plain(file) = &self.content else { return BLOCK };
        let len = file.metadata().map_or(u64::MAX, |metadata| metadata.len());
        let left = usize::try_from(len.saturating_sub(self.read_to())).unwrap_or(BLOCK);
        left.saturating_add(BLOCK_MIN)
    }

    /// Makes room for at least half a block after the window. A full buffer is doubled, so that the bytes of
    /// a long line are scanned a bounded number of times.
    fn make_room(&mut self) {
        let held = self.end - self.start;
        // A long line is consumed: its memory is freed.
        let oversized = self.buffer.len() > 4 * BLOCK && held < BLOCK / 2;
        if self.start > 0 && (oversized || self.buffer.len() - self.end < BLOCK / 2) {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, held);
        }
        if oversized {
            self.buffer.truncate(BLOCK);
            self.buffer.shrink_to_fit();
        }
        if self.buffer.is_empty() {
            // Most of thousands of files are short, or rarely get a line.
            self.buffer.resize(self.rest().clamp(BLOCK_MIN, BLOCK), 0);
        } else if self.buffer.len() - self.end < self.buffer.len().min(BLOCK) / 2 {
            self.buffer.resize((2 * held).max(BLOCK), 0);
        }
    }
}
