//! Operator requests: are committed in a transaction of their own, then the coordinator and the caller are
//! notified.

use super::Committer;
use super::disk_full::CommitOutcome;
use crate::error::{Chain, EngineError};
use crate::operator::apply::apply;
use crate::operator::effect::{MovedRows, RequestEffect, RowAfter};
use crate::operator::request::{PendingRequest, Request};
use crate::runtime::message::{CommitNotice, CompletionNotice, Message, MoveNotice};
use tidegate_config::QueueRef;
use tidegate_model::Address;
use tidegate_store::{Changes, ParkedJob, ParkedKey};

impl Committer {
    /// Applies a request in a commit of its own.
    pub(crate) fn amend(&mut self, asked: &PendingRequest) -> Result<(), EngineError> {
        let now = self.clock.now();
        let mut effect = match apply(&self.store, self.committed_state.configuration(), &asked.request, now) {
            Ok(effect) => effect,
            Err(why) => {
                // Nothing was changed: the locked jobs are released unchanged.
                let (moved, notice) =
                    (self.unmoved(&asked.request), self.completion_notice(&asked.request, None));
                let ends_move = asked.request.moves_jobs();
                let completions = notice.into_iter().collect();
                let durable = CommitNotice { moved, ends_move, completions, ..CommitNotice::default() };
                let _ = self.messages.send(Message::Committed(durable));
                asked.answer(Err(why));
                return Ok(());
            }
        };
        let watermarks = self.committed_state.add_moved_watermarks(&mut effect);
        let mut logged = false;
        let committed = loop {
            match self.commit_changes(&effect.changes, &mut logged) {
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
        if let Request::ClearQueue { queue, .. } = &asked.request {
            self.rebuild_tables(queue)?;
        }
        let request_outcome = effect.request_outcome.clone();
        let durable = self.amended(&asked.request, effect, &committed);
        if let Some(watermarks) = &watermarks {
            self.committed_state.apply_moved_watermarks(watermarks);
        }
        let _ = self.messages.send(Message::Committed(durable));
        asked.answer(Ok(request_outcome.and(asked)));
        Ok(())
    }

    /// Takes the deleted jobs of a queue out of its lookup tables.
    fn rebuild_tables(&self, queue: &Address) -> Result<(), EngineError> {
        let queues = &self.committed_state.configuration().queues;
        if let Some(position) = queues.position(|declared| declared.address == *queue) {
            self.tables.rebuild((QueueRef(position), queue), &self.store)?;
        }
        Ok(())
    }

    /// Applies the durable effects of a request and returns the commit notice.
    fn amended(
        &mut self,
        request: &Request,
        effect: RequestEffect,
        committed: &CommitOutcome,
    ) -> CommitNotice {
        let Changes { parked, reparked, unparked, .. } = effect.changes;
        for step in self.committed_state.forget_unmatched(&unparked) {
            self.publish_unmatched(step);
        }
        let rows = committed.parked.iter().cloned().zip(parked);
        let steps = &self.committed_state.configuration().steps;
        let returned = rows.filter_map(|(key, delayed)| {
            let step = steps.position(|step| step.address == delayed.step)?;
            Some((step, key, delayed.job))
        });
        let lanes = effect.lane.into_iter().collect();
        let (paused, monitor, ends_move) = (effect.paused, effect.monitor, request.moves_jobs());
        let mut durable = CommitNotice { ends_move, paused, monitor, lanes, ..CommitNotice::default() };
        durable.returned = returned.collect();
        let taken = reparked.into_iter().next().filter(|_| effect.completed);
        durable.completions.extend(self.completion_notice(request, taken));
        durable.moved = effect.moves.map(moved);
        durable.late = self.next_late(&effect.late.into_iter().collect());
        for (step, input, progress) in effect.progress {
            self.committed_state.set_progress((step, input), progress);
        }
        for ((queue, payloads, carried), &first) in effect.appended.into_iter().zip(&committed.firsts) {
            let grown = self.append_to_queue(queue, first, payloads, carried, &committed.stamp);
            durable.grown.push(grown);
        }
        durable
    }

    /// Notice of an external completion, if the request is one.
    pub(crate) fn completion_notice(
        &self,
        request: &Request,
        taken: Option<(ParkedKey, ParkedJob)>,
    ) -> Option<CompletionNotice> {
        // Without a row the coordinator has locked no job; another completion of the job may be in flight.
        let Request::Complete { step, index, row: Some(_), .. } = request else { return None };
        let steps = &self.committed_state.configuration().steps;
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
        let steps = &self.committed_state.configuration().steps;
        let position = steps.position(|declared| declared.address == *step)?;
        let keys: Vec<ParkedKey> = rows.iter().map(|row| row.of(step)).collect();
        // The next reader of the store reports its error.
        let found = self.store.parked(&keys).ok()?;
        Some(MoveNotice {
            step: position,
            rows: keys.into_iter().zip(found).collect(),
            jobs: Vec::new(),
            left,
        })
    }
}

fn moved(moves: MovedRows) -> MoveNotice {
    let stays = |row: RowAfter| match row {
        RowAfter::Gone => None,
        RowAfter::Stays(job) => Some(*job),
    };
    let MovedRows { step, rows, jobs, left } = moves;
    MoveNotice { step, rows: rows.into_iter().map(|(key, row)| (key, stays(row))).collect(), jobs, left }
}
