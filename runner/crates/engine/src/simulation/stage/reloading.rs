//! Simulated reloads: another generation takes over at a random moment, or a step drains and starts again from the
//! store. The run may crash at any move between.

use std::sync::Arc;

use super::Stage;
use crate::generation::current::NumberedGeneration;
use crate::runtime::message::{Message, ReloadRequest};
use tidegate_model::Clock as _;
use tidegate_store::Trigger;

impl Stage<'_> {
    /// Begins a reload, or replaces a step, in some moves.
    pub(crate) fn reload_sometimes(&mut self) {
        if self.stopped {
            return;
        }
        if self.world.dice.chance(1) {
            self.replace();
        }
        // Scripts are compiled for each generation, which takes time.
        if self.world.dice.below(400) == 0 {
            self.reload();
        }
    }

    fn reload(&mut self) {
        self.world.plan.version += 1;
        self.world.reload();
        let configuration = Arc::new(self.current.placed(&self.world.configuration, &[]));
        self.world.configuration = Arc::clone(&configuration);
        self.configuration = Arc::clone(&configuration);
        self.generations += 1;
        let (number, plugins, files) =
            (self.current.get().number + self.generations, Arc::default(), Arc::default());
        let generation = Arc::new(NumberedGeneration::new(number, configuration, plugins, files));
        let (reply, _) = crossbeam_channel::bounded(1);
        self.world.tally.reloads += 1;
        let (trigger, rolls_back, renamed) = (Trigger::Reload, None, Vec::new());
        let request = ReloadRequest { generation, trigger, rolls_back, renamed, reply };
        self.inbox.push_back(Message::Reload(request));
    }

    fn replace(&mut self) {
        let steps = self.configuration.steps.order();
        if steps.is_empty() {
            return;
        }
        let step = *self.world.dice.pick(steps);
        let (now, mut actions) = (self.world.clock.now(), Vec::new());
        let heard = self.before(None);
        self.world.tally.replaced += u64::from(self.coordinator.replace(step, now, &mut actions));
        self.after(&heard);
        self.carry_out(actions);
    }
}
