//! Simulated waits: let gates and monitors answer, add external events, and set the clock.

use super::{Crash, Stage};
use crate::commit::request::CommitRequest;
use crate::coordinator::Action;
use crate::runtime::message::Message;
use crate::simulation::waiting::Coming;
use crate::simulation::world::World;
use tidegate_dispatch::BatchId;
use tidegate_model::Clock as _;

/// Maximum number of moves of a run in which all external systems answer.
const CALM_MOVES_MAX: u64 = 50_000;

const HOUR: i64 = 3_600_000;

/// Batches whose commit was reported to the coordinator.
type Heard = Vec<(usize, BatchId)>;

impl Stage<'_> {
    /// Prepares the start of the run.
    pub(crate) fn begin(&mut self) {
        let now = self.world.clock.now().0;
        if let Some(waiting) = &mut self.world.waiting {
            waiting.begin(now);
        }
    }

    pub(crate) fn start(&mut self) {
        if let Some(waiting) = &mut self.world.waiting {
            waiting.check_claims(&self.configuration);
        }
        let mut actions = Vec::new();
        let heard = self.before(None);
        self.coordinator.start(self.world.clock.now(), &mut actions);
        self.after(&heard);
        self.carry_out(actions);
    }

    /// Prepares the handling of a message, or of the passing of time.
    pub(crate) fn before(&mut self, message: Option<&Message>) -> Heard {
        let Some(waiting) = &mut self.world.waiting else { return Heard::new() };
        waiting.before(&self.configuration, message, self.world.clock.now().0);
        match message {
            Some(Message::Committed(durable)) => {
                durable.delivered.iter().map(|(step, id, _)| (*step, *id)).collect()
            }
            _ => Heard::new(),
        }
    }

    /// Checks the state after it was handled.
    pub(crate) fn after(&mut self, heard: &Heard) {
        if let Some(waiting) = &mut self.world.waiting {
            waiting.after(&self.configuration, &self.coordinator, heard, self.world.clock.now().0);
        }
    }

    pub(crate) fn ordered(&self, action: &Action) {
        if let Some(waiting) = &self.world.waiting {
            waiting.ordered(&self.configuration, action);
        }
    }

    /// Observes the durable state.
    pub(crate) fn see(&mut self, delivered: &[BatchId]) -> Result<(), Crash> {
        let World { joins, history, clock, .. } = &mut *self.world;
        if let Some(joins) = joins {
            let seen = joins.check(history, &self.store, clock.now(), None);
            seen.map_err(|error| self.world.expected(&error.into()))?;
        }
        let Some(waiting) = &mut self.world.waiting else { return Ok(()) };
        let seen = waiting.look(&self.store, &self.world.history);
        for id in delivered {
            waiting.delivered(*id);
        }
        seen.map_err(|error| self.world.expected(&error.into()))
    }

    pub(crate) fn look_at_gate(&mut self) {
        let Some((step, epoch)) = self.gates.pop() else { return };
        let Some(waiting) = &mut self.world.waiting else { return };
        self.inbox.push_back(waiting.look_at_gate(&mut self.world.dice, (step.position, epoch)));
    }

    /// Lets a monitor answer, or take more time.
    pub(crate) fn answer(&mut self, at: usize) {
        let Some(waiting) = &mut self.world.waiting else { return };
        if !waiting.is_calm() && self.world.dice.chance(60) {
            return;
        }
        let asking = self.askings.swap_remove(at);
        self.inbox.push_back(waiting.answer(&mut self.world.dice, &self.store, asking));
    }

    /// Adds an external event in some moves.
    pub(crate) fn come(&mut self) {
        let Some(waiting) = &mut self.world.waiting else { return };
        if waiting.is_calm() {
            if let Some(asked) = waiting.go_on() {
                self.inbox.push_back(Message::Asked(asked));
            }
            self.calm_moves += 1;
            assert!(self.calm_moves < CALM_MOVES_MAX, "something waits for ever: {waiting:#?}");
            if !self.stopped && waiting.is_over(&self.world.history) {
                self.stop();
            } else if self.world.dice.chance(5)
                && let Some(coming) = waiting.think(&mut self.world.dice, &self.configuration, true)
            {
                self.take(coming);
            }
            return;
        }
        let dice = &mut self.world.dice;
        if dice.chance(1) {
            let most = if waiting.is_restless() { 2 } else { 30 };
            let hours = i64::try_from(dice.between(0, 2 * most)).unwrap() - i64::try_from(most).unwrap();
            let seconds = i64::try_from(dice.between(0, 3600)).unwrap();
            self.world.clock.advance(hours * HOUR + seconds * 1000);
        }
        if dice.chance(3) {
            // A run reads the clock at least once a second.
            return self.tick();
        }
        if !dice.chance(8) {
            return;
        }
        // Several events often come at the same time.
        for _ in 0..=self.world.dice.below(3) {
            let World { waiting, dice, .. } = &mut *self.world;
            let Some(waiting) = waiting else { return };
            let Some(coming) = waiting.think(dice, &self.configuration, false) else { return };
            self.take(coming);
        }
    }

    /// Next move if no event is left.
    pub(crate) fn idle(&mut self) -> Vec<super::Move> {
        let Some(waiting) = &mut self.world.waiting else { return Vec::new() };
        match waiting.think(&mut self.world.dice, &self.configuration, true) {
            Some(coming) => self.take(coming),
            None if !waiting.is_calm() && !self.stopped => self.stop(),
            None => panic!("something waits for ever: {waiting:#?}"),
        }
        self.moves()
    }

    pub(crate) fn stop(&mut self) {
        self.stopped = true;
        self.committer.inbox.close();
        self.inbox.push_back(Message::Stop);
    }

    fn take(&mut self, coming: Coming) {
        match coming {
            Coming::Push(push) => {
                if self.committer.inbox.put(push) == Some(true) {
                    self.inbox.push_back(Message::Arrived);
                }
            }
            Coming::Request(asked) => self.inbox.push_back(Message::Asked(asked)),
        }
    }

    /// Commits the remaining requests and the pushes without a message at the end of a run.
    pub(crate) fn see_through(&mut self) -> Result<(), Crash> {
        if self.world.waiting.is_none() && self.world.changes.is_none() {
            return Ok(());
        }
        loop {
            if self.orders.is_empty() && !self.committer.inbox.is_empty() {
                self.orders.push_back(CommitRequest::InboxReady);
            }
            if self.orders.is_empty() {
                return Ok(());
            }
            self.commit()?;
            self.world.listen();
        }
    }
}
