//! `Due`: the time at which a parked job continues.

use serde::{Deserialize, Serialize};

use super::clock::Timestamp;

/// The time at which a job continues. The order is that in which jobs continue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Due {
    /// At once, even if the clock is set back.
    #[default]
    Now,
    /// At once, too: an operator made the job due. Jobs that were due at other times keep their order.
    Hastened(Timestamp),
    /// Not before this time.
    At(Timestamp),
    /// No time makes it due: it waits for an external system.
    Never,
}

impl Due {
    /// The time from which on the job is due; `None` if no time makes it due.
    #[must_use]
    pub fn time(self) -> Option<Timestamp> {
        match self {
            Self::Now | Self::Hastened(_) => Some(Timestamp::EARLIEST),
            Self::At(time) => Some(time),
            Self::Never => None,
        }
    }

    #[must_use]
    pub fn is_by(self, now: Timestamp) -> bool {
        self.time().is_some_and(|time| time <= now)
    }

    /// The time that the job waits for at `now`; `None` if it is due, or waits for no time.
    #[must_use]
    pub fn waits_until(self, now: Timestamp) -> Option<Timestamp> {
        self.time().filter(|time| *time > now)
    }

    /// Due at once; the order among jobs stays.
    #[must_use]
    pub fn hastened(self) -> Self {
        match self {
            Self::At(time) => Self::Hastened(time),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hastened_jobs_go_before_all_that_wait_for_a_time_and_keep_their_order() {
        let [one, two] = [1, 2].map(|time| Due::At(Timestamp(time)));
        assert!(Due::Now < one.hastened() && one.hastened() < two.hastened() && two.hastened() < one);
        assert!(two < Due::Never && Due::Never.hastened() == Due::Never);
    }

    #[test]
    fn a_job_is_due_from_its_time_on() {
        let at = Due::At(Timestamp(5));
        assert_eq!([4, 5].map(|now| at.is_by(Timestamp(now))), [false, true]);
        assert_eq!([4, 5].map(|now| at.waits_until(Timestamp(now))), [Some(Timestamp(5)), None]);
        let now = Timestamp(1);
        assert!(Due::Now.is_by(now) && at.hastened().is_by(now) && !Due::Never.is_by(now));
        assert_eq!(Due::Never.waits_until(now), None);
    }
}
