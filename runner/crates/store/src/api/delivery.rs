//! Deliveries: the outcomes of jobs, and the places by which they are found.

use serde::{Deserialize, Serialize};

use tidegate_model::{Address, DeliveryHash, Timestamp, delivery_hash};

/// The outcome of the delivery of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryOutcome {
    /// The number of jobs on the outputs.
    Output { jobs: u32 },
    /// The job is on the error queue.
    Error,
    /// It was consumed with no output.
    Nothing,
}

/// Deliveries of a step to record, each made from one job of the same input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveredJobs {
    /// As in the delivery hash.
    pub step: Address,
    /// The name of the input, as in the delivery hash.
    pub input: String,
    /// The index of each job, from 1, and its outcome. The last outcome of an index is kept.
    pub jobs: Vec<(u64, DeliveryOutcome)>,
    /// They may be forgotten from this time on; `None`: never.
    pub keep_until: Option<Timestamp>,
}

/// The place of a delivery that was made from one job. Its hash follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryPlace<'a> {
    /// See [`DeliveredJobs::step`].
    pub step: &'a Address,
    /// See [`DeliveredJobs::input`].
    pub input: &'a str,
    pub index: u64,
}

impl DeliveryPlace<'_> {
    #[must_use]
    pub fn hash(&self) -> DeliveryHash {
        let inputs = [(self.input, std::slice::from_ref(&self.index))];
        delivery_hash(self.step.pipeline.as_str(), self.step.name.as_str(), inputs)
    }
}
