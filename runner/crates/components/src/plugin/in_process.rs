//! `PluginRunner`: runs a plugin's step in the runner's own process.
//!
//! Code that hangs in this process cannot be ended: `timeout` is cooperative here. The plugin can ask whether
//! it is over, and an attempt that returns later has failed.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_plugin::abi::TIDEGATE_TOKEN_LEN;
use tidegate_plugin::host::{Ended, Host, Instance, Offer, Spec, ended_late};
use tidegate_plugin::{Failure, FailureKind, Job, Level, Outputs, Step};

use super::inside::{Act, Label, enter};
use crate::coarse_clock::CoarseClock;
use crate::plugin::Setups;
use crate::redact::Redactor;
use tidegate_model::log_target;
use tidegate_model::{DeliveryHash, Secret, TokenKey, piece_hash};

/// The settings of a plugin's step; borrowed from the configuration.
#[derive(Clone, Copy, Debug)]
pub struct PluginSpec<'a> {
    /// The name of the plugin in the configuration: `geo/nearest`.
    pub named: &'a str,
    pub pipeline: &'a str,
    pub step: &'a str,
    pub config: &'a serde_json::Value,
    /// The parts of it that must not be shown.
    pub secrets: &'a [Secret],
    pub bindings: &'a [&'a str],
    pub timeout: Option<Duration>,
    /// Maximum bytes of the outputs of a job.
    pub memory: u64,
    /// The key that signs the tokens of jobs.
    pub token_key: &'a TokenKey,
    /// Number of times that the same plugin occurs before this one in its step.
    pub earlier: u32,
}

/// Runs a plugin's step on jobs. Lives on one thread.
#[derive(Debug)]
pub struct PluginRunner {
    offer: Offer,
    label: Label,
    setups: Setups,
    /// `None` before the first job, and after a panic until the next one.
    instance: Option<Instance>,
    watch: Arc<AttemptWatch>,
    named: String,
    pipeline: String,
    step: String,
    config: String,
    bindings: Vec<String>,
    timeout: Option<Duration>,
    timeout_nanos: u64,
    /// Maximum bytes of the outputs of a job.
    memory: u64,
    /// Number of times that the same plugin occurs before this one in its step.
    earlier: u32,
}

/// The runner's services for an instance.
struct AttemptWatch {
    ticks: CoarseClock,
    /// The end of the attempt; `u64::MAX` for never.
    deadline: AtomicU64,
    journal: Box<dyn Journal>,
    token_key: TokenKey,
}

/// The log of a plugin.
pub(crate) trait Journal: fmt::Debug + Send + Sync {
    fn log(&self, level: Level, message: &str);
}

/// The runner's own log.
#[derive(Debug)]
pub(crate) struct Tracing {
    plugin: String,
    pipeline: String,
    step: String,
    scrub: Redactor,
}

/// The instance's end of the log.
struct LogLine(Arc<AttemptWatch>);

impl PluginSpec<'_> {
    fn label(&self) -> Label {
        let (plugin, step) = (format!("plugin `{}`", self.named), format!("{}/{}", self.pipeline, self.step));
        Label::of(&plugin, Some(&step))
    }
}

impl PluginRunner {
    /// For this thread; creates no instance yet.
    #[must_use]
    pub fn new(offer: &Offer, spec: &PluginSpec<'_>) -> Self {
        Self::recorded(offer, spec, &Setups::none())
    }

    /// As [`Self::new`], with recorded setups.
    #[must_use]
    pub fn recorded(offer: &Offer, spec: &PluginSpec<'_>, setups: &Setups) -> Self {
        Self::with_journal(offer, spec, Box::new(Tracing::new(spec)), setups)
    }

    /// The record of the creation of an instance.
    #[must_use]
    pub fn creation(spec: &PluginSpec<'_>) -> String {
        spec.label().at(Act::Create)
    }

    /// As [`Self::new`], with the caller's log.
    pub(crate) fn with_journal(
        offer: &Offer,
        spec: &PluginSpec<'_>,
        journal: Box<dyn Journal>,
        setups: &Setups,
    ) -> Self {
        let watch = Arc::new(AttemptWatch {
            ticks: CoarseClock::fit_for(spec.timeout),
            deadline: AtomicU64::new(u64::MAX),
            journal,
            token_key: spec.token_key.clone(),
        });
        Self {
            offer: offer.clone(),
            label: spec.label(),
            setups: setups.clone(),
            instance: None,
            watch,
            named: spec.named.to_owned(),
            pipeline: spec.pipeline.to_owned(),
            step: spec.step.to_owned(),
            config: spec.config.to_string(),
            bindings: spec.bindings.iter().map(|&binding| binding.to_owned()).collect(),
            timeout: spec.timeout,
            timeout_nanos: nanos(spec.timeout),
            memory: spec.memory,
            earlier: spec.earlier,
        }
    }

    /// Creates an instance if none exists: at first, and after a panic.
    ///
    /// # Errors
    /// The failure of the plugin.
    pub fn set_up(&mut self) -> Result<(), Failure> {
        if self.instance.is_none() {
            self.instance = Some(self.create()?);
        }
        Ok(())
    }

    fn create(&self) -> Result<Instance, Failure> {
        let bindings: Vec<&str> = self.bindings.iter().map(String::as_str).collect();
        let spec = Spec {
            pipeline: &self.pipeline,
            step: &self.step,
            config: &self.config,
            bindings: &bindings,
            timeout: self.timeout,
        };
        let (_setup, _stay) = (self.setups.begin(self.label.at(Act::Create)), enter(self.label, Act::Create));
        let created = self.offer.create(&spec, Box::new(LogLine(Arc::clone(&self.watch))));
        created.map_err(|failure| {
            let mut failure = failure;
            // No job exists that could be pending.
            if failure.kind == FailureKind::Pending {
                failure.kind = FailureKind::Failed;
            }
            failure = self.explained(failure, " while it was set up");
            failure.of_setup = true;
            failure
        })
    }

    /// Adds the plugin's name. A requested retry or closed gate stays unchanged.
    #[cold]
    fn explained(&self, mut failure: Failure, what: &str) -> Failure {
        let (named, message) = (&self.named, &failure.message);
        failure.message = match failure.kind {
            // It is the handle of a job, which external systems use.
            FailureKind::Pending => return failure,
            FailureKind::Panicked => format!("plugin `{named}` panicked{what}: {message}"),
            _ => format!("plugin `{named}`{what}: {message}"),
        };
        failure
    }

    /// Ends the instance, and logs an error of it.
    fn retire(&mut self) {
        let Some(instance) = self.instance.take() else { return };
        let (_setup, _stay) = (self.setups.begin(self.label.at(Act::End)), enter(self.label, Act::End));
        match instance.close() {
            Ok(Ended::Clean) => {}
            Ok(Ended::LeftBehind) => self.watch.journal.log(
                Level::Warn,
                "the step has ended, but a part of the plugin, perhaps a thread, still uses it; its \
                 library stays loaded until Tidegate ends",
            ),
            Err(failure) => {
                self.watch
                    .journal
                    .log(Level::Error, &format!("the plugin did not end as it should: {failure}"));
            }
        }
    }
}

impl PluginRunner {
    /// As `process`, for an attempt that has only `left` of its `timeout`.
    ///
    /// # Errors
    /// As `process`.
    pub fn process_within(
        &mut self,
        job: &Job<'_>,
        outputs: &mut Outputs,
        left: Option<Duration>,
    ) -> Result<(), Failure> {
        match left {
            Some(Duration::ZERO) => {
                ended_late(Ok(()), self.timeout).map_err(|failure| self.explained(failure, ""))
            }
            left => self.run(job, outputs, nanos(left)),
        }
    }

    fn run(&mut self, job: &Job<'_>, outputs: &mut Outputs, left_nanos: u64) -> Result<(), Failure> {
        self.set_up()?;
        // It was created above.
        let Some(instance) = &mut self.instance else { return Ok(()) };
        let ticks = self.watch.ticks;
        let deadline = ticks.now().saturating_add(left_nanos);
        self.watch.deadline.store(deadline, Ordering::Relaxed);
        let hash = piece_hash(DeliveryHash(job.hash), self.earlier, job.piece);
        let stay = enter(self.label, Act::Run { index: job.index });
        let mut processed = instance.process(&job.hashed(hash.0), outputs, self.memory);
        drop(stay);
        if ticks.now() > deadline {
            processed = ended_late(processed, self.timeout);
        }
        processed.map_err(|failure| {
            if failure.kind == FailureKind::Panicked {
                // Its state may be half-changed.
                self.retire();
            }
            self.explained(failure, "")
        })
    }
}

/// No limit is the longest possible time.
fn nanos(time: Option<Duration>) -> u64 {
    time.and_then(|time| u64::try_from(time.as_nanos()).ok()).unwrap_or(u64::MAX)
}

impl Step for PluginRunner {
    fn process(&mut self, job: &Job<'_>, outputs: &mut Outputs) -> Result<(), Failure> {
        self.run(job, outputs, self.timeout_nanos)
    }
}

impl Drop for PluginRunner {
    fn drop(&mut self) {
        self.retire();
    }
}

impl Host for LogLine {
    fn log(&self, level: Level, message: &str) {
        self.0.journal.log(level, message);
    }

    fn stopping(&self) -> bool {
        self.0.ticks.now() > self.0.deadline.load(Ordering::Relaxed)
    }

    fn token(&self, hash: u128) -> Option<[u8; TIDEGATE_TOKEN_LEN]> {
        self.0.token_key.token(DeliveryHash(hash)).as_bytes().try_into().ok()
    }
}

impl fmt::Debug for AttemptWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("ticks", &self.ticks).finish_non_exhaustive()
    }
}

impl Tracing {
    pub(crate) fn new(spec: &PluginSpec<'_>) -> Self {
        let [plugin, pipeline, step] = [spec.named, spec.pipeline, spec.step].map(str::to_owned);
        Self { plugin, pipeline, step, scrub: Redactor::new(spec.secrets) }
    }
}

impl Journal for Tracing {
    fn log(&self, level: Level, message: &str) {
        let Self { plugin, pipeline, step, scrub } = self;
        let message = scrub.clean(message);
        macro_rules! log {
            ($level:ident) => {
                tracing::$level!(target: log_target::PLUGIN, plugin, pipeline, step, "{message}")
            };
        }
        match level {
            Level::Error => log!(error),
            Level::Warn => log!(warn),
            Level::Info => log!(info),
            Level::Debug => log!(debug),
            Level::Trace => log!(trace),
        }
    }
}
