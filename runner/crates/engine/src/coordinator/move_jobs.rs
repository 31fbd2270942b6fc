//! Move requests: make waiting jobs due or cancel them. The jobs are locked until the request is committed.

use std::collections::{BTreeSet, HashSet};

use super::{Action, Coordinator};
use crate::batch::input::{ReadBatch, RedeliveredJob};
use crate::operator::cancel;
use crate::operator::request::{MoveSummary, PendingRequest, Request};
use crate::runtime::message::MoveNotice;
use crate::runtime::readers::returned;
use crate::step::job_buffer::JobBuffer;
use crate::step::state::StepState;
use crate::step::turn;
use tidegate_dispatch::{Command, Event, InputPort, JobKey, PortInput, WaitingState};
use tidegate_model::Timestamp;
use tidegate_store::{ParkedId, ParkedJob, ParkedKey};

/// Operation of a request on waiting jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MoveKind {
    Hasten,
    /// `pending`: whether it includes jobs that an external system has.
    Cancel {
        pending: bool,
    },
}

impl Coordinator {
    /// Locks the jobs of the request that can be moved, and returns the request with these jobs only. Returns
    /// `None` if the request is answered already. The state here is newer than that in the store.
    pub(crate) fn lock_rows_for_request(
        &mut self,
        mut asked: PendingRequest,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) -> Option<PendingRequest> {
        let mut moved = MoveSummary::default();
        match &mut asked.request {
            Request::MakeDue { step, rows } | Request::Shift { step, rows, .. } => {
                let Some(step) = self.position(step) else { return Some(asked) };
                let wanted = std::mem::take(rows);
                *rows = self.lock_parked_rows(step, MoveKind::Hasten, wanted, now, &mut moved);
            }
            Request::Cancel { step, rows, jobs, drop, pending } => {
                let Some(step) = self.position(step) else { return Some(asked) };
                let declared = &self.generation.configuration.steps[step];
                if let Err(why) = cancel::may_cancel(declared, !jobs.is_empty(), *drop) {
                    asked.answer(Err(why));
                    return None;
                }
                let wanted = std::mem::take(rows);
                let aim = MoveKind::Cancel { pending: *pending };
                *rows = self.lock_parked_rows(step, aim, wanted, now, &mut moved);
                jobs.retain(|&index| self.hold_job(step, index, now, &mut moved));
            }
            _ => return Some(asked),
        }
        asked.moved = moved;
        // A round may have ended with a cancelled job.
        self.dispatcher.handle(Event::Tick, now, commands);
        Some(asked)
    }

    /// Returns the request, unless it cancels jobs that are claimed and do not run: it then waits until the step has
    /// given back all of those.
    pub(crate) fn wait_for_claims(
        &mut self,
        asked: PendingRequest,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) -> Option<PendingRequest> {
        let Request::Cancel { step, rows, jobs, .. } = &asked.request else { return Some(asked) };
        let Some(step) = self.position(step) else { return Some(asked) };
        let claimed: HashSet<JobKey> = self.dispatcher.claimed(step).into_iter().collect();
        let buffer = self.steps.get_mut(step).and_then(StepState::buffer);
        let of_rows =
            buffer.filter(|_| !claimed.is_empty()).map(|buffer| buffer.find(rows)).unwrap_or_default();
        let mut keys = of_rows.into_values().chain(jobs.iter().map(|&index| JobKey::fresh(index)));
        if !keys.any(|key| claimed.contains(&key)) {
            return Some(asked);
        }
        self.dispatcher.withhold_claims(step, true);
        self.awaiting_claims.push((step, asked));
        self.dispatcher.handle(Event::Tick, now, commands);
        None
    }

    /// Takes up the requests whose steps have given back their claimed jobs.
    pub(crate) fn take_up_requests(
        &mut self,
        now: Timestamp,
        commands: &mut Vec<Command>,
        actions: &mut Vec<Action>,
    ) {
        for (step, mut asked) in std::mem::take(&mut self.awaiting_claims) {
            if !self.dispatcher.claimed(step).is_empty() {
                self.awaiting_claims.push((step, asked));
                continue;
            }
            // A job that was given back has a row.
            let buffer = self.steps.get_mut(step).and_then(StepState::buffer);
            if let (Request::Cancel { rows, jobs, .. }, Some(buffer)) = (&mut asked.request, buffer) {
                jobs.retain(|&index| {
                    let row = buffer.row(JobKey::fresh(index));
                    rows.extend(row.as_ref().map(|row| row.id));
                    row.is_none()
                });
            }
            self.accept_request(asked, now, commands, actions);
            self.dispatcher.withhold_claims(step, false);
        }
    }

    /// Applies the result of a committed request to the locked jobs.
    pub(crate) fn on_jobs_moved(&mut self, moves: MoveNotice, now: Timestamp, commands: &mut Vec<Command>) {
        let MoveNotice { step, rows, jobs, left } = moves;
        for index in left {
            self.dispatcher.release(step, index);
        }
        for index in jobs {
            self.dispatcher.account(step, index, now, commands);
        }
        let ids: Vec<ParkedId> = rows.iter().map(|(row, _)| row.id).collect();
        let buffer = self.steps.get_mut(step).and_then(StepState::buffer);
        // One walk for all rows.
        let keys = buffer.map(|buffer| buffer.find(&ids)).unwrap_or_default();
        let mut due = None;
        for (row, job) in rows {
            // The step that locked the job may be gone; its successor has read the row from the store.
            let Some(state) = self.steps.get_mut(step) else { break };
            let is_queued = state.is_queued();
            // An older read for an ordered step may still contain a row that is gone.
            if job.is_some() || is_queued {
                state.moved.remove(&row);
            } else {
                state.moved.insert(row.clone(), true);
            }
            if is_queued {
                if let Some(&key) = keys.get(&row.id) {
                    self.moved_picked(step, (key, &row), job.as_ref(), now);
                }
            } else if !self.turn_moved(step, &row, job.as_ref().map(|job| job.due), now, commands) {
                // If a row is gone, the next read finds the next due job.
                let of_row = job.map_or(Some(now), |job| job.due.time());
                due = due.into_iter().chain(of_row).min();
            }
        }
        if let Some(due) = due {
            self.dispatcher.apply(Event::Returned { step, due }, now, commands);
        }
        self.dispatcher.handle(Event::Tick, now, commands);
    }

    /// Removes the moved jobs from a read. Parked jobs with a turn are removed, too, unless the read was for
    /// the turn: the turn may not be known yet. Returns `None` if no job is left.
    pub(crate) fn drop_moved_jobs(&self, port: InputPort, fetched: ReadBatch) -> Option<ReadBatch> {
        let Some(rows) = &fetched.returned else { return Some(fetched) };
        let state = self.steps.get(port.step)?;
        let (declared, picks) = (&state.declared, state.is_queued());
        let comes = |row: &&RedeliveredJob| {
            let may_come = match turn::of(declared, &row.job).filter(|_| !picks) {
                // A late read may be of a job that is not the first any more.
                Some(turn) if port.input == PortInput::Turn => {
                    state.turns.first_key_value() == Some((&turn, &row.key))
                }
                Some(_) => false,
                None => true,
            };
            may_come && !state.moved.contains_key(&row.key)
        };
        if rows.iter().all(|row| comes(&row)) {
            return Some(fetched);
        }
        let left = rows.iter().filter(comes);
        let left: Vec<_> = left.map(|row| (row.key.clone(), row.job.clone())).collect();
        (!left.is_empty()).then(|| returned(left))
    }

    /// Keys of jobs that must not be read: they are in flight, or a request moves them.
    pub(crate) fn in_flight_redeliveries(&mut self, step: usize) -> BTreeSet<ParkedKey> {
        let Some(state) = self.steps.get_mut(step) else { return BTreeSet::new() };
        // Reads from now on see the store after these moves.
        state.moved.retain(|_, over| !*over);
        let on_their_way = state.returned.iter().chain(state.turns.values());
        on_their_way.chain(state.moved.keys()).cloned().collect()
    }

    fn lock_parked_rows(
        &mut self,
        step: usize,
        aim: MoveKind,
        mut rows: Vec<ParkedId>,
        now: Timestamp,
        moved: &mut MoveSummary,
    ) -> Vec<ParkedId> {
        let Some(state) = self.steps.get(step) else { return rows };
        let address = state.declared.address.clone();
        let known = state.queued.as_ref().map(|queued| queued.buffer.find(&rows));
        rows.retain(|row| {
            let key = row.of(&address);
            let Some(state) = self.steps.get(step) else { return true };
            // Another request moves it now.
            let is_moved = state.moved.get(&key) == Some(&false);
            if is_moved || state.returned.contains(&key) {
                moved.busy += 1;
                return false;
            }
            let held = known
                .as_ref()
                .is_none_or(|known| self.lock_picked_job(step, aim, known.get(row).copied(), now, moved));
            if let Some(state) = self.steps.get_mut(step).filter(|_| held) {
                state.moved.insert(key, false);
            }
            held
        });
        if let Some(queued) = self.steps.get_mut(step).and_then(|state| state.queued.as_mut()) {
            queued.pending.forget_left();
            self.pending_steps.insert(step);
        }
        rows
    }

    /// Whether the job of a queued step was locked.
    fn lock_picked_job(
        &mut self,
        step: usize,
        aim: MoveKind,
        key: Option<JobKey>,
        now: Timestamp,
        moved: &mut MoveSummary,
    ) -> bool {
        let state = key.and_then(|key| Some((key, self.dispatcher.state(step, key)?)));
        match (state, aim) {
            (Some((key, WaitingState::Pending)), MoveKind::Cancel { pending: true })
                if self.releases(step, key, now) =>
            {
                self.dispatcher.cancel(step, key, now);
                true
            }
            (Some((_, WaitingState::Running | WaitingState::Pending | WaitingState::Finished)), _) => {
                moved.busy += 1;
                false
            }
            (Some((key, WaitingState::Delayed { .. })), MoveKind::Hasten) => {
                self.dispatcher.hold(step, key);
                true
            }
            (Some((key, _)), MoveKind::Cancel { .. }) => {
                self.dispatcher.cancel(step, key, now);
                true
            }
            // The job is due already, or it is finished.
            (Some(_) | None, _) => {
                moved.gone += 1;
                false
            }
        }
    }

    /// Whether a pending job of the step could be released.
    fn releases(&mut self, step: usize, key: JobKey, now: Timestamp) -> bool {
        self.pending_steps.insert(step);
        let queued = self.steps.get_mut(step).and_then(|state| state.queued.as_mut());
        queued.is_some_and(|queued| queued.pending.release(key, now))
    }

    /// Whether a job of the input was locked.
    fn hold_job(&mut self, step: usize, index: u64, now: Timestamp, moved: &mut MoveSummary) -> bool {
        let key = JobKey::fresh(index);
        let state = self.dispatcher.state(step, key);
        let is_parked = |buffer: &JobBuffer| buffer.row(key).is_some();
        // Another request may cancel it now.
        if matches!(state, Some(WaitingState::Running | WaitingState::Pending | WaitingState::Finished))
            || self.dispatcher.withholds(step, index)
        {
            moved.busy += 1;
        } else if state.is_some()
            && self
                .steps
                .get(step)
                .and_then(|state| state.queued.as_ref())
                .is_some_and(|queued| is_parked(&queued.buffer))
        {
            // The job is accounted for and parked in the store.
            moved.gone += 1;
        } else {
            // The job may not have been read yet, or it may be finished; its progress decides.
            self.dispatcher.cancel(step, key, now);
            return true;
        }
        false
    }

    fn moved_picked(
        &mut self,
        step: usize,
        (key, row): (JobKey, &ParkedKey),
        job: Option<&ParkedJob>,
        now: Timestamp,
    ) {
        let Some(buffer) = self.steps.get_mut(step).and_then(StepState::buffer) else { return };
        let Some(job) = job else { return buffer.leaves(key) };
        if self.dispatcher.state(step, key).is_some() {
            return self.dispatcher.reschedule(step, key, job.due);
        }
        // The request had no effect on the job, which was taken out for it.
        buffer.leaves(key);
        self.restore_parked_job(step, row, job, now);
    }

    /// Position of a step. Without one the request goes to the store, which reports the unknown step.
    pub(crate) fn position(&self, address: &tidegate_model::Address) -> Option<usize> {
        self.generation.configuration.steps.position(|step| step.address == *address)
    }
}

#[cfg(test)]
mod tests;
