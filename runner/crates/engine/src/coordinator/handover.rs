//! Handover: a step delivers what it has begun, and then starts anew from the store, or ends.
//!
//! A reload that changes a step, a reload that removes it, a replay, and a halted step that is taken up again go
//! this way. While one step hands over, all others go on.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Action, Coordinator};
use crate::commit::request::{CommitRequest, ReloadChange, RewindTo};
use crate::generation::current::NumberedGeneration;
use crate::operator::request::{PendingRequest, Request, RequestOutcome};
use crate::recovery::step::InstalledStep;
use crate::report::LingeringStep;
use crate::runtime::live_versions::GONE;
use crate::step::declared::DeclaredStep;
use crate::step::state::StepState;
use tidegate_config::Input;
use tidegate_dispatch::{Command, Event, InputPort};
use tidegate_model::log_target;
use tidegate_model::{Address, Timestamp, grouped};

/// Step on its way from one installation to the next.
#[derive(Debug)]
pub(crate) struct Handover {
    next: NextStep,
    phase: HandoverPhase,
    /// Steps that must release a source or a sink first.
    waits_for: BTreeSet<usize>,
    since: Timestamp,
    /// Requests for the step that came after it was removed from memory.
    requests: Vec<PendingRequest>,
}

/// The end of a handover.
#[derive(Debug)]
pub(crate) enum NextStep {
    Install {
        step: DeclaredStep,
        /// Replay to carry out first, with its request.
        replay: Option<Box<(Vec<RewindTo>, PendingRequest)>>,
    },
    Remove {
        address: Address,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandoverPhase {
    /// Its begun jobs are being delivered.
    Draining,
    /// Nothing of it is in flight.
    Drained,
    /// The committer reads its state.
    Installing,
}

impl NextStep {
    fn address(&self) -> &Address {
        match self {
            Self::Install { step, .. } => &step.address,
            Self::Remove { address } => address,
        }
    }
}

fn unknown_step(address: &Address) -> String {
    format!("the runner has no step `{address}`")
}

impl Coordinator {
    /// Adds a step that is ready to start.
    pub(crate) fn install(&mut self, step: InstalledStep, now: Timestamp, actions: &mut Vec<Action>) {
        let InstalledStep { declared, plan, readers, heads, parked, paused, monitor_paused, lanes, halts } =
            step;
        let position = declared.position;
        let epoch = self.next_epoch;
        self.next_epoch += 1;
        for (queue, head) in heads {
            self.dispatcher.set_head(queue, head);
        }
        let next = plan.inputs.iter().map(|input| input.next).collect();
        let stats = self.stats.step(position);
        stats.restart();
        self.steps.insert(position, StepState::new(declared.clone(), epoch, next, stats));
        self.dispatcher.install(position, plan);
        self.halts.retain(|halt| halt.position != Some(position));
        // Before its pending jobs: it would be asked about them.
        if monitor_paused {
            self.pause_monitor(position, true, now);
        }
        for (key, job) in parked {
            self.restore_parked_job(position, &key, &job, now);
        }
        for (lane, hold) in lanes {
            self.dispatcher.hold_lane(position, &lane, Some(hold));
        }
        if paused {
            let resume = declared.configuration().command(&format!("step resume {}", declared.address));
            tracing::warn!(target: log_target::ENGINE, step = %declared.address, "the step is paused; `{resume}` resumes it");
            self.dispatcher.pause(position);
        }
        if let Some(why) = halts.into_iter().next() {
            self.halt(position, why, now);
            self.dispatcher.exclude(position);
            return;
        }
        for (input, reader) in readers {
            let port = InputPort::of_input(position, input);
            let health = match declared.inputs.get(input).map(|input| input.input) {
                Some(Input::Source(source)) => self.stats.service(source),
                Some(Input::Queue(_)) | None => Arc::default(),
            };
            actions.push(Action::OpenReader { port, epoch, reader: Box::new(reader), health });
        }
    }

    /// Begins the handover of a step, or gives the one under way another end.
    pub(crate) fn hand_over(
        &mut self,
        step: usize,
        next: NextStep,
        waits_for: BTreeSet<usize>,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) {
        if let Some(handover) = self.handovers.get_mut(&step) {
            handover.waits_for.extend(waits_for);
            // A step that is being installed is compared with the current generation afterwards.
            if handover.phase != HandoverPhase::Installing {
                let before = std::mem::replace(&mut handover.next, next);
                if let NextStep::Install { replay: Some(before), .. } = before {
                    match &mut handover.next {
                        NextStep::Install { replay, .. } => *replay = Some(before),
                        NextStep::Remove { address } => before.1.answer(Err(unknown_step(address))),
                    }
                }
            }
            return;
        }
        let runs = self.steps.get(step).is_some();
        let phase = if runs { HandoverPhase::Draining } else { HandoverPhase::Drained };
        self.handovers.insert(step, Handover { next, phase, waits_for, since: now, requests: Vec::new() });
        self.update_expectation();
        if runs {
            self.dispatcher.handle(Event::Drain { step }, now, commands);
        }
    }

    /// Lets the steps that are on their way from one installation to the next end, if a generation does not have them. A
    /// step of an earlier generation would read its inputs under names that they may have no more.
    pub(crate) fn remove_handed_over(
        &mut self,
        generation: &NumberedGeneration,
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) {
        let gone = self.handovers.iter().filter(|(position, _)| {
            self.steps.get(**position).is_none() && generation.configuration.steps.get(**position).is_none()
        });
        let gone: Vec<(usize, Address)> =
            gone.map(|(position, handover)| (*position, handover.next.address().clone())).collect();
        for (position, address) in gone {
            self.hand_over(position, NextStep::Remove { address }, BTreeSet::new(), now, commands);
        }
    }

    /// Handles that nothing of a step is in flight.
    pub(crate) fn drained(
        &mut self,
        step: usize,
        now: Timestamp,
        commands: &mut Vec<Command>,
        actions: &mut Vec<Action>,
    ) {
        self.steps.remove(step);
        actions.push(Action::CloseReaders(step));
        if let Some(handover) = self.handovers.get_mut(&step) {
            handover.phase = HandoverPhase::Drained;
            let first = match &handover.next {
                NextStep::Install { step, .. } => step.version,
                NextStep::Remove { .. } => GONE,
            };
            self.live_versions.push((step, first));
        }
        self.handovers.values_mut().for_each(|handover| _ = handover.waits_for.remove(&step));
        self.advance_handovers(now, commands, actions);
        // The run may be over without a step that was removed.
        self.dispatcher.handle(Event::Tick, now, commands);
    }

    /// Requests the installation or the removal of the steps that are ready for it.
    pub(crate) fn advance_handovers(
        &mut self,
        now: Timestamp,
        commands: &mut Vec<Command>,
        actions: &mut Vec<Action>,
    ) {
        // A run that ends starts nothing; the next one reads the same state.
        if self.stopping || self.swapping.is_some() {
            return;
        }
        let mut removed = Vec::new();
        for (&step, handover) in &mut self.handovers {
            if handover.phase != HandoverPhase::Drained || !handover.waits_for.is_empty() {
                continue;
            }
            handover.phase = HandoverPhase::Installing;
            actions.push(Action::Commit(CommitRequest::Reload(match &handover.next {
                NextStep::Install { step, replay } => {
                    let to = replay.as_ref().map(|replay| replay.0.clone());
                    ReloadChange::Install { step: step.clone(), to }
                }
                NextStep::Remove { .. } => {
                    removed.push(step);
                    ReloadChange::Remove { step }
                }
            })));
        }
        for step in removed {
            for asked in self.end_handover(step, &[], actions) {
                self.accept_request(asked, now, commands, actions);
            }
        }
    }

    /// Adds the step that the committer has read.
    pub(crate) fn installed(
        &mut self,
        step: InstalledStep,
        now: Timestamp,
        commands: &mut Vec<Command>,
        actions: &mut Vec<Action>,
    ) {
        if self.stopping {
            return;
        }
        let declared = step.declared.clone();
        let position = declared.position;
        let inputs = declared.inputs.iter().zip(&step.plan.inputs);
        let from: Vec<(Address, u64)> =
            inputs.map(|(input, plan)| (input.address.clone(), plan.next)).collect();
        self.install(step, now, actions);
        self.live_versions.push((position, declared.version));
        self.dispatcher.set_order(self.generation.configuration.steps.order());
        let requests = self.end_handover(position, &from, actions);
        for asked in requests {
            self.accept_request(asked, now, commands, actions);
        }
        // A later reload may have changed the step meanwhile.
        self.follow_generation(&declared, now, commands);
        self.advance_handovers(now, commands, actions);
        self.dispatcher.handle(Event::Tick, now, commands);
    }

    /// Ends the handover of a step that starts at these positions. Returns the requests that waited for it.
    fn end_handover(
        &mut self,
        step: usize,
        from: &[(Address, u64)],
        actions: &mut Vec<Action>,
    ) -> Vec<PendingRequest> {
        let Some(Handover { next, requests, .. }) = self.handovers.remove(&step) else { return Vec::new() };
        if let NextStep::Install { replay: Some(replay), .. } = next {
            replay.1.answer(Ok(RequestOutcome::Replayed { from: from.to_vec() }));
        }
        self.update_expectation();
        self.answer_reload(actions);
        requests
    }

    /// Keeps a request for a step that is not in memory now. Returns any other request.
    pub(crate) fn wait_for_handover(&mut self, asked: PendingRequest) -> Option<PendingRequest> {
        let Some(step) = asked.request.step().cloned() else { return Some(asked) };
        let handover = self.handovers.values_mut().find(|handover| *handover.next.address() == step);
        match handover.filter(|handover| handover.phase != HandoverPhase::Draining) {
            Some(handover) => {
                handover.requests.push(asked);
                None
            }
            None => Some(asked),
        }
    }

    /// Requests a replay or a skip: the step delivers what it has begun, and starts at the requested positions.
    pub(crate) fn replay(&mut self, asked: PendingRequest, now: Timestamp, commands: &mut Vec<Command>) {
        let (address, given, place): (_, _, fn(u64) -> RewindTo) = match &asked.request {
            Request::Replay { step, from } => (step, from, RewindTo::Index),
            Request::Skip { step, up_to } => (step, up_to, RewindTo::Behind),
            _ => return,
        };
        let Some(position) = self.position(address) else {
            return asked.answer(Err(unknown_step(address)));
        };
        if self.handovers.contains_key(&position) {
            let why = format!("step `{address}` is being replayed or changed already; try again");
            return asked.answer(Err(why));
        }
        let Some(StepState { declared, .. }) = self.steps.get(position) else {
            return asked.answer(Err(unknown_step(address)));
        };
        // Jobs in flight are not accounted for yet, so the positions of the other inputs are known later.
        let at = |input: &tidegate_config::InputRef| {
            let found = given.iter().find(|(address, _)| *address == input.address);
            found.map_or(RewindTo::Stay, |&(_, index)| place(index))
        };
        let (to, step) = (declared.inputs.iter().map(at).collect(), declared.clone());
        let next = NextStep::Install { step, replay: Some(Box::new((to, asked))) };
        self.hand_over(position, next, BTreeSet::new(), now, commands);
    }

    /// Whether the request starts a step again that has stopped. The step is no longer shown as stopped then.
    pub(crate) fn restarts(&self, request: &Request) -> bool {
        let Request::Pause { step, paused: false } = request else { return false };
        let halted = |position: &usize| !self.stopping && self.dispatcher.is_halted(*position);
        let Some(position) = self.position(step).filter(halted) else { return false };
        self.stats.step(position).restart();
        true
    }

    /// Starts a step again that has stopped, from the store.
    pub(crate) fn restart_stopped(
        &mut self,
        step: usize,
        now: Timestamp,
        commands: &mut Vec<Command>,
        actions: &mut Vec<Action>,
    ) {
        if self.stopping || !self.dispatcher.is_halted(step) || self.handovers.contains_key(&step) {
            return;
        }
        self.start_step(step, now, commands);
        self.advance_handovers(now, commands, actions);
    }

    /// Number of the step's installation.
    #[cfg(test)]
    pub(crate) fn epoch(&self, step: usize) -> Option<u64> {
        self.steps.get(step).map(|state| state.epoch)
    }

    /// Lets a step drain and start again from the store. Returns whether it is installed now.
    #[cfg(test)]
    pub(crate) fn replace(&mut self, step: usize, now: Timestamp, actions: &mut Vec<Action>) -> bool {
        let Some(state) = self.steps.get(step).filter(|_| !self.handovers.contains_key(&step)) else {
            return false;
        };
        let (next, mut commands) =
            (NextStep::Install { step: state.declared.clone(), replay: None }, Vec::new());
        self.hand_over(step, next, BTreeSet::new(), now, &mut commands);
        self.execute_commands(commands, now, actions);
        true
    }

    /// Steps that hand over, with the reasons.
    pub(crate) fn lingering(&self) -> Vec<LingeringStep> {
        let handovers = self.handovers.iter();
        let handing_over = handovers.map(|(&position, handover)| {
            let (step, since) = (handover.next.address().clone(), handover.since);
            LingeringStep { step, since, why: self.why_lingering(position, handover) }
        });
        let in_place = self.steps.entries().filter(|(position, _)| !self.handovers.contains_key(position));
        let finishing = in_place.filter_map(|(_, state)| {
            let (since, step) = (state.changed_at?, state.declared.address.clone());
            let jobs = state.jobs_of_earlier_versions();
            (jobs > 0).then(|| LingeringStep { step, since, why: not_committed(jobs) })
        });
        handing_over.chain(finishing).collect()
    }

    fn why_lingering(&self, position: usize, handover: &Handover) -> String {
        if handover.phase == HandoverPhase::Installing {
            return "its state is being read from the store".to_owned();
        }
        let own =
            self.steps.get(position).map_or(0, |state| state.batches.values().map(|b| b.work.jobs).sum());
        if own > 0 {
            return not_committed(own);
        }
        let others = handover.waits_for.iter().filter_map(|&other| self.steps.get(other));
        let others: Vec<String> = others.map(|state| format!("`{}`", state.declared.address)).collect();
        if others.is_empty() {
            return "its last jobs are being committed".to_owned();
        }
        format!("its source or sink is still in use by {}", others.join(", "))
    }

    /// A step that finishes earlier jobs, and is or reads this part or one of this pipeline.
    pub(crate) fn lingering_on(&self, part: &str) -> Option<&Address> {
        let is_of_it = |address: &Address| address.pipeline.as_str() == part || address.to_string() == part;
        self.handovers.iter().find_map(|(&position, handover)| {
            let inputs = self.steps.get(position).into_iter().flat_map(|state| &state.declared.inputs);
            let mut names = inputs.map(|input| &input.address).chain([handover.next.address()]);
            names.any(is_of_it).then(|| handover.next.address())
        })
    }

    /// Keeps the run from ending while jobs or steps are on their way.
    pub(crate) fn update_expectation(&mut self) {
        let hands_over =
            !self.handovers.is_empty() || self.swapping.is_some() || self.watched_reload.is_rolled_back();
        let late = self.late.are_coming() || !self.until_idle && !self.late.is_empty();
        let comes = self.ticks.are_behind() || self.commands.are_active() || late || self.moves_in_flight > 0;
        self.dispatcher.expect(comes || hands_over || self.expects_pushes);
    }
}

fn not_committed(jobs: usize) -> String {
    let are =
        if jobs == 1 { "job of the earlier generation is" } else { "jobs of the earlier generation are" };
    format!("{} {are} not committed", grouped(jobs as u64))
}
