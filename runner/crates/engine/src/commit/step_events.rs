//! Step events: completes the events of each commit, and finds the watermarks that it moves. It does no I/O.
//!
//! The watermark of an input is the highest index up to which every job of the step is finished. The progress of a
//! step accounts for parked jobs too, so their indices are kept here.

use std::collections::{BTreeMap, HashMap};

use tidegate_plugin::Payloads;

use crate::batch::events::EventWriter;
use crate::step::declared::DeclaredStep;
use tidegate_config::QueueRef;
use tidegate_model::{Progress, Timestamp};
use tidegate_store::{ParkedId, ParkedJob, ParkedKey};

/// Committed state of the events of one step.
#[derive(Debug)]
pub(crate) struct StepEvents {
    pub(crate) queue: QueueRef,
    pub(crate) writer: EventWriter,
    /// Parked jobs of the step, with their inputs and indices.
    rows: HashMap<ParkedId, Vec<(usize, u64)>>,
    /// The same by input and index, with the number of rows.
    unfinished: BTreeMap<(usize, u64), u32>,
    /// Watermarks by input, as the last commit left them.
    watermarks: Vec<u64>,
}

/// Events of one step in a commit that is being prepared.
#[derive(Debug, Default)]
pub(crate) struct PendingEvents {
    pub(crate) records: Payloads,
    /// Rows that leave the store.
    pub(crate) removed: Vec<ParkedId>,
    /// Inputs and indices of new rows. Their numbers are not known yet.
    pub(crate) added: Vec<(usize, u64)>,
    /// Watermarks after the commit.
    pub(crate) watermarks: Vec<u64>,
}

impl StepEvents {
    /// State of a step whose parked jobs are these; `None` if it has no queue for events.
    pub(crate) fn new(
        step: &DeclaredStep,
        progress: &[Progress],
        parked: &[(ParkedKey, ParkedJob)],
    ) -> Option<Self> {
        let (queue, writer) = (step.events?, EventWriter::new(step)?);
        let (rows, unfinished, watermarks) = (HashMap::new(), BTreeMap::new(), Vec::new());
        let mut events = Self { queue, writer, rows, unfinished, watermarks };
        for (key, job) in parked {
            events.add(key.id, job);
        }
        let inputs = progress.iter().enumerate();
        events.watermarks = inputs
            .map(|(input, progress)| events.watermark(input, progress, &[], &BTreeMap::new()))
            .collect();
        Some(events)
    }

    /// Inputs and indices of a row, if it is a job that was not finished before.
    pub(crate) fn places(&self, job: &ParkedJob) -> Vec<(usize, u64)> {
        if job.output().is_some() || job.from_error.is_some() {
            return Vec::new();
        }
        self.writer.places(job)
    }

    /// Adds a row of the store.
    pub(crate) fn add(&mut self, id: ParkedId, job: &ParkedJob) {
        let places = self.places(job);
        if !places.is_empty() && !self.rows.contains_key(&id) {
            for place in &places {
                *self.unfinished.entry(*place).or_default() += 1;
            }
            self.rows.insert(id, places);
        }
    }

    /// Adds an event for the watermarks that a commit moves. `progress`: by input, after the commit.
    pub(crate) fn move_watermarks<'p>(
        &self,
        progress: impl Iterator<Item = &'p Progress>,
        pending: &mut PendingEvents,
        now: Timestamp,
    ) {
        let mut removed = BTreeMap::new();
        for place in pending.removed.iter().filter_map(|row| self.rows.get(row)).flatten() {
            *removed.entry(*place).or_default() += 1;
        }
        let watermark = |(input, progress)| self.watermark(input, progress, &pending.added, &removed);
        pending.watermarks = progress.enumerate().map(watermark).collect();
        let both = self.watermarks.iter().zip(&pending.watermarks).enumerate();
        let moved: Vec<(usize, u64)> = both
            .filter(|(_, (before, after))| before != after)
            .map(|(input, (_, after))| (input, *after))
            .collect();
        if !moved.is_empty() {
            self.writer.write_watermark(&moved, now, &mut pending.records);
        }
    }

    /// Applies a commit. New rows are added once their numbers are known.
    pub(crate) fn apply(&mut self, pending: &PendingEvents) {
        for row in &pending.removed {
            for place in self.rows.remove(row).into_iter().flatten() {
                if let Some(rows) = self.unfinished.get_mut(&place) {
                    *rows -= 1;
                    if *rows == 0 {
                        self.unfinished.remove(&place);
                    }
                }
            }
        }
        self.watermarks.clone_from(&pending.watermarks);
    }

    /// Watermark of an input after a commit. `removed`: number of rows by place.
    fn watermark(
        &self,
        input: usize,
        progress: &Progress,
        added: &[(usize, u64)],
        removed: &BTreeMap<(usize, u64), u32>,
    ) -> u64 {
        let stays = |(place, rows): &(&(usize, u64), &u32)| removed.get(place).is_none_or(|gone| gone < rows);
        let mut rows = self.unfinished.range((input, 0)..=(input, u64::MAX));
        let first = rows.find(stays).map(|((_, index), _)| *index);
        let added = added.iter().filter(|(other, _)| *other == input).map(|(_, index)| *index).min();
        let first = first.into_iter().chain(added).min();
        first.map_or(progress.position(), |first| progress.position().min(first - 1))
    }
}

#[cfg(test)]
mod tests;
