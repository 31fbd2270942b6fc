//! Recovery: computes the state in which a run starts, from the store and the configuration.

pub(crate) mod claims;
pub(crate) mod clock_set_back;
pub(crate) mod last_run;
pub(crate) mod open;
pub(crate) mod rewind;
pub(crate) mod snapshots;
pub(crate) mod source_kinds;
pub(crate) mod sources;
pub(crate) mod start;
pub(crate) mod start_position;
pub(crate) mod step;
