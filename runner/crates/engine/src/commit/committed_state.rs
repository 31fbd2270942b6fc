//! Committed state: keeps the durable positions in memory, and turns a group of deliveries into one set of
//! changes. It does no I/O.

mod snapshots;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::request::{
    BatchJobs, BeginBatch, Delivery, InputSpan, OutputBlock, Rewind, RewindTo, SourcePositions, StepChange,
};
use super::sinks::Positions;
use super::step_events::{PendingEvents, StepEvents};
use super::unmatched_jobs::UnmatchedJobs;
use crate::generation::current::NumberedGeneration;
use crate::operator::effect::RequestEffect;
use crate::recovery::rewind;
use crate::step::declared::DeclaredStep;
use tidegate_components::source::SourceEnd;
use tidegate_config::{Configuration, Input, Queue, QueueRef, Retain, SinkRef, SourceRef, Step, Target};
use tidegate_dispatch::DurabilityBarrier;
use tidegate_model::{NameHistory, NamesSince, Parts, Progress, Segment, SourceOffset, Timestamp};
use tidegate_plugin::Payloads;
use tidegate_store::{
    Append, Block, Changes, Details, NewParkedJob, ParkedId, ParkedJob, ParkedKey, Trim, TrimWhen,
};
use tidegate_store::{LaneChange, LaneHold};

/// Committed positions.
#[derive(Debug)]
pub(crate) struct CommittedState {
    /// Current generation: its settings of queues are in force.
    pub(crate) generation: Arc<NumberedGeneration>,
    /// Installed steps. A step that changes stays here until it is installed again, so that retention keeps its
    /// jobs.
    steps: Parts<CommittedStep>,
    /// Readers of each input: steps, each with the position among its inputs.
    readers: BTreeMap<Input, Vec<(usize, usize)>>,
    /// Last index of each queue, by position.
    heads: Vec<u64>,
    /// Last offset of each source that has one.
    pub(crate) marks: BTreeMap<usize, SourceOffset>,
    /// Last segment of each source that has one.
    pub(crate) segments: BTreeMap<usize, Segment>,
    /// Names that parts had earlier in this run.
    pub(crate) names: NameHistory,
}

/// Committed positions of an installed step.
#[derive(Debug)]
pub(crate) struct CommittedStep {
    pub(crate) declared: DeclaredStep,
    /// By input.
    pub(crate) progress: Vec<Progress>,
    /// Numbers of the snapshots of undelivered batches, by batch. They have the order in which the batches were begun; the
    /// rest of a split batch keeps the number.
    pub(crate) snapshots: BTreeMap<u64, u64>,
    /// `None`: the step has no queue for events.
    pub(crate) events: Option<StepEvents>,
    /// `None`: the step is no join by key.
    pub(crate) unmatched: Option<UnmatchedJobs>,
}

/// Group as changes of the store.
#[derive(Debug)]
pub(crate) struct PendingCommit {
    pub(crate) changes: Changes,
    /// Progress after the commit, by step and input.
    progress: ByInput,
    /// Numbers of the snapshots that the group writes, by step and batch.
    numbers: BTreeMap<(usize, u64), u64>,
    /// Events by step. Their appends are behind those of the deliveries.
    pub(crate) events: BTreeMap<usize, PendingEvents>,
}

/// Progress by step and input.
pub(crate) type ByInput = BTreeMap<(usize, usize), Progress>;

impl CommittedState {
    pub(crate) fn new(generation: Arc<NumberedGeneration>) -> Self {
        Self {
            generation,
            steps: Parts::default(),
            readers: BTreeMap::new(),
            heads: Vec::new(),
            marks: BTreeMap::new(),
            segments: BTreeMap::new(),
            names: NameHistory::default(),
        }
    }

    /// Present names of what a step calls by the names of its generation.
    fn names(&self, step: &DeclaredStep) -> NamesSince<'_> {
        self.names.since(step.generation.number)
    }

    pub(crate) fn configuration(&self) -> &Configuration {
        &self.generation.configuration
    }

    /// Adds a step, or replaces it.
    pub(crate) fn install(&mut self, step: CommittedStep) {
        let position = step.declared.position;
        self.remove(position);
        for (at, input) in step.declared.inputs.iter().enumerate() {
            self.readers.entry(input.input).or_default().push((position, at));
        }
        self.steps.insert(position, step);
    }

    pub(crate) fn remove(&mut self, position: usize) {
        let Some(CommittedStep { declared, .. }) = self.steps.remove(position) else { return };
        for input in &declared.inputs {
            if let Some(readers) = self.readers.get_mut(&input.input) {
                readers.retain(|(step, _)| *step != position);
            }
        }
    }

    pub(crate) fn step(&self, position: usize) -> Option<&CommittedStep> {
        self.steps.get(position)
    }

    /// Sets the progress of a step on an input. A step that is not installed reads it from the store later.
    pub(crate) fn set_progress(&mut self, (step, input): (usize, usize), progress: Progress) {
        if let Some(step) = self.steps.get_mut(step) {
            step.progress[input] = progress;
        }
    }

    /// Installed steps that read `input`, each with the position among its inputs.
    pub(crate) fn readers(&self, input: Input) -> &[(usize, usize)] {
        self.readers.get(&input).map(Vec::as_slice).unwrap_or_default()
    }

    /// The unmatched jobs of an installed join by key, and the present names of what `generation` calls otherwise.
    pub(crate) fn unmatched(
        &mut self,
        position: usize,
        generation: u64,
    ) -> Option<(&mut UnmatchedJobs, NamesSince<'_>)> {
        let unmatched = self.steps.get_mut(position)?.unmatched.as_mut()?;
        Some((unmatched, self.names.since(generation)))
    }

    /// Gives unmatched jobs the numbers of their rows.
    pub(crate) fn match_later(
        &mut self,
        position: usize,
        provisional: &[ParkedId],
        rows: &[(&NewParkedJob, ParkedKey)],
    ) {
        let step = self.steps.get_mut(position);
        let Some(unmatched) = step.and_then(|step| step.unmatched.as_mut()) else { return };
        for (id, (_, row)) in provisional.iter().zip(rows) {
            unmatched.commit(*id, row.id);
        }
    }

    /// Forgets the unmatched jobs among these rows. Returns the steps that had some.
    pub(crate) fn forget_unmatched(&mut self, rows: &[ParkedKey]) -> Vec<usize> {
        let mut found = Vec::new();
        for (position, step) in self.steps.entries_mut() {
            let Some(unmatched) = &mut step.unmatched else { continue };
            // A request names the step as the current generation does.
            let address = self.names.since(step.declared.generation.number).step(&step.declared.address);
            let own = rows.iter().filter(|row| row.step == address);
            if own.filter(|row| unmatched.remove(row.id)).count() > 0 {
                found.push(position);
            }
        }
        found
    }

    /// Positions of the installed joins by key.
    pub(crate) fn joins(&self) -> Vec<usize> {
        self.steps
            .entries()
            .filter(|(_, step)| step.unmatched.is_some())
            .map(|(position, _)| position)
            .collect()
    }

    /// Whether an installed step delivers to the sink.
    pub(crate) fn uses_sink(&self, sink: SinkRef) -> bool {
        let target = Target::Sink(sink);
        self.steps.iter().any(|step| step.declared.outputs.iter().any(|output| output.target == target))
    }

    /// Whether an installed step reads the source.
    pub(crate) fn reads_source(&self, source: usize) -> bool {
        !self.readers(Input::Source(SourceRef(source))).is_empty()
    }

    /// Last index of a queue.
    pub(crate) fn head(&self, QueueRef(queue): QueueRef) -> u64 {
        self.heads.get(queue).copied().unwrap_or(0)
    }

    /// Sets the last index of a queue as the store has it.
    pub(crate) fn set_head(&mut self, queue: usize, head: u64) {
        if self.heads.len() <= queue {
            self.heads.resize(queue + 1, 0);
        }
        self.heads[queue] = head;
    }

    /// Sets what the store knows of a source that was opened.
    pub(crate) fn note_source(&mut self, source: usize, last: Option<&Segment>, mark: Option<SourceOffset>) {
        self.segments.remove(&source);
        self.segments.extend(last.map(|last| (source, last.clone())));
        self.marks.remove(&source);
        self.marks.extend(mark.map(|mark| (source, mark)));
    }

    /// Records the end of a source, from which a step begins.
    pub(crate) fn note_end(&mut self, source: usize, end: &SourceEnd) {
        self.marks.extend(end.mark.map(|mark| (source, mark)));
        self.segments.extend(end.segments.last().map(|last| (source, last.clone())));
    }

    /// Prepares the changes of `group`, with the positions of the sinks that it was written to.
    pub(crate) fn prepare(
        &self,
        group: &[StepChange],
        positions: &Positions,
        now: Timestamp,
    ) -> PendingCommit {
        let changes = Changes { now, ..Changes::default() };
        let (progress, numbers, events) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut page = PendingCommit { changes, progress, numbers, events };
        for entry in group {
            match entry {
                StepChange::Begin(begin) => self.begin(begin, &mut page),
                StepChange::Delivery(delivery) => self.deliver(delivery, &mut page),
                StepChange::Rewind(Rewind { step, to, waiting }) => {
                    for (input, &to) in to.iter().enumerate() {
                        let progress = page.progress(self, step.position, input);
                        match to {
                            RewindTo::Index(next) => {
                                rewind::put_back(
                                    progress,
                                    next,
                                    waiting.get(input).map_or(&[], Vec::as_slice),
                                );
                            }
                            RewindTo::Behind(last) => progress.skip_to(last),
                            RewindTo::Stay => {}
                        }
                    }
                    self.settle_snapshots(step, None, &mut page);
                }
            }
            self.add_events(entry, &mut page);
        }
        self.finish_events(&mut page);
        self.add_trims(&page.progress, group, &mut page.changes);
        for (&(step, input), progress) in &page.progress {
            // Only installed steps have progress here.
            let Some(CommittedStep { declared, .. }) = self.steps.get(step) else { continue };
            let names = self.names(declared);
            let input = names.endpoint(&declared.inputs[input].address);
            page.changes.progress.push((names.step(&declared.address), input, progress.clone()));
        }
        Self::add_sinks(positions, &mut page.changes);
        page
    }

    /// Adds a beginning. Its source positions are committed with the first record or progress that depends on
    /// them.
    fn begin(&self, begin: &BeginBatch, page: &mut PendingCommit) {
        self.add_places(&begin.step, &begin.places, &mut page.changes);
        match begin.before {
            DurabilityBarrier::Nothing => {}
            DurabilityBarrier::Snapshot if !begin.rows.is_empty() => {
                self.account(&begin.step, &begin.jobs, page);
                let names = self.names(&begin.step);
                page.changes.parked.extend(begin.rows.iter().map(|row| parked(row, names)));
            }
            DurabilityBarrier::Snapshot => self.add_snapshot(begin, page),
            DurabilityBarrier::Progress => {
                // The record does not restore the jobs: it counts the jobs that a crash loses.
                self.add_snapshot(begin, page);
                self.account(&begin.step, &begin.jobs, page);
            }
        }
    }

    fn deliver(&self, delivery: &Delivery, page: &mut PendingCommit) {
        let names = self.names(&delivery.step);
        add_appends(delivery, names, &mut page.changes);
        self.add_places(&delivery.step, &delivery.places, &mut page.changes);
        self.account(&delivery.step, &delivery.jobs, page);
        page.changes.parked.extend(delivery.delayed.iter().map(|row| parked(row, names)));
        let since = page.changes.now;
        page.changes.lanes.extend(delivery.halted_lanes.iter().map(|(lane, why)| LaneChange {
            step: names.step(&delivery.step.address),
            lane: lane.clone(),
            hold: Some(LaneHold { since, halted: Some(why.clone()) }),
        }));
        // Counters are stored with the first input of the batch.
        let Delivery { jobs, counters, .. } = delivery;
        let first = jobs.spans.first().map_or(0, |span| span.input);
        page.progress(self, delivery.step.position, first).counters.add(counters);
        for span in jobs.spans.iter().filter(|span| span.input != first) {
            page.progress(self, delivery.step.position, span.input).counters.taken += span.jobs;
        }
        let number = self.snapshot_number(delivery.step.position, delivery.id.0, page);
        if let Some(number) = number {
            self.settle_snapshots(&delivery.step, Some(number), page);
        }
        if let Some((rest, jobs)) = &delivery.rest {
            let number = number.unwrap_or(delivery.id.0);
            let snapshot = self.snapshot(&delivery.step, number, jobs, page.changes.now);
            page.changes.snapshots.extend(snapshot);
            page.numbers.insert((delivery.step.position, rest.0), number);
        }
        if let Some(keep) = delivery.step.configuration().keeps_records(&delivery.step) {
            let keep_until = Some(page.changes.now + keep);
            // The step as in the hashes, which may have another name by now.
            delivery.outcomes.record(&delivery.step.address, keep_until, &mut page.changes);
        }
    }

    /// Adds the events of an entry, and its changes of the parked jobs.
    fn add_events(&self, entry: &StepChange, page: &mut PendingCommit) {
        let step = entry.step().position;
        let Some(events) = self.steps.get(step).and_then(|step| step.events.as_ref()) else { return };
        let pending = page.events.entry(step).or_default();
        let (records, rows) = match entry {
            StepChange::Begin(begin) => (&begin.events, &begin.rows),
            StepChange::Delivery(delivery) => (&delivery.events, &delivery.delayed),
            StepChange::Rewind(_) => return,
        };
        pending.records.append(records);
        pending.added.extend(rows.iter().flat_map(|row| events.places(&row.job)));
        let jobs = match entry {
            StepChange::Begin(begin) if begin.rows.is_empty() => return,
            StepChange::Begin(begin) => &begin.jobs,
            StepChange::Delivery(delivery) => &delivery.jobs,
            StepChange::Rewind(_) => return,
        };
        pending.removed.extend(jobs.returned.iter().map(|key| key.id));
    }

    /// Adds the watermarks that the commit moves, and appends all events.
    fn finish_events(&self, page: &mut PendingCommit) {
        let now = page.changes.now;
        for (&step, pending) in &mut page.events {
            let Some(CommittedStep { declared, progress, events: Some(events), .. }) = self.steps.get(step)
            else {
                continue;
            };
            let after = |(input, committed)| page.progress.get(&(step, input)).unwrap_or(committed);
            events.move_watermarks(progress.iter().enumerate().map(after), pending, now);
            if !pending.records.is_empty() {
                page.changes.appends.push(self.append_events(declared, events.queue, &pending.records));
            }
        }
    }

    /// Events as an append to their queue. They have no origins: they are not made from the jobs.
    fn append_events(&self, step: &DeclaredStep, QueueRef(queue): QueueRef, records: &Payloads) -> Append {
        let queue = self.names(step).endpoint(&step.configuration().queues[queue].address);
        Append { queue, block: Block::encode(records, Details::default()) }
    }

    /// Adds an event for the watermarks that an operator's request moves.
    pub(crate) fn add_moved_watermarks(&self, effect: &mut RequestEffect) -> Option<(usize, PendingEvents)> {
        let step = effect.moves.as_ref()?.step;
        let CommittedStep { declared, progress, events: Some(events), .. } = self.steps.get(step)? else {
            return None;
        };
        let mut pending = PendingEvents::default();
        pending.removed.extend(effect.changes.unparked.iter().map(|key| key.id));
        let after = |(input, committed)| {
            let mut moved = effect.progress.iter();
            let moved = moved.find(|(of, at, _)| (*of, *at) == (step, input)).map(|(.., progress)| progress);
            moved.unwrap_or(committed)
        };
        events.move_watermarks(progress.iter().enumerate().map(after), &mut pending, effect.changes.now);
        if !pending.records.is_empty() {
            effect.changes.appends.push(self.append_events(declared, events.queue, &pending.records));
            effect.appended.push((events.queue, pending.records.clone(), None));
        }
        Some((step, pending))
    }

    /// Applies the watermarks that an operator's request has moved.
    pub(crate) fn apply_moved_watermarks(&mut self, (step, pending): &(usize, PendingEvents)) {
        if let Some(events) = self.steps.get_mut(*step).and_then(|step| step.events.as_mut()) {
            events.apply(pending);
        }
    }

    /// Adds the events of the stops of steps. Returns them by queue.
    pub(crate) fn add_halts(&self, changes: &mut Changes) -> Vec<(QueueRef, Payloads)> {
        let mut appended = Vec::new();
        for stop in &changes.stops {
            let stopped = self
                .steps
                .iter()
                .find(|step| self.names(&step.declared).step(&step.declared.address) == stop.step);
            let Some(CommittedStep { declared, events: Some(events), .. }) = stopped else { continue };
            let mut records = Payloads::new();
            let at = stop.job.as_ref().map(|(_, index)| *index);
            events.writer.write_halt(at, &stop.why, stop.since, &mut records);
            changes.appends.push(self.append_events(declared, events.queue, &records));
            appended.push((events.queue, records));
        }
        appended
    }

    /// Adds a row that a commit has parked.
    pub(crate) fn note_row(&mut self, step: usize, row: ParkedId, job: &ParkedJob) {
        if let Some(events) = self.steps.get_mut(step).and_then(|step| step.events.as_mut()) {
            events.add(row, job);
        }
    }

    fn account(&self, step: &DeclaredStep, jobs: &BatchJobs, page: &mut PendingCommit) {
        for spans in jobs.spans.chunk_by(|one, other| one.input == other.input) {
            let range = |span: &InputSpan| (span.first, span.first + span.jobs - 1);
            let mut ranges: Vec<(u64, u64)> = spans.iter().map(range).collect();
            page.progress(self, step.position, spans[0].input).finish_all(&mut ranges);
        }
        let names = self.names(step);
        page.changes.unparked.extend(jobs.returned.iter().map(|key| parked_key(key, names)));
    }

    /// Adds the positions of sinks.
    pub(crate) fn add_sinks(positions: &Positions, changes: &mut Changes) {
        changes
            .sinks
            .extend(positions.iter().map(|(_, address, position)| (address.clone(), position.clone())));
    }

    /// Applies committed changes to the memory. Returns the events that were appended, by queue.
    pub(crate) fn apply(&mut self, group: &[StepChange], page: PendingCommit) -> Vec<(QueueRef, Payloads)> {
        for (at, progress) in page.progress {
            self.set_progress(at, progress);
        }
        let mut appended = Vec::new();
        for (step, pending) in page.events {
            if let Some(events) = self.steps.get_mut(step).and_then(|step| step.events.as_mut()) {
                events.apply(&pending);
                appended.extend((!pending.records.is_empty()).then_some((events.queue, pending.records)));
            }
        }
        for entry in group {
            let delivery = match entry {
                StepChange::Begin(begin) => {
                    self.settle_places(&begin.step, &begin.places);
                    if let Some(&number) = page.numbers.get(&(begin.step.position, begin.id.0)) {
                        self.snapshots(&begin.step).insert(begin.id.0, number);
                    }
                    continue;
                }
                StepChange::Rewind(rewind) => {
                    self.snapshots(&rewind.step).clear();
                    continue;
                }
                StepChange::Delivery(delivery) => delivery,
            };
            let snapshots = self.snapshots(&delivery.step);
            let number = snapshots.remove(&delivery.id.0).unwrap_or(delivery.id.0);
            if let Some((rest, jobs)) = &delivery.rest
                && !jobs.spans.is_empty()
            {
                snapshots.insert(rest.0, number);
            }
            self.settle_places(&delivery.step, &delivery.places);
        }
        appended
    }

    /// Snapshots of an installed step.
    fn snapshots(&mut self, step: &DeclaredStep) -> &mut BTreeMap<u64, u64> {
        // A step changes only while it is installed.
        &mut self.steps[step.position].snapshots
    }

    fn settle_places(&mut self, step: &Step, places: &SourcePositions) {
        for (input, mark, segments) in places {
            let Some(source) = source_of(step, *input) else { continue };
            if let Some(segment) = segments.last().filter(|segment| self.is_newer_segment(source, segment)) {
                self.segments.insert(source, segment.clone());
            }
            if let Some(mark) = mark.filter(|mark| self.is_newer_offset(source, mark)) {
                self.marks.insert(source, mark);
            }
        }
    }

    /// Adds `jobs` jobs to a queue, from the index `first` on.
    pub(crate) fn extend_queue(&mut self, queue: QueueRef, first: u64, jobs: usize) {
        self.set_head(queue.0, (first + jobs as u64).saturating_sub(1));
    }

    /// Number of jobs of a queue that its slowest step has not accounted for; 0 without steps.
    pub(crate) fn waiting(&self, queue: QueueRef) -> u64 {
        let readers = self.readers(Input::Queue(queue)).iter();
        let accounted = readers.map(|&(step, input)| self.steps[step].progress[input].position()).min();
        accounted.map_or(0, |accounted| self.head(queue).saturating_sub(accounted))
    }

    /// Adds the source positions of jobs. The readers of one source advance independently, so most positions
    /// are known already.
    fn add_places(&self, step: &DeclaredStep, places: &SourcePositions, changes: &mut Changes) {
        for (input, mark, segments) in places {
            let Some(source) = source_of(step, *input) else { continue };
            let address = self.names(step).endpoint(&step.configuration().sources[source].address);
            for segment in segments.iter().filter(|segment| self.is_newer_segment(source, segment)) {
                changes.segments.push((address.clone(), segment.clone()));
            }
            if let Some(mark) = mark.filter(|mark| self.is_newer_offset(source, mark)) {
                changes.marks.push((address.clone(), mark));
            }
        }
    }

    /// Adds the deletion of jobs that retention no longer keeps, on the queues of the group.
    fn add_trims(&self, progress: &ByInput, group: &[StepChange], changes: &mut Changes) {
        let mut queues = BTreeSet::new();
        for entry in group {
            let step = entry.step();
            let records = step.errors.into_iter().chain(step.events).map(Target::Queue);
            let targets = step.outputs.iter().map(|output| output.target).chain(records);
            queues.extend(targets.filter_map(|target| match target {
                Target::Queue(queue) => Some(queue),
                Target::Sink(_) => None,
            }));
            queues.extend(step.inputs.iter().filter_map(|input| match input.input {
                Input::Queue(queue) => Some(queue),
                Input::Source(_) => None,
            }));
        }
        changes.trims.extend(queues.into_iter().filter_map(|queue| self.trim(queue, progress, changes.now)));
    }

    /// Jobs to delete from a queue. `progress` is newer than the committed one, by step and input.
    pub(crate) fn trim(&self, queue: QueueRef, progress: &ByInput, now: Timestamp) -> Option<Trim> {
        let watermark = |reader: &(usize, usize)| {
            let committed = || &self.steps[reader.0].progress[reader.1];
            progress.get(reader).unwrap_or_else(committed).position()
        };
        let settings = self.configuration().queues.get(queue.0)?;
        trim(settings, self.readers(Input::Queue(queue)).iter().map(watermark).min(), now)
    }

    /// Jobs to delete from queues with a maximum age: time alone makes them expire.
    pub(crate) fn trims_by_age(&self, now: Timestamp) -> Vec<Trim> {
        let queues = self.configuration().queues.entries();
        let timed = queues.filter(|(_, queue)| matches!(queue.retain, Retain::For(_)));
        timed.filter_map(|(queue, _)| self.trim(QueueRef(queue), &BTreeMap::new(), now)).collect()
    }

    /// Whether `segment` is newer than the last one or has more data about it: its end, a longer fingerprint,
    /// or a new file name.
    fn is_newer_segment(&self, source: usize, segment: &Segment) -> bool {
        self.segments.get(&source).is_none_or(|last| {
            let has_no_less = segment.fingerprint_len >= last.fingerprint_len
                && (segment.end.is_some() || last.end.is_none());
            segment.ordinal > last.ordinal
                || segment.ordinal == last.ordinal && has_no_less && segment != last
        })
    }

    fn is_newer_offset(&self, source: usize, mark: &SourceOffset) -> bool {
        self.marks.get(&source).is_none_or(|last| mark.index > last.index)
    }
}

impl PendingCommit {
    fn progress(&mut self, committed_state: &CommittedState, step: usize, input: usize) -> &mut Progress {
        let committed = || committed_state.steps[step].progress[input].clone();
        self.progress.entry((step, input)).or_insert_with(committed)
    }
}

fn add_appends(delivery: &Delivery, names: NamesSince<'_>, changes: &mut Changes) {
    let DeclaredStep { generation, .. } = &delivery.step;
    let mut add = |QueueRef(queue): QueueRef, made: &OutputBlock| {
        if let Some(block) = made.block.as_ref().filter(|block| !block.is_empty()) {
            let queue = names.endpoint(&generation.configuration.queues[queue].address);
            changes.appends.push(Append { queue, block: block.clone() });
        }
    };
    for (output, made) in delivery.step.outputs.iter().zip(&delivery.outputs) {
        if let Target::Queue(queue) = output.target {
            add(queue, made);
        }
    }
    if let (Some(queue), Some(made)) = (delivery.step.errors, &delivery.errors) {
        add(queue, made);
    }
}

fn parked_key(key: &ParkedKey, names: NamesSince<'_>) -> ParkedKey {
    key.id.of(&names.step(&key.step))
}

/// A parked job under present names.
fn parked(parked: &NewParkedJob, names: NamesSince<'_>) -> NewParkedJob {
    let mut parked = parked.clone();
    if !names.are_the_same() {
        parked.step = names.step(&parked.step);
        for (name, _) in &mut parked.job.inputs {
            *name = names.input(name);
        }
        if let Some((queue, _)) = &mut parked.job.from_error {
            *queue = names.endpoint(queue);
        }
    }
    parked
}

fn source_of(step: &Step, input: usize) -> Option<usize> {
    match step.inputs.get(input)?.input {
        Input::Source(SourceRef(source)) => Some(source),
        Input::Queue(_) => None,
    }
}

/// Jobs to delete from a queue. `accounted`: the lowest watermark of its readers.
fn trim(settings: &Queue, accounted: Option<u64>, now: Timestamp) -> Option<Trim> {
    let when = match settings.retain {
        Retain::Consumed => TrimWhen::Always,
        Retain::For(duration) => TrimWhen::OlderThan(now - duration),
        Retain::Forever => TrimWhen::Never,
    };
    if when == TrimWhen::Never && settings.max_size.is_none() {
        return None;
    }
    let up_to = match accounted {
        Some(accounted) => accounted,
        // A queue without steps keeps its jobs, unless it has a maximum age or size.
        None if when == TrimWhen::Always && settings.max_size.is_none() => return None,
        None => u64::MAX,
    };
    let (queue, max_bytes) = (settings.address.clone(), settings.max_size);
    // Without steps no job is ever accounted for.
    let when = if accounted.is_none() && when == TrimWhen::Always { TrimWhen::Never } else { when };
    (up_to > 0).then_some(Trim { queue, up_to, when, max_bytes })
}

#[cfg(test)]
mod tests;
