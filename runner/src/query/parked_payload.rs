//! Payload of a parked job: is read from its row, since its queue no longer keeps it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::job_payload::raw;
use tidegate_config::{InputMode, InputRef, Step};
use tidegate_model::present;
use tidegate_store::{ReadError, Store};

/// The payload of the job at `index` of `input`, if it is parked for `step`.
pub(crate) fn payload(
    store: &Store,
    step: &Step,
    input: &InputRef,
    index: u64,
) -> Result<Option<Box<RawValue>>, ReadError> {
    let found = store.first_parked_of(&step.address, (&input.hash_name(), index))?;
    // An output that is due later is another job.
    let job = found.map(|(_, job)| job).filter(|job| job.output().is_none());
    Ok(job.and_then(|job| part(&job.payload, step, input)))
}

/// The payload of a failed job, from its error record.
pub(crate) fn failed(record: &[u8], step: &Step, input: &InputRef) -> Option<Box<RawValue>> {
    #[derive(Deserialize)]
    struct Failed<'a> {
        #[serde(borrow, default, deserialize_with = "present")]
        job: Option<&'a RawValue>,
        #[serde(default)]
        job_text: Option<String>,
    }
    let Failed { job, job_text } = serde_json::from_slice(record).ok()?;
    let payload = job.map(|job| job.get().as_bytes().to_vec()).or(job_text.map(String::into_bytes));
    part(&payload?, step, input)
}

/// The part of the payload that came from `input`.
pub(crate) fn part(payload: &[u8], step: &Step, input: &InputRef) -> Option<Box<RawValue>> {
    if step.take == InputMode::From {
        return Some(raw(payload));
    }
    // The part is wrapped under the name of its input.
    let parts = serde_json::from_slice::<BTreeMap<String, Box<RawValue>>>(payload);
    parts.ok()?.remove(&input.binding)
}
