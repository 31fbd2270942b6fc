//! Lane counts: counts the jobs of the waiting room, in total and by lane.

use std::cmp::Reverse;
use std::collections::HashSet;

use super::WaitingRoom;
use super::lanes::LaneState;
use super::policy::{JobKey, LaneCounts, LaneSummary, StateCounts};
use super::slab::{JobState, NONE};
use tidegate_model::Timestamp;

/// Counts of one lane during the walk.
#[derive(Clone, Copy)]
struct Tally {
    waiting: u32,
    running: u32,
    delayed: u32,
    pending: u32,
    /// Slot of its oldest waiting job.
    oldest: u32,
    /// Slot of any of its jobs.
    any: u32,
}

const EMPTY: Tally = Tally { waiting: 0, running: 0, delayed: 0, pending: 0, oldest: NONE, any: NONE };

impl WaitingRoom {
    /// Counts the jobs by state, in constant time.
    #[must_use]
    pub fn counts(&self) -> StateCounts {
        let waiting = self.by_state[..=JobState::Waiting as usize].iter().sum();
        StateCounts {
            waiting,
            running: self.count(JobState::Running),
            delayed: self.count(JobState::Delayed),
            pending: self.count(JobState::Pending) + self.count(JobState::Valid),
            finished: self.count(JobState::Finished),
            lanes: self.lanes.with_jobs(),
        }
    }

    /// Finds the oldest waiting job, and the `most` lanes with the most waiting jobs, in descending order.
    ///
    /// The jobs of `held` are started and not begun: they count as waiting, and so do delayed jobs that are
    /// due. The cost is a walk over all jobs, and over all lanes if lanes are requested.
    #[must_use]
    pub fn summary(&self, most: usize, held: &HashSet<JobKey>, now: Timestamp) -> LaneSummary {
        let (mut all, mut due) = (EMPTY, 0);
        let mut lanes = vec![EMPTY; if most > 0 { self.lanes.all().len() } else { 0 }];
        for slot in self.jobs.slots() {
            let job_state = match self.jobs.job_state(slot) {
                JobState::Running if !held.is_empty() && held.contains(&self.jobs.key(slot)) => {
                    JobState::Waiting
                }
                JobState::Delayed if self.jobs.until(slot) <= now => {
                    due += 1;
                    JobState::Due
                }
                job_state => job_state,
            };
            self.count_one(slot, job_state, &mut all);
            if let Some(lane) = lanes.get_mut(self.jobs.lane(slot) as usize) {
                self.count_one(slot, job_state, lane);
            }
        }
        let oldest = Some(all.oldest).filter(|&slot| slot != NONE).map(|slot| self.jobs.key(slot));
        LaneSummary { oldest, due, lanes: self.top(lanes, most) }
    }

    fn count_one(&self, slot: u32, job_state: JobState, tally: &mut Tally) {
        tally.any = slot;
        match job_state {
            JobState::Running => tally.running += 1,
            JobState::Delayed => tally.delayed += 1,
            JobState::Pending | JobState::Valid => tally.pending += 1,
            JobState::Unknown | JobState::PutBack | JobState::Due | JobState::Waiting => {
                tally.waiting += 1;
                let age = |slot| (self.jobs.age(slot), self.jobs.key(slot));
                if tally.oldest == NONE || age(slot) < age(tally.oldest) {
                    tally.oldest = slot;
                }
            }
            JobState::Finished | JobState::Free => {}
        }
    }

    fn top(&self, tallies: Vec<Tally>, most: usize) -> Vec<LaneCounts> {
        let lanes = self.lanes.all().iter().zip(tallies).filter(|(_, tally)| tally.any != NONE);
        let mut lanes: Vec<(&LaneState, Tally)> = lanes.collect();
        let order =
            |one: &(&LaneState, Tally), other: &(&LaneState, Tally)| self.rank(one).cmp(&self.rank(other));
        if lanes.len() > most && most > 0 {
            lanes.select_nth_unstable_by(most - 1, order);
        }
        lanes.truncate(most);
        lanes.sort_unstable_by(order);
        let lane_counts = |(lane, tally): (&LaneState, Tally)| LaneCounts {
            lane: lane.name.clone(),
            waiting: tally.waiting as usize,
            running: tally.running as usize,
            delayed: tally.delayed as usize,
            pending: tally.pending as usize,
            oldest: Some(tally.oldest).filter(|&slot| slot != NONE).map(|slot| self.jobs.key(slot)),
            some: self.jobs.key(tally.any),
        };
        lanes.into_iter().map(lane_counts).collect()
    }

    /// Order of the lanes: most waiting jobs, then most jobs, then oldest.
    fn rank<'l>(
        &self,
        (lane, tally): &(&'l LaneState, Tally),
    ) -> (Reverse<u32>, Reverse<u32>, i64, &'l [u8]) {
        let oldest = if tally.oldest == NONE { i64::MAX } else { self.jobs.age(tally.oldest) };
        (Reverse(tally.waiting), Reverse(lane.jobs), oldest, &lane.name)
    }
}
