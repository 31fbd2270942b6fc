//! What the next rounds would start, played through on a room that nobody needs any more.

use super::WaitingRoom;
use super::jobs::Stand;
use super::rules::{Round, Strategy};
use tidegate_model::Timestamp;

/// How far a preview goes.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    pub rounds: usize,
    /// So many jobs of each round are told one by one.
    pub told: usize,
    /// It ends after so many jobs, whatever is left of the round.
    pub jobs: u64,
}

impl WaitingRoom {
    /// What the next rounds would start, if everything that runs and everything that starts finished at
    /// once; and whether it ended before it was through. Without rounds, what runs at once counts as one, and
    /// what starts later, because of a rate or a delay, as the next. What nobody knows a time of, like jobs
    /// that are pending, stays where it is.
    #[must_use]
    pub fn preview(mut self, mut now: Timestamp, reach: Reach) -> (Vec<Round>, bool) {
        let running: Vec<_> =
            self.jobs.slots().filter(|&slot| self.jobs.stand(slot) == Stand::Running).collect();
        for slot in running {
            self.remove(slot, now);
        }
        let mut told: Vec<Round> = Vec::new();
        let (mut last, mut total, mut started) = (None, 0, Vec::new());
        // How many had started when time moved on last.
        let mut earlier = 0;
        loop {
            self.start(now, 1, &mut started);
            let Some(key) = started.pop() else {
                match self.next_wake(now) {
                    Some(wake) if wake > now && wake < Timestamp(i64::MAX) => (now, earlier) = (wake, total),
                    _ => return (told, false),
                }
                continue;
            };
            let number = self.number_of_round(now, total - earlier);
            if last != Some(number) {
                if told.len() == reach.rounds {
                    return (told, false);
                }
                told.push(Round { at: now, jobs: Vec::new(), more: 0 });
                last = Some(number);
            }
            if total == reach.jobs {
                return (told, true);
            }
            if let Some(round) = told.last_mut() {
                if round.jobs.len() < reach.told {
                    round.jobs.push(key);
                } else {
                    round.more += 1;
                }
            }
            total += 1;
            if let Some(slot) = self.jobs.find(key) {
                self.remove(slot, now);
            }
        }
    }

    /// What tells the round of the last started job from that of others, when so many had started before it
    /// at the same time.
    fn number_of_round(&self, now: Timestamp, before: u64) -> (Timestamp, u64) {
        match self.rules.strategy {
            Strategy::OneRoundSerial | Strategy::OneRoundParallel | Strategy::Rounds { .. } => {
                (Timestamp(0), self.round)
            }
            Strategy::Serial => (now, before),
            Strategy::Fifo | Strategy::Priority { .. } => {
                (now, self.rules.max_processing.map_or(0, |most| before / u64::from(most.get())))
            }
        }
    }
}
