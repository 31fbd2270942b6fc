//! Jobs that are brought to a run from outside: where they wait for the next commit, which all that
//! wait share.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_plugin::Payloads;

use tidegate_config::QueueRef;
use tidegate_model::DeliveryHash;

/// Jobs for the end of one queue: all of them, but for those that came before, or none.
pub struct Push {
    pub queue: QueueRef,
    /// JSON each; at least one.
    pub jobs: Payloads,
    /// Under which all of them together are known again.
    pub whole: Option<Key>,
    /// Under which each of them is known again; empty where they are not.
    pub each: Vec<Key>,
    /// Called once it is durable, or cannot be; dropped where the run ends before, and then whether it
    /// was done is not known.
    pub answer: Answer,
}

pub type Answer = Box<dyn FnOnce(Result<Pushed, Conflict>) + Send>;

/// A key that somebody outside gave to what he brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    pub hash: DeliveryHash,
    /// A hash of what was brought, by what it says.
    pub content: u64,
    /// A hash of its bytes, which older versions have remembered.
    pub verbatim: u64,
}

impl Key {
    /// Whether this content, which was remembered under the key, is what is brought now.
    #[must_use]
    pub fn is_of(&self, content: u64) -> bool {
        content == self.content || content == self.verbatim
    }
}

/// Where jobs stand that were pushed. It is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// So many of them from `first` on, but for those that came before: by position, their index.
    Appended { first: u64, jobs: u64, known: Vec<(usize, u64)> },
    /// All of them came before, together: so many of them were new then, and stand from `first` on.
    Known { first: u64, jobs: u64 },
}

/// Something else came before under the same key. Nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The job whose key it is; `None`: it is that of all of them together.
    pub position: Option<usize>,
    /// The index of what came before; `None`: it is in the same push.
    pub index: Option<u64>,
}

/// Where pushes wait for the committer.
#[derive(Debug)]
pub(crate) struct Inbox {
    letters: Mutex<Letters>,
    /// By queue: jobs that its slowest reader has not accounted for.
    waiting: Vec<AtomicU64>,
}

#[derive(Debug, Default)]
struct Letters {
    pushes: Vec<Push>,
    closed: bool,
}

impl Inbox {
    pub(crate) fn new(queues: usize) -> Self {
        Self { letters: Mutex::default(), waiting: (0..queues).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Answers whether it is the first, so that the committer has to be told; `None` where no more is
    /// taken.
    pub(crate) fn put(&self, push: Push) -> Option<bool> {
        let mut letters = self.lock();
        if letters.closed {
            return None;
        }
        letters.pushes.push(push);
        Some(letters.pushes.len() == 1)
    }

    /// Takes out what has waited longest, up to about so many bytes.
    pub(crate) fn take(&self, bytes_max: usize) -> Vec<Push> {
        let mut letters = self.lock();
        let mut bytes = 0;
        let fits = |push: &&Push| {
            let room = bytes < bytes_max;
            bytes += push.byte_len();
            room
        };
        let count = letters.pushes.iter().take_while(fits).count();
        let rest = letters.pushes.split_off(count);
        std::mem::replace(&mut letters.pushes, rest)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().pushes.is_empty()
    }

    /// Takes no more. What waits may still be taken out.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
    }

    fn lock(&self) -> MutexGuard<'_, Letters> {
        // It is whole after every statement, so one that a panic left behind is usable.
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn waiting(&self, QueueRef(queue): QueueRef) -> u64 {
        self.waiting[queue].load(Ordering::Relaxed)
    }

    pub(crate) fn set_waiting(&self, QueueRef(queue): QueueRef, jobs: u64) {
        self.waiting[queue].store(jobs, Ordering::Relaxed);
    }
}

impl Push {
    /// What it takes in memory, about: many small jobs take more than their bytes.
    pub(crate) fn byte_len(&self) -> usize {
        self.jobs.byte_len() + self.jobs.len() * size_of::<usize>() + self.each.len() * size_of::<Key>()
    }
}

impl fmt::Debug for Push {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queue, jobs, whole, each, answer: _ } = self;
        f.debug_struct("Push")
            .field("queue", queue)
            .field("jobs", &jobs.len())
            .field("whole", whole)
            .field("each", &each.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(job: &str) -> Push {
        let jobs = [job.as_bytes()].into_iter().collect();
        Push { queue: QueueRef(0), jobs, whole: None, each: Vec::new(), answer: Box::new(|_| {}) }
    }

    fn jobs(pushes: &[Push]) -> Vec<&[u8]> {
        pushes.iter().flat_map(|push| push.jobs.iter()).collect()
    }

    #[test]
    fn only_the_first_that_waits_is_announced() {
        let inbox = Inbox::new(1);
        assert_eq!(inbox.put(push("1")), Some(true));
        assert_eq!(inbox.put(push("2")), Some(false));
        assert_eq!(jobs(&inbox.take(100)), [b"1", b"2"]);
        assert_eq!(inbox.put(push("3")), Some(true));
    }

    #[test]
    fn what_is_taken_out_is_bounded_and_is_at_least_one() {
        let inbox = Inbox::new(1);
        for job in ["11", "22", "33"] {
            inbox.put(push(job));
        }
        assert_eq!(jobs(&inbox.take(1)), [b"11"]);
        let one = push("22").byte_len();
        assert!(one > 2, "where a job ends takes room too");
        assert_eq!(jobs(&inbox.take(2 * one)), [b"22", b"33"]);
        assert!(inbox.is_empty());
    }

    #[test]
    fn a_closed_inbox_takes_nothing_and_gives_up_what_it_has() {
        let inbox = Inbox::new(1);
        inbox.put(push("1"));
        inbox.close();
        assert_eq!(inbox.put(push("2")), None);
        assert_eq!(jobs(&inbox.take(100)), [b"1"]);
    }
}
