//! Dispatcher commands: become actions for the threads, and batches of the jobs that were read.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_plugin::Payloads;

use super::{Action, BatchTask, Coordinator, unmatched};
use crate::batch::input::{BatchSlice, ReadBatch};
use crate::batch::result::BatchResult;
use crate::commit::request::{BeginBatch, CommitRequest, Delivery, Rewind, RewindTo, StepChange};
use crate::runtime::readers::{ReadAhead, StoreRequest};
use crate::step::probe_health::ProbeKind;
use crate::step::state::StepState;
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
                    let Some(state) = self.steps.get(step) else { continue };
                    state.stats.ask(ProbeKind::Gate, 0, now);
                    actions.push(Action::LookAtGate { step: state.declared.clone(), epoch: state.epoch });
                }
                Command::PositionAdvanced { step, position } => {
                    if let Some(buffer) = self.steps.get_mut(step).and_then(StepState::buffer) {
                        buffer.forget_up_to(position);
                    }
                }
                Command::ReleaseRead { step, read } => {
                    let Some(state) = self.steps.get_mut(step) else { continue };
                    if state.reads.remove(&read).is_none()
                        && let Some(buffer) = state.buffer()
                    {
                        buffer.release(read);
                    }
                }
                Command::Begin { step, batch, before } => {
                    self.track_pending_commit(step, batch, false);
                    let Some(state) = self.steps.get_mut(step) else { continue };
                    let (declared, is_queued) = (state.declared.clone(), state.is_queued());
                    let StepState { batches, queued, .. } = state;
                    let Some(held) = batches.get_mut(&batch) else { continue };
                    let jobs = held.work.first(held.work.jobs);
                    let places = held.take_places(queued.as_mut().map(|queued| &mut queued.buffer));
                    let rows = if is_queued && before == DurabilityBarrier::Snapshot {
                        let work = held.work.clone();
                        self.begun_rows(step, &work, now)
                    } else {
                        Vec::new()
                    };
                    let events = self
                        .steps
                        .get_mut(step)
                        .map_or_else(Payloads::new, |state| state.begun_events(batch, now));
                    let begin = BeginBatch { step: declared, id: batch, before, jobs, rows, events, places };
                    actions.push(Action::Commit(CommitRequest::Enter(StepChange::Begin(begin))));
                }
                Command::Run { step, batch, aside, is_slow } => {
                    actions.extend(self.run(step, batch, aside, is_slow));
                }
                Command::Split { step, batch, jobs, rest, begun } => {
                    let Some(StepState { batches, .. }) = self.steps.get_mut(step) else { continue };
                    let Some(held) = batches.get_mut(&batch) else { continue };
                    let other = held.split(jobs, rest, begun);
                    let waits = other.ran.is_some();
                    batches.insert(rest, other);
                    self.track_pending_commit(step, rest, !waits);
                }
                Command::Deal { step, batch, first, lot, quick } => {
                    self.deal(step, batch, (first, lot), quick);
                }
                Command::Unclaim { step, batch } => self.unclaim(step, batch, now, actions),
                Command::Return { step, turn } => self.read_turn(step, turn, actions),
                Command::Commit { step, batch, taken } => self.commit(step, batch, taken, actions),
                Command::Keep { step, batch } => self.keep(step, batch, now, actions),
                Command::Drop { step, batch } => {
                    self.track_pending_commit(step, batch, false);
                    let Some(state) = self.steps.get_mut(step) else { continue };
                    if let Some(held) = state.batches.remove(&batch) {
                        state.forget_returned(&held.work);
                    }
                }
                Command::Drained { step } => {
                    self.drained(step, now, &mut more, actions);
                    waiting.extend(more.drain(..));
                }
                Command::GiveBack { step, batches } => {
                    let Some(state) = self.steps.get(step) else { continue };
                    let rewind = StepChange::Rewind(rewind_of(state, &batches));
                    actions.push(Action::Commit(CommitRequest::Enter(rewind)));
                }
                Command::Finish(end) => {
                    self.note_stops(actions);
                    actions.push(Action::Finish(end));
                }
            }
        }
        self.note_stops(actions);
    }

    fn run(&mut self, step: usize, batch: BatchId, aside: bool, is_slow: bool) -> Option<Action> {
        let claims = self.steps.get(step)?.batches.get(&batch)?.claims;
        if aside && !claims {
            // It may take long, and the committer must not wait for it.
            self.track_pending_commit(step, batch, false);
        }
        let StepState { declared, batches, .. } = self.steps.get_mut(step)?;
        let held = batches.get_mut(&batch)?;
        let mut work = held.work.clone();
        // A job that waits in memory is retried.
        work.before = held.ran.as_ref().and_then(|ran| ran.attempt()).map(Arc::new);
        // The rest of a batch is run as its beginning was, and a retry by the present script.
        let before = held.step.take().filter(|_| work.before.is_none());
        let step = before.unwrap_or_else(|| declared.clone());
        held.step = Some(step.clone());
        work.claims = held.begun.iter().filter(|_| held.claims).map(|row| row.id).collect();
        Some(Action::Run(BatchTask { step, id: batch, work, pool: aside, is_slow }))
    }

    fn add_batch_part(&mut self, batch: BatchId, port: InputPort, read: ReadId, skip: usize, jobs: usize) {
        let Some(StepState { reads, batches, .. }) = self.steps.get_mut(port.step) else { return };
        let Some(fetched) = reads.get_mut(&read) else { return };
        let held = batches.entry(batch).or_default();
        // A join has the same number of jobs of each input; the first input counts them.
        if held.work.portions.first().is_none_or(|portion| portion.input == port.input.position()) {
            held.work.jobs += jobs;
        }
        held.work.portions.push(BatchSlice {
            input: port.input.position(),
            batch: Arc::clone(&fetched.batch),
            skip,
            jobs,
            returned: fetched.returned.clone(),
        });
        // The first batch of a read carries its source positions.
        let (mark, segments) = (fetched.mark.take(), std::mem::take(&mut fetched.segments));
        if let Some(input) = port.input.position().filter(|_| mark.is_some() || !segments.is_empty()) {
            held.places.push((input, mark, segments));
        }
        self.track_pending_commit(port.step, batch, true);
    }

    /// Records whether a batch is about to reach the committer. The committer waits for more batches while
    /// some are.
    pub(crate) fn track_pending_commit(&mut self, step: usize, batch: BatchId, coming: bool) {
        let Some(StepState { batches, .. }) = self.steps.get_mut(step) else { return };
        let Some(held) = batches.get_mut(&batch) else { return };
        match (std::mem::replace(&mut held.coming, coming), coming) {
            (false, true) => _ = self.coming.fetch_add(1, Ordering::AcqRel),
            (true, false) => _ = self.coming.fetch_sub(1, Ordering::AcqRel),
            _ => {}
        }
    }

    pub(crate) fn commit(&mut self, step: usize, batch: BatchId, taken: usize, actions: &mut Vec<Action>) {
        // The count must change before the batch is sent.
        self.track_pending_commit(step, batch, false);
        let Some(StepState { declared, batches, queued, .. }) = self.steps.get_mut(step) else { return };
        let Some(held) = batches.get_mut(&batch) else { return };
        let Some(ran) = held.ran.take() else { return };
        let rest = held.rest.take();
        let BatchResult {
            outputs,
            errors,
            delayed,
            keyed,
            outcomes,
            halted_lanes,
            events,
            settles,
            counters,
            failed,
            ..
        } = *ran;
        held.failed = failed;
        let delivery = Delivery {
            step: declared.clone(),
            id: batch,
            jobs: held.jobs(taken),
            outputs,
            errors,
            delayed,
            provisional: Vec::new(),
            keyed,
            outcomes,
            halted_lanes,
            events,
            settles,
            counters,
            bytes: held.work.byte_len(),
            places: held.take_places(queued.as_mut().map(|queued| &mut queued.buffer)),
            rest,
        };
        actions.push(Action::Commit(CommitRequest::Enter(StepChange::Delivery(Box::new(delivery)))));
    }

    /// Requests a read. Jobs in memory are returned at once.
    pub(crate) fn read(
        &mut self,
        port: InputPort,
        from: u64,
        now: Timestamp,
        actions: &mut Vec<Action>,
    ) -> Option<Event> {
        if self.holds_read(port) {
            return Some(Event::Full { port, full: true });
        }
        let state = self.steps.get(port.step)?;
        let (reader, picks, step) = (state.epoch, state.is_queued(), &state.declared);
        let declared = port.input.position().and_then(|input| step.inputs.get(input));
        let queue = match declared.map(|input| input.input) {
            None => {
                let (step, picks) = (step.clone(), false);
                let first = unmatched::queues_to_catch_up(state);
                let what = ReadAhead::Returned { but: self.in_flight_redeliveries(port.step), first };
                actions.push(Action::ReadStore(StoreRequest { step, port, reader, what, picks }));
                return None;
            }
            Some(Input::Source(_)) => {
                actions.push(Action::ReadSource(port));
                return None;
            }
            Some(Input::Queue(queue)) => queue,
        };
        let Some(batch) = self.tails.read(queue.0, from, self.batch.jobs, self.batch.bytes) else {
            let queue = declared?.address.clone();
            let (step, what) = (step.clone(), ReadAhead::Queue { queue, from });
            actions.push(Action::ReadStore(StoreRequest { step, port, reader, what, picks }));
            return None;
        };
        let end = batch.end();
        let fetched = ReadBatch { batch, mark: None, segments: Vec::new(), returned: None };
        let event = self.accept_read(port, fetched, now);
        self.forget_tail(queue, port, end);
        event
    }

    /// Releases the part of the queue cache that every reader has read.
    fn forget_tail(&self, queue: QueueRef, port: InputPort, end: u64) {
        let readers = self.generation.configuration.readers(Input::Queue(queue));
        let others = readers.iter().filter(|&&(step, input)| port != InputPort::of_input(step, input));
        // A step that is about to start reads the store instead of the memory.
        let next = |&(step, input): &(usize, usize)| self.steps.get(step)?.read_up_to.get(input).copied();
        let next = others.filter_map(next).fold(end, u64::min);
        self.tails.forget(queue.0, next);
    }
}

/// Rewind to the first job in these batches, by input of the step. They did not run, so none of their jobs waits.
fn rewind_of(state: &StepState, batches: &[BatchId]) -> Rewind {
    let mut first = vec![RewindTo::Stay; state.declared.inputs.len()];
    let held = batches.iter().filter_map(|batch| state.batches.get(batch));
    for span in held.flat_map(|held| held.work.first(held.work.jobs).spans) {
        first[span.input] = match first[span.input] {
            RewindTo::Index(index) => RewindTo::Index(index.min(span.first)),
            _ => RewindTo::Index(span.first),
        };
    }
    Rewind { step: state.declared.clone(), to: first, waiting: Vec::new() }
}
