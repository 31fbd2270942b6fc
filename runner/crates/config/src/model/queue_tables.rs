//! `queue_tables`: finds the lookup tables of a configuration whose rows are in queues.

use super::{Configuration, GateRef, QueueTable, Step};
use tidegate_model::Name;

impl Configuration {
    /// The tables of queues that scripts of any step may read, by name. Equal ones may occur more than once.
    pub fn queue_tables(&self) -> impl Iterator<Item = (&Name, &QueueTable)> {
        self.steps.iter().flat_map(|step| self.tables_of(step))
    }

    /// The tables of queues that the scripts of a step, its gate and its monitor may read.
    pub fn tables_of<'c>(&'c self, step: &'c Step) -> impl Iterator<Item = (&'c Name, &'c QueueTable)> {
        let monitor = step.monitor.iter().map(|monitor| &monitor.inquiry.tables);
        let gate = step.gate.and_then(|GateRef(gate)| self.gates.get(gate));
        let gate = gate.into_iter().map(|gate| &gate.inquiry.tables);
        let tables = std::iter::once(&step.tables).chain(monitor).chain(gate);
        tables.flatten().filter_map(|(name, table)| Some((name, table.as_queue()?)))
    }
}
