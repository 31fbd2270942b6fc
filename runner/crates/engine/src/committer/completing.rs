//! What outside systems have said of pending jobs: all that has come while the commit before was under way
//! shares the next one.

use std::collections::BTreeSet;

use super::Committer;
use crate::amend::amend;
use crate::amendment::Amendment;
use crate::error::{Chain, EngineError};
use crate::message::{Durable, Message};
use crate::request::{Asked, Request};
use tidegate_store::Changes;

/// What was said of different jobs, so that none of it changes what another one finds.
#[derive(Debug, Default)]
pub(crate) struct Completions {
    asked: Vec<Asked>,
    /// One for each job.
    tokens: BTreeSet<String>,
}

impl Completions {
    /// Takes in what somebody asks for; gives it back where it is something else, or about a job of which
    /// something was said already.
    pub(crate) fn add(&mut self, asked: Asked) -> Option<Asked> {
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
    /// Puts down what was said of pending jobs: each taken or not by itself, all in one commit.
    pub(crate) fn complete(&mut self, completions: &Completions) -> Result<(), EngineError> {
        if completions.is_empty() {
            return Ok(());
        }
        let now = self.clock.now();
        let mut changes = Changes { now, ..Changes::default() };
        let mut judge = |asked: &Asked| {
            let amendment = amend(&self.store, &self.ledger.configuration, &asked.request, now)?;
            let Amendment { changes: its, granted, told, .. } = amendment;
            let place = told.then_some(changes.delayed.len());
            changes.undelayed.extend(its.undelayed);
            changes.delayed.extend(its.delayed);
            changes.deliveries.extend(its.deliveries);
            Ok((granted, place))
        };
        let judged: Vec<Result<_, String>> = completions.asked.iter().map(&mut judge).collect();
        let rows = match self.put_down(&changes) {
            Ok(rows) => rows,
            Err(error) => {
                let why =
                    format!("whether this was done is not known, since the run ends: {}", Chain(&error));
                completions.asked.iter().for_each(|asked| asked.answer(Err(why.clone())));
                return Err(error);
            }
        };
        let mut durable = Durable::default();
        for (asked, judged) in completions.asked.iter().zip(&judged) {
            let place = judged.as_ref().ok().and_then(|(_, place)| *place);
            let taken =
                place.and_then(|at| Some((rows.get(at)?.clone(), changes.delayed.get(at)?.job.clone())));
            durable.told.extend(self.telling(&asked.request, taken));
        }
        // A run that is over does not listen any more.
        let _ = self.messages.send(Message::Committed(durable));
        for (asked, judged) in completions.asked.iter().zip(judged) {
            asked.answer(judged.map(|(granted, _)| granted));
        }
        Ok(())
    }

    /// Commits what was taken, if anything was; answers where it stands.
    fn put_down(&mut self, changes: &Changes) -> Result<Vec<tidegate_store::DelayedKey>, EngineError> {
        let mut told = false;
        while !changes.delayed.is_empty() {
            if let Some(committed) = self.commit_changes(changes, &mut told)? {
                return Ok(committed.delayed);
            }
        }
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests;
