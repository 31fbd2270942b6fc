//! Obstacles: sources, sinks and names that a new generation could not have. Then it does not take over.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::mem::discriminant;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Access, access};

use super::current::NumberedGeneration;
use super::renames;
use crate::commit::sinks::{self, SinkStart};
use crate::error::Chain;
use crate::recovery::source_kinds;
use tidegate_components::job_log::JobLog;
use tidegate_components::sink::{SinkError, SinkWriter};
use tidegate_config::{Configuration, FileSink, OnMismatch, Sink, SinkKind, Source, shown};
use tidegate_model::{Address, NamedKind, Parts, RenamedPart, SinkPosition};
use tidegate_store::{ReadError, Store};

/// How often the lock of a file is tried that a process has which is not known.
const LOCK_ATTEMPTS: usize = 3;

/// A source, sink or queue that keeps a generation from taking over, with the reason.
pub(crate) type Obstacle = (Address, String);

/// New and changed sources and sinks that cannot be opened, and queues that cannot have their new names. `between`: for a
/// rollback, the configurations that ran between this one and the current one.
///
/// The files of sinks are locked, and lines behind their positions are cut off.
pub(crate) fn find(
    next: &Configuration,
    before: &NumberedGeneration,
    between: Option<&[Arc<Configuration>]>,
    store: &Store,
) -> Result<Vec<Obstacle>, ReadError> {
    let (mut found, renamed) = foreseen(next, &before.configuration, between, store)?;
    for (sink, _) in changed(next, &before.configuration) {
        if found.iter().all(|(address, _)| *address != sink.address)
            && !is_in_use(sink, &before.configuration)
        {
            let is_its = |part: &&RenamedPart| part.kind == NamedKind::Endpoint && part.to == sink.address;
            let name = renamed.iter().find(is_its).map_or(&sink.address, |part| &part.from);
            let why = match sinks::start_under(name, store, sink)? {
                SinkStart::At(position) => cannot_open(sink, position.as_ref()),
                SinkStart::Behind(position) => cannot_open(sink, Some(&position)),
                SinkStart::BehindOther(error) => Some(Chain(&error).to_string()),
            };
            found.extend(why.map(|why| (sink.address.clone(), why)));
        }
    }
    Ok(found)
}

/// As [`find`], but changes no file. A file that is not as its sink left it is not found.
pub(crate) fn foresee(
    next: &Configuration,
    before: &Configuration,
    between: Option<&[Arc<Configuration>]>,
    store: &Store,
) -> Result<Vec<Obstacle>, ReadError> {
    Ok(foreseen(next, before, between, store)?.0)
}

/// As [`foresee`], with the renames that the generation carries out.
fn foreseen(
    next: &Configuration,
    before: &Configuration,
    between: Option<&[Arc<Configuration>]>,
    store: &Store,
) -> Result<(Vec<Obstacle>, Vec<RenamedPart>), ReadError> {
    let mut found = Vec::new();
    for source in &next.sources {
        let same = before.sources.iter().find(|old| old.address == source.address);
        if same.is_some_and(|old| old.kind == source.kind) {
            continue;
        }
        let opened = JobLog::open(&source.address, &source.kind, store.segments(&source.address)?);
        found.extend(opened.err().map(|error| (source.address.clone(), Chain(&error).to_string())));
    }
    let (_, renamed) = renames::of_takeover(next, before, between, store)?;
    found.extend(source_kinds::changed(next, before, &renamed, store)?);
    let counted = source_kinds::changed_framings(next, Some(before), &renamed, store)?;
    found.extend(counted.into_iter().map(|changed| (changed.source_name.clone(), changed.why())));
    for source in next.sources.iter().filter(|source| is_new(source, before)) {
        let why = source_kinds::why_not(source, &store.segments(&source.address)?, store)?;
        found.extend(why.map(|why| (source.address.clone(), why)));
    }
    if let Some(repeated) = renames::repeated(&renamed, store)? {
        found.push((repeated.to.clone(), repeated.to_string()));
    }
    let changed = changed(next, before);
    if changed.is_empty() {
        return Ok((found, renamed));
    }
    let others: Vec<(&Sink, &FileSink, PathBuf)> =
        files(&next.sinks).map(|(sink, file)| (sink, file, real_path(&file.path))).collect();
    let writers: BTreeMap<PathBuf, (&Sink, &FileSink)> =
        files(&before.sinks).map(|(sink, file)| (real_path(&file.path), (sink, file))).collect();
    for (sink, file) in changed {
        let path = real_path(&file.path);
        let why = if let Some((other, _, _)) =
            others.iter().find(|(other, _, at)| other.address != sink.address && *at == path)
        {
            Some(format!(
                "sink `{}` writes the same file by another path: name one sink in both",
                other.address
            ))
        } else if let Some((writer, its)) = writers.get(&path).filter(|_| is_regular(&path)) {
            let has_from = next.steps.iter().any(|step| step.address == sink.address);
            taken((sink, file), (writer, its), &renamed, has_from)
        } else {
            cannot_create(&file.path)
        };
        found.extend(why.map(|why| (sink.address.clone(), why)));
    }
    Ok((found, renamed))
}

/// Whether the current generation has no source of its kind with its name.
fn is_new(source: &Source, before: &Configuration) -> bool {
    let same = before.sources.iter().find(|old| old.address == source.address);
    same.is_none_or(|old| discriminant(&old.kind) != discriminant(&source.kind))
        && !before.queues.iter().any(|queue| queue.address == source.address)
}

/// Sinks whose file they do not write in the current generation.
fn changed<'n>(next: &'n Configuration, before: &Configuration) -> Vec<(&'n Sink, &'n FileSink)> {
    files(&next.sinks).filter(|(sink, file)| !is_written(before, sink, file)).collect()
}

/// Whether another sink of the current generation has the file of this one locked.
fn is_in_use(sink: &Sink, before: &Configuration) -> bool {
    let SinkKind::File(file) = &sink.kind else { return false };
    let path = real_path(&file.path);
    is_regular(&path) && files(&before.sinks).any(|(_, its)| real_path(&its.path) == path)
}

/// Reason for which the file of a sink cannot be opened and locked.
fn cannot_open(sink: &Sink, position: Option<&SinkPosition>) -> Option<String> {
    let mut attempts = LOCK_ATTEMPTS;
    loop {
        let error = SinkWriter::open(&sink.address, &sink.kind, position).err()?;
        if let SinkError::Locked { holder, .. } = &error {
            attempts -= 1;
            match holder.pid {
                // A step of an earlier generation that delivers its last jobs. The new step waits for it.
                Some(pid) if pid == std::process::id() => return None,
                // It may have been released since.
                None if attempts > 0 => continue,
                _ => {}
            }
        }
        return Some(Chain(&error).to_string());
    }
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

/// Reason for which a sink cannot have the file that another sink of the current generation writes. The writer may
/// still add lines after this check, so its present content does not matter. `has_from`: the sink reads a queue or a
/// source itself.
fn taken(
    (sink, file): (&Sink, &FileSink),
    (writer, its): (&Sink, &FileSink),
    renamed: &[RenamedPart],
    has_from: bool,
) -> Option<String> {
    let is_renamed = |part: &RenamedPart| {
        part.kind == NamedKind::Endpoint && part.from == writer.address && part.to == sink.address
    };
    if writer.address == sink.address || renamed.iter().any(is_renamed) {
        return None;
    }
    let (path, writer) = (shown(&file.path), &writer.address);
    // The steps of a sink wait for those of another one by the path as it is written.
    match file.on_mismatch {
        OnMismatch::Append if file.path == its.path => None,
        OnMismatch::Append => {
            Some(format!("sink `{writer}` writes the same file as `{}`: use this path", shown(&its.path)))
        }
        OnMismatch::Refuse => {
            let newest = ", and with `begin_at = \"newest\"` if its jobs are not to be written again";
            Some(format!(
                "`{path}` has the lines of sink `{writer}`, which is in force; write to another path, or continue \
                 behind these lines with `on_mismatch = \"append\"`{}",
                if has_from { newest } else { "" }
            ))
        }
    }
}

fn files(sinks: &Parts<Sink>) -> impl Iterator<Item = (&Sink, &FileSink)> {
    sinks.iter().filter_map(|sink| match &sink.kind {
        SinkKind::File(file) => Some((sink, file)),
        SinkKind::Stdout(_) | SinkKind::Http(_) | SinkKind::Null => None,
    })
}

/// Whether the sink writes this file already: the file is the subject of the handover then.
fn is_written(before: &Configuration, sink: &Sink, file: &FileSink) -> bool {
    files(&before.sinks).any(|(old, its)| old.address == sink.address && its.path == file.path)
}

/// The path without links. Parts that are missing stay as they are.
fn real_path(path: &Path) -> PathBuf {
    let mut missing: Vec<OsString> = Vec::new();
    for above in path.ancestors() {
        if let Ok(real) = fs::canonicalize(above) {
            return missing.iter().rev().fold(real, |path, name| path.join(name));
        }
        missing.extend(above.file_name().map(ToOwned::to_owned));
    }
    path.to_owned()
}

/// Whether lines can be compared with a position. A missing file will be a regular one.
fn is_regular(path: &Path) -> bool {
    fs::metadata(path).map_or(true, |metadata| metadata.is_file())
}
