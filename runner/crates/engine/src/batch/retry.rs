//! Retry decision: decides about a job whose attempt failed.

use std::time::Duration;

use tidegate_plugin::{Cause, Failure, FailureKind};

use super::job_builder::JobInput;
use super::reason;
use super::result::HaltReason;
use tidegate_components::script::json;
use tidegate_config::{Configuration, DeliveryGuarantee, GateRef, Queuer, Step};
use tidegate_dispatch::DurabilityBarrier;
use tidegate_model::{
    Address, Decision, Due, FailedTry, FailureClass, Form, OnExhausted, RetryPolicy, Timestamp,
    parse_duration, scalar, shortened,
};
use tidegate_store::{DeliveryTimes, FinishedResult, JobForm, NewParkedJob, ParkReason, ParkedJob};

/// Time for which a step starts nothing if a job finds the gate closed and the step has no check interval.
const GATE_EVERY: Duration = Duration::from_secs(5);

/// Minimum delay before a setup is retried.
const SETUP_MIN: Duration = Duration::from_millis(10);
/// Maximum delay before a setup is retried, unless the code requests a longer one.
const SETUP_MAX: Duration = Duration::from_mins(1);

/// Failure handling of a step.
#[derive(Debug)]
pub(crate) struct RetryDecider {
    policy: Option<RetryPolicy>,
    errors: ErrorFate,
    /// Whether a failed job is never run again.
    only_once: bool,
    /// Whether failures may come from a plugin.
    plugs_in: bool,
    /// Time for which nothing starts if a job finds its gate closed.
    gate_every: Duration,
    /// Minimum delay of a failed job.
    delay_window: Duration,
}

/// Fate of a job that is not retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorFate {
    Queue,
    Drop,
    /// The step has no error queue.
    Halt,
}

/// Decision about a job whose attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureOutcome {
    /// It runs again, not before this time.
    Again(Timestamp),
    /// It was not attempted: the job keeps its place, and the step starts nothing before this time.
    Held(Timestamp),
    /// It is pending in an external system.
    Pending,
    /// It goes to the error queue.
    Error,
    /// It is consumed.
    Dropped(DropReason),
    /// It halts the step.
    Halts(HaltReason),
}

/// Reason for which a failed job is consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DropReason {
    AtMostOnce,
    Exhausted,
    /// Its step drops failed jobs.
    Errors,
}

impl RetryDecider {
    pub(crate) fn new(configuration: &Configuration, step: &Step) -> Self {
        let every = |GateRef(gate): GateRef| configuration.gates[gate].inquiry.every;
        Self {
            policy: step.retry_policy().cloned(),
            plugs_in: step.processors.iter().any(|processor| processor.plugin().is_some()),
            errors: match step.errors {
                Some(_) => ErrorFate::Queue,
                None if step.drops_errors => ErrorFate::Drop,
                None => ErrorFate::Halt,
            },
            only_once: step.delivery == DeliveryGuarantee::AtMostOnce,
            gate_every: step.gate.map_or(GATE_EVERY, every),
            delay_window: step.picks().and_then(Queuer::delay_window).unwrap_or_default(),
        }
    }

    /// Whether a failed job may halt the step.
    pub(crate) fn may_halt(&self) -> bool {
        self.errors == ErrorFate::Halt && !self.only_once
    }

    /// Whether a delay counts from the beginning of an attempt.
    pub(crate) fn has_delay_window(&self) -> bool {
        self.delay_window > Duration::ZERO
    }

    /// Whether a job is never attempted twice.
    pub(crate) fn is_only_once(&self) -> bool {
        self.only_once
    }

    /// Decides about `item`, whose attempt began at `began`. If it has no attempts or time left, that is added to
    /// `failure`.
    pub(crate) fn outcome(
        &self,
        item: &JobInput<'_>,
        failure: &mut Failure,
        (began, now): (Timestamp, Timestamp),
    ) -> FailureOutcome {
        match failure.kind {
            FailureKind::GateClosed => {
                return FailureOutcome::Held((now + self.gate_every).min(Timestamp::LATEST));
            }
            FailureKind::Pending => return FailureOutcome::Pending,
            _ => {}
        }
        let given_up = self.refused();
        if self.only_once {
            return given_up;
        }
        if failure.kind == FailureKind::Halted {
            return FailureOutcome::Halts(HaltReason::Code);
        }
        let asks = matches!(failure.kind, FailureKind::Retry | FailureKind::RetryIn(_));
        // Code that requests another attempt gets one, even without a policy.
        let default = (self.policy.is_none() && asks).then(RetryPolicy::default);
        let Some(policy) = self.policy.as_ref().or(default.as_ref()) else { return given_up };
        let ttl = match own_ttl(policy, item.payload) {
            Ok(ttl) => ttl,
            Err(why) => {
                failure.message = format!("{}; {why}", failure.message);
                return given_up;
            }
        };
        let tried = tried(item, failure, self.plugs_in, now, ttl);
        let halts = policy.halts(tried.trouble);
        let given_up = if halts { FailureOutcome::Halts(HaltReason::Class) } else { given_up };
        match policy.next(&tried) {
            Decision::Again { at, quick: true } => FailureOutcome::Again(at.min(Timestamp::LATEST)),
            Decision::Again { at, quick: false } => {
                FailureOutcome::Again(at.max(began + self.delay_window).min(Timestamp::LATEST))
            }
            Decision::NotRetried => given_up,
            Decision::Exhausted(exhausted) => {
                // The message of a halted step has this reason even after a single attempt.
                if item.attempt > 1 || halts || policy.then == OnExhausted::Halt {
                    failure.message = format!("{} ({exhausted})", failure.message);
                }
                match policy.then {
                    OnExhausted::ErrorQueue => given_up,
                    OnExhausted::Drop if halts => given_up,
                    OnExhausted::Drop => FailureOutcome::Dropped(DropReason::Exhausted),
                    OnExhausted::Halt => FailureOutcome::Halts(HaltReason::Policy),
                }
            }
        }
    }

    /// Time of the next setup after `setbacks` failures in a row: the delays of the policy, within bounds.
    pub(crate) fn set_up_again(&self, failure: &Failure, setbacks: u32, now: Timestamp) -> Timestamp {
        let wait = match failure.kind {
            FailureKind::GateClosed => self.gate_every,
            FailureKind::RetryIn(asked) => asked,
            _ => self.policy.as_ref().unwrap_or(&RetryPolicy::DEFAULT).wait(setbacks).min(SETUP_MAX),
        };
        (now + wait.max(SETUP_MIN)).min(Timestamp::LATEST)
    }

    /// Decides about a job that is not retried under any policy.
    pub(crate) fn refused(&self) -> FailureOutcome {
        match (self.errors, self.only_once) {
            (ErrorFate::Queue, _) => FailureOutcome::Error,
            (ErrorFate::Drop, _) => FailureOutcome::Dropped(DropReason::Errors),
            (ErrorFate::Halt, true) => FailureOutcome::Dropped(DropReason::AtMostOnce),
            (ErrorFate::Halt, false) => FailureOutcome::Halts(HaltReason::NoErrors),
        }
    }
}

/// Record that must be durable before a batch of the step may run.
pub(crate) fn before(step: &Step, configuration: &Configuration) -> DurabilityBarrier {
    match step.delivery {
        DeliveryGuarantee::AtMostOnce => DurabilityBarrier::Progress,
        DeliveryGuarantee::ExactlyOnce if step.has_effects(configuration) => DurabilityBarrier::Snapshot,
        DeliveryGuarantee::ExactlyOnce | DeliveryGuarantee::AtLeastOnce => DurabilityBarrier::Nothing,
    }
}

/// The time that the job itself allows.
///
/// # Errors
/// Its field is no duration, as a sentence fragment.
fn own_ttl(policy: &RetryPolicy, job: &[u8]) -> Result<Option<Duration>, String> {
    let Some((path, written)) = policy.ttl_field.as_ref().and_then(|path| Some((path, path.find(job)?)))
    else {
        return Ok(None);
    };
    if written == "null" {
        return Ok(None);
    }
    let millis = || written.parse().map(Duration::from_millis).map_err(|_| ());
    let text = || scalar(written).and_then(|text| parse_duration(&text).ok()).ok_or(());
    millis().or_else(|()| text()).map(Some).map_err(|()| {
        let written = shortened(written.to_owned(), reason::BYTES_MAX / 2);
        format!("its `{path}` is no duration like \"15m\", and no number of milliseconds: {written}")
    })
}

fn tried(
    item: &JobInput<'_>,
    failure: &Failure,
    plugs_in: bool,
    now: Timestamp,
    ttl: Option<Duration>,
) -> FailedTry {
    let asked = match failure.kind {
        FailureKind::RetryIn(delay) => Some(delay),
        _ => None,
    };
    let first_attempt = item.first_attempt.unwrap_or(now);
    let trouble = trouble(failure, plugs_in);
    FailedTry { attempt: item.attempt, first_attempt, now, trouble, asked, ttl, hash: item.hash.0 }
}

/// Class of a failure for the retry policy.
fn trouble(failure: &Failure, plugs_in: bool) -> FailureClass {
    match failure.cause {
        Some(Cause::Timeout) => return FailureClass::Timeout,
        Some(Cause::Connection) => return FailureClass::Connection,
        Some(Cause::Http(429)) => return FailureClass::Http429,
        Some(Cause::Http(500..)) => return FailureClass::Http5xx,
        Some(Cause::Http(400..500)) if failure.kind == FailureKind::Rejected => return FailureClass::Http4xx,
        Some(Cause::Exit(_)) => return FailureClass::Exit,
        _ => {}
    }
    match failure.kind {
        FailureKind::Payload => FailureClass::Payload,
        FailureKind::Rejected => FailureClass::Rejected,
        FailureKind::Limit => FailureClass::Limit,
        FailureKind::Output => FailureClass::Output,
        FailureKind::Retry | FailureKind::RetryIn(_) => FailureClass::Asked,
        FailureKind::Panicked => FailureClass::Panic,
        FailureKind::Crashed => FailureClass::Crashed,
        _ if plugs_in => FailureClass::Plugin,
        _ => FailureClass::Script,
    }
}

/// Row of a job that waits for its next attempt. `began`: the begin of the last one.
pub(crate) fn delayed(
    step: &Address,
    item: &JobInput<'_>,
    failure: &Failure,
    at: Timestamp,
    began: Timestamp,
) -> NewParkedJob {
    let job = ParkedJob {
        attempt: item.attempt,
        first_attempt: Some(item.first_attempt.unwrap_or(began)),
        due: Due::At(at),
        last_error: Some(failure.to_string()),
        ..parked(item)
    };
    NewParkedJob { step: step.clone(), job }
}

/// Row of a job while it is being attempted. `claims`: the attempt may begin later.
pub(crate) fn started(step: &Address, item: &JobInput<'_>, claims: bool, now: Timestamp) -> NewParkedJob {
    let mut job = ParkedJob {
        attempt: item.attempt,
        first_attempt: Some(item.first_attempt.unwrap_or(now)),
        last_error: last_error(item),
        ..started_at(now, parked(item))
    };
    if claims {
        job.due = Due::At(now);
    }
    NewParkedJob { step: step.clone(), job }
}

/// Row of a job that waits for a gate; its beginning does not count as an attempt.
pub(crate) fn requeue(step: &Address, item: &JobInput<'_>, due: Timestamp) -> NewParkedJob {
    let job = ParkedJob {
        attempt: item.attempt.saturating_sub(1),
        first_attempt: item.first_attempt,
        due: Due::At(due),
        last_error: last_error(item),
        ..parked(item)
    };
    NewParkedJob { step: step.clone(), job }
}

/// Row of a job that is pending in an external system under `handle`. `began`: the begin of its attempt.
pub(crate) fn pending(
    step: &Address,
    item: &JobInput<'_>,
    handle: &str,
    (began, now): (Timestamp, Timestamp),
) -> NewParkedJob {
    let job = ParkedJob {
        attempt: item.attempt,
        first_attempt: Some(item.first_attempt.unwrap_or(began)),
        due: Due::Never,
        reason: ParkReason::Pending { handle: handle.to_owned(), since: now },
        ..parked(item)
    };
    NewParkedJob { step: step.clone(), job }
}

/// Row of a job that waits to be submitted again, because the external system does not know it.
pub(crate) fn resubmit(step: &Address, item: &JobInput<'_>, now: Timestamp) -> NewParkedJob {
    let job = ParkedJob {
        attempt: item.attempt,
        first_attempt: item.first_attempt,
        last_error: last_error(item),
        ..started_at(now, parked(item))
    };
    NewParkedJob { step: step.clone(), job }
}

/// Row of a job that is finished, and delivered after the jobs before it. `began`: the begin of its attempt.
pub(crate) fn finished(
    step: &Address,
    item: &JobInput<'_>,
    result: FinishedResult,
    began: Timestamp,
) -> NewParkedJob {
    let job = ParkedJob {
        attempt: item.attempt,
        first_attempt: Some(item.first_attempt.unwrap_or(began)),
        reason: ParkReason::Finished { result },
        ..parked(item)
    };
    NewParkedJob { step: step.clone(), job }
}

/// Row of a job that waits for its partners in a join, for at most `within`. It counts as one attempt, by which
/// the next one is known to be its last.
pub(crate) fn unmatched(
    step: &Address,
    item: &JobInput<'_>,
    why: &str,
    within: Option<Duration>,
    now: Timestamp,
) -> NewParkedJob {
    let job = ParkedJob {
        attempt: 1,
        first_attempt: Some(now),
        due: within.map_or(Due::Never, |within| Due::At((now + within).min(Timestamp::LATEST))),
        last_error: Some(why.to_owned()),
        from_error: None,
        ..parked(item)
    };
    NewParkedJob { step: step.clone(), job }
}

/// Row of an output that is due later.
pub(crate) fn delayed_output(
    step: &Address,
    item: &JobInput<'_>,
    to: &str,
    due: Timestamp,
    payload: &[u8],
) -> NewParkedJob {
    let job = ParkedJob {
        due: Due::At(due.min(Timestamp::LATEST)),
        reason: ParkReason::Output { to: to.to_owned() },
        form: JobForm::Json,
        payload: payload.to_vec(),
        ..parked(item)
    };
    NewParkedJob { step: step.clone(), job }
}

/// Error of the last attempt.
fn last_error(item: &JobInput<'_>) -> Option<String> {
    item.last_error().map(str::to_owned)
}

/// A delayed output stays one while it is being delivered.
fn started_at(now: Timestamp, job: ParkedJob) -> ParkedJob {
    match job.reason {
        ParkReason::Output { .. } => ParkedJob { due: Due::At(now), ..job },
        _ => ParkedJob { due: Due::Now, reason: ParkReason::Started { since: now }, ..job },
    }
}

fn parked(item: &JobInput<'_>) -> ParkedJob {
    let output = |to: &str| ParkReason::Output { to: to.to_owned() };
    let DeliveryTimes { created, submitted, .. } = item.times(None);
    ParkedJob {
        due: Due::Now,
        inputs: item.given().map(|given| (given.name.to_owned(), given.index)).collect(),
        attempt: 0,
        first_attempt: None,
        created,
        last_submitted: submitted,
        last_error: None,
        from_error: item.put_back_from().cloned(),
        reason: item.to.map_or(ParkReason::Delayed, output),
        form: form(item),
        payload: item.payload.to_vec(),
        carried: (!item.carried.is_empty()).then(|| item.carried.clone()),
    }
}

/// Form of the payload. It is checked now if it was not checked before, because the row records it.
fn form(item: &JobInput<'_>) -> JobForm {
    if item.form == Form::Json || json::check(item.payload).is_ok() {
        JobForm::Json
    } else if std::str::from_utf8(item.payload).is_ok() {
        JobForm::Text
    } else {
        JobForm::Bytes
    }
}
