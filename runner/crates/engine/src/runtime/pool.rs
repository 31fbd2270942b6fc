//! Pool: threads for tasks that take long or may block, shared by the steps.
//!
//! [`ThreadShares`] decides which task is next. A thread starts when a task may run and no thread is free. While
//! tasks wait, one free thread waits with them, for a task that is held. An attempt that is suspended during its
//! call has no thread, and its answer comes back as a task.

use std::sync::{Arc, Condvar};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use super::message::Message;
use super::priority;
use super::workers::{Begun, SuspectQueue, WorkerContext, WorkerTask, WorkerThread};
use crate::batch::runner::Resumed;
use crate::coordinator::BatchTask;
use crate::processor::walk::Suspended;
use tidegate_components::calls::Call;
use tidegate_components::script::STACK;
use tidegate_dispatch::{NextTask, TaskTicket, ThreadShares};
use tidegate_model::sync::{Mutex, MutexGuard};

/// Maximum number of threads that wait for external systems, apart from one for each step.
const THREADS_MAX: usize = 256;

/// Purpose of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolKind {
    /// Slow batches without effects. They would use each processor, so their threads have the lowest priority.
    Beside,
    /// Tasks that may block.
    Outside,
}

/// The pools for batches that do not run on workers.
#[derive(Clone)]
pub(crate) struct BatchPools {
    pub(crate) beside: Pool,
    pub(crate) outside: Pool,
}

impl BatchPools {
    /// Runs a batch on a thread of the pool that is for it.
    pub(crate) fn give(&self, batch: BatchTask) -> std::io::Result<()> {
        // A step that was not measured yet may be quick.
        let is_low = batch.is_slow && !batch.step.acts_outside();
        let pool = if is_low { &self.beside } else { &self.outside };
        pool.give(WorkerTask::Batch(batch))
    }
}

/// Handle of a pool; clones share it.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Shared>);

struct Shared {
    kind: PoolKind,
    context: Arc<WorkerContext>,
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
    /// Whether a free thread waits for the time at which a task may run.
    watched: bool,
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
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let state = PoolState {
            shares: ThreadShares::new(processors, THREADS_MAX),
            free: 0,
            watched: false,
            alive: 0,
            threads: Vec::new(),
            closed: false,
        };
        Self(Arc::new(Shared {
            kind,
            context,
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

    /// Lets the threads without a task drop what they need no more.
    pub(crate) fn wake_idle(&self) {
        // A thread that has just looked waits before this lock is free.
        let _state = self.0.state.lock();
        self.0.changed.notify_all();
    }

    /// Adds a task. After the end of the pool, its result is not needed.
    fn add(&self, add: impl FnOnce(&mut ThreadShares<PoolTask>)) -> std::io::Result<()> {
        let mut state = self.0.state.lock();
        if state.closed {
            return Ok(());
        }
        add(&mut state.shares);
        let alive = state.alive;
        match self.wake(state) {
            // A thread of the pool takes the task after its own.
            Err(_) if alive > 0 => Ok(()),
            woken => woken,
        }
    }

    /// Starts the call of an attempt. Its answer comes back as a task.
    fn call(&self, call: Call, task: BatchTask, suspended: Box<Suspended>) {
        let (pool, step) = (self.clone(), task.step.position);
        self.0.context.calls.start(call, move |answer| {
            let task = (WorkerTask::Batch(task), Some((suspended, answer)));
            // The thread that has started the call is in the pool.
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

    /// Wakes or starts a thread for the tasks that wait, if one may run now or no thread waits with them. Few threads are
    /// woken while all processors are busy: the one that ends its task takes the next.
    fn wake(&self, mut state: MutexGuard<'_, PoolState>) -> std::io::Result<()> {
        let needs_no_watch = state.watched || !state.shares.has_waiting();
        if needs_no_watch && !state.shares.has_next(self.0.started.elapsed()) {
            return Ok(());
        }
        if state.free > 0 {
            // A woken thread locks the state.
            drop(state);
            self.0.changed.notify_one();
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
        let is_low = self.0.kind == PoolKind::Beside;
        if is_low {
            priority::lower(priority::own_number());
        }
        let mut worker = WorkerThread::new(&self.0.context).with_suspects(self.0.suspects.clone());
        let mut ticket = None;
        while let Some((next, (mut task, resumed))) = self.next(ticket, &mut worker) {
            ticket = Some(next);
            if resumed.is_none() {
                let Some(unsuspected) = worker.give_to_suspects(task, &self.0.messages) else { continue };
                task = unsuspected;
            }
            let waited = if is_low { priority::own_wait() } else { Duration::ZERO };
            match worker.begin(task, resumed) {
                Begun::Calls(call, task, suspended) => self.call(call, task, suspended),
                Begun::Ended(mut message) => {
                    if let (true, Message::Ran { ran, .. }) = (is_low, &mut message) {
                        // It is the jobs that are measured, and not the load of the processors.
                        let waited = priority::own_wait().saturating_sub(waited);
                        ran.took = ran.took.saturating_sub(waited);
                    }
                    if self.0.messages.send(message).is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Waits for the next task, after the one that has ended. `None`: the pool ends.
    fn next(
        &self,
        ended: Option<TaskTicket>,
        worker: &mut WorkerThread<'_>,
    ) -> Option<(TaskTicket, PoolTask)> {
        let mut state = self.0.state.lock();
        if let Some(ticket) = ended {
            state.shares.end(ticket, self.0.started.elapsed());
            if worker.has_retired() {
                state = self.drop_retired(worker, state);
            }
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
                    let _ = self.wake(state);
                    return Some((ticket, task));
                }
                NextTask::Wait(_) if worker.has_retired() => {
                    state.free -= 1;
                    state = self.drop_retired(worker, state);
                    state.free += 1;
                }
                NextTask::Wait(until) => state = self.wait(state, until),
            }
        }
    }

    /// Drops what a thread needs no more. That may take long, so the thread is not free meanwhile, and another one waits
    /// with the tasks.
    fn drop_retired<'s>(
        &'s self,
        worker: &mut WorkerThread<'_>,
        state: MutexGuard<'s, PoolState>,
    ) -> MutexGuard<'s, PoolState> {
        // Without another thread, the tasks go on later.
        let _ = self.wake(state);
        worker.drop_retired();
        self.0.state.lock()
    }

    fn wait<'s>(
        &'s self,
        mut state: MutexGuard<'s, PoolState>,
        until: Option<Duration>,
    ) -> MutexGuard<'s, PoolState> {
        // One thread is enough to watch the tasks that wait.
        let Some(until) = until.filter(|_| !state.watched) else {
            return self.0.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        };
        state.watched = true;
        let left = until.saturating_sub(self.0.started.elapsed());
        let mut state = match self.0.changed.wait_timeout(state, left) {
            Ok((state, _)) => state,
            Err(poisoned) => poisoned.into_inner().0,
        };
        state.watched = false;
        state
    }
}

impl PoolKind {
    fn name(self) -> &'static str {
        match self {
            Self::Beside => "beside",
            Self::Outside => "outside",
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
