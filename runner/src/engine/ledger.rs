//! What is durable, kept in memory: turns a group of deliveries into one set of changes, and takes
//! note of them once they are committed. Does no I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::delivery::{Delivery, Made};
use super::sinks::Positions;
use crate::config::{Configuration, Input, QueueRef, Retain, SourceRef, Target};
use crate::decide::Progress;
use crate::store::{Append, Changes, Trim, TrimWhen};
use crate::words::{Mark, Segment, Timestamp};

/// Lists follow the order of the configuration.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) configuration: Arc<Configuration>,
    /// By step.
    pub(super) progress: Vec<Progress>,
    /// The last index of each queue.
    pub(super) heads: Vec<u64>,
    /// The last mark of each source that has one.
    pub(super) marks: BTreeMap<usize, Mark>,
    /// The last segment of each source that has one.
    pub(super) segments: BTreeMap<usize, Segment>,
}

/// A group as changes of the store.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) changes: Changes,
    /// By step: where those that take part will be.
    progress: BTreeMap<usize, Progress>,
}

impl Ledger {
    /// The changes that `group` comes to, with the positions of the sinks that it was written to.
    pub(super) fn enter(&self, group: &[Delivery], positions: &Positions, now: Timestamp) -> Entry {
        let mut changes = Changes { now, ..Changes::default() };
        let mut progress: BTreeMap<usize, Progress> = BTreeMap::new();
        for delivery in group {
            self.add_appends(delivery, &mut changes);
            self.add_places(delivery, &mut changes);
            let step = progress.entry(delivery.step).or_insert_with(|| self.progress[delivery.step].clone());
            if delivery.taken > 0 {
                step.finish(delivery.first, delivery.first + delivery.taken as u64 - 1);
            }
            step.counters.add(&delivery.counters);
        }
        self.add_trims(&progress, group, &mut changes);
        for (&position, progress) in &progress {
            let step = &self.configuration.steps[position];
            changes.progress.push((step.address.clone(), step.inputs[0].address.clone(), progress.clone()));
        }
        self.add_sinks(positions, &mut changes);
        Entry { changes, progress }
    }

    /// Adds how far sinks are written.
    pub(super) fn add_sinks(&self, positions: &Positions, changes: &mut Changes) {
        for &(sink, position) in positions {
            changes.sinks.push((self.configuration.sinks[sink].address.clone(), position));
        }
    }

    /// Takes note that an entry is durable.
    pub(super) fn settle(&mut self, group: &[Delivery], entry: Entry) {
        for (step, progress) in entry.progress {
            self.progress[step] = progress;
        }
        for delivery in group {
            let Some(source) = self.source_of(delivery) else { continue };
            if let Some(segment) = delivery.segments.last().filter(|segment| self.is_news(source, segment)) {
                self.segments.insert(source, segment.clone());
            }
            if let Some(mark) = delivery.mark.filter(|mark| self.is_further(source, mark)) {
                self.marks.insert(source, mark);
            }
        }
    }

    /// Takes note that a queue has `jobs` more; answers the index of the first of them.
    pub(super) fn grow(&mut self, QueueRef(queue): QueueRef, jobs: usize) -> u64 {
        let first = self.heads[queue] + 1;
        self.heads[queue] += jobs as u64;
        first
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

    /// Adds where the jobs of a source stand. Readers of one source tell what they know at their own
    /// pace, so that most of it is known already.
    fn add_places(&self, delivery: &Delivery, changes: &mut Changes) {
        let Some(source) = self.source_of(delivery) else { return };
        let address = &self.configuration.sources[source].address;
        for segment in delivery.segments.iter().filter(|segment| self.is_news(source, segment)) {
            changes.segments.push((address.clone(), segment.clone()));
        }
        if let Some(mark) = delivery.mark.filter(|mark| self.is_further(source, mark)) {
            changes.marks.push((address.clone(), mark));
        }
    }

    /// Lets go of jobs that need not be kept any more, on the queues that the group has to do with.
    fn add_trims(&self, progress: &BTreeMap<usize, Progress>, group: &[Delivery], changes: &mut Changes) {
        let mut queues = BTreeSet::new();
        for delivery in group {
            let step = &self.configuration.steps[delivery.step];
            let targets =
                step.outputs.iter().map(|output| output.target).chain(step.errors.map(Target::Queue));
            queues.extend(targets.filter_map(|target| match target {
                Target::Queue(queue) => Some(queue),
                Target::Sink(_) => None,
            }));
            if let Input::Queue(queue) = step.inputs[0].input {
                queues.insert(queue);
            }
        }
        changes.trims.extend(queues.into_iter().filter_map(|queue| self.trim(queue, progress, changes.now)));
    }

    fn trim(&self, queue: QueueRef, progress: &BTreeMap<usize, Progress>, now: Timestamp) -> Option<Trim> {
        let settings = &self.configuration.queues[queue.0];
        let readers = self.configuration.readers(Input::Queue(queue));
        let watermark = |(step, _)| progress.get(&step).unwrap_or(&self.progress[step]).watermark();
        let accounted = readers.map(watermark).min();
        let (up_to, when) = match settings.retain {
            Retain::Forever => return None,
            // Where nobody reads it, somebody still may.
            Retain::Consumed => (accounted?, TrimWhen::Always),
            Retain::For(duration) => {
                let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
                (accounted.unwrap_or(u64::MAX), TrimWhen::OlderThan(Timestamp(now.0.saturating_sub(millis))))
            }
        };
        (up_to > 0).then(|| Trim { queue: settings.address.clone(), up_to, when, max_bytes: None })
    }

    fn source_of(&self, delivery: &Delivery) -> Option<usize> {
        match self.configuration.steps[delivery.step].inputs[0].input {
            Input::Source(SourceRef(source)) => Some(source),
            Input::Queue(_) => None,
        }
    }

    /// Whether `segment` is later than the last one, or says more about it: its end, more of how the
    /// file begins, or what the file system calls it now.
    fn is_news(&self, source: usize, segment: &Segment) -> bool {
        self.segments.get(&source).is_none_or(|last| {
            let says_no_less = segment.fingerprint_len >= last.fingerprint_len
                && (segment.end.is_some() || last.end.is_none());
            segment.ordinal > last.ordinal
                || segment.ordinal == last.ordinal && says_no_less && segment != last
        })
    }

    fn is_further(&self, source: usize, mark: &Mark) -> bool {
        self.marks.get(&source).is_none_or(|last| mark.index > last.index)
    }
}

#[cfg(test)]
mod tests;
