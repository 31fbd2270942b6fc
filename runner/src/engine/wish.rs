//! What a processor may ask for, and this version cannot carry out: such an attempt fails, and says so.

use tidegate_plugin::{Failure, FailureKind};

/// The failure that it is for now, of the kind that it was.
pub(super) fn unmet(mut failure: Failure) -> Failure {
    let wish = match failure.kind {
        FailureKind::Retry => "it asks for another attempt",
        FailureKind::RetryIn(_) => "it asks for another attempt later",
        FailureKind::GateClosed => "it holds the step back",
        FailureKind::Pending => "it leaves the job pending under this handle",
        _ => return failure,
    };
    failure.message.extend([" (", wish, ", which this version of Tidegate cannot carry out)"]);
    failure
}
