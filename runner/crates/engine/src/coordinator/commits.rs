//! Commit notices: pass on the facts that have become durable.

use super::{Action, Coordinator};
use crate::runtime::message::{CommitNotice, ParkedRow};
use crate::step::in_flight::InFlightBatch;
use crate::step::state::StepState;
use tidegate_dispatch::{BatchId, Command, Event, Hold};
use tidegate_model::{Timestamp, log_target};
use tidegate_store::ParkedId;

impl Coordinator {
    pub(crate) fn committed(
        &mut self,
        durable: CommitNotice,
        now: Timestamp,
        commands: &mut Vec<Command>,
        actions: &mut Vec<Action>,
    ) {
        let CommitNotice {
            begun,
            delivered,
            given_back,
            grown,
            returned,
            ticked,
            late,
            moved,
            ends_move,
            paused,
            monitor,
            lanes,
            completions,
        } = durable;
        for (step, lane, hold) in lanes {
            self.hold_lane(step, &lane, hold);
        }
        if let Some((step, paused)) = monitor {
            self.pause_monitor(step, paused, now);
        }
        if !ticked.is_empty() || !late.is_empty() {
            for &(queue, jobs) in &ticked {
                self.ticks.committed(queue, jobs);
            }
            for &(queue, next) in &late {
                self.late.committed(queue, next);
            }
            self.run_timers(now, actions);
            self.update_expectation();
        }
        for (queue, head) in grown {
            self.dispatcher.apply(Event::Grew { queue, head }, now, commands);
        }
        for (step, row, job) in returned {
            self.restore_parked_job(step, &row, &job, now);
            if let Some(due) = job.due.time() {
                self.dispatcher.apply(Event::Returned { step, due }, now, commands);
            }
        }
        for (step, batch, rows) in begun {
            if self.steps.get(step).is_some_and(StepState::is_queued) {
                self.on_batch_begun(step, batch, rows);
            } else {
                self.track_pending_commit(step, batch, true);
            }
            self.dispatcher.apply(Event::Begun { step, batch }, now, commands);
        }
        let mut ended = Vec::new();
        // Two jobs of a lane can change together. The end of one lets the next job start, and the other one may forbid it. So
        // the batches that leave jobs go first. Behind each other batch jobs start at once, as workers may wait for them.
        let is_left = |(step, _, stays): &(usize, BatchId, Vec<ParkedRow>)| {
            !stays.is_empty() && self.steps.get(*step).is_some_and(StepState::is_queued)
        };
        let (left, finished): (Vec<_>, Vec<_>) = delivered.into_iter().partition(is_left);
        for (step, batch, stays) in left.into_iter().chain(finished) {
            let waits = stays.iter().any(|row| row.due.time().is_some());
            let is_finished = stays.is_empty();
            // The run could end with the delivery if the inputs were full.
            self.resume_reads(step, now, commands);
            self.delivered((step, batch), stays, now, commands, &mut ended);
            self.note_matched(step, waits, now, commands);
            if is_finished {
                self.dispatcher.handle(Event::Tick, now, commands);
            }
        }
        if !ended.is_empty() {
            actions.push(Action::EndClaims(ended));
        }
        if let Some(moves) = moved {
            let step = moves.step;
            self.resume_reads(step, now, commands);
            self.on_jobs_moved(moves, now, commands);
        }
        if ends_move {
            // Behind the notice, which has the new due times.
            self.moves_in_flight = self.moves_in_flight.saturating_sub(1);
            self.update_expectation();
        }
        if let Some((step, paused)) = paused {
            self.dispatcher.apply(Event::Pause { step, paused }, now, commands);
            if !paused {
                self.restart_stopped(step, now, commands, actions);
            }
        }
        for notice in completions {
            let step = notice.step;
            if let Some(due) = self.on_completion_committed(notice, now) {
                self.dispatcher.apply(Event::Returned { step, due }, now, commands);
            }
        }
        for step in given_back {
            self.dispatcher.apply(Event::GivenBack { step }, now, commands);
        }
        self.dispatcher.handle(Event::Tick, now, commands);
    }

    /// Takes effect with the next event.
    fn hold_lane(&mut self, step: usize, lane: &str, hold: Option<(Hold, String)>) {
        if let (Some(state), Some((Hold::Halted, why))) = (self.steps.get(step), &hold) {
            let step = &state.declared.address;
            tracing::warn!(target: log_target::ENGINE, %step, lane, why, "the lane halts until an operator resumes it");
        }
        self.dispatcher.hold_lane(step, lane, hold.map(|(hold, _)| hold));
    }

    fn delivered(
        &mut self,
        (step, batch): (usize, BatchId),
        stays: Vec<ParkedRow>,
        now: Timestamp,
        commands: &mut Vec<Command>,
        ended: &mut Vec<ParkedId>,
    ) {
        let Some(state) = self.steps.get_mut(step) else { return };
        let (held, is_queued) = (state.batches.remove(&batch), state.is_queued());
        if let Some(held) = &held {
            state.forget_returned(&held.work);
        }
        if let Some(held) = held.as_ref().filter(|held| held.claims) {
            ended.extend(held.begun.iter().map(|row| row.id));
        }
        let held = held.map(|mut held| {
            self.note_failed(step, std::mem::take(&mut held.failed), now);
            held
        });
        if !is_queued {
            self.settle_taken(step, held.as_ref(), stays, now, commands);
        } else if let Some(held) = &held {
            self.finish_picked_batch(step, held, stays, now);
        }
        self.dispatcher.apply(Event::Committed { step, batch }, now, commands);
    }

    /// Applies the delivery of a batch of an ordered step.
    fn settle_taken(
        &mut self,
        step: usize,
        held: Option<&InFlightBatch>,
        stays: Vec<ParkedRow>,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) {
        for portion in held.iter().flat_map(|held| &held.work.portions) {
            for returned in portion.returned() {
                if let Some(state) = self.steps.get_mut(step) {
                    state.turns.retain(|_, key| *key != returned.key);
                }
            }
        }
        let mut due: Option<Timestamp> = None;
        for ParkedRow { row, due: of_row, turn, .. } in stays {
            if let Some(turn) = turn {
                self.parks(step, turn, row, of_row, now, commands);
            } else {
                due = due.into_iter().chain(of_row.time()).min();
            }
        }
        if let Some(due) = due {
            self.dispatcher.apply(Event::Returned { step, due }, now, commands);
        }
    }
}
