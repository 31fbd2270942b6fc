//! Queued steps: buffer the jobs that wait, and form batches of the jobs that the dispatcher picks.

use std::collections::HashMap;

use super::{Action, Coordinator};
use crate::batch::input::{BatchInput, BatchSlice, ReadBatch};
use crate::batch::job_builder::BatchCursor;
use crate::batch::result::BatchResult;
use crate::batch::retry;
use crate::runtime::message::ParkedRow;
use crate::runtime::readers::{ReadAhead, StoreRequest};
use crate::step::counts::StepCounts;
use crate::step::in_flight::InFlightBatch;
use crate::step::job_buffer::FetchedJobs;
use crate::step::queue_view;
use crate::step::queue_view::QueueView;
use crate::step::state::{QueuedJobs, StepState};
use tidegate_dispatch::{BatchId, Event, InputPort, JobAttributes, JobKey, JobOutcome, ReadId, WaitingState};
use tidegate_model::{Due, Timestamp};
use tidegate_store::{NewParkedJob, ParkedJob, ParkedKey};

impl Coordinator {
    /// Restores a job that is parked in the store.
    pub(crate) fn restore_parked_job(
        &mut self,
        step: usize,
        row: &ParkedKey,
        job: &ParkedJob,
        now: Timestamp,
    ) {
        let Self { steps, dispatcher, .. } = self;
        let Some(StepState { declared, queued: Some(QueuedJobs { buffer, pending }), .. }) =
            steps.get_mut(step)
        else {
            return self.recall_turn(step, row, job);
        };
        self.pending_steps.insert(step);
        let key = JobKey::stored(row.id.0);
        buffer.set_row(key, row.id);
        if job.output().is_some() {
            dispatcher.saw_late(step, key, job.due);
            return;
        }
        let (state, index) = (queue_view::state(job), queue_view::index(job));
        let waiting_since = job.first_attempt.unwrap_or(now);
        if let Some((_, since, completion)) = job.reason.outside() {
            pending.recall((key, index), &buffer.attributes.lane(&job.payload), (since, completion), now);
        }
        let card = (index, waiting_since);
        // A job that was set aside before holds the watermark no longer.
        let index = job.from_error.is_none().then_some(index);
        buffer.attributes.extract(key, card, &job.payload, |card| {
            dispatcher.saw(step, &JobAttributes { index, ..card.clone() }, state);
        });
        if queue_view::has_freed_lane(job, declared) {
            dispatcher.free_lane(step, key, now);
        }
    }

    /// View of the waiting jobs of a queued step.
    pub(crate) fn inspect_queue(&self, step: usize) -> Option<Box<QueueView>> {
        let (look, queued) = (self.dispatcher.look(step)?, self.steps.get(step)?.queued.as_ref()?);
        Some(Box::new(QueueView::new(&look, queued.buffer.all_rows())))
    }

    /// Payload of a job that was begun and is not delivered.
    pub(crate) fn payload(&self, step: usize, input: usize, index: u64) -> Option<Vec<u8>> {
        let portions = self.steps.get(step)?.batches.values().flat_map(|held| &held.work.portions);
        portions.into_iter().find_map(|portion| {
            let first = portion.batch.first + portion.skip as u64;
            let has = portion.input == Some(input)
                && portion.returned.is_none()
                && (first..first + portion.jobs as u64).contains(&index);
            let position = usize::try_from(index.checked_sub(portion.batch.first)?).ok()?;
            has.then(|| portion.batch.payloads.get(position).map(<[u8]>::to_vec)).flatten()
        })
    }

    /// Counts of all steps.
    pub(crate) fn count_all(&self, lanes: usize, now: Timestamp) -> HashMap<usize, StepCounts> {
        let counts = |(step, state)| Some((step, self.step_counts(step, state, lanes, now)?));
        self.steps.entries().filter_map(counts).collect()
    }

    fn step_counts(
        &self,
        step: usize,
        state: &StepState,
        lanes: usize,
        now: Timestamp,
    ) -> Option<StepCounts> {
        let counts = self.dispatcher.job_counts(step, lanes, now)?;
        let summary = counts.picked.as_ref().map(|picked| &picked.summary);
        let oldest =
            summary.map(|summary| summary.lanes.iter().filter_map(|lane| lane.oldest).chain(summary.oldest));
        let spots = match (&state.queued, oldest) {
            (Some(queued), Some(oldest)) => oldest.map(|key| queued.buffer.locate(key)).collect(),
            _ => Vec::new(),
        };
        Some(StepCounts { counts, returned: state.returned.len() as u64, oldest: spots })
    }

    /// Adds the jobs of a read to the waiting room and to the job buffer.
    pub(crate) fn enqueue_read(&mut self, port: InputPort, read: ReadId, fetched: ReadBatch, now: Timestamp) {
        let Self { dispatcher, steps, .. } = self;
        let Some(buffer) = steps.get_mut(port.step).and_then(StepState::buffer) else { return };
        let ReadBatch { batch, mark, segments, .. } = fetched;
        let mut stamps = batch.stamps.iter().peekable();
        let mut since = now;
        for (position, payload) in batch.payloads.iter().enumerate() {
            while let Some(stamp) = stamps.next_if(|stamp| stamp.position <= position) {
                since = stamp.time;
            }
            let index = batch.first + position as u64;
            let key = JobKey::fresh(index);
            buffer.attributes.extract(key, (index, since), payload, |card| {
                dispatcher.saw(port.step, card, WaitingState::Waiting);
            });
        }
        buffer.insert(read, &batch, now);
        if let Some(input) = port.input.position().filter(|_| mark.is_some() || !segments.is_empty()) {
            buffer.places.push((input, mark, segments));
        }
    }

    /// Forms a batch of picked jobs, or requests the missing ones.
    pub(crate) fn build_picked_batch(
        &mut self,
        step: usize,
        id: BatchId,
        jobs: Vec<JobKey>,
        now: Timestamp,
        actions: &mut Vec<Action>,
    ) -> Option<Event> {
        let state = self.steps.get_mut(step)?;
        let buffer = state.buffer()?;
        let missing = buffer.missing(&jobs);
        let held = if missing.is_empty() { Vec::new() } else { buffer.blocks_of(&jobs) };
        state.batches.insert(id, InFlightBatch { picked: jobs, held, ..InFlightBatch::default() });
        if missing.is_empty() {
            return self.on_jobs_fetched(step, id, FetchedJobs::default(), now);
        }
        let input = state.declared.inputs.first()?;
        let port = InputPort::of_input(step, 0);
        let what = ReadAhead::Picked { batch: id, queue: input.address.clone(), missing };
        let (step, reader) = (state.declared.clone(), state.epoch);
        actions.push(Action::ReadStore(StoreRequest { step, port, reader, what, picks: true }));
        None
    }

    /// Completes a batch with its missing jobs.
    pub(crate) fn on_jobs_fetched(
        &mut self,
        step: usize,
        id: BatchId,
        gathered: FetchedJobs,
        now: Timestamp,
    ) -> Option<Event> {
        let StepState { declared, queued, batches, .. } = self.steps.get_mut(step)?;
        let (QueuedJobs { buffer, pending }, held) = (queued.as_mut()?, batches.get_mut(&id)?);
        let blocks = std::mem::take(&mut held.held);
        let Some(mut work) = buffer.build_batch(&held.picked, gathered, &blocks, now) else {
            let verify = declared.configuration().command("store verify");
            let why = format!("a waiting job is missing in the store: run `{verify}`");
            self.halt(step, why, now);
            return Some(Event::Failed { step });
        };
        work.verdicts = pending.verdicts(&held.picked);
        let bytes = work.byte_len();
        held.work = work;
        if !buffer.pool {
            self.track_pending_commit(step, id, true);
        }
        Some(Event::Picked { step, batch: id, bytes })
    }

    /// Rows of the jobs of a batch for the time of their attempt.
    pub(crate) fn begun_rows(&mut self, step: usize, work: &BatchInput, now: Timestamp) -> Vec<NewParkedJob> {
        let Some(StepState { declared, queued: Some(queued), .. }) = self.steps.get_mut(step) else {
            return Vec::new();
        };
        let (buffer, address) = (&mut queued.buffer, &declared.address);
        let carries = buffer.gatherer.has_provenance(work);
        let (mut walk, mut rows) = (BatchCursor::new(work), Vec::with_capacity(work.jobs));
        while let Some(item) = buffer.gatherer.next(&mut walk, carries) {
            rows.push(retry::started(address, &item, buffer.claims, now));
        }
        rows
    }

    /// Divides a claimed batch into batches of at most `lot` jobs. The committer waits briefly for quick jobs: their places
    /// are free before the commit, so a few large commits cost less than many small ones.
    pub(crate) fn deal(&mut self, step: usize, id: BatchId, (first, lot): (BatchId, usize), quick: bool) {
        let Some(StepState { batches, .. }) = self.steps.get_mut(step) else { return };
        let Some(claim) = batches.remove(&id) else { return };
        let parts = claim.deal(lot);
        let end = first.0 + parts.len() as u64;
        batches.extend((first.0..).map(BatchId).zip(parts));
        for id in (first.0..end).filter(|_| quick) {
            self.track_pending_commit(step, BatchId(id), true);
        }
    }

    /// Gives a claimed batch back.
    pub(crate) fn unclaim(&mut self, step: usize, id: BatchId, now: Timestamp, actions: &mut Vec<Action>) {
        let Some(StepState { declared, queued: Some(queued), batches, .. }) = self.steps.get_mut(step) else {
            return;
        };
        let (buffer, Some(held)) = (&mut queued.buffer, batches.get_mut(&id)) else { return };
        let carries = buffer.gatherer.has_provenance(&held.work);
        let (mut walk, mut ran) = (BatchCursor::new(&held.work), BatchResult::default());
        while let Some(item) = buffer.gatherer.next(&mut walk, carries) {
            let mut row = retry::requeue(&declared.address, &item, now);
            row.job.due = Due::Now;
            ran.stays(row, JobOutcome::Unclaimed);
        }
        held.ends.clone_from(&ran.ends);
        let taken = ran.taken;
        held.ran = Some(Box::new(ran));
        self.commit(step, id, taken, actions);
    }

    /// Records the rows of a batch that may run.
    pub(crate) fn on_batch_begun(&mut self, step: usize, id: BatchId, rows: Vec<ParkedKey>) {
        let Some(StepState { queued: Some(queued), batches, .. }) = self.steps.get_mut(step) else { return };
        let (buffer, Some(held)) = (&mut queued.buffer, batches.get_mut(&id)) else { return };
        for (&key, row) in held.picked.iter().zip(&rows) {
            buffer.set_row(key, row.id);
        }
        // Delayed outputs are begun too, and are no claims.
        let mut returned = held.work.portions.iter().flat_map(BatchSlice::returned);
        held.claims = buffer.claims && returned.all(|returned| returned.job.output().is_none());
        held.begun = rows;
    }

    /// Applies the delivery of a batch of picked jobs.
    pub(crate) fn finish_picked_batch(
        &mut self,
        step: usize,
        held: &InFlightBatch,
        stays: Vec<ParkedRow>,
        now: Timestamp,
    ) {
        self.pending_steps.insert(step);
        let Self { dispatcher, steps, .. } = self;
        let queued = steps.get_mut(step).and_then(|state| state.queued.as_mut());
        let Some(QueuedJobs { buffer, pending: watch }) = queued else { return };
        let mut rows = Vec::with_capacity(stays.len());
        for ParkedRow { row, due, is_late, .. } in stays {
            if is_late {
                let key = JobKey::stored(row.id.0);
                buffer.set_row(key, row.id);
                dispatcher.saw_late(step, key, due);
            } else {
                rows.push(row.id);
            }
        }
        let mut rows = rows.iter();
        for (&key, end) in held.picked.iter().zip(&held.ends) {
            match (end, (*end != JobOutcome::Finished).then(|| rows.next()).flatten()) {
                (JobOutcome::Finished, _) => buffer.leaves(key),
                (_, Some(&row)) => buffer.set_row(key, row),
                (_, None) => {}
            }
        }
        let mut walk = BatchCursor::new(&held.work);
        for (&key, end) in held.picked.iter().zip(&held.ends) {
            let Some(item) = buffer.gatherer.next(&mut walk, false) else { break };
            let job = (key, item.index());
            watch.remove(job, now);
            if *end == JobOutcome::Pending {
                watch.add(job, &buffer.attributes.lane(item.payload), now, now);
            }
        }
    }
}
