//! Checks of the whole configuration: names, graph, order, and conflicts between its parts.

pub(crate) mod catalog;
pub(crate) mod file_conflicts;
pub(crate) mod former_names;
pub(crate) mod graph;
pub(crate) mod joins;
pub(crate) mod lookups;
pub(crate) mod on_disk;
pub(crate) mod order;
pub(crate) mod push_sources;
pub(crate) mod resolve;
pub(crate) mod shared;
pub(crate) mod table_queues;
pub(crate) mod test_names;
