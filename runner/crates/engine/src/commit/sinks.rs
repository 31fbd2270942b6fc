//! Sinks: open the sinks of steps, write their outputs, and reject deliveries to broken sinks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use super::request::{Delivery, StepChange};
use crate::error::{Chain, EngineError};
use tidegate_components::sink::{SinkError, SinkWriter, holds, stored_path};
use tidegate_config::{OnMismatch, Sink, SinkKind, SinkRef, Step, Target};
use tidegate_model::{Address, NamedKind, RenamedPart, SinkPosition};
use tidegate_store::{ReadError, Store};

/// Positions of sinks, with their addresses.
pub(crate) type Positions = Vec<(SinkRef, Address, SinkPosition)>;

/// Failed sink, with the error.
pub(crate) type FailedSink = (SinkRef, SinkError);

/// Opens the writer of a sink at its last position.
pub(crate) type OpenSink =
    Box<dyn Fn(&Address, &SinkKind, Option<&SinkPosition>) -> Result<SinkWriter, SinkError> + Send>;

pub(crate) struct Sinks {
    open_sink: OpenSink,
    /// Sinks that steps deliver to.
    open: HashMap<SinkRef, OpenedSink>,
    /// Sinks with writes since the last commit.
    dirty: BTreeSet<SinkRef>,
    /// Sinks that accept no more writes until they are opened anew, with the errors.
    broken: BTreeMap<SinkRef, Arc<SinkError>>,
}

#[derive(Debug)]
struct OpenedSink {
    settings: Sink,
    writer: SinkWriter,
}

impl Default for Sinks {
    fn default() -> Self {
        Self::opened_with(Box::new(SinkWriter::open))
    }
}

impl fmt::Debug for Sinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { open_sink: _, open, dirty, broken } = self;
        f.debug_struct("Sinks")
            .field("open", open)
            .field("dirty", dirty)
            .field("broken", broken)
            .finish_non_exhaustive()
    }
}

impl Sinks {
    pub(crate) fn opened_with(open_sink: OpenSink) -> Self {
        Self { open_sink, open: HashMap::new(), dirty: BTreeSet::new(), broken: BTreeMap::new() }
    }

    /// Opens a sink for a step, unless it is open with the same settings. The result is the reason for which it
    /// cannot be opened. The sink has no writes that are not committed.
    ///
    /// `left`: gets the positions in files that are closed for it. They mark these files as complete.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(crate) fn prepare(
        &mut self,
        sink: SinkRef,
        settings: &Sink,
        store: &Store,
        left: &mut Positions,
    ) -> Result<Result<(), String>, EngineError> {
        let is_same = |open: &OpenedSink| open.settings.kind.writes_like(&settings.kind);
        if self.open.get(&sink).is_some_and(is_same) && !self.broken.contains_key(&sink) {
            return Ok(Ok(()));
        }
        // Another sink has left the file: its steps have delivered everything.
        let is_same_file = |open: &OpenedSink| match (&open.settings.kind, &settings.kind) {
            (SinkKind::File(open), SinkKind::File(file)) => open.path == file.path,
            _ => false,
        };
        // Its own file may have lines that are not committed, and so may one that could not be rolled back.
        let is_left = |(at, open): &(&SinkRef, &OpenedSink)| {
            is_same_file(open) != (**at == sink) && !self.broken.contains_key(*at)
        };
        let others: Vec<SinkRef> = self.open.iter().filter(is_left).map(|(&at, _)| at).collect();
        left.extend(others.iter().filter_map(|at| self.closing_of(*at)));
        self.open.retain(|at, open| *at != sink && !is_same_file(open));
        let open =
            |position: Option<&SinkPosition>| (self.open_sink)(&settings.address, &settings.kind, position);
        let opened = match start(store, settings)? {
            SinkStart::At(position) => open(position.as_ref()),
            SinkStart::Behind(position) => open(Some(&position)).map(|mut writer| {
                writer.forget_position();
                writer
            }),
            SinkStart::BehindOther(error) => Err(error),
        };
        match opened {
            Ok(writer) => {
                self.broken.remove(&sink);
                self.open.insert(sink, OpenedSink { settings: settings.clone(), writer });
                Ok(Ok(()))
            }
            Err(error) => {
                let why = Chain(&error).to_string();
                self.give_up(sink, error);
                Ok(Err(why))
            }
        }
    }

    /// Gives the open sinks their new names, also those that the configuration does not have any more.
    pub(crate) fn rename(&mut self, renamed: &[RenamedPart]) {
        let endpoints = || renamed.iter().filter(|part| part.kind == NamedKind::Endpoint);
        for open in self.open.values_mut() {
            if let Some(part) = endpoints().find(|part| part.from == open.settings.address) {
                open.settings.address.clone_from(&part.to);
            }
        }
    }

    /// Sinks to which no step delivers, with the positions that mark them as complete. The caller commits these and
    /// then closes the sinks.
    pub(crate) fn unused(&self, is_used: impl Fn(SinkRef) -> bool) -> (Vec<SinkRef>, Positions) {
        let unused: Vec<SinkRef> = self.open.keys().copied().filter(|&sink| !is_used(sink)).collect();
        let closing = unused.iter().filter_map(|sink| self.closing_of(*sink)).collect();
        (unused, closing)
    }

    /// Closes sinks.
    pub(crate) fn close(&mut self, sinks: &[SinkRef]) {
        for sink in sinks {
            self.open.remove(sink);
            self.broken.remove(sink);
        }
    }

    /// Error that keeps a step from delivering, if one of its sinks is broken.
    pub(crate) fn refuses(&self, step: &Step) -> Option<&Arc<SinkError>> {
        step.outputs.iter().find_map(|output| match output.target {
            Target::Sink(sink) => self.broken.get(&sink),
            Target::Queue(_) => None,
        })
    }

    pub(crate) fn address(&self, sink: SinkRef) -> Option<&Address> {
        self.open.get(&sink).map(|open| &open.settings.address)
    }

    /// Marks a sink as broken until it is opened anew.
    pub(crate) fn give_up(&mut self, sink: SinkRef, error: SinkError) {
        self.broken.entry(sink).or_insert_with(|| Arc::new(error));
    }

    /// Positions to commit before `group` is written. They mark later bytes as written by this runner in case
    /// of a crash.
    pub(crate) fn open(&mut self, group: &[StepChange]) -> Result<Positions, FailedSink> {
        let wanted: BTreeSet<SinkRef> = deliveries(group).flat_map(parts).map(|(sink, _)| sink).collect();
        let mut positions = Positions::new();
        for sink in wanted {
            let Some(OpenedSink { settings, writer }) = self.open.get_mut(&sink) else { continue };
            let position = writer.needs_opening().map_err(|error| (sink, error))?;
            positions.extend(position.map(|position| (sink, settings.address.clone(), position)));
        }
        Ok(positions)
    }

    /// Writes the outputs for sinks and makes them durable. External readers can see them now. If the commit
    /// fails, [`Self::roll_back`] removes them.
    pub(crate) fn write(&mut self, group: &[StepChange]) -> Result<Positions, FailedSink> {
        for delivery in deliveries(group) {
            for (sink, output) in parts(delivery) {
                // A step that delivers to a sink has opened it.
                let Some(OpenedSink { writer, .. }) = self.open.get_mut(&sink) else { continue };
                self.dirty.insert(sink);
                let payloads = &delivery.outputs[output].payloads;
                writer.write(payloads).map_err(|error| (sink, error))?;
            }
        }
        let mut positions = Positions::new();
        for &sink in &self.dirty {
            let Some(OpenedSink { settings, writer }) = self.open.get_mut(&sink) else { continue };
            let position = writer.sync().map_err(|error| (sink, error))?;
            positions.extend(position.map(|position| (sink, settings.address.clone(), position)));
        }
        Ok(positions)
    }

    /// Records that the store has `positions`.
    pub(crate) fn committed(&mut self, positions: &Positions) {
        for (sink, _, position) in positions {
            if let Some(OpenedSink { writer, .. }) = self.open.get_mut(sink) {
                writer.committed(position);
            }
        }
        self.dirty.clear();
    }

    /// Removes the writes since the last commit. If that fails, the sink is broken. When it is opened anew, the
    /// surplus is cut off, or the file is refused.
    pub(crate) fn roll_back(&mut self) {
        for sink in std::mem::take(&mut self.dirty) {
            let Some(OpenedSink { writer, .. }) = self.open.get_mut(&sink) else { continue };
            if let Err(error) = writer.roll_back() {
                self.give_up(sink, error);
            }
        }
    }

    /// Positions that mark the sinks as complete; empty if nothing changed.
    pub(crate) fn closing(&self) -> Positions {
        self.open.keys().filter_map(|&sink| self.closing_of(sink)).collect()
    }

    fn closing_of(&self, sink: SinkRef) -> Option<(SinkRef, Address, SinkPosition)> {
        let OpenedSink { settings, writer } = self.open.get(&sink)?;
        Some((sink, settings.address.clone(), writer.closing()?))
    }
}

/// How a sink continues.
pub(crate) enum SinkStart {
    /// At this position of its own. Without one, the sink is new.
    At(Option<SinkPosition>),
    /// At this position of another sink.
    Behind(SinkPosition),
    /// Another sink has written behind its lines, which it does not accept.
    BehindOther(SinkError),
}

/// How a sink continues.
pub(crate) fn start(store: &Store, sink: &Sink) -> Result<SinkStart, ReadError> {
    start_under(&sink.address, store, sink)
}

/// As [`start`], for a sink that has this name in the store.
pub(crate) fn start_under(name: &Address, store: &Store, sink: &Sink) -> Result<SinkStart, ReadError> {
    let own = position_under(name, store, sink)?;
    let SinkKind::File(file) = &sink.kind else { return Ok(SinkStart::At(own)) };
    let Some((other, last)) = last_of_others(name, own.as_ref(), &file.path, store)? else {
        return Ok(SinkStart::At(own));
    };
    let is_at_own = own.is_some_and(|own| (own.path, own.offset) == (last.path.clone(), last.offset));
    Ok(match file.on_mismatch {
        // Lines behind the last position of all sinks were not committed.
        _ if last.offset == 0 || is_at_own => SinkStart::Behind(last),
        OnMismatch::Append => SinkStart::Behind(last),
        OnMismatch::Refuse => SinkStart::BehindOther(SinkError::OtherSink {
            address: sink.address.clone(),
            path: file.path.clone(),
            other,
        }),
    })
}

/// Position from which a sink continues. A file that the sink has left is continued behind its committed part. If it is
/// gone, the sink begins a new one.
fn position_under(name: &Address, store: &Store, sink: &Sink) -> Result<Option<SinkPosition>, ReadError> {
    let SinkKind::File(file) = &sink.kind else { return store.sink(name) };
    let path = stored_path(file);
    let own = store.sink(name)?;
    if own.as_ref().is_some_and(|own| own.path == path) || path.is_none() {
        return Ok(own);
    }
    let found = store.sink_in(name, path.as_deref())?;
    let is_gone = |found: &SinkPosition| found.path == path && !file.path.exists();
    Ok(if found.as_ref().is_some_and(is_gone) { own } else { found })
}

/// The last position of other sinks in the present file at the path, if it is behind that of the sink. At the same place,
/// the position of a sink that was about to write there counts.
pub(crate) fn last_of_others(
    name: &Address,
    own: Option<&SinkPosition>,
    path: &Path,
    store: &Store,
) -> Result<Option<(Address, SinkPosition)>, ReadError> {
    let Some(present) = fs::metadata(path).ok().filter(Metadata::is_file) else { return Ok(None) };
    let absolute = std::path::absolute(path).ok();
    let is_in = |at: &SinkPosition| {
        let is_same = (at.device, at.inode) == (present.dev(), present.ino());
        // The number of a device may change when the machine restarts.
        let is_there = || at.path.as_ref().map(Path::new) == absolute.as_deref();
        is_same || at.inode == present.ino() && is_there()
    };
    let own = own.filter(|own| is_in(own));
    let behind = own.map_or((0, false), |own| (own.offset, own.open));
    if present.len() <= behind.0 {
        return Ok(None);
    }
    let mut others = store.all_sinks()?;
    others.extend(store.sink_files()?);
    others.retain(|(sink, at)| {
        sink != name && is_in(at) && (at.offset, at.open) > behind && at.offset <= present.len()
    });
    others.sort_by_key(|(_, at)| (at.offset, at.open));
    // Another file may have got the number of one that is gone.
    Ok(others.into_iter().rev().find(|(_, at)| holds(path, at).unwrap_or(false)))
}

/// Sinks with an output of `delivery`, each with the position of the output.
fn parts(delivery: &Delivery) -> Vec<(SinkRef, usize)> {
    let outputs = delivery.step.outputs.iter().zip(&delivery.outputs);
    let parts = outputs.enumerate().filter_map(|(place, (output, made))| match output.target {
        Target::Sink(sink) if !made.payloads.is_empty() => Some((sink, place)),
        _ => None,
    });
    parts.collect()
}

fn deliveries(group: &[StepChange]) -> impl Iterator<Item = &Delivery> {
    group.iter().filter_map(StepChange::as_delivery)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_config::{FileSink, SinkFormat};
    use tidegate_plugin::Payloads;
    use tidegate_store::{Changes, open_in_memory};

    /// Without it, the lines of a crash would count as those of another program.
    #[test]
    fn a_sink_announces_its_first_write_to_a_file_that_another_sink_has_had_open() {
        let folder = tempfile::tempdir().unwrap();
        let (store, mut store_writer) = open_in_memory().unwrap();
        let [old, new] = ["p/old", "p/new"].map(|name| Sink {
            address: Address::parse(name).unwrap(),
            kind: SinkKind::File(FileSink {
                path: folder.path().join("out"),
                format: SinkFormat::Ndjson,
                on_mismatch: OnMismatch::Append,
            }),
        });
        let mut sinks = Sinks::default();
        sinks.prepare(SinkRef(0), &old, &store, &mut Vec::new()).unwrap().unwrap();
        let writer = &mut sinks.open.get_mut(&SinkRef(0)).unwrap().writer;
        let mut commit = |address: &Address, position: &SinkPosition| {
            let sinks = vec![(address.clone(), position.clone())];
            store_writer.commit(&Changes { sinks, ..Changes::default() }).unwrap();
        };
        let opening = writer.needs_opening().unwrap().unwrap();
        commit(&old.address, &opening);
        writer.committed(&opening);
        writer.write(&["1"].iter().map(|job| job.as_bytes()).collect::<Payloads>()).unwrap();
        let written = writer.sync().unwrap().unwrap();
        commit(&old.address, &written);
        writer.committed(&written);
        let mut left = Positions::new();
        sinks.prepare(SinkRef(1), &new, &store, &mut left).unwrap().unwrap();
        assert_eq!(left, [(SinkRef(0), old.address, SinkPosition { open: false, ..written.clone() })]);
        let opening = sinks.open.get_mut(&SinkRef(1)).unwrap().writer.needs_opening().unwrap();
        assert_eq!(opening, Some(written));
    }

    #[test]
    fn an_open_sink_that_the_configuration_has_no_more_has_its_new_name() {
        let (store, _writer) = open_in_memory().unwrap();
        let [old, new] = ["p/out", "q/out"].map(|name| Address::parse(name).unwrap());
        let settings = Sink { address: old.clone(), kind: SinkKind::Null };
        let mut sinks = Sinks::default();
        sinks.prepare(SinkRef(0), &settings, &store, &mut Vec::new()).unwrap().unwrap();
        sinks.rename(&[RenamedPart { kind: NamedKind::Step, from: old.clone(), to: new.clone() }]);
        assert_eq!(sinks.address(SinkRef(0)), Some(&old));
        sinks.rename(&[RenamedPart { kind: NamedKind::Endpoint, from: old, to: new.clone() }]);
        assert_eq!(sinks.address(SinkRef(0)), Some(&new));
    }
}
