//! What a runner asks of the outputs of an attempt, and of what else it answers.

use crate::words::format_size;
use crate::{Checkpoint, Failure, FailureKind, Job, Outputs, Payloads, json};

/// The longest handle of a pending job, in bytes. It is kept with the job, and handed to monitors.
const HANDLE_BYTES_MAX: usize = 64 << 10;

/// Looks at what was pushed since `before`: outputs are JSON on one line, whatever a plugin gives.
pub(super) fn check(job: &Job<'_>, before: &Checkpoint, outputs: &mut Outputs) -> Result<(), Failure> {
    for (position, &from) in before.lengths().iter().enumerate() {
        let Some(payloads) = outputs.get_mut(position) else { continue };
        for number in from..payloads.len() {
            // What is handed on as it was needs no look.
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
        .map_err(|error| Failure::new(FailureKind::Output, format!("its output is no JSON: {error}")))?;
    // In JSON a raw end of line stands only between values, where a blank will do.
    payload.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    Ok(())
}

/// The outputs of an attempt come to more than `memory` bytes.
pub(super) fn too_much(memory: u64) -> Failure {
    let most = format_size(memory);
    let message = format!("all outputs of the job come to more than `limits.memory` of {most}");
    Failure::new(FailureKind::Limit, message)
}

/// Why `handle` cannot be that of a pending job, as a sentence fragment.
#[must_use]
pub fn fault_of_handle(handle: &str) -> Option<String> {
    if handle.len() <= HANDLE_BYTES_MAX {
        return None;
    }
    let (length, most) = (format_size(handle.len() as u64), format_size(HANDLE_BYTES_MAX as u64));
    Some(format!("the handle of the pending job has {length}, and {most} is the most"))
}
