//! What a step has made of one job, found on a queue by where its jobs came from.

use std::ops::Range;

use crate::store::{DetailedBatch, ReadError, Store};
use crate::words::{Address, Origin, Timestamp};

/// So many jobs are looked through from where the job was committed on, and so many about the place
/// where its like were made.
const LOOKED_THROUGH: u64 = 20_000;
/// So many at a time.
const PAGE: usize = 1_000;
const PAGE_BYTES: usize = 2 << 20;
/// Among so many in a row, one should be of the step.
const PROBE: usize = 256;

/// What stands on a queue, and how it came there.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) index: u64,
    pub(super) payload: Vec<u8>,
    pub(super) origin: Origin,
}

/// A step, and a job of one of its inputs.
#[derive(Debug)]
pub(super) struct Maker<'a> {
    pub(super) store: &'a Store,
    pub(super) step: &'a Address,
    /// The input, as delivery hashes name it.
    pub(super) input: &'a str,
    pub(super) index: u64,
    /// When the job was committed, where that is known.
    pub(super) since: Option<Timestamp>,
}

impl Maker<'_> {
    /// What it has made of the job on `queue`, as far as that is found.
    pub(super) fn made_on(&self, queue: &Address, most: usize) -> Result<Vec<Made>, ReadError> {
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
            self.look_through(queue, range, most, &mut found)?;
        }
        Ok(found)
    }

    /// About where the step has come to the job: a step makes one job after the other, more or less.
    fn place(&self, queue: &Address, range: Range<u64>) -> Result<u64, ReadError> {
        let Range { mut start, mut end } = range;
        while end - start > LOOKED_THROUGH / 4 {
            let middle = start + (end - start) / 2;
            let Some((_, origins)) = self.page(queue, middle, PROBE)? else { break };
            // Where others have made so many, it is not worth a longer search.
            let Some(index) = origins.iter().flatten().find_map(|origin| self.index_in(origin)) else {
                break;
            };
            if index < self.index { start = middle } else { end = middle }
        }
        Ok(start)
    }

    fn look_through(
        &self,
        queue: &Address,
        mut range: Range<u64>,
        most: usize,
        found: &mut Vec<Made>,
    ) -> Result<(), ReadError> {
        while !range.is_empty() && found.len() < most {
            let jobs = usize::try_from(range.end - range.start).unwrap_or(PAGE).min(PAGE);
            let Some((batch, origins)) = self.page(queue, range.start, jobs)? else { break };
            for (position, origin) in origins.into_iter().enumerate() {
                let is_of_it = |origin: &Origin| self.index_in(origin) == Some(self.index);
                let Some(origin) = origin.filter(is_of_it) else { continue };
                let payload = batch.payloads.get(position).unwrap_or_default().to_vec();
                found.push(Made { index: batch.first + position as u64, payload, origin });
            }
            range.start = batch.end();
        }
        found.truncate(most);
        Ok(())
    }

    /// Of what the step has made, the index in the input.
    fn index_in(&self, origin: &Origin) -> Option<u64> {
        let of_input = |(input, _): &&(String, u64)| input == self.input;
        (origin.step == *self.step)
            .then(|| origin.inputs.iter().find(of_input))
            .flatten()
            .map(|&(_, index)| index)
    }

    /// From there on, or from the first that is still kept.
    fn page(&self, queue: &Address, from: u64, jobs: usize) -> Result<Option<DetailedBatch>, ReadError> {
        match self.store.read_details(queue, from, jobs, PAGE_BYTES) {
            // Others were let go of just now.
            Err(ReadError::Gone { first, .. }) if first > from => {
                self.store.read_details(queue, first, jobs, PAGE_BYTES)
            }
            page => page,
        }
    }
}
