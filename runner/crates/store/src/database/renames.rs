//! Renamed parts: moves everything that belongs to a part to another address, in one transaction.
//!
//! A step may have the name of a queue, source or sink. The rows of a queue, source or sink keep their number, and
//! the numbers of both names are exchanged: a rename takes the same time for any number of jobs on a queue. The rows of
//! a step move.

use std::collections::{BTreeMap, BTreeSet};

use redb::{ReadTransaction, ReadableTable, TableDefinition, TableError, WriteTransaction};

use super::bindings;
use super::cursors::CURSORS;
use super::format::{
    self, BY_HAND, Bytes, LATE, MARKS, META, NAMES, PARKED, PARKED_STARTED, PROGRESS, QUEUES, QueueRecord,
    RecordKey, SEGMENTS, SINKS, SNAPSHOTS, TICKS,
};
use super::held_lanes::{self, LaneHold};
use super::history;
use super::name_history;
use super::parked::{self, ParkedRows};
use super::pauses::{self, PausedPart};
use super::read::Store;
use super::snapshots::{self, Snapshot};
use super::stops;
use crate::api::parked_job::{ParkedId, ParkedJob};
use crate::error::{ReadError, StoreCause};
use tidegate_model::{Address, NamedKind, PartNames, RenamedPart, Timestamp};

/// The renames of one commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renames {
    /// The number of the generation that makes them.
    pub generation: u64,
    pub parts: Vec<RenamedPart>,
}

impl Store {
    /// All parts that the store has something of. The time depends on their number, not on that of their jobs.
    pub fn known_parts(&self) -> Result<PartNames, ReadError> {
        self.view(|txn| {
            let mut known = PartNames::default();
            let names = format::names(&txn.open_table(NAMES)?)?;
            let by_id: BTreeMap<u32, &Address> = names.iter().map(|(id, address)| (*id, address)).collect();
            let mut inputs = BTreeSet::new();
            for entry in txn.table(PROGRESS)?.iter()? {
                let (step, input) = entry?.0.value();
                inputs.insert(input);
                if let (Some(&step), Some(&input)) = (by_id.get(&step), by_id.get(&input)) {
                    known.step_inputs.entry(step.clone()).or_default().insert(input.clone());
                }
            }
            for (id, address) in &names {
                let endpoint = Endpoint::of(txn, *id)?;
                let kinds = [
                    (is_step(txn, *id)?, &mut known.steps),
                    (endpoint.is_source, &mut known.sources),
                    (endpoint.is_queue, &mut known.queues),
                    (endpoint.is_sink, &mut known.sinks),
                    (inputs.contains(id), &mut known.inputs),
                ];
                for (_, names) in kinds.into_iter().filter(|(is, _)| *is) {
                    names.insert(address.clone());
                }
            }
            for part in PausedPart::ALL {
                let paused = pauses::read(part, &txn.open_table(META)?)?;
                known.steps.extend(paused.into_iter().map(|pause| pause.step));
            }
            known.steps.extend(held_lanes::read(txn)?.into_iter().map(|held| held.step));
            let names = name_history::read(txn)?;
            if !names.since(0).are_the_same() {
                known.returned = names.returned(&history::rollbacks(txn)?);
            }
            Ok(known)
        })
    }
}

/// A transaction that reads or writes.
trait Tables {
    fn table<K: redb::Key + 'static, V: redb::Value + 'static>(
        &self,
        table: TableDefinition<'_, K, V>,
    ) -> Result<impl ReadableTable<K, V>, StoreCause>;

    /// Whether a table that may be missing has a row.
    fn has<V: redb::Value + 'static>(
        &self,
        table: TableDefinition<'_, u32, V>,
        id: u32,
    ) -> Result<bool, StoreCause>;
}

impl Tables for ReadTransaction {
    fn table<K: redb::Key + 'static, V: redb::Value + 'static>(
        &self,
        table: TableDefinition<'_, K, V>,
    ) -> Result<impl ReadableTable<K, V>, StoreCause> {
        Ok(self.open_table(table)?)
    }

    fn has<V: redb::Value + 'static>(
        &self,
        table: TableDefinition<'_, u32, V>,
        id: u32,
    ) -> Result<bool, StoreCause> {
        match self.open_table(table) {
            Ok(table) => Ok(table.get(id)?.is_some()),
            Err(TableError::TableDoesNotExist(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl Tables for WriteTransaction {
    fn table<K: redb::Key + 'static, V: redb::Value + 'static>(
        &self,
        table: TableDefinition<'_, K, V>,
    ) -> Result<impl ReadableTable<K, V>, StoreCause> {
        Ok(self.open_table(table)?)
    }

    fn has<V: redb::Value + 'static>(
        &self,
        table: TableDefinition<'_, u32, V>,
        id: u32,
    ) -> Result<bool, StoreCause> {
        Ok(self.open_table(table)?.get(id)?.is_some())
    }
}

/// The numbers of all inputs that a step has progress on.
fn inputs(txn: &impl Tables) -> Result<BTreeSet<u32>, StoreCause> {
    let mut inputs = BTreeSet::new();
    for entry in txn.table(PROGRESS)?.iter()? {
        inputs.insert(entry?.0.value().1);
    }
    Ok(inputs)
}

/// The queue, source or sink with a number.
struct Endpoint {
    is_source: bool,
    is_queue: bool,
    is_sink: bool,
}

impl Endpoint {
    fn of(txn: &impl Tables, id: u32) -> Result<Self, StoreCause> {
        Ok(Self {
            is_source: txn.table(MARKS)?.range((id, 0)..=(id, u64::MAX))?.next().is_some()
                || txn.table(SEGMENTS)?.range((id, 0)..=(id, u32::MAX))?.next().is_some(),
            is_queue: has_jobs(txn, id)?
                || has_late(txn, id)?
                || txn.has(TICKS, id)?
                || txn.has(CURSORS, id)?,
            is_sink: txn.table(SINKS)?.get(id)?.is_some(),
        })
    }

    /// Whether it has something, besides the progress of its readers.
    fn exists(&self) -> bool {
        self.is_source || self.is_queue || self.is_sink
    }
}

/// Whether jobs of a queue are kept. An empty queue only keeps its indices.
fn has_jobs(txn: &impl Tables, id: u32) -> Result<bool, StoreCause> {
    let stored =
        txn.table(QUEUES)?.get(id)?.map(|stored| QueueRecord::unseal(id, stored.value())).transpose()?;
    Ok(stored.is_some_and(|record| record.first <= record.head))
}

fn has_late(txn: &impl Tables, id: u32) -> Result<bool, StoreCause> {
    let number = id | LATE;
    Ok(txn.table(PARKED)?.range((number, 0)..=(number, u64::MAX))?.next().is_some())
}

/// Continues the indices of both names after their numbers were exchanged: a delivery hash has the name of a queue and
/// the index of a job, and must not occur twice. `moved` is the number of the renamed queue, and `left` that of a queue
/// that is made under its former name.
fn continue_indices(txn: &WriteTransaction, (moved, left): (u32, u32)) -> Result<(), StoreCause> {
    let mut queues = txn.open_table(QUEUES)?;
    let [before, at_new] = [moved, left].map(|id| -> Result<Option<QueueRecord>, StoreCause> {
        queues.get(id)?.map(|stored| QueueRecord::unseal(id, stored.value())).transpose()
    });
    let (before, at_new) = (before?, at_new?);
    let head = |record: &Option<QueueRecord>| record.as_ref().map_or(0, |record| record.head);
    let empty = |head| QueueRecord { head, first: head + 1, bytes: 0 };
    let is_empty = before.as_ref().is_none_or(|record| record.first > record.head);
    // Jobs that move keep their indices.
    if is_empty && head(&before) < head(&at_new) {
        queues.insert(moved, &*empty(head(&at_new)).seal(moved))?;
    }
    match head(&before) {
        // Nothing had an index under the former name.
        0 => drop(queues.remove(left)?),
        head => drop(queues.insert(left, &*empty(head).seal(left))?),
    }
    Ok(())
}

fn is_step(txn: &impl Tables, id: u32) -> Result<bool, StoreCause> {
    Ok(txn.table(PROGRESS)?.range((id, 0)..=(id, u32::MAX))?.next().is_some()
        || txn.table(SNAPSHOTS)?.range((id, 0)..=(id, u64::MAX))?.next().is_some()
        || txn.table(PARKED)?.range((id, 0)..=(id, u64::MAX))?.next().is_some()
        || txn.table(PARKED_STARTED)?.range((id, 0)..=(id, u64::MAX))?.next().is_some())
}

/// Moves the parts, one after the other. A part that has something of its own under the new name receives nothing.
pub(crate) fn write(
    txn: &WriteTransaction,
    Renames { generation, parts }: &Renames,
    now: Timestamp,
) -> Result<(), StoreCause> {
    let mut moved = BTreeMap::new();
    for part in parts {
        let RenamedPart { kind, from, to } = part;
        let (old, new) = (format::intern(txn, from)?, format::intern(txn, to)?);
        match kind {
            NamedKind::Step if !is_step(txn, new)? => {
                StepRows::take(txn, (old, from))?.put(txn, new)?;
                rename_in_meta(txn, (from, to), now)?;
            }
            NamedKind::Endpoint if !Endpoint::of(txn, new)?.exists() && !inputs(txn)?.contains(&new) => {
                format::exchange_ids(txn, (from, old), (to, new))?;
                // The steps of both names stay where they are.
                let (of_old, of_new) = (StepRows::take(txn, (old, from))?, StepRows::take(txn, (new, to))?);
                of_old.put(txn, new)?;
                of_new.put(txn, old)?;
                continue_indices(txn, (old, new))?;
                moved.insert(from.clone(), (to.clone(), old));
            }
            NamedKind::Step | NamedKind::Endpoint => continue,
        }
        name_history::record(txn, *generation, part)?;
    }
    if moved.is_empty() { Ok(()) } else { rename_inputs(txn, &moved) }
}

/// Removes everything of these steps but the first inputs of their bindings.
pub(crate) fn drop_steps(
    txn: &WriteTransaction,
    steps: &[Address],
    now: Timestamp,
) -> Result<(), StoreCause> {
    for step in steps {
        let id = format::intern(txn, step)?;
        let StepRows { bindings, .. } = StepRows::take(txn, (id, step))?;
        bindings::put(txn, id, &bindings)?;
        for part in PausedPart::ALL {
            pauses::write(txn, part, &[(step.clone(), false)], now)?;
        }
    }
    Ok(())
}

/// Pauses, and the stops of the last run.
fn rename_in_meta(
    txn: &WriteTransaction,
    (from, to): (&Address, &Address),
    now: Timestamp,
) -> Result<(), StoreCause> {
    for part in PausedPart::ALL {
        let paused = pauses::read(part, &txn.open_table(META)?)?;
        if paused.into_iter().any(|pause| pause.step == *from) {
            pauses::write(txn, part, &[(from.clone(), false), (to.clone(), true)], now)?;
        }
    }
    stops::rename(txn, from, to)
}

/// Parked jobs and snapshots name the inputs that they were made from. A name without a slash is a binding.
fn rename_inputs(
    txn: &WriteTransaction,
    renamed: &BTreeMap<Address, (Address, u32)>,
) -> Result<(), StoreCause> {
    let (mut readers, mut retries) = (BTreeSet::new(), false);
    let ids: BTreeSet<u32> = renamed.values().map(|(_, id)| *id).collect();
    for entry in txn.open_table(PROGRESS)?.iter()? {
        let (step, input) = entry?.0.value();
        if ids.contains(&input) {
            // An operator may have put errors of it back, for any step.
            retries |= step == BY_HAND;
            readers.insert(step);
        }
    }
    // A step that has begun its first jobs of an input has no progress on it.
    for entry in txn.open_table(SNAPSHOTS)?.iter()? {
        readers.insert(entry?.0.value().0);
    }
    let mut names = format::names(&txn.open_table(NAMES)?)?;
    names.retain(|(id, _)| retries || readers.contains(id));
    let texts: BTreeMap<String, String> =
        renamed.iter().map(|(from, (to, _))| (from.to_string(), to.to_string())).collect();
    for (step, address) in names {
        let mut rows = StepRows::take(txn, (step, &address))?;
        for name in rows.parked.iter_mut().flat_map(|(_, job)| &mut job.inputs).map(|(name, _)| name) {
            rename_input(name, &texts);
        }
        for (queue, _) in rows.parked.iter_mut().filter_map(|(_, job)| job.from_error.as_mut()) {
            if let Some((to, _)) = renamed.get(queue) {
                *queue = to.clone();
            }
        }
        for input in rows.snapshots.iter_mut().flat_map(|snapshot| &mut snapshot.inputs) {
            rename_input(&mut input.name, &texts);
            if let Some((to, _)) = renamed.get(&input.address) {
                input.address = to.clone();
            }
        }
        rows.put(txn, step)?;
    }
    Ok(())
}

/// Renames an input that is named by its address, or by a binding with its address.
fn rename_input(name: &mut String, renamed: &BTreeMap<String, String>) {
    let at = name.find('=').map_or(0, |at| at + 1);
    if let Some(to) = renamed.get(&name[at..]) {
        name.replace_range(at.., to);
    }
}

/// The rows of a step.
#[derive(Default)]
struct StepRows {
    /// By the number of the input.
    progress: Vec<(u32, Vec<u8>)>,
    snapshots: Vec<Snapshot>,
    parked: Vec<(ParkedId, ParkedJob)>,
    bindings: Vec<(String, u32)>,
    held_lanes: Vec<(String, LaneHold)>,
}

impl StepRows {
    /// Removes the rows of the step with this number and address.
    fn take(txn: &WriteTransaction, (step, address): (u32, &Address)) -> Result<Self, StoreCause> {
        let mut taken = Self::default();
        let mut table = txn.open_table(PROGRESS)?;
        for ((_, input), stored) in rows(&table, (step, 0)..=(step, u32::MAX))? {
            taken.progress.push((input, RecordKey::Progress(step, input).unseal(&stored)?.to_vec()));
            table.remove((step, input))?;
        }
        let mut table = txn.open_table(SNAPSHOTS)?;
        for ((_, number), stored) in rows(&table, (step, 0)..=(step, u64::MAX))? {
            taken.snapshots.push(snapshots::unseal((step, number), address, &stored)?);
            table.remove((step, number))?;
        }
        for ((_, id), stored) in rows(&txn.open_table(PARKED)?, (step, 0)..=(step, u64::MAX))? {
            taken.parked.push((ParkedId(id), parked::unseal(step, ParkedId(id), &stored)?));
        }
        for ((_, id), stored) in rows(&txn.open_table(PARKED_STARTED)?, (step, 0)..=(step, u64::MAX))? {
            taken.parked.push((ParkedId(id), parked::unseal_started(step, ParkedId(id), &stored)?));
        }
        taken.bindings = bindings::take(txn, step)?;
        taken.held_lanes = held_lanes::take(txn, step)?;
        let mut moving = ParkedRows::new(txn);
        for (id, _) in &taken.parked {
            moving.remove((step, *id))?;
        }
        moving.finish()?;
        Ok(taken)
    }

    /// Adds them to the step with this number.
    fn put(self, txn: &WriteTransaction, step: u32) -> Result<(), StoreCause> {
        let mut table = txn.open_table(PROGRESS)?;
        for (input, record) in self.progress {
            table.insert((step, input), &*RecordKey::Progress(step, input).seal(record))?;
        }
        let mut table = txn.open_table(SNAPSHOTS)?;
        for snapshot in self.snapshots {
            table.insert((step, snapshot.number), &*snapshots::seal(step, &snapshot)?)?;
        }
        bindings::put(txn, step, &self.bindings)?;
        held_lanes::put(txn, step, &self.held_lanes)?;
        let mut moving = ParkedRows::new(txn);
        for (id, job) in self.parked {
            moving.insert((step, id), &job)?;
        }
        moving.finish()
    }
}

/// The rows of a range, with their keys.
fn rows<K>(
    table: &impl ReadableTable<K, Bytes>,
    range: std::ops::RangeInclusive<K>,
) -> Result<Vec<(K, Vec<u8>)>, StoreCause>
where
    K: redb::Key + for<'k> redb::Value<SelfType<'k> = K> + for<'k> std::borrow::Borrow<K> + 'static,
{
    let mut rows = Vec::new();
    for entry in table.range(range)? {
        let (key, stored) = entry?;
        rows.push((key.value(), stored.value().to_vec()));
    }
    Ok(rows)
}
