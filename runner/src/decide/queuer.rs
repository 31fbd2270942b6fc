//! The waiting room of one step: which of its jobs may start.

mod rules;

use std::collections::BTreeMap;

pub use rules::{Card, Counts, JobId, JobKey, LaneCounts, Rate, Refusal, Round, Rules, State, Strategy, Why};

use crate::words::Timestamp;

#[derive(Clone, Debug)]
pub struct Room {
    rules: Rules,
    jobs: BTreeMap<(i64, JobKey), State>,
    ages: BTreeMap<JobKey, i64>,
}

impl Room {
    pub fn new(rules: Rules) -> Self {
        Self { rules, jobs: BTreeMap::new(), ages: BTreeMap::new() }
    }
    pub fn add(&mut self, card: Card<'_>, state: State) -> Result<(), Refusal> {
        self.ages.insert(card.key, card.age);
        self.jobs.insert((card.age, card.key), state);
        Ok(())
    }
    pub fn start(&mut self, now: Timestamp, most: usize, out: &mut Vec<JobKey>) {
        let mut running = self.counts().running;
        let limit = self.rules.max_processing.map_or(usize::MAX, |m| m.get() as usize);
        for (&(_, key), state) in &mut self.jobs {
            if out.len() >= most || running >= limit {
                return;
            }
            let may = match *state {
                State::Waiting | State::Unknown => true,
                State::Delayed { until } => until <= now,
                _ => false,
            };
            if may {
                *state = State::Running;
                running += 1;
                out.push(key);
            }
        }
    }
    fn set(&mut self, key: JobKey, state: State) -> Result<(), Refusal> {
        let age = self.ages.get(&key).ok_or(Refusal::Absent(key))?;
        self.jobs.insert((*age, key), state);
        Ok(())
    }
    pub fn finished(&mut self, key: JobKey) -> Result<(), Refusal> {
        let age = self.ages.remove(&key).ok_or(Refusal::Absent(key))?;
        self.jobs.remove(&(age, key));
        Ok(())
    }
    pub fn put_back(&mut self, key: JobKey) -> Result<(), Refusal> {
        self.set(key, State::Waiting)
    }
    pub fn delay(&mut self, key: JobKey, until: Timestamp) -> Result<(), Refusal> {
        self.set(key, State::Delayed { until })
    }
    pub fn pend(&mut self, key: JobKey) -> Result<(), Refusal> {
        self.set(key, State::Pending)
    }
    pub fn forgot(&mut self, key: JobKey) -> Result<(), Refusal> {
        self.set(key, State::Unknown)
    }
    pub fn next_wake(&self, _now: Timestamp) -> Option<Timestamp> {
        let until = |state: &State| if let State::Delayed { until } = state { Some(*until) } else { None };
        self.jobs.values().filter_map(until).min()
    }
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for state in self.jobs.values() {
            match state {
                State::Waiting | State::Unknown => counts.waiting += 1,
                State::Delayed { .. } => counts.delayed += 1,
                State::Running => counts.running += 1,
                State::Pending => counts.pending += 1,
            }
        }
        counts
    }
}
