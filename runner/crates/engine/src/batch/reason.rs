//! Failure reasons: are limited to 8 KiB, because each attempt stores and lists them again.

use tidegate_plugin::{Failure, FailureKind};

use tidegate_model::shortened;

/// Maximum bytes of a reason, and of the context that its author gives.
pub(crate) const BYTES_MAX: usize = 8 << 10;

/// Shortens the message and the context if they are too long. A shortened context becomes a text.
pub(crate) fn bounded(mut failure: Failure) -> Failure {
    // The message of a pending job is its handle, and not a reason.
    if failure.kind == FailureKind::Pending {
        return failure;
    }
    failure.message = shortened(failure.message, BYTES_MAX);
    if let Some(context) = failure.context.take_if(|context| context.len() > BYTES_MAX) {
        let text = serde_json::Value::String(shortened(context.into_string(), BYTES_MAX));
        failure.context = Some(text.to_string().into());
    }
    failure
}

/// Text of a reason within the limit.
pub(crate) fn bounded_text(why: String) -> String {
    shortened(why, BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

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
