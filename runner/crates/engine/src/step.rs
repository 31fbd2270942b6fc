//! Step state: tracks the batches in flight, the waiting jobs and the counts of one step for the coordinator.

pub(crate) mod claims;
pub(crate) mod counts;
pub(crate) mod declared;
pub(crate) mod held_lanes;
pub(crate) mod in_flight;
pub(crate) mod job_attributes;
pub(crate) mod job_buffer;
pub(crate) mod pending_jobs;
pub(crate) mod pending_limits;
pub(crate) mod probe_health;
pub(crate) mod queue_view;
pub(crate) mod row_index;
pub(crate) mod source_health;
pub(crate) mod state;
pub(crate) mod stats;
pub(crate) mod throughput;
pub(crate) mod turn;
