//! Commit delay: lets the next push share the commit of the results of the push before it.
//!
//! A client that pushes one job after the other sends the next one as soon as the last one is durable. At that time the
//! committer may sync the results of the last one, and the push then waits for two syncs. If the results wait for the push
//! instead, both need one.

use std::time::{Duration, Instant};

/// Maximum delay behind the answer to a push. A client on the same machine takes a third of it.
const DELAY_MAX: Duration = Duration::from_micros(500);

/// Number of commits of pushes without a delay, after one in vain.
const SKIPS: u32 = 100;

/// Decides whether a group waits for a push. It does if the last push has come during the commit of such a group.
#[derive(Debug, Default)]
pub(crate) struct CommitDelay {
    /// When the last pushes were answered, unless another commit has followed.
    answered: Option<Instant>,
    is_push_expected: bool,
    skips: u32,
}

/// A group that was committed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommittedGroup {
    pub(crate) has_pushes: bool,
    /// The group has waited for a push until its deadline.
    pub(crate) waited_in_vain: bool,
    /// A push has come in the meantime.
    pub(crate) is_push_waiting: bool,
}

impl CommitDelay {
    /// Until when the next group waits for a push; `None` if it does not wait.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.answered.filter(|_| self.is_push_expected).map(|answered| answered + DELAY_MAX)
    }

    pub(crate) fn committed(&mut self, group: CommittedGroup, now: Instant) {
        if group.has_pushes {
            self.answered = Some(now);
            self.skips = self.skips.saturating_sub(1);
            return;
        }
        if group.waited_in_vain {
            self.skips = SKIPS;
        }
        let follows = self.answered.take().is_some();
        self.is_push_expected = follows && group.is_push_waiting && self.skips == 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUSH: CommittedGroup =
        CommittedGroup { has_pushes: true, waited_in_vain: false, is_push_waiting: false };
    const RESULTS: CommittedGroup = CommittedGroup { has_pushes: false, ..PUSH };
    const RESULTS_BEFORE_PUSH: CommittedGroup = CommittedGroup { is_push_waiting: true, ..RESULTS };
    const IN_VAIN: CommittedGroup = CommittedGroup { waited_in_vain: true, ..RESULTS_BEFORE_PUSH };

    fn after(delay: &mut CommitDelay, groups: &[CommittedGroup], now: Instant) -> Option<Instant> {
        groups.iter().for_each(|group| delay.committed(*group, now));
        delay.deadline()
    }

    #[test]
    fn results_wait_for_a_push_as_long_as_the_pushes_come_one_after_the_other() {
        let now = Instant::now();
        let mut delay = CommitDelay::default();
        assert_eq!(after(&mut delay, &[PUSH], now), None);
        assert_eq!(after(&mut delay, &[RESULTS_BEFORE_PUSH], now), None, "the push is there");
        assert_eq!(after(&mut delay, &[PUSH], now), Some(now + DELAY_MAX));
        // The results and the push are in one group.
        assert_eq!(after(&mut delay, &[PUSH, PUSH], now), Some(now + DELAY_MAX));
        assert_eq!(after(&mut delay, &[RESULTS, PUSH], now), None, "the client pauses");
    }

    #[test]
    fn results_of_a_job_without_another_push_never_wait() {
        let now = Instant::now();
        let mut delay = CommitDelay::default();
        for _ in 0..10 {
            assert_eq!(after(&mut delay, &[PUSH], now), None);
            assert_eq!(after(&mut delay, &[RESULTS], now), None);
        }
        // Only the group behind the answer shows that a client sends at once.
        assert_eq!(after(&mut delay, &[PUSH, RESULTS, RESULTS_BEFORE_PUSH, PUSH], now), None);
    }

    #[test]
    fn a_delay_in_vain_is_not_repeated_soon() {
        let now = Instant::now();
        let mut delay = CommitDelay::default();
        assert!(after(&mut delay, &[PUSH, RESULTS_BEFORE_PUSH, PUSH], now).is_some());
        assert_eq!(after(&mut delay, &[IN_VAIN], now), None);
        for _ in 1..SKIPS {
            assert_eq!(after(&mut delay, &[PUSH, RESULTS_BEFORE_PUSH], now), None);
        }
        assert!(after(&mut delay, &[PUSH, RESULTS_BEFORE_PUSH, PUSH], now).is_some());
    }
}
