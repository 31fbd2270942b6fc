//! The threads that fetch jobs: one for each source that a step reads, one for all queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};

use super::message::Message;
use crate::hands::source::{BatchLimit, Read, Reader, Waker};
use crate::store::{ReadError, Store};
use crate::words::Address;

/// A thread that reads one source for one step.
#[derive(Debug)]
pub(super) struct SourceThread {
    requests: Sender<()>,
    waker: Waker,
    ending: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl SourceThread {
    pub(super) fn start(
        step: usize,
        reader: Reader,
        limit: BatchLimit,
        messages: Sender<Message>,
    ) -> std::io::Result<Self> {
        let (requests, asked) = crossbeam_channel::unbounded();
        let ending = Arc::new(AtomicBool::new(false));
        let waker = reader.waker();
        let ended = Arc::clone(&ending);
        let thread = thread::Builder::new()
            .name(format!("source-{step}"))
            .spawn(move || read_source(step, reader, limit, &asked, &messages, &ended))?;
        Ok(Self { requests, waker, ending, thread })
    }

    /// Asks for the next batch; sources are read in order, so there is nothing to say.
    pub(super) fn ask(&self) {
        // A reader that has ended is not asked any more.
        let _ = self.requests.send(());
    }

    /// Ends the thread, also one that waits for more.
    pub(super) fn end(self) {
        self.ending.store(true, Ordering::Release);
        self.waker.wake();
        drop(self.requests);
        let _ = self.thread.join();
    }
}

fn read_source(
    step: usize,
    mut reader: Reader,
    limit: BatchLimit,
    asked: &Receiver<()>,
    messages: &Sender<Message>,
    ending: &AtomicBool,
) {
    for () in asked {
        let mut told_idle = false;
        let message = loop {
            if ending.load(Ordering::Acquire) {
                return;
            }
            match reader.read(limit) {
                Ok(Read::Batch(read)) => {
                    let batch = Arc::new(read.batch);
                    break Message::Read { step, batch, mark: read.mark, segments: read.segments };
                }
                Ok(Read::End) => break Message::Ended { step },
                Ok(Read::Idle) => {
                    if !told_idle && messages.send(Message::Idle { step }).is_err() {
                        return;
                    }
                    told_idle = true;
                    reader.wait();
                }
                Err(error) => break Message::Broken { step, error: error.into() },
            }
        };
        let last = !matches!(message, Message::Read { .. });
        if messages.send(message).is_err() || last {
            return;
        }
    }
}

/// A request for jobs of a queue, from the index `from` on.
#[derive(Debug)]
pub(super) struct QueueAsk {
    pub(super) step: usize,
    pub(super) queue: Address,
    pub(super) from: u64,
}

/// The thread that reads queues from the store.
#[derive(Debug)]
pub(super) struct QueueThread {
    requests: Sender<QueueAsk>,
    ending: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// How long to wait while the store is being opened again after a write that failed.
const REOPEN_WAIT: Duration = Duration::from_millis(10);

impl QueueThread {
    pub(super) fn start(store: Store, limit: BatchLimit, messages: Sender<Message>) -> std::io::Result<Self> {
        let (requests, asked) = crossbeam_channel::unbounded::<QueueAsk>();
        let ending = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&ending);
        let thread = thread::Builder::new().name("queues".into()).spawn(move || {
            for ask in asked {
                let Some(message) = read_queue(&store, limit, &ask, &ended) else { return };
                if messages.send(message).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { requests, ending, thread })
    }

    pub(super) fn ask(&self, ask: QueueAsk) {
        // The thread lives until `end`.
        let _ = self.requests.send(ask);
    }

    pub(super) fn end(self) {
        self.ending.store(true, Ordering::Release);
        drop(self.requests);
        let _ = self.thread.join();
    }
}

/// `None` where the run ended meanwhile.
fn read_queue(store: &Store, limit: BatchLimit, ask: &QueueAsk, ending: &AtomicBool) -> Option<Message> {
    let step = ask.step;
    loop {
        let error = match store.read(&ask.queue, ask.from, limit.jobs, limit.bytes) {
            Ok(Some(batch)) => {
                let batch = Arc::new(batch);
                return Some(Message::Read { step, batch, mark: None, segments: Vec::new() });
            }
            Ok(None) => ReadError::Damaged(format!(
                "queue `{}` has lost its jobs from index {} on",
                ask.queue, ask.from
            )),
            // The committer opens the store again as soon as there is room, or ends the run.
            Err(ReadError::Interrupted) if !ending.load(Ordering::Acquire) => {
                thread::sleep(REOPEN_WAIT);
                continue;
            }
            Err(ReadError::Interrupted) => return None,
            Err(error) => error,
        };
        return Some(Message::Broken { step, error: error.into() });
    }
}
