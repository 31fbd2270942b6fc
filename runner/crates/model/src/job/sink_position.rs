//! How far a sink has come.

use serde::{Deserialize, Serialize};

/// Where the committed part of a sink's file ends, and enough of the file to know it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkPosition {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// How many of the bytes before `offset` the hash is over.
    pub tail_len: u32,
    /// XXH3-64 of the last `tail_len` bytes before `offset`.
    pub tail_hash: u64,
    /// What the file system calls the file.
    pub device: u64,
    pub inode: u64,
    /// XXH3-64 of the path as the configuration had it: a sink that is given another path begins anew
    /// there.
    pub path_hash: u64,
    /// The sink is still written to.
    pub open: bool,
}
