//! Command orders: carry out the decisions about the commands of `exec` sources, and log their ends.

use super::command_sources::{CommandOrder, EndNote, EndedCommand};
use super::{Action, Coordinator};
use crate::report::Halt;
use tidegate_config::{PushSource, QueueRef};
use tidegate_model::log_target;
use tidegate_model::{Timestamp, rfc3339};

impl Coordinator {
    /// Starts the commands that are due.
    pub(crate) fn start_commands(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        let orders = self.commands.take(self.generation.number, now);
        self.order(orders, actions);
    }

    /// Lets the commands follow the current generation.
    pub(crate) fn follow_commands(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        for (position, queue) in self.generation.configuration.queues.entries() {
            let is_command = matches!(queue.source, Some(PushSource::Exec(_)));
            if is_command && self.commands.is_given_up(QueueRef(position)) {
                self.halts.retain(|halt| halt.step != queue.address);
            }
        }
        let orders = self.commands.follow(&self.generation.configuration, now);
        self.order(orders, actions);
    }

    /// Ends all commands, as the run ends.
    pub(crate) fn stop_commands(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        let orders = self.commands.stop(now);
        self.order(orders, actions);
    }

    fn order(&mut self, orders: Vec<CommandOrder>, actions: &mut Vec<Action>) {
        let changes = !orders.is_empty();
        actions.extend(orders.into_iter().map(Action::Command));
        if changes {
            self.publish_commands();
        }
    }

    /// Handles the end of a command.
    pub(crate) fn command_ended(&mut self, ended: &EndedCommand, now: Timestamp, actions: &mut Vec<Action>) {
        match (self.commands.ended(ended, now), &ended.end) {
            (EndNote::Again(until), Err(failure)) => {
                if let Some((source, failures)) = self.commands.logs(ended.queue, now) {
                    let (why, until) = (&failure.why, rfc3339(until));
                    tracing::warn!(target: log_target::SOURCE, %source, failures, until, "{why}; it starts again at {until}");
                }
            }
            (EndNote::GivenUp(why), _) => {
                if let Some(queue) = self.generation.configuration.queues.get(ended.queue.0) {
                    let source = queue.address.clone();
                    tracing::error!(target: log_target::SOURCE, %source, "the source stops: {why}");
                    self.halts.push(Halt { step: source, position: None, why });
                }
            }
            (EndNote::Again(_) | EndNote::Nothing, _) => {}
        }
        self.publish_commands();
        if !self.stopping {
            self.start_commands(now, actions);
        }
        self.update_expectation();
    }

    fn publish_commands(&self) {
        for (queue, health) in self.commands.health() {
            self.stats.source(queue).set(Some(health));
        }
    }
}
