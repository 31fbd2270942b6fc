//! What is done because time has passed, and nothing else has happened: ticks become jobs, and old jobs
//! are let go of.

use super::{Action, Floor};
use crate::delivery::Order;
use tidegate_config::{Configuration, Retain};
use tidegate_model::Timestamp;

/// So often queues are looked at for jobs that are older than they shall become, in milliseconds.
const LETTING_GO: i64 = 60_000;

/// When queues are looked at next for jobs that are too old; `None` where no queue says how old they may
/// become.
pub(crate) fn first_look(configuration: &Configuration) -> Option<Timestamp> {
    let limited = configuration.queues.iter().any(|queue| matches!(queue.retain, Retain::For(_)));
    limited.then_some(Timestamp(i64::MIN))
}

impl Floor {
    /// Does what is due.
    pub(crate) fn pass(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        if self.stopping {
            return;
        }
        let ticked = self.ticks.take(&self.configuration, now);
        actions.extend(ticked.into_iter().map(|ticked| Action::Commit(Order::Ticked(ticked))));
        // A clock that was set back is not waited for.
        let next = now.0.saturating_add(LETTING_GO);
        if self.lets_go.is_some_and(|due| due <= now || due.0 > next) {
            self.lets_go = Some(Timestamp(next));
            actions.push(Action::Commit(Order::LetGo));
        }
    }

    /// When [`Self::pass`] has something to do.
    pub(crate) fn passes(&self) -> Option<Timestamp> {
        if self.stopping {
            return None;
        }
        self.ticks.wakes().into_iter().chain(self.lets_go).min()
    }
}
