//! Lane list: orders jobs in a linked list, with a heap for those that came out of order.

use super::heap::{Heap, Ranking};
use super::slab::{JobState, NONE, Slab};

#[derive(Clone, Debug)]
pub(crate) struct LaneList {
    first: u32,
    last: u32,
    len: u32,
    /// Position in the heap of ready lists.
    pub(crate) at: u32,
    strays: Option<Box<Heap<()>>>,
}

impl LaneList {
    pub(crate) fn new() -> Self {
        Self { first: NONE, last: NONE, len: 0, at: NONE, strays: None }
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// First job of the list.
    pub(crate) fn head(&self, jobs: &Slab) -> Option<u32> {
        let first = Some(self.first).filter(|&first| first != NONE);
        let stray = self.strays.as_ref().and_then(|strays| strays.first());
        match (first, stray) {
            (Some(first), Some(stray)) if jobs.before(stray, first) => Some(stray),
            (first, stray) => first.or(stray),
        }
    }

    pub(crate) fn push(&mut self, slot: u32, jobs: &mut Slab) {
        self.len += 1;
        let stray = self.last != NONE && jobs.before(slot, self.last);
        jobs.set_stray(slot, stray);
        if stray {
            self.strays.get_or_insert_default().push(slot, jobs);
            return;
        }
        jobs.set_links(slot, self.last, NONE);
        if self.last == NONE {
            self.first = slot;
        } else {
            let (before, _) = jobs.links(self.last);
            jobs.set_links(self.last, before, slot);
        }
        self.last = slot;
    }

    /// Removes a job of this list.
    pub(crate) fn remove(&mut self, slot: u32, jobs: &mut Slab) {
        self.len -= 1;
        if jobs.is_stray(slot) {
            let place = jobs.place(slot);
            if let Some(strays) = &mut self.strays {
                strays.remove(place, jobs);
                if strays.is_empty() {
                    self.strays = None;
                }
            }
            return;
        }
        let (before, after) = jobs.links(slot);
        if before == NONE {
            self.first = after;
        } else {
            let (further, _) = jobs.links(before);
            jobs.set_links(before, further, after);
        }
        if after == NONE {
            self.last = before;
        } else {
            let (_, further) = jobs.links(after);
            jobs.set_links(after, before, further);
        }
    }
}

/// Ranking of the lists by their first jobs.
pub(crate) struct Heads<'a> {
    pub(crate) lines: &'a mut [LaneList],
    pub(crate) jobs: &'a Slab,
}

impl Ranking for Heads<'_> {
    type Hint = (JobState, i64);

    fn hint(&self, item: u32) -> Self::Hint {
        // A list without a first job is about to be removed.
        self.lines[item as usize].head(self.jobs).map_or((JobState::Free, 0), |head| self.jobs.hint(head))
    }

    fn before(&self, a: u32, b: u32) -> bool {
        let head = |line: u32| self.lines[line as usize].head(self.jobs);
        match (head(a), head(b)) {
            (Some(a), Some(b)) => self.jobs.before(a, b),
            (a, b) => a.is_some() && b.is_none(),
        }
    }

    fn placed(&mut self, item: u32, at: u32) {
        self.lines[item as usize].at = at;
    }
}
