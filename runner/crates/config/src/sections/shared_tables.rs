//! `[retry.NAME]`, `[queuer.NAME]` and `[gate.NAME]`, of a pipeline or in tidegate.toml for all.

use super::probe;
use super::queuer;
use super::retry;
use crate::diagnostic::files::Files;
use crate::model::{Inquiry, Queuer};
use crate::parse::context::Reading;
use crate::parse::named_table::Shelf;
use crate::parse::table::Section;
use tidegate_model::RetryPolicy;

/// What one file offers to steps.
#[derive(Debug, Default)]
pub(crate) struct Shelves {
    pub(crate) retries: Shelf<RetryPolicy>,
    pub(crate) queuers: Shelf<Queuer>,
    pub(crate) gates: Shelf<Inquiry>,
}

impl Shelves {
    /// Everything that the file of `root` offers.
    pub(crate) fn read(reading: &mut Reading<'_>, files: &mut Files, root: &Section<'_>) -> Self {
        Self {
            retries: Shelf::read(reading, root, "retry", retry::read),
            queuers: Shelf::read(reading, root, "queuer", queuer::read),
            gates: Shelf::read(reading, root, "gate", |reading, title, value| {
                probe::gate(reading, files, title, value)
            }),
        }
    }
}
