//! Queues of lookup tables: they must keep all their jobs, since each start builds the tables from them.

use std::sync::Arc;

use super::resolve::{End, Wiring, short};
use crate::diagnostic::Diagnostic;
use crate::model::Retain;
use crate::sections::pipeline::PipelineDeclaration;

/// An error for each queue of a table that deletes jobs. Defaults do not apply to these queues.
pub(crate) fn check(pipelines: &[Arc<PipelineDeclaration>], wiring: &Wiring<'_>) -> Vec<Diagnostic> {
    wiring.tables.iter().filter_map(|table| deletes(table, pipelines, wiring)).collect()
}

fn deletes(table: &End, pipelines: &[Arc<PipelineDeclaration>], wiring: &Wiring<'_>) -> Option<Diagnostic> {
    let home = pipelines.iter().find(|pipeline| pipeline.file == table.place.file);
    let home = home.map_or(&table.address.pipeline, |pipeline| &pipeline.name);
    let name = if wiring.is_secret(&table.address) {
        "named here".to_owned()
    } else {
        format!("`{}`", short(&table.address, home))
    };
    let errors = wiring.steps.iter().filter_map(|wired| wired.errors.as_ref());
    if let Some(errors) = errors.chain(wiring.error_queues.values()).find(|end| end.address == table.address)
    {
        let message =
            format!("the queue {name} of the table has errors, which are deleted when they are retried");
        let help = "pass the errors on to another queue by a step, and name that queue";
        let diagnostic = Diagnostic::error_at(&table.place, message).help(help);
        return Some(diagnostic.related(errors.place.clone(), "the errors"));
    }
    let own = pipelines.iter().filter(|pipeline| pipeline.name == table.address.pipeline);
    let mut queues = own.flat_map(|pipeline| &pipeline.queues);
    let queue = queues.find(|queue| queue.name.value == table.address.name)?;
    let by = match (queue.settings.retain, queue.settings.max_size) {
        (Some(Retain::Consumed | Retain::For(_)), _) => "`retain`",
        (_, Some(_)) => "`max_size`",
        (None | Some(Retain::Forever), None) => return None,
    };
    let message = format!("the queue {name} of the table deletes jobs by its {by}");
    let help = format!("leave {by} out: a table needs the newest job of each key, so its queue keeps all");
    let diagnostic = Diagnostic::error_at(&table.place, message).help(help);
    Some(diagnostic.related(queue.name.place.clone(), "declared here"))
}
