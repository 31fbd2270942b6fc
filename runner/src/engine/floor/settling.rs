//! The floor's part in what has become durable: who is told of it.

use super::{Action, Floor};
use crate::decide::{BatchId, Command, Event};
use crate::engine::held::Work;
use crate::engine::message::{Durable, Stays};
use crate::words::Timestamp;

impl Floor {
    pub(super) fn committed(
        &mut self,
        durable: Durable,
        now: Timestamp,
        commands: &mut Vec<Command>,
        actions: &mut Vec<Action>,
    ) {
        let Durable { begun, delivered, rewound, grown, returned, ticked, moved, paused, told } = durable;
        if !ticked.is_empty() {
            for &(queue, jobs) in &ticked {
                self.ticks.committed(queue, jobs);
            }
            self.pass(now, actions);
            self.dispatcher.expect(self.ticks.are_behind());
        }
        for (queue, head) in grown {
            self.dispatcher.handle(Event::Grew { queue, head }, now, commands);
        }
        for (step, row, job) in returned {
            self.stands(step, &row, &job, now);
            self.dispatcher.handle(Event::Returned { step, due: row.due }, now, commands);
        }
        for (step, batch, rows) in begun {
            if self.shelves[step].is_some() {
                self.begun(step, batch, rows);
            } else {
                self.comes(batch, true);
            }
            self.dispatcher.handle(Event::Begun { step, batch }, now, commands);
        }
        for (step, batch, stays) in delivered {
            self.delivered((step, batch), stays, now, commands);
        }
        if let Some(moves) = moved {
            self.moved(moves, now, commands);
        }
        if let Some((step, paused)) = paused {
            self.dispatcher.handle(Event::Pause { step, paused }, now, commands);
        }
        for telling in told {
            let step = telling.step;
            if let Some(due) = self.told(telling, now) {
                self.dispatcher.handle(Event::Returned { step, due }, now, commands);
            }
        }
        for (step, next) in rewound {
            self.rewound((step, &next), now, commands, actions);
        }
        if !ticked.is_empty() {
            self.dispatcher.handle(Event::Tick, now, commands);
        }
    }

    fn delivered(
        &mut self,
        (step, batch): (usize, BatchId),
        stays: Vec<Stays>,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) {
        let held = self.held.remove(&batch);
        if let (Some(held), Some(_)) = (&held, &self.shelves[step]) {
            self.settle_picked(step, held, stays, now);
        } else if let Some(due) = stays.iter().map(|stays| stays.row.due).min() {
            self.dispatcher.handle(Event::Returned { step, due }, now, commands);
        }
        if let Some(held) = held {
            self.note_failed(step, held.failed, now);
            self.forget_returned(step, &held.work);
        }
        self.dispatcher.handle(Event::Committed { step, batch }, now, commands);
    }

    fn forget_returned(&mut self, step: usize, work: &Work) {
        for portion in &work.portions {
            let returned = portion.returned.iter().flat_map(|all| &all[portion.skip..][..portion.jobs]);
            for returned in returned {
                self.returned[step].remove(&returned.key);
            }
        }
    }
}
