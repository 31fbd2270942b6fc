//! Rate window: records the last starts, to enforce a rate.

use std::collections::VecDeque;
use std::time::Duration;

use super::policy::StartRate;
use tidegate_model::Timestamp;

/// Starts of the last `per`, so that no time of that length has more than `jobs` starts.
#[derive(Clone, Debug, Default)]
pub(crate) struct RateWindow {
    /// Time and number of starts, oldest first.
    starts: VecDeque<(Timestamp, u32)>,
    total: u32,
}

impl RateWindow {
    pub(crate) fn record(&mut self, now: Timestamp) {
        self.total += 1;
        match self.starts.back_mut() {
            Some((at, count)) if *at == now => *count += 1,
            _ => self.starts.push_back((now, 1)),
        }
    }

    /// Removes the expired starts.
    pub(crate) fn pass(&mut self, rate: StartRate, now: Timestamp) {
        while let Some(&(at, count)) = self.starts.front()
            && over(at, rate) <= now
        {
            self.starts.pop_front();
            self.total -= count;
        }
    }

    /// Adjusts for a clock that was set back to `now`: later starts count as started now.
    pub(crate) fn set_back(&mut self, now: Timestamp) {
        let mut later = 0;
        while let Some(&(at, count)) = self.starts.back()
            && at > now
        {
            self.starts.pop_back();
            later += count;
        }
        match self.starts.back_mut() {
            _ if later == 0 => {}
            Some((at, count)) if *at == now => *count += later,
            _ => self.starts.push_back((now, later)),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    pub(crate) fn is_full(&self, rate: StartRate) -> bool {
        self.total >= rate.jobs.get()
    }

    /// Time at which the oldest start expires.
    pub(crate) fn next(&self, rate: StartRate) -> Option<Timestamp> {
        self.starts.front().map(|&(at, _)| over(at, rate))
    }

    /// End of the wait for the rate, if it is after `now`.
    pub(crate) fn full_until(&self, rate: StartRate, now: Timestamp) -> Option<Timestamp> {
        self.next(rate).filter(|&until| self.is_full(rate) && until > now)
    }
}

fn over(at: Timestamp, rate: StartRate) -> Timestamp {
    at + rate.per.max(Duration::from_millis(1))
}
