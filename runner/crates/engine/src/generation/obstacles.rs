//! Obstacles: sources and sinks of a new generation that could not be opened. Then it does not take over.

use std::collections::BTreeSet;
use std::path::Path;

use rustix::fs::{Access, access};

use super::current::NumberedGeneration;
use crate::commit::sinks;
use crate::error::Chain;
use tidegate_components::sink::SinkWriter;
use tidegate_components::source::SourceLog;
use tidegate_config::{Configuration, Sink, SinkKind, SourceKind};
use tidegate_model::Address;
use tidegate_store::{ReadError, Store};

/// New and changed sources and sinks that cannot be opened, with the reasons.
pub(crate) fn find(
    next: &Configuration,
    before: &NumberedGeneration,
    store: &Store,
) -> Result<Vec<(Address, String)>, ReadError> {
    let mut found = Vec::new();
    for source in &next.sources {
        let same = before.configuration.sources.iter().find(|old| old.address == source.address);
        if same.is_some_and(|old| old.kind == source.kind) {
            continue;
        }
        let SourceKind::File(file) = &source.kind;
        let opened = SourceLog::open(&source.address, file, store.segments(&source.address)?);
        found.extend(opened.err().map(|error| (source.address.clone(), Chain(&error).to_string())));
    }
    // A file that a sink writes now is the subject of the handover.
    let path = |sink: &Sink| match &sink.kind {
        SinkKind::File(file) => Some(file.path.clone()),
        SinkKind::Stdout(_) | SinkKind::Http(_) | SinkKind::Null => None,
    };
    let written: BTreeSet<_> = before.configuration.sinks.iter().filter_map(path).collect();
    for sink in &next.sinks {
        let Some(path) = path(sink).filter(|path| !written.contains(path)) else { continue };
        let position = sinks::position(store, sink)?;
        let opened = SinkWriter::open(&sink.address, &sink.kind, position.as_ref());
        let why = opened.err().map(|error| Chain(&error).to_string()).or_else(|| cannot_create(&path));
        found.extend(why.map(|why| (sink.address.clone(), why)));
    }
    Ok(found)
}

/// Reason for which a missing file cannot be created.
fn cannot_create(path: &Path) -> Option<String> {
    let above = path.ancestors().skip(1).find(|above| above.exists()).filter(|_| !path.exists())?;
    if !above.is_dir() {
        return Some(format!("`{}` is not a folder", above.display()));
    }
    let error = access(above, Access::WRITE_OK).err()?;
    Some(format!("files cannot be created in `{}`: {error}", above.display()))
}
