//! One input of a step: what is asked of its reader, and what was read and is in no batch yet.

use std::collections::VecDeque;

use super::flow::{Feed, ReadId};

#[derive(Debug)]
pub(super) struct InputState {
    /// `None` for the jobs that come again.
    feed: Option<Feed>,
    /// The index of the next job to read.
    pub(super) next: u64,
    pub(super) reading: Reading,
    /// More came while it was being read.
    more: bool,
    /// Oldest first, contiguous.
    reads: VecDeque<Remnant>,
}

/// What the reader of an input is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
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
pub(super) struct Remnant {
    pub(super) read: ReadId,
    /// The index of its first job that is left.
    pub(super) first: u64,
    /// How many jobs of the read are gone.
    pub(super) skip: usize,
    pub(super) jobs: usize,
    pub(super) bytes: usize,
}

impl InputState {
    pub(super) fn new(feed: Feed, next: u64) -> Self {
        Self { feed: Some(feed), next, reading: Reading::Ready, more: false, reads: VecDeque::new() }
    }

    /// The input of the jobs that come again.
    pub(super) fn returned(some: bool) -> Self {
        let reading = if some { Reading::Ready } else { Reading::Waiting };
        Self { feed: None, next: 0, reading, more: false, reads: VecDeque::new() }
    }

    pub(super) fn take_in(&mut self, remnant: Remnant) {
        self.reading = Reading::Ready;
        self.more = false;
        debug_assert!(
            self.feed.is_none() || remnant.first == self.next,
            "a reader gives what it was asked for"
        );
        self.next = remnant.first + remnant.jobs as u64;
        self.reads.push_back(remnant);
    }

    pub(super) fn idle(&mut self) {
        self.reading = if std::mem::take(&mut self.more) { Reading::Ready } else { Reading::Waiting };
    }

    /// There is more, though nothing was asked.
    pub(super) fn wake(&mut self) {
        match self.reading {
            Reading::Waiting => self.reading = Reading::Ready,
            Reading::Asked => self.more = true,
            Reading::Ready | Reading::Ended => {}
        }
    }

    /// Whether there is something to ask for.
    pub(super) fn may_read(&self, heads: &[u64]) -> bool {
        self.reading == Reading::Ready
            && match self.feed {
                Some(Feed::Queue(queue) | Feed::Pushed(queue)) => self.next <= heads[queue],
                Some(Feed::Source) | None => true,
            }
    }

    /// Whether there is nothing, and will not be without something happening elsewhere.
    pub(super) fn is_dry(&self, heads: &[u64], until_idle: bool) -> bool {
        self.reads.is_empty()
            && match (self.feed, self.reading) {
                (_, Reading::Ended) | (None, Reading::Waiting) => true,
                (Some(Feed::Queue(queue)), _) => self.next > heads[queue],
                (Some(Feed::Pushed(queue)), _) => until_idle && self.next > heads[queue],
                (Some(Feed::Source), Reading::Waiting) => until_idle,
                (Some(Feed::Source) | None, Reading::Ready | Reading::Asked) => false,
            }
    }

    /// How many reads are in no batch yet, or only in part.
    pub(super) fn ahead(&self) -> usize {
        self.reads.len()
    }

    /// How many jobs can be taken in one piece.
    pub(super) fn in_one_piece(&self) -> usize {
        self.reads.front().map_or(0, |read| read.jobs)
    }

    pub(super) fn jobs(&self) -> usize {
        self.reads.iter().map(|read| read.jobs).sum()
    }

    /// The index of the first job that is in no batch yet.
    pub(super) fn first(&self) -> Option<u64> {
        self.reads.front().map(|read| read.first)
    }

    /// Takes up to `jobs` jobs, in one piece; also answers whether the read is used up by that.
    pub(super) fn take(&mut self, jobs: usize) -> Option<(Remnant, bool)> {
        let front = self.reads.front_mut()?;
        if jobs >= front.jobs {
            return self.reads.pop_front().map(|whole| (whole, true));
        }
        let bytes = front.bytes * jobs / front.jobs;
        let taken = Remnant { jobs, bytes, ..*front };
        front.first += jobs as u64;
        front.skip += jobs;
        front.jobs -= jobs;
        front.bytes -= bytes;
        Some((taken, false))
    }

    /// Gives up what is in no batch.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = Remnant> + '_ {
        self.reads.drain(..)
    }

    /// Goes on at `next`.
    pub(super) fn rewind(&mut self, next: u64) {
        self.next = next;
        self.reading = Reading::Ready;
    }
}
