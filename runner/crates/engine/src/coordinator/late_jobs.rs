//! Late jobs: know when the next one of each queue is due. They do no I/O.

use std::collections::BTreeMap;

use tidegate_config::QueueRef;
use tidegate_model::Timestamp;

/// Queues with late jobs.
#[derive(Debug, Default)]
pub(crate) struct LateJobs(BTreeMap<QueueRef, LateQueue>);

#[derive(Clone, Copy, Debug)]
struct LateQueue {
    next: Timestamp,
    /// Whether the committer was asked to append the jobs that are due.
    asked: bool,
}

impl LateJobs {
    pub(crate) fn new(next: Vec<(QueueRef, Timestamp)>) -> Self {
        Self(next.into_iter().map(|(queue, next)| (queue, LateQueue { next, asked: false })).collect())
    }

    /// Records the due time of the first late job of a queue after a commit, if one is left.
    pub(crate) fn committed(&mut self, queue: QueueRef, next: Option<Timestamp>) {
        match next {
            Some(next) => _ = self.0.insert(queue, LateQueue { next, asked: false }),
            None => _ = self.0.remove(&queue),
        }
    }

    /// Queues with late jobs that are due. Each is returned once until its next commit.
    pub(crate) fn take(&mut self, now: Timestamp) -> Vec<QueueRef> {
        let due = self.0.iter_mut().filter(|(_, late)| !late.asked && late.next <= now);
        due.map(|(queue, late)| {
            late.asked = true;
            *queue
        })
        .collect()
    }

    /// Time of the next [`Self::take`] that returns a queue.
    pub(crate) fn wakes(&self) -> Option<Timestamp> {
        self.0.values().filter(|late| !late.asked).map(|late| late.next).min()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether late jobs are being appended.
    pub(crate) fn are_coming(&self) -> bool {
        self.0.values().any(|late| late.asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: i64) -> Timestamp {
        Timestamp(time)
    }

    #[test]
    fn a_queue_is_asked_for_once_and_again_after_its_commit() {
        let mut late = LateJobs::new(vec![(QueueRef(1), at(5)), (QueueRef(2), at(9))]);
        assert_eq!(late.wakes(), Some(at(5)));
        assert_eq!(late.take(at(4)), []);
        assert_eq!(late.take(at(5)), [QueueRef(1)]);
        assert_eq!((late.take(at(5)), late.wakes(), late.are_coming()), (vec![], Some(at(9)), true));
        late.committed(QueueRef(1), Some(at(6)));
        assert_eq!((late.wakes(), late.are_coming()), (Some(at(6)), false));
        assert_eq!(late.take(at(9)), [QueueRef(1), QueueRef(2)]);
        late.committed(QueueRef(1), None);
        late.committed(QueueRef(2), None);
        assert!(late.is_empty() && late.wakes().is_none());
    }

    #[test]
    fn an_earlier_job_moves_the_time_forward() {
        let mut late = LateJobs::new(vec![(QueueRef(1), at(500))]);
        late.committed(QueueRef(1), Some(at(3)));
        assert_eq!(late.wakes(), Some(at(3)));
    }
}
