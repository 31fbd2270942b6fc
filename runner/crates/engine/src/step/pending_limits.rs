//! Pending limits: find the jobs that an external system has held for too long, or that were checked too often.

use std::collections::{BTreeSet, HashMap};

use tidegate_config::MonitorLimits;
use tidegate_dispatch::JobKey;
use tidegate_model::{ExternalStatus, Timestamp, format_duration, grouped};

/// Pending jobs of one step, by the end of their time. Without limits it holds nothing.
#[derive(Debug, Default)]
pub(crate) struct PendingLimits {
    limits: MonitorLimits,
    ends: BTreeSet<(Timestamp, JobKey)>,
    jobs: HashMap<JobKey, LimitedJob>,
}

#[derive(Debug)]
struct LimitedJob {
    ends: Option<Timestamp>,
    /// Number of answers in this run after which it was still pending.
    checks: u32,
}

impl PendingLimits {
    pub(crate) fn new(limits: MonitorLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Status of a job at a limit, for the outcome that the monitor names.
    pub(crate) fn status(&self) -> ExternalStatus {
        if self.limits.resubmits { ExternalStatus::Unknown } else { ExternalStatus::Invalid }
    }

    /// Adds a job that is pending since this time.
    pub(crate) fn add(&mut self, key: JobKey, since: Timestamp) {
        if self.limits.ttl.is_none() && self.limits.max_checks.is_none() {
            return;
        }
        let ends = self.limits.ttl.map(|ttl| since + ttl);
        self.remove(key);
        self.ends.extend(ends.map(|ends| (ends, key)));
        self.jobs.insert(key, LimitedJob { ends, checks: 0 });
    }

    pub(crate) fn remove(&mut self, key: JobKey) {
        if let Some(ends) = self.jobs.remove(&key).and_then(|job| job.ends) {
            self.ends.remove(&(ends, key));
        }
    }

    /// Time at which the next job is at its limit.
    pub(crate) fn wakes(&self) -> Option<Timestamp> {
        self.ends.first().map(|(ends, _)| *ends)
    }

    /// Takes the next job whose time is over, with the reason.
    pub(crate) fn expired(&mut self, now: Timestamp) -> Option<(JobKey, String)> {
        let &(_, key) = self.ends.first().filter(|(ends, _)| *ends <= now)?;
        self.remove(key);
        let ttl = format_duration(self.limits.ttl?);
        Some((key, format!("it is still pending after the `ttl` of its monitor, {ttl}")))
    }

    /// Counts a check after which the job is still pending. Returns the reason if that was the last one.
    pub(crate) fn checked(&mut self, key: JobKey) -> Option<String> {
        let most = self.limits.max_checks?.get();
        let job = self.jobs.get_mut(&key)?;
        job.checks += 1;
        if job.checks < most {
            return None;
        }
        self.remove(key);
        let checks =
            if most == 1 { "1 check".to_owned() } else { format!("{} checks", grouped(most.into())) };
        Some(format!("it is still pending after {checks}, the `max_checks` of its monitor"))
    }
}
