//! `tidegate plugin-host`: the process that runs a plugin for the runner.
//!
//! Its standard input is a socket to the runner, its standard output the shared file. Both are moved to other
//! descriptors first, so that a plugin that prints does no harm. The socket for the lines of the log is
//! received over the first one.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use tidegate_plugin::host::Plugin;
use tidegate_plugin::{Failure, Level, Outputs};

use super::protocol;
use super::protocol::{BatchFrame, ChildRole, StepSetup};
use super::seal::Seals;
use super::{child_process, descriptor};
use crate::coarse_clock::{BATCH_BYTES, BATCH_TIME, CoarseClock};
use crate::plugin::Setups;
use crate::plugin::description::Description;
use crate::plugin::image::Image;
use crate::plugin::in_process::{Journal, PluginRunner, PluginSpec};
use crate::plugin::library;
use tidegate_model::sync::{Mutex, MutexGuard};

/// Serves until the runner closes the connection.
///
/// # Errors
/// It was not started by a runner, or the runner is gone.
pub fn serve() -> io::Result<()> {
    child_process::hear_no_requests_to_end()?;
    let (socket, file) = child_process::take_over_stdio()?;
    child_process::end_with_the_runner()?;
    let mut socket = UnixStream::from(socket);
    let lines = UnixStream::from(child_process::out_of_the_way(descriptor::receive(&socket)?)?);
    let (order, image) = protocol::receive_order(&mut socket)?;
    let seal = order.seal();
    let relay = Relay(Mutex::new((lines, Seals::new(seal, protocol::LINES))));
    let words = Seals::new(seal, protocol::WORDS);
    let mut answers = Answers {
        socket,
        words,
        file: File::from(file),
        frames: Vec::new(),
        written: 0,
        seals: Seals::new(seal, protocol::BATCHES),
    };
    match order {
        ChildRole::Describe { path, .. } => {
            let described = open(&path, image).map(|plugin| Description::from(&plugin));
            let Some(description) = answers.unless_failed(described)? else { return Ok(()) };
            answers.described(&description)?;
            answers.send_word(protocol::DONE)
        }
        ChildRole::Run(setup) => {
            let created = create(&setup, image, relay);
            let Some(mut runner) = answers.unless_failed(created)? else { return Ok(()) };
            answers.send_word(protocol::DONE)?;
            work(&mut runner, &setup, &mut answers)
        }
    }
}

fn open(path: &Path, image: Vec<u8>) -> Result<Plugin, Failure> {
    let image = Image::of(path, image).map_err(Failure::failed)?;
    library::open(&image).map_err(|error| Failure::failed(error.reason()))
}

/// Processes batches of jobs until the stream ends.
fn work(runner: &mut PluginRunner, setup: &StepSetup, answers: &mut Answers) -> io::Result<()> {
    let mut outputs = Outputs::new(setup.bindings.iter().map(String::as_str));
    let mut jobs = BatchFrame::default();
    let ticks = CoarseClock::fit_for(setup.timeout);
    for batch in 1.. {
        let Some(stops) = jobs.receive(&mut answers.socket)? else { break };
        answers.begin(setup.seal, batch);
        let (mut earlier, mut word, batch_begun) =
            (Duration::ZERO, protocol::DONE, CoarseClock::Coarse.now());
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
            match &processed {
                Ok(()) => answers.made(&outputs, took)?,
                Err(failure) => answers.failed(failure, &outputs)?,
            }
            // If it cannot be set up again after a panic, the runner starts another process.
            if processed.is_err_and(|failure| stops || failure.of_setup) {
                break;
            }
            // The runner sends the rest again, or gives it to another process. Pieces of one job stay
            // together.
            let elapsed = Duration::from_nanos(CoarseClock::Coarse.now().saturating_sub(batch_begun));
            let is_over = elapsed > BATCH_TIME || answers.written > BATCH_BYTES;
            if is_over && position + 1 < jobs.len() && !jobs.are_one(position, position + 1) {
                word = protocol::CUT;
                break;
            }
        }
        answers.send_word(word)?;
    }
    Ok(())
}

fn create(setup: &StepSetup, image: Vec<u8>, relay: Relay) -> Result<PluginRunner, Failure> {
    let plugin = open(&setup.path, image)?;
    let missing = || Failure::failed(format!("it has no step `{}`", setup.offer));
    let offer = plugin.offer(&setup.offer).ok_or_else(missing)?;
    let bindings: Vec<&str> = setup.bindings.iter().map(String::as_str).collect();
    let spec = PluginSpec {
        named: &setup.named,
        pipeline: &setup.pipeline,
        step: &setup.step,
        config: &setup.config,
        // The runner redacts its failures and messages.
        secrets: &[],
        bindings: &bindings,
        timeout: setup.timeout,
        memory: setup.memory,
        token_key: &setup.token_key,
        earlier: setup.earlier,
    };
    let mut runner = PluginRunner::with_journal(offer, &spec, Box::new(relay), &Setups::none());
    runner.set_up()?;
    Ok(runner)
}

/// The data for the runner: words over the socket, and outcomes of jobs into the shared file.
struct Answers {
    socket: UnixStream,
    words: Seals,
    /// Opened for appending.
    file: File,
    frames: Vec<u8>,
    /// Bytes of the batch that are written.
    written: usize,
    seals: Seals,
}

impl Answers {
    /// Starts the frames of this batch.
    fn begin(&mut self, seal: u64, batch: u64) {
        (self.seals, self.written) = (Seals::new(seal, protocol::BATCHES + batch), 0);
    }

    fn made(&mut self, outputs: &Outputs, took: Duration) -> io::Result<()> {
        protocol::write_made(outputs, took, &mut self.seals, &mut self.frames);
        self.flush()
    }

    fn failed(&mut self, failure: &Failure, outputs: &Outputs) -> io::Result<()> {
        protocol::write_failed(failure, outputs, &mut self.seals, &mut self.frames);
        self.flush()
    }

    fn described(&mut self, description: &Description) -> io::Result<()> {
        protocol::write_described(description, &mut self.seals, &mut self.frames);
        self.flush()
    }

    /// The value, or `None` if it failed and the failure was sent.
    fn unless_failed<T>(&mut self, asked: Result<T, Failure>) -> io::Result<Option<T>> {
        match asked {
            Ok(it) => Ok(Some(it)),
            Err(failure) => {
                self.failed(&failure, &Outputs::default())?;
                self.send_word(protocol::REFUSED)?;
                Ok(None)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.frames)?;
        self.written += self.frames.len();
        self.frames.clear();
        Ok(())
    }

    fn send_word(&mut self, kind: u8) -> io::Result<()> {
        self.socket.write_all(&self.words.word(kind))
    }
}

/// Passes on the log lines of a plugin, from any thread.
#[derive(Debug)]
struct Relay(Mutex<(UnixStream, Seals)>);

impl Relay {
    fn lines(&self) -> MutexGuard<'_, (UnixStream, Seals)> {
        self.0.lock()
    }
}

impl Journal for Relay {
    fn log(&self, level: Level, message: &str) {
        let (socket, seals) = &mut *self.lines();
        let mut frame = Vec::with_capacity(message.len() + 32);
        protocol::write_line(level, message, seals, &mut frame);
        let _ = socket.write_all(&frame); // a line of the log is no reason to stop
    }
}
