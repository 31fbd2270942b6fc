//! Hints for operators: add the command that resolves a problem.

use crate::query::PAUSED;
use tidegate_config::Invocation;

/// The reason why a job or a step starts nothing, with the command that resolves it, if one does.
pub(crate) fn with_command(why: &str, step: &str, given: &Invocation) -> String {
    if why == PAUSED { format!("{why}; {}", resume(step, given)) } else { why.to_owned() }
}

/// `` `tidegate step resume p/s` resumes it``
pub(crate) fn resume(step: &str, given: &Invocation) -> String {
    format!("`{}` resumes it", given.command(&format!("step resume {step}")))
}

/// The consequence of a full disk for jobs.
pub(crate) fn disk_full(why: &str) -> String {
    format!("the disk is full: {why}; no job is lost, and the run resumes when the disk has room")
}
