//! Committed state: keeps the durable positions in memory, and turns a group of deliveries into one set of
//! changes. It does no I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::request::{
    BatchJobs, BeginBatch, Delivery, InputSpan, OutputBlock, RewindTo, SourcePositions, StepChange,
};
use super::sinks::Positions;
use tidegate_config::{Configuration, Input, QueueRef, Retain, SourceRef, Target};
use tidegate_dispatch::DurabilityBarrier;
use tidegate_model::{Progress, Segment, SourceOffset, Timestamp};
use tidegate_store::{Append, Changes, DedupeRecord, Snapshot, SnapshotInput, SnapshotKey, Trim, TrimWhen};

/// Committed positions; lists follow the order of the configuration.
#[derive(Debug)]
pub(crate) struct CommittedState {
    pub(crate) configuration: Arc<Configuration>,
    /// Progress by step and input.
    pub(crate) progress: Vec<Vec<Progress>>,
    /// Numbers of the snapshots of undelivered batches, by step.
    pub(crate) snapshots: Vec<BTreeSet<u64>>,
    /// Last index of each queue.
    pub(crate) heads: Vec<u64>,
    /// Last offset of each source that has one.
    pub(crate) marks: BTreeMap<usize, SourceOffset>,
    /// Last segment of each source that has one.
    pub(crate) segments: BTreeMap<usize, Segment>,
}

/// Group as changes of the store.
#[derive(Debug)]
pub(crate) struct PendingCommit {
    pub(crate) changes: Changes,
    /// Progress after the commit, by step and input.
    progress: ByInput,
}

/// Progress by step and input.
pub(crate) type ByInput = BTreeMap<(usize, usize), Progress>;

impl CommittedState {
    /// Prepares the changes of `group`, with the positions of the sinks that it was written to.
    pub(crate) fn prepare(
        &self,
        group: &[StepChange],
        positions: &Positions,
        now: Timestamp,
    ) -> PendingCommit {
        let mut page =
            PendingCommit { changes: Changes { now, ..Changes::default() }, progress: BTreeMap::new() };
        for entry in group {
            match entry {
                StepChange::Begin(begin) => self.begin(begin, &mut page),
                StepChange::Delivery(delivery) => self.deliver(delivery, &mut page),
                StepChange::Rewind(rewind) => {
                    for (input, &to) in rewind.to.iter().enumerate() {
                        let progress = page.progress(self, rewind.step, input);
                        if let RewindTo::Index(next) = to {
                            progress.rewind(next.saturating_sub(1));
                        }
                    }
                    self.settle_snapshots(rewind.step, None, &mut page);
                }
            }
        }
        self.add_trims(&page.progress, group, &mut page.changes);
        for (&(step, input), progress) in &page.progress {
            let step = &self.configuration.steps[step];
            let input = step.inputs[input].address.clone();
            page.changes.progress.push((step.address.clone(), input, progress.clone()));
        }
        self.add_sinks(positions, &mut page.changes);
        page
    }

    /// Adds a beginning. Its source positions are committed with the first record or progress that depends on
    /// them.
    fn begin(&self, begin: &BeginBatch, page: &mut PendingCommit) {
        self.add_places(begin.step, &begin.places, &mut page.changes);
        match begin.before {
            DurabilityBarrier::Nothing => {}
            DurabilityBarrier::Snapshot if !begin.rows.is_empty() => {
                self.account(begin.step, &begin.jobs, page);
                page.changes.parked.extend(begin.rows.iter().cloned());
            }
            DurabilityBarrier::Snapshot => {
                let now = page.changes.now;
                page.changes.snapshots.extend(self.snapshot(begin.step, begin.id.0, &begin.jobs, now));
            }
            DurabilityBarrier::Progress => {
                // The record does not restore the jobs: it counts the jobs that a crash loses.
                let now = page.changes.now;
                page.changes.snapshots.extend(self.snapshot(begin.step, begin.id.0, &begin.jobs, now));
                self.account(begin.step, &begin.jobs, page);
            }
        }
    }

    /// Snapshot of a batch before its attempt; `None` for redelivered jobs, which have rows of their own in
    /// the store.
    fn snapshot(&self, step: usize, number: u64, jobs: &BatchJobs, time: Timestamp) -> Option<Snapshot> {
        let step = &self.configuration.steps[step];
        let mut inputs: Vec<SnapshotInput> = Vec::new();
        for span in &jobs.spans {
            let input = &step.inputs[span.input];
            let name = input.hash_name();
            let follows =
                |last: &&mut SnapshotInput| last.name == name && last.first + last.jobs == span.first;
            match inputs.last_mut().filter(follows) {
                Some(last) => last.jobs += span.jobs,
                None => inputs.push(SnapshotInput {
                    name,
                    address: input.address.clone(),
                    first: span.first,
                    jobs: span.jobs,
                }),
            }
        }
        let first = inputs.first()?.name.clone();
        let jobs = inputs.iter().filter(|input| input.name == first).map(|input| input.jobs).sum();
        Some(Snapshot { step: step.address.clone(), number, inputs, jobs, time })
    }

    fn deliver(&self, delivery: &Delivery, page: &mut PendingCommit) {
        self.add_appends(delivery, &mut page.changes);
        self.add_places(delivery.step, &delivery.places, &mut page.changes);
        self.account(delivery.step, &delivery.jobs, page);
        page.changes.parked.extend(delivery.delayed.iter().cloned());
        // Counters are stored with the first input of the batch.
        let Delivery { jobs, counters, .. } = delivery;
        let first = jobs.spans.first().map_or(0, |span| span.input);
        page.progress(self, delivery.step, first).counters.add(counters);
        for span in jobs.spans.iter().filter(|span| span.input != first) {
            page.progress(self, delivery.step, span.input).counters.taken += span.jobs;
        }
        self.settle_snapshots(delivery.step, Some(delivery.id.0), page);
        if let Some((number, jobs)) = &delivery.rest {
            let now = page.changes.now;
            page.changes.snapshots.extend(self.snapshot(delivery.step, number.0, jobs, now));
        }
        let step = &self.configuration.steps[delivery.step];
        if let Some(keep) = self.configuration.keeps_records(step) {
            let keep_until = page.changes.now + keep;
            let record = |&(hash, outcome)| DedupeRecord { hash, outcome, keep_until };
            page.changes.dedupe_records.extend(delivery.outcomes.iter().map(record));
        }
    }

    /// Removes the snapshot of a batch, or all snapshots of the step.
    fn settle_snapshots(&self, step: usize, number: Option<u64>, page: &mut PendingCommit) {
        let address = &self.configuration.steps[step].address;
        let is_settled = |one: u64| number.is_none_or(|number| number == one);
        // It may be part of the same group.
        page.changes.snapshots.retain(|one| one.step != *address || !is_settled(one.number));
        let settled = self.snapshots[step].iter().filter(|one| is_settled(**one));
        let keys = settled.map(|&number| SnapshotKey { step: address.clone(), number });
        page.changes.done_snapshots.extend(keys);
    }

    fn account(&self, step: usize, jobs: &BatchJobs, page: &mut PendingCommit) {
        for spans in jobs.spans.chunk_by(|one, other| one.input == other.input) {
            let range = |span: &InputSpan| (span.first, span.first + span.jobs - 1);
            let mut ranges: Vec<(u64, u64)> = spans.iter().map(range).collect();
            page.progress(self, step, spans[0].input).finish_all(&mut ranges);
        }
        page.changes.unparked.extend(jobs.returned.iter().cloned());
    }

    /// Adds the positions of sinks.
    pub(crate) fn add_sinks(&self, positions: &Positions, changes: &mut Changes) {
        for &(sink, position) in positions {
            changes.sinks.push((self.configuration.sinks[sink].address.clone(), position));
        }
    }

    /// Applies committed changes to the memory.
    pub(crate) fn apply(&mut self, group: &[StepChange], page: PendingCommit) {
        for ((step, input), progress) in page.progress {
            self.progress[step][input] = progress;
        }
        for entry in group {
            let delivery = match entry {
                StepChange::Begin(begin) => {
                    self.settle_places(begin.step, &begin.places);
                    if begin.before != DurabilityBarrier::Nothing
                        && begin.jobs.returned.is_empty()
                        && begin.rows.is_empty()
                    {
                        self.snapshots[begin.step].insert(begin.id.0);
                    }
                    continue;
                }
                StepChange::Rewind(rewind) => {
                    self.snapshots[rewind.step].clear();
                    continue;
                }
                StepChange::Delivery(delivery) => delivery,
            };
            self.snapshots[delivery.step].remove(&delivery.id.0);
            if let Some((number, jobs)) = &delivery.rest
                && !jobs.spans.is_empty()
            {
                self.snapshots[delivery.step].insert(number.0);
            }
            self.settle_places(delivery.step, &delivery.places);
        }
    }

    fn settle_places(&mut self, step: usize, places: &SourcePositions) {
        for (input, mark, segments) in places {
            let Some(source) = self.source_of(step, *input) else { continue };
            if let Some(segment) = segments.last().filter(|segment| self.is_newer_segment(source, segment)) {
                self.segments.insert(source, segment.clone());
            }
            if let Some(mark) = mark.filter(|mark| self.is_newer_offset(source, mark)) {
                self.marks.insert(source, mark);
            }
        }
    }

    /// Index of the first job that is not accounted for, by input of the step.
    pub(crate) fn next(&self, step: usize) -> Vec<u64> {
        self.progress[step].iter().map(|progress| progress.watermark() + 1).collect()
    }

    /// Adds `jobs` jobs to a queue and returns the index of the first.
    pub(crate) fn extend_queue(&mut self, QueueRef(queue): QueueRef, jobs: usize) -> u64 {
        let first = self.heads[queue] + 1;
        self.heads[queue] += jobs as u64;
        first
    }

    /// Number of jobs of a queue that its slowest step has not accounted for; 0 without steps.
    pub(crate) fn waiting(&self, queue: QueueRef) -> u64 {
        let readers = self.configuration.readers(Input::Queue(queue));
        let accounted = readers.iter().map(|&(step, input)| self.progress[step][input].watermark()).min();
        accounted.map_or(0, |accounted| self.heads[queue.0].saturating_sub(accounted))
    }

    fn add_appends(&self, delivery: &Delivery, changes: &mut Changes) {
        let mut add = |QueueRef(queue): QueueRef, made: &OutputBlock| {
            if let Some(block) = made.block.as_ref().filter(|block| !block.is_empty()) {
                let queue = self.configuration.queues[queue].address.clone();
                changes.appends.push(Append { queue, block: block.clone() });
            }
        };
        let step = &self.configuration.steps[delivery.step];
        for (output, made) in step.outputs.iter().zip(&delivery.outputs) {
            if let Target::Queue(queue) = output.target {
                add(queue, made);
            }
        }
        if let (Some(queue), Some(made)) = (step.errors, &delivery.errors) {
            add(queue, made);
        }
    }

    /// Adds the source positions of jobs. The readers of one source advance independently, so most positions
    /// are known already.
    fn add_places(&self, step: usize, places: &SourcePositions, changes: &mut Changes) {
        for (input, mark, segments) in places {
            let Some(source) = self.source_of(step, *input) else { continue };
            let address = &self.configuration.sources[source].address;
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
            let step = &self.configuration.steps[entry.step()];
            let targets =
                step.outputs.iter().map(|output| output.target).chain(step.errors.map(Target::Queue));
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

    pub(crate) fn trim(&self, queue: QueueRef, progress: &ByInput, now: Timestamp) -> Option<Trim> {
        let watermark = |reader: (usize, usize)| {
            progress.get(&reader).unwrap_or(&self.progress[reader.0][reader.1]).watermark()
        };
        trim(&self.configuration, queue, watermark, now)
    }

    fn source_of(&self, step: usize, input: usize) -> Option<usize> {
        match self.configuration.steps[step].inputs.get(input)?.input {
            Input::Source(SourceRef(source)) => Some(source),
            Input::Queue(_) => None,
        }
    }

    /// Whether `segment` is newer than the last one or has more data about it: its end, a longer fingerprint,
    /// or a new file name.
    fn is_newer_segment(&self, source: usize, segment: &Segment) -> bool {
        self.segments.get(&source).is_none_or(|last| {
            let says_no_less = segment.fingerprint_len >= last.fingerprint_len
                && (segment.end.is_some() || last.end.is_none());
            segment.ordinal > last.ordinal
                || segment.ordinal == last.ordinal && says_no_less && segment != last
        })
    }

    fn is_newer_offset(&self, source: usize, mark: &SourceOffset) -> bool {
        self.marks.get(&source).is_none_or(|last| mark.index > last.index)
    }
}

impl PendingCommit {
    fn progress(&mut self, committed_state: &CommittedState, step: usize, input: usize) -> &mut Progress {
        self.progress.entry((step, input)).or_insert_with(|| committed_state.progress[step][input].clone())
    }
}

/// Jobs to delete from queues with a maximum age: time alone makes them expire. `progress` is by step and
/// input.
pub(crate) fn trims_by_age(
    configuration: &Configuration,
    progress: &[Vec<Progress>],
    now: Timestamp,
) -> Vec<Trim> {
    let queues = configuration.queues.entries();
    let timed = queues.filter(|(_, queue)| matches!(queue.retain, Retain::For(_)));
    let watermark = |(step, input): (usize, usize)| progress[step][input].watermark();
    timed.filter_map(|(queue, _)| trim(configuration, QueueRef(queue), watermark, now)).collect()
}

/// Jobs to delete from a queue; `watermark` is that of a step and its input.
fn trim(
    configuration: &Configuration,
    queue: QueueRef,
    watermark: impl Fn((usize, usize)) -> u64,
    now: Timestamp,
) -> Option<Trim> {
    let settings = &configuration.queues[queue.0];
    let accounted = configuration.readers(Input::Queue(queue)).iter().copied().map(watermark).min();
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
