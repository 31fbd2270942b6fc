//! Restarts: decide whether and when the command of a source starts again.

use tidegate_model::{Decision, Exhausted, FailedTry, FailureClass, Restart, RetryPolicy, Timestamp};

/// State of one command: takes the ends of its processes, and returns the next start.
#[derive(Clone, Debug)]
pub struct Restarts {
    restart: Restart,
    policy: RetryPolicy,
    /// Seeds the jitter.
    seed: u128,
    /// Failures in a row, without a committed line between them.
    failures: u32,
    first_failure: Option<Timestamp>,
}

/// The decision after the end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStart {
    At(Timestamp),
    /// The source has ended.
    Never,
    /// The source has failed for good; `None` if such a failure is not retried at all.
    GivenUp(Option<Exhausted>),
}

impl Restarts {
    #[must_use]
    pub fn new(restart: Restart, policy: RetryPolicy, seed: u128) -> Self {
        Self { restart, policy, seed, failures: 0, first_failure: None }
    }

    /// Number of failures in a row.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// A line is durable: the next failure is the first one again.
    pub fn progressed(&mut self) {
        (self.failures, self.first_failure) = (0, None);
    }

    /// The process has ended with the exit code 0.
    pub fn succeeded(&mut self, now: Timestamp) -> NextStart {
        self.progressed();
        match self.restart {
            Restart::Always => NextStart::At(now + self.policy.wait(1)),
            Restart::OnFailure | Restart::Never => NextStart::Never,
        }
    }

    /// The process has failed, or could not be started.
    pub fn failed(&mut self, now: Timestamp) -> NextStart {
        self.failures = self.failures.saturating_add(1);
        let first_attempt = *self.first_failure.get_or_insert(now);
        if self.restart == Restart::Never {
            return NextStart::GivenUp(None);
        }
        let tried = FailedTry {
            attempt: self.failures,
            first_attempt,
            now,
            trouble: FailureClass::Exit,
            asked: None,
            ttl: None,
            hash: self.seed,
        };
        match self.policy.next(&tried) {
            Decision::Again { at, .. } => NextStart::At(at),
            Decision::Exhausted(exhausted) => NextStart::GivenUp(Some(exhausted)),
            Decision::NotRetried => NextStart::GivenUp(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_model::{Backoff, Jitter};

    use super::*;

    fn restarts(restart: Restart, max_attempts: u32) -> Restarts {
        let policy = RetryPolicy {
            backoff: Backoff::Exponential,
            initial: Duration::from_secs(1),
            factor: 2.0,
            jitter: Jitter::None,
            max_attempts,
            ..RetryPolicy::DEFAULT
        };
        Restarts::new(restart, policy, 0)
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1000)
    }

    #[test]
    fn a_command_that_succeeds_ends_its_source_unless_it_always_runs() {
        for restart in [Restart::OnFailure, Restart::Never] {
            assert_eq!(restarts(restart, 3).succeeded(at(5)), NextStart::Never);
        }
        assert_eq!(restarts(Restart::Always, 3).succeeded(at(5)), NextStart::At(at(6)));
    }

    #[test]
    fn the_delays_of_failures_grow_until_a_line_is_durable() {
        let mut command = restarts(Restart::OnFailure, 0);
        let next = |command: &mut Restarts| command.failed(at(0));
        assert_eq!(next(&mut command), NextStart::At(at(1)));
        assert_eq!(next(&mut command), NextStart::At(at(2)));
        assert_eq!(next(&mut command), NextStart::At(at(4)));
        assert_eq!(command.failures(), 3);
        command.progressed();
        assert_eq!(next(&mut command), NextStart::At(at(1)));
    }

    #[test]
    fn a_command_is_given_up_after_its_last_attempt() {
        let mut command = restarts(Restart::Always, 2);
        assert_eq!(command.failed(at(0)), NextStart::At(at(1)));
        assert_eq!(command.failed(at(1)), NextStart::GivenUp(Some(Exhausted::Attempts(2))));
        assert_eq!(restarts(Restart::Never, 5).failed(at(0)), NextStart::GivenUp(None));
    }

    #[test]
    fn the_time_to_live_counts_from_the_first_failure() {
        let mut command = restarts(Restart::OnFailure, 0);
        command.policy.ttl = Some(Duration::from_secs(10));
        assert_eq!(command.failed(at(100)), NextStart::At(at(101)));
        assert_eq!(
            command.failed(at(109)),
            NextStart::GivenUp(Some(Exhausted::Time(Duration::from_secs(10))))
        );
        command.progressed();
        assert_eq!(command.failed(at(109)), NextStart::At(at(110)));
    }
}
