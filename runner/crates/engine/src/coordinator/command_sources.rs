//! Command sources: decide when the commands of `exec` sources start and end. They do no I/O.
//!
//! One process of a source runs at a time. Its successor starts when it has ended and its lines are durable, so that
//! the successor begins with the last cursor.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::step::source_health::{SourceHealth, SourceState};
use tidegate_components::command_source::CommandFailure;
use tidegate_config::{CommandSource, Configuration, PushSource, QueueRef};
use tidegate_dispatch::{NextStart, Restarts};
use tidegate_model::{Address, Restart, Timestamp};

/// Minimum time between two lines about failures of one command.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// A command to start.
#[derive(Clone, Debug)]
pub(crate) struct StartCommand {
    pub(crate) queue: QueueRef,
    /// Number of the process, sent with its end.
    pub(crate) epoch: u64,
    pub(crate) address: Address,
    /// Number of the generation in which the source has this address.
    pub(crate) generation: u64,
    pub(crate) source: Box<CommandSource>,
}

/// The end of a command. Its lines are durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndedCommand {
    pub(crate) queue: QueueRef,
    pub(crate) epoch: u64,
    /// Whether it printed a line or a cursor.
    pub(crate) printed: bool,
    pub(crate) end: Result<(), CommandFailure>,
}

/// An order for the threads.
#[derive(Clone, Debug)]
pub(crate) enum CommandOrder {
    Start(StartCommand),
    /// Ask the process to end.
    Stop(QueueRef),
}

/// Commands by the queues that they fill.
#[derive(Debug)]
pub(crate) struct CommandSources {
    commands: BTreeMap<QueueRef, Command>,
    /// Whether a command that succeeds is not started again.
    until_idle: bool,
    next_epoch: u64,
}

#[derive(Debug)]
struct Command {
    address: Address,
    source: Box<CommandSource>,
    restarts: Restarts,
    state: CommandState,
    /// The last failure, without a committed line since.
    why: Option<String>,
    logged: Option<Timestamp>,
}

#[derive(Debug)]
enum CommandState {
    Waiting {
        until: Timestamp,
    },
    Running {
        epoch: u64,
        since: Timestamp,
    },
    /// It was asked to end. The next source of this queue follows it.
    Ending {
        epoch: u64,
        since: Timestamp,
        next: Option<(Address, Box<CommandSource>)>,
    },
    Ended {
        since: Timestamp,
    },
    GivenUp {
        since: Timestamp,
    },
}

/// Consequence of an end, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EndNote {
    Nothing,
    /// It starts again at this time.
    Again(Timestamp),
    GivenUp(String),
}

impl CommandSources {
    pub(crate) fn new(configuration: &Configuration, until_idle: bool, now: Timestamp) -> Self {
        let mut sources = Self { commands: BTreeMap::new(), until_idle, next_epoch: 1 };
        for (queue, address, source) in declared(configuration) {
            sources.put(queue, address, source, now);
        }
        sources
    }

    fn put(&mut self, queue: QueueRef, address: &Address, source: &CommandSource, now: Timestamp) {
        let restart = match source.restart {
            Restart::Always if self.until_idle => Restart::OnFailure,
            restart => restart,
        };
        let restarts = Restarts::new(restart, source.retry.clone(), seed(address));
        let (address, source) = (address.clone(), Box::new(source.clone()));
        let state = CommandState::Waiting { until: now };
        self.commands.insert(queue, Command { address, source, restarts, state, why: None, logged: None });
    }

    /// Commands that start now.
    pub(crate) fn take(&mut self, generation: u64, now: Timestamp) -> Vec<CommandOrder> {
        let mut orders = Vec::new();
        for (&queue, command) in &mut self.commands {
            if !matches!(command.state, CommandState::Waiting { until } if until <= now) {
                continue;
            }
            let epoch = self.next_epoch;
            self.next_epoch += 1;
            command.state = CommandState::Running { epoch, since: now };
            orders.push(CommandOrder::Start(StartCommand {
                queue,
                epoch,
                address: command.address.clone(),
                generation,
                source: command.source.clone(),
            }));
        }
        orders
    }

    /// Follows another configuration: a changed command ends and starts anew, a new one starts, and one that was given
    /// up is tried again.
    pub(crate) fn follow(&mut self, configuration: &Configuration, now: Timestamp) -> Vec<CommandOrder> {
        let mut orders = Vec::new();
        let mut next: BTreeMap<QueueRef, (&Address, &CommandSource)> =
            declared(configuration).map(|(queue, address, source)| (queue, (address, source))).collect();
        let queues: Vec<QueueRef> = self.commands.keys().copied().collect();
        for queue in queues {
            let Some(command) = self.commands.get_mut(&queue) else { continue };
            let new = next.remove(&queue);
            let successor = new.map(|(address, source)| (address.clone(), Box::new(source.clone())));
            match (&mut command.state, new) {
                (CommandState::Ending { next, .. }, _) => *next = successor,
                (CommandState::GivenUp { .. }, Some((address, source))) => {
                    self.put(queue, address, source, now);
                }
                (_, Some((address, source))) if *command.source == *source => {
                    command.address.clone_from(address);
                }
                (&mut CommandState::Running { epoch, since }, _) => {
                    command.state = CommandState::Ending { epoch, since, next: successor };
                    orders.push(CommandOrder::Stop(queue));
                }
                (_, Some((address, source))) => self.put(queue, address, source, now),
                (_, None) => _ = self.commands.remove(&queue),
            }
        }
        for (queue, (address, source)) in next {
            self.put(queue, address, source, now);
        }
        orders
    }

    /// Ends all commands.
    pub(crate) fn stop(&mut self, now: Timestamp) -> Vec<CommandOrder> {
        let mut orders = Vec::new();
        for (&queue, command) in &mut self.commands {
            command.state = match command.state {
                CommandState::Running { epoch, since } => {
                    orders.push(CommandOrder::Stop(queue));
                    CommandState::Ending { epoch, since, next: None }
                }
                CommandState::Ending { epoch, since, .. } => {
                    CommandState::Ending { epoch, since, next: None }
                }
                CommandState::Waiting { .. } => CommandState::Ended { since: now },
                CommandState::Ended { since } => CommandState::Ended { since },
                CommandState::GivenUp { since } => CommandState::GivenUp { since },
            };
        }
        orders
    }

    /// Decides what follows the end of a command.
    pub(crate) fn ended(&mut self, ended: &EndedCommand, now: Timestamp) -> EndNote {
        let Some(command) = self.commands.get_mut(&ended.queue) else { return EndNote::Nothing };
        if ended.printed {
            command.restarts.progressed();
            command.why = None;
        }
        match &mut command.state {
            CommandState::Ending { epoch, next, .. } if *epoch == ended.epoch => {
                match next.take() {
                    Some((address, source)) => self.put(ended.queue, &address, &source, now),
                    None => _ = self.commands.remove(&ended.queue),
                }
                return EndNote::Nothing;
            }
            CommandState::Running { epoch, .. } if *epoch == ended.epoch => {}
            _ => return EndNote::Nothing,
        }
        let next = match &ended.end {
            Ok(()) => command.restarts.succeeded(now),
            Err(failure) if failure.is_final => NextStart::GivenUp(None),
            Err(_) => command.restarts.failed(now),
        };
        command.why = ended.end.as_ref().err().map(|failure| failure.why.clone());
        let (state, note) = match next {
            NextStart::At(until) => (CommandState::Waiting { until }, EndNote::Again(until)),
            NextStart::Never => (CommandState::Ended { since: now }, EndNote::Nothing),
            NextStart::GivenUp(exhausted) => {
                let after = exhausted.map(|limit| format!(" ({limit})")).unwrap_or_default();
                let why = command.why.clone().unwrap_or_default();
                (CommandState::GivenUp { since: now }, EndNote::GivenUp(format!("{why}{after}")))
            }
        };
        command.state = state;
        note
    }

    /// Whether a failure that is retried is logged now, and how many came in a row.
    pub(crate) fn logs(&mut self, queue: QueueRef, now: Timestamp) -> Option<(&Address, u32)> {
        let command = self.commands.get_mut(&queue)?;
        let failures = command.restarts.failures();
        let is_due = failures == 1 || command.logged.is_none_or(|logged| now.since(logged) >= LOG_INTERVAL);
        if is_due {
            command.logged = Some(now);
        }
        is_due.then_some((&command.address, failures))
    }

    /// Whether the source of this queue has failed for good.
    pub(crate) fn is_given_up(&self, queue: QueueRef) -> bool {
        let command = self.commands.get(&queue);
        command.is_some_and(|command| matches!(command.state, CommandState::GivenUp { .. }))
    }

    /// Whether a command runs, or starts later.
    pub(crate) fn are_active(&self) -> bool {
        let is_over =
            |state: &CommandState| matches!(state, CommandState::Ended { .. } | CommandState::GivenUp { .. });
        self.commands.values().any(|command| !is_over(&command.state))
    }

    /// Time of the next start.
    pub(crate) fn wakes(&self) -> Option<Timestamp> {
        let waiting = self.commands.values().filter_map(|command| match command.state {
            CommandState::Waiting { until } => Some(until),
            _ => None,
        });
        waiting.min()
    }

    /// Health of each source.
    pub(crate) fn health(&self) -> impl Iterator<Item = (QueueRef, SourceHealth)> {
        self.commands.iter().map(move |(&queue, command)| {
            let (state, since) = match command.state {
                CommandState::Waiting { until } => (SourceState::Waiting { until }, None),
                CommandState::Running { since, .. } | CommandState::Ending { since, .. } => {
                    (SourceState::Running, Some(since))
                }
                CommandState::Ended { since } => (SourceState::Ended, Some(since)),
                CommandState::GivenUp { since } => (SourceState::Stopped, Some(since)),
            };
            let (why, failures) = (command.why.clone(), command.restarts.failures());
            (queue, SourceHealth { state, since, why, failures })
        })
    }
}

fn declared(configuration: &Configuration) -> impl Iterator<Item = (QueueRef, &Address, &CommandSource)> {
    configuration.queues.entries().filter_map(|(position, queue)| match &queue.source {
        Some(PushSource::Exec(source)) => Some((QueueRef(position), &queue.address, &**source)),
        _ => None,
    })
}

/// Seed of the jitter, which differs between sources.
fn seed(address: &Address) -> u128 {
    let text = address.to_string();
    text.bytes().fold(0, |seed: u128, byte| (seed ^ u128::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests;
