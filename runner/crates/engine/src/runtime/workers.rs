//! Workers: run batches, gates and monitors on threads; each thread has its own copy of the steps that it has
//! run.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender};
use tidegate_plugin::{Failure, FailureKind};

use super::live_versions::LiveVersions;
use super::message::Message;
use crate::batch::input::BatchInput;
use crate::batch::result::{BatchResult, HaltCause, HaltReason};
use crate::batch::runner::{BatchRun, BatchRunner, Resumed};
use crate::commit::queue_tables::{QueueTables, TablesOf};
use crate::coordinator::BatchTask;
use crate::processor::SharedResources;
use crate::processor::mock::Mocks;
use crate::processor::monitor_protocol;
use crate::processor::monitor_protocol::{StatusQuery, StatusReport};
use crate::processor::probe::Probe;
use crate::processor::walk::Suspended;
use crate::step::declared::DeclaredStep;
use tidegate_components::calls::{Call, Calls};
use tidegate_components::exec::RunningCommands;
use tidegate_components::plugin::{Deaths, Setups};
use tidegate_components::script::{EntryPoint, STACK};
use tidegate_config::GateRef;
use tidegate_dispatch::JobKey;
use tidegate_model::{Clock, ExternalStatus, Timestamp, TokenKey, plain};
use tidegate_store::{CrashGuard, ParkedJob, ParkedKey, Store, WorkerSlot};

/// Context that all workers share.
pub(crate) struct WorkerContext {
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) token_key: TokenKey,
    pub(crate) tables: Arc<QueueTables>,
    /// All running commands.
    pub(crate) running_commands: Arc<RunningCommands>,
    /// Awaits requests and commands.
    pub(crate) calls: Calls,
    /// Set when the run must end.
    pub(crate) ending: Arc<AtomicBool>,
    pub(crate) deaths: Arc<Deaths>,
    pub(crate) attempts: CrashGuard,
    pub(crate) setups: Setups,
    /// Versions of the steps that stay set up.
    pub(crate) live: Arc<LiveVersions>,
    /// Mocks of a test; `None` in a run.
    pub(crate) mocks: Option<Arc<Mocks>>,
}

impl WorkerContext {
    fn common<'s>(&'s self, step: &'s DeclaredStep) -> SharedResources<'s> {
        SharedResources {
            plugins: &step.generation.plugins,
            token_key: &self.token_key,
            rows: TablesOf { tables: &self.tables, configuration: &step.generation.configuration },
            running_commands: &self.running_commands,
            calls: &self.calls,
            ending: &self.ending,
            deaths: &self.deaths,
            setups: &self.setups,
            mocks: self.mocks.as_ref(),
        }
    }
}

/// Work item of a worker.
#[derive(Debug)]
pub(crate) enum WorkerTask {
    Batch(BatchTask),
    /// Check whether the gate of this step is open, for an installation of the step.
    Gate {
        step: DeclaredStep,
        epoch: u64,
    },
    /// Poll the status of pending jobs.
    Status(StatusQuery),
}

/// Outcome of a task, or of its part up to a call.
#[derive(Debug)]
pub(crate) enum Begun {
    Ended(Message),
    /// The batch goes on with the answer to the call of its attempt.
    Calls(Call, BatchTask, Box<Suspended>),
}

impl WorkerTask {
    /// Position of its step.
    pub(crate) fn step(&self) -> usize {
        match self {
            Self::Batch(task) => task.step.position,
            Self::Gate { step, .. } => step.position,
            Self::Status(query) => query.step.position,
        }
    }
}

/// The queue of the batches with suspects, which wait for each other and keep no worker; `None` without suspects.
pub(crate) type SuspectQueue = Option<Sender<WorkerTask>>;

/// Starts the thread of the batches with suspects, if there are suspects. It ends when the queue is closed.
pub(crate) fn start_suspects(
    context: &Arc<WorkerContext>,
    messages: &Sender<Message>,
) -> std::io::Result<(SuspectQueue, Option<JoinHandle<()>>)> {
    if !context.attempts.has_suspects() {
        return Ok((None, None));
    }
    let (suspects, tasks) = crossbeam_channel::unbounded();
    let (context, messages) = (Arc::clone(context), messages.clone());
    let thread = thread::Builder::new()
        .name("suspects".into())
        .stack_size(STACK)
        .spawn(move || WorkerThread::new(&context).work(&tasks, &messages))?;
    Ok((Some(suspects), Some(thread)))
}

/// A worker thread, with the steps, gates and monitors that it has set up.
pub(crate) struct WorkerThread<'s> {
    context: &'s WorkerContext,
    /// `None` if it runs batches with suspects itself.
    suspects: SuspectQueue,
    slot: WorkerSlot,
    steps: SetUp<BatchRunner>,
    gates: SetUp<Probe>,
    monitors: SetUp<Probe>,
    /// Number of changes of the live versions that it knows.
    changes: u64,
}

/// Instances of one thread by position of the step, each for one version of the step.
#[derive(Debug)]
struct SetUp<T> {
    made: HashMap<usize, (u64, T)>,
    /// Whether one was made since the last look for instances that are not needed.
    has_new: bool,
}

impl<T> SetUp<T> {
    fn new() -> Self {
        Self { made: HashMap::new(), has_new: false }
    }

    /// Instance for this version of the step. One for another version is dropped.
    fn get(
        &mut self,
        step: &DeclaredStep,
        make: impl FnOnce() -> Result<T, String>,
    ) -> Result<&mut T, String> {
        if self.made.get(&step.position).is_none_or(|(version, _)| *version != step.version) {
            self.made.remove(&step.position);
            self.made.insert(step.position, (step.version, make()?));
            self.has_new = true;
        }
        // It is there now.
        self.made.get_mut(&step.position).map(|(_, made)| made).ok_or_else(|| PANICKED.to_owned())
    }

    fn forget(&mut self, step: &DeclaredStep) {
        self.made.remove(&step.position);
    }

    fn keep(&mut self, live: &LiveVersions) {
        self.made.retain(|&position, (version, _)| live.is_live(position, *version));
        self.has_new = false;
    }
}

impl<'s> WorkerThread<'s> {
    pub(crate) fn new(context: &'s WorkerContext) -> Self {
        let (steps, gates, monitors) = (SetUp::new(), SetUp::new(), SetUp::new());
        let (slot, changes) = (context.attempts.slot(), context.live.changes());
        Self { context, suspects: None, slot, steps, gates, monitors, changes }
    }

    /// Whether it may have instances that are not needed any more. An attempt of an earlier version makes one, too.
    pub(crate) fn has_retired(&self) -> bool {
        let changes = self.context.live.changes();
        let has_new = self.steps.has_new || self.gates.has_new || self.monitors.has_new;
        changes > 0 && (has_new || changes != self.changes)
    }

    /// Drops the instances of changed and removed steps.
    pub(crate) fn drop_retired(&mut self) {
        let live = &self.context.live;
        // Before the look: a later change is another reason to look.
        self.changes = live.changes();
        self.steps.keep(live);
        self.gates.keep(live);
        self.monitors.keep(live);
    }

    /// With the queue of the batches with suspects.
    pub(crate) fn with_suspects(self, suspects: SuspectQueue) -> Self {
        Self { suspects, ..self }
    }

    /// Runs batches with suspects.
    fn work(&mut self, tasks: &Receiver<WorkerTask>, messages: &Sender<Message>) {
        for task in tasks {
            if messages.send(self.carry_out(task)).is_err() {
                return;
            }
            if self.has_retired() {
                self.drop_retired();
            }
        }
    }

    /// Moves a batch with suspects to their queue. Returns every other task.
    pub(crate) fn give_to_suspects(
        &mut self,
        task: WorkerTask,
        messages: &Sender<Message>,
    ) -> Option<WorkerTask> {
        let (Some(suspects), WorkerTask::Batch(batch)) = (self.suspects.clone(), &task) else {
            return Some(task);
        };
        if !self.context.attempts.has_suspects() || !self.is_suspected(batch) {
            return Some(task);
        }
        if !batch.pool {
            // If the channel is closed, the run is over.
            let _ = messages.send(Message::WentAside { step: batch.step.position, id: batch.id });
        }
        suspects.send(task).err().map(|unsent| unsent.0)
    }

    fn is_suspected(&mut self, BatchTask { step, work, .. }: &BatchTask) -> bool {
        let (store, common, slot) = (&self.context.store, self.context.common(step), &self.slot);
        let make = || make_runner(step, store, &common, slot);
        self.steps.get(step, make).is_ok_and(|runner| runner.is_suspected(work, slot))
    }

    /// Sets up the step of a batch, unless this thread has done that. The batch has the result.
    pub(crate) fn set_up(&mut self, BatchTask { step, work, .. }: &BatchTask) {
        // The failure of a set-up is a result of the batch.
        let _ = self.run_with(step, |runner, _, clock| runner.set_up_ahead(work, clock));
    }

    /// Runs one task up to its next call, or goes on with the answer to its last one.
    pub(crate) fn begin(&mut self, task: WorkerTask, resumed: Option<Resumed>) -> Begun {
        let task = match task {
            WorkerTask::Batch(task) => task,
            other => return Begun::Ended(self.carry_out(other)),
        };
        let ran = self.run_with(&task.step, |runner, slot, clock| match resumed {
            Some(resumed) => runner.resume(&task.work, slot, clock, resumed),
            None => runner.begin(&task.work, slot, clock),
        });
        let ran = ran.unwrap_or_else(|why| BatchRun::Ran(Box::new(failed(&task.work, why))));
        match ran {
            BatchRun::Ran(ran) => Begun::Ended(result_of(&task, ran)),
            BatchRun::Suspended(call, suspended) => Begun::Calls(call, task, suspended),
        }
    }

    /// Runs one task, and waits for its calls.
    pub(crate) fn carry_out(&mut self, task: WorkerTask) -> Message {
        match task {
            WorkerTask::Batch(task) => {
                let run = |runner: &mut BatchRunner, slot: &mut WorkerSlot, clock: &dyn Clock| {
                    runner.run(&task.work, slot, clock)
                };
                let ran = self.run_with(&task.step, run);
                result_of(&task, Box::new(ran.unwrap_or_else(|why| failed(&task.work, why))))
            }
            WorkerTask::Status(asking) => {
                let (step, epoch, ask) = (asking.step.position, asking.epoch, asking.ask);
                Message::StatusResult { step, epoch, ask, seen: self.ask_status(&asking) }
            }
            WorkerTask::Gate { step, epoch } => {
                Message::GateResult { step: step.position, epoch, seen: self.look_at_gate(&step) }
            }
        }
    }

    /// Runs a batch with the runner of its step.
    ///
    /// # Errors
    /// The step cannot be set up, or panicked.
    fn run_with<T>(
        &mut self,
        step: &DeclaredStep,
        run: impl FnOnce(&mut BatchRunner, &mut WorkerSlot, &dyn Clock) -> T,
    ) -> Result<T, String> {
        let WorkerContext { store, clock, .. } = self.context;
        let (slot, common) = (&mut self.slot, self.context.common(step));
        let worker = self.steps.get(step, || make_runner(step, store, &common, slot))?;
        // A panic is a bug of Tidegate or of a library. It stops the step instead of hanging the run. The
        // worker's state may be inconsistent, so it is created again.
        catch_unwind(AssertUnwindSafe(|| run(worker, slot, &**clock))).map_err(|_| {
            self.steps.forget(step);
            PANICKED.to_owned()
        })
    }

    fn ask_status(&mut self, asking: &StatusQuery) -> Result<StatusReport, Failure> {
        let WorkerContext { store, clock, .. } = self.context;
        let failure = |message: String| Failure::new(FailureKind::Failed, message);
        let (keys, rows): (Vec<JobKey>, Vec<ParkedKey>) = asking.jobs.iter().cloned().unzip();
        let jobs = store.parked(&rows).map_err(|error| failure(error.to_string()))?;
        // A job that is completed meanwhile is not polled.
        let waits = |job: &ParkedJob| job.reason.status().is_some_and(ExternalStatus::waits);
        let jobs = keys.into_iter().zip(jobs).filter_map(|(key, job)| Some((key, job.filter(waits)?)));
        let jobs: Vec<_> = jobs.collect();
        if jobs.is_empty() {
            return Ok(StatusReport::default());
        }
        let question = monitor_protocol::encode_query(&jobs).map_err(|error| failure(error.to_string()))?;
        let step = &asking.step;
        let Some(monitor) = &step.monitor else { return Ok(StatusReport::default()) };
        let common = self.context.common(step);
        let inquiry = (&monitor.inquiry, EntryPoint::Status);
        let make = || Probe::new(step.configuration(), step, inquiry, &common);
        let answer = ask(&mut self.monitors, step, &question, clock.now(), make)?;
        monitor_protocol::read(&answer, &jobs).map_err(|why| {
            Failure::new(FailureKind::Output, format!("{why}: the answer is {}", beginning(&answer)))
        })
    }

    fn look_at_gate(&mut self, step: &DeclaredStep) -> Result<bool, Failure> {
        let Some(GateRef(gate)) = step.gate else { return Ok(true) };
        let inquiry = (&step.configuration().gates[gate].inquiry, EntryPoint::Open);
        let common = self.context.common(step);
        let make = || Probe::new(step.configuration(), step, inquiry, &common);
        let answer = ask(&mut self.gates, step, b"null", self.context.clock.now(), make)?;
        serde_json::from_slice(&answer).map_err(|_| {
            let message = format!("the answer must be `true` or `false`: it is {}", beginning(&answer));
            Failure::new(FailureKind::Output, message)
        })
    }
}

/// Result of a batch.
fn result_of(task: &BatchTask, ran: Box<BatchResult>) -> Message {
    Message::Ran { step: task.step.position, version: task.step.version, id: task.id, ran }
}

fn make_runner(
    step: &DeclaredStep,
    store: &Store,
    common: &SharedResources<'_>,
    slot: &WorkerSlot,
) -> Result<BatchRunner, String> {
    let (configuration, ever) = (step.configuration(), &step.ever_set_up);
    let runner = BatchRunner::new(configuration, step, step.version, store, common, ever)?;
    Ok(runner.recorded(slot.record()))
}

const PANICKED: &str = "the step panicked: please report this bug of Tidegate";

/// Calls a gate or monitor, and sets it up first if needed.
fn ask(
    probes: &mut SetUp<Probe>,
    step: &DeclaredStep,
    given: &[u8],
    now: Timestamp,
    make: impl FnOnce() -> Result<Probe, String>,
) -> Result<Vec<u8>, Failure> {
    let failure = |message: String| Failure::new(FailureKind::Failed, message);
    let probe = probes.get(step, make).map_err(failure)?;
    match catch_unwind(AssertUnwindSafe(|| probe.ask(given, now))) {
        Ok(answer) => answer,
        // An instance that panicked is not used again.
        Err(_) => {
            probes.forget(step);
            Err(failure(PANICKED.to_owned()))
        }
    }
}

/// Beginning of an answer, short enough for a message.
fn beginning(answer: &[u8]) -> String {
    const SHOWN: usize = 100;
    format!("`{}`", plain::beginning(&String::from_utf8_lossy(answer), SHOWN))
}

fn failed(work: &BatchInput, message: String) -> BatchResult {
    let failure = Failure::new(FailureKind::Failed, message);
    let first = work.portions.first();
    let index = first.map_or(0, |portion| portion.batch.first + portion.skip as u64);
    BatchResult {
        halt: Some(HaltCause { index, failure, halts: HaltReason::Run, file: None }),
        ..BatchResult::default()
    }
}
