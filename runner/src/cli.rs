//! The command line.

pub(crate) mod config;
pub(crate) mod usage;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use clap::builder::{RangedU64ValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};

use crate::query::JOBS_MAX;
use config::{Config, needed};
use tidegate_config::Invocation;

/// Runs pipelines that are written in TOML.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, about, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the pipelines of a configuration
    Run(Run),
    /// Check a configuration as `run` would, and touch nothing
    Check(Check),
    /// Show how far each step is
    Status(StatusCommand),
    /// Draw what feeds what
    Graph(Graph),
    /// Look into queues, and put jobs on them
    #[command(subcommand)]
    Queue(QueueCommand),
    /// Look at jobs that were rejected or failed, and deal with them
    #[command(subcommand)]
    Errors(ErrorsCommand),
    /// Look at jobs that wait for a time, hasten them, take them out
    #[command(subcommand)]
    Delayed(DelayedCommand),
    /// Look what has become of a job, and why it does not run
    #[command(subcommand)]
    Job(JobCommand),
    /// See what the queuer of a step would do
    #[command(subcommand)]
    Queuer(QueuerCommand),
    /// Have a step start nothing for a while
    #[command(subcommand)]
    Step(StepCommand),
    /// Run a step again from an earlier job on, into its outputs
    Replay(Replay),
    /// Look after the store
    #[command(subcommand)]
    Store(StoreCommand),
    /// Look into native plugins, and begin new ones
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Run a plugin for a runner, which starts this itself
    #[command(hide = true)]
    PluginHost,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PluginCommand {
    /// Show what a library offers, and what its steps can be told
    Inspect(PluginInspect),
    /// Begin a plugin: a crate that builds anywhere, with a test; or a file in C
    New(PluginNew),
    /// Print the C header of the plugin interface
    Header,
}

#[derive(Debug, Args)]
pub(crate) struct PluginInspect {
    /// The library; code of it runs
    pub(crate) file: PathBuf,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct PluginNew {
    /// Name of the plugin, and of the folder that is made for it here
    pub(crate) name: String,
    /// Begin it in C instead of Rust
    #[arg(long, conflicts_with = "api")]
    pub(crate) c: bool,
    /// The folder of the crate `tidegate-plugin` [default: a copy of it is written beside the plugin]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) api: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// List the queues and how many jobs wait in them
    List(QueryOptions),
    /// Show the jobs of a queue
    Show(QueueShow),
    /// Put jobs on a queue: JSON from standard input, one a line
    Push(QueuePush),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ErrorsCommand {
    /// List the jobs on the error queues, the latest last
    List(ErrorsList),
    /// Show one error with everything that is known about it
    Show(ErrorsShow),
    /// Put the jobs of errors back through the steps that they failed in, once
    Retry(ErrorsRetry),
    /// Take errors off their queues
    Drop(ErrorsChoice),
}

#[derive(Debug, Subcommand)]
pub(crate) enum DelayedCommand {
    /// List the jobs that wait for a time, an attempt or an outside system, the first due first
    List(DelayedList),
    /// Make jobs that wait for a time due at once
    Now(DelayedChoice),
    /// Take jobs out: onto the error queue of their step, or with `--drop` for good
    Cancel(Cancel),
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Show what each step has made of a job, or why it does not run and when it may
    Show(JobShow),
    /// Take a waiting job out of the steps that read it: onto their error queues, or with `--drop` for good
    Cancel(JobCancel),
}

#[derive(Debug, Subcommand)]
pub(crate) enum QueuerCommand {
    /// Show what the next rounds would start of what waits now, if everything finished at once
    Preview(QueuerPreview),
}

#[derive(Debug, Args)]
pub(crate) struct QueuerPreview {
    /// PIPELINE/STEP
    pub(crate) step: String,
    #[command(flatten)]
    pub(crate) look: QueryOptions,
    /// How many rounds; without rounds, what runs at once counts as one
    #[arg(long, default_value_t = 3, value_parser = limit())]
    pub(crate) rounds: usize,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StepCommand {
    /// Start nothing more of a step, however often the runner is started again
    Pause(StepChoice),
    /// Have a paused step go on
    Resume(StepChoice),
}

#[derive(Debug, Args)]
pub(crate) struct DelayedList {
    #[command(flatten)]
    pub(crate) look: QueryOptions,
    /// Only jobs of this step: PIPELINE/STEP
    #[arg(long)]
    pub(crate) step: Option<String>,
    /// How many jobs to list at most
    #[arg(long, default_value_t = 20, value_name = "JOBS", value_parser = limit())]
    pub(crate) limit: usize,
}

/// Which delayed jobs, and whether to go on without asking.
#[derive(Debug, Args)]
pub(crate) struct DelayedChoice {
    /// PIPELINE/STEP for all delayed jobs of a step, PIPELINE/QUEUE/INDEX for those that were made of a job
    #[arg(required = true)]
    pub(crate) jobs: Vec<String>,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
    /// A folder with TOML files, or one TOML file
    #[arg(long, default_value = ".", value_name = "CONFIG")]
    pub(crate) config: PathBuf,
    /// Where state lives, instead of `.tidegate` in the configuration's folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Cancel {
    #[command(flatten)]
    pub(crate) choice: DelayedChoice,
    /// Also those that an outside system has
    #[arg(long)]
    pub(crate) pending: bool,
    /// Leave nothing behind, not even on the error queue
    #[arg(long)]
    pub(crate) drop: bool,
}

#[derive(Debug, Args)]
pub(crate) struct JobShow {
    /// PIPELINE/QUEUE/INDEX
    pub(crate) job: String,
    #[command(flatten)]
    pub(crate) look: QueryOptions,
}

#[derive(Debug, Args)]
pub(crate) struct JobCancel {
    /// PIPELINE/QUEUE/INDEX
    pub(crate) job: String,
    #[command(flatten)]
    pub(crate) look: QueryOptions,
    /// Only of this step: PIPELINE/STEP
    #[arg(long)]
    pub(crate) step: Option<String>,
    /// Leave nothing behind, not even on the error queue
    #[arg(long)]
    pub(crate) drop: bool,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StepChoice {
    /// PIPELINE/STEP
    pub(crate) step: String,
    #[command(flatten)]
    pub(crate) look: QueryOptions,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Read everything, and list what is wrong
    Verify(QueryOptions),
    /// Give room that is not used back to the disk; only while no runner runs
    Compact(QueryOptions),
    /// Write everything to a file, one thing a line, as JSON
    Export(StoreExport),
    /// Make the store of an export; only where there is none yet
    Import(StoreFile),
}

#[derive(Debug, Args)]
#[command(group = needed())]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) config: Config,
    /// Where state lives, instead of `.tidegate` in the configuration's folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
    /// Another folder to look for plugins in, after what the configuration says
    #[arg(long, value_name = "FOLDER")]
    pub(crate) plugins: Vec<PathBuf>,
    /// End also when sources are followed but have nothing now
    #[arg(long)]
    pub(crate) until_idle: bool,
}

#[derive(Debug, Args)]
#[command(group = needed())]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) config: Config,
    /// Another folder to look for plugins in, after what the configuration says
    #[arg(long, value_name = "FOLDER")]
    pub(crate) plugins: Vec<PathBuf>,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Graph {
    #[command(flatten)]
    pub(crate) config: Config,
    #[arg(long, value_enum, default_value_t = GraphFormat::Text)]
    pub(crate) format: GraphFormat,
    /// Also show how many jobs wait on each queue now
    #[arg(long)]
    pub(crate) live: bool,
    /// Where state lives, instead of `.tidegate` in the configuration's folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
}

/// Where to look, and how to tell.
#[derive(Debug, Args)]
pub(crate) struct QueryOptions {
    #[command(flatten)]
    pub(crate) config: Config,
    /// Where state lives, instead of `.tidegate` in the configuration's folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

impl QueryOptions {
    /// How the operator has named the configuration.
    pub(crate) fn given(&self) -> Invocation {
        Invocation { config: self.config.to_path_buf(), data: self.data.clone() }
    }
}

#[derive(Debug, Args)]
pub(crate) struct StatusCommand {
    #[command(flatten)]
    pub(crate) look: QueryOptions,
    /// Also tell the lanes with the most jobs waiting [default where it is said: 10]
    #[arg(long, value_name = "COUNT", num_args = 0..=1, require_equals = true, default_missing_value = "10", value_parser = limit())]
    pub(crate) lanes: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct QueueShow {
    /// PIPELINE/QUEUE
    pub(crate) queue: String,
    #[command(flatten)]
    pub(crate) look: QueryOptions,
    /// The index of the first job to show [default: the oldest that is kept; with --follow the last 20]
    #[arg(long, value_name = "INDEX", value_parser = index)]
    pub(crate) from: Option<u64>,
    /// The index of the last job to show
    #[arg(long, value_name = "INDEX", value_parser = index)]
    pub(crate) to: Option<u64>,
    /// How many jobs to show at most [default: 20; with --follow, --to or --where no limit]
    #[arg(long, value_name = "JOBS", value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    pub(crate) limit: Option<u64>,
    /// Only jobs of which this is true: an expression over `job`, like 'job.id > 3'
    #[arg(long = "where", value_name = "EXPRESSION")]
    pub(crate) filter: Option<String>,
    /// Go on with what comes, until Ctrl-C or the end of the runner; JSON is then one job a line
    #[arg(long)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct QueuePush {
    /// PIPELINE/QUEUE
    pub(crate) queue: String,
    #[command(flatten)]
    pub(crate) look: QueryOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ErrorsList {
    #[command(flatten)]
    pub(crate) look: QueryOptions,
    /// Only this error queue: PIPELINE/QUEUE
    #[arg(long)]
    pub(crate) queue: Option<String>,
    /// Also those that were retried or dropped already, as far as they are kept
    #[arg(long)]
    pub(crate) all: bool,
    /// How many errors to list at most, of each queue
    #[arg(long, default_value_t = 20, value_name = "ERRORS", value_parser = limit())]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct ErrorsShow {
    /// PIPELINE/QUEUE/INDEX, as `errors list` shows it
    pub(crate) error: String,
    #[command(flatten)]
    pub(crate) look: QueryOptions,
}

#[derive(Debug, Args)]
pub(crate) struct StoreFile {
    /// The file of the export; `-` for standard input or output
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) look: QueryOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ErrorsRetry {
    #[command(flatten)]
    pub(crate) choice: ErrorsChoice,
    /// Run the job of one error with this payload instead of its own: a file with JSON, `-` for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) payload: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct StoreExport {
    #[command(flatten)]
    pub(crate) file: StoreFile,
    /// Write over a file that is there
    #[arg(long)]
    pub(crate) force: bool,
}

/// Which errors, and whether to go on without asking.
#[derive(Debug, Args)]
pub(crate) struct ErrorsChoice {
    /// PIPELINE/QUEUE for all errors there, PIPELINE/QUEUE/INDEX for one, PIPELINE/QUEUE/FROM-TO for some;
    /// none for all error queues, with at least one of --where, --step and --kind
    pub(crate) errors: Vec<String>,
    /// Only errors of which this is true: an expression over `error`, like 'error.attempt < 3'
    #[arg(long = "where", value_name = "EXPRESSION")]
    pub(crate) filter: Option<String>,
    /// Only errors of this step: STEP or PIPELINE/STEP
    #[arg(long)]
    pub(crate) step: Option<String>,
    /// Only errors of this kind, as `errors list` shows it
    #[arg(long)]
    pub(crate) kind: Option<String>,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
    /// A folder with TOML files, or one TOML file
    #[arg(long, default_value = ".", value_name = "CONFIG")]
    pub(crate) config: PathBuf,
    /// Where state lives, instead of `.tidegate` in the configuration's folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("start").required(true))]
pub(crate) struct Replay {
    /// PIPELINE/STEP
    pub(crate) step: String,
    #[command(flatten)]
    pub(crate) look: QueryOptions,
    /// The index of the first job to run again
    #[arg(long, value_name = "INDEX", group = "start", value_parser = index)]
    pub(crate) from: Option<u64>,
    /// A time like 2026-01-31T12:00:00Z, or how long ago, like 2h: from the first job on that came to the
    /// queue then or later
    #[arg(long, value_name = "TIME", group = "start")]
    pub(crate) since: Option<String>,
    /// The input that this is about, where the step has several: its binding or PIPELINE/NAME
    #[arg(long, value_name = "NAME")]
    pub(crate) input: Option<String>,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GraphFormat {
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

/// The index of a job.
fn index(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(0) => Err("the first index is 1".to_owned()),
        Ok(index) => Ok(index),
        Err(_) => Err("an index is a number, from 1".to_owned()),
    }
}

/// Says what was meant where that is known.
pub(crate) fn help_with(error: &mut clap::Error) {
    let argument = error.get(ContextKind::InvalidArg).map(ToString::to_string);
    if error.kind() == ErrorKind::UnknownArgument && argument.as_deref() == Some("--json") {
        error.remove(ContextKind::SuggestedArg);
        let help = vec!["did you mean `--format json`?".into()];
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(help));
    }
}
