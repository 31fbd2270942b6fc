//! `RetryStatus`: the failed job of a step that is tried again first, with its last error.

use serde::{Deserialize, Serialize};

use super::rfc3339;
use tidegate_config::{InputRef, Step};
use tidegate_store::{ParkReason, ParkedJob, ReadError, Store};

/// Jobs that are searched for a failed one, and bytes of them. Others wait for a time that their code has set.
const RETRIES: usize = 1_000;
const RETRIES_BYTES: usize = 4 << 20;

/// A failed job that waits for its next attempt.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RetryStatus {
    /// `pipeline/queue/index`; several with ` + ` for a join.
    pub(crate) job: String,
    /// Time of the next attempt; RFC 3339.
    pub(crate) due: String,
    /// Number of attempts so far.
    pub(crate) attempts: u32,
    /// The error of the last attempt.
    pub(crate) why: String,
}

/// The failed job of a step whose next attempt comes first, among the first jobs that wait for a time.
pub(crate) fn next_retry(store: &Store, step: &Step) -> Result<Option<RetryStatus>, ReadError> {
    for (_, job) in store.first_delayed(&step.address, RETRIES, RETRIES_BYTES)? {
        if let (ParkReason::Delayed, Some(due), Some(why)) = (&job.reason, job.due.time(), &job.last_error) {
            let (names, why) = (names(&job, &step.inputs).join(" + "), why.clone());
            return Ok(Some(RetryStatus { job: names, due: rfc3339(due), attempts: job.attempt, why }));
        }
    }
    Ok(None)
}

/// The jobs that a parked job was made from.
pub(crate) fn names(job: &ParkedJob, inputs: &[InputRef]) -> Vec<String> {
    let name = |(name, index): &(String, u64)| {
        let input = inputs.iter().find(|input| input.hash_name() == *name);
        // The step may have had another input then.
        input.map_or_else(|| format!("{name}/{index}"), |input| format!("{}/{index}", input.address))
    };
    job.inputs.iter().map(name).collect()
}
