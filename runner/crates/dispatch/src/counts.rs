//! Step counts: number the jobs of a step by state at one moment, for both kinds of step.

use crate::protocol::Turn;
use crate::waiting_room::LaneSummary;
use tidegate_model::Timestamp;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobCounts {
    pub inputs: Vec<InputCounts>,
    /// Jobs that are begun and not delivered; for a join, tuples.
    pub running: u64,
    /// For an ordered step: the parked job that blocks all deliveries behind it, and its due time.
    pub first_in_line: Option<(Turn, Timestamp)>,
    /// The highest index up to which every job of a queued step is finished.
    pub watermark: Option<u64>,
    /// Counts of a queued step only.
    pub picked: Option<QueuedCounts>,
}

/// Jobs of one input that are not begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputCounts {
    /// For a source: jobs that were read.
    pub jobs: u64,
    /// Index of the first of them, for an ordered step.
    pub first: Option<u64>,
}

/// Counts of a queued step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueuedCounts {
    pub delayed: u64,
    pub pending: u64,
    /// Number of lanes with at least one job.
    pub lanes: u64,
    pub summary: LaneSummary,
}
