//! Turns: track the rows of parked jobs that keep their place in an ordered step.

use super::{Action, Coordinator};
use crate::batch::input::{BatchInput, BatchSlice};
use crate::runtime::readers::{ReadAhead, StoreRequest};
use crate::step::turn;
use tidegate_dispatch::{Command, Event, InputPort, Turn};
use tidegate_model::{Due, Timestamp};
use tidegate_store::{ParkedJob, ParkedKey};

impl Coordinator {
    /// Restores a parked job of an earlier run, if it keeps its place.
    pub(crate) fn recall_turn(&mut self, step: usize, row: &ParkedKey, job: &ParkedJob) {
        if let Some(turn) = turn::of(&self.configuration.steps[step], job) {
            self.turns[step].insert(turn, row.clone());
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
        self.turns[step].insert(turn, row);
        self.dispatcher.handle(Event::Parked { step, turn, due: until(due) }, now, commands);
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
        let found = self.turns[step].iter().find(|(_, key)| *key == row);
        let Some(turn) = found.map(|(turn, _)| *turn) else { return false };
        if let Some(due) = due {
            self.parks(step, turn, row.clone(), due, now, commands);
        } else {
            self.turns[step].remove(&turn);
            self.dispatcher.handle(Event::Gone { step, turn }, now, commands);
        }
        true
    }

    /// Requests the read of a parked job. If a request is moving the job, the commit notice reports it
    /// instead.
    pub(crate) fn read_turn(&mut self, step: usize, turn: Turn, actions: &mut Vec<Action>) {
        let Some(row) = self.turns[step].get(&turn) else { return };
        if self.moved[step].get(row) == Some(&false) {
            return;
        }
        let port = InputPort { step, input: self.configuration.steps[step].inputs.len() + 1 };
        let what = ReadAhead::Turn { row: row.clone() };
        actions.push(Action::ReadStore(StoreRequest { port, reader: 0, what, picks: false }));
    }

    /// Removes the redelivered jobs of a batch from those in flight.
    pub(crate) fn forget_returned(&mut self, work: &BatchInput) {
        let keys = work.portions.iter().flat_map(BatchSlice::returned);
        let keys: Vec<ParkedKey> = keys.map(|returned| returned.key.clone()).collect();
        for key in keys {
            for rows in &mut self.returned {
                rows.remove(&key);
            }
        }
    }
}

/// Time of the next attempt of a job that keeps its turn: it always waits for a time.
fn until(due: Due) -> Timestamp {
    due.time().unwrap_or(Timestamp::LATEST)
}
