//! Handles, by which outside systems know pending jobs.

use crate::words::format_size;

/// The longest one, in bytes. It is kept with the job, and handed to monitors.
const BYTES_MAX: usize = 64 << 10;

/// Why `handle` cannot be one, as a sentence fragment.
pub(super) fn fault(handle: &str) -> Option<String> {
    if handle.len() <= BYTES_MAX {
        return None;
    }
    let (length, most) = (format_size(handle.len() as u64), format_size(BYTES_MAX as u64));
    Some(format!("the handle of the pending job has {length}, and {most} is the most"))
}
