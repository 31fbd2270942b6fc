//! The committer: makes deliveries durable, with everything that shares its transactions.

pub(crate) mod committed_state;
pub(crate) mod committer;
pub(crate) mod inbox;
pub(crate) mod ingest;
pub(crate) mod queue_cache;
pub(crate) mod request;
pub(crate) mod sinks;
