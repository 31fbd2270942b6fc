//! `tidegate exec-host`: becomes the command of a source, and lets the kernel end it with the runner.
//!
//! The kernel kills a process whose parent dies only if the process itself has asked for it, before its program
//! starts. This process is the short time between.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// The name of this command.
pub const COMMAND: &str = "exec-host";

/// Becomes the program with these arguments. Returns only the reason for which that is impossible.
#[must_use]
pub fn become_command(program: &OsStr, arguments: &[OsString]) -> String {
    let runner = getppid();
    // Without it the command ends with its next line after the runner, by the closed pipe.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if getppid() != runner {
        return "the runner has ended".to_owned();
    }
    let error = Command::new(program).args(arguments).exec();
    format!("cannot start `{}`: {error}", program.to_string_lossy())
}
