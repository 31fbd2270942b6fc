//! Pool: threads for the tasks of workers, shared by the steps.
//!
//! A run has several: for quick batches without effects, for slow ones, for attempts with effects, and for gates and
//! monitors. The threads of slow batches have the lowest priority, since they would use every processor.
//!
//! [`ThreadShares`] decides which task is next. A thread starts when a task may run and no thread is free. While
//! attempts wait, one free thread waits with them, for a task that is held. An attempt that is suspended during its
//! call has no thread, and its answer comes back as a task.

use std::sync::{Arc, Condvar};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use super::message::Message;
use super::workers::{Begun, SuspectQueue, WorkerContext, WorkerTask, WorkerThread};
use crate::batch::runner::Resumed;
use crate::coordinator::BatchTask;
use crate::processor::walk::Suspended;
use rustix::process::setpriority_process;
use rustix::thread::gettid;
use tidegate_components::calls::Call;
use tidegate_components::script::STACK;
use tidegate_dispatch::{NextTask, ShareLimits, TaskTicket, ThreadShares};
use tidegate_model::sync::{Mutex, MutexGuard};

/// Maximum number of threads of a pool, apart from one for each step.
const THREADS_MAX: usize = 256;
/// Lowest priority of a thread.
const NICE: i32 = 19;

/// Time after which another thread replaces that of a batch. The dispatcher frees its place a little later.
const LONG: Duration = Duration::from_millis(300);

/// Purpose of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolKind {
    /// Batches without effects, on this number of threads. Another one replaces a thread with a long batch.
    Workers(usize),
    /// Slow batches without effects.
    Beside,
    /// Attempts that may block.
    Outside,
}

/// Handle of a pool; clones share it.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Shared>);

struct Shared {
    context: Arc<WorkerContext>,
    kind: PoolKind,
    suspects: SuspectQueue,
    messages: Sender<Message>,
    started: Instant,
    state: Mutex<PoolState>,
    /// Wakes free threads for tasks, and at the end.
    changed: Condvar,
    /// Wakes the caller that waits for the ends of threads.
    ended: Condvar,
}

/// Task, with the answer to the last call of its attempt.
type PoolTask = (WorkerTask, Option<Resumed>);

struct PoolState {
    shares: ThreadShares<PoolTask>,
    free: usize,
    /// Number of threads that have not ended.
    alive: usize,
    threads: Vec<JoinHandle<()>>,
    closed: bool,
}

impl Pool {
    pub(crate) fn new(
        kind: PoolKind,
        context: Arc<WorkerContext>,
        suspects: SuspectQueue,
        messages: Sender<Message>,
    ) -> Self {
        let state = PoolState {
            shares: ThreadShares::new(kind.limits()),
            free: 0,
            alive: 0,
            threads: Vec::new(),
            closed: false,
        };
        Self(Arc::new(Shared {
            context,
            kind,
            suspects,
            messages,
            started: Instant::now(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            ended: Condvar::new(),
        }))
    }

    /// Runs a task on a thread of the pool.
    pub(crate) fn give(&self, task: WorkerTask) -> std::io::Result<()> {
        let step = task.step();
        self.add(|shares| shares.add(step, (task, None)))
    }

    /// Adds a task. After the end of the pool, its result is not needed.
    fn add(&self, add: impl FnOnce(&mut ThreadShares<PoolTask>)) -> std::io::Result<()> {
        let mut state = self.0.state.lock();
        if state.closed {
            return Ok(());
        }
        add(&mut state.shares);
        self.wake(&mut state)
    }

    /// Starts the call of an attempt. Its answer comes back as a task.
    fn call(&self, call: Call, task: BatchTask, suspended: Box<Suspended>) {
        let (pool, step) = (self.clone(), task.step.position);
        self.0.context.calls.start(call, move |answer| {
            let task = (WorkerTask::Batch(task), Some((suspended, answer)));
            // Without another thread, the answer waits for one of the pool.
            let _ = pool.add(|shares| shares.resume(step, task));
        });
    }

    /// Cancels the running calls, and waits at most `patience` for the threads to end. Their results are not
    /// needed.
    pub(crate) fn abandon(self, patience: Duration) {
        self.0.context.running_commands.give_up();
        let until = Instant::now() + patience;
        let mut state = self.0.state.lock();
        state.closed = true;
        state.shares.clear();
        self.0.changed.notify_all();
        while state.alive > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = match self.0.ended.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// Ends the pool; each thread ends after its current task.
    pub(crate) fn close(self) -> Vec<JoinHandle<()>> {
        let mut state = self.0.state.lock();
        state.closed = true;
        state.shares.clear();
        self.0.changed.notify_all();
        std::mem::take(&mut state.threads)
    }

    /// Starts a thread for tasks that wait behind a task that is held by now.
    pub(crate) fn look(&self) -> std::io::Result<()> {
        self.wake(&mut self.0.state.lock())
    }

    /// Wakes or starts a thread for the tasks that wait.
    fn wake(&self, state: &mut PoolState) -> std::io::Result<()> {
        if !state.shares.has_waiting() {
            return Ok(());
        }
        if state.free > 0 {
            self.0.changed.notify_one();
            return Ok(());
        }
        // Other pools are looked at when a batch is held.
        if self.0.kind != PoolKind::Outside && !state.shares.has_next(self.0.started.elapsed()) {
            return Ok(());
        }
        let pool = self.clone();
        let thread = thread::Builder::new()
            .name(format!("{}-{}", self.0.kind.name(), state.threads.len()))
            .stack_size(STACK)
            .spawn(move || pool.work())?;
        state.threads.push(thread);
        (state.free, state.alive) = (state.free + 1, state.alive + 1);
        Ok(())
    }

    /// The life of a thread.
    fn work(self) {
        let _end = End(&self.0);
        if self.0.kind == PoolKind::Beside {
            // Without it, slow batches only take more of the processors.
            let _ = setpriority_process(Some(gettid()), NICE);
        }
        let mut worker = WorkerThread::new(&self.0.context).with_suspects(self.0.suspects.clone());
        let mut ticket = None;
        while let Some((next, (mut task, resumed))) = self.next(ticket) {
            ticket = Some(next);
            if resumed.is_none() {
                let Some(unsuspected) = worker.give_to_suspects(task, &self.0.messages) else { continue };
                task = unsuspected;
            }
            match worker.begin(task, resumed) {
                Begun::Calls(call, task, suspended) => self.call(call, task, suspended),
                Begun::Ended(message) => {
                    if self.0.messages.send(message).is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Waits for the next task, after the one that has ended. `None`: the pool ends.
    fn next(&self, ended: Option<TaskTicket>) -> Option<(TaskTicket, PoolTask)> {
        let mut state = self.0.state.lock();
        if let Some(ticket) = ended {
            state.shares.end(ticket, self.0.started.elapsed());
            state.free += 1;
        }
        loop {
            if state.closed {
                return None;
            }
            match state.shares.next(self.0.started.elapsed()) {
                NextTask::Run(ticket, task) => {
                    state.free -= 1;
                    // Without another thread, the tasks that wait for this one go on later.
                    let _ = self.wake(&mut state);
                    return Some((ticket, task));
                }
                NextTask::Wait(until) => state = self.wait(state, until),
            }
        }
    }

    fn wait<'s>(
        &'s self,
        state: MutexGuard<'s, PoolState>,
        until: Option<Duration>,
    ) -> MutexGuard<'s, PoolState> {
        let Some(until) = until else {
            return self.0.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        };
        let left = until.saturating_sub(self.0.started.elapsed());
        match self.0.changed.wait_timeout(state, left) {
            Ok((state, _)) => state,
            Err(poisoned) => poisoned.into_inner().0,
        }
    }
}

impl PoolKind {
    fn name(self) -> &'static str {
        match self {
            Self::Workers(_) => "worker",
            Self::Beside => "beside",
            Self::Outside => "outside",
        }
    }

    fn limits(self) -> ShareLimits {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let (ms, threads_max) = (Duration::from_millis, THREADS_MAX);
        match self {
            Self::Workers(workers) => ShareLimits {
                processors: workers,
                threads_max: threads_max.max(2 * workers),
                held: LONG,
                slow: None,
            },
            Self::Beside => ShareLimits { processors: threads_max, threads_max, held: LONG, slow: None },
            Self::Outside => ShareLimits { processors, threads_max, held: ms(5), slow: Some(ms(4)) },
        }
    }
}

/// Records the end of a thread, also in a panic.
struct End<'p>(&'p Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.state.lock().alive -= 1;
        self.0.ended.notify_all();
    }
}
