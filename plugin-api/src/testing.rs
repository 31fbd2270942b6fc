//! `Harness`: runs a step in a test, without the runner.
//!
//! It calls the functions of the ABI as the runner does, and validates configs, jobs and outputs with the
//! runner's own code. So it refuses all that the runner refuses. It does not cover the runner's reaction:
//! retries, other threads, other processes.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::abi::TIDEGATE_TOKEN_LEN;
use crate::export::{self, Exported};
pub use crate::host::Ended;
use crate::host::{Host, Instance, Keep, Plugin, Spec, ended_late};
use crate::{Failure, FailureKind, Job, Level, Outputs, PluginStep, json, schema};

/// An instance of a step.
pub struct Harness<S> {
    instance: Instance,
    settings: Settings,
    seen: Arc<Seen>,
    index: u64,
    _step: PhantomData<S>,
}

/// The settings of a step in a test, beside its config. The defaults are those of a configuration: one
/// output, a `timeout` of 10 s, and 64 MiB for the outputs of a job.
#[derive(Clone, Debug)]
#[must_use]
pub struct Settings {
    bindings: Vec<String>,
    timeout: Option<Duration>,
    memory: u64,
}

#[derive(Debug, Default)]
struct Seen {
    log: Mutex<Vec<(Level, String)>>,
    stop: AtomicBool,
    /// The end of the running attempt.
    deadline: Mutex<Option<Instant>>,
}

/// The token that [`Context::token`](crate::Context::token) returns for a job with this delivery hash in a
/// [`Harness`]. The hash of the first job is 1, that of the second one 2.
#[must_use]
pub fn token(hash: u128) -> String {
    format!("{:032x}", !hash)
}

/// The instance's view of the test.
struct Watcher(Arc<Seen>);

impl Default for Settings {
    fn default() -> Self {
        Self { bindings: vec![String::new()], timeout: Some(Duration::from_secs(10)), memory: 64 << 20 }
    }
}

impl Settings {
    /// As [`Self::default`].
    pub fn new() -> Self {
        Self::default()
    }

    /// A step with `to = { … }`, with these names; empty for a step without `to`.
    pub fn outputs(mut self, bindings: &[&str]) -> Self {
        self.bindings = bindings.iter().map(|&binding| binding.to_owned()).collect();
        self
    }

    /// Maximum time of an attempt; `None` for no limit.
    pub fn timeout(mut self, timeout: Option<Duration>) -> Self {
        self.timeout = timeout;
        self
    }

    /// `limits.memory` in bytes: the maximum of a job's outputs.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }
}

impl<S: PluginStep> Harness<S> {
    /// A step with `to = "…"`; `config` is a JSON object.
    ///
    /// # Errors
    /// The config does not match the schema or cannot be read, or [`PluginStep::create`] failed.
    pub fn new(config: &str) -> Result<Self, Failure> {
        Self::with(Settings::new(), config)
    }

    /// A step with `to = { … }`, with these names.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_outputs(config: &str, bindings: &[&str]) -> Result<Self, Failure> {
        Self::with(Settings::new().outputs(bindings), config)
    }

    /// A step with these settings.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with(settings: Settings, config: &str) -> Result<Self, Failure> {
        let seen = Arc::new(Seen::default());
        let plugin = plugin::<S>()?;
        let offer = &plugin.offers()[0];
        hold_against(offer.schema(), config)?;
        let bindings: Vec<&str> = settings.bindings.iter().map(String::as_str).collect();
        let spec =
            Spec { pipeline: "test", step: S::NAME, config, bindings: &bindings, timeout: settings.timeout };
        let instance = offer.create(&spec, Box::new(Watcher(Arc::clone(&seen))))?;
        Ok(Self { instance, settings, seen, index: 0, _step: PhantomData })
    }

    /// Runs a job, and returns its outputs.
    ///
    /// # Errors
    /// The failure of the step, or the error of the job or an output.
    pub fn run(&mut self, payload: &str) -> Result<Vec<String>, Failure> {
        Ok(self.run_to(payload)?.into_iter().map(|(_, output)| output).collect())
    }

    /// Runs a job, and returns its outputs, each with the name of its binding.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_to(&mut self, payload: &str) -> Result<Vec<(String, String)>, Failure> {
        self.index += 1;
        self.run_job(&Job::new(self.index, payload.as_bytes()))
    }

    /// Runs one attempt with a given job.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_job(&mut self, job: &Job<'_>) -> Result<Vec<(String, String)>, Failure> {
        json::check(job.payload)
            .map_err(|error| Failure::new(FailureKind::Payload, format!("the job is not JSON: {error}")))?;
        let Settings { bindings, timeout, memory } = &self.settings;
        let mut outputs = Outputs::new(bindings.iter().map(String::as_str));
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        *held(&self.seen.deadline) = deadline;
        let processed = self.instance.process(job, &mut outputs, *memory);
        let is_late = deadline.is_some_and(|deadline| Instant::now() > deadline);
        if is_late { ended_late(processed, *timeout) } else { processed }?;
        let mut all = Vec::new();
        for (name, payloads) in bindings.iter().zip(outputs.into_payloads()) {
            let texts = payloads.iter().map(|payload| String::from_utf8_lossy(payload).into_owned());
            all.extend(texts.map(|text| (name.clone(), text)));
        }
        Ok(all)
    }

    /// The log of the step so far.
    #[must_use]
    pub fn log(&self) -> Vec<(Level, String)> {
        held(&self.seen.log).clone()
    }

    /// Makes [`Context::stopping`](crate::Context::stopping) return true.
    pub fn stop(&self) {
        self.seen.stop.store(true, Ordering::Release);
    }

    /// Drops the instance, and returns whether any part of it is left.
    ///
    /// # Errors
    /// The message of a panic in its `drop`.
    pub fn close(self) -> Result<Ended, Failure> {
        self.instance.close()
    }
}

/// Validates a config against the schema of the step, as `tidegate check` does.
fn hold_against(schema: Option<&str>, config: &str) -> Result<(), Failure> {
    let Some(text) = schema else { return Ok(()) };
    let schema =
        schema::read(text).map_err(|fault| Failure::failed(format!("the schema of the config {fault}")))?;
    let config = serde_json::from_str(config)
        .map_err(|error| Failure::failed(format!("the config is not JSON: {error}")))?;
    let mistakes = schema::mistakes(&schema, &config);
    if mistakes.is_empty() {
        return Ok(());
    }
    let messages = mistakes.into_iter().map(|mistake| {
        let way = if mistake.at_key { &mistake.path[..mistake.path.len() - 1] } else { &mistake.path[..] };
        let named: Vec<&str> = std::iter::once("config").chain(way.iter().map(String::as_str)).collect();
        format!("`{}` {}", named.join("."), mistake.message)
    });
    Err(Failure::failed(messages.collect::<Vec<_>>().join("; ")))
}

/// The step as a plugin of its own.
fn plugin<S: PluginStep>() -> Result<Plugin, Failure> {
    let steps: &'static [_] = Vec::leak(vec![export::step::<S>()]);
    let description: &'static Exported<_> =
        Box::leak(Box::new(Exported::new(export::plugin("test", "0", steps))));
    let keep: Keep = Arc::new(());
    // SAFETY: the description is never freed, and describes functions of this program.
    let attached = unsafe { Plugin::attach(description.get(), &keep) };
    attached.map_err(Failure::failed)
}

/// The value of a lock, which no code that may panic holds.
fn held<T>(lock: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S> fmt::Debug for Harness<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness")
            .field("instance", &self.instance)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

impl Host for Watcher {
    fn log(&self, level: Level, message: &str) {
        held(&self.0.log).push((level, message.to_owned()));
    }

    fn stopping(&self) -> bool {
        let is_late = held(&self.0.deadline).is_some_and(|deadline| Instant::now() > deadline);
        is_late || self.0.stop.load(Ordering::Acquire)
    }

    fn token(&self, hash: u128) -> Option<[u8; TIDEGATE_TOKEN_LEN]> {
        token(hash).as_bytes().try_into().ok()
    }
}
