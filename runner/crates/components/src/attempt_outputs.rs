//! Outputs of an attempt: are kept if it succeeds, or if it makes its job pending.

use tidegate_plugin::{Failure, FailureKind};

/// Handles the outputs of an attempt by `then`, unless the attempt failed. An attempt that makes its job pending has
/// not failed: the commit that parks the job delivers the outputs.
///
/// # Errors
/// The failure of the attempt or of `then`, or the ending that makes the job pending.
#[inline]
pub fn after_outputs(
    attempt: Result<(), Failure>,
    then: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    match attempt {
        Err(failure) if failure.kind != FailureKind::Pending => Err(failure),
        kept => then().and(kept),
    }
}
