//! Timers: turn due ticks into jobs, start commands, have late jobs appended, and start retention sweeps.

use std::time::Duration;

use super::{Action, Coordinator};
use crate::commit::request::CommitRequest;
use tidegate_config::{Configuration, Retain};
use tidegate_model::Timestamp;

/// Time between two retention sweeps.
const RETENTION_INTERVAL: Duration = Duration::from_mins(1);

/// Time of the first retention sweep; `None` if no queue has a maximum age.
pub(crate) fn first_look(configuration: &Configuration) -> Option<Timestamp> {
    let limited = configuration.queues.iter().any(|queue| matches!(queue.retain, Retain::For(_)));
    limited.then_some(Timestamp(i64::MIN))
}

impl Coordinator {
    /// Runs the timers that are due.
    pub(crate) fn run_timers(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        if self.stopping {
            return;
        }
        let ticked = self.ticks.take(&self.generation.configuration, now);
        actions.extend(ticked.into_iter().map(|ticked| Action::Commit(CommitRequest::Ticked(ticked))));
        self.start_commands(now, actions);
        let late = self.late.take(now);
        actions.extend(late.into_iter().map(|queue| Action::Commit(CommitRequest::LateDue(queue))));
        // A clock that was set back makes a sweep due at once.
        let next = now + RETENTION_INTERVAL;
        if self.lets_go.is_some_and(|due| due <= now || due > next) {
            self.lets_go = Some(next);
            actions.push(Action::Commit(CommitRequest::ApplyRetention));
        }
    }

    /// Time of the next [`Self::run_timers`].
    pub(crate) fn next_timer(&self) -> Option<Timestamp> {
        if self.stopping {
            return None;
        }
        let wakes = self.ticks.wakes().into_iter().chain(self.commands.wakes());
        wakes.chain(self.late.wakes()).chain(self.lets_go).min()
    }
}
