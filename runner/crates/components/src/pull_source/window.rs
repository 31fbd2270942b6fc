//! `PullWindow`: decides which jobs of a service are requested, and when. It does no I/O.
//!
//! Requests run ahead of the first missing job. At the end of the log, and while the service fails, only the first
//! missing job is requested.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::source::SourceError;
use tidegate_model::{Decision, FailedTry, FailureClass, RetryPolicy, Timestamp};

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fetched {
    /// JSON.
    Job(Vec<u8>),
    /// The service gave something that is no job: a sentence fragment.
    Bad(String),
    NotYet,
    /// A sentence fragment.
    Failed(String),
}

/// The wait of a reader without jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// Nothing: the last job is read.
    Over,
    /// The service has no more jobs now.
    ForMore,
    /// An answer, or the next attempt.
    ForService,
}

#[derive(Debug)]
pub(crate) struct PullWindow {
    /// The index of the next job.
    next: u64,
    /// The index of the last job, if there is one.
    last: Option<u64>,
    most: u64,
    every: Duration,
    retry: RetryPolicy,
    /// The jobs behind `next` that may be requested, from 1 to `most`.
    width: u64,
    asked: BTreeSet<u64>,
    ready: BTreeMap<u64, Result<Vec<u8>, String>>,
    pause: Pause,
}

/// Why the next job is not requested now.
#[derive(Clone, Debug, PartialEq)]
enum Pause {
    None,
    NotYet { until: Instant },
    Failing { why: String, failures: u32, first: Timestamp, until: Instant },
}

impl PullWindow {
    pub(crate) fn new(
        next: u64,
        last: Option<u64>,
        most: usize,
        every: Duration,
        retry: RetryPolicy,
    ) -> Self {
        let (asked, ready) = (BTreeSet::new(), BTreeMap::new());
        let most = u64::try_from(most).unwrap_or(u64::MAX).max(1);
        Self { next, last, most, every, retry, width: 1, asked, ready, pause: Pause::None }
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Handles the result of a request.
    ///
    /// # Errors
    /// The policy allows no more attempts.
    pub(crate) fn fetched(
        &mut self,
        index: u64,
        fetched: Fetched,
        (now, time): (Instant, Timestamp),
    ) -> Result<(), SourceError> {
        self.asked.remove(&index);
        let is_next = index == self.next && !self.ready.contains_key(&index);
        match fetched {
            Fetched::Job(job) => self.came(index, Ok(job)),
            Fetched::Bad(why) => self.came(index, Err(why)),
            // A job further on is requested again when its turn comes.
            Fetched::NotYet | Fetched::Failed(_) if !is_next => self.width = 1,
            Fetched::NotYet => {
                self.width = 1;
                self.pause = Pause::NotYet { until: now + self.every };
            }
            Fetched::Failed(why) => {
                self.width = 1;
                return self.failed(why, (now, time));
            }
        }
        Ok(())
    }

    fn came(&mut self, index: u64, job: Result<Vec<u8>, String>) {
        if index < self.next {
            return;
        }
        if index == self.next {
            self.pause = Pause::None;
            self.width = self.most.min(self.width.saturating_mul(2));
        }
        self.ready.insert(index, job);
    }

    fn failed(&mut self, why: String, (now, time): (Instant, Timestamp)) -> Result<(), SourceError> {
        let (failures, first) = match &self.pause {
            Pause::Failing { failures, first, .. } => (failures.saturating_add(1), *first),
            Pause::None | Pause::NotYet { .. } => (1, time),
        };
        let tried = FailedTry {
            attempt: failures,
            first_attempt: first,
            now: time,
            trouble: FailureClass::Connection,
            asked: None,
            ttl: None,
            hash: u128::from(self.next),
        };
        let until = match self.retry.next(&tried) {
            Decision::Again { at, .. } => now + at.since(time),
            Decision::Exhausted(exhausted) => {
                return Err(SourceError::Service { why: format!("{why} ({exhausted})") });
            }
            Decision::NotRetried => return Err(SourceError::Service { why }),
        };
        self.pause = Pause::Failing { why, failures, first, until };
        Ok(())
    }

    /// Takes the jobs that follow each other, at least one of any size.
    pub(crate) fn take(&mut self, jobs_max: usize, bytes_max: usize) -> Vec<Result<Vec<u8>, String>> {
        let (mut jobs, mut bytes) = (Vec::new(), 0);
        while jobs.len() < jobs_max.max(1) && (jobs.is_empty() || bytes < bytes_max) {
            let Some(job) = self.ready.remove(&self.next) else { break };
            bytes += job.as_ref().map_or(0, Vec::len);
            jobs.push(job);
            self.next += 1;
        }
        jobs
    }

    /// Jobs to request now.
    pub(crate) fn wanted(&mut self, now: Instant) -> Vec<u64> {
        if self.until().is_some_and(|until| until > now) {
            return Vec::new();
        }
        let end = self.next.saturating_add(self.width);
        let end = self.last.map_or(end, |last| end.min(last.saturating_add(1)));
        let wanted = (self.next..end).filter(|index| !self.ready.contains_key(index));
        let new: Vec<u64> = wanted.filter(|index| !self.asked.contains(index)).collect();
        self.asked.extend(&new);
        new
    }

    pub(crate) fn waits(&self, now: Instant) -> Waits {
        match &self.pause {
            _ if self.last.is_some_and(|last| self.next > last) => Waits::Over,
            Pause::NotYet { until } if *until > now => Waits::ForMore,
            _ => Waits::ForService,
        }
    }

    /// The end of the pause.
    pub(crate) fn until(&self) -> Option<Instant> {
        match &self.pause {
            Pause::None => None,
            Pause::NotYet { until } | Pause::Failing { until, .. } => Some(*until),
        }
    }

    /// The last failure, the number of failures in a row, and the time of the next request.
    pub(crate) fn failing(&self) -> Option<(&str, u32, Instant)> {
        match &self.pause {
            Pause::Failing { why, failures, until, .. } => Some((why, *failures, *until)),
            Pause::None | Pause::NotYet { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_model::{Backoff, Jitter};

    use super::*;

    struct Play {
        window: PullWindow,
        start: Instant,
        seconds: u64,
    }

    impl Play {
        fn new(most: usize, last: Option<u64>) -> Self {
            let retry = RetryPolicy {
                backoff: Backoff::Exponential,
                initial: Duration::from_secs(1),
                jitter: Jitter::None,
                max_attempts: 3,
                ..RetryPolicy::DEFAULT
            };
            let window = PullWindow::new(5, last, most, Duration::from_secs(2), retry);
            Self { window, start: Instant::now(), seconds: 0 }
        }

        fn now(&self) -> Instant {
            self.start + Duration::from_secs(self.seconds)
        }

        fn wanted(&mut self) -> Vec<u64> {
            let now = self.now();
            self.window.wanted(now)
        }

        fn try_comes(&mut self, index: u64, fetched: Fetched) -> Result<(), SourceError> {
            let time = Timestamp(i64::try_from(self.seconds * 1000).unwrap());
            let now = self.now();
            self.window.fetched(index, fetched, (now, time))
        }

        fn comes(&mut self, index: u64, fetched: Fetched) {
            self.try_comes(index, fetched).unwrap();
        }

        fn job(&mut self, index: u64) {
            self.comes(index, Fetched::Job(index.to_string().into_bytes()));
        }

        fn take(&mut self) -> usize {
            self.window.take(100, 1000).len()
        }

        fn waits(&self) -> Waits {
            self.window.waits(self.now())
        }
    }

    #[test]
    fn jobs_come_in_order_and_requests_run_ahead() {
        let mut play = Play::new(4, None);
        assert_eq!(play.wanted(), [5]);
        assert_eq!(play.wanted(), [0; 0], "a request is made once");
        play.job(5);
        assert_eq!((play.take(), play.wanted()), (1, vec![6, 7]));
        play.job(7);
        assert_eq!((play.take(), play.waits()), (0, Waits::ForService));
        play.job(6);
        assert_eq!((play.take(), play.wanted()), (2, vec![8, 9, 10, 11]));
    }

    #[test]
    fn at_the_end_of_the_log_only_the_next_job_is_requested() {
        let mut play = Play::new(4, None);
        play.wanted();
        play.job(5);
        play.take();
        assert_eq!(play.wanted(), [6, 7]);
        play.comes(7, Fetched::NotYet);
        play.comes(6, Fetched::NotYet);
        assert_eq!((play.wanted(), play.waits()), (vec![], Waits::ForMore));
        play.seconds = 2;
        assert_eq!((play.wanted(), play.waits()), (vec![6], Waits::ForService));
    }

    #[test]
    fn a_failure_is_tried_again_and_skips_nothing() {
        let mut play = Play::new(4, None);
        play.wanted();
        play.comes(5, Fetched::Failed("refused".into()));
        assert_eq!((play.wanted(), play.waits()), (vec![], Waits::ForService));
        play.seconds = 1;
        assert_eq!(play.wanted(), [5]);
        play.comes(5, Fetched::Failed("refused".into()));
        assert_eq!(play.window.failing().map(|(why, failures, _)| (why, failures)), Some(("refused", 2)));
        play.seconds = 2;
        assert_eq!(play.wanted(), [0; 0], "the delay has grown");
        play.seconds = 3;
        assert_eq!(play.wanted(), [5]);
        let error = play.try_comes(5, Fetched::Failed("refused".into())).unwrap_err();
        assert_eq!(error.to_string(), "refused (all 3 attempts failed)");
        play.job(5);
        assert_eq!((play.take(), play.window.failing()), (1, None));
    }

    #[test]
    fn a_failure_further_on_waits_for_its_turn() {
        let mut play = Play::new(4, None);
        play.wanted();
        play.job(5);
        play.take();
        assert_eq!(play.wanted(), [6, 7]);
        play.comes(7, Fetched::Failed("busy".into()));
        play.job(6);
        assert_eq!(play.window.failing(), None);
        assert_eq!((play.take(), play.wanted()), (1, vec![7, 8]));
    }

    #[test]
    fn a_bounded_source_ends_behind_its_last_job() {
        let mut play = Play::new(4, Some(6));
        play.wanted();
        play.comes(5, Fetched::Bad("no JSON".into()));
        play.take();
        assert_eq!(play.wanted(), [6]);
        play.job(6);
        assert_eq!((play.take(), play.waits(), play.wanted()), (1, Waits::Over, vec![]));
    }
}
