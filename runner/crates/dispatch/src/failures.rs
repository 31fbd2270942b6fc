//! Failure log: logs the first failure of each cause at once, and a count of the others once a minute.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_model::Timestamp;

/// Minimum time between two lines of one cause, in milliseconds.
const WINDOW: Duration = Duration::from_mins(1);

/// Failures of a batch with one cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    pub cause: FailureCause,
    /// Number of jobs; of attempts, for [`Ending::TriedAgain`].
    pub jobs: u64,
    pub first: FailedJob,
    pub last: FailedJob,
}

/// Cause of failures that share their log lines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FailureCause {
    /// Kind as in error records: `failed`, `timeout`, `http 503`.
    pub kind: Cow<'static, str>,
    pub ending: Ending,
}

/// Outcome of a job whose attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// It waits for another attempt.
    TriedAgain,
    /// It was moved to the error queue.
    SetAside,
    /// Its retry policy dropped it.
    DroppedByPolicy,
    /// `errors = "drop"` dropped it.
    DroppedByErrors,
    /// `at-most-once` dropped it.
    DroppedOnce,
}

/// One failed job, as an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedJob {
    /// Address: `pipeline/queue/index`.
    pub job: String,
    /// Its next attempt.
    pub again: Option<NextAttempt>,
    pub why: String,
}

/// Attempt of a job that is still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextAttempt {
    pub number: u32,
    pub due: Timestamp,
}

/// Line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureLine {
    /// Position of the step in the configuration.
    pub step: usize,
    pub cause: FailureCause,
    pub jobs: u64,
    /// Time span of the failures; `None` for the first job of a cause.
    pub within: Option<Duration>,
    pub last: FailedJob,
}

/// Rate limiter of log lines: takes failures and returns the lines that are due.
#[derive(Debug, Default)]
pub struct FailureLog {
    windows: BTreeMap<(usize, FailureCause), Window>,
}

/// Time after a line in which failures of its cause are only counted.
#[derive(Debug)]
struct Window {
    since: Timestamp,
    jobs: u64,
    last: Option<FailedJob>,
}

impl Failed {
    /// Adds a job to its cause.
    pub fn add(all: &mut Vec<Self>, cause: FailureCause, job: FailedJob) {
        match all.iter_mut().find(|failed| failed.cause == cause) {
            Some(failed) => {
                failed.jobs += 1;
                failed.last = job;
            }
            None => all.push(Self { cause, jobs: 1, first: job.clone(), last: job }),
        }
    }
}

impl FailureLog {
    /// Adds failures of a step. Returns a line if they are the first of their cause.
    pub fn note(&mut self, step: usize, failed: Failed, now: Timestamp) -> Option<FailureLine> {
        let Failed { cause, jobs, first, last } = failed;
        if let Some(window) = self.windows.get_mut(&(step, cause.clone())) {
            window.jobs += jobs;
            window.last = Some(last);
            return None;
        }
        let others = jobs.saturating_sub(1);
        let window = Window { since: now, jobs: others, last: (others > 0).then_some(last) };
        self.windows.insert((step, cause.clone()), window);
        Some(FailureLine { step, cause, jobs: 1, within: None, last: first })
    }

    /// Time at which [`Self::tick`] has work for jobs that failed permanently.
    #[must_use]
    pub fn wakes(&self) -> Option<Timestamp> {
        let of_jobs = self.windows.iter().filter(|((_, cause), _)| cause.ending != Ending::TriedAgain);
        of_jobs.map(|(_, window)| window.since + WINDOW).min()
    }

    /// Time at which [`Self::tick`] has a count of attempts to report. Only a real clock needs it: no decision depends
    /// on it.
    #[must_use]
    pub fn reports_attempts(&self) -> Option<Timestamp> {
        let counted = self
            .windows
            .iter()
            .filter(|((_, cause), window)| cause.ending == Ending::TriedAgain && window.last.is_some());
        counted.map(|(_, window)| window.since + WINDOW).min()
    }

    /// Returns lines for the windows that are over. A cause without failures in its window is removed.
    pub fn tick(&mut self, now: Timestamp) -> Vec<FailureLine> {
        // A clock that was set back ends a window too.
        self.report(now, |since| now >= since + WINDOW || now < since)
    }

    /// Returns lines for all counted failures, at the end of a run.
    pub fn finish(&mut self, now: Timestamp) -> Vec<FailureLine> {
        self.report(now, |_| true)
    }

    fn report(&mut self, now: Timestamp, is_over: impl Fn(Timestamp) -> bool) -> Vec<FailureLine> {
        let mut lines = Vec::new();
        self.windows.retain(|(step, cause), window| {
            if !is_over(window.since) {
                return true;
            }
            let Some(last) = window.last.take() else { return false };
            lines.push(FailureLine {
                step: *step,
                cause: cause.clone(),
                jobs: window.jobs,
                within: Some(now.since(window.since)),
                last,
            });
            *window = Window { since: now, jobs: 0, last: None };
            true
        });
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(kind: &'static str, indices: std::ops::RangeInclusive<u64>) -> Failed {
        let cause = FailureCause { kind: kind.into(), ending: Ending::SetAside };
        let mut all = Vec::new();
        for index in indices {
            let (job, why) = (format!("p/in/{index}"), format!("no {index}"));
            let job = FailedJob { job, again: None, why };
            Failed::add(&mut all, cause.clone(), job);
        }
        all.remove(0)
    }

    /// Lines as `kind jobs/within-ms last`.
    fn shown(lines: impl IntoIterator<Item = FailureLine>) -> Vec<String> {
        let line = |line: FailureLine| {
            let within = line.within.map_or("first".to_owned(), |within| within.as_millis().to_string());
            format!("{}: {} {} {within} {}", line.step, line.cause.kind, line.jobs, line.last.job)
        };
        lines.into_iter().map(line).collect()
    }

    #[test]
    fn the_first_of_a_cause_is_reported_at_once_and_the_others_once_a_minute_with_their_number() {
        let mut log = FailureLog::default();
        assert_eq!(log.wakes(), None);
        assert_eq!(
            shown(log.note(0, failed("failed", 1..=1000), Timestamp(5))),
            ["0: failed 1 first p/in/1"]
        );
        assert_eq!(log.note(0, failed("failed", 1001..=1003), Timestamp(30_000)), None);
        assert_eq!(log.wakes(), Some(Timestamp(60_005)));
        assert_eq!(log.tick(Timestamp(60_004)), []);
        assert_eq!(shown(log.tick(Timestamp(60_005))), ["0: failed 1002 60000 p/in/1003"]);
        // A minute passes without failures, so the next failure is logged at once.
        assert_eq!(log.wakes(), Some(Timestamp(120_005)));
        assert_eq!(log.tick(Timestamp(120_005)), []);
        assert_eq!(log.wakes(), None);
        let again = log.note(0, failed("failed", 1004..=1004), Timestamp(120_006));
        assert_eq!(shown(again), ["0: failed 1 first p/in/1004"]);
    }

    #[test]
    fn attempts_that_are_tried_again_are_counted_beside_the_jobs_that_failed() {
        let again = |indices| {
            let failed = failed("failed", indices);
            Failed { cause: FailureCause { ending: Ending::TriedAgain, ..failed.cause.clone() }, ..failed }
        };
        let mut log = FailureLog::default();
        assert_eq!(shown(log.note(0, again(1..=3), Timestamp(5))), ["0: failed 1 first p/in/1"]);
        assert_eq!((log.wakes(), log.reports_attempts()), (None, Some(Timestamp(60_005))));
        // A final failure is another cause.
        assert_eq!(shown(log.note(0, failed("failed", 3..=3), Timestamp(7))), ["0: failed 1 first p/in/3"]);
        assert_eq!(log.wakes(), Some(Timestamp(60_007)));
        assert_eq!(shown(log.tick(Timestamp(60_005))), ["0: failed 2 60000 p/in/3"]);
        // Nothing was counted since.
        assert_eq!((log.wakes(), log.reports_attempts()), (Some(Timestamp(60_007)), None));
        assert_eq!(log.tick(Timestamp(120_005)), []);
        assert_eq!((log.wakes(), log.reports_attempts()), (None, None));
    }

    #[test]
    fn each_cause_of_each_step_has_its_own_lines() {
        let mut log = FailureLog::default();
        let mut note = |step, kind, index| shown(log.note(step, failed(kind, index..=index), Timestamp(0)));
        assert_eq!(note(0, "failed", 1), ["0: failed 1 first p/in/1"]);
        assert_eq!(note(0, "http 503", 2), ["0: http 503 1 first p/in/2"]);
        assert_eq!(note(1, "failed", 3), ["1: failed 1 first p/in/3"]);
        assert!(note(1, "failed", 4).is_empty());
        assert_eq!(shown(log.finish(Timestamp(7))), ["1: failed 1 7 p/in/4"]);
        assert_eq!(log.finish(Timestamp(8)), []);
    }

    #[test]
    fn no_failure_goes_without_being_counted_whatever_the_clock_does() {
        let mut log = FailureLog::default();
        let (mut reported, mut jobs) = (0, 0);
        for (round, now) in [50_000, 90_000, 10, 70_000, 70_001, 5, 200_000].into_iter().enumerate() {
            let count = round as u64 + 1;
            jobs += count;
            let lines = log.note(0, failed("failed", 1..=count), Timestamp(now)).into_iter();
            reported += lines.map(|line| line.jobs).sum::<u64>();
            reported += log.tick(Timestamp(now)).iter().map(|line| line.jobs).sum::<u64>();
        }
        reported += log.finish(Timestamp(0)).iter().map(|line| line.jobs).sum::<u64>();
        assert_eq!(reported, jobs);
    }
}
