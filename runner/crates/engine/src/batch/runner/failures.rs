//! Failure handler: decides about each job of a batch whose attempt failed.

use tidegate_plugin::{Failure, FailureKind};

use super::result_builder::BatchResultBuilder;
use super::setup::SetupFailure;
use crate::batch::error_record;
use crate::batch::error_record::{FailureCase, RecordedConfiguration};
use crate::batch::events::{EventRecorder, JobEnd, JobEvent};
use crate::batch::job_builder::JobInput;
use crate::batch::result::{HaltReason, StartBlock};
use crate::batch::retry;
use crate::batch::retry::{DropReason, FailureOutcome, RetryDecider};
use crate::processor::monitor_protocol::JobVerdict;
use crate::step::stats::BlockCause;
use crate::step::turn;
use tidegate_config::InputMode;
use tidegate_dispatch::{
    AttemptShare, Ending, Failed, FailedJob, FailureCause, JobOutcome, NextAttempt, Wait,
};
use tidegate_model::{Address, ExternalStatus, Timestamp};
use tidegate_store::{DeliveryOutcome, NewParkedJob};

/// Failure handling of one batch.
pub(crate) struct FailureHandler<'w> {
    pub(crate) retrying: &'w RetryDecider,
    pub(crate) step: &'w Address,
    pub(crate) take: InputMode,
    pub(crate) generation: u64,
    /// The configuration of the step in error records.
    pub(crate) configuration: &'w RecordedConfiguration,
}

/// Disposition of a job after its attempt.
pub(crate) enum JobDisposition {
    /// The job is finished, and its outcome is recorded.
    Through(DeliveryOutcome),
    /// The job is parked in the store.
    Stays,
    /// The job keeps its place in the order and waits there for its next attempt.
    Waits(Box<NewParkedJob>, JobOutcome),
    /// The job halts the step.
    Halts(Box<Failure>, HaltReason),
}

/// The attempt with this outcome. A closed gate and a failed setup are no attempts.
pub(crate) fn share(outcome: &Result<(), Failure>) -> AttemptShare {
    let (attempts, failed) = match outcome {
        Err(failure) if failure.kind == FailureKind::GateClosed || failure.of_setup => (0, 0),
        Err(failure) if failure.kind != FailureKind::Pending => (1, 1),
        _ => (1, 0),
    };
    AttemptShare { attempts, failed }
}

/// The reason of a lane that halts at an invalid job.
pub(crate) fn halt_of_lane(item: &JobInput<'_>, failure: &Failure) -> String {
    let job = item.given().map(|given| format!("{}/{}", given.from(), given.index));
    format!("job {} is invalid: {}", job.collect::<Vec<_>>().join(" + "), failure.message)
}

impl FailureHandler<'_> {
    /// Handles a failed setup: the job waits, or it halts the step.
    pub(crate) fn sets_back(
        &self,
        item: &JobInput<'_>,
        setback: &SetupFailure,
        now: Timestamp,
        (made, events): (&mut BatchResultBuilder, &mut EventRecorder<'_>),
    ) -> JobDisposition {
        let SetupFailure { failure, until } = setback;
        match *until {
            Some(until) => {
                events.note(item, &JobEvent::Delayed { due: until, reason: Some(&failure.message) }, now);
                made.ran.held = Some(StartBlock::of_setup(failure, until));
                self.holds(item, until, now, made)
            }
            None => JobDisposition::Halts(Box::new(failure.clone()), HaltReason::Run),
        }
    }

    /// Delivers the result of a job, if that is in the store.
    pub(crate) fn recall(
        &self,
        item: &mut JobInput<'_>,
        now: Timestamp,
        sends: impl Fn(usize) -> bool,
        (made, events): (&mut BatchResultBuilder, &mut EventRecorder<'_>),
    ) -> Option<JobDisposition> {
        let result = item.finished_result()?;
        // The attempt that made the result is its last one.
        item.attempt -= 1;
        Some(match made.recall(self.step, item, result, sends) {
            Ok(outcome) => JobDisposition::Through(outcome),
            Err(failure) => {
                // Without another attempt.
                let verdict = JobVerdict { status: ExternalStatus::Committed, result: None, reason: None };
                self.handle_failure(item, failure, Some(&verdict), (now, now), (made, events))
            }
        })
    }

    /// Puts a job back that was not attempted.
    fn holds(
        &self,
        item: &JobInput<'_>,
        until: Timestamp,
        now: Timestamp,
        made: &mut BatchResultBuilder,
    ) -> JobDisposition {
        // A queued step keeps its own time of the next start.
        let due = if made.sequential { now } else { until };
        stays(made, retry::requeue(self.step, item, due), JobOutcome::Held(Wait { since: now, until }))
    }

    /// `verdict`: there was no attempt, and the external system reported the job as invalid.
    pub(crate) fn handle_failure(
        &self,
        item: &JobInput<'_>,
        mut failure: Failure,
        verdict: Option<&JobVerdict>,
        (began, now): (Timestamp, Timestamp),
        (made, events): (&mut BatchResultBuilder, &mut EventRecorder<'_>),
    ) -> JobDisposition {
        let outcome = if verdict.is_some() {
            self.retrying.refused()
        } else {
            self.retrying.outcome(item, &mut failure, (began, now))
        };
        let is_failed_attempt = verdict.is_none()
            && !matches!(
                outcome,
                FailureOutcome::Held(_) | FailureOutcome::Pending | FailureOutcome::Halts(_)
            );
        if is_failed_attempt {
            events.note(item, &JobEvent::Failed(&failure), now);
        }
        match outcome {
            FailureOutcome::Again(at) => {
                events.note(item, &JobEvent::Delayed { due: at, reason: None }, now);
                let again = NextAttempt { number: item.attempt + 1, due: at };
                note(item, &failure, (Ending::TriedAgain, Some(again)), &mut made.ran.retried);
                let row = retry::delayed(self.step, item, &failure, at, began);
                return stays(made, row, JobOutcome::Delayed(at));
            }
            FailureOutcome::Held(until) => {
                events.note(item, &JobEvent::Delayed { due: until, reason: Some(&failure.message) }, now);
                made.ran.held = Some(StartBlock { by: BlockCause::Job, why: failure.message });
                return self.holds(item, until, now, made);
            }
            FailureOutcome::Pending => {
                events.note(item, &JobEvent::Pending { handle: &failure.message }, now);
                let row = retry::pending(self.step, item, &failure.message, (began, now));
                made.ran.stays(row, JobOutcome::Pending);
                return JobDisposition::Stays;
            }
            FailureOutcome::Error => {
                let (step, take, generation) = (self.step, self.take, self.generation);
                let result = verdict.and_then(|verdict| verdict.result.as_deref());
                let configuration = self.configuration.get();
                let undelivered = item.finished_result();
                let case =
                    FailureCase { now, step, take, generation, item, result, undelivered, configuration };
                // Serialization to memory cannot fail; if it did, the step would stop.
                if made.errors.push_with(|buffer| error_record::write(&case, &failure, buffer)).is_err() {
                    return JobDisposition::Halts(Box::new(failure), HaltReason::Run);
                }
                made.error_side.push(item);
                note(item, &failure, (Ending::SetAside, None), &mut made.ran.failed);
            }
            FailureOutcome::Dropped(DropReason::AtMostOnce) => {
                note(item, &failure, (Ending::DroppedOnce, None), &mut made.ran.failed);
            }
            FailureOutcome::Dropped(DropReason::Errors) => {
                note(item, &failure, (Ending::DroppedByErrors, None), &mut made.ran.failed);
            }
            FailureOutcome::Dropped(DropReason::Exhausted) => {
                note(item, &failure, (Ending::DroppedByPolicy, None), &mut made.ran.failed);
            }
            FailureOutcome::Halts(halts) => return JobDisposition::Halts(Box::new(failure), halts),
        }
        let end = if outcome == FailureOutcome::Error { JobEnd::SetAside } else { JobEnd::Dropped };
        events.note(item, &JobEvent::Done { end, reason: Some(&failure.message) }, now);
        made.ran.counters.failed += 1;
        JobDisposition::Through(DeliveryOutcome::Error)
    }
}

/// Records the job for the log.
fn note(
    item: &JobInput<'_>,
    failure: &Failure,
    (ending, again): (Ending, Option<NextAttempt>),
    all: &mut Vec<Failed>,
) {
    let cause = FailureCause { kind: failure.word(), ending };
    let job = item.given().map(|given| format!("{}/{}", given.from(), given.index));
    let job = FailedJob { job: job.collect::<Vec<_>>().join(" + "), again, why: failure.to_string() };
    Failed::add(all, cause, job);
}

/// Parks a job. In an ordered step a job that waits ends its batch, unless its order was given up before.
fn stays(made: &mut BatchResultBuilder, row: NewParkedJob, end: JobOutcome) -> JobDisposition {
    if (made.in_order || !made.sequential) && turn::keeps(&row.job) {
        return JobDisposition::Waits(Box::new(row), end);
    }
    made.ran.stays(row, end);
    JobDisposition::Stays
}
