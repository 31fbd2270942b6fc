//! Delay heap: keeps the delayed jobs of the waiting room by the ends of their delays, in 16 bytes a job.
//!
//! It is a heap without removal from the middle. An entry whose job is no longer delayed until that time is
//! skipped when it reaches the top.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::slab::{JobState, Slab};
use tidegate_model::Timestamp;

#[derive(Clone, Debug, Default)]
pub(crate) struct Delays {
    /// Heap of delays; its first entry is always a delayed job.
    heap: BinaryHeap<Reverse<(Timestamp, u32)>>,
    /// Number of delayed jobs.
    len: usize,
}

impl Delays {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Job whose delay ends first; among equal times, the one in the first slot.
    pub(crate) fn first(&self) -> Option<(Timestamp, u32)> {
        self.heap.peek().map(|&Reverse(first)| first)
    }

    /// End of the first delay after `now`. Walks all delayed jobs if one of them is due.
    pub(crate) fn first_after(&self, now: Timestamp, jobs: &Slab) -> Option<Timestamp> {
        let (first, _) = self.first()?;
        if first > now {
            return Some(first);
        }
        let all = self.heap.iter().map(|&Reverse(delay)| delay);
        all.filter(|&delay| delay.0 > now && is_delayed(delay, jobs)).map(|(until, _)| until).min()
    }

    /// End of the last delay. Walks all delayed jobs.
    pub(crate) fn last(&self, jobs: &Slab) -> Option<Timestamp> {
        let all = self.heap.iter().map(|&Reverse(delay)| delay);
        all.filter(|&delay| is_delayed(delay, jobs)).map(|(until, _)| until).max()
    }

    pub(crate) fn insert(&mut self, until: Timestamp, slot: u32) {
        self.heap.push(Reverse((until, slot)));
        self.len += 1;
    }

    /// Removes a job that is in the heap and still delayed in `jobs`.
    pub(crate) fn remove(&mut self, until: Timestamp, slot: u32, jobs: &Slab) {
        self.len -= 1;
        let gone = |delay: (Timestamp, u32)| delay == (until, slot) || !is_delayed(delay, jobs);
        while self.heap.peek().is_some_and(|&Reverse(top)| gone(top)) {
            self.heap.pop();
        }
        if self.heap.len() > 2 * self.len + 16 {
            self.heap.retain(|&Reverse(delay)| !gone(delay));
            self.heap.shrink_to(2 * self.len);
        }
    }
}

fn is_delayed((until, slot): (Timestamp, u32), jobs: &Slab) -> bool {
    jobs.job_state(slot) == JobState::Delayed && jobs.until(slot) == until
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::waiting_room::policy::JobKey;

    proptest! {
        #[test]
        fn delays_are_a_sorted_set(steps in prop::collection::vec((0_u64..30, 0_i64..8), 0..300)) {
            let (mut jobs, mut delays, mut model) = (Slab::new(false), Delays::default(), BTreeSet::new());
            let slots: Vec<u32> =
                (0..30).map(|key| jobs.insert(JobKey(key), 0, 0, None).unwrap()).collect();
            for (key, until) in steps {
                let slot = slots[usize::try_from(key).unwrap()];
                if jobs.job_state(slot) == JobState::Delayed {
                    delays.remove(jobs.until(slot), slot, &jobs);
                    model.remove(&(jobs.until(slot), slot));
                    jobs.set_job_state(slot, JobState::Waiting);
                }
                // At every other time the job is delayed again, sometimes until the same time as before.
                if until > 2 {
                    jobs.set_until(slot, Timestamp(until));
                    jobs.set_job_state(slot, JobState::Delayed);
                    delays.insert(Timestamp(until), slot);
                    model.insert((Timestamp(until), slot));
                }
                prop_assert_eq!(delays.first(), model.first().copied());
                prop_assert_eq!(delays.last(&jobs), model.last().map(|&(until, _)| until));
                prop_assert_eq!(delays.is_empty(), model.is_empty());
                for now in (1..8).map(Timestamp) {
                    let after = model.iter().map(|&(until, _)| until).find(|&until| until > now);
                    prop_assert_eq!(delays.first_after(now, &jobs), after);
                }
            }
        }
    }
}
