//! `AttemptSpan`: jobs of one step with contiguous indices, in 48 bytes.

use twox_hash::{XxHash3_64, XxHash3_128};

use tidegate_model::Address;

/// Jobs that are attempted together. A job is identified by its step and its row: the name of each input that
/// gives it a payload, and the index there. In a span the indices of all inputs increase together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptSpan {
    /// A hash of the step, the names of its inputs, and the differences of their indices. Only spans with the
    /// same hash can overlap.
    pub(crate) origin: u128,
    /// A hash of the step; 0 in files of earlier versions.
    pub(crate) step: u64,
    /// The index of the first job on the first input.
    pub(crate) first: u64,
    pub(crate) jobs: u64,
}

impl AttemptSpan {
    /// `jobs` jobs of `step`; the first has these indices on these inputs, in any order.
    #[must_use]
    pub fn new(step: &Address, inputs: &[(&str, u64)], jobs: u64) -> Self {
        let mut inputs = inputs.to_vec();
        inputs.sort_unstable();
        let first = inputs.first().map_or(0, |&(_, index)| index);
        let mut bytes = Vec::with_capacity(128);
        let mut text = |text: &str, number: u64| {
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
            bytes.extend_from_slice(&number.to_le_bytes());
        };
        text(step.pipeline.as_str(), 0);
        text(step.name.as_str(), 0);
        for (name, index) in inputs {
            text(name, index.wrapping_sub(first));
        }
        Self { origin: XxHash3_128::oneshot(&bytes), step: hash_of(step), first, jobs }
    }

    /// Whether its step is one of these, or unknown.
    pub(crate) fn may_be_of(&self, steps: &[u64]) -> bool {
        self.step == 0 || steps.contains(&self.step)
    }

    /// Appends the jobs of `next` if they follow directly. Returns whether they do.
    pub fn extend(&mut self, next: &Self) -> bool {
        let follows = self.origin == next.origin && self.end() == next.first;
        if follows {
            self.jobs += next.jobs;
        }
        follows
    }

    /// The index after the last job.
    pub(crate) fn end(&self) -> u64 {
        self.first.saturating_add(self.jobs)
    }

    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.origin == other.origin && self.first < other.end() && other.first < self.end()
    }

    /// The parts before and after the jobs of `other`.
    pub(crate) fn without(&self, other: &Self) -> (Option<Self>, Option<Self>) {
        if !self.overlaps(other) {
            return (Some(*self), None);
        }
        let part = |first: u64, end: u64| (first < end).then(|| Self { first, jobs: end - first, ..*self });
        (part(self.first, other.first), part(other.end(), self.end()))
    }
}

/// The hash of a step in its spans.
pub(crate) fn hash_of(step: &Address) -> u64 {
    XxHash3_64::oneshot(step.to_string().as_bytes()).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(step: &str, inputs: &[(&str, u64)], jobs: u64) -> AttemptSpan {
        AttemptSpan::new(&Address::parse(step).unwrap(), inputs, jobs)
    }

    #[test]
    fn the_same_row_is_the_same_job_whichever_span_it_came_in() {
        let batch = span("a/join", &[("left", 10), ("right", 90)], 20);
        assert_eq!(batch, span("a/join", &[("right", 90), ("left", 10)], 20));
        assert!(batch.overlaps(&span("a/join", &[("left", 29), ("right", 109)], 7)));
        assert!(!batch.overlaps(&span("a/join", &[("left", 30), ("right", 110)], 7)));
    }

    #[test]
    fn other_steps_inputs_and_pairs_are_other_jobs() {
        let job = span("a/join", &[("left", 10), ("right", 90)], 1);
        for other in [
            span("a/joi", &[("left", 10), ("right", 90)], 1),
            span("b/join", &[("left", 10), ("right", 90)], 1),
            span("a/join", &[("left", 10), ("right", 91)], 1),
            span("a/join", &[("left", 10), ("other", 90)], 1),
            span("a/join", &[("left", 10)], 1),
        ] {
            assert!(!job.overlaps(&other), "{other:?}");
        }
    }

    #[test]
    fn a_span_takes_in_what_follows_it_and_nothing_else() {
        let mut batch = span("a/join", &[("left", 10), ("right", 90)], 1);
        assert!(batch.extend(&span("a/join", &[("left", 11), ("right", 91)], 2)));
        assert_eq!(batch, span("a/join", &[("left", 10), ("right", 90)], 3));
        assert!(!batch.extend(&span("a/join", &[("left", 12), ("right", 92)], 1)));
        assert!(!batch.extend(&span("a/join", &[("left", 13), ("right", 94)], 1)));
    }

    #[test]
    fn what_is_left_without_some_jobs_lies_before_and_behind_them() {
        let all = span("a/s", &[("in", 10)], 10);
        let part = |first, jobs| Some(span("a/s", &[("in", first)], jobs));
        let without = |first, jobs| all.without(&span("a/s", &[("in", first)], jobs));
        assert_eq!(without(10, 1), (None, part(11, 9)));
        assert_eq!(without(13, 2), (part(10, 3), part(15, 5)));
        assert_eq!(without(19, 5), (part(10, 9), None));
        assert_eq!(without(1, 50), (None, None));
        assert_eq!(without(20, 5), (Some(all), None));
    }
}
