//! One run, from the outside.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::Sender;

use super::as_read::AsRead;
use super::crew::{Crew, Parts};
use super::error::EngineError;
use super::glance::Glance;
use super::message::Message;
use super::push::{Inbox, Push};
use super::report::{Options, Report};
use super::request::{Asked, Granted, Reply, Request};
use super::sight::Sight;
use super::stats::Stats;
use tidegate_components::exec::Leash;
use tidegate_components::plugin::Plugins;
use tidegate_components::plugin::Setups;
use tidegate_config::{Configuration, QueueRef};
use tidegate_dispatch::End;
use tidegate_model::{Address, Clock};
use tidegate_store::{Attempts, Store, Writer};

/// A run that is ready to start.
#[expect(missing_debug_implementations, reason = "a clock has no form for people")]
pub struct Run(Parts, Arc<AsRead>);

/// Talks to a run from another thread.
#[derive(Clone, Debug)]
pub struct Handle {
    messages: Sender<Message>,
    inbox: Arc<Inbox>,
    attempts: Attempts,
    setups: Setups,
    stats: Arc<Stats>,
    leash: Arc<Leash>,
    ending: Arc<AtomicBool>,
    files: Arc<AsRead>,
}

impl Handle {
    /// Asks the run to end: what runs is finished and committed, nothing more is started.
    pub fn stop(&self) {
        self.ending.store(true, Ordering::Release);
        // A run that is over needs no stopping.
        let _ = self.messages.send(Message::Stop);
    }

    /// Brings jobs, which are answered for once they are durable. `false`: the run is over, and they
    /// were not taken.
    pub fn push(&self, push: Push) -> bool {
        match self.inbox.put(push) {
            Some(true) => self.messages.send(Message::Arrived).is_ok(),
            Some(false) => true,
            None => false,
        }
    }

    /// The jobs of a queue that is a source's, which its slowest reader has not accounted for.
    #[must_use]
    pub fn waiting(&self, queue: QueueRef) -> u64 {
        self.inbox.waiting(queue)
    }

    /// The process is about to end in the middle of whatever runs, through no fault of any job. Commands end
    /// now.
    pub fn abandon(&self) {
        self.attempts.close();
        self.leash.kill();
        self.setups.close();
    }

    /// What can be seen of the waiting jobs of the step at this position; `None` where it takes them as
    /// they come, or the run ends.
    #[must_use]
    pub fn sight(&self, step: usize) -> Option<Box<Sight>> {
        let (reply, answer) = crossbeam_channel::bounded(1);
        self.messages.send(Message::Look { step, reply }).ok()?;
        answer.recv().ok().flatten()
    }

    /// The payload of the job at `index` of an input of a step, each by its position, where the step has begun
    /// it and still has it in memory.
    #[must_use]
    pub fn payload(&self, (step, input): (usize, usize), index: u64) -> Option<Vec<u8>> {
        let (reply, answer) = crossbeam_channel::bounded(1);
        self.messages.send(Message::Payload { step, input, index, reply }).ok()?;
        answer.recv().ok().flatten()
    }

    /// How many jobs of each step stand where, in the order of the configuration, and up to so many of its
    /// lanes; `None`: the run ends. Of a step that picks its jobs this looks at every one that waits.
    #[must_use]
    pub fn glances(&self, lanes: usize) -> Option<Vec<Glance>> {
        let (reply, answer) = crossbeam_channel::bounded(1);
        self.messages.send(Message::Glance { lanes, reply }).ok()?;
        answer.recv().ok()
    }

    /// The files of these steps that have changed on disk since the run has read them.
    #[must_use]
    pub fn changed_files(&self, steps: &[Address]) -> Vec<PathBuf> {
        self.files.changed(steps)
    }

    /// The counts of the run, which grow while it runs.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Asks for a change, and waits until it is durable.
    ///
    /// # Errors
    /// Why not, as a sentence.
    pub fn ask(&self, request: Request) -> Result<Granted, String> {
        let ending = || Err("the runner is just ending; ask again".to_owned());
        self.ask_unless_it_ends(request).unwrap_or_else(ending)
    }

    /// As [`Self::ask`]. `None`: the run ends, and nothing was changed.
    pub fn ask_unless_it_ends(&self, request: Request) -> Option<Result<Granted, String>> {
        let (reply, answer) = crossbeam_channel::bounded(1);
        self.ask_with(request, Reply::from(reply)).then(|| answer.recv().ok()).flatten()
    }

    /// As [`Self::ask`], without waiting. Answers whether the run has heard it; where `reply` is dropped
    /// without an answer all the same, the run has ended before, and nothing was changed.
    #[must_use]
    pub fn ask_with(&self, request: Request, reply: Reply) -> bool {
        self.messages.send(Message::Asked(Asked::new(request, reply))).is_ok()
    }
}

impl Run {
    #[must_use]
    pub fn new(
        configuration: Arc<Configuration>,
        (store, writer): (Store, Writer),
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Self {
        let stats = Arc::new(Stats::new(configuration.steps.len(), clock.now()));
        let messages = crossbeam_channel::unbounded();
        let (plugins, attempts) = (Arc::default(), Attempts::none());
        let inbox = Arc::new(Inbox::new(configuration.queues.len()));
        let parts = Parts {
            configuration,
            plugins,
            store,
            writer,
            attempts,
            setups: Setups::none(),
            clock,
            options,
            stats,
            messages,
            inbox,
            leash: Arc::default(),
            ending: Arc::default(),
        };
        Self(parts, Arc::default())
    }

    /// With the plugins that the configuration's steps name.
    #[must_use]
    pub fn with_plugins(mut self, plugins: Arc<Plugins>) -> Self {
        self.0.plugins = plugins;
        self
    }

    /// Knows the files that its configuration was made of.
    #[must_use]
    pub fn with_files(mut self, files: Arc<AsRead>) -> Self {
        self.1 = files;
        self
    }

    /// Writes down what is attempted, so that the next run knows what took this one down.
    #[must_use]
    pub fn with_attempts(mut self, attempts: Attempts) -> Self {
        self.0.attempts = attempts;
        self
    }

    /// Writes down what is set up, for the same.
    #[must_use]
    pub fn with_setups(mut self, setups: Setups) -> Self {
        self.0.setups = setups;
        self
    }

    #[must_use]
    pub fn handle(&self) -> Handle {
        let Parts { messages, inbox, attempts, setups, stats, leash, ending, .. } = &self.0;
        Handle {
            messages: messages.0.clone(),
            inbox: Arc::clone(inbox),
            attempts: attempts.clone(),
            setups: setups.clone(),
            stats: Arc::clone(stats),
            leash: Arc::clone(leash),
            ending: Arc::clone(ending),
            files: Arc::clone(&self.1),
        }
    }

    /// The counts of this run, which grow while it runs.
    #[must_use]
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.0.stats)
    }

    /// Runs on this thread until everything is delivered, or somebody stops it.
    ///
    /// # Errors
    /// Where it cannot start, or the store fails. What was not committed is delivered next time.
    pub fn run(self) -> Result<Report, EngineError> {
        let Some(mut crew) = Crew::start(self.0)? else {
            return Ok(Report { end: End::Stopped, halts: vec![], abandoned: false, left_behind: false });
        };
        let outcome = crew.work();
        crew.close(outcome)
    }
}
