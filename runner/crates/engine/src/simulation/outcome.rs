//! What may befall a run, and how it ends.

use tidegate_dispatch::End;
use tidegate_model::Address;

/// How a run ended, if it was no crash.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) end: End,
    pub(crate) halted: Vec<Address>,
    /// Something was asked of it, which may have been granted when it was about to end.
    pub(crate) asked: bool,
}

/// The process has died.
#[derive(Debug)]
pub(crate) struct Crash;

/// What may befall a run besides failures of the disk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Perils {
    /// It dies after so many moves.
    pub(crate) dies_after: Option<u64>,
    /// Somebody asks it to stop after so many.
    pub(crate) stops_after: Option<u64>,
    /// Everything outside behaves after so many, so that it has to drain.
    pub(crate) calms_after: Option<u64>,
    /// Somebody asks something of it so many times.
    pub(crate) requests: usize,
}
