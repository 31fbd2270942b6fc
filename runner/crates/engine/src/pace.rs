//! How many jobs a second were taken of late.

use tidegate_model::Timestamp;

/// So many seconds are looked back: as a count of them, and as a time.
const SECONDS: usize = 10;
const LOOKED_BACK: i64 = 10;

/// What was taken in each of the last seconds; older ones are written over.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// The second since 1970, and the jobs taken in it.
    seconds: [(i64, u64); SECONDS],
}

impl Pace {
    pub(crate) fn add(&mut self, jobs: u64, now: Timestamp) {
        let second = now.0.div_euclid(1000);
        let at = usize::try_from(second.rem_euclid(LOOKED_BACK)).unwrap_or(0);
        let slot = &mut self.seconds[at];
        if slot.0 != second {
            *slot = (second, 0);
        }
        slot.1 += jobs;
    }

    /// Jobs a second over the last ten, or since `started` where that is less; over one at least.
    #[expect(clippy::cast_precision_loss, reason = "shown to one decimal")]
    pub(crate) fn rate(&self, started: Timestamp, now: Timestamp) -> f64 {
        let last = now.0.div_euclid(1000);
        let first = last - LOOKED_BACK + 1;
        let jobs: u64 =
            self.seconds.iter().filter(|(at, _)| (first..=last).contains(at)).map(|(_, jobs)| jobs).sum();
        let from = started.0.max(first * 1000);
        let millis = now.0.saturating_sub(from).max(1000);
        jobs as f64 * 1000.0 / millis as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_ten_seconds() {
        let mut pace = Pace::default();
        let told = |pace: &Pace, now: i64| pace.rate(Timestamp(1_000), Timestamp(now)).to_string();
        assert_eq!(told(&pace, 1_000), "0");
        pace.add(40, Timestamp(1_100));
        // Nothing is known of what is a second before it began.
        assert_eq!(told(&pace, 1_200), "40");
        pace.add(60, Timestamp(4_900));
        assert_eq!(told(&pace, 5_000), "25");
        assert_eq!(told(&pace, 10_999), "10.001000100010002");
        assert_eq!(told(&pace, 13_000), "6.666666666666667");
        assert_eq!(told(&pace, 14_000), "0");
        // The clock was set back: what came later counts no more, and what comes now does.
        pace.add(100, Timestamp(60_000));
        pace.add(9, Timestamp(2_000));
        assert_eq!(told(&pace, 2_500), "32.666666666666664");
    }
}
