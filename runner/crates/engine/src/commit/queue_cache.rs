//! Queue cache: keeps the newest jobs of queues in memory, so that a step without a backlog never reads the
//! store.

use std::collections::VecDeque;
use std::sync::Arc;

use tidegate_plugin::Payloads;

use tidegate_model::Batch;
use tidegate_model::sync::Mutex;

/// Maximum bytes of one queue's cache.
const ROOM: usize = 4 << 20;

/// Caches of all queues, by position.
#[derive(Debug, Default)]
pub(crate) struct QueueCaches(Mutex<Vec<Arc<Mutex<QueueCache>>>>);

#[derive(Debug, Default)]
struct QueueCache {
    /// Contiguous batches, oldest first.
    batches: VecDeque<Arc<Batch>>,
    bytes: usize,
}

impl QueueCaches {
    /// Adds jobs that were just committed, and drops old ones above the limit.
    pub(crate) fn push(&self, queue: usize, batch: Batch) {
        let tail = self.of(queue);
        let mut tail = tail.lock();
        if tail.batches.back().is_some_and(|last| last.end() != batch.first) {
            *tail = QueueCache::default();
        }
        tail.bytes += batch.payloads.byte_len();
        tail.batches.push_back(Arc::new(batch));
        while tail.bytes > ROOM && tail.batches.len() > 1 {
            if let Some(old) = tail.batches.pop_front() {
                tail.bytes -= old.payloads.byte_len();
            }
        }
    }

    /// Jobs from `from` on, as one batch of at most about `jobs` jobs and `bytes` bytes. Returns `None` if
    /// the cache does not reach back so far.
    pub(crate) fn read(&self, queue: usize, from: u64, jobs: usize, bytes: usize) -> Option<Arc<Batch>> {
        let tail = self.of(queue);
        let tail = tail.lock();
        let at = tail.batches.partition_point(|batch| batch.end() <= from);
        let batch = tail.batches.get(at).filter(|batch| batch.first <= from)?;
        let following = tail.batches.get(at + 1);
        let small = batch.len() < jobs / 2 && batch.payloads.byte_len() < bytes / 2;
        if batch.first == from && !(small && following.is_some()) {
            return Some(Arc::clone(batch));
        }
        // Jobs that came one by one run in one batch.
        let mut joined = Batch::json(from, Payloads::new());
        for batch in tail.batches.range(at..) {
            let skip = usize::try_from(from.saturating_sub(batch.first)).unwrap_or(usize::MAX);
            joined.append(batch, skip);
            if joined.len() >= jobs || joined.payloads.byte_len() >= bytes {
                break;
            }
        }
        Some(Arc::new(joined))
    }

    /// Drops the jobs that all readers have read; `next` is the lowest next index of a reader.
    pub(crate) fn forget(&self, queue: usize, next: u64) {
        let tail = self.of(queue);
        let mut tail = tail.lock();
        while tail.batches.front().is_some_and(|batch| batch.end() <= next) {
            if let Some(old) = tail.batches.pop_front() {
                tail.bytes -= old.payloads.byte_len();
            }
        }
    }

    fn of(&self, queue: usize) -> Arc<Mutex<QueueCache>> {
        let mut caches = self.0.lock();
        while caches.len() <= queue {
            caches.push(Arc::default());
        }
        Arc::clone(&caches[queue])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payloads(texts: &[&str]) -> Payloads {
        texts.iter().map(|text| text.as_bytes()).collect()
    }

    fn texts(batch: &Batch) -> Vec<String> {
        batch.payloads.iter().map(|payload| String::from_utf8(payload.to_vec()).unwrap()).collect()
    }

    #[test]
    fn jobs_that_came_one_by_one_are_read_together() {
        let tails = QueueCaches::default();
        for (first, text) in (1..).zip(["1", "2", "3"]) {
            tails.push(0, Batch::json(first, payloads(&[text])));
        }
        let batch = tails.read(0, 2, 100, 100).unwrap();
        assert_eq!((batch.first, texts(&batch)), (2, vec!["2".into(), "3".into()]));
        assert!(tails.read(0, 4, 100, 100).is_none());
    }

    #[test]
    fn a_gap_makes_a_tail_start_again() {
        let tails = QueueCaches::default();
        tails.push(0, Batch::json(1, payloads(&["1"])));
        tails.push(0, Batch::json(5, payloads(&["5"])));
        assert!(tails.read(0, 1, 9, 9).is_none());
        assert_eq!(texts(&tails.read(0, 5, 9, 9).unwrap()), ["5"]);
    }

    #[test]
    fn a_tail_does_not_grow_with_the_queue() {
        let tails = QueueCaches::default();
        let big = "x".repeat(1 << 20);
        for first in 1..=20 {
            tails.push(0, Batch::json(first, payloads(&[&big])));
        }
        assert!(tails.read(0, 16, 1, 1).is_none());
        assert_eq!(tails.read(0, 18, 1, 1).unwrap().first, 18);
        tails.forget(0, 21);
        assert!(tails.read(0, 20, 1, 1).is_none());
    }
}
