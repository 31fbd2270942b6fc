//! External completions: complete a pending job on request, or poll the monitor of a step now.

use super::pending::PendingJobs;
use super::{Action, Coordinator};
use crate::commit::request::CommitRequest;
use crate::operator::request::{CompletionOutcome, PendingRequest, Request, RequestOutcome};
use crate::processor::monitor_protocol::JobVerdict;
use crate::runtime::message::CompletionNotice;
use crate::step::job_attributes::LaneSource;
use tidegate_dispatch::{JobKey, PollerCommand, PollerEvent};
use tidegate_model::{ExternalStatus, Timestamp};
use tidegate_store::CompletionRecord;

impl Coordinator {
    /// Requests a poll as soon as possible. All requests before the next poll begins lead to one poll; a
    /// request during a poll leads to another one.
    pub(crate) fn poll(&mut self, asked: &PendingRequest, now: Timestamp) {
        let Request::Poll { step: address } = &asked.request else { return };
        let step = self.position(address);
        let asks = step.filter(|&step| self.configuration.steps[step].monitor.is_some());
        let answer = match asks.and_then(|step| Some((step, self.watches[step].as_mut()?))) {
            None => Err(format!("the runner has no step `{address}` with a monitor")),
            Some((step, _)) if self.stopping || self.dispatcher.is_halted(step) => {
                Err(format!("step `{address}` has stopped and polls no monitor in this run"))
            }
            Some((_, watch)) => {
                watch.handle(PollerEvent::Poll, now);
                let (pending, soon) = (watch.monitor.len() as u64, watch.monitor.soon(now));
                Ok(RequestOutcome::Polls { pending, soon })
            }
        };
        asked.answer(answer);
    }

    /// Handles the completion of a pending job. The state here is newer than that in the store.
    pub(crate) fn complete(&mut self, mut asked: PendingRequest, now: Timestamp, actions: &mut Vec<Action>) {
        let Request::Complete { step, index, completion, row, .. } = &mut asked.request else { return };
        let step = self.configuration.steps.position(|declared| declared.address == *step);
        let known = step.and_then(|step| Some((self.buffers[step].as_ref()?, self.watches[step].as_mut()?)));
        if let Some((buffer, watch)) = known {
            *row = None;
            match watch.may_tell(*index, completion.status) {
                // The store decides about jobs that are not pending, or that have a completion in flight.
                None => {}
                Some(Err(from)) => {
                    return asked.answer(Ok(RequestOutcome::Completed(CompletionOutcome::Refused { from })));
                }
                Some(Ok(key)) => {
                    *row = buffer.row(key).map(|row| row.id);
                    watch.tell(*index, completion.status, now);
                }
            }
        }
        actions.push(Action::Commit(CommitRequest::Amend(asked)));
    }

    /// Handles the result of a completion: it is durable, or it was refused.
    pub(crate) fn on_completion_committed(
        &mut self,
        telling: CompletionNotice,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let CompletionNotice { step, index, taken } = telling;
        let (Some(buffer), Some(watch)) = (&mut self.buffers[step], &mut self.watches[step]) else {
            // An ordered step reads the job when it is due.
            return taken.and_then(|(_, job)| job.due.time());
        };
        let key = watch.told.remove(&index)?;
        let Some((row, job)) = taken else {
            watch.handle(PollerEvent::Untold { key }, now);
            return None;
        };
        buffer.stands(key, row.id);
        if let Some((.., Some(completion))) = job.reason.outside() {
            watch.settle(key, JobVerdict::of(completion));
        }
        None
    }
}

impl PendingJobs {
    /// The pending job at `index` that may get this status, or its status if the change is not allowed.
    /// Returns `None` if no job is pending there, or if it has a completion in flight.
    fn may_tell(&self, index: u64, to: ExternalStatus) -> Option<Result<JobKey, ExternalStatus>> {
        let key = *self.by_index.get(&index)?;
        let from = self.monitor.status(key).filter(|from| from.waits())?;
        if self.told.contains_key(&index) {
            return None;
        }
        Some(if from.may_become(to) { Ok(key) } else { Err(from) })
    }

    /// Applies a completion that is not durable yet; other answers for the job are ignored until then.
    fn tell(&mut self, index: u64, status: ExternalStatus, now: Timestamp) {
        let Some(&key) = self.by_index.get(&index) else { return };
        self.told.insert(index, key);
        let mut commands = Vec::new();
        self.monitor.handle(PollerEvent::Told { key, status }, now, &mut commands);
        // The job is delivered once the completion is durable.
        commands.retain(|command| !matches!(command, PollerCommand::Settle { .. }));
        self.commands.append(&mut commands);
    }

    /// Adds a job that is pending in the store, with its completion if it has one.
    pub(crate) fn recall(
        &mut self,
        job: (JobKey, u64),
        lane: &LaneSource<'_>,
        (since, said): (Timestamp, Option<&CompletionRecord>),
        now: Timestamp,
    ) {
        let (key, _) = job;
        self.add(job, lane, since, now);
        if let Some(said) = said {
            self.tell(job.1, said.status, now);
            self.told.remove(&job.1);
            self.settle(key, JobVerdict::of(said));
        }
    }

    /// Delivers a job with a durable completion, if that completes it.
    pub(crate) fn settle(&mut self, key: JobKey, word: JobVerdict) {
        let status = word.status;
        if !status.waits() {
            self.words.insert(key, word);
            self.commands.push(PollerCommand::Settle { key, status });
        }
    }
}
