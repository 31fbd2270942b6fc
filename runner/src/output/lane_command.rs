//! Command that resumes a lane: writes the name of any lane as one word of a command line.

use super::table::on_one_line;
use tidegate_config::Configuration;

/// The command that resumes a lane, without the executable and the configuration.
pub(crate) fn resume_lane(step: &str, lane: &str) -> String {
    format!("step resume {step} --lane {}", shell_word(lane))
}

/// A lane that starts nothing, with the command that resumes it.
pub(crate) fn held_lane(configuration: &Configuration, step: &str, lane: &str, has_halted: bool) -> String {
    let resume = configuration.command(&resume_lane(step, lane));
    let state = if has_halted { "has halted" } else { "is paused" };
    format!("lane `{}` {state}: `{resume}` resumes it", on_one_line(lane))
}

/// A lane as one word of a command line.
fn shell_word(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:@%+=".contains(letter);
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}
