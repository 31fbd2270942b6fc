//! External completions: share one commit if they arrive during the commit before.

use std::collections::BTreeSet;

use super::Committer;
use super::disk_full::CommitOutcome;
use crate::error::{Chain, EngineError};
use crate::operator::apply::apply;
use crate::operator::effect::RequestEffect;
use crate::operator::request::{PendingRequest, Request};
use crate::runtime::message::{CommitNotice, Message};
use tidegate_model::Address;
use tidegate_store::{Changes, ParkedId};

/// Completions of different jobs, so that none of them depends on another.
#[derive(Debug, Default)]
pub(crate) struct Completions {
    asked: Vec<PendingRequest>,
    /// Tokens of the completed jobs, one a job.
    tokens: BTreeSet<String>,
    /// The jobs by step and row, if these are known.
    rows: BTreeSet<(Address, ParkedId)>,
}

impl Completions {
    /// Adds a completion. Returns the request if it is of another kind, or if the group has a completion of
    /// the job already.
    pub(crate) fn add(&mut self, asked: PendingRequest) -> Option<PendingRequest> {
        let (token, row) = match &asked.request {
            Request::Complete { step, token, row, .. } => (Some(token), row.map(|row| (step.clone(), row))),
            Request::Validate { step, row } => (None, Some((step.clone(), *row))),
            _ => return Some(asked),
        };
        let is_known = token.is_some_and(|token| self.tokens.contains(token))
            || row.as_ref().is_some_and(|row| self.rows.contains(row));
        if is_known {
            return Some(asked);
        }
        self.tokens.extend(token.cloned());
        self.rows.extend(row);
        self.asked.push(asked);
        None
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
        let mut appended = Vec::new();
        let mut judge = |asked: &PendingRequest| {
            let effect = apply(&self.store, self.committed_state.configuration(), &asked.request, now)?;
            let RequestEffect { changes: its, request_outcome, completed, appended: events, .. } = effect;
            let place = completed.then_some(changes.reparked.len());
            changes.reparked.extend(its.reparked);
            changes.appends.extend(its.appends);
            appended.extend(events);
            changes.dedupe_records.extend(its.dedupe_records);
            Ok((request_outcome, place))
        };
        let judged: Vec<Result<_, String>> = completions.asked.iter().map(&mut judge).collect();
        let committed = match self.put_down(&changes) {
            Ok(committed) => committed,
            Err(error) => {
                let why =
                    format!("the run ends, and the outcome of the request is unknown: {}", Chain(&error));
                completions.asked.iter().for_each(|asked| asked.answer(Err(why.clone())));
                return Err(error);
            }
        };
        let mut durable = CommitNotice::default();
        if let Some(CommitOutcome { firsts, stamp, .. }) = committed {
            for ((queue, events, carried), first) in appended.into_iter().zip(firsts) {
                durable.grown.push(self.append_to_queue(queue, first, events, carried, &stamp));
            }
        }
        for (asked, judged) in completions.asked.iter().zip(&judged) {
            let place = judged.as_ref().ok().and_then(|(_, place)| *place);
            let taken = place.and_then(|at| changes.reparked.get(at).cloned());
            durable.completions.extend(self.completion_notice(&asked.request, taken));
        }
        // A run that is over receives no messages.
        let _ = self.messages.send(Message::Committed(durable));
        for (asked, judged) in completions.asked.iter().zip(judged) {
            asked.answer(judged.map(|(request_outcome, _)| request_outcome));
        }
        Ok(())
    }

    /// Commits the accepted completions, if there are any.
    fn put_down(&mut self, changes: &Changes) -> Result<Option<CommitOutcome>, EngineError> {
        let mut logged = false;
        while !changes.reparked.is_empty() {
            if let Some(committed) = self.commit_changes(changes, &mut logged)? {
                return Ok(Some(committed));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
