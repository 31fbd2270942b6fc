//! Runs a step inside a test, without the runner.
//!
//! It goes through the functions of the ABI as the runner does, and looks with the runner's own code at configs,
//! jobs and outputs: what is refused there is refused here. What it cannot show is what a runner does about it:
//! other attempts, other threads, other processes.

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

/// What a step in a test is given beside its config. Begins as what a configuration says that says nothing: one
/// output, no `timeout` but 10 s, and 64 MiB for the outputs of a job.
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
    /// When the attempt is over that runs.
    deadline: Mutex<Option<Instant>>,
}

/// What [`Context::token`](crate::Context::token) says of a job with this delivery hash in a [`Harness`]; of
/// the first job that is run it is 1, of the second one 2.
#[must_use]
pub fn token(hash: u128) -> String {
    format!("{:032x}", !hash)
}

/// What the instance sees of the test.
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

    /// A step with `to = { … }`, with these names; none for a step without `to`.
    pub fn outputs(mut self, bindings: &[&str]) -> Self {
        self.bindings = bindings.iter().map(|&binding| binding.to_owned()).collect();
        self
    }

    /// How long an attempt may take; `None` for as long as it takes.
    pub fn timeout(mut self, timeout: Option<Duration>) -> Self {
        self.timeout = timeout;
        self
    }

    /// `limits.memory` in bytes: what the outputs of a job may come to.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }
}

impl<S: PluginStep> Harness<S> {
    /// A step with `to = "…"`; `config` is a JSON object.
    ///
    /// # Errors
    /// Why the config does not fit the schema or cannot be read, or what [`PluginStep::create`] answers.
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

    /// Runs a job, and answers with its outputs.
    ///
    /// # Errors
    /// What the step answers, or what is wrong with the job or an output.
    pub fn run(&mut self, payload: &str) -> Result<Vec<String>, Failure> {
        Ok(self.run_to(payload)?.into_iter().map(|(_, output)| output).collect())
    }

    /// Runs a job, and answers with its outputs, each with the name of its binding.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_to(&mut self, payload: &str) -> Result<Vec<(String, String)>, Failure> {
        self.index += 1;
        self.run_job(&Job::new(self.index, payload.as_bytes()))
    }

    /// Runs one attempt of your making.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_job(&mut self, job: &Job<'_>) -> Result<Vec<(String, String)>, Failure> {
        json::check(job.payload)
            .map_err(|error| Failure::new(FailureKind::Payload, format!("the job is no JSON: {error}")))?;
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

    /// What the step has logged so far.
    #[must_use]
    pub fn log(&self) -> Vec<(Level, String)> {
        held(&self.seen.log).clone()
    }

    /// Lets [`Context::stopping`](crate::Context::stopping) say that the attempt should end.
    pub fn stop(&self) {
        self.seen.stop.store(true, Ordering::Release);
    }

    /// Drops the instance, and answers whether nothing of it is left.
    ///
    /// # Errors
    /// What a panic in its `drop` said.
    pub fn close(self) -> Result<Ended, Failure> {
        self.instance.close()
    }
}

/// Holds a config against the schema of the step, as `tidegate check` does.
fn hold_against(schema: Option<&str>, config: &str) -> Result<(), Failure> {
    let Some(text) = schema else { return Ok(()) };
    let schema =
        schema::read(text).map_err(|fault| Failure::failed(format!("the schema of the config {fault}")))?;
    let config = serde_json::from_str(config)
        .map_err(|error| Failure::failed(format!("the config is no JSON: {error}")))?;
    let mistakes = schema::mistakes(&schema, &config);
    if mistakes.is_empty() {
        return Ok(());
    }
    let told = mistakes.into_iter().map(|mistake| {
        let way = if mistake.at_key { &mistake.path[..mistake.path.len() - 1] } else { &mistake.path[..] };
        let named: Vec<&str> = std::iter::once("config").chain(way.iter().map(String::as_str)).collect();
        format!("`{}` {}", named.join("."), mistake.message)
    });
    Err(Failure::failed(told.collect::<Vec<_>>().join("; ")))
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

/// What a lock guards; nothing that could panic is done with it.
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
