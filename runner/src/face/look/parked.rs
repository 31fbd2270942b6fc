//! The payload of a job that its queue keeps no longer, from the place where the job waits.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::subject::raw;
use crate::config::{InputRef, Step, Take};
use crate::store::{ReadError, Store};

/// The payload of the job at `index` of `input`, where it stands in the store by itself for `step`.
pub(super) fn payload(
    store: &Store,
    step: &Step,
    input: &InputRef,
    index: u64,
) -> Result<Option<Box<RawValue>>, ReadError> {
    let found = store.delayed_of(&step.address, (&input.hash_name(), index))?;
    // An output that is due later is another job.
    let Some(job) = found.map(|(_, job)| job).filter(|job| job.to.is_none()) else { return Ok(None) };
    if step.take == Take::From {
        return Ok(Some(raw(&job.payload)));
    }
    // It was wrapped under the name of its input.
    let parts = serde_json::from_slice::<BTreeMap<String, Box<RawValue>>>(&job.payload);
    Ok(parts.ok().and_then(|mut parts| parts.remove(&input.binding)))
}
