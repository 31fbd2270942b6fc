//! What becomes of the jobs of a batch while what the step runs cannot be set up.
//!
//! Where it could never be set up in this run, and the code does not ask for another time, the step stops.
//! Otherwise it is set up again later, and no job is at fault.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_plugin::{Failure, FailureKind};

use crate::gather::Item;
use crate::retrying::Retrying;
use tidegate_model::Timestamp;

/// What is known on one thread of setting up what the step runs.
#[derive(Debug)]
pub(crate) struct Setup {
    /// It was set up before in this run, on whatever thread.
    ever: Arc<AtomicBool>,
    /// How often it has failed since it was set up last on this one.
    setbacks: u32,
}

/// What the step runs could not be set up.
#[derive(Clone, Debug)]
pub(crate) struct Setback {
    pub(crate) failure: Failure,
    /// The step starts nothing before this; `None`: it stops.
    pub(crate) until: Option<Timestamp>,
}

impl Setup {
    pub(crate) fn new(ever: Arc<AtomicBool>) -> Self {
        Self { ever, setbacks: 0 }
    }

    /// Whether `item` can be attempted: after `set_up`, unless that has failed in this batch.
    pub(crate) fn ready(
        &mut self,
        setback: Option<&Setback>,
        item: &Item<'_>,
        set_up: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        // It fails by itself, or is an output that was made before.
        if item.fault.is_some() || item.to.is_some() {
            return Ok(());
        }
        match setback {
            Some(setback) => Err(setback.failure.clone()),
            None => set_up().map(|()| self.succeeded()),
        }
    }

    pub(crate) fn succeeded(&mut self) {
        if self.setbacks > 0 || !self.ever.load(Ordering::Acquire) {
            self.ever.store(true, Ordering::Release);
            self.setbacks = 0;
        }
    }

    pub(crate) fn failed(&mut self, failure: Failure, retrying: &Retrying, now: Timestamp) -> Setback {
        let asks =
            matches!(failure.kind, FailureKind::Retry | FailureKind::RetryIn(_) | FailureKind::GateClosed);
        if !asks && !self.ever.load(Ordering::Acquire) {
            return Setback { failure, until: None };
        }
        self.setbacks = self.setbacks.saturating_add(1);
        let until = Some(retrying.set_up_again(&failure, self.setbacks, now));
        Setback { failure, until }
    }
}
