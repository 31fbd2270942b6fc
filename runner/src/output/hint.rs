//! What an operator can do about something, with the command for it.

use crate::query::PAUSED;
use tidegate_config::Invocation;

/// Why a job or a step starts nothing, as a runner tells it; where a command helps, with that.
pub(crate) fn with_command(why: &str, step: &str, given: &Invocation) -> String {
    if why == PAUSED { format!("{why}; {}", resume(step, given)) } else { why.to_owned() }
}

/// `` `tidegate step resume p/s` has it go on``
pub(crate) fn resume(step: &str, given: &Invocation) -> String {
    format!("`{}` has it go on", given.command(&format!("step resume {step}")))
}
