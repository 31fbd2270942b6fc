//! Claim recovery: gives back the claimed jobs that were not begun when the last run ended.

use crate::error::EngineError;
use tidegate_model::{Address, Timestamp};
use tidegate_store::{Changes, CrashGuard, ParkedId, Store, Writer};

/// Starts the record of begun jobs, and gives back the claimed jobs that were not begun in the last run.
pub(crate) fn recover(
    store: &Store,
    writer: &mut Writer,
    attempts: &CrashGuard,
    now: Timestamp,
) -> Result<(), EngineError> {
    let claimed: Vec<ParkedId> = store.all_claimed()?.into_iter().map(|(key, _)| key.id).collect();
    attempts.recall(&claimed);
    let changes = unbegun(store, attempts, None, now)?;
    if !changes.reparked.is_empty() {
        writer.commit(&changes)?;
    }
    Ok(())
}

/// The change that gives back the claimed jobs of a step, or of all steps, that were not begun. Nothing of the step is
/// in flight.
pub(crate) fn unbegun(
    store: &Store,
    attempts: &CrashGuard,
    step: Option<&Address>,
    now: Timestamp,
) -> Result<Changes, EngineError> {
    let claimed = store.all_claimed()?.into_iter();
    let unbegun =
        claimed.filter(|(key, _)| step.is_none_or(|step| key.step == *step) && !attempts.has_begun(key.id));
    let reparked = unbegun.map(|(key, job)| (key, job.unclaimed())).collect();
    Ok(Changes { now, reparked, ..Changes::default() })
}
