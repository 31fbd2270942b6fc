//! Worker threads: run quick batches without effects, and leave those that run long to threads of their own.
//!
//! A thread whose batch runs long keeps the batch and ends behind it, with the lowest priority. Another thread takes its
//! place, so that a slow step keeps no worker from others.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, TryRecvError, select};

use super::message::Message;
use super::pool::BatchPools;
use super::priority::{self, ThreadNumber};
use super::workers::{SuspectQueue, WorkerContext, WorkerTask, WorkerThread};
use crate::coordinator::BatchTask;
use tidegate_components::script::STACK;
use tidegate_dispatch::{BatchId, LONG};
use tidegate_model::sync::Mutex;

/// Handle of the workers. They end when it is closed.
pub(crate) struct WorkerThreads {
    context: Arc<WorkerContext>,
    suspects: SuspectQueue,
    pools: BatchPools,
    messages: Sender<Message>,
    tasks: (Sender<BatchTask>, Receiver<BatchTask>),
    running: Arc<Mutex<RunningBatches>>,
    threads: Vec<JoinHandle<()>>,
    /// Number of threads that were started.
    started: usize,
}

/// Batches of the workers.
#[derive(Debug, Default)]
struct RunningBatches {
    /// At most one for each worker.
    running: Vec<RunningBatch>,
    /// Number of batches that wait for a worker, or are about to begin.
    waiting: usize,
}

#[derive(Clone, Copy, Debug)]
struct RunningBatch {
    step: usize,
    id: BatchId,
    since: Instant,
    thread: ThreadNumber,
    /// Whether another thread has taken the place of its thread.
    replaced: bool,
}

impl WorkerThreads {
    /// Starts `count` workers.
    pub(crate) fn start(
        count: usize,
        context: &Arc<WorkerContext>,
        suspects: &SuspectQueue,
        pools: &BatchPools,
        messages: &Sender<Message>,
    ) -> std::io::Result<Self> {
        let mut workers = Self {
            context: Arc::clone(context),
            suspects: suspects.clone(),
            pools: pools.clone(),
            messages: messages.clone(),
            tasks: crossbeam_channel::unbounded(),
            running: Arc::default(),
            threads: Vec::new(),
            started: 0,
        };
        for _ in 0..count {
            workers.add()?;
        }
        Ok(workers)
    }

    /// Runs a batch on the next free worker.
    pub(crate) fn give(&self, task: BatchTask) {
        self.running.lock().waiting += 1;
        // This end of the channel is open.
        let _ = self.tasks.0.send(task);
    }

    /// Time at which to look for batches that run long.
    pub(crate) fn next_long(&self) -> Option<Instant> {
        self.running.lock().next_long(Instant::now())
    }

    /// Replaces the threads whose batches run long.
    pub(crate) fn replace_long(&mut self) {
        let now = Instant::now();
        loop {
            let running = Arc::clone(&self.running);
            // Locked until the message is sent: the batch cannot end before it.
            let mut running = running.lock();
            let Some(long) = running.long(now) else { return };
            if let Err(error) = self.add() {
                tracing::debug!(target: tidegate_model::log_target::ENGINE, %error, "a batch that runs long keeps its worker");
                long.since = now;
                continue;
            }
            long.replaced = true;
            priority::lower(long.thread);
            // A run that is over receives no messages.
            let _ = self.messages.send(Message::WentAside { step: long.step, id: long.id });
        }
    }

    /// Ends the workers; each ends after the tasks that it was given.
    pub(crate) fn close(self) -> Vec<JoinHandle<()>> {
        self.threads
    }

    fn add(&mut self) -> std::io::Result<()> {
        let (context, suspects) = (Arc::clone(&self.context), self.suspects.clone());
        let (pools, messages) = (self.pools.clone(), self.messages.clone());
        let (tasks, running) = (self.tasks.1.clone(), Arc::clone(&self.running));
        let name = format!("worker-{}", self.started);
        let thread = thread::Builder::new().name(name).stack_size(STACK).spawn(move || {
            let worker = WorkerThread::new(&context).with_suspects(suspects);
            let thread = priority::own_number();
            let wakes = context.live.waker();
            Worker { worker, thread, pools, messages, running }.work(&tasks, &wakes);
        })?;
        // Dropping the handle of a thread that has ended frees its stack.
        self.threads.retain(|thread| !thread.is_finished());
        self.threads.push(thread);
        self.started += 1;
        Ok(())
    }
}

struct Worker<'c> {
    worker: WorkerThread<'c>,
    thread: ThreadNumber,
    pools: BatchPools,
    messages: Sender<Message>,
    running: Arc<Mutex<RunningBatches>>,
}

impl Worker<'_> {
    /// The life of a worker. It ends when the channel is closed, or when another one has taken its place.
    fn work(mut self, tasks: &Receiver<BatchTask>, wakes: &Receiver<()>) {
        while let Some(batch) = self.next(tasks, wakes) {
            let task = WorkerTask::Batch(batch);
            let Some(WorkerTask::Batch(batch)) = self.worker.give_to_suspects(task, &self.messages) else {
                self.running.lock().waiting -= 1;
                continue;
            };
            // It takes its time once for each worker, and not for each batch.
            self.worker.set_up(&batch);
            let Some(batch) = self.give_to_pool(batch) else { continue };
            let message = self.worker.carry_out(WorkerTask::Batch(batch));
            let is_replaced = self.running.lock().end(self.thread);
            if self.messages.send(message).is_err() || is_replaced {
                return;
            }
        }
    }

    /// Waits for the next batch, and meanwhile drops what is not needed any more. `None`: the worker ends.
    fn next(&mut self, tasks: &Receiver<BatchTask>, wakes: &Receiver<()>) -> Option<BatchTask> {
        loop {
            if self.worker.has_retired() {
                self.worker.drop_retired();
            }
            match tasks.try_recv() {
                Ok(batch) => return Some(batch),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => {}
            }
            select! {
                recv(tasks) -> batch => return batch.ok(),
                recv(wakes) -> _ => {}
            }
        }
    }

    /// Moves a batch to its pool while another one of its step runs long. Returns every other batch, which runs now.
    fn give_to_pool(&self, mut batch: BatchTask) -> Option<BatchTask> {
        let (step, id, since) = (batch.step.position, batch.id, Instant::now());
        {
            let mut running = self.running.lock();
            running.waiting -= 1;
            if !running.is_long(step) {
                running.begin(RunningBatch { step, id, since, thread: self.thread, replaced: false });
                return Some(batch);
            }
        }
        // If the channel is closed, the run is over.
        let _ = self.messages.send(Message::WentAside { step, id });
        (batch.pool, batch.is_slow) = (true, true);
        if let Err(error) = self.pools.give(batch) {
            let _ = self.messages.send(Message::ThreadFailed(error.into()));
        }
        None
    }
}

impl RunningBatches {
    fn begin(&mut self, batch: RunningBatch) {
        self.running.push(batch);
    }

    /// Ends the batch of a thread. Returns whether another thread has taken its place.
    fn end(&mut self, thread: ThreadNumber) -> bool {
        let at = self.running.iter().position(|batch| batch.thread == thread);
        at.is_some_and(|at| self.running.swap_remove(at).replaced)
    }

    /// Whether a batch of this step runs long.
    fn is_long(&self, step: usize) -> bool {
        self.running.iter().any(|batch| batch.step == step && batch.replaced)
    }

    /// Time at which a batch may run long. A batch that begins later sends no message of that.
    fn next_long(&self, now: Instant) -> Option<Instant> {
        let running = self.running.iter().filter(|batch| !batch.replaced).map(|batch| batch.since);
        running.chain((self.waiting > 0).then_some(now)).map(|since| since + LONG).min()
    }

    /// A batch that runs long and whose thread was not replaced.
    fn long(&mut self, now: Instant) -> Option<&mut RunningBatch> {
        self.running.iter_mut().find(|batch| !batch.replaced && batch.since + LONG <= now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_thread_is_replaced_once_when_its_batch_has_run_long() {
        let since = Instant::now();
        let mut running = RunningBatches::default();
        assert_eq!(running.next_long(since), None);
        let mut begin = |number, after| {
            let (id, since) = (BatchId(number), since + Duration::from_millis(after));
            let thread = ThreadNumber::of_test(number);
            running.begin(RunningBatch { step: 0, id, since, thread, replaced: false });
        };
        begin(1, 0);
        begin(2, 100);
        assert_eq!(running.next_long(since), Some(since + LONG));
        assert!(running.long(since + Duration::from_millis(399)).is_none());
        let long = running.long(since + LONG).unwrap();
        assert_eq!(long.id, BatchId(1));
        long.replaced = true;
        assert!(running.is_long(0) && !running.is_long(1));
        assert!(running.long(since + LONG).is_none());
        assert_eq!(running.next_long(since), Some(since + LONG + Duration::from_millis(100)));
        let [first, second] = [1, 2].map(ThreadNumber::of_test);
        assert!(running.end(first) && !running.end(second));
        assert_eq!(running.next_long(since), None);
        // It has ended already.
        assert!(!running.end(first));
        // A batch that no worker has begun yet may run long.
        running.waiting = 1;
        assert_eq!(running.next_long(since), Some(since + LONG));
    }
}
