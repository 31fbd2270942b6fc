//! The `timeout` of an attempt, of which each of its processors uses a part.

use std::time::Duration;

use tidegate_plugin::{Cause, Failure, FailureKind};

use tidegate_components::plugin::Ticks;
use tidegate_model::format_duration;

/// Knows how much of its time the attempt that runs has used.
#[derive(Debug)]
pub(crate) struct Allowance {
    timeout: Option<Duration>,
    ticks: Ticks,
    /// When the attempt would have begun, had it run without a break.
    begun_nanos: u64,
}

impl Allowance {
    pub(crate) fn new(timeout: Option<Duration>) -> Self {
        Self { timeout, ticks: Ticks::fit_for(timeout), begun_nanos: 0 }
    }

    /// Another attempt begins, or goes on after it used `spent`.
    pub(crate) fn begin(&mut self, spent: Duration) {
        let spent = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
        self.begun_nanos = self.ticks.now().saturating_sub(spent);
    }

    pub(crate) fn spent(&self) -> Duration {
        Duration::from_nanos(self.ticks.now().saturating_sub(self.begun_nanos))
    }

    /// What the next processor may use; `None` for no limit.
    ///
    /// # Errors
    /// There is nothing left.
    pub(crate) fn left(&self) -> Result<Option<Duration>, Failure> {
        let Some(timeout) = self.timeout else { return Ok(None) };
        match timeout.checked_sub(self.spent()) {
            Some(left) if !left.is_zero() => Ok(Some(left)),
            _ => {
                let timeout = format_duration(timeout);
                let message = format!(
                    "the processors of the step ran together for longer than its `timeout` of {timeout}"
                );
                Err(Failure::new(FailureKind::Limit, message).because(Cause::Timeout))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_before_counts() {
        let mut allowance = Allowance::new(Some(Duration::from_mins(1)));
        allowance.begin(Duration::from_secs(20));
        let left = allowance.left().unwrap().unwrap();
        assert!(left <= Duration::from_secs(40) && left > Duration::from_secs(30), "{left:?}");
        allowance.begin(Duration::from_mins(1));
        let failure = allowance.left().unwrap_err();
        assert_eq!(
            (failure.kind, &*failure.message),
            (
                FailureKind::Limit,
                "the processors of the step ran together for longer than its `timeout` of 1m"
            )
        );
    }

    #[test]
    fn without_a_timeout_there_is_always_more() {
        let mut allowance = Allowance::new(None);
        allowance.begin(Duration::from_hours(1000));
        assert_eq!(allowance.left(), Ok(None));
    }
}
