//! The threads that run steps. Each has its own copy of every step that it has been given work of.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender};
use tidegate_plugin::{Failure, FailureKind};

use super::message::Message;
use super::work::{Ran, Stumble, Worker};
use crate::config::Configuration;
use crate::decide::BatchId;
use crate::words::{Batch, Clock};

/// Scripts may build values that nest deeply, and taking those apart recurses. The memory is only
/// reserved, not used.
const STACK: usize = 64 << 20;

/// A batch for whichever worker is free.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) step: usize,
    pub(super) id: BatchId,
    pub(super) batch: Arc<Batch>,
}

/// Starts `count` workers; they end when `tasks` is closed.
pub(super) fn start(
    count: usize,
    configuration: &Arc<Configuration>,
    clock: &Arc<dyn Clock>,
    tasks: &Receiver<Task>,
    messages: &Sender<Message>,
) -> std::io::Result<Vec<JoinHandle<()>>> {
    (0..count)
        .map(|number| {
            let (configuration, clock) = (Arc::clone(configuration), Arc::clone(clock));
            let (tasks, messages) = (tasks.clone(), messages.clone());
            thread::Builder::new()
                .name(format!("worker-{number}"))
                .stack_size(STACK)
                .spawn(move || work(&configuration, &*clock, &tasks, &messages))
        })
        .collect()
}

fn work(
    configuration: &Configuration,
    clock: &dyn Clock,
    tasks: &Receiver<Task>,
    messages: &Sender<Message>,
) {
    let mut workers: Vec<Option<Worker>> = configuration.steps.iter().map(|_| None).collect();
    for Task { step, id, batch } in tasks {
        let worker = match &mut workers[step] {
            Some(worker) => Ok(worker),
            empty => Worker::new(configuration, &configuration.steps[step]).map(|made| empty.insert(made)),
        };
        let ran = match worker {
            // A panic is a bug, of ours or of a library. It stops the step instead of hanging the run;
            // the worker's state may be half-changed, so it is made anew.
            Ok(worker) => catch_unwind(AssertUnwindSafe(|| worker.run(&batch, clock))).unwrap_or_else(|_| {
                workers[step] = None;
                failed(&batch, "the step panicked, which is a bug of Tidegate; please report it".to_owned())
            }),
            Err(error) => {
                failed(&batch, format!("a script that compiled before does not any more: {}", error.message))
            }
        };
        // The batch is freed here and not by the dispatcher's thread, which has more to do.
        drop(batch);
        if messages.send(Message::Ran { step, id, ran: Box::new(ran) }).is_err() {
            return;
        }
    }
}

fn failed(batch: &Batch, message: String) -> Ran {
    let failure = Failure::new(FailureKind::Failed, message);
    Ran { halt: Some(Stumble { index: batch.first, failure, file: None }), ..Ran::default() }
}
