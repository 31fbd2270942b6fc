//! Where a run takes up: what the store knows, and the hands that are made ready for it.

use std::collections::BTreeMap;

use super::error::{Chain, EngineError};
use crate::config::{Configuration, Input, SinkRef, SourceKind, SourceRef, Target};
use crate::decide::{Flow, FlowInput, Progress};
use crate::hands::sink::Sink;
use crate::hands::source::{Reader, Source};
use crate::store::Store;
use crate::words::{Mark, Segment};

/// Everything that a run starts from; lists follow the order of the configuration.
pub(super) struct Started {
    /// By step.
    pub(super) progress: Vec<Progress>,
    /// The last index of each queue.
    pub(super) heads: Vec<u64>,
    pub(super) flows: Vec<Flow>,
    /// By step: what reads its source, where it has one.
    pub(super) readers: Vec<Option<Reader>>,
    pub(super) sinks: Vec<Sink>,
    /// The last mark and the last segment of each source.
    pub(super) marks: BTreeMap<usize, Mark>,
    pub(super) segments: BTreeMap<usize, Segment>,
    /// Steps that cannot begin, and why: their source or one of their sinks cannot be opened. The
    /// others do not suffer for it.
    pub(super) halts: Vec<(usize, String)>,
}

pub(super) fn start(configuration: &Configuration, store: &Store) -> Result<Started, EngineError> {
    let (mut marks, mut last_segments) = (BTreeMap::new(), BTreeMap::new());
    let mut sources = Vec::with_capacity(configuration.sources.len());
    for (position, source) in configuration.sources.iter().enumerate() {
        let segments = store.segments(&source.address)?;
        last_segments.extend(segments.last().map(|last| (position, last.clone())));
        marks.extend(store.mark(&source.address, u64::MAX)?.map(|mark| (position, mark)));
        let SourceKind::File(file) = &source.kind;
        sources.push(Source::open(&source.address, file, segments));
    }
    let mut heads = Vec::with_capacity(configuration.queues.len());
    let mut firsts = BTreeMap::new();
    for (position, queue) in configuration.queues.iter().enumerate() {
        let state = store.queue(&queue.address)?;
        heads.push(state.as_ref().map_or(0, |state| state.head));
        firsts.insert(position, state.map_or(1, |state| state.first));
    }
    let (mut progress, mut flows, mut readers) = (Vec::new(), Vec::new(), Vec::new());
    let mut halts = Vec::new();
    for (position, step) in configuration.steps.iter().enumerate() {
        let mut done = store.progress(&step.address, &step.inputs[0].address)?.unwrap_or_default();
        let (input, reader) = match step.inputs[0].input {
            Input::Source(SourceRef(source)) => {
                let next = done.watermark() + 1;
                let mark = store.mark(&configuration.sources[source].address, next)?;
                let opened = sources[source].as_ref();
                halts.extend(opened.err().map(|error| (position, Chain(error).to_string())));
                (FlowInput::Source, opened.ok().map(|source| source.reader(next, mark)))
            }
            Input::Queue(queue) => {
                // A step that is new to a queue begins with the oldest job that is left.
                done.skip_to(firsts.get(&queue.0).map_or(0, |first| first - 1));
                (FlowInput::Queue(queue.0), None)
            }
        };
        flows.push(Flow { input, next: done.watermark() + 1 });
        progress.push(done);
        readers.push(reader);
    }
    let mut sinks = Vec::with_capacity(configuration.sinks.len());
    for (position, sink) in configuration.sinks.iter().enumerate() {
        match Sink::open(&sink.address, &sink.kind, store.sink(&sink.address)?.as_ref()) {
            Ok(sink) => sinks.push(sink),
            Err(error) => {
                let why = Chain(&error).to_string();
                halts.extend(feeders(configuration, position).map(|step| (step, why.clone())));
                // Nothing reaches it: whoever would write to it does not begin.
                sinks.push(Sink::Null);
            }
        }
    }
    warn_of_orphans(configuration, store)?;
    Ok(Started { progress, heads, flows, readers, sinks, marks, segments: last_segments, halts })
}

/// The steps that deliver into a sink.
fn feeders(configuration: &Configuration, sink: usize) -> impl Iterator<Item = usize> + '_ {
    let target = Target::Sink(SinkRef(sink));
    let steps = configuration.steps.iter().enumerate();
    steps
        .filter(move |(_, step)| step.outputs.iter().any(|output| output.target == target))
        .map(|(step, _)| step)
}

/// Progress that no step claims: a step was renamed or taken away, or reads something else now.
fn warn_of_orphans(configuration: &Configuration, store: &Store) -> Result<(), EngineError> {
    for (step, input, progress) in store.all_progress()? {
        let claims =
            |claimant: &crate::config::Step| claimant.address == step && claimant.inputs[0].address == input;
        if !configuration.steps.iter().any(claims) {
            tracing::warn!(
                step = %step,
                input = %input,
                watermark = progress.watermark(),
                "no step of the configuration claims this progress; it is kept (a step with another name \
                 begins with the oldest job)"
            );
        }
    }
    Ok(())
}
