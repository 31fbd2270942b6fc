//! Lane table: keeps each lane with a job in the waiting room, or with a start that counts against its rate.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use super::key_index::KeyIndex;
use super::policy::{Hold, QueuePolicy, StartRate};
use super::rate_window::RateWindow;
use super::slab::NONE;
use tidegate_model::Timestamp;

#[derive(Clone, Debug)]
pub(crate) struct LaneState {
    pub(crate) name: Box<[u8]>,
    /// Number of its jobs in the waiting room.
    pub(crate) jobs: u32,
    /// Number of its jobs that run or are pending.
    pub(crate) held: u32,
    /// Number of its jobs that run.
    pub(crate) running: u32,
    /// Number of its unknown jobs.
    pub(crate) unknown: u32,
    /// Number of its jobs that do not occupy it.
    pub(crate) free: u32,
    /// Number of its jobs that start together now.
    pub(crate) row: u32,
    /// Parity of the round in which it has its place, if lanes have places. Under `rounds`, parity of its own
    /// round.
    pub(crate) turn: bool,
    /// Whether its round of `rounds` is in progress.
    pub(crate) is_open: bool,
    pub(crate) hold: Option<Hold>,
}

/// Pause of a lane between two rounds of `rounds`.
#[derive(Clone, Copy, Debug)]
struct Pause {
    since: Timestamp,
    until: Timestamp,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Lanes {
    lanes: Vec<LaneState>,
    free: Vec<u32>,
    index: KeyIndex,
    /// Random keys, so that a client cannot choose lane names that collide.
    hasher: RandomState,
    logs: HashMap<u32, RateWindow>,
    /// For each rate window, the time at which its oldest start expires.
    wakes: BTreeSet<(Timestamp, u32)>,
    pauses: HashMap<u32, Pause>,
    /// Ends of the pauses.
    pause_ends: BTreeSet<(Timestamp, u32)>,
    /// Starts of the pauses.
    pause_starts: BTreeSet<(Timestamp, u32)>,
    with_jobs: usize,
    /// Held lanes by name, also those without jobs.
    holds: BTreeMap<Box<[u8]>, Hold>,
}

impl LaneState {
    /// Number of its jobs that occupy it, or wait for it. Jobs that start together do not wait for each other.
    pub(crate) fn occupied(&self) -> u32 {
        self.jobs - self.free - self.row
    }
}

impl Lanes {
    /// Number of the lane with this name, for one more job.
    pub(crate) fn enter(&mut self, name: &[u8]) -> u32 {
        let hash = self.hasher.hash_one(name);
        let lanes = &self.lanes;
        let found = self.index.find(hash, |lane| *lanes[lane as usize].name == *name);
        let number = found.unwrap_or_else(|| self.open(hash, name));
        let lane = &mut self.lanes[number as usize];
        self.with_jobs += usize::from(lane.jobs == 0);
        lane.jobs += 1;
        number
    }

    /// Records that a job of the lane left the waiting room.
    pub(crate) fn leave(&mut self, number: u32) {
        let lane = &mut self.lanes[number as usize];
        lane.jobs -= 1;
        if lane.jobs == 0 {
            self.with_jobs -= 1;
            self.close_unused(number);
        }
    }

    pub(crate) fn get(&self, number: u32) -> &LaneState {
        &self.lanes[number as usize]
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> &mut LaneState {
        &mut self.lanes[number as usize]
    }

    pub(crate) fn all(&self) -> &[LaneState] {
        &self.lanes
    }

    pub(crate) fn with_jobs(&self) -> usize {
        self.with_jobs
    }

    /// Holds a lane, or ends its hold. Returns its number, if it has one.
    pub(crate) fn hold(&mut self, name: &[u8], hold: Option<Hold>) -> Option<u32> {
        match hold {
            Some(hold) => _ = self.holds.insert(name.into(), hold),
            None => _ = self.holds.remove(name),
        }
        let lanes = &self.lanes;
        let found =
            self.index.find(self.hasher.hash_one(name), |lane| *lanes[lane as usize].name == *name)?;
        self.lanes[found as usize].hold = hold;
        Some(found)
    }

    /// Number of jobs that wait in halted lanes.
    pub(crate) fn waiting_in_halted(&self) -> usize {
        let halted = self.holds.iter().filter(|(_, hold)| **hold == Hold::Halted);
        let jobs = halted.filter_map(|(name, _)| {
            let lanes = &self.lanes;
            let hash = self.hasher.hash_one(&**name);
            let found = self.index.find(hash, |lane| lanes[lane as usize].name == *name)?;
            let lane = self.get(found);
            Some((lane.occupied() - lane.held) as usize)
        });
        jobs.sum()
    }

    pub(crate) fn has_halted(&self) -> bool {
        self.holds.values().any(|hold| *hold == Hold::Halted)
    }

    /// Whether the limits of the lane allow one more start.
    pub(crate) fn allows(&self, number: u32, rules: &QueuePolicy) -> bool {
        if self.get(number).hold.is_some() {
            return false;
        }
        let full = |most: std::num::NonZeroU32| self.get(number).held >= most.get();
        let spent = |rate| self.logs.get(&number).is_some_and(|log| log.is_full(rate));
        !rules.max_per_lane.is_some_and(full) && !rules.lane_rate.is_some_and(spent)
    }

    /// End of the wait for the lane's rate, if it is after `now`.
    pub(crate) fn full_until(&self, number: u32, rate: StartRate, now: Timestamp) -> Option<Timestamp> {
        self.logs.get(&number)?.full_until(rate, now)
    }

    /// Records the start of a job of the lane.
    pub(crate) fn record(&mut self, number: u32, rate: StartRate, now: Timestamp) {
        let log = self.logs.entry(number).or_default();
        let fresh = log.is_empty();
        log.record(now);
        if fresh && let Some(wake) = log.next(rate) {
            self.wakes.insert((wake, number));
        }
    }

    /// Begins the pause of a lane, in place of an earlier one.
    pub(crate) fn pause(&mut self, number: u32, now: Timestamp, pause: Duration) {
        self.forget_pause(number);
        let pause = Pause { since: now, until: now + pause };
        if pause.until > now {
            self.pauses.insert(number, pause);
            self.pause_ends.insert((pause.until, number));
            self.pause_starts.insert((pause.since, number));
        }
    }

    pub(crate) fn is_paused(&self, number: u32) -> bool {
        self.pauses.contains_key(&number)
    }

    /// End of the pause of a lane, if that is after `now`.
    pub(crate) fn paused_until(&self, number: u32, now: Timestamp) -> Option<Timestamp> {
        let pause = self.pauses.get(&number)?;
        (pause.since..pause.until).contains(&now).then_some(pause.until)
    }

    pub(crate) fn first_pause_end(&self) -> Option<Timestamp> {
        self.pause_ends.first().map(|&(until, _)| until)
    }

    /// Ends a pause that is over, and returns its lane. A clock that was set back behind the start of a pause
    /// ends it.
    pub(crate) fn end_pause(&mut self, now: Timestamp) -> Option<u32> {
        let over = self.pause_ends.first().filter(|(until, _)| *until <= now);
        let (_, number) = *over.or_else(|| self.pause_starts.last().filter(|(since, _)| *since > now))?;
        self.forget_pause(number);
        self.close_unused(number);
        Some(number)
    }

    fn forget_pause(&mut self, number: u32) {
        if let Some(Pause { since, until }) = self.pauses.remove(&number) {
            self.pause_ends.remove(&(until, number));
            self.pause_starts.remove(&(since, number));
        }
    }

    /// Time at which the next start of any lane expires.
    pub(crate) fn next_wake(&self) -> Option<Timestamp> {
        self.wakes.first().map(|&(wake, _)| wake)
    }

    /// Next lane with an expired start.
    pub(crate) fn wake(&mut self, rate: StartRate, now: Timestamp) -> Option<u32> {
        let (_, number) = *self.wakes.first().filter(|(wake, _)| *wake <= now)?;
        self.wakes.pop_first();
        if let Some(log) = self.logs.get_mut(&number) {
            log.pass(rate, now);
            match log.next(rate) {
                Some(wake) => _ = self.wakes.insert((wake, number)),
                None => _ = self.logs.remove(&number),
            }
        }
        self.close_unused(number);
        Some(number)
    }

    /// Adjusts the recorded starts after the clock was set back.
    pub(crate) fn set_back(&mut self, rate: StartRate, now: Timestamp) {
        for (&number, log) in &mut self.logs {
            let before = log.next(rate);
            log.set_back(now);
            if let (Some(before), Some(after)) = (before, log.next(rate)) {
                self.wakes.remove(&(before, number));
                self.wakes.insert((after, number));
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        let names: usize = self.lanes.iter().map(|lane| lane.name.len()).sum();
        self.lanes.capacity() * size_of::<LaneState>() + names + self.index.bytes()
    }

    fn open(&mut self, hash: u64, name: &[u8]) -> u32 {
        let (jobs, held, running, unknown, free, row) = (0, 0, 0, 0, 0, 0);
        let hold = self.holds.get(name).copied();
        let (turn, is_open) = (false, false);
        let name = name.into();
        let lane = LaneState { name, jobs, held, running, unknown, free, row, turn, is_open, hold };
        let number = if let Some(free) = self.free.pop() {
            self.lanes[free as usize] = lane;
            free
        } else {
            if self.lanes.len() == self.lanes.capacity() {
                self.lanes.reserve_exact(self.lanes.len() / 8 + 16);
            }
            self.lanes.push(lane);
            // There are no more lanes than jobs, and jobs are counted by `u32`.
            u32::try_from(self.lanes.len() - 1).unwrap_or(NONE)
        };
        let (lanes, hasher) = (&self.lanes, &self.hasher);
        self.index.insert(hash, number, |lane| hasher.hash_one(&*lanes[lane as usize].name));
        number
    }

    /// Removes the lane if it has no jobs, no start that counts and no pause.
    fn close_unused(&mut self, number: u32) {
        if self.get(number).jobs > 0 || self.logs.contains_key(&number) || self.is_paused(number) {
            return;
        }
        let hash = self.hasher.hash_one(&*self.get(number).name);
        self.index.remove(hash, number);
        self.lanes[number as usize].name = Box::default();
        self.free.push(number);
    }
}
