//! Stand-by: waits until the process that holds a store releases it.

use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::signals::Signals;
use crate::supervisor;
use tidegate_model::log_target;
use tidegate_store::{OpenError, Store, Writer};

/// Time between two attempts to open the store. The system releases a lock when a process ends, but sends no notice of it.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

/// A store that is open now.
pub(crate) struct Opened {
    pub(crate) store: Store,
    pub(crate) writer: Writer,
    /// Another process had it before.
    pub(crate) waited: bool,
}

impl Opened {
    pub(crate) fn at_once((store, writer): (Store, Writer)) -> Self {
        Self { store, writer, waited: false }
    }
}

/// Opens the store, without a limit of time. Returns `None` if a signal asks for an end before.
pub(crate) fn wait_for_store(data: &Path, signals: &Signals) -> Result<Option<Opened>, OpenError> {
    let mut waited = false;
    loop {
        match tidegate_store::open(data) {
            Ok((store, writer)) => {
                if waited {
                    tracing::info!(target: log_target::RUNNER, "taking over the store");
                }
                return Ok(Some(Opened { store, writer, waited }));
            }
            Err(error @ OpenError::Locked { .. }) if !waited => {
                waited = true;
                let OpenError::Locked { holder, .. } = &error else { continue };
                tracing::info!(target: log_target::RUNNER, "waiting for the store, which is in use by {holder}");
                supervisor::ready("waiting for the store of another runner");
            }
            Err(OpenError::Locked { .. }) => {}
            Err(error) => return Err(error),
        }
        if signals.is_asked() {
            return Ok(None);
        }
        thread::sleep(PAUSE);
    }
}
