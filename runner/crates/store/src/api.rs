//! Types of the store's interface that know no database.

pub(crate) mod completion;
pub(crate) mod parked_job;
