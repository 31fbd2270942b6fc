//! `Maker`: finds the jobs that a step has made from one job, by their provenance on a queue.

use std::ops::Range;

use tidegate_model::{Address, Timestamp};
use tidegate_store::{OutputOrigin, ReadError, Store, StoredOutput};

/// Jobs that are scanned after the commit of the job, and again around the place where its neighbours were
/// made.
const LOOKED_THROUGH: u64 = 20_000;

/// A step, and a job of one of its inputs.
#[derive(Debug)]
pub(crate) struct Maker<'a> {
    pub(crate) store: &'a Store,
    pub(crate) step: &'a Address,
    /// The name of the input in delivery hashes.
    pub(crate) input: &'a str,
    pub(crate) index: u64,
    /// The commit time of the job, if known.
    pub(crate) since: Option<Timestamp>,
}

impl Maker<'_> {
    /// The jobs on `queue` that were made from it, if the scan finds them.
    pub(crate) fn made_on(&self, queue: &Address, most: usize) -> Result<Vec<StoredOutput>, ReadError> {
        let Some(state) = self.store.queue(queue)? else { return Ok(Vec::new()) };
        let from = match self.since {
            Some(time) => self.store.index_at(queue, time)?,
            None => Some(state.first),
        };
        let Some(from) = from else { return Ok(Vec::new()) };
        let end = state.head + 1;
        let first = from..from.saturating_add(LOOKED_THROUGH).min(end);
        let place = self.place(queue, from..end)?;
        let about =
            place.saturating_sub(LOOKED_THROUGH / 2).max(first.end)..place.saturating_add(LOOKED_THROUGH / 2);
        let mut found = Vec::new();
        for range in [first, about.start..about.end.min(end)] {
            let left = most - found.len();
            found.extend(self.store.made(queue, range, self.of(), left)?);
        }
        Ok(found)
    }

    /// The estimated place on the queue: a step delivers its jobs approximately in order.
    fn place(&self, queue: &Address, range: Range<u64>) -> Result<u64, ReadError> {
        let Range { mut start, mut end } = range;
        while end - start > LOOKED_THROUGH / 4 {
            let middle = start + (end - start) / 2;
            // If other producers have filled the range, a longer search is not worth its cost.
            let Some(index) = self.store.made_about(queue, middle, self.of())? else { break };
            if index < self.index { start = middle } else { end = middle }
        }
        Ok(start)
    }

    fn of(&self) -> OutputOrigin<'_> {
        OutputOrigin { step: self.step, input: self.input, index: self.index }
    }
}
