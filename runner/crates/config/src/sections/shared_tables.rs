//! Shared tables: `[retry.NAME]`, `[queuer.NAME]`, `[gate.NAME]` and `[table.NAME]`, of a pipeline or in
//! tidegate.toml for all.

use std::sync::Arc;

use super::lookup_table;
use super::probe;
use super::queuer;
use super::retry;
use crate::diagnostic::files::Files;
use crate::model::{LookupTable, ProbeConfig, Queuer};
use crate::parse::context::ParseContext;
use crate::parse::named_table::NamedTables;
use crate::parse::table::TableReader;
use tidegate_model::RetryPolicy;

/// The named tables of one file.
#[derive(Debug, Default)]
pub(crate) struct SharedTables {
    pub(crate) retries: NamedTables<RetryPolicy>,
    pub(crate) queuers: NamedTables<Queuer>,
    pub(crate) gates: NamedTables<ProbeConfig>,
    pub(crate) tables: NamedTables<Arc<LookupTable>>,
}

impl SharedTables {
    /// Parses all named tables of the file of `root`.
    pub(crate) fn read(reading: &mut ParseContext<'_>, files: &mut Files, root: &TableReader<'_>) -> Self {
        Self {
            retries: NamedTables::read(reading, root, "retry", retry::read),
            queuers: NamedTables::read(reading, root, "queuer", queuer::read),
            gates: NamedTables::read(reading, root, "gate", |reading, title, value| {
                probe::gate(reading, files, title, value)
            }),
            tables: NamedTables::read(reading, root, "table", |reading, title, value| {
                lookup_table::read(reading, files, title, value)
            }),
        }
    }
}
