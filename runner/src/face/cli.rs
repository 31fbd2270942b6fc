//! The command line.

use std::path::PathBuf;

use clap::builder::{RangedU64ValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};

use super::look::JOBS_MAX;

/// Runs pipelines that are written in TOML.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, about, max_term_width = 100)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run the pipelines of a configuration
    Run(Run),
    /// Check a configuration as `run` would, and touch nothing
    Check(Check),
    /// Show how far each step is
    Status(Look),
    /// Draw what feeds what
    Graph(Graph),
    /// Look into queues
    #[command(subcommand)]
    Queue(QueueCommand),
    /// Look at jobs that were rejected or failed
    #[command(subcommand)]
    Errors(ErrorsCommand),
    /// Run a plugin for a runner, which starts this itself
    #[command(hide = true)]
    PluginHost,
}

#[derive(Debug, Subcommand)]
pub(super) enum QueueCommand {
    /// List the queues and how many jobs wait in them
    List(Look),
    /// Show the jobs of a queue
    Show(QueueShow),
}

#[derive(Debug, Subcommand)]
pub(super) enum ErrorsCommand {
    /// List the jobs on the error queues, the latest last
    List(ErrorsList),
    /// Show one error with everything that is known about it
    Show(ErrorsShow),
}

#[derive(Debug, Args)]
pub(super) struct Run {
    /// A folder with TOML files, or one TOML file
    pub(super) config: PathBuf,
    /// Where state lives, instead of `.tidegate` in the configuration's folder
    #[arg(long, value_name = "FOLDER")]
    pub(super) data: Option<PathBuf>,
    /// Another folder to look for plugins in, after what the configuration says
    #[arg(long, value_name = "FOLDER")]
    pub(super) plugins: Vec<PathBuf>,
    /// End also when sources are followed but have nothing now
    #[arg(long)]
    pub(super) until_idle: bool,
}

#[derive(Debug, Args)]
pub(super) struct Check {
    /// A folder with TOML files, or one TOML file
    pub(super) config: PathBuf,
    /// Another folder to look for plugins in, after what the configuration says
    #[arg(long, value_name = "FOLDER")]
    pub(super) plugins: Vec<PathBuf>,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(super) format: Format,
}

#[derive(Debug, Args)]
pub(super) struct Graph {
    /// A folder with TOML files, or one TOML file
    #[arg(default_value = ".")]
    pub(super) config: PathBuf,
    #[arg(long, value_enum, default_value_t = GraphFormat::Text)]
    pub(super) format: GraphFormat,
    /// Also show how many jobs wait on each queue now
    #[arg(long)]
    pub(super) live: bool,
    /// Where state lives, instead of `.tidegate` in the configuration's folder
    #[arg(long, value_name = "FOLDER")]
    pub(super) data: Option<PathBuf>,
}

/// Where to look, and how to tell.
#[derive(Debug, Args)]
pub(super) struct Look {
    /// A folder with TOML files, or one TOML file
    #[arg(default_value = ".")]
    pub(super) config: PathBuf,
    /// Where state lives, instead of `.tidegate` in the configuration's folder
    #[arg(long, value_name = "FOLDER")]
    pub(super) data: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(super) format: Format,
}

#[derive(Debug, Args)]
pub(super) struct QueueShow {
    /// PIPELINE/QUEUE
    pub(super) queue: String,
    #[command(flatten)]
    pub(super) look: Look,
    /// The index of the first job to show [default: the oldest that is kept]
    #[arg(long, value_name = "INDEX")]
    pub(super) from: Option<u64>,
    /// How many jobs to show at most
    #[arg(long, default_value_t = 20, value_name = "JOBS", value_parser = limit())]
    pub(super) limit: usize,
}

#[derive(Debug, Args)]
pub(super) struct ErrorsList {
    #[command(flatten)]
    pub(super) look: Look,
    /// Only this error queue: PIPELINE/QUEUE
    #[arg(long)]
    pub(super) queue: Option<String>,
    /// How many errors to list at most, of each queue
    #[arg(long, default_value_t = 20, value_name = "ERRORS", value_parser = limit())]
    pub(super) limit: usize,
}

#[derive(Debug, Args)]
pub(super) struct ErrorsShow {
    /// PIPELINE/QUEUE/INDEX, as `errors list` shows it
    pub(super) error: String,
    #[command(flatten)]
    pub(super) look: Look,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum GraphFormat {
    /// A drawing for the terminal
    Text,
    /// A flowchart for Mermaid
    Mermaid,
    /// For Graphviz
    Dot,
    /// For programs, with all that each step and queue depends on
    Json,
}

/// As many as one answer may bring.
fn limit() -> impl TypedValueParser<Value = usize> {
    let number = RangedU64ValueParser::<u64>::new().range(1..=JOBS_MAX as u64);
    number.try_map(usize::try_from)
}
