//! Status of lookup tables whose rows are in queues: reports their rows in a run.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use tidegate_config::Configuration;
use tidegate_engine::Handle;

/// A lookup table of a queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TableStatus {
    pub(crate) table: String,
    pub(crate) queue: String,
    pub(crate) key: String,
    /// The steps whose scripts, gates or monitors read it.
    pub(crate) steps: Vec<String>,
    /// `null` without a runner.
    pub(crate) rows: Option<u64>,
    /// Estimated bytes of the rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
    pub(crate) max_size: u64,
    /// Number of jobs that are no rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ignored: Option<u64>,
    /// Whether it exceeds `max_size`, so that attempts that read it fail.
    #[serde(default)]
    pub(crate) full: bool,
}

/// The tables of a configuration, each once.
pub(crate) fn all(configuration: &Configuration, run: Option<&Handle>) -> Vec<TableStatus> {
    let mut tables: Vec<TableStatus> = Vec::new();
    for step in &configuration.steps {
        let mut seen = BTreeSet::new();
        for (name, table) in configuration.tables_of(step) {
            let (name, queue, key) = (name.to_string(), table.queue.to_string(), table.key.to_string());
            if !seen.insert((name.clone(), queue.clone())) {
                continue;
            }
            let is_it = |other: &&mut TableStatus| {
                (&other.table, &other.queue, &other.key) == (&name, &queue, &key)
                    && other.max_size == table.max_size
            };
            if let Some(listed) = tables.iter_mut().find(is_it) {
                listed.steps.push(step.address.to_string());
                continue;
            }
            let counts = run.and_then(|run| run.table_counts(table));
            tables.push(TableStatus {
                table: name,
                queue,
                key,
                steps: vec![step.address.to_string()],
                rows: counts.map(|counts| counts.rows),
                bytes: counts.map(|counts| counts.bytes),
                max_size: table.max_size,
                ignored: counts.map(|counts| counts.ignored),
                full: counts.is_some_and(|counts| counts.is_full),
            });
        }
    }
    tables.sort_by(|one, other| (&one.table, &one.queue).cmp(&(&other.table, &other.queue)));
    tables
}
