//! The limit of open files: raised for this process, and not for the commands that it starts.
//!
//! A soft limit of 1,024 is usual, so that old programs which use `select` keep working. Connections, sources,
//! sinks and commands share it.

use std::io;
use std::sync::OnceLock;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

/// The limit that this process was started with, where it was raised.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit to the hard one. Answers how many files may be open from now on.
pub fn raise() -> u64 {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: before.maximum, ..before };
    if before.current != before.maximum && setrlimit(Resource::Nofile, raised).is_ok() {
        let _ = BEFORE.set(before);
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Gives a command the limit that this process was started with: some close every file that they could have
/// open.
pub(crate) fn restore(command: Pid) {
    if let Some(&before) = BEFORE.get() {
        // It may have ended already.
        let _ = prlimit(Some(command), Resource::Nofile, before);
    }
}

/// Whether there are too many open files, in this process or on the machine, which passes.
pub(crate) fn are_short(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
