//! One input of a step: what is asked of its reader, and what was read and is in no batch yet.

use std::collections::VecDeque;

use super::flow::{Feed, ReadId};
use tidegate_model::Timestamp;

#[derive(Debug)]
pub(crate) struct InputState {
    /// `None` for the jobs that come again.
    feed: Option<Feed>,
    /// The index of the next job to read.
    pub(crate) next: u64,
    pub(crate) reading: Reading,
    /// Of the jobs that come again: when the first of those is due that were not read.
    due: Option<Timestamp>,
    /// Oldest first, contiguous but for what is finished.
    reads: VecDeque<Remnant>,
    /// Jobs that are accounted for before they are read, inclusive, ascending.
    finished: VecDeque<(u64, u64)>,
}

/// Before every time that a clock tells.
const ANY_TIME: Timestamp = Timestamp(i64::MIN);

/// What the reader of an input is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Nothing was asked of it.
    Ready,
    /// It will answer.
    Asked,
    /// It was asked, has said that there is nothing now, and will answer when there is.
    Waiting,
    /// There will never be more in this run.
    Ended,
}

/// What is left of a read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remnant {
    pub(crate) read: ReadId,
    /// The index of its first job that is left.
    pub(crate) first: u64,
    /// How many jobs of the read are gone.
    pub(crate) skip: usize,
    pub(crate) jobs: usize,
    pub(crate) bytes: usize,
}

impl InputState {
    pub(crate) fn new(feed: Feed, next: u64) -> Self {
        let (reads, finished) = (VecDeque::new(), VecDeque::new());
        Self { feed: Some(feed), next, reading: Reading::Ready, due: None, reads, finished }
    }

    /// An input of which some jobs that are not read yet are accounted for.
    pub(crate) fn with_finished(feed: Feed, next: u64, finished: Vec<(u64, u64)>) -> Self {
        Self { finished: finished.into(), ..Self::new(feed, next) }
    }

    /// The input of the jobs that come again, of which the first is due at `due`.
    pub(crate) fn returned(due: Option<Timestamp>) -> Self {
        let (reads, finished) = (VecDeque::new(), VecDeque::new());
        Self { feed: None, next: 0, reading: Reading::Ready, due, reads, finished }
    }

    /// Answers with the bytes of what is left of it without what is finished; `None` if that is nothing.
    pub(crate) fn take_in(&mut self, remnant: Remnant) -> Option<usize> {
        self.reading = Reading::Ready;
        if self.feed.is_none() {
            // There may be more than one read holds.
            self.due = Some(ANY_TIME);
        }
        debug_assert!(
            self.feed.is_none() || remnant.first == self.next,
            "a reader gives what it was asked for"
        );
        self.next = remnant.first + remnant.jobs as u64;
        let pieces = self.unfinished(remnant);
        let bytes = pieces.iter().map(|piece| piece.bytes).sum();
        let is_left = !pieces.is_empty();
        self.reads.extend(pieces);
        is_left.then_some(bytes)
    }

    /// The pieces of a read, up to the next one, that lie between what is finished.
    fn unfinished(&mut self, mut left: Remnant) -> Vec<Remnant> {
        let mut pieces = Vec::new();
        while let Some(&(from, to)) = self.finished.front().filter(|(from, _)| *from < self.next) {
            pieces.push(left.cut(from));
            left.cut(to.saturating_add(1));
            if to >= self.next {
                // The rest of it lies in the next read.
                break;
            }
            self.finished.pop_front();
        }
        pieces.push(left);
        pieces.retain(|piece| piece.jobs > 0);
        pieces
    }

    pub(crate) fn idle(&mut self) {
        self.reading = Reading::Waiting;
    }

    /// A job that comes again is due at `due`.
    pub(crate) fn returns(&mut self, due: Timestamp) {
        self.due = Some(self.due.map_or(due, |sooner| sooner.min(due)));
    }

    /// Jobs that were read are given up, and have to be read once more.
    pub(crate) fn look_again(&mut self) {
        self.due = Some(ANY_TIME);
    }

    /// Nothing is due but what was read; the next one will be at `next`.
    pub(crate) fn none_due(&mut self, next: Option<Timestamp>) {
        self.reading = Reading::Ready;
        if let Some(next) = next {
            self.returns(next);
        }
    }

    /// Takes note that it is asked for more.
    pub(crate) fn ask(&mut self) {
        self.reading = Reading::Asked;
        // What comes meanwhile may be too late for the answer.
        self.due = None;
    }

    /// When there will be something to ask for, if only time has to pass for that.
    pub(crate) fn wakes(&self) -> Option<Timestamp> {
        self.due.filter(|_| self.reading == Reading::Ready)
    }

    /// Whether there is something to ask for.
    pub(crate) fn may_read(&self, heads: &[u64], now: Timestamp) -> bool {
        self.reading == Reading::Ready
            && match self.feed {
                Some(Feed::Queue(queue) | Feed::Pushed(queue)) => self.next <= heads[queue],
                Some(Feed::Source) => true,
                None => self.due.is_some_and(|due| due <= now),
            }
    }

    /// Whether there is nothing, and will not be without something happening elsewhere.
    pub(crate) fn is_dry(&self, heads: &[u64], until_idle: bool, now: Timestamp) -> bool {
        self.reads.is_empty()
            && match (self.feed, self.reading) {
                (_, Reading::Ended) | (None, Reading::Waiting) => true,
                (Some(Feed::Queue(queue)), _) => self.next > heads[queue],
                (Some(Feed::Pushed(queue)), _) => until_idle && self.next > heads[queue],
                (Some(Feed::Source), Reading::Waiting) => until_idle,
                (None, Reading::Ready) => self.due.is_none_or(|due| until_idle && due > now),
                (None, Reading::Asked) | (Some(Feed::Source), Reading::Ready | Reading::Asked) => false,
            }
    }

    /// How many reads are in no batch yet, or only in part.
    pub(crate) fn ahead(&self) -> usize {
        self.reads.len()
    }

    /// How many jobs can be taken in one piece.
    pub(crate) fn in_one_piece(&self) -> usize {
        self.reads.front().map_or(0, |read| read.jobs)
    }

    pub(crate) fn jobs(&self) -> usize {
        self.reads.iter().map(|read| read.jobs).sum()
    }

    /// Jobs of the queue that were not asked for yet, and the last index of it; `None` of a source.
    pub(crate) fn behind(&self, heads: &[u64]) -> Option<(u64, u64)> {
        let (Feed::Queue(queue) | Feed::Pushed(queue)) = self.feed? else { return None };
        Some((heads[queue].saturating_sub(self.next - 1), heads[queue]))
    }

    /// The index of the first job that is in no batch yet.
    pub(crate) fn first(&self) -> Option<u64> {
        self.reads.front().map(|read| read.first)
    }

    /// Takes up to `jobs` jobs, in one piece; also answers whether the read is used up by that.
    pub(crate) fn take(&mut self, jobs: usize) -> Option<(Remnant, bool)> {
        let front = self.reads.front_mut()?;
        if jobs >= front.jobs {
            let whole = self.reads.pop_front()?;
            // What is finished may have parted it from the rest.
            let used_up = self.reads.front().is_none_or(|next| next.read != whole.read);
            return Some((whole, used_up));
        }
        let taken = front.cut(front.first + jobs as u64);
        Some((taken, false))
    }

    /// Gives up what is in no batch. Answers with the reads of it, and their bytes.
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

    /// What is before `next` was read.
    pub(crate) fn skip_to(&mut self, next: u64) {
        self.reading = Reading::Ready;
        self.next = next;
    }

    /// Goes on at `next`.
    pub(crate) fn rewind(&mut self, next: u64) {
        if next < self.next {
            // With what is put back everything behind it is.
            self.finished.clear();
        }
        self.next = next;
        self.reading = Reading::Ready;
    }
}

impl Remnant {
    /// Cuts off the jobs before `index`, and answers with them.
    fn cut(&mut self, index: u64) -> Self {
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
