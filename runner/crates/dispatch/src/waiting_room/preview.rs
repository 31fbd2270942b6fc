//! Preview: simulates the next rounds on a copy of the waiting room.

use super::WaitingRoom;
use super::policy::{Round, StartOrder};
use super::slab::JobState;
use tidegate_model::Timestamp;

/// Limits of a preview.
#[derive(Clone, Copy, Debug)]
pub struct PreviewHorizon {
    pub rounds: usize,
    /// Maximum number of jobs listed a round.
    pub listed: usize,
    /// Maximum number of jobs started in all; the preview ends there, even within a round.
    pub jobs: u64,
}

impl WaitingRoom {
    /// Simulates the next rounds, as if each job finished as soon as it started. Also returns whether the
    /// limit on jobs ended the preview early.
    ///
    /// Without rounds, each group of jobs that may start at the same time counts as one round. Jobs that
    /// start later, because of a rate or a delay, are in the next one. Jobs without a known time, such as
    /// pending ones, stay.
    #[must_use]
    pub fn preview(mut self, mut now: Timestamp, horizon: PreviewHorizon) -> (Vec<Round>, bool) {
        let running: Vec<_> =
            self.jobs.slots().filter(|&slot| self.jobs.job_state(slot) == JobState::Running).collect();
        for slot in running {
            self.remove(slot, now);
        }
        let mut rounds: Vec<Round> = Vec::new();
        let (mut last, mut total, mut started) = (None, 0, Vec::new());
        // Number of jobs that had started when the time last advanced.
        let mut earlier = 0;
        loop {
            self.start(now, 1, &mut started);
            let Some(key) = started.pop() else {
                match self.next_wake(now) {
                    Some(wake) if wake > now && wake < Timestamp(i64::MAX) => (now, earlier) = (wake, total),
                    _ => return (rounds, false),
                }
                continue;
            };
            let number = self.number_of_round(now, total - earlier);
            if last != Some(number) {
                if rounds.len() == horizon.rounds {
                    return (rounds, false);
                }
                rounds.push(Round { at: now, jobs: Vec::new(), more: 0 });
                last = Some(number);
            }
            if total == horizon.jobs {
                return (rounds, true);
            }
            if let Some(round) = rounds.last_mut() {
                if round.jobs.len() < horizon.listed {
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

    /// Identity of the round of the last started job. `before` is the number of jobs that started before it
    /// at the same time.
    fn number_of_round(&self, now: Timestamp, before: u64) -> (Timestamp, u64) {
        match self.rules.strategy {
            StartOrder::OneRoundSerial | StartOrder::OneRoundParallel | StartOrder::Rounds { .. } => {
                (Timestamp(0), self.round)
            }
            StartOrder::Serial => (now, before),
            StartOrder::Fifo | StartOrder::Priority { .. } => {
                (now, self.rules.max_processing.map_or(0, |most| before / u64::from(most.get())))
            }
        }
    }
}
