//! What a person sees: commands, progress, summaries.

mod check;
mod cli;
mod control;
mod errors;
mod exit;
mod find;
mod graph;
mod log;
mod look;
mod plugin;
mod progress;
mod queue;
mod run;
mod status;
mod summary;
mod table;

use std::process::ExitCode;

use clap::Parser as _;

use cli::{Command, ErrorsCommand, QueueCommand};
use exit::Exit;

/// Parses the command line and does what it says.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = match cli::Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // `--help` and `--version` come this way too, and are no errors.
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Done };
            let _ = error.print();
            return exit.into();
        }
    };
    let exit = match arguments.command {
        Command::Run(command) => run::run(&command),
        Command::Check(command) => check::check(&command),
        Command::Status(command) => status::status(&command),
        Command::Graph(command) => graph::graph(&command),
        Command::Queue(QueueCommand::List(command)) => queue::list(&command),
        Command::Queue(QueueCommand::Show(command)) => queue::show(&command),
        Command::Errors(ErrorsCommand::List(command)) => errors::list(&command),
        Command::Errors(ErrorsCommand::Show(command)) => errors::show(&command),
        Command::PluginHost => plugin::host(),
    };
    exit.into()
}
