//! The floor's part in monitors: which jobs are pending, and what becomes of those that are not any more.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tidegate_plugin::Failure;

use super::{Action, Floor};
use crate::answering::Asked;
use crate::cards::Lane;
use crate::status::{Asking, Seen, Word};
use tidegate_config::{Configuration, Step};
use tidegate_dispatch::{JobKey, Monitor, MonitorCommand, MonitorEvent};
use tidegate_model::log_target;
use tidegate_model::{Address, Status, Timestamp};

/// What is known of the pending jobs of one step.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) monitor: Monitor,
    /// The pending jobs by their place in the input.
    pub(crate) by_index: HashMap<u64, JobKey>,
    /// Those of which somebody has said unasked how they stand, by their place, until that is durable.
    pub(crate) told: HashMap<u64, JobKey>,
    /// Of those that are through outside: what came of them, until that is durable.
    pub(crate) words: HashMap<JobKey, Word>,
    /// What shall be done, and is not yet.
    pub(crate) commands: Vec<MonitorCommand>,
}

/// By step; `None` where jobs are taken as they come, and nobody asks.
pub(crate) fn watches(configuration: &Configuration) -> Vec<Option<Watch>> {
    let monitor = |step: &Step| match &step.monitor {
        Some(monitor) => Monitor::new(monitor.batch, monitor.inquiry.every),
        None => Monitor::silent(),
    };
    let watch = |step: &Step| Watch {
        monitor: monitor(step),
        by_index: HashMap::new(),
        told: HashMap::new(),
        words: HashMap::new(),
        commands: Vec::new(),
    };
    configuration.steps.iter().map(|step| step.picks().map(|_| watch(step))).collect()
}

impl Watch {
    pub(crate) fn handle(&mut self, event: MonitorEvent<'_>, now: Timestamp) {
        self.monitor.handle(event, now, &mut self.commands);
    }

    /// The job, which stands at this place of the input, is pending since then.
    pub(crate) fn pended(
        &mut self,
        (key, index): (JobKey, u64),
        lane: &Lane<'_>,
        since: Timestamp,
        now: Timestamp,
    ) {
        let lane = match lane {
            Lane::Named(name) => name.as_bytes(),
            Lane::Shared | Lane::Missing => &[],
        };
        self.by_index.insert(index, key);
        self.handle(MonitorEvent::Pended { key, lane, since }, now);
    }

    /// Whether the pending job was let go of, which somebody takes out. Not where something was said of it
    /// that is on its way to the store, or is delivered.
    pub(crate) fn lets_go(&mut self, key: JobKey, now: Timestamp) -> bool {
        let waits = self.monitor.status(key).is_some_and(Status::waits);
        let lets_go = waits && !self.told.values().any(|&told| told == key);
        if lets_go {
            self.handle(MonitorEvent::Left { key }, now);
        }
        lets_go
    }

    /// Forgets where those were that were let go of. Looks at every pending job, if there are any.
    pub(crate) fn forget_left(&mut self) {
        let Self { monitor, by_index, .. } = self;
        if by_index.len() > monitor.len() {
            by_index.retain(|_, key| monitor.status(*key).is_some());
        }
    }

    /// What is to be made of these jobs, where that is known of all of them.
    pub(crate) fn words(&self, jobs: &[JobKey]) -> Option<Arc<[Word]>> {
        jobs.iter().map(|key| self.words.get(key).cloned()).collect()
    }

    /// What became of a job outside is durable.
    pub(crate) fn settled(&mut self, (key, index): (JobKey, u64), now: Timestamp) {
        if self.words.remove(&key).is_some() {
            self.by_index.remove(&index);
            self.handle(MonitorEvent::Left { key }, now);
        }
    }
}

impl Floor {
    /// Takes in what a monitor has answered.
    pub(crate) fn status_seen(&mut self, step: usize, ask: u64, seen: Result<Seen, Failure>, now: Timestamp) {
        let (address, stats) = (&self.configuration.steps[step].address, &self.stats.steps[step]);
        let Some(watch) = &mut self.watches[step] else { return };
        let Seen { answers, unasked, nonsense } = match seen {
            Ok(seen) => seen,
            Err(failure) => {
                let why = failure.to_string();
                if stats.answered(Asked::Monitor, Some(why.clone()), now) {
                    tracing::warn!(
                        target: log_target::ENGINE,
                        step = %address,
                        "how pending jobs stand cannot be found out, so they stay pending: {why}"
                    );
                }
                return watch.handle(MonitorEvent::Failed { ask }, now);
            }
        };
        let trouble = nonsense.map(|(answers, why)| {
            let answers = if answers == 1 { "1 answer".to_owned() } else { format!("{answers} answers") };
            format!("{answers} of the monitor cannot be understood: {why}")
        });
        if stats.answered(Asked::Monitor, trouble.clone(), now)
            && let Some(trouble) = trouble
        {
            tracing::warn!(target: log_target::ENGINE, step = %address, "{trouble}; their jobs stay pending");
        }
        if unasked > 0 {
            warn_of_unasked(address, unasked);
        }
        // What somebody has said meanwhile is on its way to the store, and goes first; the job is asked for again.
        let told: HashSet<JobKey> = watch.told.values().copied().collect();
        let answers: Vec<_> = answers.into_iter().filter(|(key, _)| !told.contains(key)).collect();
        let statuses: Vec<_> = answers.iter().map(|(key, word)| (*key, word.status)).collect();
        for (key, word) in answers {
            // What was said first is being made durable.
            if watch.monitor.status(key).is_some_and(Status::waits) {
                watch.words.insert(key, word);
            }
        }
        watch.handle(MonitorEvent::Answered { ask, answers: &statuses }, now);
        let Watch { monitor, words, .. } = watch;
        words.retain(|key, _| !monitor.status(*key).is_some_and(Status::waits));
    }

    /// Does what monitors want done.
    pub(crate) fn look_after(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        let mut commands = Vec::new();
        for step in 0..self.watches.len() {
            if self.watches[step].is_none() || self.stopping || self.dispatcher.is_halted(step) {
                continue;
            }
            let Some(watch) = &mut self.watches[step] else { continue };
            watch.handle(MonitorEvent::Tick, now);
            let wanted = std::mem::take(&mut watch.commands);
            let (pending, valid) = (watch.monitor.len(), watch.monitor.valid());
            self.stats.steps[step].set_pending(pending as u64, valid as u64);
            let address = &self.configuration.steps[step].address;
            let mut settled = Vec::new();
            for command in wanted {
                match command {
                    MonitorCommand::Ask { ask, jobs } => {
                        let Some(shelf) = &self.shelves[step] else { continue };
                        let jobs = jobs.into_iter().filter_map(|key| Some((key, shelf.row(key)?))).collect();
                        self.stats.steps[step].ask(Asked::Monitor, now);
                        actions.push(Action::AskStatus(Asking { step, ask, jobs }));
                    }
                    MonitorCommand::Settle { key, .. } => settled.push(key),
                    MonitorCommand::Discarded { answers } => warn_of_unasked(address, answers),
                    MonitorCommand::Refused { from, to, .. } => tracing::warn!(
                        target: log_target::ENGINE,
                        step = %address,
                        "a job that is {} cannot become {}; that answer of the monitor is refused",
                        from.as_str(),
                        to.as_str()
                    ),
                }
            }
            if !settled.is_empty() {
                self.dispatcher.settle(step, settled, now, &mut commands);
            }
        }
        if !commands.is_empty() {
            self.carry_out(commands, now, actions);
        }
    }

    /// When a monitor wants to be told that time has passed.
    pub(crate) fn monitor_wakes(&self, now: Timestamp) -> Option<Timestamp> {
        if self.stopping {
            return None;
        }
        let watches = self.watches.iter().enumerate();
        let awake = watches.filter(|(step, _)| !self.dispatcher.is_halted(*step));
        awake.filter_map(|(_, watch)| watch.as_ref()?.monitor.wakes(now)).min()
    }
}

fn warn_of_unasked(step: &Address, answers: usize) {
    tracing::warn!(
        target: log_target::ENGINE,
        %step,
        answers,
        "the monitor answered for jobs that it was not asked for; those answers are discarded"
    );
}
