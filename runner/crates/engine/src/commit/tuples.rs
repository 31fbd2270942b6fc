//! Tuples: pair the jobs of joins by key, in the order in which they are committed.
//!
//! A job without its partners is parked in the commit that accounts for it. The commit of the last one of a tuple
//! removes the rows of the others, and appends the tuple to its queue. Each job is parked, in one tuple, or on the error
//! queue, and in one of these places only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_plugin::Payloads;

use super::committer::Committer;
use super::request::{BatchJobs, Delivery, OutputBlock, StepChange};
use super::unmatched_jobs::{UnmatchedJobs, is_provisional};
use crate::batch::join_keys::JoinKeys;
use crate::batch::keyed_job::{KeyedError, KeyedJob};
use crate::batch::provenance::MergedProvenance;
use crate::error::EngineError;
use crate::generation::current::NumberedGeneration;
use crate::runtime::message::{CommitNotice, Message};
use crate::step::declared::DeclaredStep;
use tidegate_config::{InputRef, QueueRef, Target};
use tidegate_model::{Due, NameHistory, NamesSince, Origins, Timestamp};
use tidegate_store::{Append, Changes, NewParkedJob, ParkedId, ParkedJob, ReadError, Store, Writer};

/// Jobs of one step in a group that are not paired yet, by provisional number, each with the position of its delivery.
type Arrivals = BTreeMap<ParkedId, (usize, NewParkedJob)>;

/// The tuples, or the error records, of one delivery.
struct JoinedBlock {
    payloads: Payloads,
    origins: Origins,
    carried: Payloads,
    /// Whether any job has provenance.
    carries: bool,
}

impl JoinedBlock {
    fn new(step: &DeclaredStep) -> Self {
        let names = step.inputs.iter().map(InputRef::hash_name).collect();
        let origins = Origins::new(step.address.clone(), names);
        Self { payloads: Payloads::new(), origins, carried: Payloads::new(), carries: false }
    }

    /// Adds a tuple of these jobs, one of each input at most, in the order of the inputs.
    fn push_tuple(&mut self, step: &DeclaredStep, parts: &[(usize, ParkedJob)]) {
        let mut tuple = Vec::with_capacity(parts.iter().map(|(_, job)| job.payload.len()).sum());
        let (mut indices, mut provenance) = (vec![0; step.inputs.len()], MergedProvenance::default());
        for (side, job) in parts {
            // Each job is a map of its binding, as with `alts`.
            let inner = job.payload.get(1..job.payload.len().saturating_sub(1)).unwrap_or_default();
            tuple.push(if tuple.is_empty() { b'{' } else { b',' });
            tuple.extend_from_slice(inner);
            // A job that came before its binding named this input has no index here.
            let is_here = |(name, _): &&(String, u64)| *name == step.inputs[*side].hash_name();
            indices[*side] = job.inputs.first().filter(is_here).map_or(0, |&(_, index)| index);
            provenance.add(job.carried.as_deref().unwrap_or_default());
        }
        tuple.push(b'}');
        let carried = if drops_provenance(step) { String::new() } else { provenance.into_text() };
        self.push(&tuple, &indices, &carried);
    }

    fn push(&mut self, payload: &[u8], indices: &[u64], carried: &str) {
        self.payloads.push(payload);
        self.origins.push(indices);
        self.carried.push(carried.as_bytes());
        self.carries |= !carried.is_empty();
    }

    /// `None` if there are no jobs.
    fn made(self) -> Option<OutputBlock> {
        let carried = self.carries.then_some(self.carried);
        (!self.payloads.is_empty()).then(|| OutputBlock::for_queue(self.payloads, &self.origins, carried))
    }
}

/// Pairing of the jobs of a group.
struct TupleMaker<'a> {
    store: &'a Store,
    unmatched: &'a mut UnmatchedJobs,
    names: NamesSince<'a>,
    arrivals: &'a mut Arrivals,
    /// Rows of the store that the group has used.
    used: &'a mut BTreeSet<ParkedId>,
}

impl TupleMaker<'_> {
    /// Pairs the jobs of a delivery at position `at` of the group.
    fn pair(&mut self, at: usize, delivery: &mut Delivery) -> Result<(), ReadError> {
        let step = delivery.step.clone();
        let (mut tuples, mut errors) = (JoinedBlock::new(&step), JoinedBlock::new(&step));
        for job in std::mem::take(&mut delivery.keyed) {
            match job {
                KeyedJob::Arrived { key, side, row } => {
                    let id = self.unmatched.add(key, side);
                    self.arrivals.insert(id, (at, *row));
                    if let Some(ids) = self.unmatched.whole(key) {
                        let parts = self.take(&step, &ids, &mut delivery.jobs)?;
                        delivery.counters.taken += parts.len() as u64;
                        tuples.push_tuple(&step, &parts);
                    }
                }
                KeyedJob::Leaves { row, .. } if self.is_gone(&step, row)? => {}
                KeyedJob::Leaves { key, side, row, job } => {
                    self.forget(row);
                    let mut ids = self.unmatched.present(key);
                    ids.retain(|other| self.unmatched.side(*other) != Some(side));
                    let mut parts = self.take(&step, &ids, &mut delivery.jobs)?;
                    parts.push((side, *job));
                    parts.sort_by_key(|(side, _)| *side);
                    delivery.counters.taken += parts.len() as u64;
                    tuples.push_tuple(&step, &parts);
                }
                KeyedJob::Fails { row: Some(row), .. } if self.is_gone(&step, row)? => {
                    // It was paired while its end was on the way.
                    let counters = &mut delivery.counters;
                    counters.failed = counters.failed.saturating_sub(1);
                    counters.taken = counters.taken.saturating_sub(1);
                }
                KeyedJob::Fails { row, record } => {
                    if let Some(row) = row {
                        self.forget(row);
                    }
                    if let Some(KeyedError { record, indices, carried }) = record.map(|record| *record) {
                        errors.push(&record, &indices, &carried);
                    }
                }
            }
        }
        delivery.counters.given += tuples.payloads.len() as u64;
        if let (Some(output), Some(made)) = (delivery.outputs.first_mut(), tuples.made()) {
            *output = made;
        }
        delivery.errors = errors.made();
        Ok(())
    }

    fn forget(&mut self, id: ParkedId) {
        self.unmatched.remove(id);
        self.used.insert(id);
    }

    /// Whether the row is no longer in the store, or will not be after the commit.
    fn is_gone(&self, step: &DeclaredStep, id: ParkedId) -> Result<bool, ReadError> {
        if self.used.contains(&id) {
            return Ok(true);
        }
        let row = id.of(&self.names.step(&step.address));
        Ok(self.store.parked(&[row])?.iter().all(Option::is_none))
    }

    /// Takes these jobs out of the index, and their rows out of the store.
    fn take(
        &mut self,
        step: &DeclaredStep,
        ids: &[ParkedId],
        jobs: &mut BatchJobs,
    ) -> Result<Vec<(usize, ParkedJob)>, ReadError> {
        let mut parts = Vec::with_capacity(ids.len());
        for &id in ids {
            let side = self.unmatched.side(id).unwrap_or_default();
            let job = if is_provisional(id) {
                self.arrivals.remove(&id).map(|(_, row)| row.job)
            } else {
                let job = self.stored(step, id)?;
                jobs.returned.push(id.of(&step.address));
                Some(job)
            };
            self.forget(id);
            parts.extend(job.map(|job| (side, job)));
        }
        Ok(parts)
    }

    fn stored(&self, step: &DeclaredStep, id: ParkedId) -> Result<ParkedJob, ReadError> {
        let own = self.names.step(&step.address);
        let job = self.store.parked(&[id.of(&own)])?.pop().flatten();
        job.ok_or_else(|| lost(step, id))
    }
}

fn lost(step: &DeclaredStep, ParkedId(id): ParkedId) -> ReadError {
    ReadError::Damaged(format!("the join `{}` has lost its parked job {id}", step.address))
}

impl Committer {
    /// Pairs the jobs of joins by key in a group. The jobs without partners are parked with their deliveries.
    pub(crate) fn pair_jobs(&mut self, group: &mut [StepChange]) -> Result<(), EngineError> {
        let mut by_step: BTreeMap<usize, (Arrivals, BTreeSet<ParkedId>)> = BTreeMap::new();
        for (at, entry) in group.iter_mut().enumerate() {
            let StepChange::Delivery(delivery) = entry else { continue };
            let position = delivery.step.position;
            if delivery.keyed.is_empty() || self.broken_steps.contains(&position) {
                continue;
            }
            let (arrivals, used) = by_step.entry(position).or_default();
            let generation = delivery.step.generation.number;
            let Some((unmatched, names)) = self.committed_state.unmatched(position, generation) else {
                continue;
            };
            let mut maker = TupleMaker { store: &self.store, unmatched, names, arrivals, used };
            maker.pair(at, delivery)?;
        }
        for (_, (arrivals, _)) in by_step {
            for (id, (at, row)) in arrivals {
                if let StepChange::Delivery(delivery) = &mut group[at] {
                    delivery.delayed.push(row);
                    delivery.provisional.push(id);
                }
            }
        }
        Ok(())
    }

    /// Publishes the number of unmatched jobs of a step.
    pub(crate) fn publish_unmatched(&self, position: usize) {
        let step = self.committed_state.step(position);
        if let Some(unmatched) = step.and_then(|step| step.unmatched.as_ref()) {
            self.stats.step(position).set_unmatched(unmatched.counts());
        }
    }

    /// Delivers the tuples whose jobs all wait before their step is installed. Jobs that have no key any more become due.
    pub(crate) fn deliver_whole_tuples(&mut self, step: &DeclaredStep) -> Result<(), EngineError> {
        let Some(WholeTuples { queue, made, changes }) = whole_tuples(step, &self.store, self.clock.now())?
        else {
            return Ok(());
        };
        let mut logged = false;
        let committed = loop {
            if let Some(committed) = self.commit_changes(&changes, &mut logged)? {
                break committed;
            }
        };
        let Some(&first) = committed.firsts.first() else { return Ok(()) };
        let grown = vec![self.append_to_queue(queue, first, made.payloads, made.carried, &committed.stamp)];
        // A run that is over receives no messages.
        let _ = self.messages.send(Message::Committed(CommitNotice { grown, ..CommitNotice::default() }));
        Ok(())
    }
}

/// Tuples whose jobs all wait, and jobs that have no key any more: `on` has changed since they were parked.
struct WholeTuples {
    queue: QueueRef,
    made: OutputBlock,
    changes: Changes,
}

/// Delivers the tuples whose jobs all wait, before a run starts. Jobs that have no key any more become due.
pub(crate) fn deliver_before_start(
    generation: &Arc<NumberedGeneration>,
    store: &Store,
    writer: &mut Writer,
    now: Timestamp,
) -> Result<(), EngineError> {
    for (position, step) in generation.configuration.steps.entries() {
        if step.joins.is_none() {
            continue;
        }
        if let Some(found) = whole_tuples(&DeclaredStep::new(generation, position), store, now)? {
            writer.commit(&found.changes)?;
        }
    }
    Ok(())
}

fn whole_tuples(
    step: &DeclaredStep,
    store: &Store,
    now: Timestamp,
) -> Result<Option<WholeTuples>, ReadError> {
    let Some(keys) = JoinKeys::new(step) else { return Ok(None) };
    let mut lost = Vec::new();
    let rows = store.all_parked(&step.address).inspect(|row| {
        if let Ok((key, job)) = row
            && keys.is_lost(job)
            && !job.due.is_by(now)
        {
            lost.push((key.clone(), ParkedJob { due: Due::At(now), ..job.clone() }));
        }
    });
    let mut unmatched = UnmatchedJobs::of_rows(&keys, rows)?;
    let (whole, history) = (unmatched.whole_keys(), NameHistory::default());
    let (mut arrivals, mut used) = (Arrivals::new(), BTreeSet::new());
    let names = history.since(step.generation.number);
    let (arrivals, used) = (&mut arrivals, &mut used);
    let mut maker = TupleMaker { store, unmatched: &mut unmatched, names, arrivals, used };
    let (mut jobs, mut tuples) = (BatchJobs::default(), JoinedBlock::new(step));
    for key in whole {
        while let Some(ids) = maker.unmatched.whole(key) {
            let parts = maker.take(step, &ids, &mut jobs)?;
            tuples.push_tuple(step, &parts);
        }
    }
    let target = step.outputs.first().map(|output| output.target);
    let Some(Target::Queue(queue)) = target else { return Ok(None) };
    let mut made = tuples.made().unwrap_or_default();
    let address = step.configuration().queues[queue.0].address.clone();
    let appends: Vec<_> =
        made.block.take().map(|block| Append { queue: address, block }).into_iter().collect();
    if appends.is_empty() && lost.is_empty() {
        return Ok(None);
    }
    let changes = Changes { now, appends, unparked: jobs.returned, reparked: lost, ..Changes::default() };
    Ok(Some(WholeTuples { queue, made, changes }))
}

/// Whether the queue of the tuples has `meta = false`.
fn drops_provenance(step: &DeclaredStep) -> bool {
    let queue = step.outputs.first().and_then(|output| match output.target {
        Target::Queue(QueueRef(queue)) => step.configuration().queues.get(queue),
        Target::Sink(_) => None,
    });
    queue.is_some_and(|queue| queue.meta.dropped)
}
