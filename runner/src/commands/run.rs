//! `tidegate run`: loads a configuration, runs it, and prints the summary.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::cli;
use crate::client::ipc;
use crate::commands::stand_by;
use crate::http::Server;
use crate::output::console;
use crate::output::exit;
use crate::output::exit::Exit;
use crate::output::progress::RunProgress;
use crate::output::{log, summary};
use crate::signals::{Signals, warn_stopped_before};
use crate::supervisor::{self, Watchdog};
use crate::{client, query, reload, rollback};
use tidegate_components::open_files;
use tidegate_components::plugin::Setups;
use tidegate_components::plugin::{ExitGuard, leave};
use tidegate_config::{Configuration, Diagnostics, LoadOptions, LogFormat, LogSettings, shown};
use tidegate_dispatch::RunOutcome;
use tidegate_engine::{Chain, Generation, ResumedRollback, RunOptions, RunReport, Stats};
use tidegate_model::SystemClock;
use tidegate_model::log_target;
use tidegate_store::{CrashGuard, Store};

/// How long a runner that takes over waits for the port of the runner before it.
const PORT_PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn run(command: &cli::RunArguments) -> Exit {
    let signals = match Signals::watch() {
        Ok(signals) => signals,
        Err(error) => return exit::fail(format_args!("cannot start: {error}")),
    };
    let load_options = || client::options(command.data.clone(), &command.plugins);
    let load = || Generation::load(&command.config, &load_options());
    let mut loaded = load();
    let (data, log_settings) = match place(command, &load_options(), &loaded) {
        Ok(place) => place,
        Err(exit) => return exit,
    };
    log::start(&log_settings);
    signals.starts();
    let files = open_files::raise();
    let watchdog = match Watchdog::start() {
        Ok(watchdog) => watchdog,
        Err(error) => return exit::fail(format_args!("cannot start: {error}")),
    };
    let opened = if command.wait_for_lock {
        match stand_by::wait_for_store(&data, &signals) {
            Ok(Some(opened)) => Ok(opened),
            Ok(None) => {
                warn_stopped_before();
                return Exit::Done;
            }
            Err(error) => Err(error),
        }
    } else {
        client::open_patiently(|| tidegate_store::open(&data)).map(stand_by::Opened::at_once)
    };
    let stand_by::Opened { store, writer, waited } = match opened {
        Ok(opened) => opened,
        Err(error) => return exit::fail(Chain(&error)),
    };
    if waited {
        // The files may have changed since.
        loaded = load();
        if loaded.as_ref().is_ok_and(|generation| generation.configuration.data != data) {
            return exit::fail("the data folder has changed meanwhile: start again");
        }
    }
    let sought = reload::sought(&loaded);
    let (generation, resumed) = match choose(command, load_options(), loaded, &store) {
        Ok(chosen) => chosen,
        Err(exit) => return exit,
    };
    let configuration = Arc::clone(&generation.configuration);
    let options = options(command, &configuration);
    let clock = Arc::new(SystemClock);
    let run = match tidegate_engine::Run::new(generation, (store.clone(), writer), clock, options) {
        Ok(run) => run,
        Err(error) => return exit::fail(Chain(&error)),
    };
    let run = run
        .with_attempts(CrashGuard::open(&configuration.data, configuration.guarded_steps()))
        .with_setups(Setups::open(&configuration.data));
    let run = resumed.into_iter().fold(run, tidegate_engine::Run::with_rollback);
    let guard = ExitGuard::new();
    let conversations = ipc::OpenConnections::default();
    let stats = run.stats();
    let context = ipc::RunnerContext { store, handle: run.handle() };
    let server = match listen(&context, files, waited) {
        Ok(server) => server,
        Err(exit) => return exit,
    };
    let handle = run.handle();
    watchdog.watches(run.handle());
    signals.runs(run.handle());
    converse(&signals, context, conversations.clone(), files);
    // A run until idle carries out the files as they were at its start.
    if !command.until_idle
        && !command.no_watch
        && let Err(error) = reload::watch::start(handle.clone(), sought)
    {
        return exit::fail(format_args!("cannot watch the configuration: {error}"));
    }
    let progress = RunProgress::start(&configuration, Arc::clone(&stats));
    let started = Instant::now();
    let number = handle.generation().number;
    let outcome = run.run_with(|| supervisor::ready(&format!("generation {number} runs")));
    let elapsed = started.elapsed();
    supervisor::stopping();
    drop(guard);
    drop(progress);
    if let Some(server) = server {
        server.finish();
    }
    conversations.remove_socket(&configuration.data);
    conversations.finish();
    log::write_rest(true);
    match outcome {
        Ok(report) => {
            sum_up(&handle.generation().configuration, &stats, &report, elapsed);
            // The run is stuck also if a signal ended the rest of it.
            let stuck = report.end == RunOutcome::Halted || !report.halts.is_empty();
            let exit = if stuck { Exit::Failed } else { Exit::Done };
            if report.left_behind {
                leave(exit.code().into());
            }
            exit
        }
        Err(error) => exit::fail(Chain(&error)),
    }
}

/// The data folder and the settings of the log.
fn place(
    command: &cli::RunArguments,
    options: &LoadOptions,
    loaded: &Result<Generation, Diagnostics>,
) -> Result<(PathBuf, LogSettings), Exit> {
    match loaded {
        Ok(Generation { configuration, .. }) => Ok((configuration.data.clone(), configuration.log.clone())),
        // A generation that was rolled back to goes on although the files have mistakes.
        Err(diagnostics) => match rollback::readable_part(command, options) {
            Some(configuration) => Ok((configuration.data, configuration.log)),
            None => Err(refuse(diagnostics)),
        },
    }
}

/// The generation to carry out: that of the files, or that of a rollback that is in force.
fn choose(
    command: &cli::RunArguments,
    options: LoadOptions,
    loaded: Result<Generation, Diagnostics>,
    store: &Store,
) -> Result<(Generation, Option<ResumedRollback>), Exit> {
    let resumed = if command.from_files {
        None
    } else {
        rollback::resumed(&command.config, options, loaded.as_ref(), store)
    };
    let (generation, resumed) = match (resumed, loaded) {
        (Some((generation, resumed)), _) => (generation, Some(resumed)),
        (None, Ok(generation)) => (generation, None),
        (None, Err(diagnostics)) => return Err(refuse(&diagnostics)),
    };
    exit::show(&generation.warnings);
    Ok((generation, resumed))
}

/// Reports the errors of the configuration, in the form of its log if that can be read.
fn refuse(diagnostics: &Diagnostics) -> Exit {
    if diagnostics.log_format() == LogFormat::Json {
        console::speak_json();
    }
    exit::show(diagnostics);
    Exit::Configuration
}

fn options(command: &cli::RunArguments, configuration: &Configuration) -> RunOptions {
    let default = RunOptions::default();
    let settings = &configuration.settings;
    RunOptions {
        until_idle: command.until_idle,
        exit_on_halt: command.exit_on_halt,
        workers: settings.workers,
        shutdown_timeout: settings.shutdown_timeout.unwrap_or(default.shutdown_timeout),
        hosts_commands: true,
        ..default
    }
}

/// Reports the outcome of the run, in the form of its log.
fn sum_up(configuration: &Configuration, stats: &Stats, report: &RunReport, elapsed: Duration) {
    let drained = report.end == RunOutcome::Drained;
    let failed = summary::failed(configuration, stats);
    let halted = report.end == RunOutcome::Halted;
    let is_asked = drained || halted || !failed.is_empty();
    let store = is_asked.then(|| query::Afterwards::open(configuration)).flatten();
    let left = match &store {
        Some(store) if drained => query::left(configuration, stats, store),
        Some(store) if halted => query::left_in_halted_lanes(configuration, stats, store),
        _ => (!drained).then(query::Backlog::default),
    };
    let open = store.and_then(|store| query::still_open(configuration, &failed, &store)).unwrap_or_default();
    let failed = (&failed, &open);
    let run = summary::RunEnd { configuration, stats, report, elapsed, left: left.as_ref(), failed };
    if console::speaks_json() {
        let (message, fields) = run.record();
        console::record(console::Gravity::Info, log_target::SUMMARY, &message, &fields);
    } else {
        console::write(&run.summary());
    }
}

/// Opens the port of the settings, if they name one. The runner before this one may close it a moment later than its
/// store (`waited`).
fn listen(context: &ipc::RunnerContext, files: u64, waited: bool) -> Result<Option<Server>, Exit> {
    let Some(address) = context.configuration().settings.listen else { return Ok(None) };
    let started = Instant::now();
    let opened = loop {
        match Server::start(address, context.clone(), files) {
            Err(error)
                if waited
                    && error.kind() == io::ErrorKind::AddrInUse
                    && started.elapsed() < PORT_PATIENCE =>
            {
                thread::sleep(stand_by::PAUSE);
            }
            outcome => break outcome,
        }
    };
    match opened {
        Ok(server) => {
            tracing::info!(target: log_target::RUNNER, address = %server.address(), "listening");
            Ok(Some(server))
        }
        Err(error) => {
            let help = match error.kind() {
                io::ErrorKind::AddrInUse => format!(
                    "; the port is already in use: choose another port, or find the process with \
                     `ss -ltnp 'sport = :{}'`",
                    address.port()
                ),
                io::ErrorKind::PermissionDenied => {
                    "; choose a port from 1024 on, or allow the process to open this one".to_owned()
                }
                io::ErrorKind::AddrNotAvailable => {
                    "; it is not an address of this machine: choose one that `ip addr` lists".to_owned()
                }
                _ => String::new(),
            };
            let why = format_args!("cannot listen on {address} (`[runner] listen`): {error}{help}");
            Err(exit::fail(why))
        }
    }
}

/// Answers questions on the local socket until the process ends.
fn converse(signals: &Signals, context: ipc::RunnerContext, conversations: ipc::OpenConnections, files: u64) {
    let configuration = context.configuration();
    let _inside = signals.runtime().enter();
    match ipc::serve(&configuration.data, context, conversations, files) {
        Ok(serve) => drop(signals.runtime().spawn(serve)),
        // A file system without sockets must not keep jobs from running.
        Err(error) => warn_without_socket(&configuration.data, &error),
    }
}

fn warn_without_socket(data: &Path, error: &io::Error) {
    tracing::warn!(target: log_target::RUNNER, %error, folder = %shown(data), "the local socket cannot be opened: commands cannot reach this runner");
}
