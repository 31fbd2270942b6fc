//! Run: starts one run of a configuration, and gives other threads a handle to it.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::Sender;

use super::error::EngineError;
use super::report::{
    LingeringStep, RefusedReload, ReloadOutcome, ResumedRollback, RolledBack, RolledBackBefore, RunOptions,
    RunReport,
};
use crate::commit::inbox::{Inbox, Push};
use crate::generation::Generation;
use crate::generation::bindings;
use crate::generation::current::{CurrentGeneration, NumberedGeneration};
use crate::generation::history;
use crate::generation::obstacles;
use crate::generation::trial::{self, FailedSetup, TrialResources};
use crate::operator::request::{PendingRequest, Reply, Request, RequestOutcome};
use crate::recovery::start;
use crate::runtime::message::Message;
use crate::runtime::takeover;
use crate::runtime::{Runtime, RuntimeParts};
use crate::step::counts::StepCounts;
use crate::step::queue_view::QueueView;
use crate::step::stats::Stats;
use tidegate_components::exec::RunningCommands;
use tidegate_components::plugin::Setups;
use tidegate_components::table_rows::RowCounts;
use tidegate_config::{
    Configuration, ConfigurationDigest, Diagnostics, QueueRef, QueueTable, Readings, RunnerAspect,
};
use tidegate_dispatch::RunOutcome;
use tidegate_model::sync::MutexGuard;
use tidegate_model::{Address, Clock, PartNames, SystemClock};
use tidegate_store::{CrashGuard, ReadError, Store, Trigger, Writer};

/// A run that is ready to start.
#[expect(missing_debug_implementations, reason = "a clock has no useful debug output")]
pub struct Run(RuntimeParts);

/// Handle to a run, for other threads.
#[derive(Clone, Debug)]
pub struct Handle {
    messages: Sender<Message>,
    inbox: Arc<Inbox>,
    attempts: CrashGuard,
    setups: Setups,
    stats: Arc<Stats>,
    running_commands: Arc<RunningCommands>,
    ending: Arc<AtomicBool>,
    started: Arc<AtomicBool>,
    current: Arc<CurrentGeneration>,
    store: Store,
}

impl Handle {
    /// Requests the end of the run: running jobs are finished and committed, no further job starts.
    pub fn stop(&self) {
        self.ending.store(true, Ordering::Release);
        // A run that has ended needs no stop.
        let _ = self.messages.send(Message::Stop);
    }

    /// Ingests jobs. The push is answered once they are durable. Returns `false` if the run has ended and
    /// refused them.
    pub fn push(&self, push: Push) -> bool {
        match self.inbox.put(push) {
            Some(true) => self.messages.send(Message::Arrived).is_ok(),
            Some(false) => true,
            None => false,
        }
    }

    /// Number of jobs on the queue of a push source that its slowest step has not accounted for.
    #[must_use]
    pub fn waiting(&self, queue: QueueRef) -> u64 {
        self.inbox.waiting(queue)
    }

    /// Prepares the end of the process in the middle of running jobs, so that no job is blamed for it.
    /// Commands are killed now.
    pub fn abandon(&self) {
        self.attempts.close();
        self.running_commands.kill();
        self.setups.close();
    }

    /// View of the waiting jobs of the step at this position. Returns `None` for an ordered step, or if the
    /// run has ended.
    #[must_use]
    pub fn view(&self, step: usize) -> Option<Box<QueueView>> {
        let (reply, answer) = crossbeam_channel::bounded(1);
        self.messages.send(Message::Inspect { step, reply }).ok()?;
        answer.recv().ok().flatten()
    }

    /// Payload of the job at `index` of an input, if the step has begun the job and still has it in memory.
    /// Step and input are given by position.
    #[must_use]
    pub fn payload(&self, (step, input): (usize, usize), index: u64) -> Option<Vec<u8>> {
        let (reply, answer) = crossbeam_channel::bounded(1);
        self.messages.send(Message::Payload { step, input, index, reply }).ok()?;
        answer.recv().ok().flatten()
    }

    /// Counts of all steps by position, with at most `lanes` lanes each. Returns `None` if the run has ended. For a queued step the count walks every waiting job.
    #[must_use]
    pub fn all_counts(&self, lanes: usize) -> Option<HashMap<usize, StepCounts>> {
        let (reply, answer) = crossbeam_channel::bounded(1);
        self.messages.send(Message::Count { lanes, reply }).ok()?;
        answer.recv().ok()
    }

    /// Counts of a table of the configuration in force; `None` if it is not built yet.
    #[must_use]
    pub fn table_counts(&self, table: &QueueTable) -> Option<RowCounts> {
        self.current.tables.counts(&self.current.get().configuration, table)
    }

    /// Files of these steps that have changed on disk since the run has read them.
    #[must_use]
    pub fn changed_files(&self, steps: &[Address]) -> Vec<PathBuf> {
        let current = self.current.get();
        current.files.changed(&current.configuration, steps)
    }

    /// Whether the texts of the files on disk differ from those of the current generation.
    #[must_use]
    pub fn files_differ(&self) -> bool {
        let current = self.current.get();
        current.files.differ(&current.configuration, SystemClock.now())
    }

    /// All parts that the store has something of.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn known_parts(&self) -> Result<PartNames, ReadError> {
        self.store.known_parts()
    }

    /// Records the files that a reading of the configuration looked for, whether it takes effect or not.
    pub fn note_sought(&self, files: BTreeSet<PathBuf>) {
        self.current.set_sought(files);
    }

    /// Files that the last reading of the configuration looked for. A change of one of them is a reason to read it
    /// again.
    #[must_use]
    pub fn sought_files(&self) -> BTreeSet<PathBuf> {
        self.current.sought()
    }

    /// Generation that the run carries out now.
    #[must_use]
    pub fn generation(&self) -> Arc<NumberedGeneration> {
        self.current.get()
    }

    /// Settings of a configuration with this digest that wait for the next start.
    #[must_use]
    pub fn waiting_for_restart(&self, digest: &ConfigurationDigest) -> Vec<RunnerAspect> {
        self.current.waiting_for_restart(digest)
    }

    /// Carries out another generation, and waits until it is the current one. Steps that still deliver what they
    /// have begun after some seconds are in the outcome. Returns `None` if the run has ended or ends.
    #[must_use]
    pub fn reload(&self, next: &Generation, trigger: Trigger) -> Option<ReloadOutcome> {
        takeover::swap(&self.current, &self.messages, &self.store, next, trigger, None)
    }

    /// As [`Self::reload`], with the recorded files of this earlier generation. `between`: the configurations between
    /// it and the current one, by which renamed steps get their earlier names back.
    #[must_use]
    pub fn roll_back(
        &self,
        earlier: &Generation,
        back: RolledBack,
        between: &[Arc<Configuration>],
    ) -> Option<ReloadOutcome> {
        takeover::swap(
            &self.current,
            &self.messages,
            &self.store,
            earlier,
            back.trigger,
            Some((back, between)),
        )
    }

    /// Rollback to the generation that the run carries out again, although the files differ.
    #[must_use]
    pub fn rolled_back(&self) -> Option<RolledBack> {
        self.current.back_to()
    }

    /// Rollback of the files before the run started with them again.
    #[must_use]
    pub fn rolled_back_before(&self) -> Option<RolledBackBefore> {
        self.current.back_before()
    }

    /// Rollback of a configuration with this digest, while it lasts.
    #[must_use]
    pub fn rolled_back_of(&self, digest: &ConfigurationDigest) -> Option<u64> {
        self.current.rolled_back_of(digest)
    }

    /// New and changed sources and sinks of a configuration that cannot be opened, with the reasons. `between`: for a
    /// rollback, as of [`Self::roll_back`].
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn obstacles(
        &self,
        next: &Generation,
        between: Option<&[Arc<Configuration>]>,
    ) -> Result<Vec<(Address, String)>, ReadError> {
        obstacles::find(&next.configuration, &self.current.get(), between, &self.store)
    }

    /// Plugins of new and changed steps that cannot be set up. Waits some seconds at most.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn failed_setups(&self, next: &Generation) -> io::Result<Vec<FailedSetup>> {
        let resources = TrialResources {
            running_commands: Arc::clone(&self.running_commands),
            ending: Arc::clone(&self.ending),
            setups: self.setups.clone(),
            tables: Arc::clone(&self.current.tables),
        };
        trial::failures(next, &self.current.get().digest, resources)
    }

    /// The obstacles that can be found without a change of any file: for a plan.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn foreseen_obstacles(&self, next: &Generation) -> Result<Vec<(Address, String)>, ReadError> {
        obstacles::foresee(&next.configuration, &self.current.get().configuration, None, &self.store)
    }

    /// Waits for the reload before, so that none replaces a later one by files that it has read earlier.
    /// Returns the declarations of the last load. There are none at first, since most runs are never reloaded.
    pub fn reload_turn(&self) -> MutexGuard<'_, Readings> {
        self.current.turn.lock()
    }

    /// Records the present texts of files that mean the same as the configuration of the generation `current`, also in
    /// the history.
    pub fn note_files(&self, current: u64, next: &Generation, trigger: Trigger) {
        if !self.current.note_files(current, &next.files) {
            return;
        }
        if let Some(entry) = history::of_generation(&self.current.get(), trigger) {
            // A run that is over records nothing: the next one records its files.
            let _ = self.messages.send(Message::Recorded(Box::new(entry)));
        }
    }

    /// Records a refused reload. Returns whether its mistakes are new.
    pub fn refuse_reload(&self, refused: RefusedReload) -> bool {
        self.current.health.refuse(refused)
    }

    /// Adds a refused configuration to the history.
    pub fn record_refused(&self, diagnostics: &Diagnostics, trigger: Trigger, why: String) {
        let current = self.current.get();
        let entry = history::of_refused(diagnostics, &current.configuration.root, trigger, why);
        // A run that is over records nothing.
        let _ = self.messages.send(Message::Recorded(Box::new(entry)));
    }

    /// Records that the files have no mistakes. Returns whether that is new.
    pub fn accept_reload(&self) -> bool {
        self.current.health.accept()
    }

    /// Last reload, if it was refused and the files still have mistakes.
    #[must_use]
    pub fn refused_reload(&self) -> Option<RefusedReload> {
        self.current.health.get()
    }

    /// Steps that finish jobs of an earlier generation before they follow the current one.
    #[must_use]
    pub fn lingering(&self) -> Vec<LingeringStep> {
        let (reply, answer) = crossbeam_channel::bounded(1);
        if self.messages.send(Message::Linger { reply }).is_err() {
            return Vec::new();
        }
        answer.recv().unwrap_or_default()
    }

    /// Whether the steps are recovered, so that jobs can run.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }

    /// Whether the run ends or has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// Counters of the run, updated while it runs.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Requests a change and waits until it is durable.
    ///
    /// # Errors
    /// The reason for a refusal, as a sentence.
    pub fn ask(&self, request: Request) -> Result<RequestOutcome, String> {
        let ending = || Err("the runner is shutting down; try again when it has restarted".to_owned());
        self.ask_unless_it_ends(request).unwrap_or_else(ending)
    }

    /// Like [`Self::ask`], but returns `None` if the run has ended and nothing was changed.
    pub fn ask_unless_it_ends(&self, request: Request) -> Option<Result<RequestOutcome, String>> {
        let (reply, answer) = crossbeam_channel::bounded(1);
        self.ask_with(request, Reply::from(reply)).then(|| answer.recv().ok()).flatten()
    }

    /// Like [`Self::ask`], but does not wait. Returns whether the run received the request. If `reply` is
    /// dropped without an answer, the run has ended and nothing was changed.
    #[must_use]
    pub fn ask_with(&self, request: Request, reply: Reply) -> bool {
        self.messages.send(Message::Asked(PendingRequest::new(request, reply))).is_ok()
    }
}

impl Run {
    /// # Errors
    /// The store cannot be read.
    pub fn new(
        generation: impl Into<Generation>,
        (store, writer): (Store, Writer),
        clock: Arc<dyn Clock>,
        options: RunOptions,
    ) -> Result<Self, EngineError> {
        let Generation { configuration, plugins, files, .. } = generation.into();
        let configuration = bindings::mark_bindings(&configuration, &store)?;
        let stats = Arc::new(Stats::new(clock.now()));
        configuration.steps.order().iter().for_each(|&position| drop(stats.step(position)));
        let number = start::number(&configuration, &store)?;
        let generation = NumberedGeneration::new(number, configuration, plugins, files);
        let parts = RuntimeParts {
            current: Arc::new(CurrentGeneration::new(generation)),
            store,
            writer,
            attempts: CrashGuard::none(),
            setups: Setups::none(),
            clock,
            options,
            stats,
            messages: crossbeam_channel::unbounded(),
            inbox: Arc::default(),
            running_commands: Arc::default(),
            ending: Arc::default(),
            started: Arc::default(),
        };
        Ok(Self(parts))
    }

    /// Sets the crash guard, which records attempts so that the next run knows the jobs that crashed this
    /// one.
    #[must_use]
    pub fn with_attempts(mut self, attempts: CrashGuard) -> Self {
        self.0.attempts = attempts;
        self
    }

    /// Sets the record of setups, for the same purpose.
    #[must_use]
    pub fn with_setups(mut self, setups: Setups) -> Self {
        self.0.setups = setups;
        self
    }

    /// Sets the rollback that its generation goes on with.
    #[must_use]
    pub fn with_rollback(self, resumed: ResumedRollback) -> Self {
        self.0.current.resume(resumed);
        self
    }

    #[must_use]
    pub fn handle(&self) -> Handle {
        let RuntimeParts {
            current,
            messages,
            inbox,
            attempts,
            setups,
            stats,
            running_commands,
            ending,
            started,
            store,
            ..
        } = &self.0;
        Handle {
            messages: messages.0.clone(),
            inbox: Arc::clone(inbox),
            attempts: attempts.clone(),
            setups: setups.clone(),
            stats: Arc::clone(stats),
            running_commands: Arc::clone(running_commands),
            ending: Arc::clone(ending),
            started: Arc::clone(started),
            current: Arc::clone(current),
            store: store.clone(),
        }
    }

    /// Counters of this run, updated while it runs.
    #[must_use]
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.0.stats)
    }

    /// Runs on this thread until all work is delivered, or until a stop.
    ///
    /// # Errors
    /// The run cannot start, or the store fails. Jobs that were not committed are delivered in the next run.
    pub fn run(self) -> Result<RunReport, EngineError> {
        self.run_with(|| {})
    }

    /// As [`Self::run`], and calls `started` once the steps are recovered and jobs can run.
    ///
    /// # Errors
    /// As of [`Self::run`].
    pub fn run_with(self, started: impl FnOnce()) -> Result<RunReport, EngineError> {
        let Some(mut runtime) = Runtime::start(self.0)? else {
            return Ok(RunReport {
                end: RunOutcome::Stopped,
                halts: vec![],
                abandoned: false,
                left_behind: false,
            });
        };
        started();
        let outcome = runtime.work();
        runtime.close(outcome)
    }
}
