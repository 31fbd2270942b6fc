//! Operator requests: are committed in a transaction of their own, then the coordinator and the caller are
//! notified.

use super::Committer;
use super::disk_full::CommitOutcome;
use crate::error::{Chain, EngineError};
use crate::operator::apply::apply;
use crate::operator::effect::{MovedRows, RequestEffect, RowAfter};
use crate::operator::request::{PendingRequest, Request};
use crate::runtime::message::{CommitNotice, CompletionNotice, Message, MoveNotice};
use tidegate_store::{NewParkedJob, ParkedJob, ParkedKey};

impl Committer {
    /// Applies a request in a commit of its own.
    pub(crate) fn amend(&mut self, asked: &PendingRequest) -> Result<(), EngineError> {
        let now = self.clock.now();
        let effect = match apply(&self.store, &self.committed_state.configuration, &asked.request, now) {
            Ok(effect) => effect,
            Err(why) => {
                // Nothing was changed: the locked jobs are released unchanged.
                let (moved, told) = (self.unmoved(&asked.request), self.telling(&asked.request, None));
                let durable =
                    CommitNotice { moved, told: told.into_iter().collect(), ..CommitNotice::default() };
                let _ = self.messages.send(Message::Committed(durable));
                asked.answer(Err(why));
                return Ok(());
            }
        };
        let mut told = false;
        let committed = loop {
            match self.commit_changes(&effect.changes, &mut told) {
                Ok(Some(committed)) => break committed,
                Ok(None) => {}
                Err(error) => {
                    let why = Chain(&error);
                    asked.answer(Err(format!(
                        "the run ends, and the outcome of the request is unknown: {why}"
                    )));
                    return Err(error);
                }
            }
        };
        let request_outcome = effect.request_outcome.clone();
        let durable = self.amended(&asked.request, effect, &committed);
        let _ = self.messages.send(Message::Committed(durable));
        asked.answer(Ok(request_outcome.and(asked.moved)));
        Ok(())
    }

    /// Applies the durable effects of a request and returns the commit notice.
    fn amended(
        &mut self,
        request: &Request,
        effect: RequestEffect,
        committed: &CommitOutcome,
    ) -> CommitNotice {
        let rows = committed.delayed.iter().cloned().zip(effect.changes.parked.iter());
        let steps = &self.committed_state.configuration.steps;
        let returned = rows.filter_map(|(key, delayed)| {
            let step = steps.position(|step| step.address == delayed.step)?;
            Some((step, key, delayed.job.clone()))
        });
        let mut durable = CommitNotice { paused: effect.paused, ..CommitNotice::default() };
        let mut returned = returned.peekable();
        let taken = returned.next_if(|_| effect.told).map(|(_, row, job)| (row, job));
        durable.told.extend(self.telling(request, taken));
        match effect.moves {
            // The notice has both the old and the new rows.
            Some(moves) => {
                let jobs = &effect.changes.parked;
                durable.moved = Some(moved(moves, &committed.delayed, jobs));
            }
            None => durable.returned = returned.collect(),
        }
        for (step, input, progress) in effect.progress {
            self.committed_state.progress[step][input] = progress;
        }
        for (queue, payloads, carried) in effect.appended {
            let first = self.committed_state.extend_queue(queue, payloads.len());
            self.keep_tail(queue, first, payloads, carried, &committed.stamp);
            durable.grown.push((queue.0, self.committed_state.heads[queue.0]));
        }
        durable
    }

    /// Notice of an external completion, if the request is one.
    pub(crate) fn telling(
        &self,
        request: &Request,
        taken: Option<(ParkedKey, ParkedJob)>,
    ) -> Option<CompletionNotice> {
        // Without a row the coordinator has locked no job; another completion of the job may be in flight.
        let Request::Complete { step, index, row: Some(_), .. } = request else { return None };
        let steps = &self.committed_state.configuration.steps;
        let step = steps.position(|declared| declared.address == *step)?;
        Some(CompletionNotice { step, index: *index, taken })
    }

    /// Unchanged jobs of a request that had no effect.
    fn unmoved(&self, request: &Request) -> Option<MoveNotice> {
        let (step, rows, left) = match request {
            Request::MakeDue { step, rows } | Request::Shift { step, rows, .. } => (step, rows, Vec::new()),
            Request::Cancel { step, rows, jobs, .. } => (step, rows, jobs.clone()),
            _ => return None,
        };
        let steps = &self.committed_state.configuration.steps;
        let position = steps.position(|declared| declared.address == *step)?;
        let keys: Vec<ParkedKey> = rows.iter().map(|row| row.key(step)).collect();
        // The next reader of the store reports its error.
        let found = self.store.delayed(&keys).ok()?;
        let stands = |(key, job): (ParkedKey, Option<ParkedJob>)| (key.clone(), job.map(|job| (key, job)));
        Some(MoveNotice {
            step: position,
            rows: keys.into_iter().zip(found).map(stands).collect(),
            jobs: Vec::new(),
            left,
        })
    }
}

/// Old and new rows of the moved jobs.
fn moved(moves: MovedRows, rows: &[ParkedKey], jobs: &[NewParkedJob]) -> MoveNotice {
    let stands = |(was, place): (ParkedKey, RowAfter)| {
        let now = match place {
            RowAfter::Gone => None,
            RowAfter::Same(job) => Some((was.clone(), *job)),
            RowAfter::Delayed(position) => {
                rows.get(position).cloned().zip(jobs.get(position).map(|delayed| delayed.job.clone()))
            }
        };
        (was, now)
    };
    let MovedRows { step, rows, jobs, left } = moves;
    MoveNotice { step, rows: rows.into_iter().map(stands).collect(), jobs, left }
}
