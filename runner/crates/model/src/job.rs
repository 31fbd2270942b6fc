//! Values of jobs: batches, positions, delivery hashes, origins, progress and completion tokens.

pub(crate) mod batch;
pub(crate) mod completion_token;
pub(crate) mod delivery_hash;
pub(crate) mod origin;
pub(crate) mod progress;
pub(crate) mod sink_position;
pub(crate) mod source_position;
