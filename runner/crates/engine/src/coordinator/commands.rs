//! Dispatcher commands: become actions for the threads, and batches of the jobs that were read.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Action, BatchTask, Coordinator};
use crate::batch::input::{BatchSlice, ReadBatch};
use crate::batch::result::BatchResult;
use crate::commit::request::{BeginBatch, CommitRequest, Delivery, Rewind, RewindTo, StepChange};
use crate::runtime::readers::{ReadAhead, StoreRequest};
use crate::step::probe_health::ProbeKind;
use tidegate_config::{Input, QueueRef};
use tidegate_dispatch::{BatchId, Command, DurabilityBarrier, Event, InputPort, ReadId};
use tidegate_model::Timestamp;

impl Coordinator {
    pub(crate) fn execute_commands(
        &mut self,
        commands: Vec<Command>,
        now: Timestamp,
        actions: &mut Vec<Action>,
    ) {
        self.note_stops(actions);
        let mut waiting = VecDeque::from(commands);
        let mut more = Vec::new();
        while let Some(command) = waiting.pop_front() {
            match command {
                Command::Read { port, from } => {
                    if let Some(event) = self.read(port, from, now, actions) {
                        self.dispatcher.handle(event, now, &mut more);
                        waiting.extend(more.drain(..));
                    }
                }
                Command::AddToBatch { batch, port, read, skip, jobs } => {
                    self.add_batch_part(batch, port, read, skip, jobs);
                }
                Command::FetchJobs { step, batch, jobs } => {
                    if let Some(event) = self.build_picked_batch(step, batch, jobs, now, actions) {
                        self.dispatcher.handle(event, now, &mut more);
                        waiting.extend(more.drain(..));
                    }
                }
                Command::CheckGate { step } => {
                    self.stats.step(step).ask(ProbeKind::Gate, now);
                    actions.push(Action::LookAtGate(step));
                }
                Command::WatermarkAdvanced { step, watermark } => {
                    if let Some(buffer) = &mut self.buffers[step] {
                        buffer.forget_up_to(watermark);
                    }
                }
                Command::ReleaseRead { read } => {
                    if self.reads.remove(&read).is_none() {
                        self.buffers.iter_mut().flatten().for_each(|buffer| buffer.release(read));
                    }
                }
                Command::Begin { step, batch, before } => {
                    self.track_pending_commit(batch, false);
                    let Some(held) = self.held.get_mut(&batch) else { continue };
                    let jobs = held.work.first(held.work.jobs);
                    let places = std::mem::take(&mut held.places);
                    let rows = if self.buffers[step].is_some() && before == DurabilityBarrier::Snapshot {
                        let work = held.work.clone();
                        self.begun_rows(step, &work, now)
                    } else {
                        Vec::new()
                    };
                    let begin = BeginBatch { step, id: batch, before, jobs, rows, places };
                    actions.push(Action::Commit(CommitRequest::Enter(StepChange::Begin(begin))));
                }
                Command::Run { step, batch } => {
                    let Some(held) = self.held.get(&batch) else { continue };
                    let mut work = held.work.clone();
                    // A job that waits in memory is retried.
                    work.before = held.ran.as_ref().and_then(|ran| ran.attempt()).map(Arc::new);
                    let pool = self.buffers[step].as_ref().is_some_and(|buffer| buffer.pool);
                    actions.push(Action::Run(BatchTask { step, id: batch, work, pool }));
                }
                Command::Split { batch, jobs, rest, begun } => {
                    let Some(held) = self.held.get_mut(&batch) else { continue };
                    let other = held.split(jobs, rest, begun);
                    let waits = other.ran.is_some();
                    self.held.insert(rest, other);
                    self.track_pending_commit(rest, !waits);
                }
                Command::Return { step, turn } => self.read_turn(step, turn, actions),
                Command::Commit { step, batch, taken } => self.commit(step, batch, taken, actions),
                Command::Drop { batch } => {
                    self.track_pending_commit(batch, false);
                    if let Some(held) = self.held.remove(&batch) {
                        self.forget_returned(&held.work);
                    }
                }
                Command::Rewind { step } => {
                    let to = self.rewinds.get(&step).map(|(to, _)| to.clone()).unwrap_or_default();
                    let rewind = Rewind { step, to };
                    actions.push(Action::Commit(CommitRequest::Enter(StepChange::Rewind(rewind))));
                }
                Command::GiveBack { step, batches } => {
                    let rewind = Rewind { step, to: self.first_of(step, &batches) };
                    actions.push(Action::Commit(CommitRequest::Enter(StepChange::Rewind(rewind))));
                }
                Command::Finish(end) => {
                    self.note_stops(actions);
                    actions.push(Action::Finish(end));
                }
            }
        }
        self.note_stops(actions);
    }

    /// Index of the first job in these batches, by input of the step.
    fn first_of(&self, step: usize, batches: &[BatchId]) -> Vec<RewindTo> {
        let mut first = vec![RewindTo::Stay; self.configuration.steps[step].inputs.len()];
        let held = batches.iter().filter_map(|batch| self.held.get(batch));
        for span in held.flat_map(|held| held.work.first(held.work.jobs).spans) {
            first[span.input] = match first[span.input] {
                RewindTo::Index(index) => RewindTo::Index(index.min(span.first)),
                RewindTo::Stay => RewindTo::Index(span.first),
            };
        }
        first
    }

    fn add_batch_part(&mut self, batch: BatchId, port: InputPort, read: ReadId, skip: usize, jobs: usize) {
        let Some(fetched) = self.reads.get_mut(&read) else { return };
        let held = self.held.entry(batch).or_default();
        held.step = port.step;
        // A join has the same number of jobs of each input; the first input counts them.
        if held.work.portions.first().is_none_or(|portion| portion.input == port.input) {
            held.work.jobs += jobs;
        }
        held.work.portions.push(BatchSlice {
            input: port.input,
            batch: Arc::clone(&fetched.batch),
            skip,
            jobs,
            returned: fetched.returned.clone(),
        });
        // The first batch of a read carries its source positions.
        let (mark, segments) = (fetched.mark.take(), std::mem::take(&mut fetched.segments));
        if mark.is_some() || !segments.is_empty() {
            held.places.push((port.input, mark, segments));
        }
        self.track_pending_commit(batch, true);
    }

    /// Records whether a batch is about to reach the committer. The committer waits for more batches while
    /// some are.
    pub(crate) fn track_pending_commit(&mut self, batch: BatchId, coming: bool) {
        let Some(held) = self.held.get_mut(&batch) else { return };
        match (std::mem::replace(&mut held.coming, coming), coming) {
            (false, true) => _ = self.coming.fetch_add(1, Ordering::AcqRel),
            (true, false) => _ = self.coming.fetch_sub(1, Ordering::AcqRel),
            _ => {}
        }
    }

    fn commit(&mut self, step: usize, batch: BatchId, taken: usize, actions: &mut Vec<Action>) {
        // The count must change before the batch is sent.
        self.track_pending_commit(batch, false);
        let Some(held) = self.held.get_mut(&batch) else { return };
        let Some(ran) = held.ran.take() else { return };
        let rest = held.rest.take();
        let BatchResult { outputs, errors, delayed, outcomes, settles, counters, failed, .. } = *ran;
        held.failed = failed;
        let delivery = Delivery {
            step,
            id: batch,
            jobs: held.jobs(taken),
            outputs,
            errors,
            delayed,
            outcomes,
            settles,
            counters,
            bytes: held.work.byte_len(),
            places: std::mem::take(&mut held.places),
            rest,
        };
        actions.push(Action::Commit(CommitRequest::Enter(StepChange::Delivery(Box::new(delivery)))));
    }

    /// Requests a read. Jobs in memory are returned at once.
    fn read(
        &mut self,
        port: InputPort,
        from: u64,
        now: Timestamp,
        actions: &mut Vec<Action>,
    ) -> Option<Event> {
        let reader = self.readers[port.step][port.input];
        let step = &self.configuration.steps[port.step];
        let queue = match step.inputs.get(port.input).map(|input| input.input) {
            None => {
                let (step, but) = (step.address.clone(), self.in_flight_redeliveries(port.step));
                let what = ReadAhead::Returned { step, but };
                actions.push(Action::ReadStore(StoreRequest { port, reader, what, picks: false }));
                return None;
            }
            Some(Input::Source(_)) => {
                actions.push(Action::ReadSource(port));
                return None;
            }
            Some(Input::Queue(queue)) => queue,
        };
        let Some(batch) = self.tails.read(queue.0, from, self.batch.jobs, self.batch.bytes) else {
            let queue = self.configuration.queues[queue.0].address.clone();
            let (what, picks) = (ReadAhead::Queue { queue, from }, self.buffers[port.step].is_some());
            actions.push(Action::ReadStore(StoreRequest { port, reader, what, picks }));
            return None;
        };
        let end = batch.end();
        let fetched = ReadBatch { batch, mark: None, segments: Vec::new(), returned: None };
        let event = self.accept_read(port, fetched, now);
        self.forget_tail(queue, port, end);
        Some(event)
    }

    /// Releases the part of the queue cache that every reader has read.
    fn forget_tail(&self, queue: QueueRef, port: InputPort, end: u64) {
        let readers = self.configuration.readers(Input::Queue(queue));
        let others = readers.iter().filter(|&&reader| reader != (port.step, port.input));
        let next = others.map(|&(step, input)| self.read_up_to[step][input]).fold(end, u64::min);
        self.tails.forget(queue.0, next);
    }
}
