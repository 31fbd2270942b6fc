//! Ticks: a cheap clock, for operations that cannot afford to read the real one.
//!
//! A thread counts up every 10 ms while scripts run, and sleeps otherwise. Code that sees a new count reads
//! the clock. So an attempt ends soon after its deadline, however long one operation takes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use crate::memory;
use tidegate_model::sync::Mutex;

const INTERVAL: Duration = Duration::from_millis(10);

/// Number of unread ticks after which the thread sleeps: one second.
const UNSEEN_MAX: u64 = 100;

static TICKS: AtomicU64 = AtomicU64::new(0);
static SEEN: AtomicU64 = AtomicU64::new(0);
static ASLEEP: AtomicBool = AtomicBool::new(true);
static THREAD: Mutex<Option<Thread>> = Mutex::new(None);

/// A count that never occurs.
pub(crate) const NEVER: u64 = u64::MAX;

/// The present count.
#[inline]
pub(crate) fn ticks() -> u64 {
    TICKS.load(Ordering::Relaxed)
}

/// The present count, for code that reads the clock and continues: another tick will follow.
pub(crate) fn see() -> u64 {
    let ticks = TICKS.load(Ordering::SeqCst);
    // Either the thread sees this before it sleeps, or its sleep is seen here.
    SEEN.store(ticks, Ordering::SeqCst);
    if ASLEEP.load(Ordering::SeqCst) {
        wake();
    }
    ticks
}

#[cold]
fn wake() {
    let mut thread = THREAD.lock();
    match &*thread {
        Some(thread) => thread.unpark(),
        // No attempt is charged for it.
        None => match memory::uncounted(|| thread::Builder::new().name("ticker".to_owned()).spawn(tick)) {
            Ok(started) => *thread = Some(started.thread().clone()),
            // Every operation reads the clock, until a thread can be started.
            Err(_) => drop(TICKS.fetch_add(1, Ordering::SeqCst)),
        },
    }
}

fn tick() {
    loop {
        ASLEEP.store(false, Ordering::SeqCst);
        while unseen() < UNSEEN_MAX {
            thread::sleep(INTERVAL);
            TICKS.fetch_add(1, Ordering::SeqCst);
        }
        ASLEEP.store(true, Ordering::SeqCst);
        if unseen() >= UNSEEN_MAX {
            thread::park();
        }
    }
}

fn unseen() -> u64 {
    TICKS.load(Ordering::SeqCst).saturating_sub(SEEN.load(Ordering::SeqCst))
}
