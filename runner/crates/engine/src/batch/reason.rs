//! Failure reasons: are limited to 8 KiB, because each attempt stores and lists them again.

use std::fmt::Write as _;

use tidegate_plugin::{Failure, FailureKind};

use tidegate_model::grouped;

/// Maximum bytes of a reason, and of the context that its author gives.
const BYTES_MAX: usize = 8 << 10;
/// Maximum bytes of the note about omitted text.
const NOTE_BYTES_MAX: usize = 64;

/// Shortens the message and the context if they are too long. A shortened context becomes a text.
pub(crate) fn bounded(mut failure: Failure) -> Failure {
    // The message of a pending job is its handle, and not a reason.
    if failure.kind == FailureKind::Pending {
        return failure;
    }
    failure.message = shortened(failure.message);
    if let Some(context) = failure.context.take_if(|context| context.len() > BYTES_MAX) {
        let text = serde_json::Value::String(shortened(context.into_string()));
        failure.context = Some(text.to_string().into());
    }
    failure
}

/// Shortens a reason and appends the number of omitted bytes. A short reason is unchanged.
pub(crate) fn shortened(mut reason: String) -> String {
    if reason.len() <= BYTES_MAX {
        return reason;
    }
    let end = reason.floor_char_boundary(BYTES_MAX - NOTE_BYTES_MAX);
    let left_out = grouped((reason.len() - end) as u64);
    reason.truncate(end);
    reason.shrink_to_fit();
    let _ = write!(reason, "… {left_out} more bytes left out"); // writing to a String cannot fail
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_reason_stays_as_it_is() {
        for reason in [String::new(), "x".repeat(BYTES_MAX)] {
            assert_eq!(shortened(reason.clone()), reason);
        }
    }

    #[test]
    fn a_long_reason_is_cut_between_two_characters_and_says_how_much_is_missing() {
        for (text, left_out) in [("x".repeat(10_000), "1,872"), (format!("x{}", "é".repeat(5_000)), "1,874")]
        {
            let short = shortened(text.clone());
            assert!(short.len() <= BYTES_MAX, "{}", short.len());
            let (kept, note) = short.split_once('…').unwrap();
            assert!(text.starts_with(kept));
            assert_eq!(note, format!(" {left_out} more bytes left out"));
            // A second call cuts nothing more.
            assert_eq!(shortened(short.clone()), short);
        }
        assert!(shortened("x".repeat(20 << 20)).len() <= BYTES_MAX);
    }

    #[test]
    fn a_long_context_stays_json_and_a_handle_stays_whole() {
        let failure = Failure::failed("why").with_context(format!("[\"{}\"]", "x".repeat(10_000)));
        let context = bounded(failure).context.unwrap();
        let text: String = serde_json::from_str(&context).unwrap();
        assert!(text.len() <= BYTES_MAX && text.ends_with("… 1,876 more bytes left out"), "{text}");
        let handle = "x".repeat(10_000);
        assert_eq!(bounded(Failure::pending(handle.clone())).message, handle);
    }
}
