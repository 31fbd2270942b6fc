//! Schedules: turn the due ticks of all schedule sources into jobs. They do no I/O.

use tidegate_plugin::Payloads;

use tidegate_config::{Configuration, PushSource, QueueRef};
use tidegate_dispatch::Ticker;
use tidegate_model::Timestamp;

/// Maximum number of jobs of one source that are not durable yet.
const ON_THEIR_WAY_MAX: usize = 1024;

/// Jobs of some ticks, with the schedule position that becomes durable with them.
#[derive(Debug)]
pub(crate) struct FiredTicks {
    pub(crate) queue: QueueRef,
    /// Empty if the ticks were skipped.
    pub(crate) jobs: Payloads,
    /// Time up to which all ticks of the source are then handled.
    pub(crate) handled: Timestamp,
}

#[derive(Debug)]
pub(crate) struct Schedules(Vec<ActiveSchedule>);

#[derive(Debug)]
struct ActiveSchedule {
    queue: QueueRef,
    ticker: Ticker,
    /// Number of jobs that are requested and not durable.
    on_their_way: usize,
    /// Whether ticks from before the run are not all durable.
    is_behind: bool,
}

impl Schedules {
    pub(crate) fn new(tickers: Vec<(QueueRef, Ticker)>) -> Self {
        let active = |(queue, ticker): (QueueRef, Ticker)| {
            let is_behind = ticker.is_behind();
            ActiveSchedule { queue, ticker, on_their_way: 0, is_behind }
        };
        Self(tickers.into_iter().map(active).collect())
    }

    /// Drops the schedules that are not the same in the next configuration.
    pub(crate) fn keep(&mut self, before: &Configuration, next: &Configuration) {
        let source = |configuration: &Configuration, queue: QueueRef| {
            configuration.queues.get(queue.0).and_then(|queue| queue.source.clone())
        };
        self.0.retain(|active| source(before, active.queue) == source(next, active.queue));
    }

    /// Adds schedules.
    pub(crate) fn add(&mut self, tickers: Vec<(QueueRef, Ticker)>) {
        self.0.extend(Self::new(tickers).0);
    }

    /// Takes the due ticks as jobs, within the limit.
    pub(crate) fn take(&mut self, configuration: &Configuration, now: Timestamp) -> Vec<FiredTicks> {
        let mut taken = Vec::new();
        for ActiveSchedule { queue, ticker, on_their_way, is_behind } in &mut self.0 {
            let declared = configuration.queues.get(queue.0).and_then(|queue| queue.source.as_ref());
            let Some(PushSource::Schedule(source)) = declared else { continue };
            let Some(ticks) = ticker.take(now, ON_THEIR_WAY_MAX - *on_their_way) else { continue };
            *on_their_way += ticks.len();
            *is_behind &= *on_their_way > 0 || ticker.is_behind();
            let mut jobs = Payloads::new();
            for due in ticks {
                jobs.push(source.job(due).as_bytes());
            }
            taken.push(FiredTicks { queue: *queue, jobs, handled: ticker.handled() });
        }
        taken
    }

    /// Records that `jobs` jobs of a source are durable.
    pub(crate) fn committed(&mut self, queue: QueueRef, jobs: usize) {
        for source in self.0.iter_mut().filter(|source| source.queue == queue) {
            // Ticks of a schedule that a reload has replaced were never counted.
            source.on_their_way = source.on_their_way.saturating_sub(jobs);
            source.is_behind &= source.on_their_way > 0 || source.ticker.is_behind();
        }
    }

    /// Whether ticks from before the run are not all durable.
    pub(crate) fn are_behind(&self) -> bool {
        self.0.iter().any(|source| source.is_behind)
    }

    /// Time of the next tick to take.
    pub(crate) fn wakes(&self) -> Option<Timestamp> {
        let open = self.0.iter().filter(|source| source.on_their_way < ON_THEIR_WAY_MAX);
        open.filter_map(|source| source.ticker.next()).min()
    }
}

#[cfg(test)]
mod tests;
