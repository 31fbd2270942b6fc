//! `RunningCommands`: all running commands, so that they can be ended together.

use std::collections::BTreeSet;
use std::io;
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process_group};
use tidegate_model::sync::{Mutex, MutexGuard, RwLock};
use tokio::sync::watch;

/// The process groups of the running commands, by their leaders.
#[derive(Debug, Default)]
pub struct RunningCommands {
    given_up: watch::Sender<bool>,
    /// Whether no more commands may start. Locked while one starts.
    closed: RwLock<bool>,
    groups: Mutex<BTreeSet<i32>>,
}

/// The moment in which the outputs of commands are no longer needed.
#[derive(Debug)]
pub(crate) struct GivenUp(watch::Receiver<bool>);

impl GivenUp {
    pub(crate) async fn happens(&mut self) {
        if self.0.wait_for(|given_up| *given_up).await.is_err() {
            // All commands are gone, so it cannot happen any more.
            std::future::pending::<()>().await;
        }
    }
}

impl RunningCommands {
    /// The outputs of the commands are no longer needed: they are killed.
    pub fn give_up(&self) {
        self.given_up.send_replace(true);
    }

    /// The moment in which their outputs are no longer needed.
    pub(crate) fn given_up(&self) -> GivenUp {
        GivenUp(self.given_up.subscribe())
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
