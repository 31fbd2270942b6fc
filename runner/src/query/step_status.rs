//! `StepStatus`: the status of a step, with the number of its jobs in each state and the reason if it is
//! held.

use serde::{Deserialize, Serialize};

use super::retry_status::RetryStatus;
use super::{Oldest, rfc3339};
use tidegate_engine::ProbeHealth;
use tidegate_model::{Address, Counters, Progress};

/// The progress of a step on one of its inputs. Values of the whole step are reported with the first input.
#[derive(Debug, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a field of the answer, and independent of the others"
)]
pub(crate) struct StepStatus {
    pub(crate) step: String,
    pub(crate) input: String,
    /// Every job at or below it is accounted for.
    pub(crate) watermark: u64,
    /// Number of waiting jobs; `null` for a source, whose jobs are not counted in advance. In a stopped
    /// store, started jobs without a row count as waiting.
    pub(crate) waiting: Option<u64>,
    /// Jobs of a source that were read and not started; in a stopped store, jobs that were started and put
    /// back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) read: Option<u64>,
    /// Jobs that were started and not delivered; of a join, tuples. Known only while a run is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) running: Option<u64>,
    /// Jobs that are pending in an external system.
    #[serde(default)]
    pub(crate) pending: u64,
    /// Pending jobs whose status is valid; known only while a run is active.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) valid: u64,
    /// Jobs that wait for a future time: for an attempt, or as an output.
    pub(crate) delayed: u64,
    /// Jobs of the input that wait for their partners in a join by key.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) unmatched: u64,
    /// There are `max_waiting` of them, so the input is not read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) full: bool,
    /// Jobs with a recorded attempt that has external effects and is not delivered. In a stopped store, all
    /// such jobs.
    pub(crate) begun: u64,
    /// Open errors: neither retried nor dropped, and still kept. Reported with the first input.
    #[serde(default)]
    pub(crate) errors: u64,
    /// Failed jobs that are on no error queue; known only while a run is active, and counted from its start.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) dropped: u64,
    /// The oldest waiting job, if its arrival time is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) oldest: Option<Oldest>,
    /// Jobs per second over the last 10 s; known only while a run is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rate: Option<f64>,
    /// The step joins its inputs: outputs, filtered jobs and failures are counted with the first of them.
    #[serde(default)]
    pub(crate) joins: bool,
    /// It joins them by key: all counters are with the first of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) by_key: bool,
    /// Why the step starts nothing; known only while a run is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) closed: Option<BlockStatus>,
    /// Its gate, if a probe is in progress or the last one failed; known only while a run is active …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gate: Option<ProbeStatus>,
    /// … and its monitor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) monitor: Option<ProbeStatus>,
    /// The time since when the step is paused; RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) paused: Option<String>,
    /// The time since when its monitor is paused; RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) monitor_paused: Option<String>,
    /// Lanes that start nothing until an operator resumes them; at most 10 of them. Reported with the first input.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) held_lanes: Vec<HeldLaneStatus>,
    /// Number of further held lanes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) more_held_lanes: u64,
    /// The job behind which others are held: they are delivered after it. Reported with the first input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) held_behind: Option<HeldBehind>,
    /// The failed job whose next attempt comes first. Reported with the first input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retry: Option<RetryStatus>,
    /// The step has stopped in this run; in a stopped store, in the last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) halted: Option<Halted>,
    /// The step is in the configuration.
    pub(crate) configured: bool,
    #[serde(flatten)]
    pub(crate) counters: Counters,
    /// Set if it was requested and the jobs of the step are in lanes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lanes: Option<LanesStatus>,
}

/// A job that waits for its next attempt in a step that delivers in order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HeldBehind {
    /// `pipeline/queue/index`
    pub(crate) job: String,
    /// Time of the next attempt; RFC 3339.
    pub(crate) until: String,
}

/// The reason and the time since when a step starts nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BlockStatus {
    /// RFC 3339.
    pub(crate) since: String,
    /// `gate`; `failure` if the gate's probe fails; `job` if a job has closed the gate; `setup` if the plugin
    /// cannot be set up.
    #[serde(default)]
    pub(crate) by: String,
    /// Empty if no reason was given.
    pub(crate) why: String,
}

/// The health of a gate or a monitor, if a probe is slow or fails. Times are RFC 3339.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ProbeStatus {
    /// Set for a gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// Start of the probe in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) asked_since: Option<String>,
    /// The time since when every probe has failed …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failing_since: Option<String>,
    /// … and the error of the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
}

/// The reason and the time since when a step is stopped.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Halted {
    /// RFC 3339.
    pub(crate) since: String,
    /// In a stopped store: the job at which it stopped, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<String>,
    /// It stopped in the last run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) last_run: bool,
    pub(crate) why: String,
}

/// A lane that is paused, or that has halted at an invalid job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HeldLaneStatus {
    /// Empty for jobs without a lane.
    pub(crate) lane: String,
    /// RFC 3339.
    pub(crate) since: String,
    /// The invalid job, with the reason; absent if an operator has paused the lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) halted: Option<String>,
}

/// The lanes of a step, within the jobs that it has scanned.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LanesStatus {
    /// Number of lanes with a job.
    pub(crate) count: u64,
    /// The lanes with the most waiting jobs, fullest first.
    pub(crate) top: Vec<LaneStatus>,
    /// Not all waiting jobs were scanned.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) cut: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LaneStatus {
    /// `null`: its jobs are in no lane.
    pub(crate) lane: Option<String>,
    pub(crate) waiting: u64,
    /// Known only while a run is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) running: Option<u64>,
    pub(crate) pending: u64,
    pub(crate) delayed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) oldest: Option<Oldest>,
}

impl ProbeStatus {
    /// `None` if the probe is healthy.
    pub(crate) fn of(answering: &ProbeHealth, name: Option<String>) -> Option<Self> {
        let trouble = answering.trouble();
        let (failing_since, why) = trouble.map(|(since, why)| (rfc3339(since), why.to_owned())).unzip();
        let asked_since = answering.asked().map(rfc3339);
        (asked_since.is_some() || failing_since.is_some()).then_some(Self {
            name,
            asked_since,
            failing_since,
            why,
        })
    }
}

impl StepStatus {
    pub(crate) fn new(step: &Address, input: &Address, watermark: u64, progress: &Progress) -> Self {
        Self {
            step: step.to_string(),
            input: input.to_string(),
            watermark,
            waiting: None,
            read: None,
            running: None,
            pending: 0,
            valid: 0,
            delayed: 0,
            unmatched: 0,
            full: false,
            begun: 0,
            errors: 0,
            dropped: 0,
            oldest: None,
            rate: None,
            joins: false,
            by_key: false,
            closed: None,
            gate: None,
            monitor: None,
            paused: None,
            monitor_paused: None,
            held_lanes: Vec::new(),
            more_held_lanes: 0,
            held_behind: None,
            retry: None,
            halted: None,
            configured: true,
            counters: progress.counters,
            lanes: None,
        }
    }

    /// The step has jobs in any state.
    pub(crate) fn has_jobs(&self) -> bool {
        self.jobs_waiting() + self.delayed + self.unmatched + self.pending + self.begun > 0
    }

    /// More jobs may exist: the step is held, and it reads a source.
    pub(crate) fn may_have_jobs(&self) -> bool {
        let is_held = self.paused.is_some() || self.closed.is_some() || !self.held_lanes.is_empty();
        is_held && self.waiting.is_none()
    }

    /// Jobs that are known to wait for their turn.
    pub(crate) fn jobs_waiting(&self) -> u64 {
        self.waiting.unwrap_or(0) + self.read.unwrap_or(0)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde passes it")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
