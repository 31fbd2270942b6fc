//! Deliveries: the outcomes and times of jobs, and the places by which they are found.

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

/// The times of a job or a tuple until its delivery, and the number of its attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeliveryTimes {
    /// 0 if none was made.
    pub attempts: u32,
    /// Time of the commit that appended the job; `None` if it is unknown, as for a job of a file. A delivery of several
    /// jobs (a tuple of a join) has that of the youngest one, from which on the tuple could be made. Jobs with unknown
    /// times do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_attempt: Option<Timestamp>,
    /// Time of its last submission to an external system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted: Option<Timestamp>,
}

/// The delivery of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveredJob {
    /// From 1.
    pub index: u64,
    pub outcome: DeliveryOutcome,
    pub times: DeliveryTimes,
}

/// Deliveries of a step to record, each made from one job of the same input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveredJobs {
    /// As in the delivery hash.
    pub step: Address,
    /// The name of the input, as in the delivery hash.
    pub input: String,
    /// The last delivery of an index is kept.
    pub jobs: Vec<DeliveredJob>,
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
