//! Inbox: queues pushed jobs for the next commit, which they all share.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use tidegate_plugin::Payloads;

use tidegate_config::QueueRef;
use tidegate_model::sync::{Mutex, MutexGuard};
use tidegate_model::{DeliveryHash, Timestamp};
use tidegate_store::ParkedId;

/// Jobs for the end of one queue: all of them except duplicates, or none.
pub struct Push {
    pub queue: QueueRef,
    /// Payloads, each JSON; at least one.
    pub jobs: Payloads,
    /// Idempotency key of the whole push.
    pub whole: Option<IdempotencyKey>,
    /// Idempotency keys of the jobs; empty if they have none.
    pub each: Vec<IdempotencyKey>,
    /// Due times of the jobs that are appended later, by position.
    pub late: BTreeMap<usize, Timestamp>,
    /// Called once the push is durable or refused. It is dropped if the run ends before; the outcome is then
    /// unknown.
    pub answer: PushReply,
}

pub type PushReply = Box<dyn FnOnce(Result<Pushed, KeyConflict>) + Send>;

/// Idempotency key that a client gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    pub hash: DeliveryHash,
    /// Hash of the content, independent of its formatting.
    pub content: u64,
    /// Hash of the bytes, which older versions have stored.
    pub verbatim: u64,
}

impl IdempotencyKey {
    /// Whether this stored content is the same as the pushed one.
    #[must_use]
    pub fn is_of(&self, content: u64) -> bool {
        content == self.content || content == self.verbatim
    }
}

/// Position of pushed jobs. It is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The queue has `jobs` new jobs from `first` on, without the duplicates; `first` is 0 if there are none.
    /// `known` has the place of each duplicate, and `late` the number of each new job that is due later, by position.
    Appended { first: u64, jobs: u64, known: Vec<(usize, PushedPlace)>, late: Vec<(usize, ParkedId)> },
    /// The whole push is a duplicate: `jobs` jobs of it were appended from `first` on, and the `late` ones, which were
    /// due later, have the numbers from `late_first` on.
    Known { first: u64, jobs: u64, late_first: ParkedId, late: u64 },
}

/// Place of a pushed job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushedPlace {
    Index(u64),
    /// It is due later, under this number.
    Late(ParkedId),
}

/// The key was used for other content before. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyConflict {
    /// Job with the key; `None` if it is the key of the whole push.
    pub position: Option<usize>,
    /// The earlier job; `None` if it is in the same push.
    pub earlier: Option<PushedPlace>,
}

/// Queue of pushes for the committer.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    queued_pushes: Mutex<PendingPushes>,
    /// Backlog of each queue: jobs that its slowest step has not accounted for.
    waiting: Mutex<HashMap<QueueRef, u64>>,
}

#[derive(Debug, Default)]
struct PendingPushes {
    pushes: Vec<Push>,
    closed: bool,
}

impl Inbox {
    /// Adds a push. Returns whether it is the first, so that the committer must be notified, or `None` if the
    /// inbox is closed.
    pub(crate) fn put(&self, push: Push) -> Option<bool> {
        let mut queued_pushes = self.lock();
        if queued_pushes.closed {
            return None;
        }
        queued_pushes.pushes.push(push);
        Some(queued_pushes.pushes.len() == 1)
    }

    /// Removes the oldest pushes, up to about `bytes_max` bytes.
    pub(crate) fn take(&self, bytes_max: usize) -> Vec<Push> {
        let mut queued_pushes = self.lock();
        let mut bytes = 0;
        let fits = |push: &&Push| {
            let room = bytes < bytes_max;
            bytes += push.byte_len();
            room
        };
        let count = queued_pushes.pushes.iter().take_while(fits).count();
        let rest = queued_pushes.pushes.split_off(count);
        std::mem::replace(&mut queued_pushes.pushes, rest)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().pushes.is_empty()
    }

    /// Closes the inbox. Queued pushes can still be removed.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
    }

    fn lock(&self) -> MutexGuard<'_, PendingPushes> {
        self.queued_pushes.lock()
    }

    pub(crate) fn waiting(&self, queue: QueueRef) -> u64 {
        self.waiting.lock().get(&queue).copied().unwrap_or(0)
    }

    pub(crate) fn set_waiting(&self, queue: QueueRef, jobs: u64) {
        self.waiting.lock().insert(queue, jobs);
    }
}

impl Push {
    /// Approximate memory of the push: many small jobs take more than their bytes.
    pub(crate) fn byte_len(&self) -> usize {
        self.jobs.byte_len()
            + self.jobs.len() * size_of::<usize>()
            + self.each.len() * size_of::<IdempotencyKey>()
            + self.late.len() * size_of::<(usize, Timestamp)>()
    }
}

impl fmt::Debug for Push {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queue, jobs, whole, each, late, answer: _ } = self;
        f.debug_struct("Push")
            .field("queue", queue)
            .field("jobs", &jobs.len())
            .field("whole", whole)
            .field("each", &each.len())
            .field("late", &late.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(job: &str) -> Push {
        let jobs = [job.as_bytes()].into_iter().collect();
        let (whole, each, late) = (None, Vec::new(), BTreeMap::new());
        Push { queue: QueueRef(0), jobs, whole, each, late, answer: Box::new(|_| {}) }
    }

    fn jobs(pushes: &[Push]) -> Vec<&[u8]> {
        pushes.iter().flat_map(|push| push.jobs.iter()).collect()
    }

    #[test]
    fn only_the_first_that_waits_is_announced() {
        let inbox = Inbox::default();
        assert_eq!(inbox.put(push("1")), Some(true));
        assert_eq!(inbox.put(push("2")), Some(false));
        assert_eq!(jobs(&inbox.take(100)), [b"1", b"2"]);
        assert_eq!(inbox.put(push("3")), Some(true));
    }

    #[test]
    fn what_is_taken_out_is_bounded_and_is_at_least_one() {
        let inbox = Inbox::default();
        for job in ["11", "22", "33"] {
            inbox.put(push(job));
        }
        assert_eq!(jobs(&inbox.take(1)), [b"11"]);
        let one = push("22").byte_len();
        assert!(one > 2, "the end of each job takes room, too");
        assert_eq!(jobs(&inbox.take(2 * one)), [b"22", b"33"]);
        assert!(inbox.is_empty());
    }

    #[test]
    fn a_closed_inbox_takes_nothing_and_gives_up_what_it_has() {
        let inbox = Inbox::default();
        inbox.put(push("1"));
        inbox.close();
        assert_eq!(inbox.put(push("2")), None);
        assert_eq!(jobs(&inbox.take(100)), [b"1"]);
    }
}
