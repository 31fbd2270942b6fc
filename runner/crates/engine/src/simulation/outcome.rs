//! Outcome: lists the perils of a run, and its possible ends.

use std::collections::BTreeSet;

use tidegate_dispatch::RunOutcome;
use tidegate_model::Address;

/// End of a run without a crash.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) end: RunOutcome,
    /// Steps that have stopped, by their present names.
    pub(crate) halted: BTreeSet<Address>,
    /// Whether there were requests, which may have been granted just before the end.
    pub(crate) asked: bool,
}

/// The process died.
#[derive(Debug)]
pub(crate) struct Crash;

/// Perils of a run besides disk failures.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Perils {
    /// Number of moves after which it dies.
    pub(crate) dies_after: Option<u64>,
    /// Number of moves after which it is stopped.
    pub(crate) stops_after: Option<u64>,
    /// Number of moves after which all external systems answer, so that it must drain.
    pub(crate) calms_after: Option<u64>,
    /// Disk operation that fails, counted from the swap of the only reload on. The run dies when all steps have followed.
    pub(crate) reload_fails_from: Option<u64>,
    /// Number of requests to it.
    pub(crate) requests: usize,
}
