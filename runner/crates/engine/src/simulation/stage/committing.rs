//! Simulated committer: collects groups of requests like the committer thread does, drawn at random. It commits them
//! and observes each result.

use std::collections::VecDeque;

use super::{Crash, Stage};
use crate::commit::committer::group::{CommitGroup, GroupChanges, GroupPart, MoreRequests};
use crate::commit::request::{CommitRequest, StepChange};
use crate::error::EngineError;
use crate::runtime::message::Message;

/// Requests that a group may still take.
struct Drawn<'a> {
    orders: &'a mut VecDeque<CommitRequest>,
    left: usize,
}

impl MoreRequests for Drawn<'_> {
    fn next(&mut self, _: bool) -> Option<CommitRequest> {
        self.left = self.left.checked_sub(1)?;
        self.orders.pop_front()
    }
}

impl Stage<'_> {
    pub(crate) fn commit(&mut self) -> Result<(), Crash> {
        let left = self.world.dice.below(4);
        let Some(first) = self.orders.pop_front() else { return Ok(()) };
        let mut drawn = Drawn { orders: &mut self.orders, left };
        let group = CommitGroup::collect(first, &self.committer.inbox, &mut drawn);
        for part in group.parts() {
            let mut delivered = Vec::new();
            if let GroupPart::Changes(GroupChanges { entries, .. }) = &part {
                for entry in entries {
                    if let StepChange::Rewind(rewind) = entry {
                        let step = self.present(&rewind.step);
                        self.world.effects.forget(&step);
                    }
                }
                let deliveries = entries.iter().filter_map(StepChange::as_delivery);
                delivered
                    .extend(deliveries.map(|delivery| (self.present(&delivery.step), delivery.jobs.clone())));
            }
            let reload = if let GroupPart::Reload(change) = &part { Some(change.clone()) } else { None };
            if let Some(change) = &reload {
                self.before_reload(change);
            }
            let committed = self.committer.commit_part(part);
            let committed = committed.and_then(|()| match &reload {
                Some(change) if !self.world.disk.struck() => self.after_reload(change),
                _ => Ok(()),
            });
            self.committed(committed)?;
            for (step, jobs) in delivered {
                self.world.effects.delivered(&step, &jobs);
            }
        }
        Ok(())
    }

    /// Observes the durable state after a commit.
    pub(crate) fn committed(&mut self, outcome: Result<(), EngineError>) -> Result<(), Crash> {
        outcome.map_err(|error| self.world.expected(&error))?;
        if self.world.disk.struck() {
            return Err(Crash);
        }
        let mut delivered = Vec::new();
        while let Ok(message) = self.received.try_recv() {
            if let Message::Committed(durable) = &message {
                delivered.extend(durable.delivered.iter().map(|&(_, id, _)| id));
            }
            self.inbox.push_back(message);
        }
        let seen = self.world.history.observe(&self.store);
        let seen = seen.and_then(|()| self.world.note_files(&self.store));
        seen.map_err(|error| self.world.expected(&error.into()))?;
        self.see(&delivered)
    }
}
