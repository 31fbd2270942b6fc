//! Recovery: reads the state of the store, and opens the sources and sinks of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;

use rustix::rand::{GetRandomFlags, getrandom};

use super::snapshots::recover;
use super::start_position;
use crate::batch::retry::before;
use crate::commit::committed_state::trims_by_age;
use crate::coordinator::Coordinator;
use crate::error::{Chain, EngineError};
use crate::step::job_attributes::AttributeExtractor;
use tidegate_components::sink::SinkWriter;
use tidegate_components::source::{Reader, SourceLog};
use tidegate_config::{
    BeginAt, Configuration, GateRef, Input, InputMode, OutputOrder, PushSource, QueueRef, SinkRef,
    SourceKind, SourceRef, Step, Target,
};
use tidegate_dispatch::{
    BatchComposition, DurabilityBarrier, InputKind, InputPlan, InputPort, QueuePlan, StepPlan, Ticker,
};
use tidegate_model::log_target;
use tidegate_model::{Progress, Segment, SourceOffset, Timestamp, TokenKey};
use tidegate_store::{Changes, GenerationRecord, Store};

/// Maximum number of jobs in a batch of a queued step.
const PICKED_BATCH: usize = 256;

/// Recovered state of a run; lists follow the order of the configuration.
pub(crate) struct RecoveredState {
    /// Progress by step and input.
    pub(crate) progress: Vec<Vec<Progress>>,
    /// Numbers of the snapshots, by step, whose batches are delivered again.
    pub(crate) snapshots: Vec<BTreeSet<u64>>,
    /// Last index of each queue.
    pub(crate) heads: Vec<u64>,
    pub(crate) flows: Vec<StepPlan>,
    /// Sources; `None` for a source that cannot be opened.
    pub(crate) sources: Vec<Option<SourceLog>>,
    /// Readers of the inputs that are sources.
    pub(crate) readers: Vec<(InputPort, Reader)>,
    pub(crate) sinks: Vec<SinkWriter>,
    /// Last offset and last segment of each source.
    pub(crate) marks: BTreeMap<usize, SourceOffset>,
    pub(crate) segments: BTreeMap<usize, Segment>,
    /// Number of this configuration among all that ran on the store.
    pub(crate) generation: u64,
    /// Schedule sources, by the queues that they fill.
    pub(crate) tickers: Vec<(QueueRef, Ticker)>,
    /// Key of the completion tokens.
    pub(crate) token_key: TokenKey,
    /// Changes to commit before all others.
    pub(crate) opening: Option<Changes>,
    /// Steps that cannot start, with the reasons: their source or one of their sinks cannot be opened. The
    /// other steps run.
    pub(crate) halts: Vec<(usize, String)>,
}

/// Recovers the state. Returns `None` if the run was `stopped` before.
#[expect(clippy::too_many_lines, reason = "a sequence of short steps")]
pub(crate) fn start(
    configuration: &Configuration,
    store: &Store,
    now: Timestamp,
    stopped: &AtomicBool,
) -> Result<Option<RecoveredState>, EngineError> {
    let mut changes = Changes { now, ..Changes::default() };
    let (mut marks, mut last_segments) = (BTreeMap::new(), BTreeMap::new());
    let (mut sources, mut unopened) = (Vec::new(), BTreeMap::new());
    for (position, source) in configuration.sources.entries() {
        let segments = store.segments(&source.address)?;
        last_segments.extend(segments.last().map(|last| (position, last.clone())));
        marks.extend(store.mark(&source.address, u64::MAX)?.map(|mark| (position, mark)));
        let SourceKind::File(file) = &source.kind;
        let opened = SourceLog::open(&source.address, file, segments);
        unopened.extend(opened.as_ref().err().map(|error| (position, Chain(error).to_string())));
        sources.push(opened.ok());
    }
    let mut heads = Vec::with_capacity(configuration.queues.len());
    let (mut firsts, mut kept_now) = (BTreeMap::new(), BTreeSet::new());
    for (position, queue) in configuration.queues.entries() {
        let state = store.queue(&queue.address)?;
        kept_now.extend(state.iter().filter(|state| state.jobs() > 0).map(|_| queue.address.clone()));
        heads.push(state.as_ref().map_or(0, |state| state.head));
        firsts.insert(position, state.map_or(1, |state| state.first));
    }
    let Some(ends) = start_position::source_ends(configuration, store, &sources, stopped)? else {
        return Ok(None);
    };
    for (&position, end) in ends.iter().filter_map(|(position, end)| Some((position, end.as_ref().ok()?))) {
        let address = &configuration.sources[position].address;
        changes.marks.extend(end.mark.map(|mark| (address.clone(), mark)));
        changes.segments.extend(end.segments.iter().map(|segment| (address.clone(), segment.clone())));
        marks.extend(end.mark.map(|mark| (position, mark)));
        last_segments.extend(end.segments.last().map(|last| (position, last.clone())));
    }
    let (mut progress, mut flows, mut readers) = (Vec::new(), Vec::new(), Vec::new());
    let (mut snapshots, mut halts) = (Vec::new(), Vec::new());
    for (position, step) in configuration.steps.entries() {
        let (mut done_by_input, mut inputs) = (Vec::new(), Vec::new());
        let (mut accounted, mut kept, mut known) = (Vec::new(), Vec::new(), Vec::new());
        for (input, declared) in step.inputs.iter().enumerate() {
            let stored = store.progress(&step.address, &declared.address)?;
            known.push(stored.is_some());
            let mut done = stored.unwrap_or_default();
            if step.begin_at != BeginAt::Oldest && start_position::is_new(store, step, declared)? {
                match start_position::available(declared.input, (&firsts, &heads), &ends) {
                    Ok(there) => {
                        done = start_position::begin(step, declared, there);
                        let (step, input) = (step.address.clone(), declared.address.clone());
                        changes.progress.push((step, input, done.clone()));
                    }
                    Err(why) => halts.push((position, why)),
                }
            }
            accounted.push(done.clone());
            let feed = match declared.input {
                Input::Source(SourceRef(source)) => {
                    let next = done.watermark() + 1;
                    let last = marks.get(&source).copied().filter(|mark| mark.index <= next);
                    let mark = match last {
                        Some(last) => Some(last),
                        None => store.mark(&configuration.sources[source].address, next)?,
                    };
                    match &sources[source] {
                        Some(opened) => {
                            readers.push((
                                InputPort { step: position, input },
                                start_position::reader(opened, &done, next, mark),
                            ));
                        }
                        None => halts.extend(unopened.get(&source).map(|why| (position, why.clone()))),
                    }
                    kept.push(1);
                    InputKind::Source
                }
                Input::Queue(queue) => {
                    // A step that is new to a queue starts at the oldest job that is kept.
                    kept.push(firsts.get(&queue.0).copied().unwrap_or(1));
                    let let_go = firsts.get(&queue.0).map_or(0, |first| first - 1);
                    match known.last() {
                        Some(false) => done.start_after(let_go),
                        _ => done.skip_to(let_go),
                    }
                    match configuration.queues[queue.0].source {
                        Some(_) => InputKind::Pushed(queue.0),
                        None => InputKind::Queue(queue.0),
                    }
                }
            };
            inputs.push(InputPlan { feed, next: done.watermark() + 1, finished: done.finished().to_vec() });
            done_by_input.push(done);
        }
        start_position::warn_of_new_inputs(step, &known, &inputs);
        let (redo, lost) = recover(step, (&accounted, &kept), store, &mut changes)?;
        for (input, jobs) in lost {
            accounted[input].counters.lost += jobs;
            done_by_input[input].counters.lost += jobs;
            let address = step.inputs[input].address.clone();
            changes.progress.push((step.address.clone(), address, accounted[input].clone()));
        }
        snapshots.push(redo.iter().map(|redo| redo.number).collect());
        let gather =
            if step.take == InputMode::Join { BatchComposition::Zip } else { BatchComposition::Merge };
        let picking = picking(configuration, step, done_by_input.first());
        // The parked jobs of a queued step are added one by one.
        let due = match picking {
            Some(_) => None,
            None => store.next_due(&step.address, None)?,
        };
        flows.push(StepPlan { gather, inputs, due, picking, before: before(step, configuration), redo });
        progress.push(done_by_input);
    }
    let mut sinks = Vec::with_capacity(configuration.sinks.len());
    for (position, sink) in configuration.sinks.entries() {
        match SinkWriter::open(&sink.address, &sink.kind, store.sink(&sink.address)?.as_ref()) {
            Ok(sink) => sinks.push(sink),
            Err(error) => {
                let why = Chain(&error).to_string();
                halts.extend(feeders(configuration, position).map(|step| (step, why.clone())));
                // No step writes to it: its steps do not start.
                sinks.push(SinkWriter::Null);
            }
        }
    }
    warn_of_orphans(configuration, store)?;
    let generation = generation(configuration, store, &mut changes)?;
    // Retention by age must catch up on the time without a run.
    changes.trims = trims_by_age(configuration, &progress, now);
    changes.trims.retain(|trim| kept_now.contains(&trim.queue));
    let tickers = tickers(configuration, store, &mut changes)?;
    let token_key = token_key(store, &mut changes)?;
    // A marker that cannot be read is replaced.
    changes.begins_run = store.stops().map_or(true, |stops| !stops.is_empty());
    let news = changes.generation.is_some()
        || changes.begins_run
        || changes.token_key.is_some()
        || !changes.done_snapshots.is_empty()
        || !changes.progress.is_empty()
        || !changes.trims.is_empty()
        || !changes.schedule_positions.is_empty();
    Ok(Some(RecoveredState {
        progress,
        snapshots,
        heads,
        flows,
        sources,
        readers,
        sinks,
        marks,
        segments: last_segments,
        generation,
        tickers,
        token_key,
        opening: news.then_some(changes),
        halts,
    }))
}

/// Rules of a queued step; `None` for an ordered step.
fn picking(configuration: &Configuration, step: &Step, progress: Option<&Progress>) -> Option<QueuePlan> {
    let queuer = step.picks()?;
    let effects = before(step, configuration) != DurabilityBarrier::Nothing;
    Some(QueuePlan {
        rules: AttributeExtractor::new(queuer).rules(),
        in_order: step.order() == OutputOrder::AsInputs,
        search_ahead: queuer.max_search_ahead.unwrap_or(0),
        batch: if effects || step.acts_outside() { 1 } else { PICKED_BATCH },
        uses_pool: step.acts_outside(),
        gate: step.gate.map(|GateRef(gate)| configuration.gates[gate].inquiry.every),
        progress: progress.cloned().unwrap_or_default(),
    })
}

/// Adds the parked jobs of the store and the paused steps to the coordinator.
pub(crate) fn restore_parked_jobs(
    coordinator: &mut Coordinator,
    configuration: &Configuration,
    store: &Store,
    now: Timestamp,
) -> Result<(), EngineError> {
    for (position, step) in configuration.steps.entries() {
        for row in store.all_delayed(&step.address) {
            let (key, job) = row?;
            coordinator.restore_parked_job(position, &key, &job, now);
        }
    }
    pause(coordinator, configuration, store)
}

/// Schedules, each from its last tick on. The start of a schedule that never ticked is recorded, so that
/// later ticks without a running engine count as missed.
fn tickers(
    configuration: &Configuration,
    store: &Store,
    changes: &mut Changes,
) -> Result<Vec<(QueueRef, Ticker)>, EngineError> {
    let mut tickers = Vec::new();
    for (position, queue) in configuration.queues.entries() {
        let Some(PushSource::Schedule(source)) = &queue.source else { continue };
        let last = store.ticked(&queue.address)?;
        let ticker = Ticker::new(source.schedule.clone(), source.missed, last, changes.now);
        if last != Some(ticker.handled()) {
            changes.schedule_positions.push((queue.address.clone(), ticker.handled()));
        }
        tickers.push((QueueRef(position), ticker));
    }
    Ok(tickers)
}

/// Key of the store; it is created if there is none yet.
fn token_key(store: &Store, changes: &mut Changes) -> Result<TokenKey, EngineError> {
    if let Some(key) = store.token_key()? {
        return Ok(key);
    }
    let mut bytes = [0; 32];
    // The call needs no open file, and always fills 256 bytes or less.
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(std::io::Error::from)?;
    // Random bytes are not all zero.
    let key = TokenKey::new(&bytes).unwrap_or(TokenKey::NONE);
    changes.token_key = Some(key.clone());
    Ok(key)
}

/// Pauses the steps that an operator has paused.
fn pause(
    coordinator: &mut Coordinator,
    configuration: &Configuration,
    store: &Store,
) -> Result<(), EngineError> {
    for pause in store.pauses()? {
        let position = configuration.steps.position(|step| step.address == pause.step);
        if let Some(position) = position {
            let resume = configuration.command(&format!("step resume {}", pause.step));
            tracing::warn!(target: log_target::ENGINE, step = %pause.step, "the step is paused; `{resume}` resumes it");
            coordinator.pause(position);
        }
    }
    Ok(())
}

/// Number of the configuration: the last one, or the next if the configuration has changed.
fn generation(
    configuration: &Configuration,
    store: &Store,
    changes: &mut Changes,
) -> Result<u64, EngineError> {
    let (last, fingerprint) = (store.generation()?, configuration.fingerprint());
    let number = match last {
        Some(last) if last.fingerprint == fingerprint => return Ok(last.number),
        Some(last) => last.number + 1,
        None => 1,
    };
    changes.generation = Some(GenerationRecord { number, fingerprint, time: changes.now });
    Ok(number)
}

/// Steps that deliver into a sink.
fn feeders(configuration: &Configuration, sink: usize) -> impl Iterator<Item = usize> + '_ {
    let target = Target::Sink(SinkRef(sink));
    let steps = configuration.steps.entries();
    steps
        .filter(move |(_, step)| step.outputs.iter().any(|output| output.target == target))
        .map(|(step, _)| step)
}

/// Warns of progress and snapshots without a step: the step was renamed or removed, or has other inputs now.
fn warn_of_orphans(configuration: &Configuration, store: &Store) -> Result<(), EngineError> {
    for (step, input, progress) in store.all_progress()? {
        let claims = |claimant: &Step| {
            claimant.address == step && claimant.inputs.iter().any(|one| one.address == input)
        };
        if !configuration.steps.iter().any(claims) {
            tracing::warn!(
                target: log_target::ENGINE,
                step = %step,
                input = %input,
                watermark = progress.watermark(),
                "no step of the configuration claims this progress; it is kept (a step with another name \
                 starts at the oldest job)"
            );
        }
    }
    for snapshot in store.all_snapshots()? {
        if !configuration.steps.iter().any(|step| step.address == snapshot.step) {
            let inputs =
                snapshot.inputs.iter().map(|input| format!("{} from {}", input.address, input.first));
            tracing::warn!(
                target: log_target::ENGINE,
                step = %snapshot.step,
                jobs = snapshot.jobs,
                "the step is not in the configuration, and an attempt of it was interrupted ({}). The attempt may \
                 have had effects. Its record is kept, and the attempt is repeated if the step returns before \
                 retention deletes the jobs.",
                inputs.collect::<Vec<_>>().join(", ")
            );
        }
    }
    Ok(())
}
