//! What is told of a step: how many of its jobs stand where, and what holds it.

use serde::{Deserialize, Serialize};

use super::{Oldest, rfc3339};
use tidegate_engine::ProbeHealth;
use tidegate_model::{Address, Counters, Progress};

/// How far a step is on one of its inputs. What is told of the step as a whole is told with the first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StepStatus {
    pub(crate) step: String,
    pub(crate) input: String,
    /// Every job at or below it is accounted for.
    pub(crate) watermark: u64,
    /// Jobs that wait; `null` for a source, which is not counted beforehand. While nothing runs, what was
    /// begun waits too, where it does not stand in the store by itself.
    pub(crate) waiting: Option<u64>,
    /// Of a source: jobs that were read and nobody has begun; while nothing runs, those that were begun
    /// before and put back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) read: Option<u64>,
    /// Jobs that are begun and not delivered; of a join, tuples. Known only while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) running: Option<u64>,
    /// Jobs that an outside system finishes.
    #[serde(default)]
    pub(crate) pending: u64,
    /// How many of those are called valid outside; known only while it runs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) valid: u64,
    /// Jobs that wait for a time that has not come: to be run again, or to be handed on.
    pub(crate) delayed: u64,
    /// Jobs whose attempt was begun, can be seen outside, and is not delivered, as far as that is written
    /// down: while nothing runs, all.
    pub(crate) begun: u64,
    /// Its errors that are open: neither retried nor dropped, and still kept. Told with the first input.
    #[serde(default)]
    pub(crate) errors: u64,
    /// The oldest waiting job, where it is known when it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) oldest: Option<Oldest>,
    /// Jobs a second over the last ten; known only while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rate: Option<f64>,
    /// The step joins its inputs: what it hands on, filters and fails is counted with the first of them.
    #[serde(default)]
    pub(crate) joins: bool,
    /// What keeps the step from starting anything; known only while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) closed: Option<BlockStatus>,
    /// Its gate, while an answer of it is waited for, or its last one was none; known only while it runs …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gate: Option<ProbeStatus>,
    /// … and its monitor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) monitor: Option<ProbeStatus>,
    /// Since when the step is paused; RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) paused: Option<String>,
    /// The job behind which others are held: they are delivered after it. Told with the first input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) held_behind: Option<HeldBehind>,
    /// It takes no more jobs in this run; while nothing runs, it has stopped in the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) halted: Option<Halted>,
    /// The step is in the configuration.
    pub(crate) configured: bool,
    #[serde(flatten)]
    pub(crate) counters: Counters,
    /// Where it was asked for, and the jobs of the step are in lanes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lanes: Option<LanesStatus>,
}

/// A job that waits for its next attempt in a step that delivers in order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HeldBehind {
    /// `pipeline/queue/index`
    pub(crate) job: String,
    /// When it is tried again; RFC 3339.
    pub(crate) until: String,
}

/// Since when a step starts nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BlockStatus {
    /// RFC 3339.
    pub(crate) since: String,
    /// `gate`; `failure`, where the gate cannot be asked; `job`, where one of its jobs has said so; `setup`,
    /// where its plugin cannot be set up.
    #[serde(default)]
    pub(crate) by: String,
    /// Empty where nobody has said.
    pub(crate) why: String,
}

/// How a gate or a monitor answers, where there is anything to say of that. Times are RFC 3339.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ProbeStatus {
    /// Of a gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// Since when an answer is waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) asked_since: Option<String>,
    /// Since when no answer was a good one …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failing_since: Option<String>,
    /// … and what is wrong with the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
}

/// Since when a step takes no more jobs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Halted {
    /// RFC 3339.
    pub(crate) since: String,
    /// While nothing runs: the job at which it stopped, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<String>,
    /// It was the last run that it stopped in.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) last_run: bool,
    pub(crate) why: String,
}

/// The lanes of a step, as far as it looks at its jobs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LanesStatus {
    /// How many lanes there are that have any job.
    pub(crate) count: u64,
    /// Those with the most jobs waiting, most first.
    pub(crate) top: Vec<LaneStatus>,
    /// More jobs wait than were looked at.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) cut: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LaneStatus {
    /// `null`: its jobs are in no lane.
    pub(crate) lane: Option<String>,
    pub(crate) waiting: u64,
    /// Known only while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) running: Option<u64>,
    pub(crate) pending: u64,
    pub(crate) delayed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) oldest: Option<Oldest>,
}

impl ProbeStatus {
    /// `None` where there is nothing to say.
    pub(crate) fn of(answering: ProbeHealth, name: Option<String>) -> Option<Self> {
        let ProbeHealth { asked, trouble } = answering;
        let (failing_since, why) = trouble.map(|(since, why)| (rfc3339(since), why)).unzip();
        let asked_since = asked.map(rfc3339);
        (asked_since.is_some() || failing_since.is_some()).then_some(Self {
            name,
            asked_since,
            failing_since,
            why,
        })
    }
}

impl StepStatus {
    pub(crate) fn new(step: &Address, input: &Address, progress: &Progress) -> Self {
        Self {
            step: step.to_string(),
            input: input.to_string(),
            watermark: progress.watermark(),
            waiting: None,
            read: None,
            running: None,
            pending: 0,
            valid: 0,
            delayed: 0,
            begun: 0,
            errors: 0,
            oldest: None,
            rate: None,
            joins: false,
            closed: None,
            gate: None,
            monitor: None,
            paused: None,
            held_behind: None,
            halted: None,
            configured: true,
            counters: progress.counters,
            lanes: None,
        }
    }

    /// Jobs of it stand somewhere.
    pub(crate) fn has_jobs(&self) -> bool {
        self.jobs_waiting() + self.delayed + self.pending + self.begun > 0
    }

    /// Nobody knows whether there are more: it is held back, and reads a source.
    pub(crate) fn may_have_jobs(&self) -> bool {
        (self.paused.is_some() || self.closed.is_some()) && self.waiting.is_none()
    }

    /// Jobs that are known to wait for their turn.
    pub(crate) fn jobs_waiting(&self) -> u64 {
        self.waiting.unwrap_or(0) + self.read.unwrap_or(0)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde hands it over")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
