//! Clock watch: moves the due times in the store when the clock is set back, so that no job waits longer.
//!
//! The rows of the store have times of the clock as it was. Each row that was written before is moved by the
//! same time as the clock. A run notices the jump when it reads the clock, and at its start by the time of
//! the last commit.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use crate::error::{Chain, EngineError};
use crate::operator::request::{PendingRequest, Reply, Request, RequestOutcome};
use crate::runtime::message::Message;
use tidegate_config::Configuration;
use tidegate_model::log_target;
use tidegate_model::{Address, Clock, Due, Timestamp, format_duration};
use tidegate_store::{ParkedId, ParkedPosition, ReadError, Store};

/// Minimum jump that is corrected; after a smaller one, jobs wait that much longer.
const SET_BACK_MIN: Duration = Duration::from_secs(1);
/// Number of rows that are moved together.
const PAGE: usize = 1000;

/// Clock that notices when it is set back.
pub(crate) struct WatchedClock {
    clock: Arc<dyn Clock>,
    read: LastRead,
}

/// Last reading of the clock, with the monotonic time of the reading.
#[derive(Clone, Copy, Debug)]
struct LastRead {
    time: Timestamp,
    at: Instant,
}

/// Backward jump of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetBack {
    /// Last time before the jump.
    last: Timestamp,
    /// Size of the jump.
    by: Duration,
}

impl WatchedClock {
    /// `last`: last recorded time of an earlier run.
    pub(crate) fn new(clock: Arc<dyn Clock>, last: Timestamp) -> Self {
        Self { clock, read: LastRead { time: last, at: Instant::now() } }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Current time, and the jump since the last reading if there was one.
    pub(crate) fn look(&mut self) -> (Timestamp, Option<SetBack>) {
        let now = self.clock.now();
        (now, self.read.next(now, Instant::now()))
    }
}

impl LastRead {
    /// Records that the clock shows `now`. Returns the jump if it was set back.
    fn next(&mut self, now: Timestamp, at: Instant) -> Option<SetBack> {
        let before = std::mem::replace(self, Self { time: now, at });
        let back = before.time.since(now);
        (back >= SET_BACK_MIN).then(|| SetBack { last: before.time, by: back.saturating_add(at - before.at) })
    }
}

impl SetBack {
    /// Moves the delayed jobs on a thread of its own, while the run continues.
    pub(crate) fn make_up(
        self,
        store: &Store,
        configuration: &Arc<Configuration>,
        messages: &Sender<Message>,
    ) -> Result<(), EngineError> {
        let mut waits = false;
        for step in &configuration.steps {
            waits |= store.next_due(&step.address, Some(self.last))?.is_some();
        }
        if !waits {
            return Ok(());
        }
        let by = format_duration(self.by);
        tracing::warn!(target: log_target::ENGINE, "the clock was set back by {by}; the due times of waiting jobs are moved back by the same time");
        let (store, configuration, messages) = (store.clone(), Arc::clone(configuration), messages.clone());
        thread::Builder::new().name("clock".into()).spawn(move || {
            for step in &configuration.steps {
                match self.make_up_step(&store, &step.address, &messages) {
                    Ok(()) | Err(ReadError::Interrupted) => {}
                    Err(error) => {
                        let error = Chain(&error);
                        tracing::error!(target: log_target::ENGINE, step = %step.address, %error, "its jobs wait for the clock to catch up");
                    }
                }
            }
        })?;
        Ok(())
    }

    fn make_up_step(
        self,
        store: &Store,
        step: &Address,
        messages: &Sender<Message>,
    ) -> Result<(), ReadError> {
        // Rows that were in flight when the clock was set back are in the store by then.
        if !self.shift(step, Vec::new(), messages) {
            return Ok(());
        }
        let last = store.last_parked()?;
        let mut after = None;
        loop {
            let page = store.due(step, Due::Never, after, PAGE, usize::MAX)?;
            let Some((end, job)) = page.last() else { return Ok(()) };
            after = Some(ParkedPosition::of(end.id, job));
            let waits = page
                .iter()
                .filter(|(key, job)| matches!(job.due, Due::At(time) if time > self.last) && key.id <= last);
            let rows: Vec<ParkedId> = waits.map(|(key, _)| key.id).collect();
            if !rows.is_empty() && !self.shift(step, rows, messages) {
                return Ok(());
            }
        }
    }

    /// Returns whether the run continues.
    fn shift(self, step: &Address, rows: Vec<ParkedId>, messages: &Sender<Message>) -> bool {
        let (sender, answered) = crossbeam_channel::bounded(1);
        let request = Request::Shift { step: step.clone(), rows, by: self.by };
        let asked = Message::Asked(PendingRequest::new(request, Reply::from(sender)));
        if messages.send(asked).is_err() {
            return false;
        }
        match answered.recv() {
            Ok(Ok(RequestOutcome::Hastened(_))) => true,
            Ok(Ok(_)) | Err(_) => false,
            Ok(Err(why)) => {
                tracing::error!(target: log_target::ENGINE, %step, why, "its jobs wait for the clock to catch up");
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_goes_on_stands_still_or_is_corrected_by_little_was_not_set_back() {
        let start = Instant::now();
        let mut read = LastRead { time: Timestamp(10_000), at: start };
        let after = |ms| start + Duration::from_millis(ms);
        assert_eq!(read.next(Timestamp(10_000), after(0)), None);
        assert_eq!(read.next(Timestamp(99_000), after(1)), None);
        assert_eq!(read.next(Timestamp(98_500), after(2)), None);
        assert_eq!(read.next(Timestamp(98_500), after(9_000)), None);
    }

    #[test]
    fn what_passed_meanwhile_counts_as_set_back_too() {
        let start = Instant::now();
        let mut read = LastRead { time: Timestamp(100_000), at: start };
        let found = read.next(Timestamp(42_000), start + Duration::from_secs(2));
        assert_eq!(found, Some(SetBack { last: Timestamp(100_000), by: Duration::from_mins(1) }));
        assert_eq!(read.next(Timestamp(43_000), start + Duration::from_secs(3)), None);
    }
}
