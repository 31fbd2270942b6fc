//! Simulated committer: groups the requests, commits them, and observes the result.

use super::{Crash, Stage};
use crate::commit::committer::Completions;
use crate::commit::request::{CommitRequest, StepChange};
use crate::error::EngineError;
use crate::runtime::message::Message;

impl Stage<'_> {
    pub(crate) fn commit(&mut self) -> Result<(), Crash> {
        let most = 1 + self.world.dice.below(4);
        let (mut group, mut pushes, mut ticked) = (Vec::new(), Vec::new(), Vec::new());
        let (mut told, mut orders) = (Completions::default(), 0);
        while orders < most {
            orders += 1;
            let is_first = group.is_empty() && pushes.is_empty() && ticked.is_empty() && told.is_empty();
            match self.orders.pop_front() {
                Some(CommitRequest::Enter(entry)) => group.push(entry),
                Some(CommitRequest::Amend(asked)) => match told.add(asked) {
                    None => {}
                    Some(asked) if is_first => {
                        let amended = self.committer.amend(&asked);
                        return self.committed(amended);
                    }
                    Some(asked) => {
                        self.orders.push_front(CommitRequest::Amend(asked));
                        break;
                    }
                },
                Some(CommitRequest::ApplyRetention) if is_first => {
                    let let_go = self.committer.apply_retention();
                    return self.committed(let_go);
                }
                Some(CommitRequest::Stopped(stop)) if is_first => {
                    let noted = self.committer.note_stopped(vec![stop]);
                    return self.committed(noted);
                }
                // The group takes all pushes of the inbox, like a committer does.
                Some(CommitRequest::InboxReady) => pushes.extend(self.committer.inbox.take(usize::MAX)),
                Some(CommitRequest::Ticked(more)) => ticked.push(more),
                Some(order) => {
                    self.orders.push_front(order);
                    break;
                }
                None => break,
            }
        }
        for entry in &group {
            if let StepChange::Rewind(rewind) = entry {
                self.world.effects.forget(&self.configuration.steps[rewind.step].address);
            }
        }
        let deliveries = group.iter().filter_map(StepChange::as_delivery);
        let delivered: Vec<_> = deliveries.map(|delivery| (delivery.step, delivery.jobs.clone())).collect();
        let committed = self.committer.commit(group, pushes, ticked);
        self.committed(committed)?;
        for (step, jobs) in delivered {
            self.world.effects.delivered(&self.configuration.steps[step].address, &jobs);
        }
        let completed = self.committer.complete(&told);
        self.committed(completed)
    }

    /// Observes the durable state after a commit.
    pub(crate) fn committed(&mut self, outcome: Result<(), EngineError>) -> Result<(), Crash> {
        outcome.map_err(|error| self.world.expected(&error))?;
        if self.world.disk.struck() {
            return Err(Crash);
        }
        let mut delivered = Vec::new();
        while let Ok(message) = self.told.try_recv() {
            if let Message::Committed(durable) = &message {
                delivered.extend(durable.delivered.iter().map(|&(_, id, _)| id));
            }
            self.inbox.push_back(message);
        }
        let seen = self.world.history.observe(&self.store);
        seen.map_err(|error| self.world.expected(&error.into()))?;
        self.see(&delivered)
    }
}
