//! Turns: track the rows of parked jobs that keep their place in an ordered step.

use super::{Action, Coordinator};
use crate::runtime::readers::{ReadAhead, StoreRequest};
use crate::step::turn;
use tidegate_dispatch::{Command, Event, InputPort, PortInput, Turn};
use tidegate_model::{Due, Timestamp};
use tidegate_store::{ParkedJob, ParkedKey};

impl Coordinator {
    /// Restores a parked job of an earlier run, if it keeps its place.
    pub(crate) fn recall_turn(&mut self, step: usize, row: &ParkedKey, job: &ParkedJob) {
        let Some(state) = self.steps.get_mut(step) else { return };
        if let Some(turn) = turn::of(&state.declared, job) {
            state.turns.insert(turn, row.clone());
            self.dispatcher.park(step, turn, until(job.due));
        }
    }

    /// Records a job that is parked from now on.
    pub(crate) fn parks(
        &mut self,
        step: usize,
        turn: Turn,
        row: ParkedKey,
        due: Due,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) {
        let Some(state) = self.steps.get_mut(step) else { return };
        state.turns.insert(turn, row);
        self.dispatcher.apply(Event::Parked { step, turn, due: until(due) }, now, commands);
    }

    /// Moves or removes a parked job on request. Returns whether it had a turn.
    pub(crate) fn turn_moved(
        &mut self,
        step: usize,
        row: &ParkedKey,
        due: Option<Due>,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) -> bool {
        let Some(state) = self.steps.get_mut(step) else { return false };
        let found = state.turns.iter().find(|(_, key)| *key == row);
        let Some(turn) = found.map(|(turn, _)| *turn) else { return false };
        if let Some(due) = due {
            self.parks(step, turn, row.clone(), due, now, commands);
        } else {
            state.turns.remove(&turn);
            self.dispatcher.apply(Event::Gone { step, turn }, now, commands);
        }
        true
    }

    /// Requests the read of a parked job. If a request is moving the job, the commit notice reports it
    /// instead.
    pub(crate) fn read_turn(&mut self, step: usize, turn: Turn, actions: &mut Vec<Action>) {
        let Some(state) = self.steps.get(step) else { return };
        let Some(row) = state.turns.get(&turn).filter(|row| state.moved.get(row) != Some(&false)) else {
            return;
        };
        let port = InputPort { step, input: PortInput::Turn };
        let (step, reader, what) =
            (state.declared.clone(), state.epoch, ReadAhead::Turn { row: row.clone() });
        actions.push(Action::ReadStore(StoreRequest { step, port, reader, what, picks: false }));
    }
}

/// Time of the next attempt of a job that keeps its turn: it always waits for a time.
fn until(due: Due) -> Timestamp {
    due.time().unwrap_or(Timestamp::LATEST)
}
