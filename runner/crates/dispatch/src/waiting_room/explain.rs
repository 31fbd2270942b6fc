//! Explanations: report the state of a job, and the reason for which it waits.

use super::WaitingRoom;
use super::policy::{HeldLane, JobKey, StartOrder, WaitReason, WaitingState};
use super::slab::{JobState, ListKind};
use tidegate_model::Timestamp;

impl WaitingRoom {
    /// State of a job.
    #[must_use]
    pub fn state(&self, key: JobKey) -> Option<WaitingState> {
        self.jobs.find(key).map(|slot| self.jobs.state(slot))
    }

    /// Reason for which a job does not run, with the time at which it may: the nearest reason. May walk all
    /// jobs.
    #[must_use]
    pub fn explain(&self, key: JobKey, now: Timestamp) -> Option<WaitReason> {
        let slot = self.jobs.find(key)?;
        Some(match self.jobs.job_state(slot) {
            JobState::Running => WaitReason::Running,
            JobState::Pending | JobState::Valid => WaitReason::Pending,
            JobState::Finished => WaitReason::Finished,
            JobState::Delayed if self.jobs.until(slot) > now => {
                WaitReason::Delayed { until: self.jobs.until(slot) }
            }
            _ => self
                .why_held(slot)
                .or_else(|| self.why_others(slot))
                .or_else(|| self.why_lane(slot, now))
                .or_else(|| self.why_round(slot, now))
                .unwrap_or_else(|| self.why_room(now)),
        })
    }

    /// Jobs of a job's lane that run or are pending. Walks all jobs.
    #[must_use]
    pub fn held_in_lane_of(&self, key: JobKey) -> Option<HeldLane<'_>> {
        let lane = self.jobs.lane(self.jobs.find(key)?);
        let is_held = |&slot: &u32| self.jobs.lane(slot) == lane && self.jobs.job_state(slot).is_held();
        let held: Vec<u32> = self.jobs.slots().filter(is_held).collect();
        let pending = held.iter().filter(|&&slot| self.jobs.job_state(slot) == JobState::Pending).count();
        let jobs = held.into_iter().map(|slot| self.jobs.key(slot)).collect();
        Some(HeldLane { lane: &self.lanes.get(lane).name, jobs, pending })
    }

    fn why_held(&self, slot: u32) -> Option<WaitReason> {
        self.lanes.get(self.jobs.lane(slot)).hold.map(WaitReason::LaneHeld)
    }

    /// Job that this one waits for by the rules of the strategy.
    fn why_others(&self, slot: u32) -> Option<WaitReason> {
        let lane = self.jobs.lane(slot);
        let (list, _) = self.jobs.list(slot);
        let other = match self.rules.strategy {
            StartOrder::OneRoundSerial if list == ListKind::Lane => {
                let line = self.line(lane, false);
                let held = self.lanes.get(lane).occupied() > self.lines[line as usize].len();
                let holder = |&other: &u32| {
                    self.jobs.lane(other) == lane
                        && self.jobs.list(other).0 != ListKind::Lane
                        && !self.jobs.job_state(other).frees_lane()
                };
                let head = || self.lines[line as usize].head(&self.jobs);
                if held { self.first(holder) } else { head() }
            }
            StartOrder::OneRoundParallel if self.jobs.is_blocked(slot) && list == ListKind::Nowhere => {
                let job = self.conflicts.holder(slot, &self.jobs)?;
                return Some(WaitReason::Conflict { job: self.jobs.key(job), state: self.jobs.state(job) });
            }
            StartOrder::Serial => {
                let holder = |&other: &u32| {
                    let state = self.jobs.job_state(other);
                    state > JobState::Waiting && !state.frees_lane()
                };
                let head = || self.lines[0].head(&self.jobs);
                self.first(holder).or_else(head)
            }
            _ => None,
        };
        let job = other.filter(|&other| other != slot)?;
        Some(WaitReason::Lane { job: self.jobs.key(job), state: self.jobs.state(job) })
    }

    /// First of all jobs for which the predicate holds.
    fn first(&self, holds: impl Fn(&u32) -> bool) -> Option<u32> {
        self.jobs.slots().filter(holds).min_by(|&a, &b| self.jobs.compare(a, b))
    }

    fn why_lane(&self, slot: u32, now: Timestamp) -> Option<WaitReason> {
        let lane = self.jobs.lane(slot);
        if let Some(rate) = self.rules.lane_rate
            && let Some(until) = self.lanes.full_until(lane, rate, now)
        {
            return Some(WaitReason::LaneRate { until });
        }
        let full = self.rules.max_per_lane.is_some_and(|most| self.lanes.get(lane).held >= most.get());
        full.then_some(WaitReason::MaxPerLane)
    }

    fn why_round(&self, slot: u32, now: Timestamp) -> Option<WaitReason> {
        match self.rules.strategy {
            StartOrder::Rounds { .. } if !self.lanes.get(self.jobs.lane(slot)).is_open => {
                let until = self.lanes.paused_until(self.jobs.lane(slot), now);
                until.map(|until| WaitReason::Pause { until })
            }
            // A job that no round has taken yet may be in the next round, which may begin at once.
            _ if self.is_of_this_round(slot) || !self.is_under_way(slot) => None,
            _ => Some(WaitReason::NextRound),
        }
    }

    fn why_room(&self, now: Timestamp) -> WaitReason {
        let most = self.rules.max_processing.map_or(usize::MAX, |most| most.get() as usize);
        if self.count(JobState::Running) >= most {
            return WaitReason::MaxProcessing;
        }
        let most = self.rules.max_pending.map_or(usize::MAX, |most| most.get() as usize);
        if self.count_outside() >= most {
            return WaitReason::MaxPending;
        }
        let spent = self.rules.rate.and_then(|rate| self.log.full_until(rate, now));
        spent.map_or(WaitReason::Turn, |until| WaitReason::Rate { until })
    }

    /// Whether the current round of a job's lane has jobs left to start or to finish.
    fn is_under_way(&self, slot: u32) -> bool {
        let turn = usize::from(self.parity);
        match self.rules.strategy {
            StartOrder::Rounds { .. } => self.lanes.get(self.jobs.lane(slot)).is_open,
            _ => !self.ready[turn].is_empty() || !self.urgent[turn].is_empty(),
        }
    }
}
