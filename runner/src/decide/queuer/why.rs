//! What can be asked of the room: how many wait, why one does, and what would come next.

use super::WaitingRoom;
use super::jobs::{Hall, Stand};
use super::rules::{Counts, JobKey, LaneCounts, Round, State, Strategy, Why};
use crate::words::Timestamp;

impl WaitingRoom {
    /// How many jobs there are. Costs nothing.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let waiting = self.stands[..=Stand::Waiting as usize].iter().sum();
        Counts {
            waiting,
            running: self.count(Stand::Running),
            delayed: self.count(Stand::Delayed),
            pending: self.count(Stand::Pending),
            lanes: self.lanes.with_jobs(),
        }
    }

    /// Where a job stands.
    #[must_use]
    pub fn state(&self, key: JobKey) -> Option<State> {
        self.jobs.find(key).map(|slot| self.jobs.state(slot))
    }

    /// The lanes with the most jobs waiting, most first. Looks at every job.
    #[must_use]
    pub fn top_lanes(&self, most: usize) -> Vec<LaneCounts> {
        let mut waiting = vec![(0_usize, i64::MAX); self.lanes.all().len()];
        for slot in self.jobs.slots().filter(|&slot| self.jobs.stand(slot) <= Stand::Waiting) {
            let (count, oldest) = &mut waiting[self.jobs.lane(slot) as usize];
            *count += 1;
            *oldest = self.jobs.age(slot).min(*oldest);
        }
        let lanes = self.lanes.all().iter().zip(waiting).filter(|(_, (count, _))| *count > 0);
        let mut lanes: Vec<_> = lanes.collect();
        let order = |(lane, (count, oldest)): &(&super::lanes::Lane, (usize, i64))| {
            (std::cmp::Reverse(*count), *oldest, lane.name.clone())
        };
        if lanes.len() > most && most > 0 {
            lanes.select_nth_unstable_by_key(most - 1, order);
        }
        lanes.truncate(most);
        lanes.sort_by_cached_key(order);
        let told = |(lane, (waiting, oldest)): (&super::lanes::Lane, _)| LaneCounts {
            lane: lane.name.clone(),
            waiting,
            oldest,
        };
        lanes.into_iter().map(told).collect()
    }

    /// Why a job does not run, and when it may: the reason nearest to it. May look at every job.
    #[must_use]
    pub fn why(&self, key: JobKey, now: Timestamp) -> Option<Why> {
        let slot = self.jobs.find(key)?;
        Some(match self.jobs.stand(slot) {
            Stand::Running => Why::Running,
            Stand::Pending => Why::Pending,
            Stand::Delayed if self.jobs.until(slot) > now => Why::Delayed { until: self.jobs.until(slot) },
            _ => self
                .why_others(slot)
                .or_else(|| self.why_lane(slot, now))
                .or_else(|| self.why_round(slot, now))
                .unwrap_or_else(|| self.why_room(now)),
        })
    }

    /// What the next `rounds` would start, the first `most` of each, if everything that starts finished
    /// at once. Without rounds, what runs at once counts as one. Works on a copy of the room.
    #[must_use]
    pub fn preview(&self, mut now: Timestamp, rounds: usize, most: usize) -> Vec<Round> {
        let mut room = self.clone();
        let running: Vec<_> =
            self.jobs.slots().filter(|&slot| self.jobs.stand(slot) == Stand::Running).collect();
        for slot in running {
            room.remove(slot, now);
        }
        let mut told: Vec<Round> = Vec::new();
        let (mut last, mut total, mut started) = (None, 0, Vec::new());
        loop {
            room.start(now, 1, &mut started);
            let Some(key) = started.pop() else {
                match room.next_wake(now) {
                    Some(wake) if wake > now => now = wake,
                    _ => return told,
                }
                continue;
            };
            let number = room.number_of_round(total);
            if last != Some(number) {
                if told.len() == rounds {
                    return told;
                }
                told.push(Round { at: now, jobs: Vec::new(), more: 0 });
                last = Some(number);
            }
            if let Some(round) = told.last_mut() {
                if round.jobs.len() < most {
                    round.jobs.push(key);
                } else {
                    round.more += 1;
                }
            }
            total += 1;
            if let Some(slot) = room.jobs.find(key) {
                room.remove(slot, now);
            }
        }
    }

    /// The number of the round of the last started job, when so many had started before it.
    fn number_of_round(&self, before: u64) -> u64 {
        match self.rules.strategy {
            Strategy::OneRoundSerial | Strategy::OneRoundParallel | Strategy::Rounds { .. } => self.round,
            Strategy::Serial => before,
            Strategy::Fifo | Strategy::Priority { .. } => {
                self.rules.max_processing.map_or(0, |most| before / u64::from(most.get()))
            }
        }
    }

    /// The job that this one waits for by the rules of the strategy.
    fn why_others(&self, slot: u32) -> Option<Why> {
        let lane = self.jobs.lane(slot);
        let (hall, _) = self.jobs.hall(slot);
        let other = match self.rules.strategy {
            Strategy::OneRoundSerial if hall == Hall::Lane => {
                let line = self.line(lane, false);
                let held = self.lanes.get(lane).jobs > self.lines[line as usize].len();
                let holder =
                    |&other: &u32| self.jobs.lane(other) == lane && self.jobs.hall(other).0 != Hall::Lane;
                let head = || self.lines[line as usize].head(&self.jobs);
                if held { self.first(holder) } else { head() }
            }
            Strategy::OneRoundParallel if self.jobs.is_blocked(slot) && hall == Hall::Nowhere => {
                let job = self.conflicts.holder(slot, &self.jobs)?;
                return Some(Why::Conflict { job: self.jobs.key(job), state: self.jobs.state(job) });
            }
            Strategy::Serial => {
                let holder = |&other: &u32| self.jobs.stand(other) > Stand::Waiting;
                let head = || self.lines[0].head(&self.jobs);
                self.first(holder).or_else(head)
            }
            _ => None,
        };
        let job = other.filter(|&other| other != slot)?;
        Some(Why::Lane { job: self.jobs.key(job), state: self.jobs.state(job) })
    }

    /// The first of all jobs for which this holds.
    fn first(&self, holds: impl Fn(&u32) -> bool) -> Option<u32> {
        self.jobs.slots().filter(holds).min_by(|&a, &b| self.jobs.compare(a, b))
    }

    fn why_lane(&self, slot: u32, now: Timestamp) -> Option<Why> {
        let lane = self.jobs.lane(slot);
        if let Some(rate) = self.rules.lane_rate
            && let Some(until) = self.lanes.full_until(lane, rate, now)
        {
            return Some(Why::LaneRate { until });
        }
        let full = self.rules.max_per_lane.is_some_and(|most| self.lanes.get(lane).running >= most.get());
        full.then_some(Why::MaxPerLane)
    }

    fn why_round(&self, slot: u32, now: Timestamp) -> Option<Why> {
        match self.rules.strategy {
            Strategy::Rounds { .. } if !self.open => self.paused_until(now).map(|until| Why::Pause { until }),
            // What no round has taken yet may be of the next one, which may begin at once.
            _ if self.is_of_this_round(slot) || !self.is_under_way() => None,
            _ => Some(Why::NextRound),
        }
    }

    fn why_room(&self, now: Timestamp) -> Why {
        let most = self.rules.max_processing.map_or(usize::MAX, |most| most.get() as usize);
        if self.count(Stand::Running) >= most {
            return Why::MaxProcessing;
        }
        let spent = self.rules.rate.and_then(|rate| self.log.full_until(rate, now));
        spent.map_or(Why::Turn, |until| Why::Rate { until })
    }

    /// Whether a round has something left to hand out.
    fn is_under_way(&self) -> bool {
        let turn = usize::from(self.turn);
        match self.rules.strategy {
            Strategy::Rounds { .. } => self.open,
            _ => !self.ready[turn].is_empty() || !self.urgent[turn].is_empty(),
        }
    }
}
