//! When the last jobs started, to keep to a rate.

use std::collections::VecDeque;

use super::rules::{Rate, millis};
use tidegate_model::Timestamp;

/// The starts of the last `per`, so that in no time of that length there are more than `jobs`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    /// Time and number, oldest first.
    starts: VecDeque<(Timestamp, u32)>,
    total: u32,
}

impl Log {
    pub(crate) fn record(&mut self, now: Timestamp) {
        self.total += 1;
        match self.starts.back_mut() {
            Some((at, count)) if *at == now => *count += 1,
            _ => self.starts.push_back((now, 1)),
        }
    }

    /// Forgets what is long enough ago.
    pub(crate) fn pass(&mut self, rate: Rate, now: Timestamp) {
        while let Some(&(at, count)) = self.starts.front()
            && over(at, rate) <= now
        {
            self.starts.pop_front();
            self.total -= count;
        }
    }

    /// The clock was set back to `now`: what would have started later started now.
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

    pub(crate) fn is_full(&self, rate: Rate) -> bool {
        self.total >= rate.jobs.get()
    }

    /// When the oldest start no longer counts.
    pub(crate) fn next(&self, rate: Rate) -> Option<Timestamp> {
        self.starts.front().map(|&(at, _)| over(at, rate))
    }

    /// Until when nothing may start, where that is after `now`.
    pub(crate) fn full_until(&self, rate: Rate, now: Timestamp) -> Option<Timestamp> {
        self.next(rate).filter(|&until| self.is_full(rate) && until > now)
    }
}

fn over(at: Timestamp, rate: Rate) -> Timestamp {
    Timestamp(at.0.saturating_add(millis(rate.per).max(1)))
}
