//! `SourceOffset` and `Segment`: positions in a pull source, which map its files to indices.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The start of the job at `index`. Marks are sparse: a reader starts at the last mark at or before the
/// requested job, and reads forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceOffset {
    pub index: u64,
    /// The segment that holds it.
    pub segment: u32,
    /// Bytes from the start of the segment's (decompressed) content.
    pub offset: u64,
    /// The line at `offset`, from 1.
    pub line: u64,
}

/// A part of one file, or of one version of a file. A source is its segments in order. A rotated or replaced
/// file begins a new segment; so does a file that grows after it was considered complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// From 0, without gaps.
    pub ordinal: u32,
    /// The index of its first job.
    pub first: u64,
    /// As it was found, with relative paths resolved.
    pub path: PathBuf,
    /// The identity of the file in the file system, which survives a rename.
    pub device: u64,
    pub inode: u64,
    /// XXH3-64 of the first `fingerprint_len` bytes, which distinguishes a replaced file from a longer one.
    pub fingerprint: u64,
    pub fingerprint_len: u32,
    /// Its start in the file's decompressed content: bytes, and the line from 1. Greater than 0 and 1 if an
    /// earlier segment holds the content before it.
    pub offset: u64,
    pub line: u64,
    /// A second fingerprint at a later position; missing in stores of older runners.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<TailFingerprint>,
    /// Each rotated file beside it has a segment of its own. False in the stores of older runners.
    #[serde(default)]
    pub siblings_known: bool,
    /// The place after its last job, once it is complete. Only the last segment of a source may lack it.
    pub end: Option<SourceOffset>,
}

/// A second fingerprint at a later position of a file. Together with the first it distinguishes a copy of the
/// file from another file with the same beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TailFingerprint {
    /// The place up to which the file was read.
    pub at: SourceOffset,
    /// XXH3-64 of the `len` bytes before it.
    pub hash: u64,
    pub len: u32,
}

impl Segment {
    /// The place of its first job.
    #[must_use]
    pub fn start(&self) -> SourceOffset {
        SourceOffset { index: self.first, segment: self.ordinal, offset: self.offset, line: self.line }
    }
}
