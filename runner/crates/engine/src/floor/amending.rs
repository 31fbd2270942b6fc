//! The floor's part in jobs that somebody moves or takes out while they wait: nobody works on them until
//! it is known what became of them.

use std::collections::BTreeSet;

use super::Floor;
use crate::cancel;
use crate::held::{Fetched, Returned};
use crate::message::Moves;
use crate::readers::returned;
use crate::request::{Asked, Moved, Request, Row};
use crate::shelf::Shelf;
use crate::turn;
use tidegate_dispatch::{Command, Event, JobKey, Port, State};
use tidegate_model::Timestamp;
use tidegate_store::DelayedKey;

/// What somebody wants to be made of waiting jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    Hasten,
    /// `pending`: also where an outside system has it.
    Cancel {
        pending: bool,
    },
}

impl Floor {
    /// The request with those of its jobs that may be moved, which nobody works on from now on; `None`
    /// where it is answered already. What is known here is newer than what stands in the store.
    pub(crate) fn hold_back(
        &mut self,
        mut asked: Asked,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) -> Option<Asked> {
        let mut moved = Moved::default();
        match &mut asked.request {
            Request::Hasten { step, rows } | Request::Shift { step, rows, .. } => {
                let Some(step) = self.position(step) else { return Some(asked) };
                let wanted = std::mem::take(rows);
                *rows = self.hold_rows(step, Aim::Hasten, wanted, now, &mut moved);
            }
            Request::Cancel { step, rows, jobs, drop, pending } => {
                let Some(step) = self.position(step) else { return Some(asked) };
                let declared = &self.configuration.steps[step];
                if let Err(why) = cancel::may_cancel(declared, !jobs.is_empty(), *drop) {
                    asked.answer(Err(why));
                    return None;
                }
                let wanted = std::mem::take(rows);
                let aim = Aim::Cancel { pending: *pending };
                *rows = self.hold_rows(step, aim, wanted, now, &mut moved);
                jobs.retain(|&index| self.hold_job(step, index, now, &mut moved));
            }
            _ => return Some(asked),
        }
        asked.moved = moved;
        // A round may have ended with what was taken out.
        self.dispatcher.handle(Event::Tick, now, commands);
        Some(asked)
    }

    /// What became of jobs that were held back.
    pub(crate) fn moved(&mut self, moves: Moves, now: Timestamp, commands: &mut Vec<Command>) {
        let Moves { step, rows, jobs, left } = moves;
        for index in left {
            self.dispatcher.release(step, index);
        }
        for index in jobs {
            self.dispatcher.account(step, index, now, commands);
        }
        let mut due = None;
        for (was, stands) in rows {
            if self.shelves[step].is_some() {
                self.moved[step].remove(&was);
                self.moved_picked(step, &was, stands.as_ref(), now);
            } else if self.turns[step].values().any(|row| *row == was) {
                let row = stands.map(|(row, _)| row);
                // Where it stays as it is, it may be read again.
                if let Some(row) = &row {
                    self.moved[step].remove(row);
                }
                if row.as_ref() != Some(&was) {
                    self.moved[step].insert(was.clone(), true);
                }
                self.turn_moved(step, &was, row, now, commands);
                continue;
            } else {
                // Where one is gone, it is looked up when the next one is due.
                let stands = stands.map_or(now, |(row, _)| {
                    // Where it stays as it is, it may be read again.
                    self.moved[step].remove(&row);
                    row.due
                });
                due = Some(due.map_or(stands, |due| stands.min(due)));
            }
            self.moved[step].entry(was).and_modify(|over| *over = true);
        }
        if let Some(due) = due {
            self.dispatcher.handle(Event::Returned { step, due }, now, commands);
        }
        self.dispatcher.handle(Event::Tick, now, commands);
    }

    /// What was read, without jobs that were moved since, and without those that have a turn unless it was
    /// read for that: it may not be known yet where one stands. `None` where nothing is left.
    pub(crate) fn without_moved(&self, port: Port, fetched: Fetched) -> Option<Fetched> {
        let Some(rows) = &fetched.returned else { return Some(fetched) };
        let (step, declared) = (port.step, &self.configuration.steps[port.step]);
        let picks = self.shelves[step].is_some();
        let comes = |row: &&Returned| {
            let has_turn = || !picks && turn::of(declared, &row.job).is_some();
            !self.moved[step].contains_key(&row.key) && (self.is_turn(port) || !has_turn())
        };
        if rows.iter().all(|row| comes(&row)) {
            return Some(fetched);
        }
        let left = rows.iter().filter(comes);
        let left: Vec<_> = left.map(|row| (row.key.clone(), row.job.clone())).collect();
        (!left.is_empty()).then(|| returned(left))
    }

    /// Jobs of a step that shall not be read: they are on their way, or somebody moves them.
    pub(crate) fn not_again(&mut self, step: usize) -> BTreeSet<DelayedKey> {
        // What is read from now on is read after that.
        self.moved[step].retain(|_, over| !*over);
        let on_their_way = self.returned[step].iter().chain(self.turns[step].values());
        on_their_way.chain(self.moved[step].keys()).cloned().collect()
    }

    fn hold_rows(
        &mut self,
        step: usize,
        aim: Aim,
        mut rows: Vec<Row>,
        now: Timestamp,
        moved: &mut Moved,
    ) -> Vec<Row> {
        let address = self.configuration.steps[step].address.clone();
        let known = self.shelves[step].as_ref().map(|shelf| shelf.find(&rows));
        rows.retain(|row| {
            let key = row.key(&address);
            // Somebody else moves it just now.
            let is_moved = self.moved[step].get(&key) == Some(&false);
            if is_moved || self.returned[step].contains(&key) {
                moved.busy += 1;
                return false;
            }
            let held = known
                .as_ref()
                .is_none_or(|known| self.hold_picked(step, aim, known.get(row).copied(), now, moved));
            if held {
                self.moved[step].insert(key, false);
            }
            held
        });
        if let Some(watch) = &mut self.watches[step] {
            watch.forget_left();
        }
        rows
    }

    /// Whether the job of a step that picks is held back now.
    fn hold_picked(
        &mut self,
        step: usize,
        aim: Aim,
        key: Option<JobKey>,
        now: Timestamp,
        moved: &mut Moved,
    ) -> bool {
        let state = key.and_then(|key| Some((key, self.dispatcher.state(step, key)?)));
        match (state, aim) {
            (Some((key, State::Pending)), Aim::Cancel { pending: true })
                if self.watches[step].as_mut().is_some_and(|watch| watch.lets_go(key, now)) =>
            {
                self.dispatcher.cancel(step, key, now);
                true
            }
            (Some((_, State::Running | State::Pending)), _) => {
                moved.busy += 1;
                false
            }
            (Some((key, State::Delayed { .. })), Aim::Hasten) => {
                self.dispatcher.hold(step, key);
                true
            }
            (Some((key, _)), Aim::Cancel { .. }) => {
                self.dispatcher.cancel(step, key, now);
                true
            }
            // It is due, or it is through.
            (Some(_) | None, _) => {
                moved.gone += 1;
                false
            }
        }
    }

    /// Whether a job of the input is held back now.
    fn hold_job(&mut self, step: usize, index: u64, now: Timestamp, moved: &mut Moved) -> bool {
        let key = JobKey::fresh(index);
        let state = self.dispatcher.state(step, key);
        let stands = |shelf: &Shelf| shelf.row(key).is_some();
        // Somebody may take it out just now.
        if matches!(state, Some(State::Running | State::Pending)) || self.dispatcher.withholds(step, index) {
            moved.busy += 1;
        } else if state.is_some() && self.shelves[step].as_ref().is_some_and(stands) {
            // It is accounted for, and stands in the store by itself.
            moved.gone += 1;
        } else {
            // It may not have been read yet, or be through, which its progress tells.
            self.dispatcher.cancel(step, key, now);
            return true;
        }
        false
    }

    fn moved_picked(
        &mut self,
        step: usize,
        was: &DelayedKey,
        stands: Option<&(DelayedKey, tidegate_store::DelayedJob)>,
        now: Timestamp,
    ) {
        let Some(shelf) = &mut self.shelves[step] else { return };
        let Some(key) = shelf.find(&[Row::of(was)]).into_values().next() else { return };
        let Some((row, job)) = stands else { return shelf.leaves(key) };
        let is_known = self.dispatcher.state(step, key).is_some();
        if is_known && job.to.is_none() {
            shelf.stands(key, row);
            return self.dispatcher.reschedule(step, key, row.due);
        }
        shelf.leaves(key);
        if is_known {
            // Of outputs that are due later those that are moved together keep their order under their new numbers.
            self.dispatcher.cancel(step, key, now);
        }
        self.stands(step, row, job, now);
    }

    /// The position of a step; the store is asked about one that there is not, and says so.
    pub(crate) fn position(&self, address: &tidegate_model::Address) -> Option<usize> {
        self.configuration.steps.iter().position(|step| step.address == *address)
    }
}

#[cfg(test)]
mod tests;
