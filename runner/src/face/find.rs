//! From what a command was given to the configuration and the state that it means.

use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::cli::Look;
use super::control::{self, Refusal};
use super::exit::{self, Exit};
use super::look::{Answer, Query, answer};
use crate::config::LoadOptions;
use crate::engine::{Chain, Generation};
use crate::store::{self, OpenError};

/// How long a store that another command has is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long one that a runner seems to have is waited for: the name may be that of one which is gone.
const GRACE: Duration = Duration::from_millis(300);
const PAUSE: Duration = Duration::from_millis(10);

/// How configurations are read for people: with the variables of the process.
pub(super) fn options(data: Option<PathBuf>, plugins: &[PathBuf]) -> LoadOptions {
    LoadOptions { data, plugins: plugins.to_vec(), ..LoadOptions::default() }
}

/// Asks the running runner, or the store of one that is not running.
pub(super) fn ask(look: &Look, query: &Query) -> Result<Answer, Exit> {
    let generation = match Generation::read(&look.config, &options(look.data.clone(), &[])) {
        Ok(generation) => generation,
        Err(diagnostics) => {
            exit::show(&diagnostics);
            return Err(Exit::Configuration);
        }
    };
    let configuration = generation.configuration;
    let data = &configuration.data;
    let started = Instant::now();
    loop {
        match control::ask(data, query) {
            Ok(Some(Ok(answer))) => return Ok(answer),
            Ok(Some(Err(Refusal::Closed(_)))) if started.elapsed() < PATIENCE => {
                thread::sleep(PAUSE);
                continue;
            }
            Ok(Some(Err(Refusal::Closed(why) | Refusal::Other(why)))) => return Err(exit::fail(why)),
            Ok(None) => {}
            Err(error) => {
                let waited = "within 10 seconds; its process may be stopped";
                let error = match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => waited.to_owned(),
                    _ => error.to_string(),
                };
                return Err(exit::fail(format_args!("the runner does not answer: {error}")));
            }
        }
        match store::open_existing(data) {
            Ok(Some((store, _writer))) => {
                return answer(&store, &configuration, query).map_err(|error| exit::fail(Chain(&error)));
            }
            Ok(None) => return Err(exit::fail(no_state(data))),
            // Somebody else looks, or a runner is just starting and will answer in a moment.
            Err(OpenError::Locked { .. }) if started.elapsed() < PATIENCE => thread::sleep(PAUSE),
            Err(error) => return Err(exit::fail(Chain(&error))),
        }
    }
}

/// Opens a store; one that somebody only looks into is waited for.
pub(super) fn open_patiently<T>(open: impl Fn() -> Result<T, OpenError>) -> Result<T, OpenError> {
    let started = Instant::now();
    loop {
        match open() {
            Err(OpenError::Locked { holder, .. })
                if started.elapsed() < (if holder.runs() { GRACE } else { PATIENCE }) =>
            {
                thread::sleep(PAUSE);
            }
            outcome => return outcome,
        }
    }
}

fn no_state(data: &Path) -> String {
    format!("there is no state in `{}` yet; `tidegate run` makes it", data.display())
}

/// Prints `value` as JSON on standard output.
pub(super) fn print_json(value: &impl Serialize, exit: Exit) -> Exit {
    match serde_json::to_string_pretty(value) {
        Ok(text) => {
            print_lines(&text);
            exit
        }
        Err(error) => exit::fail(error),
    }
}

/// Prints text for people. What came from outside may hold control characters, which must not reach
/// a terminal.
pub(super) fn print_text(text: &str) {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => plain.push('\n'),
            control if control.is_control() => plain.extend(control.escape_default()),
            other => plain.push(other),
        }
    }
    print_lines(&plain);
}

/// Prints to standard output; a reader that has gone away is no error.
fn print_lines(text: &str) {
    use std::io::Write as _;
    let mut output = std::io::stdout().lock();
    let _ = output.write_all(text.as_bytes());
    if !text.is_empty() && !text.ends_with('\n') {
        let _ = output.write_all(b"\n");
    }
    let _ = output.flush();
}
