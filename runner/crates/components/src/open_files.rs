//! Limit of open files: is raised for this process, and restored for the commands that it starts.
//!
//! A soft limit of 1,024 is usual, so that old programs with `select` keep working. Connections, sources,
//! sinks and commands share it.

use std::io;
use std::sync::OnceLock;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

/// The limit that this process was started with, if it was raised.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit to the hard one. Returns the number of files that may be open from now on.
pub fn raise() -> u64 {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: before.maximum, ..before };
    if before.current != before.maximum && setrlimit(Resource::Nofile, raised).is_ok() {
        let _ = BEFORE.set(before);
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Restores the original limit for a command, since some programs close every possible file.
pub(crate) fn restore(command: Pid) {
    if let Some(&before) = BEFORE.get() {
        // It may have ended already.
        let _ = prlimit(Some(command), Resource::Nofile, before);
    }
}

/// Whether too many files are open, in this process or on the machine, which is temporary.
pub(crate) fn are_short(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
