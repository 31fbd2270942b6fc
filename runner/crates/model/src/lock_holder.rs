//! `LockHolder`: the process that holds the lock of a file, for messages about a store or a sink in use.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

/// The process that holds a lock, as known from the system and the lock file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockHolder {
    /// `None` if it is not known.
    pub pid: Option<u32>,
    /// RFC 3339; empty if only the system knows the process.
    pub since: String,
    /// Empty if it is not known.
    pub command: String,
    /// The user id of the process, if it is another user.
    #[serde(skip)]
    pub user: Option<u32>,
}

impl LockHolder {
    /// Whether it is a runner, judged by its command, and not a command that only reads.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.command.split_whitespace().any(|word| word == "run")
    }

    /// The process that holds the lock of `file`, which this process could not take.
    #[must_use]
    pub fn of(file: &File) -> Self {
        lock_owner(file).map(Self::running).unwrap_or_default()
    }

    /// The process with this number, as known from the system.
    #[must_use]
    pub fn running(pid: u32) -> Self {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = words.split(|&byte| byte == 0).filter(|word| !word.is_empty());
        let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
        let user = fs::metadata(format!("/proc/{pid}")).ok().map(|process| process.uid());
        let user = user.filter(|&user| user != rustix::process::geteuid().as_raw());
        Self { pid: Some(pid), since: String::new(), command: words.join(" "), user }
    }
}

impl fmt::Display for LockHolder {
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

/// The process that holds the lock of a file. Only Linux reports it, and not on every file system.
#[must_use]
pub fn lock_owner(file: &File) -> Option<u32> {
    let metadata = file.metadata().ok()?;
    let device = metadata.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    owner_in(&fs::read_to_string("/proc/locks").ok()?, &format!("{major:02x}:{minor:02x}:{}", metadata.ino()))
}

/// `file` in the form of the list of locks: `1: FLOCK  ADVISORY  WRITE 1078 fd:01:1048604 0 EOF`. A waiting
/// process has an arrow before `FLOCK`; a process in another container has the number 0.
fn owner_in(locks: &str, file: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let is_it = words.next() == Some("FLOCK");
        let (pid, locked) = (words.nth(2)?, words.next()?);
        pid.parse().ok().filter(|&pid| is_it && locked == file && is_alive(pid))
    })
}

/// Whether a process with this number exists, running or not reaped yet.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
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
}
