//! Read side of a queued step: requests jobs and adds them to the waiting room.

use super::{Halting, QueuedStep};
use crate::input::ReaderState;
use crate::protocol::{Command, InputKind, InputPort, ReadId};
use crate::step_machine::DispatchContext;
use crate::waiting_room::{JobAttributes, WaitingState};
use tidegate_model::Timestamp;

#[derive(Debug)]
pub(crate) struct ReadState {
    read: ReadId,
    bytes: usize,
    /// Index behind its last job.
    end: u64,
    /// Number of its unfinished jobs.
    left: usize,
}

impl QueuedStep {
    pub(crate) fn took(
        &mut self,
        read: ReadId,
        first: u64,
        jobs: usize,
        bytes: usize,
        commands: &mut Vec<Command>,
    ) {
        self.input.skip_to(first + jobs as u64);
        if self.feed == Some(InputKind::Source) && self.end < Halting::Halted {
            let end = first + jobs as u64;
            let through = (first..end).filter(|&index| self.progress.is_done(index)).count();
            if through < jobs {
                self.held += bytes;
                self.reads.insert(first, ReadState { read, bytes, end, left: jobs - through });
                return;
            }
        }
        commands.push(Command::ReleaseRead { step: self.position, read });
    }

    /// Skips the jobs that are finished: they need no read, and retention may have deleted them.
    pub(crate) fn skip_finished(&mut self) {
        if self.input.reading == ReaderState::Ready && self.input.next <= self.progress.position() {
            self.input.skip_to(self.progress.position() + 1);
        }
    }

    pub(crate) fn read(
        &mut self,
        context: &DispatchContext<'_>,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) {
        let ahead = self.ahead().is_none_or(|ahead| self.input.next <= ahead);
        let fits = self.held < context.bounds.bytes || self.reads.is_empty();
        self.is_full = !(ahead && fits);
        if !self.is_full && self.input.may_read(context.heads, now) {
            self.input.ask();
            let port = InputPort::of_input(self.position, 0);
            commands.push(Command::Read { port, from: self.input.next });
        }
    }

    /// Last index that is considered, if search-ahead is limited.
    pub(crate) fn ahead(&self) -> Option<u64> {
        (self.search_ahead > 0).then(|| self.watermark().saturating_add(self.search_ahead))
    }

    /// The highest index up to which every job is finished. A job that is begun, delayed or pending holds it.
    pub(crate) fn watermark(&self) -> u64 {
        let position = self.progress.position();
        self.unfinished.first().map_or(position, |first| position.min(first.saturating_sub(1)))
    }

    /// Whether it still reads the initial backlog, and its rules must choose among all of it.
    pub(crate) fn catches_up(&mut self, heads: &[u64]) -> bool {
        let Some((_, head)) = self.input.behind(heads).filter(|_| self.room.chooses_among_all()) else {
            return false;
        };
        let first_head = *self.first_head.get_or_insert(head);
        let reads_on = matches!(self.input.reading, ReaderState::Ready | ReaderState::Asked);
        reads_on && self.input.next <= first_head.min(self.ahead().unwrap_or(u64::MAX))
    }

    /// Adds the buffered jobs that search-ahead has reached to the waiting room.
    pub(crate) fn admit(&mut self) {
        let ahead = self.ahead().unwrap_or(u64::MAX);
        while let Some(kept) = self.beyond.pop(ahead) {
            self.let_in(&kept.attributes(), WaitingState::Waiting);
        }
    }

    pub(crate) fn let_in(&mut self, attributes: &JobAttributes<'_>, state: WaitingState) {
        let index = attributes.key.0;
        if !(attributes.key.is_fresh() && (self.progress.is_done(index) || self.withheld.contains(&index))) {
            // A job that is in the waiting room already stays unchanged.
            let _ = self.room.add(attributes.clone(), state);
        }
    }

    /// Counts a finished job of a source, and releases its read after the last one.
    pub(crate) fn let_go(&mut self, index: u64, commands: &mut Vec<Command>) {
        let Some((&first, state)) = self.reads.range_mut(..=index).next_back() else { return };
        if index >= state.end {
            return;
        }
        state.left = state.left.saturating_sub(1);
        if state.left == 0 {
            self.held = self.held.saturating_sub(state.bytes);
            commands.push(Command::ReleaseRead { step: self.position, read: state.read });
            self.reads.remove(&first);
        }
    }
}
