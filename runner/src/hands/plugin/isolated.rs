//! A plugin's step in a process of its own (`isolate = "process"`), seen from the runner.
//!
//! Whatever the plugin does to its process, the runner goes on: only the job that was running then
//! fails, the answers to those before it are there already, and those after it go to a new process. A
//! process that hangs is killed when a job has run for longer than `timeout`; one that holds more
//! memory than `limits.memory` is killed when that is noticed, within some milliseconds. What counts is
//! its resident anonymous memory beyond what it had when the step was set up: address space that is only
//! reserved does no harm.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_plugin::host::Offer;
use tidegate_plugin::{Cause, Failure, FailureKind, Job, Level, Outputs, Step};

use super::frames::{Jobs, Setup};
use super::image::Image;
use super::loaded::Loaded;
use super::server::{Answer, Seen, Server};
use super::step::{Journal, PluginSpec, Tracing};
use crate::words::{format_duration, format_size};

/// How much longer than `timeout` a process has for ending an attempt by itself.
const GRACE: Duration = Duration::from_millis(50);
/// How long a process may take to load a library and set up a step, beyond the step's `timeout`.
const SETUP: Duration = Duration::from_secs(30);

/// Runs a plugin's step in a process of its own.
#[derive(Debug)]
pub struct Isolated {
    setup: Setup,
    image: Arc<Image>,
    journal: Tracing,
    server: Option<Server>,
    /// Those of the batch, and how many of them have been answered to the caller.
    jobs: Jobs,
    answered: usize,
    answers: VecDeque<Answer>,
    stops_at_failure: bool,
    /// A failure has ended the batch.
    stopped: bool,
}

/// Why a process had to be ended, or has ended.
type Ended = (FailureKind, Option<Cause>, String);

impl Isolated {
    /// Starts no process yet.
    #[must_use]
    pub fn new(loaded: &Loaded, offer: &Offer, spec: &PluginSpec<'_>) -> Self {
        let setup = Setup {
            path: loaded.image().path().to_owned(),
            offer: offer.name().to_owned(),
            named: spec.named.to_owned(),
            pipeline: spec.pipeline.to_owned(),
            step: spec.step.to_owned(),
            config: spec.config.clone(),
            bindings: spec.bindings.iter().map(|&binding| binding.to_owned()).collect(),
            timeout: spec.timeout,
            memory: spec.memory,
            earlier: spec.earlier,
            token_key: spec.token_key.clone(),
        };
        Self {
            setup,
            image: Arc::clone(loaded.image()),
            journal: Tracing::new(spec),
            server: None,
            jobs: Jobs::default(),
            answered: 0,
            answers: VecDeque::new(),
            stops_at_failure: false,
            stopped: false,
        }
    }

    /// Starts a process where there is none, and sets up the step in it: at first, and after a crash.
    ///
    /// # Errors
    /// What the plugin says, or why there is no process.
    pub fn set_up(&mut self) -> Result<(), Failure> {
        match self.server {
            Some(_) => Ok(()),
            None => self.start(),
        }
    }

    /// Begins another batch, and forgets what is left of the one before.
    pub fn begin(&mut self, stops_at_failure: bool) {
        self.jobs.clear();
        self.answers.clear();
        (self.answered, self.stopped, self.stops_at_failure) = (0, false, stops_at_failure);
    }

    /// Adds to the batch a job, or a piece of one, whose attempt has used `spent` of its time before.
    pub fn queue(&mut self, job: &Job<'_>, spent: Duration) {
        self.jobs.push(job, spent);
    }

    /// Whether jobs of the batch are through that were not answered to the caller.
    #[must_use]
    pub fn is_ahead(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Waits for what the next job of the batch came to, and answers how long it took.
    ///
    /// # Errors
    /// What the plugin says, or what its process died of.
    pub fn next(&mut self, outputs: &mut Outputs) -> Result<Duration, Failure> {
        if self.stopped || self.answered == self.jobs.len() {
            return Err(self.failure(FailureKind::Failed, "a job before this one ended the batch"));
        }
        if self.answers.is_empty()
            && let Err(failure) = self.work()
            && self.answered + self.answers.len() < self.jobs.len()
        {
            // Those before it have their answers, so it is this one.
            self.answers.push_back(Err(failure));
        }
        self.answered += 1;
        let answer = self
            .answers
            .pop_front()
            .unwrap_or_else(|| Err(self.failure(FailureKind::Failed, "its process left the job out")));
        if answer.as_ref().is_err_and(|failure| failure.of_setup) {
            // What is left of the process is of no use.
            self.server = None;
        }
        self.stopped = answer.is_err() && self.stops_at_failure;
        let (made, took) = answer?;
        for (position, payloads) in made.iter().enumerate() {
            if let Some(place) = outputs.get_mut(position) {
                place.append(payloads);
            }
        }
        Ok(took)
    }

    /// As `process`, for an attempt that has only `left` of its `timeout`.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn process_within(
        &mut self,
        job: &Job<'_>,
        outputs: &mut Outputs,
        left: Option<Duration>,
    ) -> Result<(), Failure> {
        let spent = self.setup.timeout.zip(left).map(|(timeout, left)| timeout.saturating_sub(left));
        self.begin(false);
        self.queue(job, spent.unwrap_or_default());
        self.next(outputs).map(drop)
    }

    /// Has the process work off what is left of the batch, as far as it comes.
    fn work(&mut self) -> Result<(), Failure> {
        self.weigh_between_batches();
        if !self.send() {
            // It died between two batches, which is no job's fault.
            self.server = None;
            self.start()?;
            self.send();
        }
        let (kind, cause, why) = match self.wait(Self::time_left) {
            Ok(Seen::Gone) => (FailureKind::Crashed, None, self.post_mortem()),
            Ok(_) => return Ok(()),
            Err(ended) => {
                self.server = None;
                ended
            }
        };
        let failure = self.failure(kind, &why);
        Err(match cause {
            Some(cause) => failure.because(cause),
            None => failure,
        })
    }

    /// Whether there is a process and it could be reached.
    fn send(&mut self) -> bool {
        let Some(server) = &mut self.server else { return false };
        server.send(&self.jobs, self.answered, self.stops_at_failure).is_ok()
    }

    /// What the job that runs now has left of its `timeout`, of which pieces of it before this one and
    /// processors before this step's have used some.
    fn time_left(&self) -> Option<Duration> {
        let (timeout, running) = (self.setup.timeout?, self.answered + self.answers.len());
        let earlier: Duration = (self.answered..running)
            .zip(&self.answers)
            .filter(|(position, _)| self.jobs.are_one(*position, running))
            .filter_map(|(_, answer)| Some(answer.as_ref().ok()?.1))
            .sum();
        Some(timeout.saturating_sub(self.jobs.spent(running) + earlier))
    }

    fn time_for_setup(&self) -> Option<Duration> {
        self.setup.timeout.map(|timeout| timeout.saturating_add(SETUP))
    }

    /// Waits until the process is done, is gone, or has to be ended; takes in all answers on the way.
    /// `left` says how long what runs now may still take, from when it began.
    fn wait(&mut self, left: fn(&Self) -> Option<Duration>) -> Result<Seen, Ended> {
        let mut since = Instant::now();
        loop {
            let Some(server) = &mut self.server else { return Ok(Seen::Gone) };
            let seen = server.look();
            let mut lines = Vec::new();
            let took = server.take(&mut self.answers, &mut lines);
            for (level, message) in lines {
                self.journal.log(level, &message);
            }
            match (took, seen) {
                (Err(error), _) => {
                    return Err((FailureKind::Crashed, None, format!("its process wrote nonsense: {error}")));
                }
                (Ok(moved), Seen::Working) => {
                    if moved {
                        since = Instant::now();
                    }
                }
                (Ok(_), seen) => return Ok(seen),
            }
            if left(self).is_some_and(|left| since.elapsed() > left.saturating_add(GRACE)) {
                let timeout = format_duration(self.setup.timeout.unwrap_or_default());
                return Err((
                    FailureKind::Limit,
                    Some(Cause::Timeout),
                    format!("it ran for longer than `timeout` of {timeout}; its process was killed"),
                ));
            }
            if let Some(weight) = self.server.as_mut().and_then(Server::overweight) {
                return Err((FailureKind::Limit, None, self.too_heavy(weight)));
            }
        }
    }

    fn too_heavy(&self, weight: u64) -> String {
        let (weight, most) = (format_size(weight), format_size(self.setup.memory));
        format!(
            "its process came to hold {weight} of memory, more than `limits.memory` of {most}, and was killed"
        )
    }

    /// A process that grows slowly, over many short jobs, is replaced without harm to any of them.
    fn weigh_between_batches(&mut self) {
        let Some(server) = self.server.as_mut().filter(|server| server.is_unwatched()) else {
            return;
        };
        if let Some(weight) = server.overweight() {
            let why = format!("{}; no job failed of it", self.too_heavy(weight));
            self.journal.log(Level::Warn, &why);
            self.server = None;
        }
    }

    fn start(&mut self) -> Result<(), Failure> {
        let started = Server::start(&self.setup, &self.image);
        let started = started.map_err(|error| format!("a process for it cannot be started: {error}"));
        self.server = Some(started.map_err(|why| self.failure_of_setup(FailureKind::Failed, &why))?);
        let (kind, why) = match self.wait(Self::time_for_setup) {
            Ok(Seen::Done) => {
                if let Some(server) = &mut self.server {
                    server.set_up(self.setup.memory);
                }
                return Ok(());
            }
            Ok(Seen::Gone) => (FailureKind::Crashed, self.post_mortem()),
            Ok(Seen::Refused | Seen::Working) => {
                self.server = None;
                if let Some(Err(mut failure)) = self.answers.pop_back() {
                    failure.of_setup = true;
                    return Err(failure);
                }
                (FailureKind::Failed, "its process could not set it up".to_owned())
            }
            Err((kind, _, why)) => (kind, why),
        };
        self.server = None;
        Err(self.failure_of_setup(kind, &format!("while it was set up, {why}")))
    }

    /// What the process died of.
    fn post_mortem(&mut self) -> String {
        self.server.take().map_or_else(|| "its process is gone".to_owned(), Server::post_mortem)
    }

    fn failure_of_setup(&self, kind: FailureKind, why: &str) -> Failure {
        let mut failure = self.failure(kind, why);
        failure.of_setup = true;
        failure
    }

    fn failure(&self, kind: FailureKind, why: &str) -> Failure {
        Failure::new(kind, format!("plugin `{}`: {why}", self.setup.named))
    }
}

impl Step for Isolated {
    fn process(&mut self, job: &Job<'_>, outputs: &mut Outputs) -> Result<(), Failure> {
        self.process_within(job, outputs, self.setup.timeout)
    }
}

impl Drop for Isolated {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.dismiss();
        }
    }
}
