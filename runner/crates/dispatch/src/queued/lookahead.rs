//! Lookahead buffer: keeps jobs that were read with others and are past search-ahead, until the watermark
//! comes closer. It has at most the jobs of one read.

use std::collections::VecDeque;

use crate::waiting_room::{JobAttributes, JobId, JobKey};
use tidegate_model::Timestamp;

/// Jobs in ascending order of their indices.
#[derive(Debug, Default)]
pub(crate) struct LookaheadBuffer(VecDeque<OwnedAttributes>);

/// Owned copy of a job's attributes.
#[derive(Debug)]
pub(crate) struct OwnedAttributes {
    key: JobKey,
    lane: Box<[u8]>,
    age: i64,
    id: JobId,
    priority: i64,
    since: Timestamp,
    reads: Box<[u64]>,
    writes: Box<[u64]>,
}

impl LookaheadBuffer {
    pub(crate) fn push(&mut self, attributes: &JobAttributes<'_>) {
        // A job that is read again is in the buffer already.
        if self.0.back().is_none_or(|last| last.key < attributes.key) {
            self.0.push_back(OwnedAttributes::of(attributes));
        }
    }

    /// Removes and returns the first job up to this index.
    pub(crate) fn pop(&mut self, up_to: u64) -> Option<OwnedAttributes> {
        self.0.pop_front_if(|kept| kept.key.0 <= up_to)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Index of the first job.
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

impl OwnedAttributes {
    fn of(attributes: &JobAttributes<'_>) -> Self {
        Self {
            key: attributes.key,
            lane: attributes.lane.into(),
            age: attributes.age,
            id: attributes.id.clone(),
            priority: attributes.priority,
            since: attributes.since,
            reads: attributes.reads.into(),
            writes: attributes.writes.into(),
        }
    }

    pub(crate) fn attributes(&self) -> JobAttributes<'_> {
        JobAttributes {
            key: self.key,
            index: Some(self.key.0),
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
