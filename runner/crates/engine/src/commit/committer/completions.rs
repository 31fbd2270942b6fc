//! External completions: share one commit if they arrive during the commit before.

use std::collections::BTreeSet;

use super::Committer;
use crate::error::{Chain, EngineError};
use crate::operator::apply::apply;
use crate::operator::effect::RequestEffect;
use crate::operator::request::{PendingRequest, Request};
use crate::runtime::message::{CommitNotice, Message};
use tidegate_store::Changes;

/// Completions of different jobs, so that none of them depends on another.
#[derive(Debug, Default)]
pub(crate) struct Completions {
    asked: Vec<PendingRequest>,
    /// Tokens of the completed jobs, one a job.
    tokens: BTreeSet<String>,
}

impl Completions {
    /// Adds a completion. Returns the request if it is of another kind, or if the group has a completion of
    /// the job already.
    pub(crate) fn add(&mut self, asked: PendingRequest) -> Option<PendingRequest> {
        match &asked.request {
            Request::Complete { token, .. } if !self.tokens.contains(token) => {
                self.tokens.insert(token.clone());
                self.asked.push(asked);
                None
            }
            _ => Some(asked),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }
}

impl Committer {
    /// Commits the accepted completions together; each is accepted or refused on its own.
    pub(crate) fn complete(&mut self, completions: &Completions) -> Result<(), EngineError> {
        if completions.is_empty() {
            return Ok(());
        }
        let now = self.clock.now();
        let mut changes = Changes { now, ..Changes::default() };
        let mut judge = |asked: &PendingRequest| {
            let effect = apply(&self.store, self.committed_state.configuration(), &asked.request, now)?;
            let RequestEffect { changes: its, request_outcome, told, .. } = effect;
            let place = told.then_some(changes.reparked.len());
            changes.reparked.extend(its.reparked);
            changes.dedupe_records.extend(its.dedupe_records);
            Ok((request_outcome, place))
        };
        let judged: Vec<Result<_, String>> = completions.asked.iter().map(&mut judge).collect();
        if let Err(error) = self.put_down(&changes) {
            let why = format!("the run ends, and the outcome of the request is unknown: {}", Chain(&error));
            completions.asked.iter().for_each(|asked| asked.answer(Err(why.clone())));
            return Err(error);
        }
        let mut durable = CommitNotice::default();
        for (asked, judged) in completions.asked.iter().zip(&judged) {
            let place = judged.as_ref().ok().and_then(|(_, place)| *place);
            let taken = place.and_then(|at| changes.reparked.get(at).cloned());
            durable.told.extend(self.telling(&asked.request, taken));
        }
        // A run that is over receives no messages.
        let _ = self.messages.send(Message::Committed(durable));
        for (asked, judged) in completions.asked.iter().zip(judged) {
            asked.answer(judged.map(|(request_outcome, _)| request_outcome));
        }
        Ok(())
    }

    /// Commits the accepted completions, if there are any.
    fn put_down(&mut self, changes: &Changes) -> Result<(), EngineError> {
        let mut told = false;
        while !changes.reparked.is_empty() && self.commit_changes(changes, &mut told)?.is_none() {}
        Ok(())
    }
}

#[cfg(test)]
mod tests;
