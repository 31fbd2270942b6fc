//! One process at a time: a lock on the file `lock` in the data folder, which names its holder, and one on
//! the store's own file.
//!
//! The operating system frees a lock when the process ends, however it ends. The file `lock` stays and
//! means nothing by itself. An operator who deletes it lets a second process lock another file of the same
//! name; the lock on the store's own file still keeps that process out.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

use super::error::OpenError;
use super::private;
use crate::words::{Timestamp, rfc3339};

/// The process that has a lock, as far as it is known from the system and the lock file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// `None` if it is not known.
    pub pid: Option<u32>,
    /// RFC 3339; empty where only the system tells.
    pub since: String,
    /// Empty where it is not known.
    pub command: String,
    /// The number of the user whose process it is, if that is another one.
    #[serde(skip)]
    pub user: Option<u32>,
}

impl Holder {
    /// It is a runner, as far as its command tells, and not a command that only looks.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.command.split_whitespace().any(|word| word == "run")
    }

    /// The process that holds the lock of `file`, which this process could not take.
    #[must_use]
    pub fn of(file: &File) -> Self {
        lock_owner(file).map(Self::running).unwrap_or_default()
    }

    fn running(pid: u32) -> Self {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = words.split(|&byte| byte == 0).filter(|word| !word.is_empty());
        let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
        let user = fs::metadata(format!("/proc/{pid}")).ok().map(|process| process.uid());
        let user = user.filter(|&user| user != rustix::process::geteuid().as_raw());
        Self { pid: Some(pid), since: String::new(), command: words.join(" "), user }
    }

    /// The process that has written itself into the lock file, if it is the one that holds the lock.
    fn of_lock(file: &mut File) -> Self {
        let written = read_holder(file).unwrap_or_default();
        match (lock_owner(file), written.pid) {
            (Some(owner), pid) if pid != Some(owner) => Self::running(owner),
            (None, Some(pid)) if !is_alive(pid) => Self::default(),
            _ => written,
        }
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
        let mut file = private::open_or_create(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = Holder::of_lock(&mut file);
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
            Some(pid) => write!(f, "process {pid}")?,
            None => return f.write_str("another process"),
        }
        if let Some(user) = self.user {
            write!(f, " of user {user}")?;
        }
        if !self.command.is_empty() {
            write!(f, ", `{}`", self.command)?;
        }
        if self.since.is_empty() { Ok(()) } else { write!(f, ", since {}", self.since) }
    }
}

/// The process that holds the lock of a file. Only Linux tells, and not on every file system.
fn lock_owner(file: &File) -> Option<u32> {
    let metadata = file.metadata().ok()?;
    let device = metadata.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    owner_in(&fs::read_to_string("/proc/locks").ok()?, &format!("{major:02x}:{minor:02x}:{}", metadata.ino()))
}

/// `file` as it stands in the list of locks: `1: FLOCK  ADVISORY  WRITE 1078 fd:01:1048604 0 EOF`. A process
/// that waits for one has an arrow before `FLOCK`; one in another container has the number 0.
fn owner_in(locks: &str, file: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let is_it = words.next() == Some("FLOCK");
        let (pid, locked) = (words.nth(2)?, words.next()?);
        pid.parse().ok().filter(|&pid| is_it && locked == file && is_alive(pid))
    })
}

fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
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
    let since = rfc3339(now);
    let holder = Holder { pid: Some(std::process::id()), since, command: command.join(" "), user: None };
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
    fn the_list_of_locks_names_the_process_that_has_a_file_locked() {
        let own = std::process::id();
        let locks = format!(
            "1: POSIX  ADVISORY  WRITE {own} fd:01:7 0 EOF\n\
             2: -> FLOCK  ADVISORY  WRITE {own} fd:01:8 0 EOF\n\
             3: FLOCK  ADVISORY  WRITE 0 fd:01:9 0 EOF\n\
             4: FLOCK  ADVISORY  WRITE {own} fd:01:10 0 EOF\n"
        );
        let owner = |inode| owner_in(&locks, &format!("fd:01:{inode}"));
        assert_eq!([7, 8, 9, 10, 1].map(owner), [None, None, None, Some(own), None]);
    }

    #[test]
    fn a_holder_is_named_as_far_as_it_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let mut file = private::open_or_create(&path).unwrap();
        // No process has the highest number there is.
        let dead = Holder { pid: Some(i32::MAX as u32), since: "then".into(), ..a("tidegate run") };
        file.write_all(&serde_json::to_vec(&dead).unwrap()).unwrap();
        file.rewind().unwrap();
        assert_eq!(Holder::of_lock(&mut file), Holder::default());
        assert_eq!(Holder::default().to_string(), "another process");
        assert_eq!(dead.to_string(), format!("process {}, `tidegate run`, since then", i32::MAX));
        let found = Holder { pid: Some(7), user: Some(65534), ..a("flock lock sleep 9") };
        assert_eq!(found.to_string(), "process 7 of user 65534, `flock lock sleep 9`");
        assert_eq!(Holder { pid: Some(7), ..Holder::default() }.to_string(), "process 7");
    }

    fn a(command: &str) -> Holder {
        Holder { command: command.to_owned(), ..Holder::default() }
    }
}
