//! Validation of outputs: checks the outputs and handles of an attempt.

use crate::words::format_size;
use crate::{Checkpoint, Failure, FailureKind, Job, Outputs, Payloads, json};

/// The longest handle of a pending job, in bytes. It is stored with the job, and passed to monitors.
const HANDLE_BYTES_MAX: usize = 64 << 10;

/// Validates the outputs since `before`, and puts each on one line.
pub(super) fn check(job: &Job<'_>, before: &Checkpoint, outputs: &mut Outputs) -> Result<(), Failure> {
    for (position, &from) in before.lengths().iter().enumerate() {
        let Some(payloads) = outputs.get_mut(position) else { continue };
        for number in from..payloads.len() {
            // An unchanged payload needs no check.
            if payloads.get(number) != Some(job.payload) {
                check_one(payloads, number)?;
            }
        }
    }
    Ok(())
}

fn check_one(payloads: &mut Payloads, number: usize) -> Result<(), Failure> {
    let Some(payload) = payloads.get_mut(number) else { return Ok(()) };
    json::check(payload)
        .map_err(|error| Failure::new(FailureKind::Output, format!("its output is not JSON: {error}")))?;
    // In JSON a raw line end occurs only between values, so a blank replaces it.
    payload.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    Ok(())
}

/// The failure if the outputs of an attempt exceed `memory` bytes.
pub(super) fn too_much(memory: u64) -> Failure {
    let most = format_size(memory);
    let message = format!("the outputs of the job together exceed `limits.memory` of {most}");
    Failure::new(FailureKind::Limit, message)
}

/// The error of an invalid `handle`, as a sentence fragment.
#[must_use]
pub fn fault_of_handle(handle: &str) -> Option<String> {
    if handle.len() <= HANDLE_BYTES_MAX {
        return None;
    }
    let (length, most) = (format_size(handle.len() as u64), format_size(HANDLE_BYTES_MAX as u64));
    Some(format!("the handle of the pending job has {length}, which exceeds {most}"))
}
