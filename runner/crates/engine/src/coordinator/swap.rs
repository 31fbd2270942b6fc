//! Swap: a new generation takes over from the current one, step by step.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::handover::NextStep;
use super::late_jobs::LateJobs;
use super::{Action, Coordinator};
use crate::commit::request::{CommitRequest, ReloadChange};
use crate::generation::step_changes::{StepDifference, difference, must_wait};
use crate::report::ReloadOutcome;
use crate::runtime::message::{ReloadRequest, SwappedGeneration};
use crate::step::declared::DeclaredStep;
use tidegate_config::{Configuration, PushSource, Source, SourceKind};
use tidegate_dispatch::{Command, Event};
use tidegate_model::{Address, Restart, Timestamp};

/// Longest time that the answer to a reload waits for steps that still deliver what they have begun.
const ANSWER_AFTER: Duration = Duration::from_secs(2);

/// Reload that is not answered.
#[derive(Debug)]
pub(crate) struct PendingReload {
    request: ReloadRequest,
    /// Time of the answer, although steps still hand over.
    answer_at: Timestamp,
}

impl Coordinator {
    /// Begins to carry out another generation. Its number becomes durable first.
    pub(crate) fn swap(&mut self, request: ReloadRequest, now: Timestamp, actions: &mut Vec<Action>) {
        // The next request comes after the answer to this one.
        debug_assert!(self.swapping.is_none());
        if self.stopping {
            // The closed channel is the answer.
            return;
        }
        let (generation, entry) = (Arc::clone(&request.generation), request.entry.clone());
        let (rolls_back, renamed) = (request.rolls_back.clone(), request.renamed.clone());
        self.ticks.keep(&self.generation.configuration, &generation.configuration);
        actions.push(Action::Commit(CommitRequest::Reload(ReloadChange::Swap {
            generation,
            entry,
            rolls_back,
            renamed,
        })));
        self.swapping = Some(PendingReload { request, answer_at: now + ANSWER_AFTER });
        self.update_expectation();
    }

    /// Carries out the generation that is the current one in the store now.
    pub(crate) fn swapped(
        &mut self,
        swapped: SwappedGeneration,
        now: Timestamp,
        commands: &mut Vec<Command>,
        actions: &mut Vec<Action>,
    ) {
        let Some(reload) = self.swapping.take() else { return };
        let generation = Arc::clone(&reload.request.generation);
        actions.push(Action::Publish(Arc::clone(&generation)));
        let earlier = std::mem::replace(&mut self.generation, Arc::clone(&generation));
        let before = Arc::clone(&earlier.configuration);
        self.watch_swap(earlier, reload.request.rolls_back.is_none(), now, actions);
        self.ticks.add(swapped.tickers);
        if !self.stopping {
            self.follow_commands(now, actions);
        }
        self.late = LateJobs::new(swapped.late);
        self.lets_go = super::timers::first_look(&generation.configuration);
        self.dispatcher.set_unbounded(self.is_unbounded());
        if !self.stopping {
            let steps: Vec<DeclaredStep> = self.steps.iter().map(|state| state.declared.clone()).collect();
            for declared in &steps {
                self.forget_halt_of_renamed(declared, &before);
                self.follow_generation(declared, now, commands);
            }
            self.remove_handed_over(&generation, now, commands);
            for &position in generation.configuration.steps.order() {
                if self.steps.get(position).is_none() {
                    self.start_step(position, now, commands);
                }
            }
            self.dispatcher.set_order(generation.configuration.steps.order());
        }
        self.reloads.push(reload);
        self.advance_handovers(now, commands, actions);
        self.update_expectation();
        self.answer_reload(actions);
        self.run_timers(now, actions);
        self.dispatcher.handle(Event::Tick, now, commands);
    }

    /// Lets an installed step follow the current generation: at once, or after a handover.
    pub(crate) fn follow_generation(
        &mut self,
        declared: &DeclaredStep,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) {
        let (position, generation) = (declared.position, Arc::clone(&self.generation));
        if Arc::ptr_eq(&declared.generation, &generation) {
            return;
        }
        if generation.configuration.steps.get(position).is_none() {
            let next = NextStep::Remove { address: declared.address.clone() };
            return self.hand_over(position, next, BTreeSet::new(), now, commands);
        }
        let new = DeclaredStep::new(&generation, position);
        let difference = match difference(declared, &new) {
            // A step that has stopped is taken up again.
            StepDifference::InPlace if self.dispatcher.is_halted(position) => StepDifference::Anew,
            difference => difference,
        };
        let hands_over = self.handovers.contains_key(&position);
        match difference {
            StepDifference::None | StepDifference::InPlace if hands_over => {
                self.start_step(position, now, commands);
            }
            StepDifference::Anew => self.start_step(position, now, commands),
            StepDifference::None => self.declare(position, declared.unchanged(&generation)),
            StepDifference::InPlace => {
                self.live_versions.push((position, new.version));
                self.declare(position, new);
                if let Some(state) = self.steps.get_mut(position) {
                    state.changed_at = Some(now);
                }
            }
        }
    }

    /// Whether the run does not end by itself: clients and schedules push jobs, files are followed, or a command
    /// always starts again.
    pub(crate) fn is_unbounded(&self) -> bool {
        let configuration = &self.generation.configuration;
        let follows = |source: &Source| match &source.kind {
            SourceKind::File(file) => file.follow,
            SourceKind::Service(service) => service.until.is_none(),
        };
        let pushes = |source: &PushSource| match source {
            PushSource::Http(_) | PushSource::Schedule(_) => true,
            PushSource::Exec(command) => command.restart == Restart::Always,
        };
        configuration.sources.iter().any(follows)
            || configuration.queues.iter().any(|queue| queue.source.as_ref().is_some_and(pushes))
    }

    /// A step that is renamed reports its stop under the new name. `before`: the configuration that was in force, which
    /// the step may not have followed yet.
    fn forget_halt_of_renamed(&mut self, declared: &DeclaredStep, before: &Configuration) {
        let position = declared.position;
        let Some(step) = self.generation.configuration.steps.get(position) else { return };
        let had_name = before.steps.get(position).is_none_or(|before| before.address == step.address);
        if declared.address != step.address || !had_name {
            self.halts.retain(|halt| halt.position != Some(position));
        }
    }

    fn declare(&mut self, position: usize, declared: DeclaredStep) {
        if let Some(state) = self.steps.get_mut(position) {
            state.declared = declared;
        }
    }

    /// Starts a step of the current generation, after those that still use its sources and sinks otherwise.
    pub(crate) fn start_step(&mut self, position: usize, now: Timestamp, commands: &mut Vec<Command>) {
        let step = DeclaredStep::new(&self.generation, position);
        let others = self.steps.iter().filter(|other| other.declared.position != position);
        let others = others.filter(|other| must_wait(&step, &other.declared));
        let waits_for = others.map(|other| other.declared.position).collect();
        self.hand_over(position, NextStep::Install { step, replay: None }, waits_for, now, commands);
    }

    /// Answers the reloads whose steps have all taken over, or that have waited long enough.
    pub(crate) fn answer_reload(&mut self, actions: &mut Vec<Action>) {
        if self.handovers.is_empty() {
            for PendingReload { request, .. } in self.reloads.drain(..) {
                actions.push(answer(request, Vec::new()));
            }
        }
    }

    /// Answers the reloads that have waited long enough.
    pub(crate) fn answer_late_reloads(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        if self.reloads.is_empty() {
            return;
        }
        let lingering: Vec<Address> = self.lingering().into_iter().map(|lingering| lingering.step).collect();
        let (late, open) =
            std::mem::take(&mut self.reloads).into_iter().partition(|one| one.answer_at <= now);
        self.reloads = open;
        let late: Vec<PendingReload> = late;
        actions.extend(late.into_iter().map(|reload| answer(reload.request, lingering.clone())));
    }

    /// Time of the next answer that waits for no step any more.
    pub(crate) fn reload_wakes(&self) -> Option<Timestamp> {
        self.reloads.iter().map(|reload| reload.answer_at).min()
    }
}

/// The answer comes after the generation is published, so that the next reload continues from it.
fn answer(request: ReloadRequest, lingering: Vec<Address>) -> Action {
    let outcome = ReloadOutcome { number: request.generation.number, lingering };
    Action::AnswerReload(request.reply, outcome)
}
