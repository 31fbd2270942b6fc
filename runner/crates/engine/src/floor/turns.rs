//! The floor's part in jobs that wait for their next attempt in their turn: where they stand in the store, and
//! how they come back.

use super::{Action, Floor};
use crate::held::{Portion, Work};
use crate::readers::{StoreAsk, Wanted};
use crate::turn;
use tidegate_dispatch::{Command, Event, Port, Turn};
use tidegate_model::Timestamp;
use tidegate_store::{DelayedJob, DelayedKey};

impl Floor {
    /// A job stands in the store since an earlier run, if it keeps its place there.
    pub(crate) fn recall_turn(&mut self, step: usize, row: &DelayedKey, job: &DelayedJob) {
        if let Some(turn) = turn::of(&self.configuration.steps[step], job) {
            self.turns[step].insert(turn, row.clone());
            self.dispatcher.park(step, turn, row.due);
        }
    }

    /// A job waits there from now on.
    pub(crate) fn parks(
        &mut self,
        step: usize,
        turn: Turn,
        row: DelayedKey,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) {
        let due = row.due;
        self.turns[step].insert(turn, row);
        self.dispatcher.handle(Event::Parked { step, turn, due }, now, commands);
    }

    /// Somebody has moved a job, or taken it out. Answers whether it had a turn.
    pub(crate) fn turn_moved(
        &mut self,
        step: usize,
        was: &DelayedKey,
        stands: Option<DelayedKey>,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) -> bool {
        let found = self.turns[step].iter().find(|(_, key)| *key == was);
        let Some(turn) = found.map(|(turn, _)| *turn) else { return false };
        if let Some(row) = stands {
            self.parks(step, turn, row, now, commands);
        } else {
            self.turns[step].remove(&turn);
            self.dispatcher.handle(Event::Gone { step, turn }, now, commands);
        }
        true
    }

    /// Has the job read, unless somebody moves it: then that is told.
    pub(crate) fn read_turn(&mut self, step: usize, turn: Turn, actions: &mut Vec<Action>) {
        let Some(row) = self.turns[step].get(&turn) else { return };
        if self.moved[step].get(row) == Some(&false) {
            return;
        }
        let port = Port { step, input: self.configuration.steps[step].inputs.len() + 1 };
        let what = Wanted::Turn { row: row.clone() };
        actions.push(Action::ReadStore(StoreAsk { port, reader: 0, what, picks: false }));
    }

    /// Jobs that came again are on their way no more.
    pub(crate) fn forget_returned(&mut self, work: &Work) {
        let keys = work.portions.iter().flat_map(Portion::returned);
        let keys: Vec<DelayedKey> = keys.map(|returned| returned.key.clone()).collect();
        for key in keys {
            for rows in &mut self.returned {
                rows.remove(&key);
            }
        }
    }
}
