//! The delayed jobs of the room by the ends of their delays: sixteen bytes a job.
//!
//! A heap from whose middle nothing is taken: what is not delayed any more, or until another time, is
//! passed over when it comes to the top.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::jobs::{Jobs, Stand};
use tidegate_model::Timestamp;

#[derive(Clone, Debug, Default)]
pub(crate) struct Delays {
    /// Whatever stands at the top is delayed.
    heap: BinaryHeap<Reverse<(Timestamp, u32)>>,
    /// How many of them are delayed.
    len: usize,
}

impl Delays {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The job whose delay ends first; of those that end at once, that in the first slot.
    pub(crate) fn first(&self) -> Option<(Timestamp, u32)> {
        self.heap.peek().map(|&Reverse(first)| first)
    }

    /// When all delays are over. Looks at all of them.
    pub(crate) fn last(&self, jobs: &Jobs) -> Option<Timestamp> {
        let all = self.heap.iter().map(|&Reverse(delay)| delay);
        all.filter(|&delay| is_delayed(delay, jobs)).map(|(until, _)| until).max()
    }

    pub(crate) fn insert(&mut self, until: Timestamp, slot: u32) {
        self.heap.push(Reverse((until, slot)));
        self.len += 1;
    }

    /// Takes out one that is in it, and still stands so in `jobs`.
    pub(crate) fn remove(&mut self, until: Timestamp, slot: u32, jobs: &Jobs) {
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

fn is_delayed((until, slot): (Timestamp, u32), jobs: &Jobs) -> bool {
    jobs.stand(slot) == Stand::Delayed && jobs.until(slot) == until
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::queuer::rules::JobKey;

    proptest! {
        #[test]
        fn delays_are_a_sorted_set(steps in prop::collection::vec((0_u64..30, 0_i64..8), 0..300)) {
            let (mut jobs, mut delays, mut model) = (Jobs::new(false), Delays::default(), BTreeSet::new());
            let slots: Vec<u32> =
                (0..30).map(|key| jobs.insert(JobKey(key), 0, 0, None).unwrap()).collect();
            for (key, until) in steps {
                let slot = slots[usize::try_from(key).unwrap()];
                if jobs.stand(slot) == Stand::Delayed {
                    delays.remove(jobs.until(slot), slot, &jobs);
                    model.remove(&(jobs.until(slot), slot));
                    jobs.set_stand(slot, Stand::Waiting);
                }
                // Every other time it is delayed again, now and then until the same time as before.
                if until > 2 {
                    jobs.set_until(slot, Timestamp(until));
                    jobs.set_stand(slot, Stand::Delayed);
                    delays.insert(Timestamp(until), slot);
                    model.insert((Timestamp(until), slot));
                }
                prop_assert_eq!(delays.first(), model.first().copied());
                prop_assert_eq!(delays.last(&jobs), model.last().map(|&(until, _)| until));
                prop_assert_eq!(delays.is_empty(), model.is_empty());
            }
        }
    }
}
