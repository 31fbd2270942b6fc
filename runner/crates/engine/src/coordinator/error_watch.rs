//! Watched reload: attempts after a reload are compared with those before, and a worse generation is rolled back.

use std::sync::Arc;

use super::{Action, Coordinator};
use crate::batch::result::{BatchResult, HaltReason};
use crate::generation::current::NumberedGeneration;
use tidegate_config::WatchErrors;
use tidegate_dispatch::{AttemptShare, ErrorLimit, ErrorWatch, ErrorWatchEvent, RollBack};
use tidegate_model::Timestamp;

/// Request to roll a generation back.
#[derive(Debug)]
pub(crate) struct RollBackRequest {
    /// Number of the generation that is rolled back, if it still is the current one.
    pub(crate) from: u64,
    pub(crate) to: Arc<NumberedGeneration>,
    /// Reason: a sentence fragment.
    pub(crate) why: String,
}

/// Watch of the current generation, and the generation before it.
#[derive(Debug, Default)]
pub(crate) struct WatchedReload {
    watch: ErrorWatch,
    /// Generation before the watched one. It is kept with its scripts and plugins while the watch lasts.
    earlier: Option<Arc<NumberedGeneration>>,
    /// Whether a rollback is requested, and not carried out.
    is_rolled_back: bool,
}

impl WatchedReload {
    pub(crate) fn wakes(&self) -> Option<Timestamp> {
        self.watch.wakes()
    }

    pub(crate) fn is_rolled_back(&self) -> bool {
        self.is_rolled_back
    }
}

impl Coordinator {
    /// Counts attempts from the start on.
    pub(crate) fn begin_to_watch(&mut self, now: Timestamp) {
        let (generation, limit) = (self.generation.number, self.error_limit());
        let event = ErrorWatchEvent::Swapped { generation, limit, watched: false };
        // Nothing is watched before.
        let _ = self.watched_reload.watch.handle(event, now);
    }

    fn error_limit(&self) -> Option<ErrorLimit> {
        let watch = self.generation.configuration.settings.reload.watch_errors.as_ref();
        watch.map(|&WatchErrors { rate, within }| ErrorLimit { rate, within })
    }

    /// Watches the generation that has just replaced `earlier`, unless it is a rollback.
    pub(crate) fn watch_swap(
        &mut self,
        earlier: Arc<NumberedGeneration>,
        watched: bool,
        now: Timestamp,
        actions: &mut Vec<Action>,
    ) {
        let (generation, limit) = (self.generation.number, self.error_limit());
        self.watched_reload.is_rolled_back = false;
        self.watched_reload.earlier = Some(earlier);
        self.watch_reload(ErrorWatchEvent::Swapped { generation, limit, watched }, now, actions);
    }

    /// Counts the attempts of a batch.
    pub(crate) fn watch_attempts(
        &mut self,
        (step, version): (usize, u64),
        ran: &BatchResult,
        now: Timestamp,
        actions: &mut Vec<Action>,
    ) {
        let mut share = ran.attempts;
        if ran.halt.as_ref().is_some_and(|halt| halt.halts == HaltReason::Run) {
            // The step cannot be set up: no job was attempted.
            share.add(AttemptShare { attempts: 1, failed: 1 });
        }
        if share.attempts > 0 {
            self.watch_reload(ErrorWatchEvent::Attempted { step, version, share }, now, actions);
        }
        if ran.halt.is_some() {
            self.watch_reload(ErrorWatchEvent::Stopped { step, version }, now, actions);
        }
    }

    pub(crate) fn watch_reload(&mut self, event: ErrorWatchEvent, now: Timestamp, actions: &mut Vec<Action>) {
        let roll_back = self.watched_reload.watch.handle(event, now);
        let earlier = match self.watched_reload.watch.watched() {
            Some(_) => None,
            None => self.watched_reload.earlier.take(),
        };
        let (Some(roll_back), Some(to)) = (roll_back, earlier) else { return };
        if self.stopping {
            return;
        }
        let RollBack { generation, step, after, before } = roll_back;
        let Some(step) = self.generation.configuration.steps.get(step) else { return };
        let why = format!(
            "{} of {} attempts of `{}` failed since then, and {} of {} before",
            after.failed, after.attempts, step.address, before.failed, before.attempts
        );
        self.watched_reload.is_rolled_back = true;
        // A run whose last step has stopped goes on for the rollback.
        self.update_expectation();
        actions.push(Action::RollBack(RollBackRequest { from: generation, to, why }));
    }

    /// The requested rollback does not take place.
    pub(crate) fn is_not_rolled_back(&mut self) {
        self.watched_reload.is_rolled_back = false;
        self.update_expectation();
    }
}
