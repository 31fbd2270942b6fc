//! `Lock`: one process at a time. It locks the file `lock` in the data folder, which names its holder, and the
//! store's own file.
//!
//! The operating system releases a lock when the process ends, for any reason. The file `lock` stays and has
//! no effect by itself. If an operator deletes it, a second process can lock a new file of that name. The
//! lock on the store's own file still excludes that process.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;

use crate::error::OpenError;
use tidegate_model::{LockHolder, Timestamp, is_alive, lock_owner, open_or_create_private, rfc3339};

/// Held until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock of the store at `store`, whose folder exists.
    pub(crate) fn take(path: &Path, store: &Path, now: Timestamp) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Io { path: path.to_path_buf(), source };
        let mut file = open_or_create_private(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = holder_of(&mut file);
                return Err(OpenError::Locked { path: store.to_path_buf(), holder });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        write_holder(&mut file, now).map_err(failed)?;
        Ok(Self { file })
    }
}

/// A later holder must not be mistaken for this process before it has written its own name.
///
/// The lock must be released explicitly: a program that is being started holds a copy of the file handle, and
/// with it the lock, for a moment.
impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.file.set_len(0);
        let _ = self.file.unlock();
    }
}

/// The process that wrote its name into the lock file, if it holds the lock.
fn holder_of(file: &mut File) -> LockHolder {
    let written = read_holder(file).unwrap_or_default();
    match (lock_owner(file), written.pid) {
        (Some(owner), pid) if pid != Some(owner) => LockHolder::running(owner),
        (None, Some(pid)) if !is_alive(pid) => LockHolder::default(),
        _ => written,
    }
}

fn read_holder(file: &mut File) -> Option<LockHolder> {
    // Longer than any command line that is worth showing.
    const HOLDER_BYTES_MAX: u64 = 64 << 10;
    let mut text = String::new();
    file.take(HOLDER_BYTES_MAX).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn write_holder(file: &mut File, now: Timestamp) -> io::Result<()> {
    let command: Vec<_> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let since = rfc3339(now);
    let holder = LockHolder { pid: Some(std::process::id()), since, command: command.join(" "), user: None };
    let mut line = serde_json::to_vec(&holder)?;
    line.push(b'\n');
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_free_after_its_end_although_a_copy_of_the_file_handle_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let take = || Lock::take(&folder.path().join("lock"), folder.path(), Timestamp::EARLIEST);
        let lock = take().unwrap();
        let _copy = lock.file.try_clone().unwrap();
        assert!(matches!(take(), Err(OpenError::Locked { .. })));
        drop(lock);
        take().unwrap();
    }

    #[test]
    fn a_holder_is_named_as_far_as_it_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let mut file = open_or_create_private(&path).unwrap();
        // No process has the highest number.
        let dead = LockHolder { pid: Some(i32::MAX as u32), since: "then".into(), ..a("tidegate run") };
        file.write_all(&serde_json::to_vec(&dead).unwrap()).unwrap();
        file.rewind().unwrap();
        assert_eq!(holder_of(&mut file), LockHolder::default());
        assert_eq!(LockHolder::default().to_string(), "another process");
        assert_eq!(dead.to_string(), format!("process {}, `tidegate run`, since then", i32::MAX));
        let found = LockHolder { pid: Some(7), user: Some(65534), ..a("flock lock sleep 9") };
        assert_eq!(found.to_string(), "process 7 of user 65534, `flock lock sleep 9`");
        assert_eq!(LockHolder { pid: Some(7), ..LockHolder::default() }.to_string(), "process 7");
    }

    fn a(command: &str) -> LockHolder {
        LockHolder { command: command.to_owned(), ..LockHolder::default() }
    }
}
