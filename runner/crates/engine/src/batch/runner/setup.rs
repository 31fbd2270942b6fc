//! Step setup: handles the jobs of a batch while the step cannot be set up.
//!
//! If the setup has never succeeded in this run, and the code does not request a retry, the step stops.
//! Otherwise the setup is retried later, and no job is blamed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_plugin::{Failure, FailureKind};

use crate::batch::job_builder::JobInput;
use crate::batch::retry::RetryDecider;
use tidegate_model::Timestamp;

/// State of the setup on one thread.
#[derive(Debug)]
pub(crate) struct SetupState {
    /// Whether the setup has succeeded in this run, on any thread.
    ever: Arc<AtomicBool>,
    /// Number of failures on this thread since the last success.
    setbacks: u32,
}

/// Failed setup.
#[derive(Clone, Debug)]
pub(crate) struct SetupFailure {
    pub(crate) failure: Failure,
    /// Time before which the step starts nothing; `None`: the step stops.
    pub(crate) until: Option<Timestamp>,
}

impl SetupState {
    pub(crate) fn new(ever: Arc<AtomicBool>) -> Self {
        Self { ever, setbacks: 0 }
    }

    /// Whether `item` can be attempted: runs `set_up`, unless that has failed in this batch.
    pub(crate) fn ready(
        &mut self,
        setback: Option<&SetupFailure>,
        item: &JobInput<'_>,
        set_up: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        // The job fails on its own, or it is a delayed output.
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

    pub(crate) fn failed(
        &mut self,
        failure: Failure,
        retrying: &RetryDecider,
        now: Timestamp,
    ) -> SetupFailure {
        let asks =
            matches!(failure.kind, FailureKind::Retry | FailureKind::RetryIn(_) | FailureKind::GateClosed);
        if !asks && !self.ever.load(Ordering::Acquire) {
            return SetupFailure { failure, until: None };
        }
        self.setbacks = self.setbacks.saturating_add(1);
        let until = Some(retrying.set_up_again(&failure, self.setbacks, now));
        SetupFailure { failure, until }
    }
}
