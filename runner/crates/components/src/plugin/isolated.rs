//! `Isolated`: the runner's side of a plugin's step in a process of its own (`isolate = "process"`).
//!
//! The runner survives everything that the plugin does to its process. Jobs before the running one already
//! have their answers, and jobs after it go to a new process. The job itself is run again, alone, until it
//! has killed `crash_limit` processes in a row, over all workers ([`Deaths`]). A process that dies while the
//! runner ends charges no job: the job stays in place for the next run.
//!
//! A process is killed if a job runs for longer than `timeout`. It is also killed if its memory exceeds
//! `limits.memory`, within a few milliseconds. The measure is resident anonymous memory beyond that after the
//! setup of the step; reserved address space does not count. All processes of its group are killed with it.

pub(crate) mod child;
#[expect(
    unsafe_code,
    reason = "blocks signals and ends the process, which the standard library does in another way"
)]
pub(crate) mod child_process;
pub(crate) mod deaths;
pub(crate) mod descriptor;
pub(crate) mod parent;
pub(crate) mod protocol;
pub(crate) mod seal;

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidegate_plugin::{Cause, Failure, FailureKind, Job, Level, Outputs, Step};

use self::deaths::{Culprit, Deaths};
use self::parent::{ChildProcess, ChildState};
use self::protocol::{BatchFrame, ChildAnswer, ChildRole, StepSetup};
use self::seal::random_key;
use super::description::Offered;
use super::image::Image;
use super::in_process::{Journal, PluginSpec, Tracing};
use super::loaded::Loaded;
use tidegate_model::{format_duration, format_size};

/// Time beyond `timeout` in which a process can end an attempt by itself.
const GRACE: Duration = Duration::from_millis(50);
/// Time for loading a library and setting up a step, in addition to the step's `timeout`.
const SETUP: Duration = Duration::from_secs(30);

/// Runs a plugin's step in a process of its own.
#[derive(Debug)]
pub struct Isolated {
    setup: StepSetup,
    image: Arc<Image>,
    journal: Arc<dyn Journal>,
    custody: Custody,
    /// Step and plugin, for counting deaths.
    place: Arc<str>,
    server: Option<ChildProcess>,
    /// The jobs of the batch, and the number of them that the caller has the answers of.
    jobs: BatchFrame,
    answered: usize,
    answers: VecDeque<ChildAnswer>,
    stops_at_failure: bool,
    /// A failure has ended the batch.
    stopped: bool,
    /// The end of the jobs that were sent.
    until: usize,
}

/// The fate of a job whose process died.
#[derive(Clone, Copy, Debug)]
pub enum AfterDeath {
    /// It is `crashed` at once: no job of its step is attempted twice.
    Crashed,
    /// It is attempted again until this number of processes in a row has died; without a limit, always.
    Again { crash_limit: Option<NonZeroU32> },
}

/// The rules for a job whose process dies.
#[derive(Clone, Debug)]
pub struct Custody {
    pub after_death: AfterDeath,
    /// Set when the runner ends.
    pub ending: Arc<AtomicBool>,
    /// Counted over all workers of the run.
    pub deaths: Arc<Deaths>,
}

/// Why a process ended.
#[derive(Debug)]
enum Ended {
    /// It died, possibly because of the running job.
    Died(String),
    /// It was killed, since the running job exceeded a limit.
    Killed(Option<Cause>, String),
    /// No new process can be started.
    Missing(Failure),
}

impl Isolated {
    /// Starts no process yet.
    #[must_use]
    pub fn new(loaded: &Loaded, offered: &Offered, spec: &PluginSpec<'_>, custody: Custody) -> Self {
        let setup = StepSetup {
            path: loaded.image().path().to_owned(),
            offer: offered.name.clone(),
            named: spec.named.to_owned(),
            pipeline: spec.pipeline.to_owned(),
            step: spec.step.to_owned(),
            config: spec.config.clone(),
            bindings: spec.bindings.iter().map(|&binding| binding.to_owned()).collect(),
            timeout: spec.timeout,
            memory: spec.memory,
            earlier: spec.earlier,
            seal: 0,
            token_key: spec.token_key.clone(),
        };
        let (named, earlier) = (spec.named, spec.earlier);
        let place = format!("{}/{} {named} {earlier}", spec.pipeline, spec.step).into();
        Self {
            setup,
            image: Arc::clone(loaded.image()),
            journal: Arc::new(Tracing::new(spec)),
            custody,
            place,
            server: None,
            jobs: BatchFrame::default(),
            answered: 0,
            answers: VecDeque::new(),
            stops_at_failure: false,
            stopped: false,
            until: 0,
        }
    }

    /// Starts a process if none exists, and sets up the step in it: at first, and after a crash.
    ///
    /// # Errors
    /// The failure of the plugin, or of starting the process.
    pub fn set_up(&mut self) -> Result<(), Failure> {
        match self.server {
            Some(_) => Ok(()),
            None => self.start(),
        }
    }

    /// Starts another batch, and drops the rest of the one before.
    pub fn begin(&mut self, stops_at_failure: bool) {
        self.jobs.clear();
        self.answers.clear();
        (self.answered, self.stopped, self.stops_at_failure) = (0, false, stops_at_failure);
    }

    /// Adds a job, or a piece of one, whose attempt has used `spent` of its time before.
    pub fn queue(&mut self, job: &Job<'_>, spent: Duration) {
        self.jobs.push(job, spent);
    }

    /// Whether answers of the batch are available for the caller.
    #[must_use]
    pub fn is_ahead(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Waits for the answer of the next job of the batch, and returns its duration.
    ///
    /// # Errors
    /// The failure of the plugin, or the death of its process.
    pub fn next(&mut self, outputs: &mut Outputs) -> Result<Duration, Failure> {
        if self.stopped || self.answered == self.jobs.len() {
            return Err(self.failure(FailureKind::Failed, "a job before this one ended the batch"));
        }
        let answer = loop {
            match self.answers.pop_front() {
                Some(answer) => break answer,
                None => self.work_on(),
            }
        };
        self.answered += 1;
        let (made, ended) = match answer {
            ChildAnswer::Made(made, took) => {
                self.forgive(self.answered - 1);
                (made, Ok(took))
            }
            ChildAnswer::Failed(failure, made) => {
                self.stopped = self.stops_at_failure;
                if failure.of_setup {
                    // The rest of the process is useless.
                    self.server = None;
                } else {
                    self.forgive(self.answered - 1);
                }
                (made, Err(failure))
            }
            ChildAnswer::Described(_) => {
                return Err(self.failure(FailureKind::Failed, "its process described itself"));
            }
        };
        for (position, payloads) in made.iter().enumerate() {
            if let Some(place) = outputs.get_mut(position) {
                place.append(payloads);
            }
        }
        ended
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

    /// Works until the next job has its answer, or a process has died over a job.
    fn work_on(&mut self) {
        let Err(ended) = self.work() else { return };
        self.server = None;
        // The jobs before it have their answers, so this one was running.
        let running = self.answered + self.answers.len();
        let failure = match ended {
            Ended::Died(why) if running == self.until => {
                self.journal.log(Level::Warn, &format!("{why} after the last job of a batch; no job failed"));
                return;
            }
            Ended::Killed(..) if running == self.until => return,
            Ended::Died(why) => match self.died_over(running, &why) {
                Some(failure) => failure,
                None => return,
            },
            Ended::Killed(cause, why) => {
                let mut failure = self.failure(FailureKind::Limit, &why);
                failure.cause = cause;
                failure
            }
            Ended::Missing(failure) => failure,
        };
        self.answers.push_back(ChildAnswer::Failed(failure, Vec::new()));
    }

    /// The job at this position ended without killing a process.
    fn forgive(&mut self, position: usize) {
        if self.custody.deaths.any()
            && let Some(culprit) = self.culprit(position)
        {
            self.custody.deaths.forget(&culprit);
        }
    }

    fn culprit(&self, position: usize) -> Option<Culprit> {
        let job = self.jobs.get(position)?;
        Some(Culprit { place: Arc::clone(&self.place), hash: job.hash, piece: job.piece })
    }

    /// Whether the job at this position has killed a process, and has not ended since.
    fn is_suspect(&self, position: usize) -> bool {
        self.culprit(position).is_some_and(|culprit| self.custody.deaths.has(&culprit))
    }

    /// The fate of the job at this position, over which a process has died; `None`: it is run again.
    fn died_over(&mut self, running: usize, why: &str) -> Option<Failure> {
        let AfterDeath::Again { crash_limit } = self.custody.after_death else {
            return Some(self.failure(FailureKind::Crashed, why));
        };
        if self.custody.ending.load(Ordering::Acquire) {
            let why = format!("{why} while the runner was ending; the job is run again by the next run");
            return Some(self.failure(FailureKind::GateClosed, &why));
        }
        let Some(culprit) = self.culprit(running) else {
            return Some(self.failure(FailureKind::Crashed, why));
        };
        let deaths = self.custody.deaths.add(culprit.clone());
        if crash_limit.is_some_and(|limit| deaths >= limit.get()) {
            self.custody.deaths.forget(&culprit);
            let often = if deaths == 1 { String::new() } else { format!(", {deaths} times in a row") };
            return Some(self.failure(FailureKind::Crashed, &format!("{why}{often}")));
        }
        let index = self.jobs.get(running).map_or(0, |job| job.index);
        let most = crash_limit.map_or_else(|| "any number".to_owned(), |limit| format!("at most {limit}"));
        let message = format!("{why} at job {index}, which is run again alone (death {deaths} of {most})");
        self.journal.log(Level::Warn, &message);
        None
    }

    /// Sends the rest of the batch to the process, as far as it gets. A job that killed a process is sent
    /// alone.
    fn work(&mut self) -> Result<(), Ended> {
        self.weigh_between_batches();
        self.until = self.jobs.len();
        if self.custody.deaths.any() {
            let suspect = (self.answered..self.until).find(|&position| self.is_suspect(position));
            self.until = suspect.map_or(self.until, |suspect| suspect.max(self.answered + 1));
        }
        if !self.send() {
            // It died between two batches, which is no job's fault.
            self.server = None;
            self.start().map_err(Ended::Missing)?;
            self.send();
        }
        match self.wait(Self::time_left)? {
            ChildState::Gone => Err(Ended::Died(self.post_mortem())),
            // The rest is sent when the caller asks for it.
            ChildState::Cut if !self.answers.is_empty() => Ok(()),
            _ if self.is_answered() => Ok(()),
            _ => Err(Ended::Died("its process skipped the job, and was killed".to_owned())),
        }
    }

    /// Whether every sent job that had to run has its answer.
    fn is_answered(&self) -> bool {
        let ends_here = match self.answers.back() {
            Some(ChildAnswer::Failed(failure, _)) => self.stops_at_failure || failure.of_setup,
            _ => false,
        };
        self.answered + self.answers.len() == self.until || ends_here
    }

    /// Whether a process exists and could be reached.
    fn send(&mut self) -> bool {
        let Some(server) = &mut self.server else { return false };
        server.send(&self.jobs, self.answered..self.until, self.stops_at_failure).is_ok()
    }

    /// The time that the running job has left of its `timeout`. Earlier pieces of it and earlier processors
    /// have used some.
    fn time_left(&self) -> Option<Duration> {
        let (timeout, running) = (self.setup.timeout?, self.answered + self.answers.len());
        let earlier: Duration = (self.answered..running)
            .zip(&self.answers)
            .filter(|(position, _)| self.jobs.are_one(*position, running))
            .map(|(_, answer)| match answer {
                ChildAnswer::Made(_, took) => *took,
                ChildAnswer::Failed(..) | ChildAnswer::Described(_) => Duration::ZERO,
            })
            .sum();
        Some(timeout.saturating_sub(self.jobs.spent(running) + earlier))
    }

    fn time_for_setup(&self) -> Option<Duration> {
        self.setup.timeout.map(|timeout| timeout.saturating_add(SETUP))
    }

    /// Waits until the process is done, is gone, or must be killed, and reads all answers meanwhile. `left`
    /// returns the remaining time of the running code.
    fn wait(&mut self, left: fn(&Self) -> Option<Duration>) -> Result<ChildState, Ended> {
        let mut since = Instant::now();
        loop {
            let Some(server) = &mut self.server else { return Ok(ChildState::Gone) };
            let seen = server.look();
            match (server.take(&mut self.answers), seen) {
                (Err(_), _) | (_, ChildState::Stray) => {
                    let why =
                        "its process wrote invalid data into its connection to the runner, and was killed";
                    return Err(Ended::Died(why.to_owned()));
                }
                (Ok(moved), ChildState::Working) => {
                    if moved {
                        since = Instant::now();
                    }
                }
                (Ok(_), seen) => return Ok(seen),
            }
            if left(self).is_some_and(|left| since.elapsed() > left.saturating_add(GRACE)) {
                let timeout = format_duration(self.setup.timeout.unwrap_or_default());
                let why = format!("it exceeded its `timeout` of {timeout}; its process was killed");
                return Err(Ended::Killed(Some(Cause::Timeout), why));
            }
            if let Some(weight) = self.server.as_mut().and_then(ChildProcess::overweight) {
                return Err(Ended::Killed(None, self.too_heavy(weight)));
            }
        }
    }

    fn too_heavy(&self, weight: u64) -> String {
        let (weight, most) = (format_size(weight), format_size(self.setup.memory));
        format!("its process exceeded `limits.memory` ({most}) with {weight} of memory, and was killed")
    }

    /// A process that grows slowly, over many short jobs, is replaced without a failed job.
    fn weigh_between_batches(&mut self) {
        let Some(server) = self.server.as_mut().filter(|server| server.is_unwatched()) else {
            return;
        };
        if let Some(weight) = server.overweight() {
            let why = format!("{}; no job failed", self.too_heavy(weight));
            self.journal.log(Level::Warn, &why);
            self.server = None;
        }
    }

    fn start(&mut self) -> Result<(), Failure> {
        self.setup.seal = random_key();
        let order = ChildRole::Run(Box::new(self.setup.clone()));
        let (image, memory) = (&self.image, self.setup.memory);
        let started = ChildProcess::start(&order, image, memory, &self.journal, Stdio::inherit());
        let started = started.map_err(|error| format!("a process for it cannot be started: {error}"));
        self.server = Some(started.map_err(|why| self.failure_of_setup(FailureKind::Failed, &why))?);
        let (kind, why) = match self.wait(Self::time_for_setup) {
            Ok(ChildState::Done) => {
                if let Some(server) = &mut self.server {
                    server.set_up(self.setup.memory);
                }
                return Ok(());
            }
            Ok(ChildState::Gone) => (FailureKind::Crashed, self.post_mortem()),
            Ok(ChildState::Refused | ChildState::Cut | ChildState::Working | ChildState::Stray) => {
                self.server = None;
                if let Some(ChildAnswer::Failed(mut failure, _)) = self.answers.pop_back() {
                    failure.of_setup = true;
                    return Err(failure);
                }
                (FailureKind::Failed, "its process could not set it up".to_owned())
            }
            Err(Ended::Died(why)) => (FailureKind::Crashed, why),
            Err(Ended::Killed(_, why)) => (FailureKind::Limit, why),
            Err(Ended::Missing(failure)) => return Err(failure),
        };
        self.server = None;
        Err(self.failure_of_setup(kind, &format!("while it was set up, {why}")))
    }

    /// The cause of the process's death.
    fn post_mortem(&mut self) -> String {
        self.server.take().map_or_else(|| "its process is gone".to_owned(), ChildProcess::post_mortem)
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
        if let Some(why) = self.server.take().and_then(ChildProcess::dismiss) {
            self.journal.log(Level::Warn, &why);
        }
    }
}
