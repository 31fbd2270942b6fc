//! Jobs that came with others and stand further past the watermark than the step looks: they wait here until
//! it has come closer. There are no more of them than one read brings.

use std::collections::VecDeque;

use crate::queuer::{Card, JobId, JobKey};
use tidegate_model::Timestamp;

/// Ascending by index.
#[derive(Debug, Default)]
pub(crate) struct Beyond(VecDeque<Kept>);

/// A card of its own.
#[derive(Debug)]
pub(crate) struct Kept {
    key: JobKey,
    lane: Box<[u8]>,
    age: i64,
    id: JobId,
    priority: i64,
    since: Timestamp,
    reads: Box<[u64]>,
    writes: Box<[u64]>,
}

impl Beyond {
    pub(crate) fn push(&mut self, card: &Card<'_>) {
        // What is read again is there already.
        if self.0.back().is_none_or(|last| last.key < card.key) {
            self.0.push_back(Kept::of(card));
        }
    }

    /// The next of those up to this index.
    pub(crate) fn pop(&mut self, up_to: u64) -> Option<Kept> {
        self.0.pop_front_if(|kept| kept.key.0 <= up_to)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The index of the first one.
    pub(crate) fn first(&self) -> Option<u64> {
        self.0.front().map(|kept| kept.key.0)
    }

    pub(crate) fn has(&self, key: JobKey) -> bool {
        self.0.iter().any(|kept| kept.key == key)
    }

    pub(crate) fn remove(&mut self, key: JobKey) {
        self.0.retain(|kept| kept.key != key);
    }
}

impl Kept {
    fn of(card: &Card<'_>) -> Self {
        Self {
            key: card.key,
            lane: card.lane.into(),
            age: card.age,
            id: card.id.clone(),
            priority: card.priority,
            since: card.since,
            reads: card.reads.into(),
            writes: card.writes.into(),
        }
    }

    pub(crate) fn card(&self) -> Card<'_> {
        Card {
            key: self.key,
            lane: &self.lane,
            age: self.age,
            id: self.id.clone(),
            priority: self.priority,
            since: self.since,
            reads: &self.reads,
            writes: &self.writes,
        }
    }
}
