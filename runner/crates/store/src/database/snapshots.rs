//! `Snapshot`: the inputs of a step's attempts with external effects, durable before the first of them.

use std::borrow::Cow;

use redb::{ReadableTable as _, WriteTransaction};
use serde::{Deserialize, Serialize};

use super::format::{self, NAMES, Names, RecordKey, SNAPSHOTS};
use super::read::Store;
use crate::error::{ReadError, StoreCause};
use tidegate_model::{Address, Timestamp};

/// The jobs that a step is about to attempt. It is kept until all of them are accounted for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub step: Address,
    /// Together with the step, its key.
    pub number: u64,
    pub inputs: Vec<SnapshotInput>,
    /// Number of attempts.
    pub jobs: u64,
    pub time: Timestamp,
}

/// The jobs of one input, without gaps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotInput {
    /// The name in the delivery hash; see [`tidegate_model::Origins::inputs`].
    pub name: String,
    pub address: Address,
    /// The index of the first job.
    pub first: u64,
    pub jobs: u64,
}

/// The key of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotKey {
    pub step: Address,
    pub number: u64,
}

impl Snapshot {
    #[must_use]
    pub fn key(&self) -> SnapshotKey {
        SnapshotKey { step: self.step.clone(), number: self.number }
    }
}

impl Store {
    /// The open snapshots of `step`, in order of number.
    pub fn snapshots(&self, step: &Address) -> Result<Vec<Snapshot>, ReadError> {
        self.view(|txn| {
            let Some(id) = format::find_id(&txn.open_table(NAMES)?, step)? else { return Ok(Vec::new()) };
            let mut snapshots = Vec::new();
            for entry in txn.open_table(SNAPSHOTS)?.range((id, 0)..=(id, u64::MAX))? {
                let (key, stored) = entry?;
                snapshots.push(unseal(key.value(), step, stored.value())?);
            }
            Ok(snapshots)
        })
    }

    /// All open snapshots, in order of step and number.
    pub fn all_snapshots(&self) -> Result<Vec<Snapshot>, ReadError> {
        self.view(|txn| {
            let names = Names::read(&txn.open_table(NAMES)?)?;
            let mut snapshots = Vec::new();
            for entry in txn.open_table(SNAPSHOTS)?.iter()? {
                let (key, stored) = entry?;
                let key = key.value();
                snapshots.push(unseal(key, names.get(key.0)?, stored.value())?);
            }
            snapshots.sort_by_cached_key(Snapshot::key);
            Ok(snapshots)
        })
    }
}

/// Removes finished snapshots, then adds new ones.
pub(crate) fn write(
    txn: &WriteTransaction,
    settled: &[SnapshotKey],
    snapshots: &[Snapshot],
) -> Result<(), StoreCause> {
    if settled.is_empty() && snapshots.is_empty() {
        return Ok(());
    }
    let mut table = txn.open_table(SNAPSHOTS)?;
    for SnapshotKey { step, number } in settled {
        table.remove((format::intern(txn, step)?, *number))?;
    }
    for snapshot in snapshots {
        let key = (format::intern(txn, &snapshot.step)?, snapshot.number);
        table.insert(key, &*seal(key.0, snapshot)?)?;
    }
    Ok(())
}

/// A snapshot as JSON, without its key.
#[derive(Serialize, Deserialize)]
struct Record<'a> {
    inputs: Cow<'a, [SnapshotInput]>,
    jobs: u64,
    time: i64,
}

/// The record of a snapshot of the step with the number `id`.
pub(crate) fn seal(id: u32, snapshot: &Snapshot) -> Result<Vec<u8>, StoreCause> {
    let Snapshot { number, inputs, jobs, time, .. } = snapshot;
    let record = Record { inputs: inputs.into(), jobs: *jobs, time: time.0 };
    RecordKey::Snapshot(id, *number).seal_json(&record)
}

/// The snapshot of `step` with this key.
pub(crate) fn unseal(
    (id, number): (u32, u64),
    step: &Address,
    stored: &[u8],
) -> Result<Snapshot, StoreCause> {
    let Record { inputs, jobs, time } = RecordKey::Snapshot(id, number).unseal_json(stored)?;
    let inputs = inputs.into_owned();
    Ok(Snapshot { step: step.clone(), number, inputs, jobs, time: Timestamp(time) })
}
