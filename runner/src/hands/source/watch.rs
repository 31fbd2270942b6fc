//! Waiting for files to change: events from the file system, a slow poll where these fail, and a
//! bell that another thread can ring.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use super::files::{folder_of, glob_base};

/// How long a reader waits when no event comes: network file systems have none.
const POLL: Duration = Duration::from_millis(250);

/// Ends a reader's wait from another thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Bell>);

impl Waker {
    pub fn wake(&self) {
        self.0.ring();
    }
}

/// Rings for one reader. A ring before the wait is not lost.
#[derive(Debug, Default)]
pub(super) struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        *lock(&self.rung) = true;
        self.changed.notify_all();
    }

    /// Blocks until it rings, or until it is time to look anyway.
    pub(super) fn wait(&self) {
        let rung = lock(&self.rung);
        let (mut rung, _) = self
            .changed
            .wait_timeout_while(rung, POLL, |rung| !*rung)
            .unwrap_or_else(PoisonError::into_inner);
        *rung = false;
    }

    pub(super) fn waker(self: &Arc<Self>) -> Waker {
        Waker(Arc::clone(self))
    }
}

/// Rings the bells of a source's readers when something changes where its files are.
#[derive(Debug, Default)]
pub(super) struct Watch {
    bells: Arc<Mutex<Vec<Weak<Bell>>>>,
    watcher: Mutex<Option<RecommendedWatcher>>,
}

impl Watch {
    pub(super) fn bell(&self) -> Arc<Bell> {
        let bell = Arc::new(Bell::default());
        let mut bells = lock(&self.bells);
        bells.retain(|bell| bell.strong_count() > 0);
        bells.push(Arc::downgrade(&bell));
        bell
    }

    /// Watches what `path` means; answers whether that is new, and so may have missed something.
    /// Where it cannot be watched (yet), the poll has to do.
    pub(super) fn start(&self, path: &Path) -> bool {
        let mut watcher = lock(&self.watcher);
        if watcher.is_some() {
            return false;
        }
        match watch(path, Arc::clone(&self.bells)) {
            Ok(started) => *watcher = Some(started),
            Err(error) => tracing::debug!(path = %path.display(), %error, "cannot watch, will poll"),
        }
        watcher.is_some()
    }
}

fn watch(path: &Path, bells: Arc<Mutex<Vec<Weak<Bell>>>>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        // Reading is an event too: a reader must not wake itself.
        if !matches!(event, Ok(Event { kind: EventKind::Access(_), .. })) {
            for bell in lock(&bells).iter().filter_map(Weak::upgrade) {
                bell.ring();
            }
        }
    })?;
    match glob_base(path) {
        _ if path.is_dir() => watcher.watch(path, RecursiveMode::NonRecursive)?,
        Some(base) if !path.exists() => {
            let deep = path.parent().is_some_and(|folder| folder != base);
            let mode = if deep { RecursiveMode::Recursive } else { RecursiveMode::NonRecursive };
            watcher.watch(&base, mode)?;
        }
        // The folder rather than the file: the file may be moved away, or not be there yet.
        _ => watcher.watch(folder_of(path), RecursiveMode::NonRecursive)?,
    }
    Ok(watcher)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What these guard is whole after every statement.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
