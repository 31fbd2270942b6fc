//! Exit codes, and the one way in which a command says that it failed.

use std::fmt;
use std::io::IsTerminal as _;
use std::process::ExitCode;

use crate::config::Diagnostics;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    Done,
    Failed,
    Usage,
    Configuration,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 64,
            Exit::Configuration => 78,
        })
    }
}

/// Says what went wrong on standard error.
pub(super) fn fail(what: impl fmt::Display) -> Exit {
    eprintln!("{} {what}", styled("error:"));
    Exit::Failed
}

/// Says what a person should know, though the command goes on.
pub(super) fn warn(what: impl fmt::Display) {
    eprintln!("warning: {what}");
}

/// Says what is wrong with the command's arguments.
pub(super) fn misuse(what: impl fmt::Display) -> Exit {
    fail(what);
    Exit::Usage
}

/// Shows diagnostics on standard error.
pub(super) fn show(diagnostics: &Diagnostics) {
    if !diagnostics.is_empty() {
        eprint!("{}", diagnostics.render(colours()));
    }
}

/// Whether standard error is a terminal that wants colours.
pub(super) fn colours() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

fn styled(word: &str) -> String {
    if colours() { format!("\u{1b}[1;31m{word}\u{1b}[0m") } else { word.to_owned() }
}
