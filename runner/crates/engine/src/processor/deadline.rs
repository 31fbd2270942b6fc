//! Attempt deadline: measures the `timeout` of an attempt, which all its processors share.

use std::time::Duration;

use tidegate_plugin::{Cause, Failure, FailureKind};

use tidegate_components::plugin::CoarseClock;
use tidegate_model::format_duration;

/// Remaining time of the current attempt.
#[derive(Debug)]
pub(crate) struct AttemptDeadline {
    timeout: Option<Duration>,
    ticks: CoarseClock,
    /// Time at which the attempt would have begun without pauses.
    begun_nanos: u64,
}

impl AttemptDeadline {
    pub(crate) fn new(timeout: Option<Duration>) -> Self {
        Self { timeout, ticks: CoarseClock::fit_for(timeout), begun_nanos: 0 }
    }

    /// Starts an attempt, or resumes one that has used `spent`.
    pub(crate) fn begin(&mut self, spent: Duration) {
        let spent = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
        self.begun_nanos = self.ticks.now().saturating_sub(spent);
    }

    /// Begin of the attempt, for [`Self::resume`] on any thread.
    pub(crate) fn begun_nanos(&self) -> u64 {
        self.begun_nanos
    }

    /// Resumes an attempt that waited, which counts.
    pub(crate) fn resume(&mut self, begun_nanos: u64) {
        self.begun_nanos = begun_nanos;
    }

    pub(crate) fn spent(&self) -> Duration {
        Duration::from_nanos(self.ticks.now().saturating_sub(self.begun_nanos))
    }

    /// Remaining time for the next processor; `None`: no limit.
    ///
    /// # Errors
    /// The time is used up.
    pub(crate) fn left(&self) -> Result<Option<Duration>, Failure> {
        let Some(timeout) = self.timeout else { return Ok(None) };
        match timeout.checked_sub(self.spent()) {
            Some(left) if !left.is_zero() => Ok(Some(left)),
            _ => {
                let timeout = format_duration(timeout);
                let message =
                    format!("the processors of the step together exceeded its `timeout` ({timeout})");
                Err(Failure::new(FailureKind::Limit, message).because(Cause::Timeout))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_used_before_counts_against_the_timeout_of_an_attempt() {
        let mut deadline = AttemptDeadline::new(Some(Duration::from_mins(1)));
        deadline.begin(Duration::from_secs(20));
        let left = deadline.left().unwrap().unwrap();
        assert!(left <= Duration::from_secs(40) && left > Duration::from_secs(30), "{left:?}");
        deadline.begin(Duration::from_mins(1));
        let failure = deadline.left().unwrap_err();
        assert_eq!(
            (failure.kind, &*failure.message),
            (FailureKind::Limit, "the processors of the step together exceeded its `timeout` (1m)")
        );
    }

    #[test]
    fn the_wait_for_a_call_counts_against_the_timeout_of_an_attempt() {
        let mut first = AttemptDeadline::new(Some(Duration::from_mins(1)));
        first.begin(Duration::from_secs(20));
        let mut other = AttemptDeadline::new(Some(Duration::from_mins(1)));
        other.resume(first.begun_nanos());
        let left = other.left().unwrap().unwrap();
        assert!(left <= Duration::from_secs(40) && left > Duration::from_secs(30), "{left:?}");
    }

    #[test]
    fn an_attempt_without_a_timeout_never_runs_out_of_time() {
        let mut deadline = AttemptDeadline::new(None);
        deadline.begin(Duration::from_hours(1000));
        assert_eq!(deadline.left(), Ok(None));
    }
}
