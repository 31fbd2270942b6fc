//! The process that runs a plugin for the runner: `tidegate plugin-host`, which nobody calls by hand.
//!
//! Its standard input is a socket to the runner, its standard output the shared file. Both are put
//! aside first, so that a plugin that prints does no harm.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};
use tidegate_plugin::{Failure, Level, Outputs};

use super::clock::{BATCH_BYTES, BATCH_TIME, Ticks};
use super::frames::{self, Jobs, Setup};
use super::image::Image;
use super::loaded::Loaded;
use super::step::{Journal, PluginRunner, PluginSpec};

/// Serves until the runner is through with it.
///
/// # Errors
/// Where it was not called by a runner, or the runner is gone.
pub fn serve() -> io::Result<()> {
    // Where the runner is killed, a plugin that hangs must not live on.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let shared = Arc::new(Mutex::new(Shared {
        file: File::from(rustix::stdio::stdout().try_clone_to_owned()?),
        written: 0,
        frames: Vec::new(),
        open: true,
    }));
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;

    let (setup, image) = frames::receive_setup(&mut socket)?;
    let mut runner = match create(&setup, image, &shared) {
        Ok(runner) => runner,
        Err(failure) => {
            let written = Shared::with(&shared, |shared| {
                frames::write_failed(&failure, &mut shared.frames);
                shared.flush()
            });
            written?;
            return socket.write_all(&[frames::REFUSED]);
        }
    };
    Shared::with(&shared, Shared::close)?;
    socket.write_all(&[frames::DONE])?;
    work(&mut runner, &setup, &shared, &mut socket)
}

/// Works off batches of jobs as long as some come.
fn work(
    runner: &mut PluginRunner,
    setup: &Setup,
    shared: &Arc<Mutex<Shared>>,
    socket: &mut UnixStream,
) -> io::Result<()> {
    let mut outputs = Outputs::new(setup.bindings.iter().map(String::as_str));
    let mut jobs = Jobs::default();
    let ticks = Ticks::fit_for(setup.timeout);
    while let Some(stops) = jobs.receive(socket)? {
        Shared::with(shared, Shared::begin)?;
        let (mut earlier, batch_begun) = (Duration::ZERO, Ticks::Coarse.now());
        for position in 0..jobs.len() {
            let Some(job) = jobs.get(position) else { continue };
            if position == 0 || !jobs.are_one(position - 1, position) {
                earlier = Duration::ZERO;
            }
            outputs.clear();
            let spent = jobs.spent(position) + earlier;
            let left = setup.timeout.map(|timeout| timeout.saturating_sub(spent));
            let begun = ticks.now();
            let processed = runner.process_within(&job, &mut outputs, left);
            let took = Duration::from_nanos(ticks.now().saturating_sub(begun));
            earlier += took;
            let written = Shared::with(shared, |shared| {
                match &processed {
                    Ok(()) => frames::write_made(&outputs, took, &mut shared.frames),
                    Err(failure) => frames::write_failed(failure, &mut shared.frames),
                }
                shared.flush().map(|()| shared.written)
            })?;
            // Where it cannot be set up again after a panic, the runner begins with another process.
            if processed.is_err_and(|failure| stops || failure.of_setup) {
                break;
            }
            // The runner asks for the rest, or gives it to another process. Pieces of one job stay together.
            let elapsed = Duration::from_nanos(Ticks::Coarse.now().saturating_sub(batch_begun));
            let is_over = elapsed > BATCH_TIME || written > BATCH_BYTES as u64;
            if is_over && !jobs.are_one(position, position + 1) {
                break;
            }
        }
        Shared::with(shared, Shared::close)?;
        socket.write_all(&[frames::DONE])?;
    }
    Ok(())
}

fn create(setup: &Setup, image: Vec<u8>, shared: &Arc<Mutex<Shared>>) -> Result<PluginRunner, Failure> {
    let loaded = Image::of(&setup.path, image).map_err(Into::into).and_then(Loaded::open);
    let loaded = loaded.map_err(Failure::failed)?;
    let offer =
        loaded.offer(&setup.named, Some(&setup.offer)).map_err(|(message, _)| Failure::failed(message))?;
    let bindings: Vec<&str> = setup.bindings.iter().map(String::as_str).collect();
    let spec = PluginSpec {
        named: &setup.named,
        pipeline: &setup.pipeline,
        step: &setup.step,
        config: &setup.config,
        // The runner makes its failures and messages clean.
        secrets: &[],
        bindings: &bindings,
        timeout: setup.timeout,
        memory: setup.memory,
        token_key: &setup.token_key,
        earlier: setup.earlier,
    };
    let mut runner = PluginRunner::with_journal(offer, &spec, Box::new(Relay(Arc::clone(shared))));
    runner.set_up()?;
    Ok(runner)
}

/// The shared file, and what is to be written to it.
struct Shared {
    file: File,
    written: u64,
    frames: Vec<u8>,
    /// The runner has not been told yet that it may empty the file.
    open: bool,
}

impl Shared {
    fn with<T>(shared: &Mutex<Self>, run: impl FnOnce(&mut Self) -> T) -> T {
        run(&mut shared.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The runner has emptied the file.
    fn begin(&mut self) -> io::Result<()> {
        (self.written, self.open) = (0, true);
        self.flush()
    }

    fn close(&mut self) -> io::Result<()> {
        self.flush()?;
        self.open = false;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.open && !self.frames.is_empty() {
            self.file.write_all_at(&self.frames, self.written)?;
            self.written += self.frames.len() as u64;
            self.frames.clear();
        }
        Ok(())
    }
}

/// Hands on what a plugin logs; what comes between batches waits for the next one.
struct Relay(Arc<Mutex<Shared>>);

impl Journal for Relay {
    fn log(&self, level: Level, message: &str) {
        Shared::with(&self.0, |shared| {
            frames::write_log(level, message, &mut shared.frames);
            let _ = shared.flush(); // a line of the log is no reason to stop
        });
    }
}
