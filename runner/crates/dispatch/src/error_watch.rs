//! Error watch: rolls a reload back if more attempts of a changed step fail after it than before.
//!
//! Each step is judged by itself: a busy step must not hide one that always fails. Attempts carry the version of
//! their step, which is the generation that changed it last. So only changed steps are judged.
//!
//! A generation is proven when its time is over without a rollback. A rollback goes back to the last proven one, and
//! only attempts of proven versions count as those before: a second broken save is compared with the last good one. A
//! generation that cannot be rolled back counts as proven: no better one can be in force.

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
/// Maximum number of generations that are kept until they are proven.
const KEPT_MAX: usize = 4;

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
#[derive(Clone, Debug, PartialEq)]
pub enum ErrorWatchEvent {
    /// Attempts of a step ended. `version`: the generation that changed or started the step last when they began.
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
    /// A generation took over.
    Swapped(Swap),
    /// The generation cannot be rolled back, and stays in force. It is the measure of later ones.
    NotRolledBack {
        generation: u64,
    },
    Tick,
}

/// Takeover of a generation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Swap {
    pub generation: u64,
    pub limit: Option<ErrorLimit>,
    /// Whether it is a reload. A start and a rollback are not watched.
    pub watched: bool,
    /// Steps that are new, changed or removed.
    pub changed: Vec<usize>,
}

/// Command to go back to an earlier generation, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollBack {
    /// The current generation.
    pub generation: u64,
    /// The last proven generation.
    pub to: u64,
    pub step: usize,
    /// Generation that changed the step last.
    pub since: u64,
    pub after: AttemptShare,
    pub before: AttemptShare,
}

/// Watch of all steps of a run.
#[derive(Debug, Default)]
pub struct ErrorWatch {
    /// `None`: no attempts are counted.
    limit: Option<ErrorLimit>,
    steps: BTreeMap<usize, StepAttempts>,
    current: u64,
    /// The last proven generation.
    proven: u64,
    /// Generations whose time is not over, in their order.
    watched: VecDeque<Watched>,
    /// Whether a rollback is requested, and nothing has taken over since.
    is_requested: bool,
}

/// Generation whose changed steps are judged until a time.
#[derive(Clone, Copy, Debug)]
struct Watched {
    generation: u64,
    until: Timestamp,
    /// Whether it is proven afterwards. A generation with a version of a step that was replaced too early is not.
    can_be_proven: bool,
}

/// Attempts of one step.
#[derive(Debug)]
struct StepAttempts {
    /// Generation that changed the step last; 0: none since the start.
    since: u64,
    /// Whether the time of this version is over, without a reason for a rollback.
    is_proven: bool,
    /// All attempts of this version.
    all: AttemptShare,
    /// The last ones of this version, by their time. A later version is compared with them if this one is proven.
    recent: VecDeque<(Timestamp, AttemptShare)>,
    /// The last ones of the last proven version before.
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
        let roll_back = match event {
            ErrorWatchEvent::Attempted { step, version, share } => {
                let roll_back = self.end_of_time(now);
                self.count(step, version, share, now);
                roll_back.or_else(|| self.judge(step, ATTEMPTS_MIN))
            }
            ErrorWatchEvent::Stopped { step, version } => {
                let is_present = self.steps.get(&step).is_some_and(|attempts| attempts.since <= version);
                let roll_back = self.end_of_time(now);
                roll_back.or_else(|| if is_present { self.judge(step, 1) } else { None })
            }
            ErrorWatchEvent::Swapped(swap) => {
                let was_requested = std::mem::take(&mut self.is_requested);
                self.swap(swap, now);
                // A reload that comes before the requested rollback may leave its reason in force.
                let again = if was_requested { self.judge_all(ATTEMPTS_MIN) } else { None };
                again.or_else(|| self.end_of_time(now))
            }
            ErrorWatchEvent::NotRolledBack { generation } => {
                if self.is_requested && generation == self.current {
                    self.is_requested = false;
                    self.accept();
                }
                None
            }
            ErrorWatchEvent::Tick => self.end_of_time(now),
        };
        self.is_requested |= roll_back.is_some();
        roll_back
    }

    /// Time at which [`ErrorWatchEvent::Tick`] has work.
    #[must_use]
    pub fn wakes(&self) -> Option<Timestamp> {
        let next = self.watched.front().filter(|_| !self.is_requested);
        next.map(|watched| watched.until)
    }

    /// The last proven generation, to which a rollback goes back.
    #[must_use]
    pub fn proven(&self) -> u64 {
        self.proven
    }

    /// Whether a rollback may go back to this generation, now or later.
    #[must_use]
    pub fn keeps(&self, generation: u64) -> bool {
        let can_be_proven = |watched: &Watched| watched.generation == generation && watched.can_be_proven;
        generation == self.proven || self.watched.iter().any(can_be_proven)
    }

    fn swap(&mut self, swap: Swap, now: Timestamp) {
        let Swap { generation, limit, watched, changed } = swap;
        self.limit = limit;
        self.current = generation;
        match limit {
            Some(limit) => changed.into_iter().for_each(|step| self.change(step, watched, limit)),
            None => self.steps.clear(),
        }
        match limit.filter(|_| watched) {
            Some(limit) => self.watch(now + limit.within),
            None => self.accept(),
        }
    }

    /// Takes the current generation as it is: later ones are compared with it, and go back to it.
    fn accept(&mut self) {
        self.steps.values_mut().for_each(|attempts| attempts.is_proven = true);
        self.watched.clear();
        self.proven = self.current;
    }

    /// Begins to count the attempts of a changed step anew. `reloaded`: it is no rollback.
    fn change(&mut self, step: usize, reloaded: bool, limit: ErrorLimit) {
        let mut next = StepAttempts { since: self.current, is_proven: false, ..StepAttempts::default() };
        if let Some(last) = self.steps.get(&step) {
            // Attempts of a version that was rolled back, or is not proven, are no measure for others.
            let is_proven = last.is_proven || (last.all.attempts >= ATTEMPTS_MIN && !last.is_worse(limit));
            let recent = last.last();
            next.before = if is_proven && reloaded && recent.attempts > 0 { recent } else { last.before };
            if !is_proven {
                let with_it = self.watched.iter_mut().filter(|watched| watched.generation >= last.since);
                with_it.for_each(|watched| watched.can_be_proven = false);
            }
        }
        self.steps.insert(step, next);
    }

    /// Watches the current generation until a time.
    fn watch(&mut self, until: Timestamp) {
        let kept = self.watched.iter().filter(|watched| watched.can_be_proven).count();
        let last = self.watched.back_mut();
        // A clock that was set back does not change the order.
        let until = last.as_ref().map_or(until, |last| last.until.max(until));
        if let Some(last) = last.filter(|_| kept >= KEPT_MAX) {
            last.can_be_proven = false;
        }
        let is_in_order = |attempts: &StepAttempts| {
            let mut generations = self.watched.iter().map(|watched| watched.generation).chain([self.current]);
            attempts.is_proven || generations.any(|generation| generation == attempts.since)
        };
        let can_be_proven = self.steps.values().all(is_in_order);
        self.watched.push_back(Watched { generation: self.current, until, can_be_proven });
    }

    /// Judges the steps of the generations whose time is over.
    fn end_of_time(&mut self, now: Timestamp) -> Option<RollBack> {
        while let Some(oldest) = self.watched.front().copied().filter(|oldest| oldest.until <= now) {
            if self.is_requested {
                return None;
            }
            let is_of_it = |attempts: &StepAttempts| attempts.since == oldest.generation;
            let steps = self.steps.iter().filter(|(_, attempts)| is_of_it(attempts));
            let mut steps = steps.map(|(&step, _)| step);
            if let Some(roll_back) = steps.find_map(|step| self.judge(step, ATTEMPTS_MIN_AT_END)) {
                return Some(roll_back);
            }
            for attempts in self.steps.values_mut().filter(|attempts| is_of_it(attempts)) {
                attempts.is_proven = true;
            }
            self.watched.pop_front();
            if oldest.can_be_proven {
                self.proven = oldest.generation;
            }
        }
        None
    }

    fn count(&mut self, step: usize, version: u64, share: AttemptShare, now: Timestamp) {
        let Some(limit) = self.limit else { return };
        let attempts = self.steps.entry(step).or_default();
        // Others began before the step changed.
        if attempts.since <= version {
            attempts.add(share, limit.within, now);
        }
    }

    fn judge_all(&self, attempts_min: u64) -> Option<RollBack> {
        self.steps.keys().find_map(|&step| self.judge(step, attempts_min))
    }

    fn judge(&self, step: usize, attempts_min: u64) -> Option<RollBack> {
        let limit = self.limit.filter(|_| !self.is_requested)?;
        let attempts = self.steps.get(&step)?;
        let &StepAttempts { since, all, before, .. } = attempts;
        let is_watched = self.watched.iter().any(|watched| watched.generation == since);
        (is_watched && all.attempts >= attempts_min && attempts.is_worse(limit)).then_some(RollBack {
            generation: self.current,
            to: self.proven,
            step,
            since,
            after: all,
            before,
        })
    }
}

impl Default for StepAttempts {
    /// A step that has not changed since the start.
    fn default() -> Self {
        let none = AttemptShare::default();
        Self { since: 0, is_proven: true, all: none, recent: VecDeque::new(), before: none }
    }
}

impl StepAttempts {
    fn is_worse(&self, limit: ErrorLimit) -> bool {
        self.all.exceeds_rate(limit.rate) && self.all.exceeds(self.before)
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
