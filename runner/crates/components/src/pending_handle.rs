//! Handles: identify pending jobs in external systems.

pub(crate) use tidegate_plugin::host::fault_of_handle as fault;
