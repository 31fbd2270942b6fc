//! One process at a time: a lock on the file `lock` in the data folder, which says who holds it.
//!
//! The operating system lets go of the lock when the process ends, however it ends. The file stays
//! and means nothing by itself: deleting it would let a third process lock another file of the
//! same name.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::OpenError;
use crate::words::Timestamp;

/// Who has the store, as far as the lock file tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// `None` where the file could not be read, or the holder had not written it yet.
    pub pid: Option<u32>,
    /// RFC 3339.
    pub since: String,
    pub command: String,
}

impl Holder {
    /// It is a runner, as far as the file tells, and not a command that only looks.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.command.split_whitespace().any(|word| word == "run")
    }
}

/// Held as long as it lives.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock of the store at `store`, whose folder exists.
    pub(super) fn take(path: &Path, store: &Path, now: Timestamp) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Io { path: path.to_path_buf(), source };
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = read_holder(&mut file).unwrap_or_default();
                return Err(OpenError::Locked { path: store.to_path_buf(), holder });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        write_holder(&mut file, now).map_err(failed)?;
        Ok(Self { file })
    }
}

/// Whoever comes next is not to be taken for this process before it has written its own name.
impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.file.set_len(0);
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "process {pid}, `{}`, since {}", self.command, self.since),
            None => f.write_str("another process"),
        }
    }
}

fn read_holder(file: &mut File) -> Option<Holder> {
    // Longer than any command line that is worth showing.
    const HOLDER_BYTES_MAX: u64 = 64 << 10;
    let mut text = String::new();
    file.take(HOLDER_BYTES_MAX).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn write_holder(file: &mut File, now: Timestamp) -> io::Result<()> {
    let command: Vec<_> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let since = jiff::Timestamp::from_millisecond(now.0).unwrap_or_default().to_string();
    let holder = Holder { pid: Some(std::process::id()), since, command: command.join(" ") };
    let mut line = serde_json::to_vec(&holder)?;
    line.push(b'\n');
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&line)
}
