//! Picking: checks the conditions of every picked job.

use std::collections::{BTreeMap, BTreeSet};

use super::Waiting;
use super::callers::Callers;
use super::plan::Order;
use super::stored_states::{At, position};
use crate::commit::request::{CommitRequest as Ordered, StepChange};
use crate::coordinator::{Action, Coordinator};
use crate::runtime::message::Message;
use tidegate_config::Configuration;
use tidegate_dispatch::{BatchId, WaitingState};
use tidegate_model::ExternalStatus;

/// State that was reported to the run, and jobs that it has started.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent states of a step")]
pub(crate) struct Picking {
    /// State of each job when it was last reported.
    last_states: BTreeMap<u64, WaitingState>,
    /// Picked jobs that did not run: they keep their turn.
    put_back: BTreeSet<u64>,
    /// Last answer of the gate, with its time.
    gate: Option<(bool, i64)>,
    /// Time before which nothing starts, because a job found the gate closed.
    held_until: Option<i64>,
    /// Beginning and end of the wait that the jobs of a batch require, by batch.
    pub(crate) holds: BTreeMap<BatchId, (i64, i64)>,
    paused: bool,
    monitor_paused: bool,
    /// Held lanes that were reported.
    lanes: BTreeSet<String>,
    stopping: bool,
    latest: i64,
    /// Installation of the step.
    epoch: Option<u64>,
    /// Whether the clock was set back in this run.
    set_back: bool,
}

impl Picking {
    /// Begins a run.
    pub(crate) fn begin(&mut self, callers: &Callers, now: i64) {
        (self.paused, self.latest) = (callers.paused, now);
        self.monitor_paused = callers.monitor_paused;
        self.lanes = callers.held_lanes.keys().cloned().collect();
    }

    /// State of a step that starts anew.
    fn anew(self, epoch: Option<u64>) -> Self {
        let Self { paused, monitor_paused, lanes, latest, stopping, set_back, .. } = self;
        Self { paused, monitor_paused, lanes, stopping, latest, epoch, set_back, ..Self::default() }
    }
}

impl Waiting {
    /// Records the state before the coordinator handles a message, or the passing of time.
    pub(crate) fn before(&mut self, configuration: &Configuration, message: Option<&Message>, now: i64) {
        let step = position(configuration, &self.step);
        let picking = &mut self.picking;
        if let Some(ticking) = self.ticking.as_mut().filter(|_| !picking.stopping) {
            ticking.pass(now);
        }
        if let Some(Message::Ran { id, .. }) = message {
            self.running.remove(id);
        }
        match message {
            // The answer to an earlier installation of the step has no effect.
            Some(Message::GateResult { seen, epoch, .. }) if picking.epoch.is_none_or(|of| of == *epoch) => {
                picking.gate = Some((matches!(seen, Ok(true)), now));
            }
            Some(Message::Committed(durable)) => {
                if let Some((_, paused)) = durable.paused.filter(|(paused, _)| *paused == step) {
                    picking.paused = paused;
                }
                if let Some((_, paused)) = durable.monitor.filter(|(of, _)| *of == step) {
                    picking.monitor_paused = paused;
                }
                for (_, lane, hold) in durable.lanes.iter().filter(|(of, ..)| *of == step) {
                    if hold.is_some() {
                        picking.lanes.insert(lane.clone());
                    } else {
                        picking.lanes.remove(lane);
                    }
                }
            }
            Some(Message::Stop) => picking.stopping = true,
            _ => {}
        }
        if now < picking.latest {
            // A clock that is set back ends the waits that began before, also those of batches in flight.
            (picking.set_back, picking.held_until) = (true, None);
            picking.holds.clear();
        }
        picking.latest = now;
    }

    /// Records the state afterwards. `delivered`: batches whose commit was reported.
    pub(crate) fn after(
        &mut self,
        configuration: &Configuration,
        coordinator: &Coordinator,
        delivered: &[(usize, BatchId)],
        now: i64,
    ) {
        let step = position(configuration, &self.step);
        let Some(view) = coordinator.inspect_queue(step) else { return };
        let epoch = coordinator.epoch(step);
        if epoch != self.picking.epoch {
            // The step starts anew: it asks its gate again, and no job holds it.
            let before = std::mem::take(&mut self.picking);
            self.picking = before.anew(epoch);
        }
        let state = |index: u64| self.stored.keys(index).find_map(|key| view.room.state(key));
        let states: BTreeMap<u64, WaitingState> =
            self.stored.jobs.keys().filter_map(|&index| Some((index, state(index)?))).collect();
        let runs =
            |all: &BTreeMap<u64, WaitingState>, index: u64| all.get(&index) == Some(&WaitingState::Running);
        for &index in states.keys() {
            if runs(&states, index) && !runs(&self.picking.last_states, index) {
                self.picked(index, &states, now);
                self.picking.put_back.remove(&index);
                self.check_limits(index, &states);
            }
            if runs(&self.picking.last_states, index) && states[&index] == WaitingState::Waiting {
                self.picking.put_back.insert(index);
            }
        }
        self.picking.last_states = states;
        for (_, id) in delivered.iter().filter(|(of, _)| *of == step) {
            // The clock may have been set forward for the attempt alone, and back since.
            let hold = self.picking.holds.remove(id).filter(|&(since, _)| since <= now);
            let until = hold.map(|(_, until)| until);
            self.picking.held_until = self.picking.held_until.max(until);
        }
    }

    /// Checks that no unfinished job blocks an attempt, apart from those that were attempted before it in its batch.
    pub(crate) fn attempted_in_a_row(&self, index: u64, before: &[u64]) {
        let is_later_try = self.plan.frees_when_valid && self.stored.jobs[&index] != At::Fresh;
        for (&other, at) in self.stored.jobs.range(..index).filter(|_| !is_later_try) {
            let is_behind = self.has_begun_before(index) && !matches!(at, At::Pending { .. });
            let is_over = matches!(at, At::Through(_)) || self.is_settled(other) || self.may_be_out(other);
            let blocks = !is_over && !is_behind && !before.contains(&other) && self.holds(other, index);
            assert!(!blocks, "{other} comes before {index}, which is attempted: {self:#?}");
        }
    }

    fn picked(&self, index: u64, states: &BTreeMap<u64, WaitingState>, now: i64) {
        let Picking { last_states, gate, held_until, paused, stopping, set_back, .. } = &self.picking;
        let what = || format!("{index} is picked at {now}: {self:#?}");
        assert!(!paused && !stopping, "the step starts nothing: {}", what());
        let lane = &self.jobs[&index].lane;
        assert!(!self.picking.lanes.contains(lane), "{lane} is held: {}", what());
        if let Some(every) = self.plan.gate {
            let open = gate.is_some_and(|(open, at)| open && (0..every).contains(&(now - at)));
            assert!(open, "the gate is closed: {}", what());
        }
        assert!(held_until.is_none_or(|until| until <= now), "a job holds the step: {}", what());
        match &self.stored.jobs[&index] {
            At::Delayed { due, .. } => {
                assert!(*due <= now || *set_back, "it is tried before its time: {}", what());
            }
            At::Fresh | At::Started(_) => {}
            at @ (At::Pending { .. } | At::Finished { .. } | At::Through(_)) => {
                panic!("it is {at:?}: {}", what())
            }
        }
        for (&other, at) in self.stored.jobs.range(..index) {
            // A finished job holds its lane no longer, though its result may not be delivered yet.
            let finished = states.get(&other) == Some(&WaitingState::Finished);
            // A valid job frees its lane, and so does a result that waits in memory. A crash may forget both after later
            // jobs have started.
            let may_forget = self.plan.frees_when_valid || self.plan.ordered;
            let is_later_try = may_forget && self.stored.jobs[&index] != At::Fresh;
            // A valid job that the external system has forgotten holds its lane again once the run knows it.
            let still_valid = states.get(&other) == Some(&WaitingState::Pending) && self.was_valid(other);
            let is_behind = self.has_begun_before(index)
                && !matches!(states.get(&other), Some(WaitingState::Running | WaitingState::Pending));
            let is_free = finished || is_later_try || is_behind || still_valid || self.is_settled(other);
            // Jobs that wait for each other may share a batch. Their order is checked when they are attempted.
            let in_a_row = (self.plan.runs_in_a_row() || self.plan.claims_in_turn())
                && states.get(&other) == Some(&WaitingState::Running);
            let over = matches!(at, At::Through(_)) || is_free || in_a_row || self.may_be_out(other);
            assert!(over || !self.holds(other, index), "{other} comes before it: {}", what());
        }
        // Jobs that began beside each other, under other rules or before a crash, go one after the other.
        for (&other, state) in states.iter().filter(|&(&other, _)| other != index) {
            let is_held = match state {
                WaitingState::Running => !self.plan.runs_in_a_row() && !self.plan.claims_in_turn(),
                WaitingState::Pending => !self.was_valid(other) && !self.is_settled(other),
                _ => false,
            };
            let blocks = is_held && !self.may_be_out(other) && self.holds(other, index);
            assert!(!blocks, "{other} is {state:?} beside it: {}", what());
        }
        // A claim that was given back leaves a delayed row.
        let is_unknown = matches!(self.stored.jobs[&index], At::Started(_))
            || last_states.get(&index) == Some(&WaitingState::Unknown);
        for &other in self.stored.jobs.keys().filter(|_| !is_unknown) {
            // After a loss of power, jobs behind the first one of `serial` may have been attempted, too.
            let waits = self.plan.claims_in_turn() && index < other;
            let is_next = self.is_unknown(other, states) && !self.is_kept_back(other);
            let goes_first = !waits && is_next && self.same_lane(other, index);
            assert!(!goes_first, "{other} is unknown and goes first: {}", what());
        }
        let first_of_all = self.plan.order == Order::Fifo
            && self.stored.jobs[&index] == At::Fresh
            && !self.picking.put_back.contains(&index);
        for (&other, state) in states.range(..index).filter(|_| first_of_all) {
            let waits =
                *state == WaitingState::Waiting && last_states.get(&other) == Some(&WaitingState::Waiting);
            assert!(!waits, "{other} waits and is older: {}", what());
        }
    }

    /// Checks that the limits allow this picked job beside the others that run or are pending.
    fn check_limits(&self, index: u64, states: &BTreeMap<u64, WaitingState>) {
        let is_held = |state: &WaitingState| matches!(state, WaitingState::Running | WaitingState::Pending);
        let held = || states.iter().filter(|(_, state)| is_held(state)).map(|(&other, _)| other);
        let of_lane = held().filter(|&other| self.same_lane(index, other)).count();
        for (count, most) in [held().count(), of_lane].into_iter().zip(self.plan.held_max) {
            assert!(count <= most, "{index} is picked beside too many jobs: {states:?} {self:#?}");
        }
    }

    /// Whether the run knows that the outcome of an attempt is unknown, or that the ledger does not know the
    /// job.
    fn is_unknown(&self, index: u64, states: &BTreeMap<u64, WaitingState>) -> bool {
        let busy = |all: &BTreeMap<u64, WaitingState>| {
            matches!(
                all.get(&index),
                Some(WaitingState::Running | WaitingState::Pending | WaitingState::Finished) | None
            )
        };
        matches!(self.stored.jobs[&index], At::Started(_))
            && !busy(states)
            && !busy(&self.picking.last_states)
            && !self.may_be_out(index)
    }

    /// Whether the job may have to wait for another one that began beside it.
    fn is_kept_back(&self, index: u64) -> bool {
        let began = |&(&other, at): &(&u64, &At)| {
            other != index && !matches!(at, At::Fresh | At::Through(_)) && self.holds(other, index)
        };
        self.plan.order == Order::OfConflicts && self.stored.jobs.iter().any(|job| began(&job))
    }

    /// Whether the verdict on a pending job was known, so that it held its lane no longer. A crash forgets the verdict
    /// of a monitor, but not the later jobs that it let start.
    fn is_settled(&self, index: u64) -> bool {
        let is_pending = matches!(self.stored.jobs[&index], At::Pending { .. });
        let mut reported =
            self.outside.last_status(self.jobs[&index].id).into_iter().chain(self.plan.gives_up_as());
        let ends = |status| match status {
            ExternalStatus::Committed | ExternalStatus::Invalid => true,
            ExternalStatus::Valid => self.plan.frees_when_valid,
            _ => false,
        };
        let may_be = self.plan.ordered || self.plan.frees_when_valid;
        may_be && is_pending && (self.was_valid(index) || reported.any(ends))
    }

    /// Whether the job may have begun under other rules, so that it goes before earlier ones that do not run.
    fn has_begun_before(&self, index: u64) -> bool {
        self.changes() && self.stored.jobs[&index] != At::Fresh
    }

    /// Whether the job was reported as valid, and is free of its lane for that.
    fn was_valid(&self, index: u64) -> bool {
        let was_valid = self.outside.was_valid(self.jobs[&index].id);
        self.plan.frees_when_valid
            && (was_valid || self.completers.has_reported(index, ExternalStatus::Valid))
    }

    /// Whether an unfinished job blocks a later one. Two jobs block each other by the same rule.
    fn holds(&self, earlier: u64, later: u64) -> bool {
        let (earlier, later) = (&self.jobs[&earlier], &self.jobs[&later]);
        match self.plan.order {
            Order::Stream | Order::Fifo | Order::None => false,
            Order::OfAll => true,
            Order::OfLane => earlier.lane == later.lane,
            Order::OfConflicts => {
                earlier.lane == later.lane && earlier.writes.iter().any(|key| later.writes.contains(key))
            }
        }
    }

    fn same_lane(&self, one: u64, other: u64) -> bool {
        !self.plan.has_lanes || self.jobs[&one].lane == self.jobs[&other].lane
    }

    /// Whether the job may be cancelled, so that the step need not wait for it.
    pub(crate) fn may_be_out(&self, index: u64) -> bool {
        let rows = &self.callers.cancelled_rows;
        self.callers.cancelled.contains(&index)
            || self.stored.sequences.iter().any(|(sequence, of)| *of == index && rows.contains(sequence))
    }

    /// Checks an action of the coordinator.
    pub(crate) fn ordered(&self, configuration: &Configuration, action: &Action) {
        let step = position(configuration, &self.step);
        let Picking { paused, stopping, .. } = self.picking;
        match action {
            Action::Commit(Ordered::Enter(StepChange::Begin(begin))) if begin.step.position == step => {
                assert!(!paused && !stopping, "a batch is begun, and the step starts nothing: {self:#?}");
            }
            Action::AskStatus(asking) if asking.step.position == step => {
                assert!(!self.picking.monitor_paused, "the monitor is paused, and is asked: {self:#?}");
            }
            // A begun batch is finished in any case.
            Action::Run(task) if task.step.position == step && task.work.verdicts.is_none() => {
                let begun = configuration.steps[step].has_effects(configuration);
                assert!(begun || !paused, "a batch runs, and the step is paused: {self:#?}");
                let gives_back = task.work.claims.is_empty() || !paused && !stopping;
                assert!(gives_back, "a claimed job runs, and the step starts nothing: {self:#?}");
            }
            _ => {}
        }
    }
}
