//! Error watch: rolls a reload back if more attempts of a changed step fail after it than before.
//!
//! Each step is judged by itself: a busy step must not hide one that always fails. Attempts carry the version of
//! their step, which is the generation that changed it last. So only changed steps are judged.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tidegate_model::Timestamp;

/// Number of attempts from which on a step is judged at any time.
const ATTEMPTS_MIN: u64 = 10;
/// The same at the end of the watch: a job may wait long for its next attempt.
const ATTEMPTS_MIN_AT_END: u64 = 3;
/// Number of parts of the time before a reload of which attempts are counted.
const PARTS: u32 = 8;

/// Share of failed attempts that rolls a reload back, and the time after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorLimit {
    pub rate: f64,
    pub within: Duration,
}

/// Attempts of a step, and those among them that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttemptShare {
    pub attempts: u64,
    pub failed: u64,
}

/// Fact that the watch needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ErrorWatchEvent {
    /// Attempts of a step ended. `version`: the generation that changed the step last when they began.
    Attempted {
        step: usize,
        version: u64,
        share: AttemptShare,
    },
    /// A step stopped, so it makes no more attempts.
    Stopped {
        step: usize,
        version: u64,
    },
    /// A generation took over. `watched`: it is a reload, and no rollback.
    Swapped {
        generation: u64,
        limit: Option<ErrorLimit>,
        watched: bool,
    },
    /// The files changed again, and have mistakes.
    Refused,
    Tick,
}

/// Command to roll a generation back, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollBack {
    pub generation: u64,
    pub step: usize,
    pub after: AttemptShare,
    pub before: AttemptShare,
}

/// Watch of all steps of a run.
#[derive(Debug, Default)]
pub struct ErrorWatch {
    /// `None`: no attempts are counted.
    limit: Option<ErrorLimit>,
    steps: BTreeMap<usize, StepAttempts>,
    watched: Option<Watched>,
}

/// Generation that may be rolled back.
#[derive(Clone, Copy, Debug)]
struct Watched {
    generation: u64,
    until: Timestamp,
}

/// Attempts of one step.
#[derive(Debug)]
struct StepAttempts {
    version: u64,
    /// All attempts of this version.
    all: AttemptShare,
    /// The last ones of this version, by their time. A later version is compared with them.
    recent: VecDeque<(Timestamp, AttemptShare)>,
    /// The last ones of the version before.
    before: AttemptShare,
}

impl AttemptShare {
    pub fn add(&mut self, more: Self) {
        self.attempts += more.attempts;
        self.failed += more.failed;
    }

    /// Whether the share of failed attempts is higher than that of others. No attempts are as good as no failures.
    fn exceeds(self, other: Self) -> bool {
        let product = |failed: u64, attempts: u64| u128::from(failed) * u128::from(attempts.max(1));
        product(self.failed, other.attempts) > product(other.failed, self.attempts)
    }

    #[expect(clippy::cast_precision_loss, reason = "a share needs no more digits")]
    fn exceeds_rate(self, rate: f64) -> bool {
        self.failed as f64 > rate * self.attempts as f64
    }
}

impl ErrorWatch {
    /// Handles an event, and returns the rollback that it causes. It is returned once.
    pub fn handle(&mut self, event: ErrorWatchEvent, now: Timestamp) -> Option<RollBack> {
        let mut roll_back = None;
        if self.watched.is_some_and(|watched| watched.until <= now) {
            let steps: Vec<usize> = self.steps.keys().copied().collect();
            roll_back = steps.into_iter().find_map(|step| self.judge(step, ATTEMPTS_MIN_AT_END));
            self.watched = None;
        }
        match event {
            ErrorWatchEvent::Attempted { step, version, share } => {
                self.count(step, version, share, now);
                roll_back = roll_back.or_else(|| self.judge(step, ATTEMPTS_MIN));
            }
            ErrorWatchEvent::Stopped { step, version } => {
                if self.steps.get(&step).is_some_and(|attempts| attempts.version == version) {
                    roll_back = roll_back.or_else(|| self.judge(step, 1));
                }
            }
            ErrorWatchEvent::Swapped { generation, limit, watched } => {
                // The generation that was to be rolled back is over.
                roll_back = None;
                self.swap(limit);
                let until = limit.filter(|_| watched).map(|limit| now + limit.within);
                self.watched = until.map(|until| Watched { generation, until });
            }
            ErrorWatchEvent::Refused => {
                roll_back = None;
                self.watched = None;
            }
            ErrorWatchEvent::Tick => {}
        }
        if roll_back.is_some() {
            self.watched = None;
        }
        roll_back
    }

    /// Time at which [`ErrorWatchEvent::Tick`] has work.
    #[must_use]
    pub fn wakes(&self) -> Option<Timestamp> {
        self.watched.map(|watched| watched.until)
    }

    /// Generation that may be rolled back.
    #[must_use]
    pub fn watched(&self) -> Option<u64> {
        self.watched.map(|watched| watched.generation)
    }

    fn swap(&mut self, limit: Option<ErrorLimit>) {
        if limit.is_none() {
            self.steps.clear();
        }
        self.limit = limit;
    }

    fn count(&mut self, step: usize, version: u64, share: AttemptShare, now: Timestamp) {
        let Some(limit) = self.limit else { return };
        let attempts = self.steps.entry(step).or_insert_with(|| StepAttempts::new(version));
        if attempts.version > version {
            // They began before the step changed.
            return;
        }
        if attempts.version < version {
            *attempts = StepAttempts { before: attempts.last(), ..StepAttempts::new(version) };
        }
        attempts.add(share, limit.within, now);
    }

    fn judge(&self, step: usize, attempts_min: u64) -> Option<RollBack> {
        let (watched, limit) = (self.watched?, self.limit?);
        let StepAttempts { version, all, before, .. } = self.steps.get(&step)?;
        let is_worse = all.attempts >= attempts_min && all.exceeds_rate(limit.rate) && all.exceeds(*before);
        (*version == watched.generation && is_worse).then_some(RollBack {
            generation: watched.generation,
            step,
            after: *all,
            before: *before,
        })
    }
}

impl StepAttempts {
    fn new(version: u64) -> Self {
        let none = AttemptShare::default();
        Self { version, all: none, recent: VecDeque::new(), before: none }
    }

    fn add(&mut self, share: AttemptShare, within: Duration, now: Timestamp) {
        self.all.add(share);
        match self.recent.back_mut() {
            // A clock that was set back adds to the last part.
            Some((since, last)) if now < *since + within / PARTS => last.add(share),
            _ => self.recent.push_back((now, share)),
        }
        while self.recent.front().is_some_and(|(since, _)| *since + within < now) {
            self.recent.pop_front();
        }
    }

    /// The attempts within the last time in which the step made any: a step that was idle since, or has stopped, is
    /// known by them.
    fn last(&self) -> AttemptShare {
        let mut last = AttemptShare::default();
        self.recent.iter().for_each(|(_, share)| last.add(*share));
        last
    }
}
