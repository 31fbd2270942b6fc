//! Source pool: reads all sources of a run on at most eight threads.
//!
//! A reader is scheduled by a request of the coordinator, or by a change of its files while a request is
//! open. Idle readers need no thread. A reader of watched files checks them every [`POLL_WATCHED`], any other
//! reader every [`POLL`].

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use super::message::Message;
use crate::batch::input::ReadBatch;
use crate::error::Chain;
use crate::step::source_health::{SourceHealth, SourceState, SourceStats};
use tidegate_components::calls::Calls;
use tidegate_components::job_log::JobReader;
use tidegate_components::pull_source::PullTrouble;
use tidegate_components::source::{BatchLimit, Read, SourceWatch, Wake, Watched};
use tidegate_dispatch::InputPort;
use tidegate_model::log_target;
use tidegate_model::sync::Mutex;

/// Maximum number of threads that read sources. Reads of files seldom block; a hanging file system occupies
/// one thread.
const THREADS_MAX: usize = 8;

/// Time between checks of a reader without change events: network file systems have none.
const POLL: Duration = Duration::from_millis(250);
/// Time between checks of a reader with change events, in case an event is lost.
const POLL_WATCHED: Duration = Duration::from_secs(30);

/// Threads that read sources.
#[derive(Debug)]
pub(crate) struct SourcePool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    tasks: Receiver<Arc<Task>>,
    /// Wakes of the timer thread; `None` once it runs.
    rested: Option<Receiver<()>>,
    limit: BatchLimit,
    messages: Sender<Message>,
    /// Sends the requests to services.
    calls: Calls,
}

#[derive(Debug)]
struct Shared {
    watch: SourceWatch,
    /// Queue of readers to run; closed by `end`.
    ready: Mutex<Option<Sender<Arc<Task>>>>,
    /// All readers.
    tasks: Mutex<Vec<Weak<Task>>>,
    /// Next check of the timer thread; `None` if no reader waits.
    next_look: Mutex<Option<Instant>>,
    /// Wakes the timer thread for an earlier check. Closed by `end`.
    resting: Mutex<Option<Sender<()>>>,
}

/// Handle to the reader of one source for one step.
#[derive(Debug)]
pub(crate) struct SourceReader {
    task: Arc<Task>,
}

#[derive(Debug)]
struct Task {
    port: InputPort,
    /// Epoch of the reader, sent with every message.
    number: u64,
    health: Arc<SourceStats>,
    shared: Arc<Shared>,
    phase: AtomicU8,
    /// Number of requested batches that were not sent yet.
    asked: AtomicUsize,
    ended: AtomicBool,
    /// The reader; `None` once it has ended.
    reader: Mutex<Option<JobReader>>,
    /// Whether the coordinator knows that there are no jobs now.
    idle: AtomicBool,
    /// Whether the reader could not open a file because too many are open.
    short_of_files: AtomicBool,
    /// Time of the next check without an event.
    next_look: Mutex<Option<Instant>>,
}

/// States of a task: not queued, queued for a thread, running on one, or to run again afterwards.
const RESTING: u8 = 0;
const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
const AGAIN: u8 = 3;

/// Result of one turn of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TurnResult {
    /// A batch was sent.
    Read,
    /// No batch is requested, or the reader has ended.
    Rest,
    /// There are no jobs now.
    Idle,
}

impl SourcePool {
    /// Creates a pool without threads.
    pub(crate) fn new(limit: BatchLimit, messages: Sender<Message>, calls: Calls) -> Self {
        let (ready, tasks) = crossbeam_channel::unbounded::<Arc<Task>>();
        let (resting, rested) = crossbeam_channel::bounded(1);
        let shared = Arc::new(Shared {
            watch: SourceWatch::new(),
            ready: Mutex::new(Some(ready)),
            tasks: Mutex::default(),
            next_look: Mutex::default(),
            resting: Mutex::new(Some(resting)),
        });
        Self { shared, threads: Vec::new(), tasks, rested: Some(rested), limit, messages, calls }
    }

    /// Starts another thread, if there are fewer than readers.
    fn grow(&mut self) -> std::io::Result<()> {
        if let Some(rested) = self.rested.take() {
            let shared = Arc::clone(&self.shared);
            let poll = move || look_at_the_clock(&shared, &rested);
            self.threads.push(thread::Builder::new().name("source-poll".into()).spawn(poll)?);
        }
        let readers = self.threads.len() - 1;
        if readers < THREADS_MAX {
            let (tasks, messages, limit) = (self.tasks.clone(), self.messages.clone(), self.limit);
            let read = move || tasks.iter().for_each(|task| task.run(limit, &messages));
            self.threads.push(thread::Builder::new().name(format!("source-{readers}")).spawn(read)?);
        }
        Ok(())
    }

    /// Adds a reader; it reads on request. `health`: the state of its source.
    pub(crate) fn add(
        &mut self,
        port: InputPort,
        (number, health): (u64, Arc<SourceStats>),
        mut reader: JobReader,
    ) -> std::io::Result<SourceReader> {
        let task = Arc::new(Task {
            port,
            number,
            health,
            shared: Arc::clone(&self.shared),
            phase: AtomicU8::new(RESTING),
            asked: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            reader: Mutex::default(),
            idle: AtomicBool::new(false),
            short_of_files: AtomicBool::new(false),
            next_look: Mutex::default(),
        });
        let wake: Arc<dyn Wake> = Arc::<Task>::clone(&task);
        match reader.path() {
            Some(path) => self.shared.watch.register(path, &wake),
            None => reader.connect(&self.calls, Arc::downgrade(&wake)),
        }
        *task.reader.lock() = Some(reader);
        let mut tasks = self.shared.tasks.lock();
        tasks.retain(|task| task.strong_count() > 0);
        tasks.push(Arc::downgrade(&task));
        let wanted = tasks.len();
        drop(tasks);
        if self.threads.len() <= wanted.min(THREADS_MAX) {
            self.grow()?;
        }
        Ok(SourceReader { task })
    }

    /// Ends the threads. Remaining readers send no more messages.
    pub(crate) fn end(self) {
        drop((self.shared.ready.lock().take(), self.shared.resting.lock().take()));
        for task in self.shared.tasks.lock().iter().filter_map(Weak::upgrade) {
            task.ended.store(true, Ordering::Release);
        }
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

impl SourceReader {
    /// Requests the next batch; sources are read in order, so no position is needed.
    pub(crate) fn ask(&self) {
        self.task.asked.fetch_add(1, Ordering::SeqCst);
        Arc::clone(&self.task).wake();
    }

    /// Ends the reader. A read under way may still send a message.
    pub(crate) fn end(self) {
        self.task.ended.store(true, Ordering::Release);
        // A thread that reads now drops the reader when it has read.
        if let Some(mut reader) = self.task.reader.try_lock() {
            *reader = None;
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let next = |phase| match phase {
            RESTING => Some(QUEUED),
            RUNNING => Some(AGAIN),
            _ => None,
        };
        let wanted = self.asked.load(Ordering::SeqCst) > 0;
        if wanted && self.phase.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next) == Ok(RESTING) {
            self.queue();
        }
    }
}

impl Task {
    fn queue(self: Arc<Self>) {
        let shared = Arc::clone(&self.shared);
        if let Some(ready) = &*shared.ready.lock() {
            // The threads live until the channel is closed.
            let _ = ready.send(self);
        }
    }

    /// Runs turns until the reader has no work now, or until it is another task's turn.
    fn run(self: Arc<Self>, limit: BatchLimit, messages: &Sender<Message>) {
        loop {
            self.phase.store(RUNNING, Ordering::SeqCst);
            if self.turn(limit, messages) == TurnResult::Read {
                self.phase.store(QUEUED, Ordering::SeqCst);
                self.queue();
                return;
            }
            let rested = self.phase.compare_exchange(RUNNING, RESTING, Ordering::SeqCst, Ordering::SeqCst);
            if rested.is_ok() {
                return;
            }
        }
    }

    fn turn(&self, limit: BatchLimit, messages: &Sender<Message>) -> TurnResult {
        let mut held = self.reader.lock();
        if self.asked.load(Ordering::SeqCst) == 0 || self.ended.load(Ordering::Acquire) {
            return TurnResult::Rest;
        }
        let Some(reader) = &mut *held else { return TurnResult::Rest };
        let (port, number) = (self.port, self.number);
        let read = reader.read(limit);
        if let Some(service) = reader.service() {
            self.health.set(Some(health_of(service.trouble())));
        }
        let message = match read {
            Ok(Read::Batch(read)) => {
                let (mark, segments) = (read.mark, read.segments);
                let fetched = ReadBatch { mark, segments, ..ReadBatch::new(read.batch) };
                Message::Read { port, reader: number, fetched }
            }
            Ok(Read::Idle) => match reader.path().map(|path| self.shared.watch.look_out(path)) {
                // The files changed just before the watch began, so they are read again at once.
                Some(Watched::Since) => return TurnResult::Read,
                Some(Watched::Polled) => return self.rest(POLL, messages),
                Some(_) => return self.rest(POLL_WATCHED, messages),
                None => return self.rest(reader.looks_again().unwrap_or(POLL), messages),
            },
            Ok(Read::Busy) => {
                // An answer wakes it, or the time of the next request.
                if let Some(wait) = reader.looks_again() {
                    self.look_again_in(wait);
                }
                return TurnResult::Idle;
            }
            Ok(Read::End) => Message::Ended { port, reader: number },
            // The next call resumes at this position.
            Err(error) if error.is_short_of_files() => {
                if !self.short_of_files.swap(true, Ordering::AcqRel) {
                    tracing::warn!(target: log_target::ENGINE, error = %Chain(&error), "too many files are open; the source waits");
                }
                self.look_again_in(POLL);
                return TurnResult::Idle;
            }
            Err(error) => Message::Broken { port, reader: number, error: error.into() },
        };
        *self.next_look.lock() = None;
        self.idle.store(false, Ordering::Release);
        if self.short_of_files.swap(false, Ordering::AcqRel) {
            let path = reader.path().unwrap_or(Path::new("")).display();
            tracing::info!(target: log_target::ENGINE, %path, "fewer files are open; the source resumes");
        }
        let last = !matches!(message, Message::Read { .. }) || self.ended.load(Ordering::Acquire);
        if messages.send(message).is_err() || last {
            *held = None;
            return TurnResult::Rest;
        }
        self.asked.fetch_sub(1, Ordering::SeqCst);
        TurnResult::Read
    }

    fn look_again_in(&self, wait: Duration) {
        let due = Instant::now() + wait;
        *self.next_look.lock() = Some(due);
        let mut next = self.shared.next_look.lock();
        if next.is_some_and(|next| next <= due) {
            return;
        }
        *next = Some(due);
        drop(next);
        if let Some(resting) = &*self.shared.resting.lock() {
            // One queued wake-up is enough.
            let _ = resting.try_send(());
        }
    }

    /// Reports once that there are no jobs now, and schedules the next check.
    fn rest(&self, wait: Duration, messages: &Sender<Message>) -> TurnResult {
        self.look_again_in(wait);
        if !self.idle.swap(true, Ordering::AcqRel) {
            // If the event loop has ended, no report is needed.
            let _ = messages.send(Message::Idle { port: self.port, reader: self.number });
        }
        TurnResult::Idle
    }
}

/// Health of a source behind a service.
fn health_of(trouble: Option<&PullTrouble>) -> SourceHealth {
    let state = match trouble {
        Some(trouble) => SourceState::Waiting { until: trouble.until },
        None => SourceState::Running,
    };
    SourceHealth {
        state,
        since: trouble.map(|trouble| trouble.since),
        why: trouble.map(|trouble| trouble.why.clone()),
        failures: trouble.map_or(0, |trouble| trouble.failures),
    }
}

/// Timer thread: wakes the readers whose check is due, until `resting` is closed.
fn look_at_the_clock(shared: &Shared, resting: &Receiver<()>) {
    loop {
        let next = *shared.next_look.lock();
        let received = match next {
            Some(next) => resting.recv_deadline(next),
            None => resting.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match received {
            Ok(()) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        // A reader that goes idle from now on wakes this thread again.
        *shared.next_look.lock() = None;
        let now = Instant::now();
        let all: Vec<_> = shared.tasks.lock().iter().filter_map(Weak::upgrade).collect();
        for task in all {
            let mut look = task.next_look.lock();
            let Some(due) = *look else { continue };
            if due > now {
                drop(look);
                let mut next = shared.next_look.lock();
                *next = Some(next.map_or(due, |next| next.min(due)));
                continue;
            }
            *look = None;
            drop(look);
            task.wake();
        }
    }
}
