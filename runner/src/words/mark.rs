//! Places in a pull source: which part of the outside holds which index.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where the job at `index` starts. Marks are sparse: a reader starts at the last mark at or
/// before the job that it wants, and reads forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub index: u64,
    /// The segment that holds it.
    pub segment: u32,
    /// Bytes from the start of the segment's (decompressed) content.
    pub offset: u64,
    /// The line at `offset`, from 1.
    pub line: u64,
}

/// One file, or one life of a file, of a source. A source is its segments in order; a rotated or
/// replaced file begins a new one.
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
}
