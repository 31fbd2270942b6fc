//! Pending jobs: are polled through the step's monitor, and delivered when completed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tidegate_plugin::Failure;

use super::{Action, Coordinator};
use crate::processor::monitor_protocol::{JobVerdict, StatusQuery, StatusReport};
use crate::step::job_attributes::LaneSource;
use crate::step::probe_health::ProbeKind;
use tidegate_config::{Configuration, Step};
use tidegate_dispatch::{JobKey, Poller, PollerCommand, PollerEvent};
use tidegate_model::log_target;
use tidegate_model::{Address, ExternalStatus, Timestamp};

/// Pending jobs of one step.
#[derive(Debug)]
pub(crate) struct PendingJobs {
    pub(crate) monitor: Poller,
    /// Pending jobs by index of the input.
    pub(crate) by_index: HashMap<u64, JobKey>,
    /// Jobs with an external completion that is not durable yet, by index.
    pub(crate) told: HashMap<u64, JobKey>,
    /// Verdicts of completed jobs, until their delivery is durable.
    pub(crate) words: HashMap<JobKey, JobVerdict>,
    /// Commands that are not carried out yet.
    pub(crate) commands: Vec<PollerCommand>,
}

/// Pending jobs by step; `None` for an ordered step, which has no monitor.
pub(crate) fn all_steps(configuration: &Configuration) -> Vec<Option<PendingJobs>> {
    let monitor = |step: &Step| match &step.monitor {
        Some(monitor) => Poller::new(monitor.batch, monitor.inquiry.every),
        None => Poller::disabled(),
    };
    let watch = |step: &Step| PendingJobs {
        monitor: monitor(step),
        by_index: HashMap::new(),
        told: HashMap::new(),
        words: HashMap::new(),
        commands: Vec::new(),
    };
    configuration.steps.iter().map(|step| step.picks().map(|_| watch(step))).collect()
}

impl PendingJobs {
    pub(crate) fn handle(&mut self, event: PollerEvent<'_>, now: Timestamp) {
        self.monitor.handle(event, now, &mut self.commands);
    }

    /// Adds a job at this index of the input that is pending since this time.
    pub(crate) fn add(
        &mut self,
        (key, index): (JobKey, u64),
        lane: &LaneSource<'_>,
        since: Timestamp,
        now: Timestamp,
    ) {
        let lane = match lane {
            LaneSource::Named(name) => name.as_bytes(),
            LaneSource::Shared | LaneSource::Missing => &[],
        };
        self.by_index.insert(index, key);
        self.handle(PollerEvent::Pended { key, lane, since }, now);
    }

    /// Releases a pending job that a request cancels, and returns whether it could. A job with a completion
    /// that is in flight or being delivered is not released.
    pub(crate) fn release(&mut self, key: JobKey, now: Timestamp) -> bool {
        let waits = self.monitor.status(key).is_some_and(ExternalStatus::waits);
        let lets_go = waits && !self.told.values().any(|&told| told == key);
        if lets_go {
            self.handle(PollerEvent::Left { key }, now);
        }
        lets_go
    }

    /// Removes the released jobs from the index. If there are any, the cost is a walk over all pending jobs.
    pub(crate) fn forget_left(&mut self) {
        let Self { monitor, by_index, .. } = self;
        if by_index.len() > monitor.len() {
            by_index.retain(|_, key| monitor.status(*key).is_some());
        }
    }

    /// Verdicts of these jobs, if all of them have one.
    pub(crate) fn verdicts(&self, jobs: &[JobKey]) -> Option<Arc<[JobVerdict]>> {
        jobs.iter().map(|key| self.words.get(key).cloned()).collect()
    }

    /// Removes a job whose delivery is durable.
    pub(crate) fn remove(&mut self, (key, index): (JobKey, u64), now: Timestamp) {
        if self.words.remove(&key).is_some() {
            self.by_index.remove(&index);
            self.handle(PollerEvent::Left { key }, now);
        }
    }
}

impl Coordinator {
    /// Handles the answer of a monitor.
    pub(crate) fn status_seen(
        &mut self,
        step: usize,
        ask: u64,
        seen: Result<StatusReport, Failure>,
        now: Timestamp,
    ) {
        let (address, stats) = (&self.configuration.steps[step].address, &self.stats.step(step));
        let Some(watch) = &mut self.watches[step] else { return };
        let StatusReport { answers, unexpected: unasked, malformed: nonsense } = match seen {
            Ok(seen) => seen,
            Err(failure) => {
                let why = failure.to_string();
                if stats.answered(ProbeKind::Monitor, Some(why.clone()), now) {
                    tracing::warn!(
                        target: log_target::ENGINE,
                        step = %address,
                        "the poll of the monitor failed, so its jobs stay pending: {why}"
                    );
                }
                return watch.handle(PollerEvent::Failed { ask }, now);
            }
        };
        let trouble = nonsense.map(|(answers, why)| {
            let answers = if answers == 1 { "1 answer".to_owned() } else { format!("{answers} answers") };
            format!("{answers} of the monitor cannot be read: {why}")
        });
        if stats.answered(ProbeKind::Monitor, trouble.clone(), now)
            && let Some(trouble) = trouble
        {
            tracing::warn!(target: log_target::ENGINE, step = %address, "{trouble}; their jobs stay pending");
        }
        if unasked > 0 {
            warn_of_unasked(address, unasked);
        }
        // A completion that is in flight takes precedence; the job is polled again.
        let told: HashSet<JobKey> = watch.told.values().copied().collect();
        let answers: Vec<_> = answers.into_iter().filter(|(key, _)| !told.contains(key)).collect();
        let statuses: Vec<_> = answers.iter().map(|(key, word)| (*key, word.status)).collect();
        for (key, word) in answers {
            // The first verdict is being made durable.
            if watch.monitor.status(key).is_some_and(ExternalStatus::waits) {
                watch.words.insert(key, word);
            }
        }
        watch.handle(PollerEvent::Answered { ask, answers: &statuses }, now);
        let PendingJobs { monitor, words, .. } = watch;
        words.retain(|key, _| !monitor.status(*key).is_some_and(ExternalStatus::waits));
    }

    /// Carries out the commands of the pollers.
    pub(crate) fn drive_monitors(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        let mut commands = Vec::new();
        for step in 0..self.watches.len() {
            if self.watches[step].is_none() || self.stopping || self.dispatcher.is_halted(step) {
                continue;
            }
            let Some(watch) = &mut self.watches[step] else { continue };
            watch.handle(PollerEvent::Tick, now);
            let wanted = std::mem::take(&mut watch.commands);
            let (pending, valid) = (watch.monitor.len(), watch.monitor.valid());
            self.stats.step(step).set_pending(pending as u64, valid as u64);
            let address = &self.configuration.steps[step].address;
            let mut settled = Vec::new();
            for command in wanted {
                match command {
                    PollerCommand::Ask { ask, jobs } => {
                        let Some(buffer) = &self.buffers[step] else { continue };
                        let jobs = jobs.into_iter().filter_map(|key| Some((key, buffer.row(key)?))).collect();
                        self.stats.step(step).ask(ProbeKind::Monitor, now);
                        actions.push(Action::AskStatus(StatusQuery { step, ask, jobs }));
                    }
                    PollerCommand::Settle { key, .. } => settled.push(key),
                    PollerCommand::Discarded { answers } => warn_of_unasked(address, answers),
                    PollerCommand::Refused { from, to, .. } => tracing::warn!(
                        target: log_target::ENGINE,
                        step = %address,
                        "a job that is {} cannot become {}: the answer of the monitor is refused",
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
            self.execute_commands(commands, now, actions);
        }
    }

    /// Time of the next poll.
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
        "the monitor answered for jobs that were not polled: these answers are discarded"
    );
}
