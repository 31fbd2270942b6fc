//! Pending jobs: the jobs of one step that an external system has, with their polls and completions.

use std::collections::HashMap;
use std::sync::Arc;

use super::job_attributes::LaneSource;
use super::pending_limits::PendingLimits;
use crate::processor::monitor_protocol::JobVerdict;
use tidegate_config::{BatchBy, Step};
use tidegate_dispatch::{JobKey, PollRules, Poller, PollerCommand, PollerEvent};
use tidegate_model::{ExternalStatus, Timestamp};
use tidegate_store::CompletionRecord;

/// Pending jobs of one step.
#[derive(Debug)]
pub(crate) struct PendingJobs {
    pub(crate) monitor: Poller,
    /// Pending jobs by index of the input.
    pub(crate) by_index: HashMap<u64, JobKey>,
    /// Jobs with an external completion that is not durable yet, by index.
    pub(crate) completing: HashMap<u64, JobKey>,
    /// Verdicts of completed jobs, until their delivery is durable.
    pub(crate) words: HashMap<JobKey, JobVerdict>,
    pub(crate) limits: PendingLimits,
    /// Commands that are not carried out yet.
    pub(crate) commands: Vec<PollerCommand>,
}

impl PendingJobs {
    pub(crate) fn new(step: &Step) -> Self {
        let monitor = match &step.monitor {
            Some(monitor) => Poller::new(PollRules {
                batch: monitor.batch,
                every: monitor.inquiry.every,
                concurrency: monitor.concurrency,
                by_lane: monitor.batch_by == BatchBy::Lane,
            }),
            None => Poller::disabled(),
        };
        let (by_index, completing, words) = (HashMap::new(), HashMap::new(), HashMap::new());
        let limits = step.monitor.as_ref().map(|monitor| monitor.limits).unwrap_or_default();
        let limits = PendingLimits::new(limits);
        Self { monitor, by_index, completing, words, limits, commands: Vec::new() }
    }

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
        self.limits.add(key, since);
        self.handle(PollerEvent::Pended { key, lane, since }, now);
    }

    /// Gives up the jobs that are pending for too long.
    pub(crate) fn expire(&mut self, now: Timestamp) {
        while let Some((key, why)) = self.limits.expired(now) {
            self.give_up(key, why, now);
        }
    }

    /// Counts the answers after which jobs are still pending, and gives up those that were checked too often.
    pub(crate) fn count_checks(&mut self, answers: &[(JobKey, ExternalStatus)], now: Timestamp) {
        for &(key, _) in answers.iter().filter(|(_, status)| status.waits()) {
            if let Some(why) = self.limits.checked(key) {
                self.give_up(key, why, now);
            }
        }
    }

    /// Completes a job at a limit as the monitor has it, unless it is being completed.
    fn give_up(&mut self, key: JobKey, why: String, now: Timestamp) {
        let waits = self.monitor.status(key).is_some_and(ExternalStatus::waits);
        if waits && !self.completing.values().any(|&other| other == key) {
            let status = self.limits.status();
            self.words.insert(key, JobVerdict { status, result: None, reason: Some(why) });
            self.handle(PollerEvent::Reported { key, status }, now);
        }
    }

    /// Releases a pending job that a request cancels, and returns whether it could. A job with a completion
    /// that is in flight or being delivered is not released.
    pub(crate) fn release(&mut self, key: JobKey, now: Timestamp) -> bool {
        let waits = self.monitor.status(key).is_some_and(ExternalStatus::waits);
        let lets_go = waits && !self.completing.values().any(|&other| other == key);
        if lets_go {
            self.limits.remove(key);
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
            self.limits.remove(key);
            self.handle(PollerEvent::Left { key }, now);
        }
    }

    /// The pending job at `index` that may get this status, or its status if the change is not allowed.
    /// Returns `None` if no job is pending there, or if it has a completion in flight.
    pub(crate) fn completable(
        &self,
        index: u64,
        to: ExternalStatus,
    ) -> Option<Result<JobKey, ExternalStatus>> {
        let key = *self.by_index.get(&index)?;
        let from = self.monitor.status(key).filter(|from| from.waits())?;
        if self.completing.contains_key(&index) {
            return None;
        }
        Some(if from.may_become(to) { Ok(key) } else { Err(from) })
    }

    /// Applies a completion that is not durable yet; other answers for the job are ignored until then.
    pub(crate) fn apply_completion(&mut self, index: u64, status: ExternalStatus, now: Timestamp) {
        let Some(&key) = self.by_index.get(&index) else { return };
        self.completing.insert(index, key);
        let mut commands = Vec::new();
        self.monitor.handle(PollerEvent::Reported { key, status }, now, &mut commands);
        // The job is delivered once the completion is durable. The completion records itself.
        commands
            .retain(|command| !matches!(command, PollerCommand::Settle { .. } | PollerCommand::Valid { .. }));
        self.commands.append(&mut commands);
    }

    /// Adds a job that is pending in the store, with its completion if it has one.
    pub(crate) fn recall(
        &mut self,
        job: (JobKey, u64),
        lane: &LaneSource<'_>,
        (since, completion): (Timestamp, Option<&CompletionRecord>),
        now: Timestamp,
    ) {
        let (key, _) = job;
        self.add(job, lane, since, now);
        if let Some(completion) = completion {
            self.apply_completion(job.1, completion.status, now);
            self.completing.remove(&job.1);
            self.settle(key, JobVerdict::of(completion));
        }
    }

    /// Delivers a job with a durable completion, if that completes it.
    pub(crate) fn settle(&mut self, key: JobKey, word: JobVerdict) {
        let status = word.status;
        if !status.waits() {
            self.words.insert(key, word);
            self.commands.push(PollerCommand::Settle { key, status });
        }
    }
}
