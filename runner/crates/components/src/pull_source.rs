//! `PullLog`: an `http-pull` source, an indexed log behind an HTTP service, which is read in place and never copied.
//!
//! The job at the index `i` is the answer for the number `first + i - 1` of the service. `PullWindow` decides which
//! jobs are requested and when; `Fetcher` makes the requests, several at a time. Jobs come in order, and none is
//! skipped: the reader waits at a number that the service does not have yet, or does not give.

pub(crate) mod fetcher;
pub(crate) mod window;

use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tidegate_plugin::Payloads;

use self::fetcher::Fetcher;
use self::window::{PullWindow, Waits};
use crate::calls::Calls;
use crate::source::{BatchLimit, Read, SourceBatch, SourceError, Wake};
use tidegate_config::PullSource;
use tidegate_model::log_target;
use tidegate_model::{
    Address, Batch, Clock as _, Fault, Form, LineNumbers, LineRun, SystemClock, Timestamp, rfc3339,
};

/// Minimum time between two lines about failures of one source.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// A source behind a service; a cheap handle.
#[derive(Clone, Debug)]
pub struct PullLog {
    shared: Arc<PullShared>,
}

#[derive(Debug)]
pub(crate) struct PullShared {
    pub(crate) address: Address,
    pub(crate) spec: PullSource,
}

/// Reads the source at its own pace.
#[derive(Debug)]
pub struct PullReader {
    shared: Arc<PullShared>,
    window: PullWindow,
    /// `None` before it is connected.
    fetcher: Option<Fetcher>,
    trouble: Option<PullTrouble>,
    logged: Option<Instant>,
}

/// Failures of the service since it answered last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullTrouble {
    pub since: Timestamp,
    /// The time of the next request.
    pub until: Timestamp,
    pub why: String,
    /// Failures in a row.
    pub failures: u32,
}

impl PullLog {
    #[must_use]
    pub fn new(address: &Address, spec: &PullSource) -> Self {
        Self { shared: Arc::new(PullShared { address: address.clone(), spec: spec.clone() }) }
    }

    /// A reader whose first job has the index `next`.
    #[must_use]
    pub fn reader(&self, next: u64) -> PullReader {
        let spec = &self.shared.spec;
        // The service cannot have more numbers than there are.
        let last = spec.until.map(|until| (until + 1).saturating_sub(spec.first));
        let window = PullWindow::new(next, last, spec.concurrency, spec.every, spec.retry.clone());
        PullReader { shared: Arc::clone(&self.shared), window, fetcher: None, trouble: None, logged: None }
    }

    /// The request for the job at `index`, for display.
    #[must_use]
    pub fn describe(&self, index: u64) -> String {
        let number = self.shared.spec.number(index);
        format!("GET {}", self.shared.spec.url.to_string().replace("{index}", &number.to_string()))
    }
}

impl PullReader {
    /// Lets it make requests. `wake` is called for each answer.
    pub fn connect(&mut self, calls: &Calls, wake: Weak<dyn Wake>) {
        let PullShared { address, spec } = &*self.shared;
        self.fetcher = Some(Fetcher::new(address, spec, calls, wake));
    }

    /// Failures since the last answer.
    #[must_use]
    pub fn trouble(&self) -> Option<&PullTrouble> {
        self.trouble.as_ref()
    }

    /// The time until the next read, if no answer comes before.
    #[must_use]
    pub fn looks_again(&self) -> Option<Duration> {
        self.window.until().map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// Takes the jobs that have come, and requests more. Does not wait.
    ///
    /// # Errors
    /// The service failed for longer than the retry policy allows.
    pub fn read(&mut self, limit: BatchLimit) -> Result<Read, SourceError> {
        let (now, time) = (Instant::now(), SystemClock.now());
        for (index, fetched) in self.fetcher.iter().flat_map(Fetcher::take) {
            self.window.fetched(index, fetched, (now, time))?;
        }
        self.note_trouble(now, time);
        let first = self.window.next();
        let jobs = self.window.take(limit.jobs, limit.bytes);
        if let Some(fetcher) = &self.fetcher {
            self.window.wanted(now).into_iter().for_each(|index| fetcher.ask(index));
        }
        if !jobs.is_empty() {
            return Ok(Read::Batch(self.batch(first, jobs)));
        }
        Ok(match self.window.waits(now) {
            Waits::Over => Read::End,
            Waits::ForMore => Read::Idle,
            Waits::ForService => Read::Busy,
        })
    }

    fn batch(&self, first: u64, jobs: Vec<Result<Vec<u8>, String>>) -> SourceBatch {
        let (mut payloads, mut faults) = (Payloads::new(), Vec::new());
        for job in jobs {
            match job {
                Ok(job) => payloads.push(&job),
                Err(message) => {
                    faults.push(Fault { position: payloads.len(), message });
                    payloads.push(b"");
                }
            }
        }
        let spec = &self.shared.spec;
        let url = spec.url.to_string();
        // The place of a job is the number of the service, in the place of a line.
        let runs = vec![LineRun { position: 0, line: spec.number(first) }];
        let places = Some(LineNumbers { file: Path::new(&url).into(), runs });
        let batch = Batch {
            first,
            payloads,
            form: Form::Unchecked,
            places,
            faults,
            stamps: Vec::new(),
            carried: None,
        };
        SourceBatch { batch, mark: None, segments: Vec::new() }
    }

    /// Logs the first failure, one a minute, and the recovery.
    fn note_trouble(&mut self, now: Instant, time: Timestamp) {
        let source = &self.shared.address;
        let Some((why, failures, until)) = self.window.failing() else {
            if let Some(trouble) = self.trouble.take() {
                let since = rfc3339(trouble.since);
                tracing::info!(target: log_target::SOURCE, %source, "the service answers again; it failed since {since}");
            }
            self.logged = None;
            return;
        };
        let since = self.trouble.as_ref().map_or(time, |trouble| trouble.since);
        let until = time + until.saturating_duration_since(now);
        let is_new = self.trouble.as_ref().is_none_or(|trouble| trouble.failures != failures);
        if is_new && self.logged.is_none_or(|logged| now.duration_since(logged) >= LOG_INTERVAL) {
            self.logged = Some(now);
            let until = rfc3339(until);
            tracing::warn!(target: log_target::SOURCE, %source, failures, "{why}; the next request is at {until}");
        }
        if is_new {
            self.trouble = Some(PullTrouble { since, until, why: why.to_owned(), failures });
        }
    }
}
