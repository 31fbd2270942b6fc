//! How many jobs of a step stand where at one moment, however it takes them.

use super::flow::Turn;
use crate::queuer::Survey;
use tidegate_model::Timestamp;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Glance {
    pub inputs: Vec<Waiting>,
    /// Jobs that are begun and not delivered; of a join, tuples.
    pub running: u64,
    /// Where it takes them as they come: the job that waits in the store for its next attempt, behind which
    /// nothing is delivered, and when that is due.
    pub first_in_line: Option<(Turn, Timestamp)>,
    /// Where it picks its jobs.
    pub picked: Option<Picked>,
}

/// Jobs of one input that nobody has begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Of a source: those that were read.
    pub jobs: u64,
    /// The index of the first of them, where they are taken as they come.
    pub first: Option<u64>,
}

/// Jobs that are picked one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picked {
    pub delayed: u64,
    pub pending: u64,
    /// Lanes that any of its jobs is in.
    pub lanes: u64,
    pub survey: Survey,
}
