//! `Progress`: the jobs that a step has accounted for, as a position and the finished indices above it.

use serde::{Deserialize, Serialize};

/// Progress of one step on one input. Every job at or below the position is accounted for, and so are those
/// in the finished ranges above it: the store does not read them again. A job that is begun, delayed or pending
/// is accounted for and not finished, so the watermark may be lower.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Stores have it under its former name.
    #[serde(rename = "watermark")]
    position: u64,
    /// Inclusive, ascending, disjoint, and adjacent neither to each other nor to the position.
    finished: Vec<(u64, u64)>,
    /// The step skips jobs up to this index. Never above the position.
    #[serde(default, skip_serializing_if = "is_none")]
    before: u64,
    pub counters: Counters,
}

/// The numbers of jobs by outcome, since the store was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Jobs that the step has accounted for.
    pub taken: u64,
    /// Jobs that the step delivered, over all outputs.
    pub given: u64,
    /// Jobs that a filter dropped, or that had no output.
    pub filtered: u64,
    /// Jobs that went to the error queue.
    pub failed: u64,
    /// Jobs lost under `at-most-once`: progress was committed before the attempt, and the process died before
    /// delivery.
    #[serde(default, skip_serializing_if = "is_none")]
    pub lost: u64,
}

impl Progress {
    /// Every job at or below this index is accounted for.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The finished ranges above the position, inclusive, ascending.
    #[must_use]
    pub fn finished(&self) -> &[(u64, u64)] {
        &self.finished
    }

    /// Whether all jobs from `first` to `last` are accounted for.
    #[must_use]
    pub fn has_all(&self, first: u64, last: u64) -> bool {
        let first = first.max(self.position + 1);
        first > last || self.finished.iter().any(|&(from, to)| from <= first && last <= to)
    }

    /// Whether the job at `index` is accounted for.
    #[must_use]
    pub fn is_done(&self, index: u64) -> bool {
        if index <= self.position {
            return true;
        }
        let after = self.finished.partition_point(|&(first, _)| first <= index);
        after > 0 && self.finished[after - 1].1 >= index
    }

    /// Number of jobs from `first` to `last`, both included, that are not accounted for.
    #[must_use]
    pub fn count_open(&self, first: u64, last: u64) -> u64 {
        let first = first.max(self.position + 1);
        let finished = self.finished.iter().map(|&(from, to)| (from.max(first), to.min(last)));
        let finished: u64 = finished.map(|(from, to)| (to + 1).saturating_sub(from)).sum();
        (last + 1).saturating_sub(first).saturating_sub(finished)
    }

    /// Accounts for all jobs up to `position`, if it exceeds the present one.
    pub fn skip_to(&mut self, position: u64) {
        self.finish(1, position);
    }

    /// Starts after `index`: jobs up to it are skipped, and count as accounted for.
    pub fn start_after(&mut self, index: u64) {
        self.skip_to(index);
        self.before = self.before.max(index);
    }

    /// The last skipped job; 0 if the step began with the first job.
    #[must_use]
    pub fn skipped_up_to(&self) -> u64 {
        self.before
    }

    /// Whether the step skipped jobs, and has not accounted for the next one yet.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        self.before > 0 && self.before == self.position
    }

    /// Resets progress above `to`, so that these jobs run again. The counters stay.
    pub fn rewind(&mut self, to: u64) {
        self.before = self.before.min(to);
        self.position = self.position.min(to);
        self.finished.retain(|&(first, _)| first <= to);
        if let Some((_, last)) = self.finished.last_mut() {
            *last = (*last).min(to);
        }
    }

    /// Accounts for the jobs from `first` to `last`, both included. Finishing a job twice has no effect.
    pub fn finish(&mut self, first: u64, last: u64) {
        if last < first || last <= self.position {
            return;
        }
        let mut range = (first.max(self.position + 1), last);
        // Every range that overlaps or touches the new range becomes part of it.
        let from = self.finished.partition_point(|&(_, end)| end.saturating_add(1) < range.0);
        let to = self.finished.partition_point(|&(start, _)| start <= range.1.saturating_add(1));
        if let Some(touched) = self.finished.get(from..to).filter(|touched| !touched.is_empty()) {
            range.0 = range.0.min(touched[0].0);
            range.1 = range.1.max(touched[touched.len() - 1].1);
        }
        if range.0 == self.position + 1 {
            self.finished.drain(..to.max(from));
            self.position = range.1;
        } else {
            self.finished.splice(from..to.max(from), [range]);
        }
    }

    /// As [`Self::finish`] of each range, in any order. The cost is linear in the number of old and new
    /// ranges.
    pub fn finish_all(&mut self, ranges: &mut [(u64, u64)]) {
        if ranges.len() < FEW {
            return ranges.iter().for_each(|&(first, last)| self.finish(first, last));
        }
        ranges.sort_unstable();
        let (mut old, mut new) = (self.finished.iter().peekable(), ranges.iter().peekable());
        let mut merged: Vec<(u64, u64)> = Vec::with_capacity(self.finished.len() + ranges.len());
        loop {
            let next = match (old.peek(), new.peek()) {
                (Some(one), Some(other)) if one <= other => old.next(),
                (_, Some(_)) => new.next(),
                (_, None) => old.next(),
            };
            let Some(&(first, last)) = next else { break };
            if last < first || last <= self.position {
                continue;
            }
            let first = first.max(self.position + 1);
            if first == self.position + 1 {
                self.position = last;
                continue;
            }
            match merged.last_mut().filter(|before| first <= before.1.saturating_add(1)) {
                Some(before) => before.1 = before.1.max(last),
                None => merged.push((first, last)),
            }
        }
        self.finished = merged;
    }
}

/// Up to this number, ranges are finished one by one.
const FEW: usize = 4;

impl Counters {
    /// Adds `more` to each count.
    pub fn add(&mut self, more: &Counters) {
        self.taken += more.taken;
        self.given += more.given;
        self.filtered += more.filtered;
        self.failed += more.failed;
        self.lost += more.lost;
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn is_none(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_position_moves_over_contiguous_finished_jobs_only() {
        let mut progress = Progress::default();
        progress.finish(3, 3);
        progress.finish(1, 1);
        assert_eq!((progress.position(), progress.finished()), (1, &[(3, 3)][..]));
        progress.finish(2, 2);
        assert_eq!((progress.position(), progress.finished()), (3, &[][..]));
    }

    #[test]
    fn what_is_rewound_is_done_again() {
        let mut progress = Progress::default();
        progress.finish(1, 10);
        progress.finish(13, 15);
        progress.finish(17, 20);
        let after = |to| {
            let mut progress = progress.clone();
            progress.rewind(to);
            (progress.position(), progress.finished().to_vec())
        };
        assert_eq!(after(99), (10, vec![(13, 15), (17, 20)]));
        assert_eq!(after(18), (10, vec![(13, 15), (17, 18)]));
        assert_eq!(after(16), (10, vec![(13, 15)]));
        assert_eq!(after(11), (10, vec![]));
        assert_eq!(after(4), (4, vec![]));
        assert_eq!(after(0), (0, vec![]));
    }

    #[test]
    fn what_came_before_the_beginning_is_accounted_for_until_it_is_wanted_after_all() {
        let mut progress = Progress::default();
        progress.start_after(10);
        assert_eq!((progress.position(), progress.skipped_up_to(), progress.count_open(1, 12)), (10, 10, 2));
        assert!(progress.is_untouched());
        progress.finish(12, 12);
        assert!(progress.is_untouched());
        progress.finish(11, 11);
        assert!(!progress.is_untouched());
        progress.rewind(10);
        assert!(progress.is_untouched());
        progress.rewind(4);
        assert_eq!((progress.position(), progress.skipped_up_to()), (4, 4));
        let stored = serde_json::to_string(&progress).unwrap();
        assert_eq!(serde_json::from_str::<Progress>(&stored).unwrap(), progress);
        assert!(!serde_json::to_string(&Progress::default()).unwrap().contains("before"));
    }

    proptest! {
        #[test]
        fn many_jobs_finished_at_once_count_as_if_finished_one_by_one(
            before in prop::collection::vec((1_u64..60, 0_u64..6), 0..20),
            ranges in prop::collection::vec((1_u64..60, 0_u64..6), 0..20),
        ) {
            let mut one_by_one = Progress::default();
            for (first, more) in before {
                one_by_one.finish(first, first + more);
            }
            let mut at_once = one_by_one.clone();
            let mut ranges: Vec<_> = ranges.into_iter().map(|(first, more)| (first, first + more)).collect();
            for &(first, last) in &ranges {
                one_by_one.finish(first, last);
            }
            at_once.finish_all(&mut ranges);
            prop_assert_eq!(at_once, one_by_one);
        }

        #[test]
        fn progress_is_the_set_of_finished_jobs(ranges in prop::collection::vec((1_u64..40, 0_u64..6), 0..40)) {
            let mut progress = Progress::default();
            let mut model = BTreeSet::new();
            for (first, more) in ranges {
                progress.finish(first, first + more);
                model.extend(first..=first + more);
                let position = (1..100).find(|index| !model.contains(index)).map_or(0, |gap| gap - 1);
                let open = (7..50).filter(|index| !model.contains(index)).count();
                prop_assert_eq!(progress.count_open(7, 49), open as u64);
                prop_assert_eq!(progress.position(), position);
                for index in 1..60 {
                    prop_assert_eq!(progress.is_done(index), model.contains(&index));
                }
                let mut end = position;
                for &(first, last) in progress.finished() {
                    prop_assert!(first > end + 1 && last >= first);
                    end = last;
                }
            }
        }
    }
}
