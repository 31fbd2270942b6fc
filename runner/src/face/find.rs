//! From what a command was given to the configuration and the state that it means.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::cli::Look;
use super::control;
use super::exit::{self, Exit};
use super::look::{Answer, Query, answer};
use crate::config::LoadOptions;
use crate::engine::{Chain, Generation};
use crate::store;

/// How configurations are read for people: with the variables of the process.
pub(super) fn options(data: Option<PathBuf>) -> LoadOptions {
    LoadOptions { data, ..LoadOptions::default() }
}

/// Asks the running runner, or the store of one that is not running.
pub(super) fn ask(look: &Look, query: &Query) -> Result<Answer, Exit> {
    let generation = match Generation::load(&look.config, &options(look.data.clone())) {
        Ok(generation) => generation,
        Err(diagnostics) => {
            exit::show(&diagnostics);
            return Err(Exit::Configuration);
        }
    };
    let configuration = generation.configuration;
    let data = &configuration.data;
    match control::ask(data, query) {
        Ok(Some(answer)) => return answer.map_err(exit::fail),
        Ok(None) => {}
        Err(error) => return Err(exit::fail(format_args!("the runner does not answer: {error}"))),
    }
    match store::open_existing(data) {
        Ok(Some((store, _writer))) => {
            answer(&store, &configuration, query).map_err(|error| exit::fail(Chain(&error)))
        }
        Ok(None) => Err(exit::fail(no_state(data))),
        Err(error) => Err(exit::fail(Chain(&error))),
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

/// Prints to standard output; a reader that has gone away is no error.
pub(super) fn print_lines(text: &str) {
    use std::io::Write as _;
    let mut output = std::io::stdout().lock();
    let _ = output.write_all(text.as_bytes());
    if !text.is_empty() && !text.ends_with('\n') {
        let _ = output.write_all(b"\n");
    }
    let _ = output.flush();
}
