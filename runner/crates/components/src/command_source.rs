//! `CommandRun`: the process of an `exec` source, whose printed lines are jobs, from its start to its end.
//!
//! `LineSplitter` makes jobs and cursors of the bytes; this file starts the process, waits for its output and
//! ends it. The process leads a group of its own. It ends with the runner, also if the runner is killed: the
//! start goes through [`host`], which asks the kernel for that.

pub mod host;
pub(crate) mod line_splitter;
pub(crate) mod printed_lines;
pub(crate) mod process;

use std::ffi::OsString;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use self::line_splitter::{Broken, LineSplitter};
pub use self::printed_lines::{BadLine, PrintedLines};
use self::process::Process;
use crate::exec::RunningCommands;
use crate::exec::process_group::ProcessEnd;
use crate::redact::Redactor;
use tidegate_config::{BadLines, CommandSource};
use tidegate_model::Address;
use tidegate_model::template::Template;

/// The variable with the last cursor.
pub const CURSOR_VARIABLE: &str = "TIDEGATE_CURSOR";
/// Bytes of output that are read before their lines are passed on.
const READ_MAX: usize = 1 << 20;

/// Characters of a command's standard error that a message shows.
const STDERR_SHOWN: usize = 1000;

/// The start of a command; borrowed from the configuration.
#[derive(Clone, Copy, Debug)]
pub struct CommandStart<'a> {
    pub address: &'a Address,
    pub source: &'a CommandSource,
    /// The last durable cursor.
    pub cursor: Option<&'a str>,
    /// Kills the command when the runner gives up.
    pub running_commands: &'a Arc<RunningCommands>,
    /// Starts the command through [`host`] of this executable.
    pub hosted: bool,
}

/// Wakes a thread that waits for the output of a command.
#[derive(Debug)]
pub struct CommandWaker(OwnedFd);

/// A running command. Dropping it kills its group.
#[derive(Debug)]
pub struct CommandRun {
    process: Process,
    lines: LineSplitter,
    scrub: Redactor,
    /// The name of the command in messages.
    named: String,
    waker: Arc<CommandWaker>,
    terminated: bool,
}

/// The result of a read.
#[derive(Debug)]
pub enum CommandRead {
    Lines(PrintedLines),
    /// The waker, or the end of the wait.
    Woken,
    Ended(CommandEnd),
}

/// The end of a command.
#[derive(Debug)]
pub enum CommandEnd {
    /// It exited with 0; these are its last lines.
    Done(PrintedLines),
    /// The last lines are complete ones.
    Failed(PrintedLines, CommandFailure),
}

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandFailure {
    /// A sentence fragment that begins with the name of the command.
    pub why: String,
    /// Another start would fail in the same way.
    pub is_final: bool,
}

impl CommandWaker {
    /// # Errors
    /// No file can be opened.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Wakes the thread once, also if it does not wait yet.
    pub fn wake(&self) {
        // A full counter wakes, too.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl CommandRun {
    /// # Errors
    /// The command cannot be started: a sentence fragment that begins with the name of the command.
    pub fn start(start: &CommandStart<'_>, waker: &Arc<CommandWaker>) -> Result<Self, String> {
        let source = start.source;
        let values = source.command.environment.iter().map(|(_, value)| value);
        let scrub = Redactor::new(source.command.arguments.iter().chain(values).flat_map(Template::secrets));
        let program = &source.command.program;
        let named = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
        let named = format!("the command `{named}`");
        let process = Process::start(&mut prepared(start), start.running_commands)
            .map_err(|error| scrub.clean(&format!("{named} cannot be started: {error}")))?;
        let lines =
            LineSplitter::new(source.lines, source.cursor.clone(), source.bad_lines == BadLines::Stop);
        Ok(Self { process, lines, scrub, named, waker: Arc::clone(waker), terminated: false })
    }

    /// Waits for lines, the waker, the end of the command, or until `wait` is over. `reads`: whether output is read;
    /// a command whose output is not read waits when its pipe is full.
    pub fn read(&mut self, reads: bool, wait: Option<Duration>) -> CommandRead {
        loop {
            let ready = match self.process.wait(self.waker.0.as_fd(), reads, wait) {
                Ok(ready) => ready,
                Err(error) => return self.failed(format!("cannot be monitored: {error}").into()),
            };
            if ready.woken {
                self.waker.clear();
            }
            if ready.out {
                match self.process.read_some(READ_MAX).map(|output| self.lines.push(output)) {
                    Ok(Ok(())) => {}
                    Ok(Err(broken)) => return self.failed(broken),
                    Err(error) => return self.failed(format!("cannot be read: {error}").into()),
                }
            }
            let lines = self.lines.take();
            if !lines.is_empty() {
                return CommandRead::Lines(lines);
            }
            if ready.woken || ready.is_nothing() {
                return CommandRead::Woken;
            }
            if ready.end {
                return CommandRead::Ended(self.ended());
            }
        }
    }

    /// Asks the command and its group to end (`SIGTERM`). Its output can be read on.
    pub fn terminate(&mut self) {
        self.terminated = true;
        self.process.terminate();
    }

    /// Kills the command and its group. Its remaining output is lost.
    pub fn kill(mut self) {
        self.process.kill();
    }

    fn ended(&mut self) -> CommandEnd {
        let (ended, output) = match self.process.finish() {
            Ok(ended) => ended,
            Err(error) => return self.failure(format!("cannot be monitored: {error}").into()),
        };
        if let Err(broken) = self.lines.push(output) {
            return self.failure(broken);
        }
        let stderr = self.stderr();
        let after = if stderr.is_empty() { String::new() } else { format!(": {stderr}") };
        match ended {
            // A command that was asked to end may have stopped in the middle of its lines.
            ProcessEnd::Exited(0) if !self.terminated => match self.lines.finish() {
                Ok(()) => CommandEnd::Done(self.lines.take()),
                Err(broken) => self.failure(broken),
            },
            ProcessEnd::Exited(0) => CommandEnd::Done(self.lines.take()),
            ProcessEnd::Exited(code) => self.failure(format!("ended with exit code {code}{after}").into()),
            ProcessEnd::Killed(signal) => {
                self.failure(format!("was killed by signal {signal}{after}").into())
            }
        }
    }

    /// The end of its standard error, without secrets.
    fn stderr(&self) -> String {
        self.process.stderr_tail().text(&self.scrub, STDERR_SHOWN)
    }

    fn failed(&mut self, broken: Broken) -> CommandRead {
        self.process.kill();
        CommandRead::Ended(self.failure(broken))
    }

    /// The lines before the failure are jobs.
    fn failure(&mut self, broken: Broken) -> CommandEnd {
        let (lines, Broken { why, is_bad_line }) = (self.lines.take(), broken);
        let why = format!("{} {}", self.named, self.scrub.clean(&why));
        CommandEnd::Failed(lines, CommandFailure { why, is_final: is_bad_line })
    }
}

fn prepared(start: &CommandStart<'_>) -> Command {
    let command = &start.source.command;
    let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    // The command runs in another folder, so a relative path would be wrong.
    let program = if command.program.components().count() > 1 {
        absolute(&command.program)
    } else {
        command.program.clone()
    };
    let mut prepared = if start.hosted {
        let mut hosted = Command::new("/proc/self/exe");
        hosted.arg(host::COMMAND).arg("--").arg(program);
        hosted
    } else {
        Command::new(program)
    };
    // The texts of a source are fixed.
    let text = |template: &Template| OsString::from(template.reveal().unwrap_or_default());
    prepared.args(command.arguments.iter().map(text));
    prepared.envs(command.environment.iter().map(|(name, value)| (name, text(value))));
    prepared.current_dir(absolute(&command.folder));
    prepared.env("TIDEGATE_PIPELINE", start.address.pipeline.as_str());
    prepared.env("TIDEGATE_SOURCE", start.address.name.as_str());
    match start.cursor {
        Some(cursor) => prepared.env(CURSOR_VARIABLE, cursor),
        // One of the runner's environment is not a cursor of this source.
        None => prepared.env_remove(CURSOR_VARIABLE),
    };
    prepared
}

#[cfg(test)]
mod tests;
