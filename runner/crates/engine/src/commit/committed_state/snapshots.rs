//! Snapshots of begun batches: are numbered in the order of their beginnings, and removed by their deliveries.

use std::collections::BTreeMap;

use super::{CommittedState, PendingCommit};
use crate::commit::request::{BatchJobs, BeginBatch};
use crate::step::declared::DeclaredStep;
use tidegate_model::Timestamp;
use tidegate_store::{Snapshot, SnapshotInput, SnapshotKey};

impl CommittedState {
    /// Adds the snapshot of a batch. Its number follows those of all batches that were begun before: the rest of a batch
    /// that was split before it was begun has a later number than the batches behind it.
    pub(super) fn add_snapshot(&self, begin: &BeginBatch, page: &mut PendingCommit) {
        let position = begin.step.position;
        let committed = self.steps.get(position).map(|step| &step.snapshots);
        let committed = committed.into_iter().flat_map(BTreeMap::values);
        let written = page.numbers.range((position, 0)..=(position, u64::MAX)).map(|(_, number)| number);
        let after = committed.chain(written).max().map_or(0, |last| last + 1);
        let number = begin.id.0.max(after);
        let snapshot = self.snapshot(&begin.step, number, &begin.jobs, page.changes.now);
        if snapshot.is_some() {
            page.numbers.insert((position, begin.id.0), number);
        }
        page.changes.snapshots.extend(snapshot);
    }

    /// Number of the snapshot of a batch, if it has one.
    pub(super) fn snapshot_number(&self, step: usize, batch: u64, page: &PendingCommit) -> Option<u64> {
        let committed = || self.steps.get(step)?.snapshots.get(&batch);
        page.numbers.get(&(step, batch)).or_else(committed).copied()
    }

    /// Removes the snapshot with this number, or all snapshots of the step.
    pub(super) fn settle_snapshots(
        &self,
        step: &DeclaredStep,
        number: Option<u64>,
        page: &mut PendingCommit,
    ) {
        let address = &self.names(step).step(&step.address);
        let is_settled = |one: u64| number.is_none_or(|number| number == one);
        // It may be part of the same group.
        page.changes.snapshots.retain(|one| one.step != *address || !is_settled(one.number));
        let snapshots = self.steps.get(step.position).map(|step| &step.snapshots);
        let settled = snapshots.into_iter().flat_map(BTreeMap::values).filter(|one| is_settled(**one));
        let keys = settled.map(|&number| SnapshotKey { step: address.clone(), number });
        page.changes.done_snapshots.extend(keys);
    }

    /// Snapshot of a batch before its attempt; `None` for redelivered jobs, which have rows of their own in
    /// the store.
    pub(super) fn snapshot(
        &self,
        step: &DeclaredStep,
        number: u64,
        jobs: &BatchJobs,
        time: Timestamp,
    ) -> Option<Snapshot> {
        let names = self.names(step);
        let mut inputs: Vec<SnapshotInput> = Vec::new();
        for span in &jobs.spans {
            let input = &step.inputs[span.input];
            let name = names.input(&input.hash_name());
            let follows =
                |last: &&mut SnapshotInput| last.name == name && last.first + last.jobs == span.first;
            match inputs.last_mut().filter(follows) {
                Some(last) => last.jobs += span.jobs,
                None => inputs.push(SnapshotInput {
                    name,
                    address: names.endpoint(&input.address),
                    first: span.first,
                    jobs: span.jobs,
                }),
            }
        }
        let first = inputs.first()?.name.clone();
        let jobs = inputs.iter().filter(|input| input.name == first).map(|input| input.jobs).sum();
        Some(Snapshot { step: names.step(&step.address), number, inputs, jobs, time })
    }
}
