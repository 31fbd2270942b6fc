//! External completions: complete a pending job on request, or poll the monitor of a step now.

use super::{Action, Coordinator};
use crate::commit::request::CommitRequest;
use crate::operator::request::{CompletionOutcome, PendingRequest, Request, RequestOutcome};
use crate::processor::monitor_protocol::JobVerdict;
use crate::runtime::message::CompletionNotice;
use crate::step::state::QueuedJobs;
use tidegate_config::Queuer;
use tidegate_dispatch::PollerEvent;
use tidegate_model::{ExternalStatus, Timestamp};

impl Coordinator {
    /// Requests a poll as soon as possible. All requests before the next poll begins lead to one poll; a
    /// request during a poll leads to another one.
    pub(crate) fn poll(&mut self, asked: &PendingRequest, now: Timestamp) {
        let Request::Poll { step: address } = &asked.request else { return };
        let step = self.position(address);
        self.pending_steps.extend(step);
        let halted = step.is_some_and(|step| self.dispatcher.is_halted(step));
        let state = step.and_then(|step| self.steps.get_mut(step));
        let queued =
            state.filter(|state| state.declared.monitor.is_some()).and_then(|state| state.queued.as_mut());
        let answer = match queued.map(|queued| &mut queued.pending) {
            None => Err(format!("the runner has no step `{address}` with a monitor")),
            Some(_) if self.stopping || halted => {
                Err(format!("step `{address}` has stopped and polls no monitor in this run"))
            }
            Some(watch) if watch.monitor.is_paused() => {
                Err(format!("the monitor of step `{address}` is paused"))
            }
            Some(watch) => {
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
        let position = self.position(step);
        self.pending_steps.extend(position);
        let state = position.and_then(|step| self.steps.get_mut(step));
        if let Some(QueuedJobs { buffer, pending: watch }) = state.and_then(|state| state.queued.as_mut()) {
            *row = None;
            match watch.completable(*index, completion.status) {
                // The store decides about jobs that are not pending, or that have a completion in flight.
                None => {}
                Some(Err(from)) => {
                    return asked.answer(Ok(RequestOutcome::Completed(CompletionOutcome::Refused { from })));
                }
                Some(Ok(key)) => {
                    *row = buffer.row(key).map(|row| row.id);
                    watch.apply_completion(*index, completion.status, now);
                }
            }
        }
        actions.push(Action::Commit(CommitRequest::Amend(asked)));
    }

    /// Handles the result of a completion: it is durable, or it was refused.
    pub(crate) fn on_completion_committed(
        &mut self,
        notice: CompletionNotice,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let CompletionNotice { step, index, taken } = notice;
        self.pending_steps.insert(step);
        let state = self.steps.get_mut(step)?;
        let Some(QueuedJobs { buffer, pending: watch }) = &mut state.queued else {
            // An ordered step reads the job when it is due.
            return taken.and_then(|(_, job)| job.due.time());
        };
        let key = watch.completing.remove(&index)?;
        let Some((row, job)) = taken else {
            watch.handle(PollerEvent::Reverted { key }, now);
            return None;
        };
        buffer.set_row(key, row.id);
        let mut due = None;
        if let Some((.., Some(completion))) = job.reason.outside() {
            watch.settle(key, JobVerdict::of(completion));
            let frees = state.declared.picks().is_some_and(Queuer::frees_lane_when_valid);
            if frees && completion.status == ExternalStatus::Valid {
                self.dispatcher.free_lane(step, key, now);
                due = Some(now);
            }
        }
        due
    }
}
