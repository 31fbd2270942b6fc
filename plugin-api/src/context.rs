//! `Context`: the runner's services for a step, which are logging, tokens, and the signal to stop.
//!
//! The host belongs to a runner that may be older than this crate. Its fields are read one by one, never as a
//! whole. Later fields are read only if its size includes them.

use std::fmt;
use std::mem::offset_of;
use std::time::Duration;

use crate::abi::{TIDEGATE_OK, TIDEGATE_TOKEN_LEN, TidegateBytes, TidegateHost, TidegateSetup};
use crate::{Job, Level, borrowed};

/// An instance's handle of the runner. Clones may be passed to other threads. A clone that outlives its step
/// keeps the plugin's library loaded until the runner ends, and the runner logs a warning.
pub struct Context {
    host: *const TidegateHost,
    facts: std::sync::Arc<Facts>,
}

#[derive(Debug)]
struct Facts {
    pipeline: String,
    step: String,
    bindings: Vec<String>,
    timeout: Option<Duration>,
}

// SAFETY: the functions of a host may be called from any thread, and the host lives while it is retained,
// which each context does for itself. All other shared data are immutable texts.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// # Safety
    /// `setup` fulfils the ABI: it and all its pointers are valid during this call, the host until it is
    /// released.
    pub(crate) unsafe fn new(setup: *const TidegateSetup) -> Self {
        // SAFETY: the caller vouches for it. The runner may know fewer fields, or more.
        let setup = unsafe { borrowed::sized(setup) };
        let bindings = (0..setup.binding_count).map(|position| {
            // SAFETY: `binding_count` of them are in an array.
            unsafe { borrowed::text(*setup.bindings.add(position)) }
        });
        // SAFETY: texts that live for this call.
        let (pipeline, step) = unsafe { (borrowed::text(setup.pipeline), borrowed::text(setup.step)) };
        let timeout = (setup.timeout_ms > 0).then(|| Duration::from_millis(setup.timeout_ms));
        let facts = Facts { pipeline, step, bindings: bindings.collect(), timeout };
        let context = Self { host: setup.host, facts: std::sync::Arc::new(facts) };
        context.retain();
        context
    }

    /// The pipeline of the step.
    #[must_use]
    pub fn pipeline(&self) -> &str {
        &self.facts.pipeline
    }

    /// The step's name in its pipeline.
    #[must_use]
    pub fn step(&self) -> &str {
        &self.facts.step
    }

    /// The names of the step's outputs: one empty name for `to = "…"`, none for a step without `to`.
    #[must_use]
    pub fn bindings(&self) -> &[String] {
        &self.facts.bindings
    }

    /// Maximum time of an attempt, for all processors of the step together.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.facts.timeout
    }

    /// Writes to the runner's log, under the plugin's name.
    pub fn log(&self, level: Level, message: impl fmt::Display) {
        let message = message.to_string();
        // SAFETY: the host is retained, and has had these fields from the first version on.
        let (context, log) = unsafe { ((*self.host).context, (*self.host).log) };
        if let Some(log) = log {
            // SAFETY: as the ABI asks; the text lives until the call returns.
            unsafe { log(context, level.to_abi(), TidegateBytes::of(message.as_bytes())) };
        }
    }

    pub fn error(&self, message: impl fmt::Display) {
        self.log(Level::Error, message);
    }

    pub fn warn(&self, message: impl fmt::Display) {
        self.log(Level::Warn, message);
    }

    pub fn info(&self, message: impl fmt::Display) {
        self.log(Level::Info, message);
    }

    pub fn debug(&self, message: impl fmt::Display) {
        self.log(Level::Debug, message);
    }

    pub fn trace(&self, message: impl fmt::Display) {
        self.log(Level::Trace, message);
    }

    /// Whether running code should end soon: the attempt is past its timeout, or the step is gone. An attempt
    /// that waits or loops should check it regularly, since code in the runner's process cannot be ended
    /// otherwise.
    #[must_use]
    pub fn stopping(&self) -> bool {
        // SAFETY: as in `log`.
        let (context, stopping) = unsafe { ((*self.host).context, (*self.host).stopping) };
        // SAFETY: as the ABI asks.
        stopping.is_some_and(|stopping| unsafe { stopping(context) } != 0)
    }

    /// The token of `job`. An external system to which the job was submitted ([`Failure::pending`]) sends it
    /// with the completion, by `POST /jobs/…/complete`. The token is the same on every attempt, and is
    /// computed on request. Each of the first 256 pieces of a job has its own, and each of them completes the
    /// job. `None` if the runner is too old to have tokens.
    ///
    /// [`Failure::pending`]: crate::Failure::pending
    #[must_use]
    pub fn token(&self, job: &Job<'_>) -> Option<String> {
        // SAFETY: as in `log`.
        let (context, size) = unsafe { ((*self.host).context, (*self.host).size) };
        if size <= offset_of!(TidegateHost, token) {
            return None;
        }
        // SAFETY: the size includes it.
        let make = unsafe { (*self.host).token }?;
        let mut token = [0; TIDEGATE_TOKEN_LEN];
        #[expect(clippy::cast_possible_truncation, reason = "the upper and the lower half")]
        let (high, low) = ((job.hash >> 64) as u64, job.hash as u64);
        // SAFETY: the contract of the ABI: `token` has space for a token.
        let status = unsafe { make(context, high, low, token.as_mut_ptr()) };
        if status == TIDEGATE_OK { String::from_utf8(token.to_vec()).ok() } else { None }
    }

    fn retain(&self) {
        // SAFETY: the host is alive: it is already retained, or belongs to the call that sets up. It has had
        // these fields from the first version on.
        let (context, retain) = unsafe { ((*self.host).context, (*self.host).retain) };
        if let Some(retain) = retain {
            // SAFETY: as the ABI asks.
            unsafe { retain(context) };
        }
    }
}

impl Clone for Context {
    fn clone(&self) -> Self {
        let context = Self { host: self.host, facts: std::sync::Arc::clone(&self.facts) };
        context.retain();
        context
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: as in `log`; it is retained until the call below.
        let (context, release) = unsafe { ((*self.host).context, (*self.host).release) };
        if let Some(release) = release {
            // SAFETY: each context retained it once.
            unsafe { release(context) };
        }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("facts", &self.facts).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
