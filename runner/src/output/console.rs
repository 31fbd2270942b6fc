//! Console: the one module that writes to standard output and standard error.
//!
//! The reader of either may be gone, full, or not reading. No write here panics. A write to standard error
//! waits at most 1 s. Lost texts are counted, and the count is written before the next text that
//! succeeds. A failed write to standard output is remembered, since the command has then failed.

#![expect(clippy::disallowed_methods, reason = "this is the module that may")]

pub(crate) mod stderr;

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Read, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, OnceLock};

use indicatif::{ProgressBar, ProgressDrawTarget};
use serde_json::{Map, Value};

use self::stderr::{Bar, Stderr};
use crate::query::rfc3339;
use tidegate_model::sync::{Mutex, MutexGuard};
use tidegate_model::{Clock as _, SystemClock, plain};

static STDERR: LazyLock<Mutex<Stderr>> = LazyLock::new(|| Mutex::new(Stderr::open()));
/// Lines are written above this bar.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);
/// Each line on standard error is a JSON value.
static JSON: AtomicBool = AtomicBool::new(false);
/// The error of the first failed write to standard output.
static OUTPUT: OnceLock<io::Error> = OnceLock::new();

/// The severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gravity {
    Error,
    Warning,
    Info,
}

impl Gravity {
    fn level(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Warning => "WARN",
            Self::Info => "INFO",
        }
    }
}

/// Switches standard error to JSON values only, one per line.
pub(crate) fn speak_json() {
    JSON.store(true, Ordering::Release);
}

pub(crate) fn speaks_json() -> bool {
    JSON.load(Ordering::Acquire)
}

/// Writes a message to standard error: a log line if the log is JSON, else text.
pub(crate) fn write_message(gravity: Gravity, message: impl Display) {
    if speaks_json() {
        return record(gravity, "tidegate", &message.to_string(), &Map::new());
    }
    let word = match gravity {
        Gravity::Error if colours() => "\u{1b}[1;31merror:\u{1b}[0m ",
        Gravity::Error => "error: ",
        Gravity::Warning => "warning: ",
        Gravity::Info => "",
    };
    write(&format!("{word}{}\n", plain::lines(&message.to_string())));
}

/// Writes a line in the form of the JSON log, with more fields.
pub(crate) fn record(gravity: Gravity, target: &str, message: &str, fields: &Map<String, Value>) {
    write(&json_line(gravity, target, message, fields));
}

/// Writes a line in the form of the log.
pub(crate) fn log(gravity: Gravity, target: &str, message: &str) {
    write(&log_line(gravity, target, message));
}

fn log_line(gravity: Gravity, target: &str, message: &str) -> String {
    if speaks_json() {
        return json_line(gravity, target, message, &Map::new());
    }
    let (time, level) = (rfc3339(SystemClock.now()), gravity.level());
    format!("{time} {level:>5} {target}: {}\n", plain::on_one_line(message))
}

pub(crate) fn json_line(
    gravity: Gravity,
    target: &str,
    message: &str,
    fields: &Map<String, Value>,
) -> String {
    let mut line = Map::new();
    line.insert("timestamp".into(), rfc3339(SystemClock.now()).into());
    line.insert("level".into(), gravity.level().into());
    line.insert("message".into(), message.into());
    line.insert("target".into(), target.into());
    line.extend(fields.clone());
    format!("{}\n", plain::json(&Value::Object(line).to_string()))
}

/// Writes the text of a panic, which may interrupt any other write.
pub(crate) fn write_of_panic(text: &str) {
    if let (Some(bar), Some(mut stderr)) = (BAR.try_lock(), STDERR.try_lock())
        && bar.is_none()
    {
        return stderr.write(text.as_bytes());
    }
    Stderr::open().write(text.as_bytes());
}

/// Writes a text to standard error unchanged, above the progress bar.
pub(crate) fn write(text: &str) {
    match &*BAR.lock() {
        Some(bar) => bar.suspend(|| stderr().write(text.as_bytes())),
        None => stderr().write(text.as_bytes()),
    }
}

/// Sets the bar above which lines are written; `None` removes it.
pub(crate) fn above(bar: Option<ProgressBar>) {
    *BAR.lock() = bar;
}

/// The draw target of a progress bar.
pub(crate) fn bar() -> ProgressDrawTarget {
    ProgressDrawTarget::term_like(Box::new(Bar::default()))
}

/// Writes a text to standard output unchanged. Returns whether it is still read.
pub(crate) fn print(text: &str) -> bool {
    let mut output = io::stdout().lock();
    printed(output.write_all(text.as_bytes()).and_then(|()| output.flush()))
}

/// Copies all of it to standard output.
///
/// # Errors
/// Reading or writing failed.
pub(crate) fn copy(from: &mut impl Read) -> io::Result<()> {
    let mut output = io::stdout().lock();
    io::copy(from, &mut output)?;
    output.flush()
}

/// The error of standard output, if a write failed. A reader that closed the pipe is no error.
pub(crate) fn output_failure() -> Option<&'static io::Error> {
    OUTPUT.get()
}

fn printed(outcome: io::Result<()>) -> bool {
    match outcome {
        Ok(()) => true,
        Err(error) => {
            if error.kind() != io::ErrorKind::BrokenPipe {
                // The first error is the cause of the others.
                let _ = OUTPUT.set(error);
            }
            false
        }
    }
}

/// Whether standard error is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Whether standard output is a terminal.
pub(crate) fn prints_to_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether standard error is a terminal with colours.
pub(crate) fn colours() -> bool {
    is_terminal() && wants_colours()
}

/// Whether standard output is a terminal with colours.
pub(crate) fn prints_colours() -> bool {
    prints_to_terminal() && wants_colours()
}

fn wants_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty())
}

/// The emphasis of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    /// Needs the operator's attention.
    Red,
    /// Is as expected.
    Green,
    /// Needs no attention any more.
    Dim,
    /// Is changed.
    Yellow,
}

/// Paints a plain text.
pub(crate) fn painted(text: &str, paint: Paint) -> String {
    let code = match paint {
        Paint::Red => 31,
        Paint::Green => 32,
        Paint::Dim => 2,
        Paint::Yellow => 33,
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

fn stderr() -> MutexGuard<'static, Stderr> {
    STDERR.lock()
}
