//! `RunningCommands`: all running commands, so that they can be ended together.

use std::collections::BTreeSet;
use std::io;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Signal, kill_process_group};
use tidegate_model::sync::{Mutex, MutexGuard, RwLock};

/// The process groups of the running commands, by their leaders.
#[derive(Debug, Default)]
pub struct RunningCommands {
    given_up: AtomicBool,
    /// Whether no more commands may start. Locked while one starts.
    closed: RwLock<bool>,
    groups: Mutex<BTreeSet<i32>>,
}

impl RunningCommands {
    /// The outputs of the commands are no longer needed: the thread that waits for each kills it.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    /// Kills all of them at once, with their groups, and starts no more.
    pub fn kill(&self) {
        self.give_up();
        *self.closed.write() = true;
        for group in self.groups().iter().filter_map(|&group| Pid::from_raw(group)) {
            let _ = kill_process_group(group, Signal::KILL); // it may have ended already
        }
    }

    /// Starts a command in a group of its own.
    pub(crate) fn start(&self, command: &mut Command) -> io::Result<Child> {
        let closed = self.closed.read();
        if *closed {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the runner ends"));
        }
        let child = command.spawn()?;
        self.groups().insert(Pid::from_child(&child).as_raw_pid());
        Ok(child)
    }

    /// The process is about to be reaped, after which its number may be reused.
    pub(crate) fn ended(&self, process: Pid) {
        self.groups().remove(&process.as_raw_pid());
    }

    fn groups(&self) -> MutexGuard<'_, BTreeSet<i32>> {
        self.groups.lock()
    }
}
