//! Shared tables: `[retry.NAME]`, `[queuer.NAME]`, `[gate.NAME]` and `[table.NAME]`, of a pipeline or in
//! tidegate.toml for all.

use super::lookup_table;
use super::lookup_table::TableDeclaration;
use super::probe;
use super::queuer;
use super::retry;
use crate::diagnostic::Diagnostic;
use crate::model::{ProbeConfig, Queuer};
use crate::parse::context::ParseContext;
use crate::parse::named_table::NamedTables;
use crate::parse::table::TableReader;
use crate::parse::text_reader::TextReader;
use tidegate_model::RetryPolicy;

/// The named tables of one file.
#[derive(Debug, Default)]
pub(crate) struct SharedTables {
    pub(crate) retries: NamedTables<RetryPolicy>,
    pub(crate) queuers: NamedTables<Queuer>,
    pub(crate) gates: NamedTables<ProbeConfig>,
    pub(crate) tables: NamedTables<TableDeclaration>,
}

impl SharedTables {
    /// Parses all named tables of the file of `root`.
    pub(crate) fn read(
        reading: &mut ParseContext<'_>,
        files: &mut TextReader,
        root: &TableReader<'_>,
    ) -> Self {
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

/// Tables for all pipelines belong to none, so the name of a queue needs its pipeline.
pub(crate) fn refuse_local_queues(reading: &mut ParseContext<'_>, shared: &SharedTables) {
    for entry in shared.tables.entries() {
        let queue = entry.value.as_ref().and_then(TableDeclaration::queue);
        if let Some(queue) = queue.filter(|queue| queue.pipeline().is_none()) {
            let name = if queue.secret { "NAME".to_owned() } else { queue.name.to_string() };
            let message = "the `queue` of a table for all pipelines must name its pipeline";
            let help = format!("write `queue = \"PIPELINE/{name}\"`");
            reading.report(Diagnostic::error_at(&queue.place, message).help(help));
        }
    }
}
