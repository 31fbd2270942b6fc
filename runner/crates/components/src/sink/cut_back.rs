//! `cut_back`: removes the bytes that a dead runner left in a file to which no sink writes any more, by the position of the
//! sink.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::file_tail::Tail;
use tidegate_model::SinkPosition;

/// Whether the file at the path has the committed content of this position.
///
/// # Errors
/// The file cannot be read.
pub fn holds(path: &Path, position: &SinkPosition) -> io::Result<bool> {
    has_content(&File::open(path)?, position)
}

fn has_content(file: &File, position: &SinkPosition) -> io::Result<bool> {
    let tail = Tail::read(file, position.offset)?;
    Ok(tail.len() == position.tail_len && tail.hash() == position.tail_hash)
}

/// Cuts the file off at its committed position. Returns the number of bytes; `None` if the path has another file or
/// none, as after a move.
///
/// # Errors
/// The file cannot be read or truncated.
pub fn cut_back(position: &SinkPosition) -> io::Result<Option<u64>> {
    let Some(path) = position.path.as_deref().map(Path::new) else { return Ok(None) };
    // A pipe would be opened and would wait.
    if !path.is_file() {
        return Ok(None);
    }
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let metadata = file.metadata()?;
    if metadata.ino() != position.inode || metadata.len() < position.offset {
        return Ok(None);
    }
    // Another program wrote the file anew.
    if !has_content(&file, position)? {
        return Ok(None);
    }
    let bytes = metadata.len() - position.offset;
    if bytes > 0 {
        file.set_len(position.offset)?;
        file.sync_all()?;
    }
    Ok(Some(bytes))
}
