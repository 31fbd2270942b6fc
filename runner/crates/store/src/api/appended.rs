//! `Appended`: the place that a commit has given to jobs.

use tidegate_model::Address;

/// The place of the jobs of one [`crate::Append`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    pub queue: Address,
    /// The index of the first one.
    pub first: u64,
    pub jobs: usize,
}
