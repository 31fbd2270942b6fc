//! `SinkPosition`: the committed length of a sink's file, with a fingerprint.

use serde::{Deserialize, Serialize};

/// The end of the committed part of a sink's file, and enough of the file to recognize it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkPosition {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Number of bytes before `offset` that the hash covers.
    pub tail_len: u32,
    /// XXH3-64 of the last `tail_len` bytes before `offset`.
    pub tail_hash: u64,
    /// The identity of the file in the file system.
    pub device: u64,
    pub inode: u64,
    /// XXH3-64 of the path in the configuration: a sink with a new path starts a new file.
    pub path_hash: u64,
    /// The absolute path. `None` if it is not UTF-8, and in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The sink is still in use.
    pub open: bool,
}
