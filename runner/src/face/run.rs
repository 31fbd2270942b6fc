//! `tidegate run`.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::cli;
use super::exit::{self, Exit};
use super::http::Server;
use super::progress::Progress;
use super::{control, find, log, look, summary};
use crate::decide::End;
use crate::engine::{self, Chain, Generation, Handle, Options};
use crate::hands::open_files;
use crate::store::{self, Attempts};
use crate::words::SystemClock;

pub(super) fn run(command: &cli::Run) -> Exit {
    let generation =
        match Generation::load(&command.config, &find::options(command.data.clone(), &command.plugins)) {
            Ok(generation) => generation,
            Err(diagnostics) => {
                exit::show(&diagnostics);
                return Exit::Configuration;
            }
        };
    exit::show(&generation.warnings);
    let configuration = generation.configuration;
    log::start(&configuration.log);
    let files = open_files::raise();
    let (store, writer) = match find::open_patiently(|| store::open(&configuration.data)) {
        Ok(opened) => opened,
        Err(error) => return exit::fail(Chain(&error)),
    };
    let mut options = Options {
        until_idle: command.until_idle,
        workers: configuration.settings.workers,
        ..Options::default()
    };
    if let Some(timeout) = configuration.settings.shutdown_timeout {
        options.shutdown_timeout = timeout;
    }
    let clock = Arc::new(SystemClock);
    let run = engine::Run::new(Arc::clone(&configuration), (store.clone(), writer), clock, options)
        .with_plugins(generation.plugins)
        .with_attempts(Attempts::open(&configuration.data));
    let conversations = control::Conversations::default();
    let stats = run.stats();
    let desk = control::Desk { store, configuration: Arc::clone(&configuration), handle: run.handle() };
    let server = match listen(desk.clone(), files) {
        Ok(server) => server,
        Err(exit) => return exit,
    };
    if let Err(error) = start_io(desk, conversations.clone(), files) {
        return exit::fail(format_args!("cannot start: {error}"));
    }
    let progress = Progress::start(&configuration, Arc::clone(&stats));
    let started = Instant::now();
    let outcome = run.run();
    let elapsed = started.elapsed();
    drop(progress);
    if let Some(server) = server {
        server.finish();
    }
    conversations.remove_socket(&configuration.data);
    conversations.finish();
    match outcome {
        Ok(report) => {
            let drained = report.end == End::Drained;
            let left = if drained { look::left(&configuration, &stats) } else { Some(Vec::new()) };
            eprint!("{}", summary::summary(&configuration, &stats, &report, (elapsed, left.as_deref())));
            // Also where somebody stopped what was left of the run.
            let stuck = report.end == End::Halted || !report.halts.is_empty();
            if stuck { Exit::Failed } else { Exit::Done }
        }
        Err(error) => exit::fail(Chain(&error)),
    }
}

/// Opens the port that the settings name, if they do.
fn listen(desk: control::Desk, files: u64) -> Result<Option<Server>, Exit> {
    let Some(address) = desk.configuration.settings.listen else { return Ok(None) };
    match Server::start(address, desk, files) {
        Ok(server) => {
            tracing::info!(address = %server.address(), "listening");
            Ok(Some(server))
        }
        Err(error) => {
            let why = format_args!("cannot listen on {address} (`[runner] listen`): {error}");
            Err(exit::fail(why))
        }
    }
}

/// Starts the thread that carries signals and the local socket. It ends with the process.
fn start_io(desk: control::Desk, conversations: control::Conversations, files: u64) -> io::Result<()> {
    let (configuration, handle) = (Arc::clone(&desk.configuration), desk.handle.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let guard = runtime.enter();
    let signals = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    match control::serve(&configuration.data, desk, conversations, files) {
        Ok(serve) => {
            runtime.spawn(serve);
        }
        // A file system without sockets should not keep jobs from running.
        Err(error) => say_without_socket(&configuration.data, &error),
    }
    drop(guard);
    thread::Builder::new().name("io".into()).spawn(move || runtime.block_on(obey(signals, handle)))?;
    Ok(())
}

fn say_without_socket(data: &Path, error: &io::Error) {
    tracing::warn!(%error, folder = %data.display(), "no local socket: commands cannot look into this runner");
}

/// The first signal asks the run to end, the second ends the process.
async fn obey((mut terminate, mut interrupt): (Signal, Signal), handle: Handle) {
    let mut asked = false;
    loop {
        let code = tokio::select! {
            _ = terminate.recv() => 128 + 15,
            _ = interrupt.recv() => 128 + 2,
        };
        if asked {
            // Nothing is lost: what is not committed runs again.
            handle.abandon();
            std::process::exit(code);
        }
        asked = true;
        tracing::info!("stopping: what runs is finished first; a second signal ends at once");
        handle.stop();
    }
}
