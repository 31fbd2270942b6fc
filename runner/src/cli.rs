//! `Arguments`: the command line, with the help text of every command and option.

pub(crate) mod config;
pub(crate) mod usage;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{RangedU64ValueParser, StringValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};

use crate::due_time;
use crate::query::JOBS_MAX;
use config::{Config, needed};
use tidegate_config::Invocation;
use tidegate_model::{Clock as _, SystemClock, Timestamp};

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
    Run(RunArguments),
    /// Check a configuration as `run` would, and change nothing
    Check(Check),
    /// Run the tests of a configuration, under a clock of their own, and change nothing
    Test(TestArguments),
    /// Show what a reload, or the next run, would change; exit code 2 if it changes anything
    Plan(PlanCommand),
    /// List the configurations that ran, or show the files of one
    History(HistoryCommand),
    /// Show the progress of each step
    Status(StatusCommand),
    /// Draw the graph of sources, queues, steps and sinks
    Graph(GraphArguments),
    /// List queues, show their jobs, push jobs to them, and drop removed ones
    #[command(subcommand)]
    Queue(QueueCommand),
    /// List, retry or discard rejected and failed jobs
    #[command(subcommand)]
    Errors(ErrorsCommand),
    /// List delayed and pending jobs, make them due, or cancel them
    #[command(subcommand)]
    Delayed(DelayedCommand),
    /// Show the outcome of a job, or cancel it
    #[command(subcommand)]
    Job(JobCommand),
    /// Preview the jobs that the queuer of a step would start
    #[command(subcommand)]
    Queuer(QueuerCommand),
    /// Pause or resume a step
    #[command(subcommand)]
    Step(StepCommand),
    /// Let the running runner read its configuration again, and wait for the outcome
    Reload(QueryOptions),
    /// Go back to an earlier generation; the files stay as they are, except with `--write`
    Rollback(RollbackCommand),
    /// Run a step again from an earlier job on, and append to its outputs
    Replay(ReplayArguments),
    /// Verify, compact, export or import the store
    #[command(subcommand)]
    Store(StoreCommand),
    /// Inspect native plugins, or create a new one
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Run a plugin in its own process; the runner starts this command itself
    #[command(hide = true)]
    PluginHost,
    /// Become the command of a source; the runner starts this command itself
    #[command(hide = true)]
    ExecHost(ExecHost),
}

#[derive(Debug, Args)]
pub(crate) struct ExecHost {
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PluginCommand {
    /// Show the steps of a library and their configuration keys
    Inspect(PluginInspect),
    /// Create a plugin: a crate that builds on any machine, with a test; or a C file
    New(PluginNew),
    /// Print the C header of the plugin interface
    Header,
}

#[derive(Debug, Args)]
pub(crate) struct PluginInspect {
    /// The library; its code is run
    pub(crate) file: PathBuf,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct PluginNew {
    /// Name of the plugin, and of the folder that is created for it
    pub(crate) name: String,
    /// Create it in C instead of Rust
    #[arg(long, conflicts_with = "api")]
    pub(crate) c: bool,
    /// The folder of the crate `tidegate-plugin` [default: a copy is written beside the plugin]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) api: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// List the queues and the number of jobs that wait in each
    List(QueryOptions),
    /// Show the jobs of a queue
    Show(QueueShow),
    /// Push jobs to a queue: JSON from standard input, one job per line
    Push(QueuePush),
    /// Discard the jobs of a queue: its readers skip those that they have not begun
    Clear(QueueClear),
    /// Discard the jobs and the progress of parts that are no longer in the configuration
    Drop(QueueDrop),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ErrorsCommand {
    /// List the jobs on the error queues, the newest last
    List(ErrorsList),
    /// Show everything that is recorded about one error
    Show(ErrorsShow),
    /// Retry failed jobs, each once, at the steps that they failed in
    Retry(ErrorsRetry),
    /// Discard failed jobs
    Drop(ErrorsChoice),
}

#[derive(Debug, Subcommand)]
pub(crate) enum DelayedCommand {
    /// List the jobs that wait for a time, an attempt or an external system, the first due first
    List(DelayedList),
    /// Make jobs that wait for a time due now
    Now(DelayedChoice),
    /// Cancel jobs: move them to the error queue of their step, or discard them with `--drop`
    Cancel(Cancel),
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Show the outcome of a job at each step, or why it waits and until when
    Show(JobShow),
    /// Cancel a waiting job at the steps that read it: move it to their error queues, or discard it with
    /// `--drop`
    Cancel(JobCancel),
}

#[derive(Debug, Subcommand)]
pub(crate) enum QueuerCommand {
    /// Preview the next rounds of jobs that would start, if every job finished at once
    Preview(QueuerPreview),
}

#[derive(Debug, Args)]
pub(crate) struct QueuerPreview {
    /// PIPELINE/STEP
    pub(crate) step: String,
    #[command(flatten)]
    pub(crate) look: QueryOptions,
    /// Number of rounds; for strategies without rounds, jobs that may start at the same time are one round
    #[arg(long, default_value_t = 3, value_parser = limit())]
    pub(crate) rounds: usize,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StepCommand {
    /// Pause a step, a lane of it, or its monitor: it starts no more jobs, also after the runner restarts
    Pause(StepChoice),
    /// Resume a paused step or monitor, or a lane that is paused or halted
    Resume(StepChoice),
}

#[derive(Debug, Args)]
pub(crate) struct DelayedList {
    #[command(flatten)]
    pub(crate) look: QueryOptions,
    /// Only jobs of this step, or that are not on this queue yet: PIPELINE/STEP or PIPELINE/QUEUE
    #[arg(long)]
    pub(crate) step: Option<String>,
    /// Only jobs in this lane of their step
    #[arg(long)]
    pub(crate) lane: Option<String>,
    /// Only jobs for which this is true: an expression over `job`, like 'job.id > 3'
    #[arg(long = "where", value_name = "EXPRESSION")]
    pub(crate) filter: Option<String>,
    /// Number of jobs to list at most
    #[arg(long, default_value_t = 20, value_name = "JOBS", value_parser = limit())]
    pub(crate) limit: usize,
}

/// The chosen delayed jobs, and whether to confirm the change.
#[derive(Debug, Args)]
pub(crate) struct DelayedChoice {
    /// PIPELINE/STEP for all delayed jobs of a step, PIPELINE/QUEUE/INDEX for those made from one job.
    /// PIPELINE/QUEUE for all late jobs of a queue, PIPELINE/QUEUE/due/NUMBER for one of them
    #[arg(required = true)]
    pub(crate) jobs: Vec<String>,
    /// Only jobs in this lane of their step
    #[arg(long)]
    pub(crate) lane: Option<String>,
    /// Only jobs for which this is true: an expression over `job`, like 'job.id > 3'
    #[arg(long = "where", value_name = "EXPRESSION")]
    pub(crate) filter: Option<String>,
    /// Do not ask for confirmation
    #[arg(long)]
    pub(crate) yes: bool,
    /// A folder with TOML files, or one TOML file
    #[arg(long, default_value = ".", value_name = "CONFIG")]
    pub(crate) config: PathBuf,
    /// The data folder [default: `.tidegate` in the configuration's folder]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Cancel {
    #[command(flatten)]
    pub(crate) choice: DelayedChoice,
    /// Include jobs that are pending in an external system
    #[arg(long)]
    pub(crate) pending: bool,
    /// Discard the jobs, with no error record on the error queue
    #[arg(long)]
    pub(crate) drop: bool,
}

#[derive(Debug, Args)]
pub(crate) struct JobShow {
    /// PIPELINE/QUEUE/INDEX, or PIPELINE/QUEUE/due/NUMBER for a job that is due later
    pub(crate) job: String,
    #[command(flatten)]
    pub(crate) look: QueryOptions,
}

#[derive(Debug, Args)]
pub(crate) struct JobCancel {
    /// PIPELINE/QUEUE/INDEX, or PIPELINE/QUEUE/FROM-TO for a range
    pub(crate) job: String,
    #[command(flatten)]
    pub(crate) look: QueryOptions,
    /// Only at this step: PIPELINE/STEP
    #[arg(long)]
    pub(crate) step: Option<String>,
    /// Discard the job, with no error record on the error queue
    #[arg(long)]
    pub(crate) drop: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StepChoice {
    /// PIPELINE/STEP
    pub(crate) step: String,
    /// Only this lane; the other lanes go on
    #[arg(long)]
    pub(crate) lane: Option<String>,
    /// Only the monitor: while it is paused, pending jobs stay pending
    #[arg(long, conflicts_with = "lane")]
    pub(crate) monitor: bool,
    #[command(flatten)]
    pub(crate) look: QueryOptions,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Read the whole store, and list every inconsistency
    Verify(QueryOptions),
    /// Return unused space to the disk; the runner must be stopped
    Compact(QueryOptions),
    /// Export the store to a file of JSON lines
    Export(StoreExport),
    /// Create the store from an export; no store may exist yet
    Import(StoreFile),
}

#[derive(Debug, Args)]
#[command(group = needed())]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub(crate) config: Config,
    /// The data folder [default: `.tidegate` in the configuration's folder]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
    /// Another folder to search for plugins, after those of the configuration
    #[arg(long, value_name = "FOLDER")]
    pub(crate) plugins: Vec<PathBuf>,
    /// End when all sources are idle, also those that are followed. Changed files start no reload
    #[arg(long)]
    pub(crate) until_idle: bool,
    /// End with code 1 when a step stops at a job, also beside sources that never end
    #[arg(long)]
    pub(crate) exit_on_halt: bool,
    /// Wait while another runner has the store, and take over when it ends
    #[arg(long)]
    pub(crate) wait_for_lock: bool,
    /// Do not reload when files of the configuration change
    #[arg(long)]
    pub(crate) no_watch: bool,
    /// Carry out the files, also if they were rolled back and have not changed since
    #[arg(long)]
    pub(crate) from_files: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RollbackCommand {
    /// The generation, as `history` shows it [default: the one before the current one]
    #[arg(value_parser = generation)]
    pub(crate) generation: Option<u64>,
    /// Also restore its files
    #[arg(long)]
    pub(crate) write: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    pub(crate) yes: bool,
    /// A folder with TOML files, or one TOML file
    #[arg(long, default_value = ".", value_name = "CONFIG")]
    pub(crate) config: PathBuf,
    /// The data folder [default: `.tidegate` in the configuration's folder]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct PlanCommand {
    #[command(flatten)]
    pub(crate) config: Config,
    /// The data folder [default: `.tidegate` in the configuration's folder]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
    /// Another folder to search for plugins, after those of the configuration
    #[arg(long, value_name = "FOLDER")]
    pub(crate) plugins: Vec<PathBuf>,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// The number of a generation. Other commands take the configuration at this place.
fn generation(text: &str) -> Result<u64, String> {
    let help = || format!("a generation is a number, and a configuration is named by `--config={text}`");
    text.parse().map_err(|_| help())
}

#[derive(Debug, Args)]
pub(crate) struct HistoryCommand {
    /// The generation whose files to show [default: list all]
    #[arg(value_parser = generation)]
    pub(crate) generation: Option<u64>,
    /// A folder with TOML files, or one TOML file
    #[arg(long, default_value = ".", value_name = "CONFIG")]
    pub(crate) config: PathBuf,
    /// The data folder [default: `.tidegate` in the configuration's folder]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(group = needed())]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) config: Config,
    /// Another folder to search for plugins, after those of the configuration
    #[arg(long, value_name = "FOLDER")]
    pub(crate) plugins: Vec<PathBuf>,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct TestArguments {
    #[command(flatten)]
    pub(crate) config: Config,
    /// Another folder to search for plugins, after those of the configuration
    #[arg(long, value_name = "FOLDER")]
    pub(crate) plugins: Vec<PathBuf>,
    /// Only tests with this text in `PIPELINE/STEP: NAME`; without a step it is `PIPELINE: NAME`
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    /// Also write the results to this file, as `JUnit` XML
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct GraphArguments {
    #[command(flatten)]
    pub(crate) config: Config,
    #[arg(long, value_enum, default_value_t = GraphFormat::Text)]
    pub(crate) format: GraphFormat,
    /// Also show the number of jobs that wait on each queue now
    #[arg(long)]
    pub(crate) live: bool,
    /// The data folder [default: `.tidegate` in the configuration's folder]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
}

/// The configuration, the data folder and the output format of a query.
#[derive(Debug, Args)]
pub(crate) struct QueryOptions {
    #[command(flatten)]
    pub(crate) config: Config,
    /// The data folder [default: `.tidegate` in the configuration's folder]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

impl QueryOptions {
    /// The configuration and data folder as the operator gave them.
    pub(crate) fn given(&self) -> Invocation {
        Invocation { config: self.config.to_path_buf(), data: self.data.clone(), plugins: Vec::new() }
    }
}

#[derive(Debug, Args)]
pub(crate) struct StatusCommand {
    #[command(flatten)]
    pub(crate) look: QueryOptions,
    /// Also show the lanes with the most waiting jobs [default without a number: 10]
    #[arg(long, value_name = "COUNT", num_args = 0..=1, require_equals = true, default_missing_value = "10", value_parser = limit())]
    pub(crate) lanes: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct QueueShow {
    /// PIPELINE/QUEUE; with --all the configuration
    #[arg(required_unless_present = "all")]
    pub(crate) queue: Option<String>,
    #[command(flatten)]
    pub(crate) look: QueryOptions,
    /// Index of the first job to show [default: the oldest kept; with --follow the last 20]
    #[arg(long, value_name = "INDEX", value_parser = index)]
    pub(crate) from: Option<u64>,
    /// Index of the last job to show
    #[arg(long, value_name = "INDEX", value_parser = index)]
    pub(crate) to: Option<u64>,
    /// Number of jobs to show at most [default: 20; with --follow, --to or --where no limit]
    #[arg(long, value_name = "JOBS", value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    pub(crate) limit: Option<u64>,
    /// Only jobs for which this is true: an expression over `job`, like 'job.id > 3'
    #[arg(long = "where", value_name = "EXPRESSION")]
    pub(crate) filter: Option<String>,
    /// Also show new jobs as they arrive, until Ctrl-C or the end of the runner; JSON is then one job per
    /// line
    #[arg(long)]
    pub(crate) follow: bool,
    /// Show the last jobs of every queue, 5 of each
    #[arg(long, conflicts_with_all = ["from", "to", "follow"])]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct QueueClear {
    /// PIPELINE/QUEUE
    pub(crate) queue: String,
    #[command(flatten)]
    pub(crate) look: QueryOptions,
    /// Do not ask for confirmation
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct QueuePush {
    /// PIPELINE/QUEUE
    pub(crate) queue: String,
    /// Append the jobs after this time, like `15s` or `1h30m`
    #[arg(long, conflicts_with = "due", value_parser = delay())]
    pub(crate) delay: Option<Timestamp>,
    /// Append the jobs at this time, like `2026-03-31T01:00:00Z`
    #[arg(long, value_name = "TIME", value_parser = due_time::at)]
    pub(crate) due: Option<Timestamp>,
    #[command(flatten)]
    pub(crate) look: QueryOptions,
}

#[derive(Debug, Args)]
pub(crate) struct QueueDrop {
    /// The removed part: PIPELINE/QUEUE, PIPELINE/STEP, or PIPELINE for all removed parts of one
    #[arg(value_name = "PART")]
    pub(crate) part: String,
    #[command(flatten)]
    pub(crate) look: QueryOptions,
    /// Do not ask for confirmation
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ErrorsList {
    #[command(flatten)]
    pub(crate) look: QueryOptions,
    /// Only this error queue: PIPELINE/QUEUE
    #[arg(long)]
    pub(crate) queue: Option<String>,
    /// Also errors that were already retried or dropped, while they are kept
    #[arg(long)]
    pub(crate) all: bool,
    /// Number of errors to list at most, per queue
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
    /// Run the job of one error with this payload instead of its own: a JSON file, or `-` for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) payload: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct StoreExport {
    #[command(flatten)]
    pub(crate) file: StoreFile,
    /// Overwrite an older export; no other file is overwritten
    #[arg(long)]
    pub(crate) force: bool,
}

/// The chosen errors, and whether to confirm the change.
#[derive(Debug, Args)]
pub(crate) struct ErrorsChoice {
    /// PIPELINE/QUEUE for all errors of a queue, PIPELINE/QUEUE/INDEX for one, PIPELINE/QUEUE/FROM-TO for a
    /// range. None for all error queues, with at least one of --where, --step and --kind
    pub(crate) errors: Vec<String>,
    /// Only errors for which this is true: an expression over `error`, like 'error.attempt < 3'
    #[arg(long = "where", value_name = "EXPRESSION")]
    pub(crate) filter: Option<String>,
    /// Only errors of this step: STEP or PIPELINE/STEP
    #[arg(long)]
    pub(crate) step: Option<String>,
    /// Only errors of this kind, as `errors list` shows it
    #[arg(long)]
    pub(crate) kind: Option<String>,
    /// Do not ask for confirmation
    #[arg(long)]
    pub(crate) yes: bool,
    /// A folder with TOML files, or one TOML file
    #[arg(long, default_value = ".", value_name = "CONFIG")]
    pub(crate) config: PathBuf,
    /// The data folder [default: `.tidegate` in the configuration's folder]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("start").required(true))]
pub(crate) struct ReplayArguments {
    /// PIPELINE/STEP
    pub(crate) step: String,
    #[command(flatten)]
    pub(crate) look: QueryOptions,
    /// Index of the first job to run again
    #[arg(long, value_name = "INDEX", group = "start", value_parser = index)]
    pub(crate) from: Option<u64>,
    /// A time like 2026-01-31T12:00:00Z, or a duration before now, like 2h: start at the first job that
    /// arrived in the queue since then
    #[arg(long, value_name = "TIME", group = "start")]
    pub(crate) since: Option<String>,
    /// The input to rewind, if the step has several: its binding or PIPELINE/NAME
    #[arg(long, value_name = "NAME")]
    pub(crate) input: Option<String>,
    /// Do not ask for confirmation
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text for people
    Text,
    /// JSON for programs
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GraphFormat {
    /// A drawing for the terminal
    Text,
    /// A flowchart for Mermaid
    Mermaid,
    /// A graph for Graphviz
    Dot,
    /// JSON for programs, with everything that each step and queue depends on
    Json,
}

/// The number of rows that one answer may hold.
fn limit() -> impl TypedValueParser<Value = usize> {
    let number = RangedU64ValueParser::<u64>::new().range(1..=JOBS_MAX as u64);
    number.try_map(usize::try_from)
}

/// The time after a delay from now.
fn delay() -> impl TypedValueParser<Value = Timestamp> {
    StringValueParser::new().try_map(|delay| due_time::after(&delay, SystemClock.now()))
}

/// The index of a job.
fn index(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(0) => Err("the first index is 1".to_owned()),
        Ok(index) => Ok(index),
        Err(_) => Err("an index is a number, from 1".to_owned()),
    }
}

/// Adds a suggestion to an error of the command line, if one is known.
pub(crate) fn help_with(error: &mut clap::Error) {
    let argument = error.get(ContextKind::InvalidArg).map(ToString::to_string);
    if error.kind() == ErrorKind::UnknownArgument && argument.as_deref() == Some("--json") {
        error.remove(ContextKind::SuggestedArg);
        let help = vec!["did you mean `--format json`?".into()];
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(help));
    }
}
