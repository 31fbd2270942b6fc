//! Commit: makes deliveries durable, together with all changes that share their transactions.

pub(crate) mod committed_state;
pub(crate) mod committer;
pub(crate) mod inbox;
pub(crate) mod ingest;
pub(crate) mod printed;
pub(crate) mod queue_cache;
pub(crate) mod queue_tables;
pub(crate) mod request;
pub(crate) mod sinks;
pub(crate) mod step_events;
pub(crate) mod tuples;
pub(crate) mod unmatched_jobs;
