//! Benchmarks: measure the runner, each figure as a ratio to the bare floor of the same run.
//!
//! The floor is a bare single-threaded loop: it reads the same file, parses each line into a Rhai value,
//! calls the same function, writes the result, and syncs once. It uses the runner's own JSON reader and
//! writer, which are the fastest known.
//!
//! Every measurement is a process of its own: this one, called with the name of the path. So CPU time and peak
//! memory belong to that path alone. Runs alternate, and medians are shown, since machines are
//! noisy. `cargo bench -p tidegate -- NAME …` measures only these rows. `TIDEGATE_BENCH_JOBS` sets the number
//! of jobs, `TIDEGATE_BENCH_ROUNDS` the number of rounds.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "figures are shown"
)]

#[path = "main/calls.rs"]
mod calls;
#[path = "main/child.rs"]
mod child;
#[path = "main/completing.rs"]
mod completing;
#[path = "main/effects.rs"]
mod effects;
#[path = "main/floor.rs"]
mod floor;
#[path = "main/http.rs"]
mod http;
#[path = "main/paths.rs"]
mod paths;
#[path = "main/plugins.rs"]
mod plugins;
#[path = "main/reloads.rs"]
mod reloads;
#[path = "main/report.rs"]
mod report;
#[path = "main/waiting.rs"]
mod waiting;

use std::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["child", path, folder] => child::run(path, folder.as_ref()),
        // A step that runs in a process of its own starts this program again.
        [tidegate_components::plugin::COMMAND, ..] => Ok(tidegate_components::plugin::serve()?),
        _ => {
            // Cargo adds `--bench`.
            let names: Vec<String> = arguments.into_iter().filter(|name| !name.starts_with("--")).collect();
            report::report(&names)
        }
    }
}
