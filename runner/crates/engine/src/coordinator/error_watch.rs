//! Watched reload: attempts after a reload are compared with those before, and a worse generation is rolled back.

use std::sync::Arc;

use super::{Action, Coordinator};
use crate::batch::result::{BatchResult, HaltReason};
use crate::generation::current::NumberedGeneration;
use crate::generation::step_changes::changed_steps;
use tidegate_config::{Configuration, WatchErrors};
use tidegate_dispatch::{AttemptShare, ErrorLimit, ErrorWatch, ErrorWatchEvent, RollBack, Swap};
use tidegate_model::Timestamp;

/// Request to roll a generation back.
#[derive(Debug)]
pub(crate) struct RollBackRequest {
    /// Number of the generation that is rolled back, if it still is the current one.
    pub(crate) from: u64,
    pub(crate) to: Arc<NumberedGeneration>,
    /// Configurations between them by which parts may have been renamed.
    pub(crate) between: Vec<Arc<Configuration>>,
    /// Reason: a sentence fragment.
    pub(crate) why: String,
}

/// Watch of the attempts, and the generations that it may go back to.
#[derive(Debug, Default)]
pub(crate) struct WatchedReload {
    watch: ErrorWatch,
    /// The last proven generation, and later ones that may be proven or that have renamed parts. They are kept with
    /// their scripts and plugins until a later one is proven.
    earlier: Vec<Arc<NumberedGeneration>>,
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
        let event = ErrorWatchEvent::Swapped(Swap { generation, limit, ..Swap::default() });
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
        // All steps are compared again, which a reload without a watch need not wait for.
        let changed = limit.map(|_| changed_steps(&earlier, &self.generation)).unwrap_or_default();
        self.watched_reload.is_rolled_back = false;
        self.watched_reload.earlier.push(earlier);
        let swap = Swap { generation, limit, watched, changed };
        self.watch_reload(ErrorWatchEvent::Swapped(swap), now, actions);
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
        let WatchedReload { watch, earlier, .. } = &mut self.watched_reload;
        let roll_back = watch.handle(event, now);
        earlier.retain(|generation| {
            let has_renamed = generation.configuration.former.is_written();
            watch.keeps(generation.number) || (has_renamed && generation.number > watch.proven())
        });
        let Some(RollBack { generation, to, step, since, after, before }) = roll_back else { return };
        let between = earlier.iter().filter(|earlier| earlier.number > to);
        let between = between.map(|earlier| Arc::clone(&earlier.configuration)).collect();
        let Some(to) = earlier.iter().find(|earlier| earlier.number == to).cloned() else { return };
        if self.stopping {
            return;
        }
        let Some(step) = self.generation.configuration.steps.get(step) else { return };
        let since = if since == generation { "then".to_owned() } else { format!("generation {since}") };
        let why = format!(
            "{} of {} attempts of `{}` failed since {since}, and {} of {} before",
            after.failed, after.attempts, step.address, before.failed, before.attempts
        );
        self.watched_reload.is_rolled_back = true;
        // A run whose last step has stopped goes on for the rollback.
        self.update_expectation();
        actions.push(Action::RollBack(RollBackRequest { from: generation, to, between, why }));
    }

    /// The requested rollback of a generation does not take place.
    pub(crate) fn is_not_rolled_back(&mut self, generation: u64, now: Timestamp, actions: &mut Vec<Action>) {
        // Another rollback may be requested since a later generation has taken over.
        if generation == self.generation.number {
            self.watch_reload(ErrorWatchEvent::NotRolledBack { generation }, now, actions);
            self.watched_reload.is_rolled_back = false;
            self.update_expectation();
        }
    }
}
