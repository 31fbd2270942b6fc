//! `Schedule`: computes the next tick, and the ticks that are due.
//!
//! The functions depend only on the schedule and the time. A tick is identified by its due time, so that only
//! the last handled one must be stored.

pub(crate) mod cron;

use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};

pub use cron::Cron;

use crate::Timestamp;

/// A tick that is handled later than this after its time was missed.
pub const LATE: Duration = Duration::from_mins(1);

/// A clock that is set back by more than this was wrong before.
const BACK_MAX: Duration = Duration::from_hours(24);

/// The times of ticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// The clock of a time zone.
    ///
    /// If the clock is put forward, a skipped time ticks when the gap is over. If it is put back, a repeated
    /// time ticks the first time only. An hourly expression (`*`) follows elapsed time: it skips times that
    /// do not exist, and ticks in both hours.
    Cron { cron: Box<Cron>, zone: TimeZone },
    /// At each multiple of this duration since 1970.
    Every(Duration),
}

/// The handling of ticks that were missed while no runner was active, or it was late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    Skip,
    /// The last missed one is made up for.
    Once,
    All,
}

impl Schedule {
    /// The first tick after `after`; `None` at the end of time.
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

    /// The position to continue from at `now`, if `last` was the last handled tick.
    ///
    /// A clock that was set back by a day or less waits until it has caught up, and no tick occurs twice. A
    /// clock that was set back by more was wrong before, and ticks from now on.
    #[must_use]
    pub fn resume(&self, last: Option<Timestamp>, now: Timestamp) -> Timestamp {
        match last {
            Some(last) if last.since(now) <= BACK_MAX => last,
            _ => now,
        }
    }

    /// The ticks after `handled` up to `now` that make jobs, oldest first, and the position up to which all
    /// ticks are then handled. At most `most` at a time: call it until there are none.
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
            if missed != Missed::Skip || now.since(tick) <= LATE {
                ticks.push(tick);
            }
        }
        (ticks, handled)
    }

    /// The latest moment from `handled` on after which only one tick occurs up to `now`.
    fn last_before(&self, handled: Timestamp, now: Timestamp) -> Timestamp {
        let mut back = 1;
        // The step back is doubled until a tick is found; the search then moves forward.
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
            // A later local time occurs later, at its first occurrence.
            return Some(to_words(best.map_or(first, |best| best.min(first))));
        }
        if let Some(second) = second.filter(|&second| second > after) {
            best = Some(best.map_or(second, |best| best.min(second)));
        }
        from = named.checked_add(jiff::SignedDuration::from_secs(1)).ok()?;
    }
    best.map(to_words)
}

/// The local time from which to search: the one at `after`. If `after` is in a repeated hour, the local time
/// at which the clock was put back.
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

/// The first and the second moment of a local time.
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
