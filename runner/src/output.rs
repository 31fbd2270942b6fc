//! Output of commands: console, logs, progress, tables and texts.

pub(crate) mod backlog;
pub(crate) mod console;
pub(crate) mod error_record;
pub(crate) mod exit;
pub(crate) mod hint;
pub(crate) mod junit;
pub(crate) mod lane_command;
pub(crate) mod log;
pub(crate) mod moves;
pub(crate) mod panics;
pub(crate) mod progress;
pub(crate) mod summary;
pub(crate) mod table;
pub(crate) mod terminal;
pub(crate) mod test_report;
pub(crate) mod times;
