//! Open sources: the pull sources that steps read now. All steps that read a source share what is known of its
//! files.

use std::collections::HashMap;

use super::source_kinds;
use crate::commit::committed_state::CommittedState;
use crate::error::{Chain, EngineError};
use tidegate_components::job_log::JobLog;
use tidegate_config::{Source, SourceKind};
use tidegate_store::Store;

/// Sources by position.
#[derive(Debug, Default)]
pub(crate) struct OpenSources(HashMap<usize, OpenSource>);

#[derive(Debug)]
struct OpenSource {
    kind: SourceKind,
    log: JobLog,
}

impl OpenSources {
    /// Opens a source, unless it is open with the same settings.
    ///
    /// # Errors
    /// The store cannot be read. A source that cannot be opened is a reason in the result.
    pub(crate) fn open(
        &mut self,
        position: usize,
        source: &Source,
        store: &Store,
        committed: &mut CommittedState,
    ) -> Result<Result<&JobLog, String>, EngineError> {
        if self.0.get(&position).is_none_or(|open| open.kind != source.kind) {
            self.0.remove(&position);
            let segments = store.segments(&source.address)?;
            if let Some(why) = source_kinds::why_not(source, &segments, store)? {
                return Ok(Err(format!("source `{}`: {why}", source.address)));
            }
            committed.note_source(position, segments.last(), store.mark(&source.address, u64::MAX)?);
            let log = match JobLog::open(&source.address, &source.kind, segments) {
                Ok(log) => log,
                Err(error) => return Ok(Err(Chain(&error).to_string())),
            };
            // The jobs of a queue that had this name have indices, too.
            if let Some(queue) = store.queue(&source.address)? {
                log.join(queue.head + 1);
            }
            // No index that any step has taken may change its meaning, also if that step is not in the
            // configuration now.
            for (_, input, progress) in store.all_progress()? {
                if input == source.address && !progress.is_untouched() {
                    log.join(progress.position() + 1);
                }
            }
            self.0.insert(position, OpenSource { kind: source.kind.clone(), log });
        }
        Ok(Ok(&self.0[&position].log))
    }

    /// Closes the sources that no step reads.
    pub(crate) fn keep(&mut self, is_read: impl Fn(usize) -> bool) {
        self.0.retain(|&position, _| is_read(position));
    }
}
