//! Throughput window: measures the recent number of jobs per second.

use tidegate_model::Timestamp;

/// Length of the window in seconds, as a count and as a time.
const SECONDS: usize = 10;
const LOOKED_BACK: i64 = 10;

/// Jobs taken in each of the last seconds; older counts are overwritten.
#[derive(Debug, Default)]
pub(crate) struct ThroughputWindow {
    /// Second since 1970, and the jobs taken in it.
    seconds: [(i64, u64); SECONDS],
}

impl ThroughputWindow {
    pub(crate) fn add(&mut self, jobs: u64, now: Timestamp) {
        let second = now.0.div_euclid(1000);
        let at = usize::try_from(second.rem_euclid(LOOKED_BACK)).unwrap_or(0);
        let slot = &mut self.seconds[at];
        if slot.0 != second {
            *slot = (second, 0);
        }
        slot.1 += jobs;
    }

    /// Jobs per second over the last ten seconds, or since `started` if that is shorter; at least over one
    /// second.
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
        let mut pace = ThroughputWindow::default();
        let rate =
            |pace: &ThroughputWindow, now: i64| pace.rate(Timestamp(1_000), Timestamp(now)).to_string();
        assert_eq!(rate(&pace, 1_000), "0");
        pace.add(40, Timestamp(1_100));
        // The window has no counts from before the start.
        assert_eq!(rate(&pace, 1_200), "40");
        pace.add(60, Timestamp(4_900));
        assert_eq!(rate(&pace, 5_000), "25");
        assert_eq!(rate(&pace, 10_999), "10.001000100010002");
        assert_eq!(rate(&pace, 13_000), "6.666666666666667");
        assert_eq!(rate(&pace, 14_000), "0");
        // After the clock was set back, later seconds no longer count, and new jobs do.
        pace.add(100, Timestamp(60_000));
        pace.add(9, Timestamp(2_000));
        assert_eq!(rate(&pace, 2_500), "32.666666666666664");
    }
}
