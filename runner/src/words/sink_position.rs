//! How far a file sink has come: part of every commit that writes to it.

use serde::{Deserialize, Serialize};

/// What the store holds of a file sink: enough to know the file again, and where to cut it back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkPosition {
    /// Every committed byte stands before it.
    pub offset: u64,
    /// How many bytes before `offset` the hash covers: at most 4 KiB.
    pub tail_len: u32,
    /// XXH3-64 of the `tail_len` bytes before `offset`.
    pub tail_hash: u64,
    /// What the file system calls the file.
    pub device: u64,
    pub inode: u64,
    /// A runner is (or was, when it died) at work: bytes past `offset` are its own.
    pub open: bool,
}
