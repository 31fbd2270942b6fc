//! `tidegate`: the front ends, which are the command line with its progress and summaries, and the HTTP port.
//!
//! | crate | holds |
//! | --- | --- |
//! | [`tidegate_model`] | values |
//! | [`tidegate_dispatch`] | pure decisions |
//! | [`tidegate_config`] | TOML files → a checked configuration |
//! | [`tidegate_store`] | the one redb file |
//! | [`tidegate_components`] | scripts, plugins, sources, sinks |
//! | [`tidegate_engine`] | the threads that carry out what the dispatcher decides |

mod cli;
mod client;
pub(crate) mod commands;
mod connection_limit;
mod due_time;
pub(crate) mod graph;
mod http;
pub(crate) mod output;
mod query;
mod reload;
mod rollback;
mod signals;
mod supervisor;

use std::process::ExitCode;

use clap::Parser as _;

use crate::output::exit::Exit;
use cli::{
    Command, DelayedCommand, ErrorsCommand, JobCommand, PluginCommand, QueueCommand, QueuerCommand,
    StepCommand, StoreCommand,
};

/// Parses the command line and runs the command.
fn main() -> ExitCode {
    crate::output::panics::watch();
    let exit = match cli::Arguments::try_parse() {
        Ok(arguments) => obey(arguments.command),
        Err(mut error) => {
            cli::help_with(&mut error);
            crate::cli::usage::report(&error)
        }
    };
    let Some(error) = crate::output::console::output_failure() else { return exit.into() };
    let failed = crate::output::exit::fail(format_args!("cannot write to standard output: {error}"));
    // An earlier failure is the better reason.
    if exit == Exit::Done { failed.into() } else { exit.into() }
}

fn obey(command: Command) -> Exit {
    match command {
        Command::Run(command) => crate::commands::run::run(&command),
        Command::Check(command) => crate::commands::check::check(&command),
        Command::Test(command) => crate::commands::test::test(&command),
        Command::Status(command) => crate::commands::status::status(&command),
        Command::Graph(command) => crate::commands::graph::graph(&command),
        Command::Queue(QueueCommand::List(command)) => crate::commands::queue_list::list(&command),
        Command::Queue(QueueCommand::Show(command)) => crate::commands::queue_show::show(&command),
        Command::Queue(QueueCommand::Push(command)) => crate::commands::queue_push::push(&command),
        Command::Queue(QueueCommand::Clear(command)) => crate::commands::queue_clear::clear(&command),
        Command::Queue(QueueCommand::Drop(command)) => crate::commands::queue_drop::drop_removed(&command),
        Command::Errors(ErrorsCommand::List(command)) => crate::commands::errors_list::list(&command),
        Command::Errors(ErrorsCommand::Show(command)) => crate::commands::errors_list::show(&command),
        Command::Errors(ErrorsCommand::Retry(command)) => crate::commands::errors_retry::retry(&command),
        Command::Errors(ErrorsCommand::Drop(command)) => {
            crate::commands::errors_retry::handle(&command, crate::commands::errors_retry::ErrorAction::Drop)
        }
        Command::Delayed(DelayedCommand::List(command)) => crate::commands::delayed::list(&command),
        Command::Delayed(DelayedCommand::Now(command)) => crate::commands::delayed::now(&command),
        Command::Delayed(DelayedCommand::Cancel(command)) => crate::commands::delayed::cancel(&command),
        Command::Job(JobCommand::Show(command)) => crate::commands::job_show::show(&command),
        Command::Job(JobCommand::Cancel(command)) => crate::commands::job_cancel::cancel(&command),
        Command::Queuer(QueuerCommand::Preview(command)) => {
            crate::commands::queuer_preview::preview(&command)
        }
        Command::Step(StepCommand::Pause(command)) => crate::commands::step_pause::pause(&command, true),
        Command::Step(StepCommand::Resume(command)) => crate::commands::step_pause::pause(&command, false),
        Command::Rollback(command) => crate::commands::rollback::rollback(&command),
        Command::Reload(command) => crate::commands::reload::reload(&command),
        Command::Plan(command) => crate::commands::plan::plan(&command),
        Command::History(command) => crate::commands::history::history(&command),
        Command::Replay(command) => crate::commands::replay::replay(&command),
        Command::Store(StoreCommand::Verify(command)) => crate::commands::store::verify(&command),
        Command::Store(StoreCommand::Compact(command)) => crate::commands::store::compact(&command),
        Command::Store(StoreCommand::Export(command)) => crate::commands::store::export(&command),
        Command::Store(StoreCommand::Import(command)) => crate::commands::store::import(&command),
        Command::Plugin(PluginCommand::Inspect(command)) => crate::commands::plugin::inspect(&command),
        Command::Plugin(PluginCommand::New(command)) => crate::commands::plugin_new::new(&command),
        Command::Plugin(PluginCommand::Header) => crate::commands::plugin_new::header(),
        Command::PluginHost => crate::commands::plugin::host(),
        Command::ExecHost(command) => crate::commands::exec_host::become_command(&command),
    }
}
