//! Batch: runs on a worker, from its input over attempts and failures to its result.

pub(crate) mod budget;
pub(crate) mod crash_guard;
pub(crate) mod error_record;
pub(crate) mod events;
pub(crate) mod input;
pub(crate) mod job_builder;
pub(crate) mod join_keys;
pub(crate) mod keyed_job;
pub(crate) mod outcomes;
pub(crate) mod provenance;
pub(crate) mod reason;
pub(crate) mod result;
pub(crate) mod retry;
pub(crate) mod runner;
