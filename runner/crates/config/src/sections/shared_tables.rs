//! Shared tables: `[retry.NAME]`, `[queuer.NAME]` and `[gate.NAME]`, of a pipeline or in tidegate.toml for
//! all.

use super::probe;
use super::queuer;
use super::retry;
use crate::diagnostic::files::Files;
use crate::model::{ProbeConfig, Queuer};
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
        }
    }
}
