//! `LateStatus`: the state of a job that is appended to its queue later, or was.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::job::{self, JobSelection, ReportedState};
use super::job_payload::raw;
use super::{Answer, rfc3339};
use tidegate_config::Configuration;
use tidegate_engine::{Handle, LateEnd, late_end};
use tidegate_model::{Address, Clock as _, Name, SystemClock};
use tidegate_store::{LateKey, ParkedId, ReadError, Store};

/// The part of an address that distinguishes late jobs from those with an index.
pub(crate) const DUE: &str = "due";

/// The address of a job that is due later, or was. Its number is not that of any other late job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LateAddress {
    pub(crate) queue: Address,
    pub(crate) id: ParkedId,
}

impl LateAddress {
    /// `pipeline/queue/due/number`
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('/').collect();
        match parts[..] {
            [pipeline, queue, DUE, number] => Self::of((pipeline, queue), number),
            _ => None,
        }
    }

    pub(crate) fn of((pipeline, queue): (&str, &str), number: &str) -> Option<Self> {
        let queue = Address::new(Name::new(pipeline)?, Name::new(queue)?);
        Some(Self { queue, id: ParkedId(job_number(number)?) })
    }
}

impl fmt::Display for LateAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{DUE}/{}", self.queue, self.id.0)
    }
}

/// The number in the address of a job. Each job has one address: a number has no sign and no leading zeros.
pub(crate) fn job_number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits && (text == "0" || !text.starts_with('0')))
}

/// A job that is not on its queue.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LateStatus {
    /// `pipeline/queue/due/number`
    pub(crate) job: String,
    pub(crate) status: ReportedState,
    /// The due time; RFC 3339. Missing if it is due by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) payload: Option<Box<RawValue>>,
}

pub(crate) enum LateState {
    /// It waits, or was cancelled.
    Waits(LateStatus),
    Appended {
        queue: Address,
        index: u64,
    },
    /// A sentence.
    Unknown(String),
}

/// The late job with this number.
pub(crate) fn find(
    store: &Store,
    configuration: &Configuration,
    asked: &LateAddress,
) -> Result<LateState, ReadError> {
    let (LateAddress { queue, id }, name) = (asked.clone(), asked.to_string());
    if !configuration.queues.iter().any(|declared| declared.address == queue) {
        return Ok(LateState::Unknown(format!("the configuration has no queue `{queue}`")));
    }
    let key = LateKey { queue: queue.clone(), id };
    if let Some(job) = store.late(&[key])?.pop().flatten() {
        let until = job.due.waits_until(SystemClock.now()).map(rfc3339);
        let (status, payload) = (ReportedState::Delayed, Some(raw(&job.payload)));
        return Ok(LateState::Waits(LateStatus { job: name, status, until, payload }));
    }
    Ok(match late_end(store, id)? {
        Some(LateEnd::Appended(index)) => LateState::Appended { queue, index },
        Some(LateEnd::Dropped) => {
            let status = ReportedState::Cancelled;
            LateState::Waits(LateStatus { job: name, status, until: None, payload: None })
        }
        None => LateState::Unknown(format!("no job `{name}` waits or is remembered")),
    })
}

pub(crate) fn status(
    store: &Store,
    configuration: &Configuration,
    run: Option<&Handle>,
    asked: &LateAddress,
) -> Result<Answer, ReadError> {
    match find(store, configuration, asked)? {
        LateState::Waits(status) => Ok(Answer::Late(status)),
        LateState::Appended { queue, index } => {
            let selection = JobSelection { why: true, whole: true, before: true, run };
            job::status(store, configuration, (&queue.to_string(), index), &selection)
        }
        LateState::Unknown(why) => Ok(Answer::Missing(why)),
    }
}
