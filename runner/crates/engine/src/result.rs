//! The result of a batch: what the committer stores of it, and what the dispatcher learns of its jobs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate_plugin::Failure;

use super::delivery::Made;
use super::held::Attempt;
use super::stats::ClosedBy;
use tidegate_dispatch::{EndedBy, Failed, JobEnd};
use tidegate_model::{Counters, DeliveryHash, Timestamp};
use tidegate_store::{Delayed, Outcome, Span};

/// What became of a batch.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    /// How many of its jobs are accounted for: all, or those before the one that halts the step.
    pub(crate) taken: usize,
    /// In the order of the step's bindings.
    pub(crate) outputs: Vec<Made>,
    /// Error records.
    pub(crate) errors: Option<Made>,
    /// Jobs that are run again, and outputs that are due later.
    pub(crate) delayed: Vec<Delayed>,
    pub(crate) outcomes: Vec<(DeliveryHash, Outcome)>,
    /// Jobs that are no suspects any more when this is delivered.
    pub(crate) settles: Vec<Span>,
    pub(crate) counters: Counters,
    pub(crate) halt: Option<Stumble>,
    /// How many of those that are taken come again.
    pub(crate) stayed: usize,
    /// Of jobs that were picked: what became of each that is taken.
    pub(crate) ends: Vec<JobEnd>,
    /// By cause: the jobs that failed for good.
    pub(crate) failed: Vec<Failed>,
    /// What keeps the step from starting anything, if the batch has come upon that.
    pub(crate) held: Option<Hindrance>,
    /// Nothing of it has run, and it can run again as it is.
    pub(crate) goes_back: bool,
    /// The rest was not attempted: it took long, or gave much.
    pub(crate) cut: bool,
    /// The job behind those that were taken waits for its next attempt: as it is delivered when its turn comes
    /// before that.
    pub(crate) waits: Option<Box<Ran>>,
    /// How long the worker took.
    pub(crate) took: Duration,
}

/// What keeps a step from starting anything.
#[derive(Clone, Debug)]
pub(crate) struct Hindrance {
    pub(crate) by: ClosedBy,
    /// A sentence fragment.
    pub(crate) why: String,
}

impl Hindrance {
    /// What the step runs could not be set up, and is set up again at `until`.
    pub(crate) fn of_setup(failure: &Failure, until: Timestamp) -> Self {
        Self { by: ClosedBy::Setup { until }, why: failure.to_string() }
    }
}

/// The job that halted a step, and why.
#[derive(Debug)]
pub(crate) struct Stumble {
    pub(crate) index: u64,
    pub(crate) failure: Failure,
    pub(crate) halts: Halts,
    /// Where the job stood in a file.
    pub(crate) file: Option<(Arc<Path>, u64)>,
}

/// Why a job that failed stands in the way of its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halts {
    /// There is no error queue to put it on.
    NoErrors,
    /// The policy says so.
    Policy,
    /// What failed is the run, and not the job.
    Run,
}

impl Ran {
    /// A job is taken, and stands in the store by itself.
    pub(crate) fn stays(&mut self, row: Delayed, end: JobEnd) {
        self.delayed.push(row);
        self.taken += 1;
        self.stayed += 1;
        self.ends.push(end);
    }

    /// One job that waits for its next attempt.
    pub(crate) fn waiting(row: Delayed, end: JobEnd, settles: Vec<Span>) -> Box<Self> {
        let mut ran = Self { settles, ..Self::default() };
        ran.stays(row, end);
        Box::new(ran)
    }

    /// What was attempted of its one job, where that waits for its next attempt.
    pub(crate) fn attempt(&self) -> Option<Attempt> {
        let job = &self.delayed.first()?.job;
        Some(Attempt { number: job.attempt, first: job.first_attempt, error: job.last_error.clone() })
    }

    /// Why the worker ended the batch.
    pub(crate) fn ending(&self) -> EndedBy {
        let waits = self.waits.as_ref().and_then(|waits| waits.ends.first());
        match waits {
            Some(JobEnd::Held(until)) => EndedBy::Holds(*until),
            Some(JobEnd::Delayed(due)) => EndedBy::Waits(*due),
            _ if self.halt.is_some() => EndedBy::Halts,
            _ if self.cut => EndedBy::Cut,
            _ => EndedBy::Whole,
        }
    }

    /// Bytes of everything that it brings.
    pub(crate) fn byte_len(&self) -> usize {
        self.outputs.iter().chain(&self.errors).map(|made| made.payloads.byte_len()).sum()
    }
}
