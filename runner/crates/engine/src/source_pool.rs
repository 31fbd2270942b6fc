//! The source pool: a few threads that read all sources of a run, however many there are.
//!
//! A reader is scheduled when the floor asks for a batch, and when its files change while it has been asked
//! and had nothing. At rest nothing runs: a reader of files that can be watched looks by itself every
//! [`POLL_WATCHED`], any other one every [`POLL`].

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use super::error::Chain;
use super::held::Fetched;
use super::message::Message;
use tidegate_components::source::{BatchLimit, Read, Reader, Wake, Watch, Watched};
use tidegate_dispatch::Port;
use tidegate_model::log_target;

/// How many threads read sources. Reads of files seldom wait; a file system that hangs takes one of them.
const THREADS_MAX: usize = 8;

/// How long a reader waits that no event can wake: network file systems have none.
const POLL: Duration = Duration::from_millis(250);
/// How long a reader waits that events wake, in case that one is lost.
const POLL_WATCHED: Duration = Duration::from_secs(30);

/// Threads that read sources.
#[derive(Debug)]
pub(crate) struct SourcePool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    watch: Watch,
    /// Closed by the end.
    ready: Mutex<Option<Sender<Arc<Task>>>>,
    /// All readers that live.
    tasks: Mutex<Vec<Weak<Task>>>,
    /// When the thread that looks at the clock looks next; `None` where no reader waits.
    next_look: Mutex<Option<Instant>>,
    /// Tells that thread that a reader waits for an earlier time. Closed by the end.
    resting: Mutex<Option<Sender<()>>>,
}

/// One source's reader for one step, as the floor knows it.
#[derive(Debug)]
pub(crate) struct SourceReader {
    task: Arc<Task>,
}

#[derive(Debug)]
struct Task {
    port: Port,
    /// Is sent with every message, and tells readers of one port apart.
    number: u64,
    shared: Arc<Shared>,
    phase: AtomicU8,
    /// Batches that were asked for and not sent.
    asked: AtomicUsize,
    ended: AtomicBool,
    /// `None` once it has ended.
    reader: Mutex<Option<Reader>>,
    /// The floor knows that there is nothing now.
    idle: AtomicBool,
    /// It could not open a file, as too many are open.
    short_of_files: AtomicBool,
    /// When to look without having been woken.
    next_look: Mutex<Option<Instant>>,
}

/// A task is not queued, or queued for a thread, or run by one, or shall run once more afterwards.
const RESTING: u8 = 0;
const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
const AGAIN: u8 = 3;

/// How a turn of a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// A batch was sent.
    Read,
    /// Nothing was asked for, or it has ended.
    Rest,
    /// There is nothing now.
    Idle,
}

impl SourcePool {
    /// `sources`: how many readers there will be, about.
    pub(crate) fn start(
        sources: usize,
        limit: BatchLimit,
        messages: &Sender<Message>,
    ) -> std::io::Result<Self> {
        let (ready, tasks) = crossbeam_channel::unbounded::<Arc<Task>>();
        let (resting, rested) = crossbeam_channel::bounded(1);
        let shared = Arc::new(Shared {
            watch: Watch::new(),
            ready: Mutex::new(Some(ready)),
            tasks: Mutex::default(),
            next_look: Mutex::default(),
            resting: Mutex::new(Some(resting)),
        });
        let mut pool = Self { shared: Arc::clone(&shared), threads: vec![] };
        if sources == 0 {
            return Ok(pool);
        }
        for number in 0..sources.min(THREADS_MAX) {
            let (tasks, messages) = (tasks.clone(), messages.clone());
            let read = move || tasks.iter().for_each(|task| task.run(limit, &messages));
            pool.threads.push(thread::Builder::new().name(format!("source-{number}")).spawn(read)?);
        }
        let poll = move || look_at_the_clock(&shared, &rested);
        pool.threads.push(thread::Builder::new().name("source-poll".into()).spawn(poll)?);
        Ok(pool)
    }

    /// Takes a reader in; it reads when it is asked.
    pub(crate) fn add(&self, port: Port, number: u64, reader: Reader) -> SourceReader {
        let task = Arc::new(Task {
            port,
            number,
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
        self.shared.watch.register(reader.path(), &wake);
        *lock(&task.reader) = Some(reader);
        let mut tasks = lock(&self.shared.tasks);
        tasks.retain(|task| task.strong_count() > 0);
        tasks.push(Arc::downgrade(&task));
        SourceReader { task }
    }

    /// Ends the threads. Readers that are not ended send nothing any more.
    pub(crate) fn end(self) {
        drop((lock(&self.shared.ready).take(), lock(&self.shared.resting).take()));
        for task in lock(&self.shared.tasks).iter().filter_map(Weak::upgrade) {
            task.ended.store(true, Ordering::Release);
        }
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

impl SourceReader {
    /// Asks for the next batch; sources are read in order, so no place is needed.
    pub(crate) fn ask(&self) {
        self.task.asked.fetch_add(1, Ordering::SeqCst);
        Arc::clone(&self.task).wake();
    }

    /// Ends the reader. It has sent its last message when this returns.
    pub(crate) fn end(self) {
        self.task.ended.store(true, Ordering::Release);
        drop(lock(&self.task.reader).take());
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
        if let Some(ready) = &*lock(&shared.ready) {
            // The threads live until it is closed.
            let _ = ready.send(self);
        }
    }

    /// Takes turns until nothing is left to do now, or another task shall have its turn.
    fn run(self: Arc<Self>, limit: BatchLimit, messages: &Sender<Message>) {
        loop {
            self.phase.store(RUNNING, Ordering::SeqCst);
            if self.turn(limit, messages) == Turn::Read {
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

    fn turn(&self, limit: BatchLimit, messages: &Sender<Message>) -> Turn {
        let mut held = lock(&self.reader);
        if self.asked.load(Ordering::SeqCst) == 0 || self.ended.load(Ordering::Acquire) {
            return Turn::Rest;
        }
        let Some(reader) = &mut *held else { return Turn::Rest };
        let (port, number) = (self.port, self.number);
        let message = match reader.read(limit) {
            Ok(Read::Batch(read)) => {
                let (mark, segments) = (read.mark, read.segments);
                let fetched = Fetched { mark, segments, ..Fetched::new(read.batch) };
                Message::Read { port, reader: number, fetched }
            }
            Ok(Read::Idle) => match self.shared.watch.look_out(reader.path()) {
                // What came just before is looked for rather than waited for.
                Watched::Since => return Turn::Read,
                watched => {
                    self.rest(watched, messages);
                    return Turn::Idle;
                }
            },
            Ok(Read::End) => Message::Ended { port, reader: number },
            // The next call goes on where this one stopped.
            Err(error) if error.is_short_of_files() => {
                if !self.short_of_files.swap(true, Ordering::AcqRel) {
                    tracing::warn!(target: log_target::ENGINE, error = %Chain(&error), "the source waits until fewer files are open");
                }
                self.look_again_in(POLL);
                return Turn::Idle;
            }
            Err(error) => Message::Broken { port, reader: number, error: error.into() },
        };
        *lock(&self.next_look) = None;
        self.idle.store(false, Ordering::Release);
        if self.short_of_files.swap(false, Ordering::AcqRel) {
            tracing::info!(target: log_target::ENGINE, path = %reader.path().display(), "there are fewer open files; the source goes on");
        }
        let last = !matches!(message, Message::Read { .. });
        if messages.send(message).is_err() || last {
            *held = None;
            return Turn::Rest;
        }
        self.asked.fetch_sub(1, Ordering::SeqCst);
        Turn::Read
    }

    fn look_again_in(&self, wait: Duration) {
        let due = Instant::now() + wait;
        *lock(&self.next_look) = Some(due);
        let mut next = lock(&self.shared.next_look);
        if next.is_some_and(|next| next <= due) {
            return;
        }
        *next = Some(due);
        drop(next);
        if let Some(resting) = &*lock(&self.shared.resting) {
            // One that waits to be heard is enough.
            let _ = resting.try_send(());
        }
    }

    /// There is nothing now: the floor hears of it once, and the clock is looked at from then on.
    fn rest(&self, watched: Watched, messages: &Sender<Message>) {
        self.look_again_in(if watched == Watched::Polled { POLL } else { POLL_WATCHED });
        if !self.idle.swap(true, Ordering::AcqRel) {
            // A floor that is gone needs nothing.
            let _ = messages.send(Message::Idle { port: self.port, reader: self.number });
        }
    }
}

/// Wakes readers whose time to look has come, until `resting` is closed.
fn look_at_the_clock(shared: &Shared, resting: &Receiver<()>) {
    loop {
        let next = *lock(&shared.next_look);
        let told = match next {
            Some(next) => resting.recv_deadline(next),
            None => resting.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match told {
            Ok(()) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        // Readers that rest from here on tell their time by themselves.
        *lock(&shared.next_look) = None;
        let now = Instant::now();
        let all: Vec<_> = lock(&shared.tasks).iter().filter_map(Weak::upgrade).collect();
        for task in all {
            let mut look = lock(&task.next_look);
            let Some(due) = *look else { continue };
            if due > now {
                drop(look);
                let mut next = lock(&shared.next_look);
                *next = Some(next.map_or(due, |next| next.min(due)));
                continue;
            }
            *look = None;
            drop(look);
            task.wake();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A reader that panicked takes its run down; what else these guard is whole after every statement.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
