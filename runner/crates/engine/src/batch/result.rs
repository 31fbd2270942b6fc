//! Batch result: carries the outputs to the committer, and the outcomes of the jobs to the dispatcher.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate_plugin::{Failure, Payloads};

use super::input::FailedAttempt;
use super::keyed_job::KeyedJob;
use super::outcomes::DeliveryOutcomes;
use crate::commit::request::OutputBlock;
use crate::step::stats::BlockCause;
use tidegate_dispatch::{AttemptShare, BatchCut, Failed, JobOutcome};
use tidegate_model::{Counters, Timestamp};
use tidegate_store::{AttemptSpan, NewParkedJob};

/// Result of a batch.
#[derive(Debug, Default)]
pub(crate) struct BatchResult {
    /// Number of its jobs that are accounted for: all, or those before the one that halts the step.
    pub(crate) taken: usize,
    /// Outputs in the order of the step's bindings.
    pub(crate) outputs: Vec<OutputBlock>,
    /// Error records.
    pub(crate) errors: Option<OutputBlock>,
    /// Jobs that run again, and outputs that are due later.
    pub(crate) delayed: Vec<NewParkedJob>,
    /// Outcomes of deliveries, if the step keeps delivery records.
    pub(crate) outcomes: DeliveryOutcomes,
    /// Jobs of a join by key, in their order.
    pub(crate) keyed: Vec<KeyedJob>,
    /// Lanes that halt at an invalid job, with the reason.
    pub(crate) halted_lanes: Vec<(String, String)>,
    /// Events of the taken jobs, if the step has a queue for them.
    pub(crate) events: Payloads,
    /// Suspects that are cleared by the delivery.
    pub(crate) settles: Vec<AttemptSpan>,
    pub(crate) counters: Counters,
    pub(crate) halt: Option<HaltCause>,
    /// Number of taken jobs that will be redelivered.
    pub(crate) stayed: usize,
    /// Outcome of each taken job, for a queued step.
    pub(crate) ends: Vec<JobOutcome>,
    /// Jobs that failed permanently, by cause.
    pub(crate) failed: Vec<Failed>,
    /// Failed attempts of jobs that are tried again, by cause.
    pub(crate) retried: Vec<Failed>,
    /// Reason for which the step must not start a job now.
    pub(crate) held: Option<StartBlock>,
    /// Whether no job has run, so that the batch can run again.
    pub(crate) goes_back: bool,
    /// Whether the rest was not attempted, because the batch took long or has many outputs.
    pub(crate) cut: bool,
    /// Delivery of the job behind the taken ones, if it waits for its next attempt. It is used if the job's
    /// turn comes earlier.
    pub(crate) waits: Option<Box<BatchResult>>,
    /// Number of attempts that count, and of those among them that failed.
    pub(crate) attempts: AttemptShare,
    /// Time that the worker took.
    pub(crate) took: Duration,
}

/// Reason for which a step must not start a job.
#[derive(Clone, Debug)]
pub(crate) struct StartBlock {
    pub(crate) by: BlockCause,
    /// Sentence fragment.
    pub(crate) why: String,
}

impl StartBlock {
    /// The setup failed, and is retried at `until`.
    pub(crate) fn of_setup(failure: &Failure, until: Timestamp) -> Self {
        Self { by: BlockCause::Setup { until }, why: failure.to_string() }
    }
}

/// Job that halted a step, and the reason.
#[derive(Debug)]
pub(crate) struct HaltCause {
    pub(crate) index: u64,
    pub(crate) failure: Failure,
    pub(crate) halts: HaltReason,
    /// Position of the job in a file.
    pub(crate) file: Option<(Arc<Path>, u64)>,
}

/// Reason for which a failed job halts its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HaltReason {
    /// The step has no error queue.
    NoErrors,
    /// The retry policy requires it after the last attempt.
    Policy,
    /// The retry policy requires it for failures of this class.
    Class,
    /// The code requested it.
    Code,
    /// The run failed, and not the job.
    Run,
}

impl BatchResult {
    /// Adds a taken job that stays parked in the store.
    pub(crate) fn stays(&mut self, row: NewParkedJob, end: JobOutcome) {
        self.delayed.push(row);
        self.taken += 1;
        self.stayed += 1;
        self.ends.push(end);
    }

    /// Adds a taken job that the committer pairs.
    pub(crate) fn pairs_later(&mut self, job: KeyedJob) {
        self.keyed.push(job);
        self.taken += 1;
        // It is counted with its tuple.
        self.stayed += 1;
    }

    /// Result of one job that waits for its next attempt.
    pub(crate) fn waiting(
        row: NewParkedJob,
        end: JobOutcome,
        settles: Vec<AttemptSpan>,
        events: Payloads,
    ) -> Box<Self> {
        let mut ran = Self { events, settles, ..Self::default() };
        ran.stays(row, end);
        Box::new(ran)
    }

    /// Last attempt of its one job, if that waits for its next attempt.
    pub(crate) fn attempt(&self) -> Option<FailedAttempt> {
        let job = &self.delayed.first()?.job;
        Some(FailedAttempt {
            number: job.attempt,
            first: job.first_attempt,
            error: job.last_error.clone(),
            events: self.events.clone(),
        })
    }

    /// Reason for which the worker ended the batch.
    pub(crate) fn ending(&self) -> BatchCut {
        let waits = self.waits.as_ref().and_then(|waits| waits.ends.first());
        match waits {
            Some(JobOutcome::Held(wait)) => BatchCut::Holds(*wait),
            Some(JobOutcome::Delayed(due)) => BatchCut::Waits(*due),
            _ if self.halt.is_some() => BatchCut::Halts,
            _ if self.cut => BatchCut::Cut,
            _ => BatchCut::Whole,
        }
    }

    /// Bytes of all its data.
    pub(crate) fn byte_len(&self) -> usize {
        let outputs = self.outputs.iter().chain(&self.errors).map(|made| made.payloads.byte_len());
        let keyed = self.keyed.iter().map(KeyedJob::byte_len);
        outputs.chain(keyed).sum::<usize>() + self.events.byte_len()
    }
}
