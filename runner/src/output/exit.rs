//! `Exit`: the exit codes, and the one way in which a command reports its failure.

use std::fmt;
use std::process::ExitCode;

use serde_json::Value;

use super::console::{self, Gravity};
use tidegate_config::{Diagnostics, Severity};
use tidegate_model::log_target;

/// The outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    Failed,
    /// Differences were found.
    Changes,
    Usage,
    Configuration,
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Changes => 2,
            Self::Usage => 64,
            Self::Configuration => 78,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Reports an error on standard error.
pub(crate) fn fail(what: impl fmt::Display) -> Exit {
    console::write_message(Gravity::Error, what);
    Exit::Failed
}

/// Reports a warning; the command continues.
pub(crate) fn warn(what: impl fmt::Display) {
    console::write_message(Gravity::Warning, what);
}

/// Reports a note to the operator at a terminal.
pub(crate) fn note(what: impl fmt::Display) {
    console::write_message(Gravity::Info, what);
}

/// Reports an error in the command's arguments.
pub(crate) fn misuse(what: impl fmt::Display) -> Exit {
    fail(what);
    Exit::Usage
}

/// Shows diagnostics on standard error: as text, or one line each in a JSON log.
pub(crate) fn show(diagnostics: &Diagnostics) {
    if !console::speaks_json() {
        return console::write(&diagnostics.render(console::colours()));
    }
    for record in diagnostics.records() {
        let gravity = match record.severity {
            Severity::Error => Gravity::Error,
            Severity::Warning => Gravity::Warning,
        };
        let Ok(Value::Object(mut fields)) = serde_json::to_value(&record) else { continue };
        fields.retain(|name, _| !matches!(name.as_str(), "severity" | "message"));
        console::record(gravity, log_target::CONFIG, &record.message, &fields);
    }
}
