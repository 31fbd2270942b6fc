//! Live versions: the versions of the steps whose instances the threads keep. A thread without a task drops all other
//! instances, so that a plugin of an earlier generation ends although its step has no further job.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use tidegate_model::sync::Mutex;

/// A step by position, with the first version of it that is kept.
pub(crate) type LiveVersion = (usize, u64);

/// First version of a step that is gone: none is kept.
pub(crate) const GONE: u64 = u64::MAX;

#[derive(Debug, Default)]
pub(crate) struct LiveVersions {
    /// Number of changes.
    changes: AtomicU64,
    /// First version that is kept, by position. A step that is not here has not changed in this run.
    first: Mutex<HashMap<usize, u64>>,
    /// Wake the threads that wait for tasks in a channel.
    wakers: Mutex<Vec<Sender<()>>>,
}

impl LiveVersions {
    pub(crate) fn set(&self, versions: &[LiveVersion]) {
        self.first.lock().extend(versions.iter().copied());
        self.changes.fetch_add(1, Ordering::Release);
        // A thread with a message in its channel is about to wake; one that has ended needs none.
        self.wakers.lock().retain(|waker| !matches!(waker.try_send(()), Err(TrySendError::Disconnected(()))));
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub(crate) fn is_live(&self, position: usize, version: u64) -> bool {
        self.first.lock().get(&position).is_none_or(|&first| version >= first)
    }

    /// A message comes after each change, as long as these versions live.
    pub(crate) fn waker(&self) -> Receiver<()> {
        let (waker, wakes) = bounded(1);
        self.wakers.lock().push(waker);
        wakes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_versions_and_all_of_a_step_that_is_gone_are_not_kept() {
        let live = LiveVersions::default();
        assert!(live.is_live(0, 1) && live.changes() == 0);
        let (first, second) = (live.waker(), live.waker());
        drop(second);
        live.set(&[(0, 3), (1, GONE)]);
        assert_eq!((live.changes(), live.wakers.lock().len()), (1, 1));
        assert!(first.try_recv().is_ok() && first.try_recv().is_err());
        assert!(!live.is_live(0, 2) && live.is_live(0, 3) && live.is_live(0, 4) && !live.is_live(1, 4));
        // It has come back.
        live.set(&[(1, 5)]);
        assert!(!live.is_live(1, 4) && live.is_live(1, 5) && live.is_live(2, 1));
    }
}
