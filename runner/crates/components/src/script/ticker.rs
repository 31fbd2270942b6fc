//! Ticks: the clock, for an operation that cannot afford to ask it.
//!
//! A thread counts up every 10 ms while scripts run, and sleeps while they do not. Whoever sees another count
//! than before asks the clock; so an attempt ends soon after its deadline, however long one operation takes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

const INTERVAL: Duration = Duration::from_millis(10);

/// How many ticks may pass unseen before the thread sleeps: a second of them.
const UNSEEN_MAX: u64 = 100;

static TICKS: AtomicU64 = AtomicU64::new(0);
static SEEN: AtomicU64 = AtomicU64::new(0);
static ASLEEP: AtomicBool = AtomicBool::new(true);
static THREAD: Mutex<Option<Thread>> = Mutex::new(None);

/// A count that has never been.
pub(crate) const NEVER: u64 = u64::MAX;

/// The count as of now.
#[inline]
pub(crate) fn ticks() -> u64 {
    TICKS.load(Ordering::Relaxed)
}

/// The count as of now, for someone who asks the clock and goes on: so there will be another tick.
pub(crate) fn see() -> u64 {
    let ticks = TICKS.load(Ordering::SeqCst);
    // Either the thread sees this before it sleeps, or it is seen here that it does.
    SEEN.store(ticks, Ordering::SeqCst);
    if ASLEEP.load(Ordering::SeqCst) {
        wake();
    }
    ticks
}

#[cold]
fn wake() {
    // It is whole after every statement, so one that a panic left behind is usable.
    let mut thread = THREAD.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    match &*thread {
        Some(thread) => thread.unpark(),
        None => match thread::Builder::new().name("ticker".to_owned()).spawn(tick) {
            Ok(started) => *thread = Some(started.thread().clone()),
            // Every operation asks the clock, until a thread can be started.
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
