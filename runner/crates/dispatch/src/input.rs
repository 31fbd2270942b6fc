//! Step input: tracks requests to its reader, and the jobs that were read and are in no batch yet.

use std::collections::VecDeque;

use crate::protocol::{InputKind, ReadId};
use tidegate_model::Timestamp;

#[derive(Debug)]
pub(crate) struct InputState {
    /// Origin of the jobs; `None` for redelivered jobs.
    feed: Option<InputKind>,
    /// The index of the next job to read.
    pub(crate) next: u64,
    pub(crate) reading: ReaderState,
    /// Due time of the first redelivered job that was not read.
    due: Option<Timestamp>,
    /// Reads in order, contiguous except for finished jobs.
    reads: VecDeque<UnusedRead>,
    /// Jobs that were accounted for before they are read: ranges, inclusive, ascending.
    finished: VecDeque<(u64, u64)>,
}

/// A time before every time that a clock gives.
const ANY_TIME: Timestamp = Timestamp(i64::MIN);

/// State of the reader of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReaderState {
    /// No request is open.
    Ready,
    /// A request is open.
    Asked,
    /// The reader has no jobs now and reports later ones without another request.
    Waiting,
    /// No jobs are read until there is room for them.
    Full,
    /// The reader has no more jobs in this run.
    Ended,
}

/// Unused rest of a read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnusedRead {
    pub(crate) read: ReadId,
    /// Index of its first unused job.
    pub(crate) first: u64,
    /// Number of used jobs at the beginning of the read.
    pub(crate) skip: usize,
    pub(crate) jobs: usize,
    pub(crate) bytes: usize,
}

impl InputState {
    pub(crate) fn new(feed: InputKind, next: u64) -> Self {
        let (reads, finished) = (VecDeque::new(), VecDeque::new());
        Self { feed: Some(feed), next, reading: ReaderState::Ready, due: None, reads, finished }
    }

    /// Creates an input with some later jobs accounted for already.
    pub(crate) fn with_finished(feed: InputKind, next: u64, finished: Vec<(u64, u64)>) -> Self {
        Self { finished: finished.into(), ..Self::new(feed, next) }
    }

    /// Creates the input of redelivered jobs, with the due time of the first one.
    pub(crate) fn returned(due: Option<Timestamp>) -> Self {
        let (reads, finished) = (VecDeque::new(), VecDeque::new());
        Self { feed: None, next: 0, reading: ReaderState::Ready, due, reads, finished }
    }

    /// Adds a read without its finished jobs. Returns the bytes of the rest, or `None` if nothing is left.
    pub(crate) fn take_in(&mut self, remnant: UnusedRead) -> Option<usize> {
        self.reading = ReaderState::Ready;
        if self.feed.is_none() {
            // There may be more jobs than one read can hold.
            self.due = Some(ANY_TIME);
        }
        debug_assert!(
            self.feed.is_none() || remnant.first == self.next,
            "a reader answers with the jobs that were requested"
        );
        self.next = remnant.first + remnant.jobs as u64;
        let pieces = self.unfinished(remnant);
        let bytes = pieces.iter().map(|piece| piece.bytes).sum();
        let is_left = !pieces.is_empty();
        self.reads.extend(pieces);
        is_left.then_some(bytes)
    }

    /// Splits the unused rest of a read at the finished jobs in it.
    fn unfinished(&mut self, mut left: UnusedRead) -> Vec<UnusedRead> {
        let mut pieces = Vec::new();
        while let Some(&(from, to)) = self.finished.front().filter(|(from, _)| *from < self.next) {
            pieces.push(left.split_before(from));
            left.split_before(to.saturating_add(1));
            if to >= self.next {
                // The rest of the finished range is in the next read.
                break;
            }
            self.finished.pop_front();
        }
        pieces.push(left);
        pieces.retain(|piece| piece.jobs > 0);
        pieces
    }

    pub(crate) fn idle(&mut self) {
        self.reading = ReaderState::Waiting;
    }

    /// Records that there is no room for more jobs, or that there is again.
    pub(crate) fn set_full(&mut self, full: bool) {
        if full {
            self.reading = ReaderState::Full;
        } else if self.reading == ReaderState::Full {
            // Another request may be open by now.
            self.reading = ReaderState::Ready;
        }
    }

    /// Records the due time of another redelivered job.
    pub(crate) fn returns(&mut self, due: Timestamp) {
        self.due = Some(self.due.map_or(due, |sooner| sooner.min(due)));
    }

    /// Records that jobs were dropped after their read and must be read again.
    pub(crate) fn look_again(&mut self) {
        self.due = Some(ANY_TIME);
    }

    /// Records that no further job is due; the next one will be at `next`.
    pub(crate) fn none_due(&mut self, next: Option<Timestamp>) {
        self.reading = ReaderState::Ready;
        if let Some(next) = next {
            self.returns(next);
        }
    }

    /// Records that a request is open.
    pub(crate) fn ask(&mut self) {
        self.reading = ReaderState::Asked;
        // A job that arrives meanwhile may miss the answer, so its due time is recorded again.
        self.due = None;
    }

    /// Time of the next possible request, if the input waits for a time.
    pub(crate) fn wakes(&self) -> Option<Timestamp> {
        self.due.filter(|_| self.reading == ReaderState::Ready)
    }

    /// Whether a request makes sense now.
    pub(crate) fn may_read(&self, heads: &[u64], now: Timestamp) -> bool {
        self.reading == ReaderState::Ready
            && match self.feed {
                Some(InputKind::Queue(queue) | InputKind::Pushed(queue)) => self.next <= heads[queue],
                Some(InputKind::Source) => true,
                None => self.due.is_some_and(|due| due <= now),
            }
    }

    /// Whether the input is empty and stays empty unless another step or client adds jobs.
    pub(crate) fn is_drained(&self, heads: &[u64], until_idle: bool, now: Timestamp) -> bool {
        self.reads.is_empty()
            && match (self.feed, self.reading) {
                // Only jobs of other inputs, or a time, make room again.
                (_, ReaderState::Ended | ReaderState::Full) | (None, ReaderState::Waiting) => true,
                (Some(InputKind::Queue(queue)), _) => self.next > heads[queue],
                (Some(InputKind::Pushed(queue)), _) => until_idle && self.next > heads[queue],
                (Some(InputKind::Source), ReaderState::Waiting) => until_idle,
                (None, ReaderState::Ready) => self.due.is_none_or(|due| until_idle && due > now),
                (None, ReaderState::Asked)
                | (Some(InputKind::Source), ReaderState::Ready | ReaderState::Asked) => false,
            }
    }

    /// Number of reads that are not fully in batches.
    pub(crate) fn ahead(&self) -> usize {
        self.reads.len()
    }

    /// Number of jobs up to the next gap.
    pub(crate) fn contiguous_len(&self) -> usize {
        self.reads.front().map_or(0, |read| read.jobs)
    }

    pub(crate) fn jobs(&self) -> usize {
        self.reads.iter().map(|read| read.jobs).sum()
    }

    /// Number of jobs of the queue that were not requested yet, and its last index; `None` for a source.
    pub(crate) fn behind(&self, heads: &[u64]) -> Option<(u64, u64)> {
        let (InputKind::Queue(queue) | InputKind::Pushed(queue)) = self.feed? else { return None };
        Some((heads[queue].saturating_sub(self.next - 1), heads[queue]))
    }

    /// Index of the first job that is in no batch yet.
    pub(crate) fn first(&self) -> Option<u64> {
        self.reads.front().map(|read| read.first)
    }

    /// Takes up to `jobs` contiguous jobs. Also returns whether the read is now used up.
    pub(crate) fn take(&mut self, jobs: usize) -> Option<(UnusedRead, bool)> {
        let front = self.reads.front_mut()?;
        if jobs >= front.jobs {
            let whole = self.reads.pop_front()?;
            // A finished range may separate two remnants of the same read.
            let used_up = self.reads.front().is_none_or(|next| next.read != whole.read);
            return Some((whole, used_up));
        }
        let taken = front.split_before(front.first + jobs as u64);
        Some((taken, false))
    }

    /// Drops the jobs that are in no batch. Returns their reads with the dropped bytes.
    pub(crate) fn clear(&mut self) -> Vec<(ReadId, usize)> {
        let mut reads: Vec<(ReadId, usize)> = Vec::new();
        for remnant in self.reads.drain(..) {
            match reads.last_mut().filter(|(read, _)| *read == remnant.read) {
                Some((_, bytes)) => *bytes += remnant.bytes,
                None => reads.push((remnant.read, remnant.bytes)),
            }
        }
        reads
    }

    /// Moves the position past jobs that were read.
    pub(crate) fn skip_to(&mut self, next: u64) {
        self.reading = ReaderState::Ready;
        self.next = next;
    }
}

impl UnusedRead {
    /// Splits off the jobs before `index` and returns them.
    fn split_before(&mut self, index: u64) -> Self {
        let jobs = usize::try_from(index.saturating_sub(self.first)).unwrap_or(usize::MAX).min(self.jobs);
        let bytes = (self.bytes * jobs).checked_div(self.jobs).unwrap_or(0);
        let taken = Self { jobs, bytes, ..*self };
        self.first += jobs as u64;
        self.skip += jobs;
        self.jobs -= jobs;
        self.bytes -= bytes;
        taken
    }
}
