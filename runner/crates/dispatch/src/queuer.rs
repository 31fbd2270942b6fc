//! The waiting room of one step: who of the waiting jobs may start, by the rules of its queuer.
//!
//! It is told what comes, what becomes of what it started, and the time; what it answers follows from
//! that alone. Starting costs what is started, not what waits: a lane that can start nothing is not
//! looked at until something changes that.

mod choose;
mod conflicts;
mod delays;
mod heap;
mod index;
mod jobs;
mod lanes;
mod line;
mod log;
mod preview;
mod rules;
mod slots;
mod survey;
mod why;

use conflicts::{Changes, Conflicts};
use delays::Delays;
use heap::Heap;
use jobs::{Extra, Hall, Jobs, Stand};
use lanes::Lanes;
use line::Line;
use log::Log;
pub use preview::Reach;
use rules::millis;
pub use rules::{
    Card, Counts, JobId, JobKey, LaneCounts, Rate, Refusal, Round, Rules, State, Strategy, Survey, Why,
};
use tidegate_model::Timestamp;

/// The jobs of one step that are not accounted for, and who of them may start.
///
/// A job is added, is started, and is then told finished, put back, delayed, pending or forgotten. What
/// is told of a job for which it cannot be true is refused and has no effect, so that reports may come
/// twice, late or unasked.
#[derive(Clone, Debug)]
pub struct WaitingRoom {
    rules: Rules,
    /// Whether each lane has lines of its own; otherwise all share those of lane 0.
    per_lane: bool,
    jobs: Jobs,
    lanes: Lanes,
    /// Those who wait; two for each lane where each round has its own jobs, or one.
    lines: Vec<Line>,
    /// The lines that have a job that may start: of this round, and of the next.
    ready: [Heap<(Stand, i64)>; 2],
    /// What a round takes before it asks the lanes: what is unknown, and what is no longer delayed.
    urgent: [Line; 2],
    delayed: Delays,
    conflicts: Conflicts,
    log: Log,
    /// How many jobs stand in the lines of lanes, by turn.
    lined_up: [usize; 2],
    /// How many jobs there are, by stand.
    stands: [usize; 8],
    /// Which of the two turns is that of this round. Without rounds it is always the same.
    turn: bool,
    round: u64,
    /// Whether a round of `rounds` is under way.
    open: bool,
    /// When the last one ended.
    ended: Option<Timestamp>,
    latest: Timestamp,
}

impl WaitingRoom {
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        let bounds = rules.max_per_lane.is_some() || rules.lane_rate.is_some();
        let per_lane = match rules.strategy {
            Strategy::OneRoundSerial | Strategy::OneRoundParallel => true,
            Strategy::Serial => false,
            Strategy::Fifo | Strategy::Priority { .. } | Strategy::Rounds { .. } => bounds,
        };
        let ranked = matches!(rules.strategy, Strategy::Priority { .. });
        let mut room = Self {
            rules,
            per_lane,
            jobs: Jobs::new(ranked),
            lanes: Lanes::default(),
            lines: Vec::new(),
            ready: [Heap::default(), Heap::default()],
            urgent: [Line::new(), Line::new()],
            delayed: Delays::default(),
            conflicts: Conflicts::default(),
            log: Log::default(),
            lined_up: [0; 2],
            stands: [0; 8],
            turn: false,
            round: 0,
            open: false,
            ended: None,
            latest: Timestamp(i64::MIN),
        };
        room.make_lines(0);
        room
    }

    /// Takes in a job that is new here, or that stood so when the process died or the rules changed.
    pub fn add(&mut self, card: Card<'_>, state: State) -> Result<(), Refusal> {
        let (key, age) = (card.key, card.age);
        if self.jobs.find(key).is_some() {
            return Err(Refusal::Present(key));
        }
        let lane = self.lanes.enter(card.lane);
        let extra = self.extra(card);
        let Some(slot) = self.jobs.insert(key, age, lane, extra) else {
            self.lanes.leave(lane);
            return Err(Refusal::Full);
        };
        self.make_lines(lane);
        let stand = match state {
            State::Waiting => Stand::Waiting,
            State::Unknown => Stand::Unknown,
            State::Running => Stand::Running,
            State::Pending => Stand::Pending,
            State::Delayed { until } => {
                self.jobs.set_until(slot, until);
                Stand::Delayed
            }
        };
        self.count_in(slot, stand);
        if self.has_conflicts() {
            let changes = self.conflicts.enter(slot, &self.jobs);
            self.apply(&changes);
        }
        self.place(slot);
        self.refresh(lane);
        self.open |= stand == Stand::Running;
        Ok(())
    }

    /// Starts up to `most` jobs, and adds them to `started` in the order in which they shall start.
    pub fn start(&mut self, now: Timestamp, most: usize, started: &mut Vec<JobKey>) {
        self.observe(now);
        for _ in 0..most {
            let Some(slot) = self.next(now) else { return };
            started.push(self.jobs.key(slot));
            self.claim(slot, now);
        }
    }

    /// The job, which ran or was pending, is accounted for and leaves.
    pub fn finished(&mut self, key: JobKey, now: Timestamp) -> Result<(), Refusal> {
        let slot = self.told(key, "finish", &[Stand::Running, Stand::Pending])?;
        self.remove(slot, now);
        Ok(())
    }

    /// The job did not come to run: it waits again, before all of its lane that never started.
    pub fn put_back(&mut self, key: JobKey) -> Result<(), Refusal> {
        let slot = self.told(key, "be put back", &[Stand::Running])?;
        self.change(slot, Stand::PutBack);
        Ok(())
    }

    /// The attempt failed; the next one is not before `until`.
    pub fn delay(&mut self, key: JobKey, until: Timestamp, now: Timestamp) -> Result<(), Refusal> {
        let slot = self.told(key, "be delayed", &[Stand::Running, Stand::Pending])?;
        // It stands in no line, so that no neighbours are overwritten.
        self.jobs.set_until(slot, until);
        self.change(slot, Stand::Delayed);
        self.end_round(now);
        Ok(())
    }

    /// Moves the end of a delay.
    pub fn reschedule(&mut self, key: JobKey, until: Timestamp) -> Result<(), Refusal> {
        let slot = self.told(key, "be rescheduled", &[Stand::Delayed])?;
        self.step_out(slot);
        self.jobs.set_until(slot, until);
        self.place(slot);
        Ok(())
    }

    /// The outside has the job, and will finish it.
    pub fn pend(&mut self, key: JobKey, now: Timestamp) -> Result<(), Refusal> {
        let slot = self.told(key, "be pending", &[Stand::Running])?;
        self.change(slot, Stand::Pending);
        self.end_round(now);
        Ok(())
    }

    /// The outside does not know the job: it is unknown, and goes before anything else of its lane.
    pub fn forgot(&mut self, key: JobKey) -> Result<(), Refusal> {
        let slot = self.told(key, "be unknown", &[Stand::Running, Stand::Pending])?;
        self.change(slot, Stand::Unknown);
        Ok(())
    }

    /// Takes out a job that nobody here works on; the outside may have it.
    pub fn cancel(&mut self, key: JobKey, now: Timestamp) -> Result<(), Refusal> {
        let idle =
            [Stand::Waiting, Stand::PutBack, Stand::Due, Stand::Unknown, Stand::Delayed, Stand::Pending];
        let slot = self.told(key, "be cancelled", &idle)?;
        self.remove(slot, now);
        Ok(())
    }

    fn extra(&self, card: Card<'_>) -> Option<Extra> {
        let rank = match self.rules.strategy {
            Strategy::Priority { aging: None } => -i128::from(card.priority),
            // Two that wait gain alike by waiting on: whoever is ahead once is ahead for ever.
            Strategy::Priority { aging: Some(aging) } => {
                i128::from(card.since.0) - i128::from(card.priority) * i128::from(millis(aging).max(1))
            }
            _ => 0,
        };
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        if self.has_conflicts() {
            writes.extend_from_slice(card.writes);
            writes.sort_unstable();
            writes.dedup();
            reads.extend(card.reads.iter().filter(|&key| writes.binary_search(key).is_err()));
            reads.sort_unstable();
            reads.dedup();
        }
        let needed = rank != 0 || card.id != JobId::None || !reads.is_empty() || !writes.is_empty();
        needed.then(|| Extra { rank, id: card.id, reads: reads.into(), writes: writes.into(), blocked: 0 })
    }

    /// The slot of a job of which something is told that needs it to stand like that.
    fn told(&self, key: JobKey, deed: &'static str, from: &[Stand]) -> Result<u32, Refusal> {
        let slot = self.jobs.find(key).ok_or(Refusal::Absent(key))?;
        if from.contains(&self.jobs.stand(slot)) {
            return Ok(slot);
        }
        Err(Refusal::Transition { key, state: self.jobs.state(slot), deed })
    }

    fn claim(&mut self, slot: u32, now: Timestamp) {
        let lane = self.jobs.lane(slot);
        if self.has_conflicts() && self.jobs.stand(slot) == Stand::Waiting {
            self.conflicts.starts(slot, &self.jobs);
        }
        if self.rules.rate.is_some() {
            self.log.record(now);
        }
        if let Some(rate) = self.rules.lane_rate {
            self.lanes.record(lane, rate, now);
        }
        if self.has_places() {
            self.take_place(lane);
        }
        self.change(slot, Stand::Running);
    }

    /// The job stands differently from now on.
    fn change(&mut self, slot: u32, stand: Stand) {
        self.step_out(slot);
        self.count_out(slot);
        self.count_in(slot, stand);
        self.place(slot);
        self.refresh(self.jobs.lane(slot));
    }

    fn remove(&mut self, slot: u32, now: Timestamp) {
        let lane = self.jobs.lane(slot);
        let changes =
            if self.has_conflicts() { self.conflicts.leave(slot, &self.jobs) } else { Changes::default() };
        self.step_out(slot);
        self.count_out(slot);
        self.jobs.remove(slot);
        self.lanes.leave(lane);
        self.apply(&changes);
        self.refresh(lane);
        self.end_round(now);
    }

    /// Holds and frees jobs of one lane, which is to be refreshed.
    fn apply(&mut self, changes: &Changes) {
        for &slot in &changes.held {
            if let Some(extra) = self.jobs.extra_mut(slot) {
                extra.blocked += 1;
            }
            if self.yields(slot) {
                self.step_out(slot);
            }
        }
        for &slot in &changes.freed {
            if let Some(extra) = self.jobs.extra_mut(slot) {
                extra.blocked -= 1;
            }
            if self.yields(slot) && self.jobs.hall(slot).0 == Hall::Nowhere {
                self.place(slot);
            }
        }
    }

    /// Whether the job stands so that a conflict keeps it from its line.
    fn yields(&self, slot: u32) -> bool {
        matches!(self.jobs.stand(slot), Stand::Waiting | Stand::PutBack)
    }

    /// Puts a job where its stand says. Its lane is to be refreshed.
    fn place(&mut self, slot: u32) {
        let stand = self.jobs.stand(slot);
        match stand {
            Stand::Running | Stand::Pending | Stand::Free => {}
            Stand::Delayed => self.delayed.insert(self.jobs.until(slot), slot),
            // Others of its lane may have a place in this round, and do not go before it.
            Stand::Unknown if self.has_conflicts() => self.hurry(slot, self.turn),
            Stand::Unknown if self.has_lists() => self.hurry(slot, !self.turn),
            Stand::Waiting | Stand::PutBack if self.jobs.is_blocked(slot) => {}
            Stand::Unknown | Stand::PutBack | Stand::Due | Stand::Waiting => {
                let at_once = self.open && matches!(stand, Stand::Unknown | Stand::PutBack);
                let turn = match self.rules.strategy {
                    Strategy::Rounds { .. } if at_once => self.turn,
                    Strategy::Rounds { .. } => !self.turn,
                    Strategy::OneRoundParallel => !self.has_places() && !self.turn,
                    _ => false,
                };
                self.line_up(slot, turn);
            }
        }
    }

    /// Puts a job where a round takes it before it asks the lanes.
    fn hurry(&mut self, slot: u32, turn: bool) {
        self.urgent[usize::from(turn)].push(slot, &mut self.jobs);
        self.jobs.set_hall(slot, Hall::Urgent, turn);
    }

    fn line_up(&mut self, slot: u32, turn: bool) {
        let line = self.line(self.jobs.lane(slot), turn);
        self.lines[line as usize].push(slot, &mut self.jobs);
        self.lined_up[usize::from(turn)] += 1;
        self.jobs.set_hall(slot, Hall::Lane, turn);
    }

    /// Takes a job from where it stands. Its lane is to be refreshed.
    fn step_out(&mut self, slot: u32) {
        if self.jobs.stand(slot) == Stand::Delayed {
            self.delayed.remove(self.jobs.until(slot), slot, &self.jobs);
        }
        let (hall, turn) = self.jobs.hall(slot);
        match hall {
            Hall::Nowhere => {}
            Hall::Lane => {
                let line = self.line(self.jobs.lane(slot), turn);
                self.lines[line as usize].remove(slot, &mut self.jobs);
                self.lined_up[usize::from(turn)] -= 1;
            }
            Hall::Urgent => self.urgent[usize::from(turn)].remove(slot, &mut self.jobs),
        }
        self.jobs.set_hall(slot, Hall::Nowhere, false);
    }

    fn count_in(&mut self, slot: u32, stand: Stand) {
        self.jobs.set_stand(slot, stand);
        self.stands[stand as usize] += 1;
        self.lanes.get_mut(self.jobs.lane(slot)).running += u32::from(stand == Stand::Running);
    }

    fn count_out(&mut self, slot: u32) {
        let stand = self.jobs.stand(slot);
        self.stands[stand as usize] -= 1;
        self.lanes.get_mut(self.jobs.lane(slot)).running -= u32::from(stand == Stand::Running);
    }

    fn count(&self, stand: Stand) -> usize {
        self.stands[stand as usize]
    }

    /// What plain waiting jobs cost: all but strays, delays and conflicts.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        let lines = self.lines.capacity() * size_of::<Line>();
        self.jobs.bytes() + self.lanes.bytes() + lines + self.ready.iter().map(Heap::bytes).sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
