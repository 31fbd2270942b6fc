//! Waiting room: holds the jobs of one step and chooses the ones that may start, by the rules of its queuer.
//!
//! Its input is new jobs, the results of started jobs, and the time. Its answers depend on nothing else. The
//! cost of a start depends on the number of started jobs, not of waiting ones. A lane that cannot start a job
//! is skipped until an event changes that.

pub(crate) mod chunked_vec;
pub(crate) mod conflicts;
pub(crate) mod delays;
pub(crate) mod explain;
pub(crate) mod heap;
pub(crate) mod key_index;
pub(crate) mod lane_counts;
pub(crate) mod lane_list;
pub(crate) mod lanes;
pub(crate) mod policy;
pub(crate) mod preview;
pub(crate) mod rate_window;
pub(crate) mod selection;
pub(crate) mod slab;

use std::collections::BTreeSet;

use self::lane_list::LaneList;
pub use self::policy::{
    HeldLane, Hold, InvalidTransition, JobAttributes, JobId, JobKey, LaneCounts, LaneSummary, QueuePolicy,
    Round, StartOrder, StartRate, StateCounts, WaitReason, WaitingState,
};
use self::rate_window::RateWindow;
use self::slab::{Extra, JobState, ListKind, Slab};
use conflicts::{BlockChanges, Conflicts, Rank};
use delays::Delays;
use heap::Heap;
use lanes::Lanes;
pub use preview::PreviewHorizon;
use tidegate_model::{Timestamp, millis};

/// Jobs of one step that are not accounted for, with the choice of the next ones to start.
///
/// A job is added, then started, then reported as finished, put back, delayed, pending or forgotten. A report
/// that does not fit the job's state is refused and has no effect, so duplicate, late and unrequested reports
/// do no harm.
#[derive(Clone, Debug)]
pub struct WaitingRoom {
    rules: QueuePolicy,
    /// Number of started jobs beyond `max_processing`; the caller keeps that limit.
    beyond: usize,
    /// Whether jobs that wait for each other start together: they run in the order in which they start.
    in_a_row: bool,
    /// Number of jobs that have started together so far, and their lanes.
    row: usize,
    row_lanes: Vec<u32>,
    /// Whether each lane has lists of its own; otherwise all lanes share the lists of lane 0.
    per_lane: bool,
    jobs: Slab,
    lanes: Lanes,
    /// Lists of waiting jobs: two a lane if each round has its own jobs, otherwise one.
    lines: Vec<LaneList>,
    /// Lists with a job that may start, in this round and in the next. `rounds` has only the first one.
    ready: [Heap<(JobState, i64)>; 2],
    /// Lanes whose next round of `rounds` may begin.
    due: BTreeSet<u32>,
    /// Jobs that a round takes before those of the lanes: unknown jobs, and jobs whose delay is over.
    urgent: [LaneList; 2],
    delayed: Delays,
    conflicts: Conflicts,
    log: RateWindow,
    /// Number of jobs in each state.
    by_state: [usize; 10],
    /// Parity of this round of a `one-round` strategy. Each lane of `rounds` has its own.
    parity: bool,
    round: u64,
    latest: Timestamp,
}

impl WaitingRoom {
    #[must_use]
    pub fn new(rules: QueuePolicy) -> Self {
        let bounds = rules.max_per_lane.is_some() || rules.lane_rate.is_some() || rules.has_lanes;
        let per_lane = match rules.strategy {
            StartOrder::OneRoundSerial | StartOrder::OneRoundParallel | StartOrder::Rounds { .. } => true,
            StartOrder::Serial => false,
            StartOrder::Fifo | StartOrder::Priority { .. } => bounds,
        };
        let ranked = matches!(rules.strategy, StartOrder::Priority { .. });
        let mut room = Self {
            rules,
            beyond: 0,
            in_a_row: false,
            row: 0,
            row_lanes: Vec::new(),
            per_lane,
            jobs: Slab::new(ranked),
            lanes: Lanes::default(),
            lines: Vec::new(),
            ready: [Heap::default(), Heap::default()],
            due: BTreeSet::new(),
            urgent: [LaneList::new(), LaneList::new()],
            delayed: Delays::default(),
            conflicts: Conflicts::default(),
            log: RateWindow::default(),
            by_state: [0; 10],
            parity: false,
            round: 0,
            latest: Timestamp(i64::MIN),
        };
        room.ensure_lanes(0);
        room
    }

    /// Lets this number of jobs start beyond `max_processing`.
    #[must_use]
    pub(crate) fn beyond(self, beyond: usize) -> Self {
        Self { beyond, ..self }
    }

    /// Lets jobs that wait for each other start together, unless starts are counted: some of them may be returned.
    #[must_use]
    pub(crate) fn in_a_row(self, in_a_row: bool) -> Self {
        let counts = self.rules.rate.is_some() || self.rules.lane_rate.is_some();
        Self { in_a_row: in_a_row && !counts, ..self }
    }

    pub(crate) fn is_in_a_row(&self) -> bool {
        self.in_a_row
    }

    /// Adds a job that is new, or that had this state before a restart or a change of the rules.
    pub fn add(
        &mut self,
        attributes: JobAttributes<'_>,
        state: WaitingState,
    ) -> Result<(), InvalidTransition> {
        let (key, age) = (attributes.key, attributes.age);
        if self.jobs.find(key).is_some() {
            return Err(InvalidTransition::Present(key));
        }
        let lane = self.lanes.enter(attributes.lane);
        let extra = self.extra(attributes);
        let Some(slot) = self.jobs.insert(key, age, lane, extra) else {
            self.lanes.leave(lane);
            return Err(InvalidTransition::Full);
        };
        self.ensure_lanes(lane);
        let job_state = match state {
            WaitingState::Waiting => JobState::Waiting,
            WaitingState::Unknown => JobState::Unknown,
            WaitingState::Running => JobState::Running,
            WaitingState::Pending => JobState::Pending,
            WaitingState::Finished => JobState::Finished,
            WaitingState::Delayed { until } => {
                self.jobs.set_until(slot, until);
                JobState::Delayed
            }
        };
        self.count_in(slot, job_state);
        self.enter_conflicts(slot);
        self.enlist(slot);
        self.lanes.get_mut(lane).is_open |= self.has_rounds() && job_state == JobState::Running;
        self.update_ready(lane);
        Ok(())
    }

    /// Starts up to `most` jobs and adds them to `started`, in the order in which they start.
    pub fn start(&mut self, now: Timestamp, most: usize, started: &mut Vec<JobKey>) {
        self.observe(now);
        for _ in 0..most {
            let Some(slot) = self.next(now) else { break };
            started.push(self.jobs.key(slot));
            if self.in_a_row {
                let lane = self.jobs.lane(slot);
                self.row += 1;
                self.row_lanes.push(lane);
                self.lanes.get_mut(lane).row += 1;
            }
            self.claim(slot, now);
        }
        self.row = 0;
        while let Some(lane) = self.row_lanes.pop() {
            if std::mem::take(&mut self.lanes.get_mut(lane).row) > 0 {
                self.update_ready(lane);
            }
        }
    }

    /// Holds a lane, or lets it start jobs again.
    pub fn hold(&mut self, lane: &[u8], hold: Option<Hold>) {
        if let Some(lane) = self.lanes.hold(lane, hold) {
            self.update_ready(lane);
        }
    }

    /// Number of jobs that wait in halted lanes.
    #[must_use]
    pub fn waiting_in_halted_lanes(&self) -> usize {
        self.lanes.waiting_in_halted()
    }

    #[must_use]
    pub fn has_halted_lanes(&self) -> bool {
        self.lanes.has_halted()
    }

    /// Whether both jobs are here, and of one lane.
    #[must_use]
    pub fn are_of_one_lane(&self, one: JobKey, other: JobKey) -> bool {
        let lane = |key| self.jobs.find(key).map(|slot| self.jobs.lane(slot));
        lane(one).is_some() && lane(one) == lane(other)
    }

    /// Starts this job before all others, if it may start now. Returns whether it did.
    pub fn start_job(&mut self, key: JobKey, now: Timestamp) -> bool {
        self.observe(now);
        let Some(slot) = self.jobs.find(key).filter(|&slot| self.may_start_alone(slot, now)) else {
            return false;
        };
        self.claim(slot, now);
        true
    }

    /// Removes a running or pending job that is accounted for.
    pub fn finished(&mut self, key: JobKey, now: Timestamp) -> Result<(), InvalidTransition> {
        let held = [JobState::Running, JobState::Pending, JobState::Valid, JobState::Finished];
        let slot = self.slot_in_state(key, "finish", &held)?;
        self.remove(slot, now);
        Ok(())
    }

    /// Returns a job that did not run: it waits again, before the jobs of its lane that never started. An unknown one
    /// still goes before all others.
    pub fn put_back(&mut self, key: JobKey) -> Result<(), InvalidTransition> {
        let slot = self.slot_in_state(key, "be put back", &[JobState::Running])?;
        let is_unknown = self.jobs.started_from(slot) == Some(JobState::Unknown);
        self.change(slot, if is_unknown { JobState::Unknown } else { JobState::PutBack });
        Ok(())
    }

    /// Returns a job that started together with one that is not finished: as if it had not started.
    pub(crate) fn return_unstarted(&mut self, key: JobKey) -> Result<(), InvalidTransition> {
        let slot = self.slot_in_state(key, "be returned", &[JobState::Running])?;
        let before = self.jobs.started_from(slot).unwrap_or(JobState::Waiting);
        self.change(slot, before);
        Ok(())
    }

    /// Delays a job whose attempt failed; the next attempt starts at `until` or later.
    pub fn delay(&mut self, key: JobKey, until: Timestamp, now: Timestamp) -> Result<(), InvalidTransition> {
        let slot =
            self.slot_in_state(key, "be delayed", &[JobState::Running, JobState::Pending, JobState::Valid])?;
        // The job is in no list now, so its place can hold the time.
        self.jobs.set_until(slot, until);
        self.change(slot, JobState::Delayed);
        self.end_round(self.jobs.lane(slot), now);
        Ok(())
    }

    /// Changes the end of a delay.
    pub fn reschedule(&mut self, key: JobKey, until: Timestamp) -> Result<(), InvalidTransition> {
        let slot = self.slot_in_state(key, "be rescheduled", &[JobState::Delayed])?;
        self.delist(slot);
        self.jobs.set_until(slot, until);
        self.enlist(slot);
        Ok(())
    }

    /// Marks a job as pending in an external system.
    pub fn set_pending(&mut self, key: JobKey, now: Timestamp) -> Result<(), InvalidTransition> {
        let slot = self.slot_in_state(key, "be pending", &[JobState::Running])?;
        self.change(slot, JobState::Pending);
        self.end_round(self.jobs.lane(slot), now);
        Ok(())
    }

    /// Marks a job as unknown to the external system: it goes before all other jobs of its lane.
    pub fn set_unknown(&mut self, key: JobKey) -> Result<(), InvalidTransition> {
        let slot =
            self.slot_in_state(key, "be unknown", &[JobState::Running, JobState::Pending, JobState::Valid])?;
        self.change(slot, JobState::Unknown);
        Ok(())
    }

    /// Frees the lane of a pending job, which stays pending.
    pub fn free_lane_of(&mut self, key: JobKey, now: Timestamp) -> Result<(), InvalidTransition> {
        let slot = self.slot_in_state(key, "free its lane", &[JobState::Pending])?;
        self.free_lane(slot, JobState::Valid, now);
        Ok(())
    }

    /// Marks a job as finished. It occupies its lane no longer, and stays until its result is delivered.
    pub fn set_finished(&mut self, key: JobKey, now: Timestamp) -> Result<(), InvalidTransition> {
        let slot =
            self.slot_in_state(key, "be finished", &[JobState::Running, JobState::Pending, JobState::Valid])?;
        self.free_lane(slot, JobState::Finished, now);
        Ok(())
    }

    /// Removes a job that is not running here; an external system may still have it.
    pub fn cancel(&mut self, key: JobKey, now: Timestamp) -> Result<(), InvalidTransition> {
        let idle = [
            JobState::Waiting,
            JobState::PutBack,
            JobState::Due,
            JobState::Unknown,
            JobState::Delayed,
            JobState::Pending,
            JobState::Valid,
        ];
        let slot = self.slot_in_state(key, "be cancelled", &idle)?;
        self.remove(slot, now);
        Ok(())
    }

    fn extra(&self, attributes: JobAttributes<'_>) -> Option<Extra> {
        let rank = match self.rules.strategy {
            StartOrder::Priority { aging: None } => -i128::from(attributes.priority),
            // All waiting jobs age at the same rate, so the order of two jobs never changes.
            StartOrder::Priority { aging: Some(aging) } => {
                i128::from(attributes.since.0)
                    - i128::from(attributes.priority) * i128::from(millis(aging).max(1))
            }
            _ => 0,
        };
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        if self.has_conflicts() {
            writes.extend_from_slice(attributes.writes);
            writes.sort_unstable();
            writes.dedup();
            reads.extend(attributes.reads.iter().filter(|&key| writes.binary_search(key).is_err()));
            reads.sort_unstable();
            reads.dedup();
        }
        let needed = rank != 0 || attributes.id != JobId::None || !reads.is_empty() || !writes.is_empty();
        needed.then(|| Extra {
            rank,
            id: attributes.id,
            reads: reads.into(),
            writes: writes.into(),
            blocked: 0,
        })
    }

    /// Finds the slot of a job and checks that its state allows the transition.
    fn slot_in_state(
        &self,
        key: JobKey,
        transition: &'static str,
        from: &[JobState],
    ) -> Result<u32, InvalidTransition> {
        let slot = self.jobs.find(key).ok_or(InvalidTransition::Absent(key))?;
        if from.contains(&self.jobs.job_state(slot)) {
            return Ok(slot);
        }
        Err(InvalidTransition::Transition { key, state: self.jobs.state(slot), transition })
    }

    fn claim(&mut self, slot: u32, now: Timestamp) {
        let lane = self.jobs.lane(slot);
        if self.rules.rate.is_some() {
            self.log.record(now);
        }
        if let Some(rate) = self.rules.lane_rate {
            self.lanes.record(lane, rate, now);
        }
        if self.has_places() {
            self.take_place(lane);
        }
        let before = self.jobs.job_state(slot);
        self.change(slot, JobState::Running);
        self.jobs.set_started_from(slot, before);
    }

    /// Changes the state of a job and moves it to the list of that state.
    fn change(&mut self, slot: u32, job_state: JobState) {
        self.delist(slot);
        let is_moved = Rank::of(self.jobs.job_state(slot)) != Rank::of(job_state);
        let starts = job_state == JobState::Running;
        if self.has_conflicts() && starts {
            self.conflicts.starts(slot, &self.jobs);
        } else if is_moved {
            self.leave_conflicts(slot);
        }
        self.count_out(slot);
        self.count_in(slot, job_state);
        if is_moved && !starts {
            self.enter_conflicts(slot);
        }
        self.enlist(slot);
        self.update_ready(self.jobs.lane(slot));
    }

    /// Moves a started job to a state in which it does not occupy its lane.
    fn free_lane(&mut self, slot: u32, job_state: JobState, now: Timestamp) {
        self.change(slot, job_state);
        self.end_round(self.jobs.lane(slot), now);
        self.update_ready(self.jobs.lane(slot));
    }

    fn remove(&mut self, slot: u32, now: Timestamp) {
        let lane = self.jobs.lane(slot);
        self.delist(slot);
        self.leave_conflicts(slot);
        self.count_out(slot);
        // A lane with a pause stays.
        self.end_round(lane, now);
        self.jobs.remove(slot);
        self.lanes.leave(lane);
        self.update_ready(lane);
    }

    /// Lets a job block others, and others block it. The caller refreshes the lane.
    fn enter_conflicts(&mut self, slot: u32) {
        if self.has_conflicts() {
            let changes = self.conflicts.enter(slot, &self.jobs);
            self.apply(&changes);
        }
    }

    /// Ends what [`Self::enter_conflicts`] began, before the state of the job changes. The caller refreshes the lane.
    fn leave_conflicts(&mut self, slot: u32) {
        if self.has_conflicts() {
            let changes = self.conflicts.leave(slot, &self.jobs);
            if let Some(extra) = self.jobs.extra_mut(slot) {
                extra.blocked = 0;
            }
            self.apply(&changes);
        }
    }

    /// Applies the changed conflicts of one lane. The caller refreshes the lane.
    fn apply(&mut self, changes: &BlockChanges) {
        for &slot in &changes.held {
            if let Some(extra) = self.jobs.extra_mut(slot) {
                extra.blocked += 1;
            }
            if self.yields(slot) {
                self.delist(slot);
            }
        }
        for &slot in &changes.freed {
            if let Some(extra) = self.jobs.extra_mut(slot) {
                extra.blocked -= 1;
            }
            if self.yields(slot) && self.jobs.list(slot).0 == ListKind::Nowhere {
                self.enlist(slot);
            }
        }
    }

    /// Whether a conflict keeps a job of this state out of its list. An unknown or due job may have begun under earlier
    /// rules, beside another one.
    fn yields(&self, slot: u32) -> bool {
        self.jobs.job_state(slot) <= JobState::Waiting
    }

    /// Adds a job to the list of its state. The caller refreshes the lane.
    fn enlist(&mut self, slot: u32) {
        let job_state = self.jobs.job_state(slot);
        match job_state {
            JobState::Running | JobState::Pending | JobState::Valid | JobState::Finished | JobState::Free => {
            }
            JobState::Delayed => self.delayed.insert(self.jobs.until(slot), slot),
            _ if self.jobs.is_blocked(slot) => {}
            // Other jobs of its lane may have a place in this round; they must not go before it.
            JobState::Unknown if self.has_conflicts() => self.push_urgent(slot, self.parity),
            JobState::Unknown if self.has_lists() => self.push_urgent(slot, !self.parity),
            JobState::Due if self.has_conflicts() => self.push_urgent(slot, !self.parity),
            JobState::Unknown | JobState::PutBack | JobState::Due | JobState::Waiting => {
                let lane = self.lanes.get(self.jobs.lane(slot));
                let at_once = lane.is_open && matches!(job_state, JobState::Unknown | JobState::PutBack);
                let turn = match self.rules.strategy {
                    StartOrder::Rounds { .. } if at_once => lane.turn,
                    StartOrder::Rounds { .. } => !lane.turn,
                    StartOrder::OneRoundParallel => !self.has_places() && !self.parity,
                    _ => false,
                };
                self.push_lane(slot, turn);
            }
        }
    }

    /// Adds a job to the list that a round takes before those of the lanes.
    fn push_urgent(&mut self, slot: u32, turn: bool) {
        self.urgent[usize::from(turn)].push(slot, &mut self.jobs);
        self.jobs.set_hall(slot, ListKind::Urgent, turn);
    }

    fn push_lane(&mut self, slot: u32, turn: bool) {
        let line = self.line(self.jobs.lane(slot), turn);
        self.lines[line as usize].push(slot, &mut self.jobs);
        self.jobs.set_hall(slot, ListKind::Lane, turn);
    }

    /// Removes a job from its list. The caller refreshes the lane.
    fn delist(&mut self, slot: u32) {
        if self.jobs.job_state(slot) == JobState::Delayed {
            self.delayed.remove(self.jobs.until(slot), slot, &self.jobs);
        }
        let (list, turn) = self.jobs.list(slot);
        match list {
            ListKind::Nowhere => {}
            ListKind::Lane => {
                let line = self.line(self.jobs.lane(slot), turn);
                self.lines[line as usize].remove(slot, &mut self.jobs);
            }
            ListKind::Urgent => self.urgent[usize::from(turn)].remove(slot, &mut self.jobs),
        }
        self.jobs.set_hall(slot, ListKind::Nowhere, false);
    }

    fn count_in(&mut self, slot: u32, job_state: JobState) {
        self.jobs.set_job_state(slot, job_state);
        self.by_state[job_state as usize] += 1;
        let lane = self.lanes.get_mut(self.jobs.lane(slot));
        lane.held += u32::from(job_state.is_held());
        lane.unknown += u32::from(job_state == JobState::Unknown);
        lane.running += u32::from(job_state == JobState::Running);
        lane.free += u32::from(job_state.frees_lane());
    }

    fn count_out(&mut self, slot: u32) {
        let job_state = self.jobs.job_state(slot);
        self.by_state[job_state as usize] -= 1;
        let lane = self.lanes.get_mut(self.jobs.lane(slot));
        lane.held -= u32::from(job_state.is_held());
        lane.unknown -= u32::from(job_state == JobState::Unknown);
        lane.running -= u32::from(job_state == JobState::Running);
        lane.free -= u32::from(job_state.frees_lane());
    }

    fn count(&self, job_state: JobState) -> usize {
        self.by_state[job_state as usize]
    }

    /// Bytes of plain waiting jobs: all except stray, delayed and conflicting ones.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        let lines = self.lines.capacity() * size_of::<LaneList>();
        self.jobs.bytes() + self.lanes.bytes() + lines + self.ready.iter().map(Heap::bytes).sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
