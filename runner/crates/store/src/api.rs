//! Interface of the store: holds its types that do not depend on the database.

pub(crate) mod appended;
pub(crate) mod completion;
pub(crate) mod delivery;
pub(crate) mod finished_result;
pub(crate) mod late_job;
pub(crate) mod parked_job;
