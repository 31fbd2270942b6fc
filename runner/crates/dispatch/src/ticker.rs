//! Ticker: decides which ticks of one schedule are handled or due, and when the next one comes.

use tidegate_model::{LATE, Missed, Schedule, Timestamp};

/// State of one schedule: takes the time and returns the ticks that are due.
///
/// A tick was missed if it came before the ticker began, or if it is more than one minute late. All other
/// ticks are due once each, and several may be due at the same time.
#[derive(Clone, Debug)]
pub struct Ticker {
    schedule: Schedule,
    missed: Missed,
    /// Time up to which all ticks are handled.
    handled: Timestamp,
    /// First tick after that; `None` at the end of time.
    next: Option<Timestamp>,
    /// Time up to which ticks came before the ticker began.
    began: Timestamp,
}

impl Ticker {
    /// Begins at `now`, with all ticks up to `last` handled. A schedule that never ticked begins with the
    /// ticks after `now`.
    #[must_use]
    pub fn new(schedule: Schedule, missed: Missed, last: Option<Timestamp>, now: Timestamp) -> Self {
        let handled = schedule.resume(last, now);
        Self { next: schedule.next(handled), schedule, missed, handled, began: now }
    }

    /// Time up to which all ticks are handled.
    #[must_use]
    pub fn handled(&self) -> Timestamp {
        self.handled
    }

    /// Time of the next tick to take.
    #[must_use]
    pub fn next(&self) -> Option<Timestamp> {
        self.next
    }

    /// Whether ticks are left from before the ticker began.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.next.is_some_and(|next| next <= self.began)
    }

    /// Takes the ticks that are due as jobs now, oldest first, at most `most`. If there are `most`, more may
    /// be left. Returns `None` if nothing has changed.
    pub fn take(&mut self, now: Timestamp, most: usize) -> Option<Vec<Timestamp>> {
        let before = self.handled;
        self.handled = self.schedule.resume(Some(before), now);
        if self.handled != before {
            // The clock was wrong before, and so was the recorded beginning.
            self.began = self.began.min(now);
            self.next = self.schedule.next(self.handled);
        }
        let mut ticks = Vec::new();
        if let Some(next) = self.next.filter(|&next| next <= now && most > 0) {
            let was_missed = next <= self.began || now.since(next) > LATE;
            let missed = if was_missed { self.missed } else { Missed::All };
            (ticks, self.handled) = self.schedule.due(self.handled, now, missed, most);
            self.next = self.schedule.next(self.handled);
        }
        (self.handled != before).then_some(ticks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::TimeZone;
    use std::time::Duration;
    use tidegate_model::Cron;

    fn every(seconds: u64, missed: Missed, last: Option<i64>, now: i64) -> Ticker {
        let schedule = Schedule::Every(Duration::from_secs(seconds));
        Ticker::new(schedule, missed, last.map(|last| Timestamp(last * 1000)), Timestamp(now * 1000))
    }

    /// Ticks taken at each of these times, all in seconds.
    fn taken(ticker: &mut Ticker, times: &[i64]) -> Vec<Vec<i64>> {
        let take = |&now: &i64| ticker.take(Timestamp(now * 1000), 4).unwrap_or_default();
        times.iter().map(take).map(|ticks| ticks.iter().map(|tick| tick.0 / 1000).collect()).collect()
    }

    #[test]
    fn each_tick_of_a_running_schedule_is_taken_once_though_somebody_comes_late() {
        for missed in [Missed::Skip, Missed::Once, Missed::All] {
            let mut ticker = every(10, missed, None, 5);
            let taken = taken(&mut ticker, &[5, 9, 10, 10, 19, 45, 45, 50]);
            assert_eq!(taken, [&[][..], &[], &[10], &[], &[], &[20, 30, 40], &[], &[50]], "{missed:?}");
            assert_eq!(ticker.next(), Some(Timestamp(60_000)));
        }
    }

    #[test]
    fn what_came_before_it_began_was_missed() {
        let all =
            [(Missed::Skip, vec![100]), (Missed::Once, vec![100]), (Missed::All, vec![70, 80, 90, 100])];
        for (missed, expected) in all {
            let mut ticker = every(10, missed, Some(60), 101);
            assert!(ticker.is_behind());
            assert_eq!(taken(&mut ticker, &[101, 109, 110]), [expected, vec![], vec![110]], "{missed:?}");
            assert!(!ticker.is_behind());
        }
    }

    #[test]
    fn what_is_more_than_a_minute_late_was_missed_though_it_ran() {
        for (missed, expected) in
            [(Missed::Skip, &[][..]), (Missed::Once, &[200]), (Missed::All, &[100, 200])]
        {
            let mut ticker = every(100, missed, None, 5);
            assert_eq!(taken(&mut ticker, &[50, 261]), [&[], expected], "{missed:?}");
            assert_eq!(ticker.handled(), Timestamp(200_000), "{missed:?}");
        }
    }

    #[test]
    fn what_is_made_up_for_comes_in_pieces() {
        let mut ticker = every(1, Missed::All, Some(0), 10);
        let mut pieces = Vec::new();
        while ticker.is_behind() {
            pieces.push(ticker.take(Timestamp(10_000), 4).unwrap().len());
        }
        assert_eq!(pieces, [4, 4, 2]);
        assert_eq!(ticker.take(Timestamp(10_000), 4), None);
        assert_eq!(ticker.take(Timestamp(11_000), 0), None);
        assert_eq!(ticker.next(), Some(Timestamp(11_000)));
    }

    #[test]
    fn a_clock_that_is_set_back_far_ticks_from_then_on_and_one_that_is_not_waits() {
        const DAY: i64 = 86_400;
        let mut ticker = every(10, Missed::All, None, 10 * DAY);
        assert_eq!(
            taken(&mut ticker, &[10 * DAY - 100, 10 * DAY, 10 * DAY + 10]),
            [vec![], vec![], vec![10 * DAY + 10]]
        );
        assert_eq!(taken(&mut ticker, &[5 * DAY + 1, 5 * DAY + 10]), [vec![], vec![5 * DAY + 10]]);
        assert_eq!(ticker.handled(), Timestamp((5 * DAY + 10) * 1000));
        assert!(!ticker.is_behind());
    }

    #[test]
    fn a_schedule_that_was_changed_goes_on_from_the_last_tick() {
        let at = |text: &str| Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_millisecond());
        let cron = Box::new(Cron::parse("30 2 * * *").unwrap());
        let schedule = Schedule::Cron { cron, zone: TimeZone::get("Europe/Berlin").unwrap() };
        // The interval has ticked up to `last`. On that day 02:30 does not exist, and the tick comes at
        // 03:00.
        let (last, now) = (at("2024-03-29T12:00:00Z"), at("2024-03-31T08:00:00Z"));
        let mut ticker = Ticker::new(schedule, Missed::All, Some(last), now);
        let due = [at("2024-03-30T01:30:00Z"), at("2024-03-31T01:00:00Z")];
        assert_eq!(ticker.take(now, 9), Some(due.to_vec()));
        assert_eq!(ticker.next(), Some(at("2024-04-01T00:30:00Z")));
    }
}
