//! The schedule sources of a run: makes jobs of the ticks that are due, and knows when the next one
//! comes. Does no I/O.

use tidegate_plugin::Payloads;

use tidegate_config::{Configuration, PushSource, QueueRef};
use tidegate_dispatch::Ticker;
use tidegate_model::Timestamp;

/// So many jobs of one source may be on their way to the store.
const ON_THEIR_WAY_MAX: usize = 1024;

/// The jobs of some ticks, and what is to become durable with them.
#[derive(Debug)]
pub(crate) struct Ticked {
    pub(crate) queue: QueueRef,
    /// None, where ticks were skipped.
    pub(crate) jobs: Payloads,
    /// Up to there all ticks of the source are handled by this.
    pub(crate) handled: Timestamp,
}

#[derive(Debug)]
pub(crate) struct Ticks(Vec<Ticking>);

#[derive(Debug)]
struct Ticking {
    queue: QueueRef,
    ticker: Ticker,
    /// How many jobs are ordered and not durable.
    on_their_way: usize,
    /// Some of those, or some that are not ordered, came before the run.
    is_behind: bool,
}

impl Ticks {
    pub(crate) fn new(tickers: Vec<(QueueRef, Ticker)>) -> Self {
        let ticking = |(queue, ticker): (QueueRef, Ticker)| {
            let is_behind = ticker.is_behind();
            Ticking { queue, ticker, on_their_way: 0, is_behind }
        };
        Self(tickers.into_iter().map(ticking).collect())
    }

    /// The jobs of what is due and may be on its way.
    pub(crate) fn take(&mut self, configuration: &Configuration, now: Timestamp) -> Vec<Ticked> {
        let mut taken = Vec::new();
        for Ticking { queue, ticker, on_their_way, is_behind } in &mut self.0 {
            let Some(PushSource::Schedule(source)) = &configuration.queues[queue.0].source else { continue };
            let Some(ticks) = ticker.take(now, ON_THEIR_WAY_MAX - *on_their_way) else { continue };
            *on_their_way += ticks.len();
            *is_behind &= *on_their_way > 0 || ticker.is_behind();
            let mut jobs = Payloads::new();
            for due in ticks {
                jobs.push(source.job(due).as_bytes());
            }
            taken.push(Ticked { queue: *queue, jobs, handled: ticker.handled() });
        }
        taken
    }

    /// So many jobs of a source are durable.
    pub(crate) fn committed(&mut self, queue: QueueRef, jobs: usize) {
        for source in self.0.iter_mut().filter(|source| source.queue == queue) {
            source.on_their_way -= jobs;
            source.is_behind &= source.on_their_way > 0 || source.ticker.is_behind();
        }
    }

    /// Whether jobs of ticks that came before the run are not all durable.
    pub(crate) fn are_behind(&self) -> bool {
        self.0.iter().any(|source| source.is_behind)
    }

    /// When there will be something to take, if only time has to pass for that.
    pub(crate) fn wakes(&self) -> Option<Timestamp> {
        let open = self.0.iter().filter(|source| source.on_their_way < ON_THEIR_WAY_MAX);
        open.filter_map(|source| source.ticker.next()).min()
    }
}

#[cfg(test)]
mod tests;
