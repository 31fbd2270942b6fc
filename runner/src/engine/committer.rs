//! The one thread that makes deliveries durable: sinks first, then the store, in one transaction for
//! everything that has come in meanwhile.
//!
//! It guarantees that a delivery is committed whole or not at all, that those of one step are
//! committed in order, and that a full disk only delays them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use tidegate_plugin::Payloads;

use super::error::{Chain, EngineError};
use super::run::Message;
use super::stats::Stats;
use super::tail::Tails;
use super::work::Made;
use crate::config::{Configuration, Input, QueueRef, Retain, SinkRef, SourceRef, Target};
use crate::decide::{BatchId, Counters, Progress};
use crate::hands::sink::{Sink, SinkError};
use crate::store::{Append, Changes, Trim, Writer};
use crate::words::{Clock, Mark, Segment, SinkPosition, Timestamp};

/// A group is closed when it has this many bytes …
const GROUP_BYTES: usize = 4 << 20;
/// … or is this old, while workers still run: fewer, larger commits cost less than many small ones.
const GROUP_AGE: Duration = Duration::from_millis(5);

/// What one batch of one step wants to change.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) step: usize,
    pub(super) id: BatchId,
    pub(super) first: u64,
    pub(super) taken: usize,
    /// In the order of the step's bindings.
    pub(super) outputs: Vec<Made>,
    pub(super) errors: Option<Made>,
    pub(super) counters: Counters,
    /// Bytes of the jobs, as they were read.
    pub(super) bytes: usize,
    pub(super) mark: Option<Mark>,
    pub(super) segments: Vec<Segment>,
}

/// What the thread works with.
pub(super) struct Committer {
    pub(super) configuration: Arc<Configuration>,
    pub(super) writer: Writer,
    /// In the order of the configuration, like everything by position here.
    pub(super) sinks: Vec<Sink>,
    /// By step.
    pub(super) progress: Vec<Progress>,
    /// The last index of each queue.
    pub(super) heads: Vec<u64>,
    pub(super) tails: Arc<Tails>,
    pub(super) stats: Arc<Stats>,
    pub(super) clock: Arc<dyn Clock>,
    /// How many batches are read and will still come here.
    pub(super) coming: Arc<AtomicUsize>,
    /// How long to wait for room on a full disk before the next try.
    pub(super) retry_after: Duration,
    pub(super) messages: Sender<Message>,
    /// Closed when the run shall end: room is then not waited for.
    pub(super) stop: Receiver<()>,
    pub(super) notes: Notes,
}

/// What the committer remembers from group to group.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// The last mark of each source, by position.
    pub(super) marks: BTreeMap<usize, u64>,
    /// The last segment of each source.
    pub(super) segments: BTreeMap<usize, Segment>,
    /// Sinks that were written to since the last commit.
    dirty: BTreeSet<usize>,
    /// Sinks that take nothing more in this run, and why.
    broken_sinks: BTreeMap<usize, Arc<SinkError>>,
    /// Steps of which a delivery was refused: a later one would leave a gap.
    broken_steps: BTreeSet<usize>,
}

/// A group that is written everywhere but in the store.
#[derive(Debug)]
struct Prepared {
    changes: Changes,
    /// By step.
    progress: BTreeMap<usize, Progress>,
    positions: Positions,
}

/// How far sinks are written, by position.
type Positions = Vec<(usize, SinkPosition)>;

/// A sink, by position, and what it could not do.
type Trouble = (usize, SinkError);

impl Committer {
    /// Commits until `deliveries` is closed; then marks the sinks as left in order.
    ///
    /// # Errors
    /// When the store fails. Nothing is lost: what was not committed is delivered in the next run.
    pub(super) fn run(mut self, deliveries: &Receiver<Delivery>) -> Result<Writer, EngineError> {
        let mut last_commit = Instant::now();
        while let Ok(first) = deliveries.recv() {
            let group = self.collect(first, deliveries, last_commit);
            self.commit(group)?;
            last_commit = Instant::now();
        }
        self.close_sinks()?;
        Ok(self.writer)
    }

    /// Takes what is there, and waits a little for more where more is certain to come.
    fn collect(
        &self,
        first: Delivery,
        deliveries: &Receiver<Delivery>,
        last_commit: Instant,
    ) -> Vec<Delivery> {
        let close = last_commit + GROUP_AGE;
        let mut bytes = first.size();
        let mut group = vec![first];
        while bytes < GROUP_BYTES {
            let more = match deliveries.try_recv() {
                Ok(more) => more,
                Err(_) if self.coming.load(Ordering::Acquire) == 0 => break,
                Err(_) => match deliveries.recv_deadline(close) {
                    Ok(more) => more,
                    Err(_) => break,
                },
            };
            bytes += more.size();
            group.push(more);
        }
        group
    }

    /// Commits a group, however often it has to be tried.
    fn commit(&mut self, mut group: Vec<Delivery>) -> Result<(), EngineError> {
        let mut told = false;
        loop {
            self.refuse_broken(&mut group);
            if group.is_empty() {
                return Ok(());
            }
            let written = match self.open_sinks(&group)? {
                Ok(()) => self.write_sinks(&group),
                Err(trouble) => Err(trouble),
            };
            let positions = match written {
                Ok(positions) => positions,
                Err((sink, error)) => {
                    self.roll_back_sinks()?;
                    if error.is_full() {
                        self.wait_for_room(error.into(), &mut told)?;
                    } else {
                        self.notes.broken_sinks.insert(sink, Arc::new(error));
                    }
                    continue;
                }
            };
            let prepared = self.prepare(&group, positions);
            match self.writer.commit(&prepared.changes) {
                Ok(_) => {}
                Err(error) if error.is_full() => {
                    self.wait_for_room(error.into(), &mut told)?;
                    if !self.reopen(&mut told)? {
                        self.roll_back_sinks()?;
                        continue;
                    }
                }
                Err(error) => return Err(error.into()),
            }
            if told {
                tracing::info!("there is room again; going on");
            }
            self.committed(group, prepared);
            return Ok(());
        }
    }

    /// Opens the store again after a commit that failed for want of room. Says whether that commit
    /// became durable all the same.
    fn reopen(&mut self, told: &mut bool) -> Result<bool, EngineError> {
        loop {
            match self.writer.reopen() {
                Ok(reopened) => return Ok(reopened.kept),
                Err(error) if error.is_full() => self.wait_for_room(error.into(), told)?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Answers deliveries that cannot be made because something they need is broken.
    fn refuse_broken(&mut self, group: &mut Vec<Delivery>) {
        let Self { configuration, notes, messages, .. } = self;
        group.retain(|delivery| {
            let outputs = &configuration.steps[delivery.step].outputs;
            let broken_sink = outputs.iter().find_map(|output| match output.target {
                Target::Sink(SinkRef(sink)) => notes.broken_sinks.get(&sink),
                Target::Queue(_) => None,
            });
            if let Some(error) = broken_sink
                && notes.broken_steps.insert(delivery.step)
            {
                // A run that is over does not listen any more; the same goes for all messages.
                let _ = messages.send(Message::Refused { step: delivery.step, error: Arc::clone(error) });
            }
            !notes.broken_steps.contains(&delivery.step)
        });
    }

    /// Records that sinks are about to be written to, before the first write of this run. After a
    /// crash, what stands behind the committed position is then known to be ours.
    fn open_sinks(&mut self, group: &[Delivery]) -> Result<Result<(), Trouble>, EngineError> {
        let mut changes = Changes { now: self.clock.now(), ..Changes::default() };
        let mut opened = BTreeMap::new();
        let sinks: BTreeSet<usize> = group.iter().flat_map(|delivery| self.sinks_of(delivery)).collect();
        for sink in sinks {
            match self.sinks[sink].needs_opening() {
                Ok(Some(position)) => opened.insert(sink, position),
                Ok(None) => None,
                Err(error) => return Ok(Err((sink, error))),
            };
        }
        if opened.is_empty() {
            return Ok(Ok(()));
        }
        for (&sink, position) in &opened {
            changes.sinks.push((self.configuration.sinks[sink].address.clone(), *position));
        }
        self.commit_small(&changes)?;
        for (sink, position) in opened {
            self.sinks[sink].committed(&position);
        }
        Ok(Ok(()))
    }

    /// The sinks that a delivery has something for.
    fn sinks_of(&self, delivery: &Delivery) -> Vec<usize> {
        let outputs = &self.configuration.steps[delivery.step].outputs;
        let sinks = outputs.iter().zip(&delivery.outputs).filter_map(|(output, made)| match output.target {
            Target::Sink(SinkRef(sink)) if !made.payloads.is_empty() => Some(sink),
            _ => None,
        });
        sinks.collect()
    }

    /// Commits changes that concern no delivery.
    fn commit_small(&mut self, changes: &Changes) -> Result<(), EngineError> {
        let mut told = false;
        loop {
            match self.writer.commit(changes) {
                Ok(_) => return Ok(()),
                Err(error) if error.is_full() => {
                    self.wait_for_room(error.into(), &mut told)?;
                    if self.reopen(&mut told)? {
                        return Ok(());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes what goes to sinks, and makes it durable. It can be seen outside from here on, and is
    /// cut back again where the commit does not follow.
    fn write_sinks(&mut self, group: &[Delivery]) -> Result<Positions, Trouble> {
        for delivery in group {
            let outputs = &self.configuration.steps[delivery.step].outputs;
            for (output, made) in outputs.iter().zip(&delivery.outputs) {
                let Target::Sink(SinkRef(sink)) = output.target else { continue };
                if !made.payloads.is_empty() {
                    self.notes.dirty.insert(sink);
                    self.sinks[sink].write(&made.payloads).map_err(|error| (sink, error))?;
                }
            }
        }
        let mut positions = Positions::new();
        for &sink in &self.notes.dirty {
            let position = self.sinks[sink].sync().map_err(|error| (sink, error))?;
            positions.extend(position.map(|position| (sink, position)));
        }
        Ok(positions)
    }

    fn prepare(&self, group: &[Delivery], positions: Positions) -> Prepared {
        let mut changes = Changes { now: self.clock.now(), ..Changes::default() };
        let mut progress: BTreeMap<usize, Progress> = BTreeMap::new();
        for delivery in group {
            self.add_appends(delivery, &mut changes);
            self.add_marks(delivery, &mut changes);
            let now = progress.entry(delivery.step).or_insert_with(|| self.progress[delivery.step].clone());
            if delivery.taken > 0 {
                now.finish(delivery.first, delivery.first + delivery.taken as u64 - 1);
            }
            now.counters.add(&delivery.counters);
        }
        self.add_trims(&progress, &mut changes);
        for (&step, now) in &progress {
            let step = &self.configuration.steps[step];
            changes.progress.push((step.address.clone(), step.input.address.clone(), now.clone()));
        }
        for (sink, position) in &positions {
            changes.sinks.push((self.configuration.sinks[*sink].address.clone(), *position));
        }
        Prepared { changes, progress, positions }
    }

    fn add_appends(&self, delivery: &Delivery, changes: &mut Changes) {
        let mut add = |QueueRef(queue): QueueRef, made: &Made| {
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

    fn add_marks(&self, delivery: &Delivery, changes: &mut Changes) {
        let Input::Source(SourceRef(source)) = self.configuration.steps[delivery.step].input.input else {
            return;
        };
        let address = &self.configuration.sources[source].address;
        for segment in &delivery.segments {
            if self.notes.segments.get(&source).is_none_or(|last| says_more(segment, last)) {
                changes.segments.push((address.clone(), segment.clone()));
            }
        }
        if let Some(mark) =
            delivery.mark.filter(|mark| self.notes.marks.get(&source).is_none_or(|&last| mark.index > last))
        {
            changes.marks.push((address.clone(), mark));
        }
    }

    /// Lets go of jobs that every reader has accounted for.
    fn add_trims(&self, progress: &BTreeMap<usize, Progress>, changes: &mut Changes) {
        let moved = progress.keys().filter_map(|&step| match self.configuration.steps[step].input.input {
            Input::Queue(queue) => Some(queue),
            Input::Source(_) => None,
        });
        for queue in moved.collect::<BTreeSet<_>>() {
            let settings = &self.configuration.queues[queue.0];
            let older_than = match settings.retain {
                Retain::Forever => continue,
                Retain::Consumed => None,
                Retain::For(duration) => {
                    let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
                    Some(Timestamp(changes.now.0.saturating_sub(millis)))
                }
            };
            let readers = self.configuration.readers(Input::Queue(queue));
            let watermark = |step| progress.get(&step).unwrap_or(&self.progress[step]).watermark();
            if let Some(up_to) = readers.map(watermark).min().filter(|&up_to| up_to > 0) {
                changes.trims.push(Trim { queue: settings.address.clone(), up_to, older_than });
            }
        }
    }

    /// Takes note of a commit, and tells everybody whom it concerns.
    fn committed(&mut self, group: Vec<Delivery>, prepared: Prepared) {
        for (sink, position) in prepared.positions {
            self.sinks[sink].committed(&position);
        }
        self.notes.dirty.clear();
        for (step, now) in prepared.progress {
            self.progress[step] = now;
        }
        let mut batches = Vec::with_capacity(group.len());
        let mut grown = BTreeSet::new();
        for delivery in group {
            batches.push((delivery.step, delivery.id));
            self.stats.steps[delivery.step].add(&delivery.counters, delivery.bytes as u64);
            self.take_note_of_source(&delivery);
            let configuration = Arc::clone(&self.configuration);
            let step = &configuration.steps[delivery.step];
            let targets = step.outputs.iter().map(|output| output.target);
            let errors = step.errors.map(Target::Queue).into_iter().zip(delivery.errors);
            for (target, made) in targets.zip(delivery.outputs).chain(errors) {
                if let Target::Queue(QueueRef(queue)) = target
                    && !made.payloads.is_empty()
                {
                    self.grow(queue, made.payloads);
                    grown.insert(queue);
                }
            }
        }
        let grown = grown.into_iter().map(|queue| (queue, self.heads[queue])).collect();
        // A run that is over does not listen any more.
        let _ = self.messages.send(Message::Committed { batches, grown });
    }

    fn grow(&mut self, queue: usize, payloads: Payloads) {
        let first = self.heads[queue] + 1;
        self.heads[queue] += payloads.len() as u64;
        if self.configuration.readers(Input::Queue(QueueRef(queue))).next().is_some() {
            self.tails.push(queue, first, payloads);
        }
    }

    fn take_note_of_source(&mut self, delivery: &Delivery) {
        let Input::Source(SourceRef(source)) = self.configuration.steps[delivery.step].input.input else {
            return;
        };
        if let Some(segment) = delivery.segments.last()
            && self.notes.segments.get(&source).is_none_or(|last| says_more(segment, last))
        {
            self.notes.segments.insert(source, segment.clone());
        }
        if let Some(mark) = delivery.mark {
            let last = self.notes.marks.entry(source).or_insert(mark.index);
            *last = mark.index.max(*last);
        }
    }

    fn roll_back_sinks(&mut self) -> Result<(), EngineError> {
        for sink in std::mem::take(&mut self.notes.dirty) {
            self.sinks[sink].roll_back()?;
        }
        Ok(())
    }

    /// Says once that the disk is full, and waits a while.
    fn wait_for_room(&self, error: EngineError, told: &mut bool) -> Result<(), EngineError> {
        if !*told {
            tracing::error!(error = %Chain(&error), "the disk is full; nothing is lost, and the run goes on when there is room");
            *told = true;
        }
        match self.stop.recv_timeout(self.retry_after) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            _ => Err(error),
        }
    }

    /// Records that the files of the sinks are as this run left them. Everything is delivered by
    /// then, so for this alone room is not waited for: the next run takes the files as after a crash.
    fn close_sinks(&mut self) -> Result<(), EngineError> {
        let mut changes = Changes { now: self.clock.now(), ..Changes::default() };
        for (sink, settings) in self.sinks.iter().zip(&self.configuration.sinks) {
            if let Some(position) = sink.closing() {
                changes.sinks.push((settings.address.clone(), position));
            }
        }
        if changes.sinks.is_empty() {
            return Ok(());
        }
        match self.writer.commit(&changes) {
            Err(error) if error.is_full() => {
                tracing::warn!(
                    "the disk is full: everything is delivered, but what somebody adds to the files of sinks \
                     before the next run will be cut off by it"
                );
                Ok(())
            }
            closed => Ok(closed.map(drop)?),
        }
    }
}

/// Whether `segment` is later than `last`, or is the same one and has come to its end. Readers of one
/// source tell what they know at their own pace.
fn says_more(segment: &Segment, last: &Segment) -> bool {
    segment.ordinal > last.ordinal
        || segment.ordinal == last.ordinal && last.end.is_none() && segment.end.is_some()
}

impl Delivery {
    /// Bytes that it adds to a group.
    fn size(&self) -> usize {
        self.outputs.iter().chain(&self.errors).map(|made| made.payloads.byte_len()).sum()
    }
}
