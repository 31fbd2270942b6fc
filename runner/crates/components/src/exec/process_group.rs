//! `ProcessGroup`: a child process that leads a group of its own. It is reaped once, and nothing of its group is left
//! after a failure.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};
use std::sync::Arc;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};

use super::running_commands::RunningCommands;
use crate::open_files;

/// Dropping it before its end kills the group.
#[derive(Debug)]
pub(crate) struct ProcessGroup {
    child: Child,
    pid: Pid,
    running_commands: Arc<RunningCommands>,
    reaped: bool,
}

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessEnd {
    Exited(i32),
    Killed(i32),
}

impl ProcessGroup {
    /// Starts a command. Also returns a file that is readable when the process has ended.
    pub(crate) fn start(
        command: &mut Command,
        running_commands: &Arc<RunningCommands>,
    ) -> io::Result<(Self, OwnedFd)> {
        let child = running_commands.start(command.process_group(0))?;
        let pid = Pid::from_child(&child);
        let group = Self { child, pid, running_commands: Arc::clone(running_commands), reaped: false };
        open_files::restore(pid);
        let end = pidfd_open(pid, PidfdFlags::empty())?;
        Ok((group, end))
    }

    /// Standard input, output and error, as far as they are pipes that were not taken yet.
    pub(crate) fn pipes(&mut self) -> (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>) {
        (self.child.stdin.take(), self.child.stdout.take(), self.child.stderr.take())
    }

    /// The end of a process that has ended.
    pub(crate) fn ended(&mut self) -> io::Result<ProcessEnd> {
        // The process is not reaped yet, so its number can only name its own group.
        let seen = waitid(WaitId::Pid(self.pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
        if seen.and_then(|seen| seen.exit_status()) != Some(0) {
            self.kill();
        }
        let status = self.reap()?;
        Ok(match (status.code(), status.signal()) {
            (Some(code), _) => ProcessEnd::Exited(code),
            (None, signal) => ProcessEnd::Killed(signal.unwrap_or_default()),
        })
    }

    /// Asks the group to end.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Kills the group.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Waits for the end of the process.
    pub(crate) fn reap(&mut self) -> io::Result<ExitStatus> {
        // From here on the number may be reused.
        self.running_commands.ended(self.pid);
        let status = self.child.wait()?;
        self.reaped = true;
        Ok(status)
    }

    /// Kills the group, and waits for the end of its leader.
    pub(crate) fn kill_and_reap(&mut self) {
        if !self.reaped {
            self.kill();
            let _ = self.reap();
        }
    }

    fn signal(&self, signal: Signal) {
        if !self.reaped {
            let _ = kill_process_group(self.pid, signal); // it may have ended already
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill_and_reap();
    }
}
