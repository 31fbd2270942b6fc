//! Reload on the committer: a generation becomes the current one, and steps are removed or start from the store.

use super::Committer;
use crate::commit::committed_state::CommittedState;
use crate::commit::request::{ReloadChange, Rewind, RewindTo, StepChange};
use crate::error::EngineError;
use crate::generation::bindings;
use crate::generation::current::NumberedGeneration;
use crate::recovery::claims;
use crate::recovery::rewind;
use crate::recovery::source_kinds;
use crate::recovery::start;
use crate::recovery::start_position;
use crate::recovery::step::StepRecovery;
use crate::report::ReplacedGenerations;
use crate::runtime::message::{Message, SwappedGeneration};
use crate::step::declared::DeclaredStep;
use std::sync::Arc;
use tidegate_config::{Input, Retain};
use tidegate_model::{RenamedPart, log_target};
use tidegate_store::{Changes, ENTRIES_MAX, HistoryChange, NewHistoryEntry, Renames};

impl Committer {
    /// Carries out a part of a reload.
    pub(crate) fn reload(&mut self, change: ReloadChange) -> Result<(), EngineError> {
        match change {
            ReloadChange::Swap { generation, entry, rolls_back, renamed } => {
                self.swap(generation, entry, rolls_back, renamed)
            }
            ReloadChange::Recorded(entry) => {
                let history = vec![HistoryChange::Add(*entry)];
                self.commit_all(&Changes { now: self.clock.now(), history, ..Changes::default() })
            }
            ReloadChange::Install { step, to } => self.install(&step, to),
            ReloadChange::Remove { step } => {
                self.log_removal(step);
                self.committed_state.remove(step);
                self.broken_steps.remove(&step);
                self.close_unused()
            }
        }
    }

    fn swap(
        &mut self,
        generation: Arc<NumberedGeneration>,
        entry: Option<NewHistoryEntry>,
        rolls_back: Option<ReplacedGenerations>,
        renamed: Vec<RenamedPart>,
    ) -> Result<(), EngineError> {
        let renamed = Renames { generation: generation.number, parts: renamed };
        let mut changes = Changes { now: self.clock.now(), renamed, ..Changes::default() };
        let before = &self.committed_state.generation.configuration;
        let tickers = start::tickers(&generation.configuration, Some(before), &self.store, &mut changes)?;
        start::record_generation(&generation, &self.store, &mut changes)?;
        changes.bindings = bindings::new(&generation.configuration, &changes.renamed.parts, &self.store)?;
        if let Some(ReplacedGenerations { first, why }) = rolls_back {
            let last = self.committed_state.generation.number;
            // Older ones are not in the history.
            let replaced = first.max(last.saturating_sub(ENTRIES_MAX))..=last;
            let replaced =
                replaced.map(|generation| HistoryChange::RolledBack { generation, why: why.clone() });
            changes.history.extend(replaced);
        }
        changes.history.extend(entry.map(HistoryChange::Add));
        self.commit_all(&changes)?;
        // The store has left out a rename whose new name has got something since it was planned.
        let renamed: Vec<RenamedPart> = self.store.name_history()?.of(generation.number).cloned().collect();
        self.sinks.rename(&renamed);
        self.committed_state.names.add(generation.number, renamed);
        let before = &self.committed_state.generation.configuration;
        let heads = source_kinds::heads(&generation.configuration, Some(before), &self.store)?;
        self.commit_all(&Changes { now: self.clock.now(), heads, ..Changes::default() })?;
        for (position, queue) in generation.configuration.queues.entries() {
            let head = self.store.queue(&queue.address)?.map_or(0, |queue| queue.head);
            self.committed_state.set_head(position, head);
        }
        self.tables.follow(&generation.configuration, &self.store, &self.ending)?;
        self.committed_state.generation = generation;
        self.publish_backlog();
        let late = start::first_late(self.committed_state.configuration(), &self.store)?;
        // A run that is over receives no messages; the same holds for all messages.
        let _ = self.messages.send(Message::Swapped(SwappedGeneration { tickers, late }));
        Ok(())
    }

    /// Logs that a step is removed, and warns of jobs that wait for it and that retention does not keep for it.
    fn log_removal(&self, step: usize) {
        let committed = &self.committed_state;
        let Some(removed) = committed.step(step) else { return };
        let configuration = committed.configuration();
        tracing::info!(
            target: log_target::ENGINE,
            step = %removed.declared.address,
            "the step is removed; its progress and its parked jobs are kept (a step with another name begins anew, unless \
             `was` names this one)"
        );
        for (input, progress) in removed.declared.inputs.iter().zip(&removed.progress) {
            let Input::Queue(queue) = input.input else { continue };
            let jobs = committed.head(queue).saturating_sub(progress.position());
            let Some(settings) = configuration.queues.get(queue.0) else { continue };
            let is_read = !configuration.readers(input.input).is_empty();
            if jobs > 0 && is_read && settings.retain == Retain::Consumed {
                tracing::warn!(
                    target: log_target::ENGINE,
                    step = %removed.declared.address, queue = %settings.address, jobs,
                    "jobs wait for the removed step: they are deleted when all other steps of the queue are past them"
                );
            }
        }
    }

    /// Starts a step of which nothing is in flight from the store, at these positions if they are given.
    fn install(&mut self, step: &DeclaredStep, to: Option<Vec<RewindTo>>) -> Result<(), EngineError> {
        if let Some(to) = to {
            self.put_back(step, to)?;
        }
        self.broken_steps.remove(&step.position);
        // A step whose sink broke has dropped its claims.
        self.commit_all(&claims::unbegun(
            &self.store,
            &self.attempts,
            Some(&step.address),
            self.clock.now(),
        )?)?;
        self.deliver_whole_tuples(step)?;
        let mut changes = Changes { now: self.clock.now(), ..Changes::default() };
        let mut recovery = StepRecovery {
            store: &self.store,
            sources: &mut self.sources,
            sinks: &mut self.sinks,
            committed: &mut self.committed_state,
            stopped: &self.ending,
        };
        // Without a result the run ends.
        let Some(installed) = recovery.recover(step, &mut changes)? else { return Ok(()) };
        self.commit_all(&changes)?;
        start_position::log_starts(&changes);
        self.close_unused()?;
        self.publish_unmatched(step.position);
        let _ = self.messages.send(Message::Installed(Box::new(installed)));
        Ok(())
    }

    /// Puts the progress of a step back.
    fn put_back(&mut self, step: &DeclaredStep, mut to: Vec<RewindTo>) -> Result<(), EngineError> {
        let Some(before) = self.committed_state.step(step.position) else { return Ok(()) };
        let step = before.declared.clone();
        self.cancel_if_deleted(&step, &mut to)?;
        // A rename may be part of the change that the replay waited for.
        let names = self.committed_state.names.since(step.generation.number);
        let mut waiting = Vec::new();
        for (input, to) in step.inputs.iter().zip(&to) {
            waiting.push(match to {
                RewindTo::Index(_) => rewind::waiting(
                    &self.store,
                    &names.step(&step.address),
                    &names.input(&input.hash_name()),
                )?,
                RewindTo::Behind(_) | RewindTo::Stay => Vec::new(),
            });
        }
        let group = [StepChange::Rewind(Rewind { step, to, waiting })];
        let page = self.committed_state.prepare(&group, &Vec::new(), self.clock.now());
        self.commit_all(&page.changes)?;
        self.committed_state.apply(&group, page);
        Ok(())
    }

    /// Closes the sources and sinks that no step uses any more.
    fn close_unused(&mut self) -> Result<(), EngineError> {
        let Self { sinks, sources, committed_state, .. } = self;
        sources.keep(|source| committed_state.reads_source(source));
        let (unused, closing) = sinks.unused(|sink| committed_state.uses_sink(sink));
        let mut changes = Changes { now: self.clock.now(), ..Changes::default() };
        CommittedState::add_sinks(&closing, &mut changes);
        self.commit_all(&changes)?;
        self.sinks.close(&unused);
        Ok(())
    }

    /// Commits changes as often as it takes; nothing, if there are none.
    fn commit_all(&mut self, changes: &Changes) -> Result<(), EngineError> {
        let mut logged = false;
        while start::has_news(changes) && self.commit_changes(changes, &mut logged)?.is_none() {}
        Ok(())
    }
}
