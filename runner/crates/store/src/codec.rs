//! Codecs: records as bytes. No module here knows the database.

pub(crate) mod block;
pub(crate) mod bytes;
pub(crate) mod delivered_record;
pub(crate) mod delivery_times;
pub(crate) mod job_metadata;
pub(crate) mod log_record;
pub(crate) mod old_parked_record;
pub(crate) mod parked_record;
