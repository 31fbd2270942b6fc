//! Why a waiting job does not run, and when it may, in sentences.

use std::time::Duration;

use crate::config::Step;
use crate::decide::{JobKey, State, Why};
use crate::engine::{Row, Sight};
use crate::store::{DelayedKey, ReadError, Standing, Store};
use crate::words::{Timestamp, format_duration};

/// Who is asked about, and when.
pub(super) struct Case<'a> {
    pub(super) store: &'a Store,
    pub(super) step: &'a Step,
    pub(super) sight: &'a Sight,
    pub(super) now: Timestamp,
}

impl Case<'_> {
    /// What holds the job at `index` of the input, or where it stands by itself, there. The widest reason
    /// comes first.
    pub(super) fn reasons(&self, index: u64, row: Option<Row>) -> Result<Vec<String>, ReadError> {
        let sight = self.sight;
        let mut reasons = Vec::new();
        if sight.halted {
            reasons.push("one of its jobs has stopped the step; the next run takes it up again".to_owned());
        }
        if sight.paused {
            reasons.push(paused(&self.step.address.to_string()));
        }
        if let Some(again) = sight.gate {
            reasons.push(format!(
                "the gate of the step is closed, and is looked at again {}",
                self.until(again)
            ));
        }
        if let Some(until) = sight.held_until.filter(|&until| until > self.now) {
            reasons.push(format!(
                "a job has found its gate closed: the step starts nothing before that, {}",
                self.until(until)
            ));
        }
        let stored = || sight.rows.iter().find(|(_, one)| Some(**one) == row).map(|(&key, _)| key);
        // Jobs that were begun in this run keep the number of their place in the input.
        let key = stored().unwrap_or(JobKey::fresh(index));
        match sight.room.why(key, self.now) {
            Some(why) => reasons.push(self.sentence(why)?),
            None if sight.ahead.is_some_and(|ahead| index > ahead) => reasons.push(format!(
                "it is past search-ahead: the step looks at jobs up to {} for now",
                sight.ahead.unwrap_or_default()
            )),
            None if row.is_none() && index > sight.read => {
                reasons.push(format!("the step has read up to job {} so far", sight.read));
            }
            None => {}
        }
        Ok(reasons)
    }

    fn sentence(&self, why: Why) -> Result<String, ReadError> {
        Ok(match why {
            Why::Running => "it runs now".to_owned(),
            Why::Pending => "an outside system has it, and will finish it".to_owned(),
            Why::Delayed { until } => format!("it is due {}", self.until(until)),
            Why::Lane { job, state } => format!("its lane waits for {}", self.other(job, state)?),
            Why::Conflict { job, state } => {
                format!("it has keys in common with {}, which goes first", self.other(job, state)?)
            }
            Why::NextRound => "it belongs to the next round, and this one is not over".to_owned(),
            Why::Pause { until } => format!("the next round begins {}", self.until(until)),
            Why::Rate { until } => {
                format!("the `rate` of the step is used up; it has more {}", self.until(until))
            }
            Why::LaneRate { until } => {
                format!("the `lane_rate` of its lane is used up; it has more {}", self.until(until))
            }
            Why::MaxProcessing => "as many run as `max_processing` lets".to_owned(),
            Why::MaxPerLane => "as many of its lane run as `max_per_lane` lets".to_owned(),
            Why::Turn => "nothing holds it: it starts when those before it have".to_owned(),
        })
    }

    /// `job 17 (pending since 3s)`
    fn other(&self, key: JobKey, state: State) -> Result<String, ReadError> {
        let row = self.sight.rows.get(&key).copied();
        let key_of =
            |row: Row| DelayedKey { step: self.step.address.clone(), due: row.due, sequence: row.sequence };
        let keys: Vec<DelayedKey> = row.into_iter().map(key_of).collect();
        let job = self.store.delayed(&keys)?.pop().flatten();
        let index = match &job {
            Some(job) => job.inputs.first().map_or(0, |&(_, index)| index),
            None => key.0,
        };
        let stands = match (state, job.map(|job| job.standing)) {
            (State::Pending, Some(Standing::Pending { since, .. } | Standing::Told { since, .. })) => {
                format!("pending since {}", between(since, self.now))
            }
            (State::Delayed { until }, _) => format!("due {}", self.until(until)),
            (state, _) => state.word().to_owned(),
        };
        Ok(format!("job {index} ({stands})"))
    }

    fn until(&self, time: Timestamp) -> String {
        if time <= self.now { "now".to_owned() } else { format!("in {}", between(self.now, time)) }
    }
}

/// Why a step that is paused starts nothing.
pub(super) fn paused(step: &str) -> String {
    format!("the step is paused; `tidegate step resume {step}` has it go on")
}

/// From then to then, in seconds where it is some.
fn between(from: Timestamp, to: Timestamp) -> String {
    let millis = u64::try_from(to.0.saturating_sub(from.0)).unwrap_or(0);
    let rounded = if millis < 1000 { millis } else { millis.div_ceil(1000) * 1000 };
    format_duration(Duration::from_millis(rounded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_finely_as_people_want_them() {
        let told = |millis: i64| between(Timestamp(5), Timestamp(5 + millis));
        let texts = [-7, 0, 999, 1001, 61_000].map(told);
        assert_eq!(texts, ["0ms", "0ms", "999ms", "2s", "1m1s"]);
    }
}
