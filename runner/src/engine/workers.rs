//! The threads that run steps. Each has its own copy of every step that it has been given work of.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender};
use tidegate_plugin::{Failure, FailureKind};

use super::floor::Task;
use super::held::Work;
use super::message::Message;
use super::work::{Ran, Stumble, Worker};
use crate::config::Configuration;
use crate::hands::plugin::Plugins;
use crate::store::{Attempts, Store};
use crate::words::Clock;

/// Scripts may build values that nest deeply, and taking those apart recurses. The memory is only
/// reserved, not used.
const STACK: usize = 64 << 20;

/// No more workers than that wait for the outside at once.
const ASIDE_MAX: usize = 256;

/// What all workers share.
pub(super) struct Shop {
    pub(super) configuration: Arc<Configuration>,
    pub(super) plugins: Arc<Plugins>,
    pub(super) store: Store,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) generation: u64,
    pub(super) attempts: Attempts,
}

/// Starts `count` workers; they end when `tasks` is closed.
pub(super) fn start(
    count: usize,
    shop: &Arc<Shop>,
    tasks: &Receiver<Task>,
    messages: &Sender<Message>,
) -> std::io::Result<Vec<JoinHandle<()>>> {
    (0..count)
        .map(|number| {
            let (shop, tasks, messages) = (Arc::clone(shop), tasks.clone(), messages.clone());
            thread::Builder::new()
                .name(format!("worker-{number}"))
                .stack_size(STACK)
                .spawn(move || work(&shop, &tasks, &messages, &|| {}))
        })
        .collect()
}

/// Workers for batches that may take long, as many as there are such batches at once.
pub(super) struct Aside {
    shop: Arc<Shop>,
    messages: Sender<Message>,
    tasks: (Sender<Task>, Receiver<Task>),
    /// How many workers wait for a task, less the tasks that wait for a worker.
    free: Arc<AtomicIsize>,
    workers: Vec<JoinHandle<()>>,
}

impl Aside {
    pub(super) fn new(shop: Arc<Shop>, messages: Sender<Message>) -> Self {
        let (tasks, free) = (crossbeam_channel::unbounded(), Arc::default());
        Self { shop, messages, tasks, free, workers: Vec::new() }
    }

    /// Gives a task to a free worker, or to a new one; past [`ASIDE_MAX`] it waits for one.
    pub(super) fn give(&mut self, task: Task) -> std::io::Result<()> {
        if self.free.fetch_sub(1, Ordering::AcqRel) <= 0 && self.workers.len() < ASIDE_MAX {
            let (shop, tasks, messages) =
                (Arc::clone(&self.shop), self.tasks.1.clone(), self.messages.clone());
            let free = Arc::clone(&self.free);
            let worker = thread::Builder::new()
                .name(format!("aside-{}", self.workers.len()))
                .stack_size(STACK)
                .spawn(move || work(&shop, &tasks, &messages, &|| _ = free.fetch_add(1, Ordering::AcqRel)))?;
            self.free.fetch_add(1, Ordering::AcqRel);
            self.workers.push(worker);
        }
        // This side holds the other end, too.
        let _ = self.tasks.0.send(task);
        Ok(())
    }

    /// Lets the workers end when they are through.
    pub(super) fn close(self) -> Vec<JoinHandle<()>> {
        self.workers
    }
}

fn work(shop: &Shop, tasks: &Receiver<Task>, messages: &Sender<Message>, done: &dyn Fn()) {
    let Shop { configuration, plugins, store, clock, generation, attempts } = shop;
    let mut slot = attempts.slot();
    let mut workers: Vec<Option<Worker>> = configuration.steps.iter().map(|_| None).collect();
    for Task { step, id, work, .. } in tasks {
        let worker = match &mut workers[step] {
            Some(worker) => Ok(worker),
            empty => Worker::new(configuration, &configuration.steps[step], *generation, store, plugins)
                .map(|made| empty.insert(made)),
        };
        let ran = match worker {
            // A panic is a bug, of ours or of a library. It stops the step instead of hanging the run;
            // the worker's state may be half-changed, so it is made anew.
            Ok(worker) => catch_unwind(AssertUnwindSafe(|| worker.run(&work, &mut slot, &**clock)))
                .unwrap_or_else(|_| {
                    workers[step] = None;
                    failed(
                        &work,
                        "the step panicked, which is a bug of Tidegate; please report it".to_owned(),
                    )
                }),
            Err(why) => failed(&work, why),
        };
        // The jobs are freed here and not by the dispatcher's thread, which has more to do.
        drop(work);
        done();
        if messages.send(Message::Ran { step, id, ran: Box::new(ran) }).is_err() {
            return;
        }
    }
}

fn failed(work: &Work, message: String) -> Ran {
    let failure = Failure::new(FailureKind::Failed, message);
    let first = work.portions.first();
    let index = first.map_or(0, |portion| portion.batch.first + portion.skip as u64);
    Ran { halt: Some(Stumble { index, failure, file: None }), ..Ran::default() }
}
