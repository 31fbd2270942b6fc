//! Simulated reloads: another generation takes over at a random moment, or a step drains and starts again from the
//! store. The run may crash at any move between.

use std::sync::Arc;

use crossbeam_channel::{Receiver, TryRecvError};

use super::{Crash, Stage};
use crate::commit::request::ReloadChange;
use crate::error::EngineError;
use crate::generation::Generation;
use crate::generation::earlier::EarlierGeneration;
use crate::generation::{obstacles, renames};
use crate::report::RolledBack;
use crate::runtime::message::Message;
use crate::runtime::takeover;
use crate::simulation::blueprint;
use crate::simulation::waiting::Waiting;
use crate::simulation::world::World;
use tidegate_config::Configuration;
use tidegate_model::Clock as _;
use tidegate_store::Trigger;
use tidegate_store::testing::DiskFailure;

/// An earlier generation, with those between it and the current one.
type Back = (RolledBack, Vec<Arc<Configuration>>);

impl Stage<'_> {
    /// Begins a reload, or replaces a step, in some moves.
    pub(crate) fn reload_sometimes(&mut self) -> Result<(), Crash> {
        if self.stopped {
            return Ok(());
        }
        if self.world.dice.chance(1) {
            self.replace();
        }
        // Scripts are compiled for each generation, which takes time.
        let World { changes, joins, waiting, .. } = &*self.world;
        let changes = changes.is_some() || joins.is_some() || waiting.as_ref().is_some_and(Waiting::changes);
        let rarely = if changes { 100 } else { 400 };
        if self.world.dice.below(rarely) == 0 {
            self.reload()?;
        }
        Ok(())
    }

    /// Whether all steps have followed the last reload.
    pub(crate) fn is_reloaded(&self) -> bool {
        let is_answered = |answer: &Receiver<_>| !answer.is_empty();
        self.answer.as_ref().is_some_and(is_answered) && self.coordinator.lingering().is_empty()
    }

    /// Requests a reload or a rollback, unless the one before is not answered.
    pub(crate) fn reload(&mut self) -> Result<(), Crash> {
        let is_open = |answer: &Receiver<_>| matches!(answer.try_recv(), Err(TryRecvError::Empty));
        if self.answer.as_ref().is_some_and(is_open) {
            return Ok(());
        }
        let requested = self.request();
        requested.map_err(|error| self.world.expected(&error))
    }

    fn request(&mut self) -> Result<(), EngineError> {
        let (next, back) = self.next_generation()?;
        if self.world.changes.is_some() {
            let between = back.as_ref().map(|(_, between)| &between[..]);
            let obstacles = obstacles::find(&next.configuration, &self.current.get(), between, &self.store)?;
            if !obstacles.is_empty() {
                self.world.tally.refused += 1;
                return Ok(());
            }
        }
        let trigger = if back.is_some() { Trigger::Rollback } else { Trigger::Reload };
        let back = back.as_ref().map(|(back, between)| (back.clone(), &between[..]));
        let (request, answer) = takeover::request(&self.current, &self.store, &next, trigger, back)?;
        if self.world.changes.is_some() {
            let next = (request.generation.number, &*request.generation.configuration);
            let renamed = renames::of(next.1, Some(&self.current.get().configuration), &self.store)?;
            self.world.planned.add(&self.current.get().digest, next, &renamed, &self.store)?;
        } else {
            self.world.configuration = Arc::clone(&request.generation.configuration);
        }
        if let Some(waiting) = &mut self.world.waiting {
            waiting.requested(request.generation.number);
        }
        self.configuration = Arc::clone(&request.generation.configuration);
        self.answer = Some(answer);
        self.world.tally.reloads += 1;
        self.inbox.push_back(Message::Reload(request));
        Ok(())
    }

    /// Changed files, or an earlier generation.
    fn next_generation(&mut self) -> Result<(Generation, Option<Back>), EngineError> {
        let World { changes, plan, dice, tally, clock, folder, .. } = &mut *self.world;
        let Some(changes) = changes else {
            self.world.edit();
            return Ok((Arc::clone(&self.world.configuration).into(), None));
        };
        let current = self.current.get();
        if dice.chance(20) {
            let given = &current.configuration.given;
            let to = dice.chance(50).then(|| dice.between(1, current.number));
            if let Ok(found) = EarlierGeneration::find(given, &self.store, current.number, to) {
                tally.rollbacks += 1;
                let back = RolledBack {
                    to: found.number,
                    from: current.number,
                    since: clock.now(),
                    trigger: Trigger::Rollback,
                    why: String::new(),
                };
                let earlier = World::generation(blueprint::read(folder.path(), &found.options));
                return Ok((earlier, Some((back, found.between))));
            }
        }
        changes.make(plan, dice);
        Ok((self.world.read(Some(&current.configuration), &self.store)?, None))
    }

    /// Prepares the commit of a part of a reload.
    pub(crate) fn before_reload(&mut self, change: &ReloadChange) {
        match change {
            ReloadChange::Swap { generation, renamed, .. } => {
                self.world.renaming = Some((generation.number, renamed.clone()));
                self.world.swapping = Some(Arc::clone(generation));
                if let Some(operation) = self.swap_fails_from.take() {
                    self.world.disk.fail(DiskFailure::From(operation));
                }
            }
            ReloadChange::Remove { step } => {
                let state = &self.committer.committed_state;
                let Some(step) = state.step(*step) else { return };
                let step = self.present(&step.declared);
                self.world.history.remove(&step);
            }
            ReloadChange::Install { .. } | ReloadChange::Recorded(_) => {}
        }
    }

    /// Records a part of a reload that is durable.
    pub(crate) fn after_reload(&mut self, change: &ReloadChange) -> Result<(), EngineError> {
        match change {
            ReloadChange::Swap { generation, .. } => {
                self.world.settle_renames(&self.store)?;
                self.world.swapping = None;
                self.world.is_in_force(generation);
            }
            ReloadChange::Install { step, .. } => {
                self.world.effects.forget(&step.address);
                let configuration = &step.generation.configuration;
                if let Some(waiting) = &mut self.world.waiting {
                    waiting.installed(configuration, &step.address, step.generation.number);
                }
                let begun = self.world.history.install(step, configuration, &self.store)?;
                if self.world.changes.is_some() {
                    let number = step.generation.number;
                    self.world.planned.started(&step.address, number, &begun.unwrap_or_default());
                }
            }
            ReloadChange::Remove { .. } | ReloadChange::Recorded(_) => {}
        }
        Ok(())
    }

    fn replace(&mut self) {
        let steps = self.configuration.steps.order();
        if steps.is_empty() {
            return;
        }
        let step = *self.world.dice.pick(steps);
        // As with each message.
        self.tick();
        let (now, mut actions) = (self.world.clock.now(), Vec::new());
        let heard = self.before(None);
        let current = self.current.get();
        if let Some(step) = current.configuration.steps.get(step) {
            self.world.planned.expect(&step.address, current.number);
        }
        self.world.tally.replaced += u64::from(self.coordinator.replace(step, now, &mut actions));
        self.after(&heard);
        self.carry_out(actions);
    }
}
