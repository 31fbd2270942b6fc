//! The front ends of Tidegate: the command line, its progress and summaries, and the HTTP port.
//!
//! | crate | holds |
//! | --- | --- |
//! | [`tidegate_model`] | values |
//! | [`tidegate_dispatch`] | pure decisions |
//! | [`tidegate_config`] | TOML files → a checked configuration |
//! | [`tidegate_store`] | the one redb file |
//! | [`tidegate_components`] | scripts, plugins, sources, sinks |
//! | [`tidegate_engine`] | the threads that carry out what the dispatcher decides |

mod check;
mod chosen;
mod cli;
mod console;
mod control;
mod delayed;
mod errors;
mod exit;
mod find;
mod graph;
mod handle;
mod hint;
mod http;
mod job;
mod left;
mod log;
mod look;
mod moved;
mod panics;
mod places;
mod plugin;
mod plugin_new;
mod progress;
mod push;
mod queue;
mod queuer;
mod record;
mod replay;
mod run;
mod show;
mod signals;
mod status;
mod step;
mod store;
mod summary;
mod table;
mod terminal;
mod times;
mod usage;

use std::process::ExitCode;

use clap::Parser as _;

use cli::{
    Command, DelayedCommand, ErrorsCommand, JobCommand, PluginCommand, QueueCommand, QueuerCommand,
    StepCommand, StoreCommand,
};
use exit::Exit;

/// Parses the command line and does what it says.
#[must_use]
pub fn main() -> ExitCode {
    panics::watch();
    let exit = match cli::Arguments::try_parse() {
        Ok(arguments) => obey(arguments.command),
        Err(mut error) => {
            cli::help_with(&mut error);
            usage::tell(&error)
        }
    };
    let Some(error) = console::output_failure() else { return exit.into() };
    let failed = exit::fail(format_args!("cannot write to standard output: {error}"));
    // Another reason to have failed is the better one.
    if exit == Exit::Done { failed.into() } else { exit.into() }
}

fn obey(command: Command) -> Exit {
    match command {
        Command::Run(command) => run::run(&command),
        Command::Check(command) => check::check(&command),
        Command::Status(command) => status::status(&command),
        Command::Graph(command) => graph::graph(&command),
        Command::Queue(QueueCommand::List(command)) => queue::list(&command),
        Command::Queue(QueueCommand::Show(command)) => show::show(&command),
        Command::Queue(QueueCommand::Push(command)) => push::push(&command),
        Command::Errors(ErrorsCommand::List(command)) => errors::list(&command),
        Command::Errors(ErrorsCommand::Show(command)) => errors::show(&command),
        Command::Errors(ErrorsCommand::Retry(command)) => handle::retry(&command),
        Command::Errors(ErrorsCommand::Drop(command)) => handle::handle(&command, handle::How::Drop),
        Command::Delayed(DelayedCommand::List(command)) => delayed::list(&command),
        Command::Delayed(DelayedCommand::Now(command)) => delayed::now(&command),
        Command::Delayed(DelayedCommand::Cancel(command)) => delayed::cancel(&command),
        Command::Job(JobCommand::Show(command)) => job::show(&command),
        Command::Job(JobCommand::Cancel(command)) => job::cancel(&command),
        Command::Queuer(QueuerCommand::Preview(command)) => queuer::preview(&command),
        Command::Step(StepCommand::Pause(command)) => step::pause(&command, true),
        Command::Step(StepCommand::Resume(command)) => step::pause(&command, false),
        Command::Replay(command) => replay::replay(&command),
        Command::Store(StoreCommand::Verify(command)) => store::verify(&command),
        Command::Store(StoreCommand::Compact(command)) => store::compact(&command),
        Command::Store(StoreCommand::Export(command)) => store::export(&command),
        Command::Store(StoreCommand::Import(command)) => store::import(&command),
        Command::Plugin(PluginCommand::Inspect(command)) => plugin::inspect(&command),
        Command::Plugin(PluginCommand::New(command)) => plugin_new::new(&command),
        Command::Plugin(PluginCommand::Header) => plugin_new::header(),
        Command::PluginHost => plugin::host(),
    }
}
