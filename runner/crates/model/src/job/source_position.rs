//! Places in a pull source: which part of the outside holds which index.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where the job at `index` starts. Marks are sparse: a reader starts at the last mark at or
/// before the job that it wants, and reads forward.
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

/// A part of one file, or of one life of a file. A source is its segments in order; a rotated or
/// replaced file begins a new one, and so does a file that goes on after it was taken as ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// From 0, without gaps.
    pub ordinal: u32,
    /// The index of its first job.
    pub first: u64,
    /// As it was found, relative paths resolved.
    pub path: PathBuf,
    /// What the file system calls it; follows a file through a rename.
    pub device: u64,
    pub inode: u64,
    /// XXH3-64 of the first `fingerprint_len` bytes, to tell a replaced file from a longer one.
    pub fingerprint: u64,
    pub fingerprint_len: u32,
    /// Where in the file (its decompressed content) it starts: bytes, and the line from 1. Not 0 and
    /// 1 where an earlier segment holds what stands before.
    pub offset: u64,
    pub line: u64,
    /// How it was read further on; stores of older runners have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<TailFingerprint>,
    /// Each rotated file that stood beside it when it was found has a segment of its own. False in the
    /// stores of older runners.
    #[serde(default)]
    pub siblings_known: bool,
    /// The place after its last job, once nothing more is added to it. Only the last segment of a
    /// source may lack it.
    pub end: Option<SourceOffset>,
}

/// A second fingerprint, further on in a file. With that of the beginning it tells a copy of the file
/// from another file that begins alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TailFingerprint {
    /// A place up to which the file was read.
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
