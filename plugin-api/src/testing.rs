//! Runs a step inside a test, without the runner.
//!
//! It goes through the functions of the ABI as the runner does, so that what holds here holds there.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::abi::TIDEGATE_TOKEN_LEN;
use crate::export::{self, Exported};
use crate::host::{Ended, Host, Instance, Keep, Plugin, Spec};
use crate::{Failure, FailureKind, Job, Level, Outputs, PluginStep};

/// An instance of a step.
pub struct Harness<S> {
    instance: Instance,
    bindings: Vec<String>,
    seen: Arc<Seen>,
    index: u64,
    _step: PhantomData<S>,
}

#[derive(Debug, Default)]
struct Seen {
    log: Mutex<Vec<(Level, String)>>,
    stop: AtomicBool,
}

/// What [`Context::token`](crate::Context::token) says of a job with this delivery hash in a [`Harness`]; of
/// the first job that is run it is 1, of the second one 2.
#[must_use]
pub fn token(hash: u128) -> String {
    format!("{:032x}", !hash)
}

/// What the instance sees of the test.
struct Watcher(Arc<Seen>);

impl<S: PluginStep> Harness<S> {
    /// A step with `to = "…"`; `config` is a JSON object.
    ///
    /// # Errors
    /// What [`PluginStep::create`] answers, or why the config cannot be read.
    pub fn new(config: &str) -> Result<Self, Failure> {
        Self::with_outputs(config, &[""])
    }

    /// A step with `to = { … }`, with these names.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_outputs(config: &str, bindings: &[&str]) -> Result<Self, Failure> {
        let seen = Arc::new(Seen::default());
        let spec = Spec {
            pipeline: "test",
            step: S::NAME,
            config,
            bindings,
            timeout: Some(Duration::from_secs(10)),
        };
        let plugin = plugin::<S>()?;
        let instance = plugin.offers()[0].create(&spec, Box::new(Watcher(Arc::clone(&seen))))?;
        let bindings = bindings.iter().map(|&binding| binding.to_owned()).collect();
        Ok(Self { instance, bindings, seen, index: 0, _step: PhantomData })
    }

    /// Runs a job, and answers with its outputs.
    ///
    /// # Errors
    /// What the step answers.
    pub fn run(&mut self, payload: &str) -> Result<Vec<String>, Failure> {
        Ok(self.run_to(payload)?.into_iter().map(|(_, output)| output).collect())
    }

    /// Runs a job, and answers with its outputs, each with the name of its binding.
    ///
    /// # Errors
    /// What the step answers.
    pub fn run_to(&mut self, payload: &str) -> Result<Vec<(String, String)>, Failure> {
        self.index += 1;
        let index = self.index;
        self.run_job(&Job {
            index,
            payload: payload.as_bytes(),
            attempt: 1,
            now_ms: 0,
            hash: u128::from(index),
        })
    }

    /// Runs one attempt of your making.
    ///
    /// # Errors
    /// What the step answers.
    pub fn run_job(&mut self, job: &Job<'_>) -> Result<Vec<(String, String)>, Failure> {
        let mut outputs = Outputs::new(self.bindings.iter().map(String::as_str));
        self.instance.process(job, &mut outputs)?;
        let mut all = Vec::new();
        for (name, payloads) in self.bindings.iter().zip(outputs.into_payloads()) {
            for payload in payloads.iter() {
                let text = std::str::from_utf8(payload).map_err(|error| {
                    Failure::new(FailureKind::Output, format!("an output is no text: {error}"))
                })?;
                all.push((name.clone(), text.to_owned()));
            }
        }
        Ok(all)
    }

    /// What the step has logged so far.
    #[must_use]
    pub fn log(&self) -> Vec<(Level, String)> {
        self.seen.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
        self.0.log.lock().unwrap_or_else(PoisonError::into_inner).push((level, message.to_owned()));
    }

    fn stopping(&self) -> bool {
        self.0.stop.load(Ordering::Acquire)
    }

    fn token(&self, hash: u128) -> Option<[u8; TIDEGATE_TOKEN_LEN]> {
        token(hash).as_bytes().try_into().ok()
    }
}
