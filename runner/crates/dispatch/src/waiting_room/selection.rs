//! Selection: chooses the next job to start, and the next time at which one may start.

use super::WaitingRoom;
use super::lane_list::{Heads, LaneList};
use super::policy::StartOrder;
use super::slab::{JobState, ListKind, NONE};
use tidegate_model::Timestamp;

impl WaitingRoom {
    /// Time of the next possible start if no event comes until then. At or before `now`: a job may start at
    /// once. `None`: no time starts one.
    #[must_use]
    pub fn next_wake(&self, now: Timestamp) -> Option<Timestamp> {
        let waiting = self.by_state[..=JobState::Waiting as usize].iter().any(|&count| count > 0);
        if self.is_full() || !waiting && self.delayed.is_empty() {
            return None;
        }
        let first_due = self.delayed.first().map(|(until, _)| until);
        let lane_wake = self.lanes.next_wake().filter(|_| waiting);
        let wake = match self.rules.strategy {
            StartOrder::Serial if self.count_outside() > 0 => None,
            StartOrder::Serial if first_due.is_some() => self.delayed.last(&self.jobs),
            StartOrder::Serial => self.next_of_serial().map(|_| now).or(lane_wake),
            _ if self.has_someone() => Some(now),
            _ => {
                let pause = self.lanes.first_pause_end().filter(|_| waiting);
                earlier(pause, earlier(first_due, lane_wake))
            }
        }?;
        let spent = self.rules.rate.and_then(|rate| self.log.full_until(rate, now));
        Some(spent.map_or(wake, |until| until.max(wake)))
    }

    /// Next time after `now` at which a delay, a pause, or the wait for a rate ends, so that some job may become startable.
    #[must_use]
    pub fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        let due = self.delayed.first_after(now, &self.jobs);
        let rate = self.rules.rate.and_then(|rate| self.log.full_until(rate, now));
        let lanes = self.lanes.first_pause_end().into_iter().chain(self.lanes.next_wake());
        lanes.filter(|&wake| wake > now).chain(due).chain(rate).min()
    }

    /// Whether the next job may be any of the waiting ones, and not only the one that came first.
    #[must_use]
    pub fn chooses_among_all(&self) -> bool {
        !matches!(self.rules.strategy, StartOrder::Fifo | StartOrder::Serial)
    }

    /// Sets the time.
    pub(crate) fn observe(&mut self, now: Timestamp) {
        let set_back = now < self.latest;
        self.latest = now;
        if let Some(rate) = self.rules.rate {
            if set_back {
                self.log.set_back(now);
            }
            self.log.pass(rate, now);
        }
        if let Some(rate) = self.rules.lane_rate {
            if set_back {
                self.lanes.set_back(rate, now);
            }
            while let Some(lane) = self.lanes.wake(rate, now) {
                self.update_ready(lane);
            }
        }
        while let Some(lane) = self.lanes.end_pause(now) {
            self.update_ready(lane);
        }
        if self.has_lists() {
            return;
        }
        let job_state =
            if self.rules.strategy == StartOrder::Serial { JobState::Due } else { JobState::Waiting };
        while let Some(slot) = self.pop_due(now) {
            if self.rules.strategy == StartOrder::Serial && self.beyond > 0 {
                self.forget_unknown();
            }
            self.change(slot, job_state);
        }
    }

    /// Lets unknown jobs of `serial` wait for older ones. After a loss of power each claimed job may have been attempted,
    /// also those behind a job that failed.
    fn forget_unknown(&mut self) {
        let is_unknown = |room: &Self, slot: &u32| room.jobs.job_state(*slot) == JobState::Unknown;
        while let Some(slot) = self.first_ready().filter(|slot| is_unknown(self, slot)) {
            self.change(slot, JobState::Due);
        }
    }

    /// Next job to start, if one may.
    pub(crate) fn next(&mut self, now: Timestamp) -> Option<u32> {
        if self.is_full() || self.rules.rate.is_some_and(|rate| self.log.is_full(rate)) {
            return None;
        }
        match self.rules.strategy {
            StartOrder::Fifo | StartOrder::Priority { .. } => self.first_ready(),
            StartOrder::Serial => self.next_of_serial(),
            StartOrder::OneRoundSerial | StartOrder::OneRoundParallel => self.next_of_list(now),
            StartOrder::Rounds { .. } => self.next_of_round(),
        }
    }

    /// Whether a job may start now, without regard to the jobs before it.
    pub(crate) fn may_start_alone(&mut self, slot: u32, now: Timestamp) -> bool {
        // Begins the rounds that may begin.
        if self.next(now).is_none() {
            return false;
        }
        let (lane, (list, turn)) = (self.jobs.lane(slot), self.jobs.list(slot));
        let line = self.line(lane, turn);
        match (self.jobs.job_state(slot), list) {
            (JobState::Delayed, _) => {
                self.has_lists()
                    && self.jobs.until(slot) <= now
                    && self.lanes.allows(lane, &self.rules)
                    && !self.is_occupied(lane)
                    && !self.jobs.is_blocked(slot)
            }
            (_, ListKind::Urgent) => self.lanes.allows(lane, &self.rules) && !self.is_occupied(lane),
            (_, ListKind::Lane) => {
                let is_next = self.lines[line as usize].at != NONE || self.may_join_round(lane, turn);
                (!self.has_rounds() || is_next) && self.may_start(lane, line)
            }
            (_, ListKind::Nowhere) => false,
        }
    }

    /// Whether a job of the next round of `rounds` may join this one, whose other jobs wait for it: the round would not
    /// end otherwise.
    fn may_join_round(&self, lane: u32, turn: bool) -> bool {
        let state = self.lanes.get(lane);
        state.is_open && state.running == 0 && state.turn != turn
    }

    /// Whether `max_processing` or `max_pending` is reached.
    fn is_full(&self) -> bool {
        let (running, outside) = (self.count(JobState::Running), self.count_outside());
        let running_max = |most: u32| (most as usize).saturating_add(self.beyond);
        self.rules.max_processing.is_some_and(|most| running >= running_max(most.get()))
            || self.rules.max_pending.is_some_and(|most| outside >= most.get() as usize)
    }

    /// Number of jobs that run or are pending: a job that runs may become pending.
    pub(crate) fn count_outside(&self) -> usize {
        self.count(JobState::Running) + self.count(JobState::Pending) + self.count(JobState::Valid)
    }

    fn next_of_serial(&self) -> Option<u32> {
        // Claimed jobs run one after the other.
        let most = if self.beyond > 0 { self.beyond } else { self.row };
        let running = self.count(JobState::Running);
        let blocking = self.count_outside() - running + self.count(JobState::Delayed);
        // In a row, only the jobs of the same batch run.
        if blocking > 0 || running > most {
            return None;
        }
        self.first_ready().filter(|&slot| self.lanes.allows(self.jobs.lane(slot), &self.rules))
    }

    /// Next job of the rounds of all lanes. A round has the jobs that wait when it begins.
    fn next_of_round(&mut self) -> Option<u32> {
        self.round += u64::from(!self.due.is_empty());
        while let Some(lane) = self.due.pop_first() {
            let state = self.lanes.get_mut(lane);
            (state.turn, state.is_open) = (!state.turn, true);
            self.update_ready(lane);
        }
        self.first_ready()
    }

    fn next_of_list(&mut self, now: Timestamp) -> Option<u32> {
        loop {
            let turn = usize::from(self.parity);
            if let Some(slot) = self.urgent[turn].head(&self.jobs) {
                let lane = self.jobs.lane(slot);
                if self.lanes.allows(lane, &self.rules) && !self.is_occupied(lane) {
                    let next = self.unknown_of(lane).unwrap_or(slot);
                    if !self.waits_for_unknown(next) {
                        return Some(next);
                    }
                }
                // Its lane is blocked: it becomes the next job of the lane.
                self.delist(slot);
                self.push_lane(slot, false);
                self.update_ready(lane);
            } else if let Some(slot) = self.first_ready() {
                return Some(slot);
            } else {
                let is_due = self.delayed.first().is_some_and(|(until, _)| until <= now);
                if !is_due && !self.has_someone() {
                    return None;
                }
                self.begin_round();
                while let Some(slot) = self.pop_due(now) {
                    self.delist(slot);
                    self.count_out(slot);
                    self.count_in(slot, JobState::Due);
                    if !self.jobs.is_blocked(slot) {
                        self.push_urgent(slot, self.parity);
                    }
                }
            }
        }
    }

    /// Whether a job of a serial lane runs or is pending. Under earlier rules, several jobs of the lane may have begun.
    fn is_occupied(&self, lane: u32) -> bool {
        self.rules.strategy == StartOrder::OneRoundSerial && self.lanes.get(lane).held > 0
    }

    /// Whether a due job of a serial lane has to wait: another one has become unknown since the round began, and goes first
    /// in the next round.
    fn waits_for_unknown(&self, slot: u32) -> bool {
        self.rules.strategy == StartOrder::OneRoundSerial
            && self.jobs.job_state(slot) != JobState::Unknown
            && self.lanes.get(self.jobs.lane(slot)).unknown > 0
    }

    /// Unknown job in the list of a lane that was blocked: it still goes before due jobs.
    fn unknown_of(&self, lane: u32) -> Option<u32> {
        let head = self.lines[self.line(lane, false) as usize].head(&self.jobs);
        head.filter(|&slot| self.jobs.job_state(slot) == JobState::Unknown)
    }

    fn begin_round(&mut self) {
        self.parity = !self.parity;
        self.round += 1;
    }

    /// Ends the round of a lane of `rounds` that has no waiting or running jobs of it.
    pub(crate) fn end_round(&mut self, lane: u32, now: Timestamp) {
        let StartOrder::Rounds { pause } = self.rules.strategy else { return };
        let state = self.lanes.get(lane);
        let line = self.line(lane, state.turn);
        if state.is_open && state.running == 0 && self.lines[line as usize].is_empty() {
            self.lanes.get_mut(lane).is_open = false;
            self.lanes.pause(lane, now, pause);
            self.update_ready(lane);
        }
    }

    fn pop_due(&self, now: Timestamp) -> Option<u32> {
        self.delayed.first().filter(|(until, _)| *until <= now).map(|(_, slot)| slot)
    }

    /// First job of this round that no limit of its lane blocks.
    fn first_ready(&self) -> Option<u32> {
        let line = self.ready[usize::from(self.parity)].first()?;
        self.lines[line as usize].head(&self.jobs)
    }

    /// Whether a job may start, apart from `rate` and the time.
    fn has_someone(&self) -> bool {
        !self.due.is_empty()
            || !self.ready.iter().all(super::Heap::is_empty)
            || !self.urgent.iter().all(LaneList::is_empty)
    }

    /// Whether a round has lists: unknown jobs, due jobs, then the jobs of the lanes.
    pub(crate) fn has_lists(&self) -> bool {
        matches!(self.rules.strategy, StartOrder::OneRoundSerial | StartOrder::OneRoundParallel)
    }

    pub(crate) fn has_rounds(&self) -> bool {
        matches!(self.rules.strategy, StartOrder::Rounds { .. })
    }

    pub(crate) fn has_conflicts(&self) -> bool {
        self.rules.strategy == StartOrder::OneRoundParallel
    }

    /// Whether a lane takes one place in a round. Under `one-round-parallel` each job without a conflict
    /// takes one place. If lanes have limits, the lane takes one place, because a round must not wait for a
    /// lane at its limit.
    pub(crate) fn has_places(&self) -> bool {
        let bounds = self.rules.max_per_lane.is_some() || self.rules.lane_rate.is_some();
        match self.rules.strategy {
            StartOrder::OneRoundSerial => true,
            StartOrder::OneRoundParallel => bounds,
            _ => false,
        }
    }

    /// Number of lists a lane has: two if a job belongs to a round, one if it belongs to its lane only.
    pub(crate) fn lines_a_lane(&self) -> u32 {
        match self.rules.strategy {
            StartOrder::Rounds { .. } => 2,
            StartOrder::OneRoundParallel if !self.has_places() => 2,
            _ => 1,
        }
    }

    pub(crate) fn ensure_lanes(&mut self, lane: u32) {
        let lanes = if self.per_lane { lane as usize + 1 } else { 1 };
        let lines = lanes * self.lines_a_lane() as usize;
        if lines > self.lines.capacity() {
            self.lines.reserve_exact(lines - self.lines.len() + lines / 8);
        }
        if lines > self.lines.len() {
            self.lines.resize(lines, LaneList::new());
        }
    }

    pub(crate) fn line(&self, lane: u32, turn: bool) -> u32 {
        let lane = if self.per_lane { lane } else { 0 };
        match self.lines_a_lane() {
            1 => lane,
            _ => lane * 2 + u32::from(turn),
        }
    }

    /// Adds, moves or removes the lists of a lane in the heaps of ready lists.
    pub(crate) fn update_ready(&mut self, lane: u32) {
        let (by_lane, rounds) = (self.has_places(), self.has_rounds());
        let (turn_of_lane, is_open) = (self.lanes.get(lane).turn, self.lanes.get(lane).is_open);
        if rounds {
            let next = self.line(lane, !turn_of_lane);
            if is_open || self.lines[next as usize].is_empty() || self.lanes.is_paused(lane) {
                self.due.remove(&lane);
            } else {
                self.due.insert(lane);
            }
        }
        for turn in [false, true].into_iter().take(self.lines_a_lane() as usize) {
            let line = self.line(lane, turn);
            let LaneList { at, .. } = self.lines[line as usize];
            let may_start = !rounds || is_open && turn == turn_of_lane;
            let shall = may_start && !self.lines[line as usize].is_empty() && self.may_start(lane, line);
            if shall && at == NONE && by_lane {
                self.lanes.get_mut(lane).turn = !self.parity;
            }
            let heap = if by_lane { self.lanes.get(lane).turn } else { turn && !rounds };
            let heap = &mut self.ready[usize::from(heap)];
            let mut heads = Heads { lines: &mut self.lines, jobs: &self.jobs };
            match (shall, at) {
                (true, NONE) => heap.push(line, &mut heads),
                (true, at) => heap.moved(at, &mut heads),
                (false, NONE) => {}
                (false, at) => {
                    heap.remove(at, &mut heads);
                    self.lines[line as usize].at = NONE;
                }
            }
        }
    }

    /// Uses the lane's place in this round; its next place is in the next round.
    pub(crate) fn take_place(&mut self, lane: u32) {
        let line = self.line(lane, false);
        let at = std::mem::replace(&mut self.lines[line as usize].at, NONE);
        if at != NONE {
            let mut heads = Heads { lines: &mut self.lines, jobs: &self.jobs };
            self.ready[usize::from(self.lanes.get(lane).turn)].remove(at, &mut heads);
        }
    }

    fn may_start(&self, lane: u32, line: u32) -> bool {
        if !self.per_lane {
            return true;
        }
        let held = self.rules.strategy == StartOrder::OneRoundSerial
            && self.lanes.get(lane).occupied() > self.lines[line as usize].len();
        !held && self.lanes.allows(lane, &self.rules)
    }

    /// Whether the job has a place in the current round.
    pub(crate) fn is_of_this_round(&self, slot: u32) -> bool {
        let (list, turn) = self.jobs.list(slot);
        match self.rules.strategy {
            StartOrder::OneRoundSerial | StartOrder::OneRoundParallel
                if self.has_places() && list == ListKind::Lane =>
            {
                self.lanes.get(self.jobs.lane(slot)).turn == self.parity
            }
            StartOrder::OneRoundSerial | StartOrder::OneRoundParallel => turn == self.parity,
            StartOrder::Rounds { .. } => turn == self.lanes.get(self.jobs.lane(slot)).turn,
            _ => true,
        }
    }
}

fn earlier(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    a.into_iter().chain(b).min()
}
