//! `RetryPolicy`: decides whether and when a job whose attempt failed is attempted again.
//!
//! The decision is a pure function of the policy, the attempt and the time. The jitter is a function of the
//! delivery hash and the attempt, so that recovery decides as the run before it did.

use std::fmt;
use std::time::Duration;

use tidegate_plugin::{Cause, Failure, FailureKind};
use twox_hash::XxHash3_64;

use crate::{FieldPath, Timestamp, format_duration};

/// `[retry.NAME]`, or `retry = { … }` of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    pub backoff: Backoff,
    /// The first delay; a [`Backoff::List`] has its own.
    pub initial: Duration,
    /// The ratio of successive delays ([`Backoff::Exponential`]).
    pub factor: f64,
    /// The longest delay, before jitter, that this policy computes.
    pub max: Duration,
    pub jitter: Jitter,
    /// Attempts in a row, before each of these delays.
    pub quick: Option<QuickRow>,
    /// Maximum number of attempts of a job; 0 = unlimited.
    pub max_attempts: u32,
    /// No attempt starts later than this after the first.
    pub ttl: Option<Duration>,
    /// The field of a job that has its own `ttl`.
    pub ttl_field: Option<FieldPath>,
    pub then: OnExhausted,
    /// The failures that are retried; empty = all that can be.
    pub on: Vec<FailureClass>,
    /// The failures that halt the step in place of the error queue: at once, or after the attempts of `on`.
    pub halt_on: Vec<FailureClass>,
}

/// Attempts that follow each other quickly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuickRow {
    /// Number of attempts in a row; at least 2.
    pub attempts: u32,
    /// The delay between two of them, without jitter.
    pub delay: Duration,
}

/// The growth of delays from attempt to attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backoff {
    /// Always `initial`.
    Fixed,
    /// `initial` × 1, 2, 3, 4, …
    Linear,
    /// `initial` × 1, factor, factor², …
    Exponential,
    /// `initial` × 1, 1, 2, 3, 5, …
    Fibonacci,
    /// One after the other; the last one is repeated.
    List(Vec<Duration>),
}

/// The random part of a delay, so that jobs that failed together do not return together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    None,
    /// A random time up to the delay.
    Full,
    /// A random time from half of the delay up to the delay.
    Equal,
}

/// The fate of a job without attempts or time left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExhausted {
    ErrorQueue,
    /// It is consumed, counted and logged.
    Drop,
    /// The step stops at it, and restarts with it.
    Halt,
}

/// The class of a failure, as far as a retry depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureClass {
    /// The code asked for another attempt: `retry`, `retry_in`.
    Asked,
    /// An error of a script, `throw` included.
    Script,
    /// An error that a plugin reports.
    Plugin,
    /// A plugin panicked.
    Panic,
    /// The attempt took longer than its `timeout`.
    Timeout,
    /// A limit on operations, memory or depth was exceeded.
    Limit,
    /// The code returned a value that cannot be an output.
    Output,
    /// The external system did not answer: refused, unknown, connection lost.
    Connection,
    /// The external system is overloaded.
    Http429,
    /// The external system failed.
    Http5xx,
    /// A command ended with an exit code other than 0, or by a signal.
    Exit,
    /// The external system refused the job.
    Http4xx,
    /// The code excluded a retry.
    Rejected,
    /// The job's payload is invalid.
    Payload,
    /// It killed the process that attempted it, up to the limit.
    Crashed,
}

/// A failed attempt.
#[derive(Clone, Copy, Debug)]
pub struct FailedTry {
    /// Its number, from 1.
    pub attempt: u32,
    /// Start of the first attempt at the job.
    pub first_attempt: Timestamp,
    pub now: Timestamp,
    pub trouble: FailureClass,
    /// The delay that the code, or the external system, requested.
    pub asked: Option<Duration>,
    /// The time that the job itself allows, in place of that of the policy.
    pub ttl: Option<Duration>,
    /// The delivery hash.
    pub hash: u128,
}

/// The decision on a job whose attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is attempted again, not before `at`. `quick`: in the same row of attempts.
    Again { at: Timestamp, quick: bool },
    /// It has no attempt left; [`RetryPolicy::then`] applies.
    Exhausted(Exhausted),
    /// This class of failure is not retried.
    NotRetried,
}

/// The limit that a job has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exhausted {
    /// The number of attempts that were made.
    Attempts(u32),
    /// The allowed time, which the next attempt would exceed.
    Time(Duration),
}

impl RetryPolicy {
    /// After 1 s, then × 2 each time, at most 1 h, full jitter, 12 attempts.
    pub const DEFAULT: Self = Self {
        backoff: Backoff::Exponential,
        initial: Duration::from_secs(1),
        factor: 2.0,
        max: Duration::from_hours(1),
        jitter: Jitter::Full,
        quick: None,
        max_attempts: 12,
        ttl: None,
        ttl_field: None,
        then: OnExhausted::ErrorQueue,
        on: Vec::new(),
        halt_on: Vec::new(),
    };

    /// The decision on a job whose attempt failed.
    ///
    /// The next attempt is at most [`Self::max`] (or the requested delay) after `now`, also if the clock was
    /// set since the first one.
    #[must_use]
    pub fn next(&self, tried: &FailedTry) -> Decision {
        if !self.retries(tried.trouble) {
            return Decision::NotRetried;
        }
        if self.max_attempts > 0 && tried.attempt >= self.max_attempts {
            // More than the policy allows, if an earlier policy did.
            return Decision::Exhausted(Exhausted::Attempts(tried.attempt));
        }
        let quick =
            self.quick.filter(|row| tried.asked.is_none() && !tried.attempt.is_multiple_of(row.attempts));
        let wait = match (tried.asked, quick) {
            (Some(asked), _) => asked,
            (None, Some(row)) => row.delay,
            (None, None) => Duration::from_millis(self.jitter.of(self.delay(tried.attempt), tried)),
        };
        let at = tried.now + wait;
        match tried.ttl.or(self.ttl) {
            Some(ttl) if at > tried.first_attempt + ttl => Decision::Exhausted(Exhausted::Time(ttl)),
            _ => Decision::Again { at, quick: quick.is_some() },
        }
    }

    /// Whether a job halts the step if this class of failure is not retried any more.
    #[must_use]
    pub fn halts(&self, trouble: FailureClass) -> bool {
        self.halt_on.contains(&trouble)
    }

    /// The longest wait between two attempts by this policy alone.
    #[must_use]
    pub fn longest_wait(&self) -> Duration {
        let waits = match self.max_attempts {
            0 => u32::MAX,
            most => most - 1,
        };
        let longest = match &self.backoff {
            _ if waits == 0 => Duration::ZERO,
            Backoff::List(delays) => {
                let waits = usize::try_from(waits).unwrap_or(usize::MAX);
                let longest = delays.iter().take(waits).max();
                longest.copied().unwrap_or(self.initial).min(self.max)
            }
            _ => Duration::from_millis(self.delay(1).max(self.delay(waits))),
        };
        let longest = self.quick.map_or(longest, |row| longest.max(row.delay));
        self.ttl.map_or(longest, |ttl| longest.min(ttl))
    }

    /// Whether an attempt with this class of failure is retried at all.
    #[must_use]
    pub fn retries(&self, trouble: FailureClass) -> bool {
        match trouble {
            FailureClass::Http4xx
            | FailureClass::Rejected
            | FailureClass::Payload
            | FailureClass::Crashed => false,
            FailureClass::Asked => true,
            other => self.on.contains(&other) || self.on.is_empty() && !self.halt_on.contains(&other),
        }
    }

    /// The wait after this attempt (from 1), before jitter.
    #[must_use]
    pub fn wait(&self, attempt: u32) -> Duration {
        Duration::from_millis(self.delay(attempt))
    }

    /// The wait after this attempt (from 1) in milliseconds, before jitter. With rows of quick attempts, the n-th
    /// wait comes after the n-th row.
    fn delay(&self, attempt: u32) -> u64 {
        let attempt = self.quick.map_or(attempt, |row| attempt.div_ceil(row.attempts));
        let initial = millis(self.initial);
        let delay = match &self.backoff {
            Backoff::Fixed => initial,
            Backoff::Linear => initial.saturating_mul(u64::from(attempt)),
            Backoff::Exponential => grown(initial, self.factor, attempt),
            Backoff::Fibonacci => initial.saturating_mul(fibonacci(attempt)),
            Backoff::List(delays) => {
                let position = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX);
                delays.get(position).or(delays.last()).copied().map_or(initial, millis)
            }
        };
        delay.min(millis(self.max))
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Jitter {
    /// Applies the jitter to `delay`; deterministic for an attempt at a job.
    fn of(self, delay: u64, tried: &FailedTry) -> u64 {
        match self {
            Self::None => delay,
            Self::Full => drawn(delay, tried),
            Self::Equal => delay - drawn(delay / 2, tried),
        }
    }
}

impl FailureClass {
    /// The words of `on`. A retry that the code requests is always made, and those of the last four classes never
    /// are.
    pub const WORDS: [(&'static str, FailureClass); 10] = [
        ("script", FailureClass::Script),
        ("plugin", FailureClass::Plugin),
        ("panic", FailureClass::Panic),
        ("timeout", FailureClass::Timeout),
        ("limit", FailureClass::Limit),
        ("output", FailureClass::Output),
        ("connection", FailureClass::Connection),
        ("http 429", FailureClass::Http429),
        ("http 5xx", FailureClass::Http5xx),
        ("exit", FailureClass::Exit),
    ];

    /// The words of `halt_on`. A job that killed its process never halts the step: it would be a suspect again.
    pub const HALTING_WORDS: [(&'static str, FailureClass); 13] = [
        ("script", FailureClass::Script),
        ("plugin", FailureClass::Plugin),
        ("panic", FailureClass::Panic),
        ("timeout", FailureClass::Timeout),
        ("limit", FailureClass::Limit),
        ("output", FailureClass::Output),
        ("connection", FailureClass::Connection),
        ("http 429", FailureClass::Http429),
        ("http 4xx", FailureClass::Http4xx),
        ("http 5xx", FailureClass::Http5xx),
        ("exit", FailureClass::Exit),
        ("rejected", FailureClass::Rejected),
        ("payload", FailureClass::Payload),
    ];

    /// The class of a `failure` of a script, or of `native` code. `None` if it is no failure: a closed gate,
    /// a halt, or a pending job.
    #[must_use]
    pub fn of(failure: &Failure, native: bool) -> Option<Self> {
        Some(match (failure.kind, failure.cause) {
            (FailureKind::GateClosed | FailureKind::Pending | FailureKind::Halted, _) => return None,
            (FailureKind::Rejected, Some(Cause::Http(400..500))) => Self::Http4xx,
            (FailureKind::Rejected, _) => Self::Rejected,
            (FailureKind::Payload, _) => Self::Payload,
            (FailureKind::Crashed, _) => Self::Crashed,
            (_, Some(Cause::Timeout)) => Self::Timeout,
            (_, Some(Cause::Connection)) => Self::Connection,
            (_, Some(Cause::Http(429))) => Self::Http429,
            (_, Some(Cause::Http(_))) => Self::Http5xx,
            (_, Some(Cause::Exit(_))) => Self::Exit,
            (FailureKind::Retry | FailureKind::RetryIn(_), _) => Self::Asked,
            (FailureKind::Limit, _) => Self::Limit,
            (FailureKind::Output, _) => Self::Output,
            (FailureKind::Panicked, _) => Self::Panic,
            _ if native => Self::Plugin,
            _ => Self::Script,
        })
    }
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attempts(1) => write!(f, "its only attempt failed"),
            Self::Attempts(most) => write!(f, "all {most} attempts failed"),
            Self::Time(ttl) => {
                write!(f, "the next attempt would be past the `ttl` of {}", format_duration(*ttl))
            }
        }
    }
}

/// `initial` × factor^(attempt - 1).
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a delay is exact to far more than a millisecond, and a cast from a float saturates"
)]
fn grown(initial: u64, factor: f64, attempt: u32) -> u64 {
    let power = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
    (initial as f64 * factor.powi(power)).round() as u64
}

/// 1, 1, 2, 3, 5, …
fn fibonacci(position: u32) -> u64 {
    let (mut last, mut this) = (0_u64, 1_u64);
    for _ in 1..position {
        let Some(sum) = last.checked_add(this) else { return u64::MAX };
        (last, this) = (this, sum);
    }
    this
}

/// A pseudorandom number from 0 to `most`, both included.
fn drawn(most: u64, tried: &FailedTry) -> u64 {
    let mut seed = [0; 20];
    seed[..16].copy_from_slice(&tried.hash.to_le_bytes());
    seed[16..].copy_from_slice(&tried.attempt.to_le_bytes());
    let drawn = u128::from(XxHash3_64::oneshot(&seed)) * (u128::from(most) + 1);
    u64::try_from(drawn >> 64).unwrap_or(most)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
