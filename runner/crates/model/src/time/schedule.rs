//! Schedules: when the next tick comes, and which ticks are due.
//!
//! Pure functions of the schedule and the time. A tick is known by its due time, so that the last one
//! that was handled is all that has to be remembered.

pub(crate) mod cron;

use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};

pub use cron::Cron;

use crate::Timestamp;

/// A tick that comes later than this after its time was missed.
pub const LATE: i64 = 60_000;

/// A clock that is set back further than this was wrong before.
const BACK_MAX: i64 = 24 * 3_600_000;

/// When ticks come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// By the clock of a time zone.
    ///
    /// Where the clock is put forward, a time that does not exist ticks when the gap is over; where it
    /// is put back, a time that comes twice ticks the first time only. An expression that comes in every
    /// hour (`*`) follows the time that passes: it skips what does not exist, and ticks in both hours.
    Cron { cron: Box<Cron>, zone: TimeZone },
    /// Each time that so many milliseconds since 1970 have passed.
    Every(Duration),
}

/// What becomes of ticks that were missed, because nobody was there or was late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    Skip,
    /// The last one is made up for.
    Once,
    All,
}

impl Schedule {
    /// The first tick after `after`; `None` where time ends.
    #[must_use]
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Cron { cron, zone } => next_of_cron(cron, zone, after),
            Self::Every(every) => {
                let every = i64::try_from(every.as_millis()).ok().filter(|&every| every > 0)?;
                let next = after.0.div_euclid(every).checked_add(1)?.checked_mul(every)?;
                Some(Timestamp(next))
            }
        }
    }

    /// Where to go on at `now`, when the tick at `last` was the last one that was handled.
    ///
    /// A clock that was set back by a day or less waits until it has caught up, and no tick comes twice.
    /// One that was set back further was wrong before, and ticks from now on.
    #[must_use]
    pub fn resume(&self, last: Option<Timestamp>, now: Timestamp) -> Timestamp {
        match last {
            Some(last) if last.0.saturating_sub(now.0) <= BACK_MAX => last,
            _ => now,
        }
    }

    /// The ticks after `handled` up to `now` of which jobs are made, oldest first, and up to where all
    /// ticks are handled then. At most `most` at a time, so call again until there are none.
    #[must_use]
    pub fn due(
        &self,
        handled: Timestamp,
        now: Timestamp,
        missed: Missed,
        most: usize,
    ) -> (Vec<Timestamp>, Timestamp) {
        let mut ticks = Vec::new();
        let mut handled = handled;
        if missed != Missed::All {
            handled = self.last_before(handled, now);
        }
        while ticks.len() < most
            && let Some(tick) = self.next(handled).filter(|&tick| tick <= now)
        {
            handled = tick;
            if missed != Missed::Skip || now.0.saturating_sub(tick.0) <= LATE {
                ticks.push(tick);
            }
        }
        (ticks, handled)
    }

    /// The latest moment from `handled` on after which only one tick comes up to `now`.
    fn last_before(&self, handled: Timestamp, now: Timestamp) -> Timestamp {
        let mut back = 1;
        // Twice as far back each time, until there is a tick; then forward from there.
        let mut from = loop {
            let from = Timestamp(now.0.saturating_sub(back)).max(handled);
            if from == handled || self.next(from).is_some_and(|tick| tick <= now) {
                break from;
            }
            back = back.saturating_mul(2);
        };
        while let Some(tick) = self.next(from).filter(|&tick| tick <= now)
            && self.next(tick).is_some_and(|next| next <= now)
        {
            from = tick;
        }
        from
    }
}

fn next_of_cron(cron: &Cron, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
    let after = jiff::Timestamp::from_millisecond(after.0).ok()?;
    let mut best: Option<jiff::Timestamp> = None;
    let mut from = start(zone, after)?;
    while let Some(named) = cron.next(from) {
        let (first, second) = moments(cron, zone, named);
        if let Some(first) = first.filter(|&first| first > after) {
            // What is named later comes later, the first time.
            return Some(to_words(best.map_or(first, |best| best.min(first))));
        }
        if let Some(second) = second.filter(|&second| second > after) {
            best = Some(best.map_or(second, |best| best.min(second)));
        }
        from = named.checked_add(jiff::SignedDuration::from_secs(1)).ok()?;
    }
    best.map(to_words)
}

/// Where the clock on the wall has to be looked at from: what it shows at `after`, and where it shows
/// that twice, what it showed when it was put back.
fn start(zone: &TimeZone, after: jiff::Timestamp) -> Option<DateTime> {
    let wall = zone.to_datetime(after);
    let ambiguous = zone.to_ambiguous_timestamp(wall);
    if !matches!(ambiguous.offset(), AmbiguousOffset::Fold { .. }) {
        return Some(wall);
    }
    let second = ambiguous.later().ok()?.checked_add(jiff::SignedDuration::from_nanos(1)).ok()?;
    let back = zone.preceding(second).next()?;
    Some(zone.to_datetime(back.timestamp()))
}

/// When the clock on the wall shows what is named, the first and the second time.
fn moments(
    cron: &Cron,
    zone: &TimeZone,
    named: DateTime,
) -> (Option<jiff::Timestamp>, Option<jiff::Timestamp>) {
    let ambiguous = zone.to_ambiguous_timestamp(named);
    match ambiguous.offset() {
        AmbiguousOffset::Unambiguous { offset } => (offset.to_timestamp(named).ok(), None),
        AmbiguousOffset::Gap { .. } if cron.is_hourly() => (None, None),
        AmbiguousOffset::Gap { after, .. } => {
            let before = after.to_timestamp(named).ok();
            (before.and_then(|before| zone.following(before).next()).map(|end| end.timestamp()), None)
        }
        AmbiguousOffset::Fold { before, after } => {
            let second = if cron.is_hourly() { after.to_timestamp(named).ok() } else { None };
            (before.to_timestamp(named).ok(), second)
        }
    }
}

fn to_words(time: jiff::Timestamp) -> Timestamp {
    Timestamp(time.as_millisecond())
}

#[cfg(test)]
mod tests;
