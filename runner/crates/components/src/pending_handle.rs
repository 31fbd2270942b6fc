//! Handles, by which outside systems know pending jobs.

pub(crate) use tidegate_plugin::host::fault_of_handle as fault;
