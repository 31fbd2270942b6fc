//! `ProbeConfig`: the processors of a gate or a monitor, which run without a job.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::{LookupTables, Processor};
use tidegate_model::{Name, Secret};

/// A position in [`Configuration::gates`](super::Configuration::gates).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GateRef(pub usize);

/// `[gate.NAME]`: holds the jobs of its steps while it is closed.
#[derive(Clone, Debug)]
pub struct Gate {
    pub name: Name,
    /// The pipeline that declares it; `None`: tidegate.toml, for all pipelines.
    pub pipeline: Option<Name>,
    /// The last processor returns whether it is open.
    pub inquiry: ProbeConfig,
}

/// `monitor = { … }` of a step: polls the status of its pending jobs.
#[derive(Clone, Debug)]
pub struct Monitor {
    /// The last processor returns the status of each job.
    pub inquiry: ProbeConfig,
    /// Approximate number of jobs per request.
    pub batch: usize,
    pub batch_by: BatchBy,
    /// Maximum number of open requests.
    pub concurrency: usize,
    pub limits: MonitorLimits,
}

/// Limits of the jobs that a monitor asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MonitorLimits {
    /// Maximum time for which a job is pending.
    pub ttl: Option<Duration>,
    /// Maximum number of checks of a job in one run.
    pub max_checks: Option<NonZeroU32>,
    /// A job at a limit is submitted again, in place of being set aside.
    pub resubmits: bool,
}

/// The jobs that one request of a monitor may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchBy {
    /// Jobs of any lanes.
    Any,
    /// Jobs of one lane, which has at most one open request.
    Lane,
}

/// Processors that run at an interval, without a job.
#[derive(Clone, Debug)]
pub struct ProbeConfig {
    /// One after the other, in memory; at least one.
    pub run: Vec<Processor>,
    pub every: Duration,
    /// Maximum time of a run.
    pub timeout: Duration,
    /// Available as `ctx.config`, with the values of the pipeline and the runner under its own.
    pub config: Arc<serde_json::Value>,
    /// The parts that must not be shown.
    pub secrets: Vec<Secret>,
    /// The keys of `config` that are the pipeline's or the runner's.
    pub shared: Vec<String>,
    /// The tables that its scripts may read.
    pub tables: LookupTables,
}
