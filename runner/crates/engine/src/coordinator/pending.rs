//! Pending jobs: are polled through the step's monitor, and delivered when completed.

use std::collections::HashSet;

use tidegate_plugin::Failure;

use super::{Action, Coordinator};
use crate::commit::request::CommitRequest;
use crate::operator::request::{PendingRequest, Reply, Request};
use crate::processor::monitor_protocol::{StatusQuery, StatusReport};
use crate::step::pending_jobs::PendingJobs;
use crate::step::probe_health::ProbeKind;
use crate::step::state::{QueuedJobs, StepState};
use tidegate_config::Queuer;
use tidegate_dispatch::{Event, JobKey, PollerCommand, PollerEvent, SettledJob};
use tidegate_model::log_target;
use tidegate_model::{Address, ExternalStatus, Timestamp};

impl Coordinator {
    /// Handles the answer of a monitor.
    pub(crate) fn status_seen(
        &mut self,
        step: usize,
        epoch: u64,
        ask: u64,
        seen: Result<StatusReport, Failure>,
        now: Timestamp,
    ) {
        let Some(state) = self.steps.get_mut(step).filter(|state| state.epoch == epoch) else { return };
        self.pending_steps.insert(step);
        let (address, stats) = (&state.declared.address, &state.stats);
        let Some(QueuedJobs { pending: watch, .. }) = &mut state.queued else { return };
        let StatusReport { answers, unexpected: unasked, malformed: nonsense } = match seen {
            Ok(seen) => seen,
            Err(failure) => {
                let why = failure.to_string();
                if stats.answered(ProbeKind::Monitor, ask, Some(why.clone()), now) {
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
        let malformed = trouble.is_some();
        if stats.answered(ProbeKind::Monitor, ask, trouble.clone(), now)
            && let Some(trouble) = trouble
        {
            tracing::warn!(target: log_target::ENGINE, step = %address, "{trouble}; their jobs stay pending");
        }
        if unasked > 0 {
            warn_of_unasked(address, unasked);
        }
        // A completion that is in flight takes precedence; the job is polled again.
        let completing: HashSet<JobKey> = watch.completing.values().copied().collect();
        let answers: Vec<_> = answers.into_iter().filter(|(key, _)| !completing.contains(key)).collect();
        let statuses: Vec<_> = answers.iter().map(|(key, word)| (*key, word.status)).collect();
        for (key, word) in answers {
            // The first verdict is being made durable.
            if watch.monitor.status(key).is_some_and(ExternalStatus::waits) {
                watch.words.insert(key, word);
            }
        }
        watch.handle(PollerEvent::Answered { ask, answers: &statuses, malformed }, now);
        watch.count_checks(&statuses, now);
        let PendingJobs { monitor, words, .. } = watch;
        words.retain(|key, _| !monitor.status(*key).is_some_and(ExternalStatus::waits));
    }

    /// Pauses or resumes the monitor of a step.
    pub(crate) fn pause_monitor(&mut self, step: usize, paused: bool, now: Timestamp) {
        let state = self.steps.get_mut(step);
        if let Some(queued) = state.and_then(|state| state.queued.as_mut()) {
            queued.pending.handle(PollerEvent::Pause { paused }, now);
            self.pending_steps.insert(step);
        }
    }

    /// Carries out the commands of the pollers.
    pub(crate) fn drive_monitors(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        if self.stopping {
            return;
        }
        let (mut commands, mut freed) = (Vec::new(), false);
        let Self { steps, dispatcher, pending_steps, .. } = self;
        for step in std::mem::take(pending_steps) {
            let Some(StepState { declared, epoch, queued: Some(queued), stats, .. }) = steps.get_mut(step)
            else {
                continue;
            };
            if dispatcher.is_halted(step) {
                continue;
            }
            let QueuedJobs { buffer, pending: watch } = queued;
            watch.expire(now);
            watch.handle(PollerEvent::Tick, now);
            let wanted = std::mem::take(&mut watch.commands);
            let (pending, valid) = (watch.monitor.len(), watch.monitor.valid());
            if pending > 0 {
                pending_steps.insert(step);
            }
            stats.set_pending(pending as u64, valid as u64);
            if !watch.monitor.is_failing() {
                stats.recovered(ProbeKind::Monitor);
            }
            let address = &declared.address;
            let mut settled = Vec::new();
            for command in wanted {
                match command {
                    PollerCommand::Ask { ask, jobs } => {
                        let jobs = jobs.into_iter().filter_map(|key| Some((key, buffer.row(key)?))).collect();
                        stats.ask(ProbeKind::Monitor, ask, now);
                        let (step, epoch) = (declared.clone(), *epoch);
                        actions.push(Action::AskStatus(StatusQuery { step, epoch, ask, jobs }));
                    }
                    PollerCommand::Settle { key, status } => {
                        let resubmits = status == ExternalStatus::Unknown;
                        settled.push(SettledJob { key, resubmits });
                    }
                    PollerCommand::Valid { key } => {
                        if declared.picks().is_some_and(Queuer::frees_lane_when_valid) {
                            dispatcher.free_lane(step, key, now);
                            freed = true;
                        }
                        if let Some(row) = buffer.row(key).filter(|_| declared.events.is_some()) {
                            let request = Request::Validate { step: address.clone(), row: row.id };
                            let asked = PendingRequest::new(request, Reply::new(drop));
                            actions.push(Action::Commit(CommitRequest::Amend(asked)));
                        }
                    }
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
                dispatcher.settle(step, &settled, now, &mut commands);
            }
        }
        if freed {
            dispatcher.handle(Event::Tick, now, &mut commands);
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
        let awake = self.pending_steps.iter().filter(|step| !self.dispatcher.is_halted(**step));
        let wakes = |&step: &usize| {
            let pending = &self.steps.get(step)?.queued.as_ref()?.pending;
            pending.monitor.wakes(now).into_iter().chain(pending.limits.wakes()).min()
        };
        awake.filter_map(wakes).min()
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
