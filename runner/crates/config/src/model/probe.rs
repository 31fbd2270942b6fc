//! What a step asks beside its jobs: whether it may start any, and what became of those outside.

use std::sync::Arc;
use std::time::Duration;

use super::Processor;
use tidegate_model::{Name, Secret};

/// A position in [`Configuration::gates`](super::Configuration::gates).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GateRef(pub usize);

/// `[gate.NAME]`: holds steps back while it is closed.
#[derive(Clone, Debug)]
pub struct Gate {
    pub name: Name,
    /// Where it is declared; `None`: in tidegate.toml, for all pipelines.
    pub pipeline: Option<Name>,
    /// The last one answers whether it is open.
    pub inquiry: ProbeConfig,
}

/// `monitor = { … }` of a step: asks what became of its pending jobs.
#[derive(Clone, Debug)]
pub struct Monitor {
    /// The last one answers with the status of each job.
    pub inquiry: ProbeConfig,
    /// About so many jobs it asks at once.
    pub batch: usize,
}

/// Processors that are run every so often, without a job.
#[derive(Clone, Debug)]
pub struct ProbeConfig {
    /// One after the other, in memory; at least one.
    pub run: Vec<Processor>,
    pub every: Duration,
    /// Longest run.
    pub timeout: Duration,
    /// Seen as `ctx.config`.
    pub config: Arc<serde_json::Value>,
    /// What of it must not be shown.
    pub secrets: Vec<Secret>,
}
