//! Tables of parked jobs: keep each under its own number, and find it by its due time and by its inputs.
//!
//! A job with a started attempt is in a table of its own, which has few rows and no index: most of these jobs
//! leave the store with the next commits.

use std::borrow::Cow;
use std::collections::BTreeMap;

use redb::{ReadableTable, ReadableTableMetadata as _, Table, WriteTransaction};

use super::format::{
    self, Bytes, LATE, META, PARKED, PARKED_COUNTS, PARKED_DUE, PARKED_OF, PARKED_STARTED, RecordKey,
    from_ordered, ordered, u64_at, whole,
};
use crate::api::late_job::{LateChanges, LateKey, NewLateJob};
use crate::api::parked_job::{NewParkedJob, ParkedId, ParkedJob, ParkedKey, ParkedTotals};
use crate::codec::parked_record::{ParkedHeader, ReasonKind, decode, encode, header};
use crate::error::StoreCause;
use tidegate_model::{Address, Due};

/// The key of the last number in `meta`.
const LAST_KEY: &str = "parked";

/// Creates the tables.
pub(crate) fn initialise(txn: &WriteTransaction) -> Result<(), StoreCause> {
    txn.open_table(PARKED)?;
    txn.open_table(PARKED_DUE)?;
    txn.open_table(PARKED_OF)?;
    txn.open_table(PARKED_STARTED)?;
    txn.open_table(PARKED_COUNTS)?;
    Ok(())
}

/// Writes the index of parked jobs by their inputs anew, from the rows.
pub(crate) fn renew_inputs(txn: &WriteTransaction) -> Result<(), StoreCause> {
    txn.delete_table(PARKED_OF)?;
    let (rows, mut of) = (txn.open_table(PARKED)?, txn.open_table(PARKED_OF)?);
    let mut found = 0;
    for entry in rows.iter()? {
        let (key, stored) = entry?;
        let (step, id) = key.value();
        let record = RecordKey::Parked(step, id).unseal(stored.value())?;
        for origin in header(record).map_err(|what| unreadable(ParkedId(id), what))?.origins {
            of.insert((step, origin, id), ())?;
        }
        found += 1;
    }
    whole("parked", found, rows.len()?)
}

/// Rows of a commit.
pub(crate) struct RowChanges<'a> {
    pub(crate) unparked: &'a [ParkedKey],
    pub(crate) reparked: &'a [(ParkedKey, ParkedJob)],
    pub(crate) parked: &'a [NewParkedJob],
    pub(crate) late: &'a LateChanges,
}

/// Removes the rows that are no longer parked, replaces those that stay, then adds the new ones. Returns the
/// keys of the new ones, and those of the new late jobs. A row that is gone is not replaced.
pub(crate) fn write(
    txn: &WriteTransaction,
    changes: &RowChanges<'_>,
) -> Result<(Vec<ParkedKey>, Vec<LateKey>), StoreCause> {
    let RowChanges { unparked, reparked, parked, late } = *changes;
    let LateChanges { done, moved, new: new_late } = late;
    if unparked.is_empty() && reparked.is_empty() && parked.is_empty() && late.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let (mut steps, mut rows) = (StepIds::default(), ParkedRows::new(txn));
    for LateKey { queue, id } in done {
        rows.remove((steps.get(txn, queue)? | LATE, *id))?;
    }
    for (LateKey { queue, id }, job) in moved {
        let key = (steps.get(txn, queue)? | LATE, *id);
        if rows.remove(key)? {
            rows.insert(key, &job.clone().into())?;
        }
    }
    for ParkedKey { step, id } in unparked {
        rows.remove((steps.get(txn, step)?, *id))?;
    }
    for (ParkedKey { step, id }, job) in reparked {
        let key = (steps.get(txn, step)?, *id);
        if rows.remove(key)? {
            rows.insert(key, job)?;
        }
    }
    let (mut keys, mut late_keys) = (Vec::with_capacity(parked.len()), Vec::with_capacity(new_late.len()));
    if !parked.is_empty() || !new_late.is_empty() {
        let mut last = last_id(&txn.open_table(META)?)?;
        let mut new = Vec::with_capacity(parked.len() + new_late.len());
        for NewParkedJob { step, job } in parked {
            last += 1;
            new.push(((steps.get(txn, step)?, ParkedId(last)), Cow::Borrowed(job)));
            keys.push(ParkedId(last).of(step));
        }
        for NewLateJob { queue, job } in new_late {
            last += 1;
            new.push(((steps.get(txn, queue)? | LATE, ParkedId(last)), Cow::Owned(job.clone().into())));
            late_keys.push(LateKey { queue: queue.clone(), id: ParkedId(last) });
        }
        // Neighbours in the table are written together.
        new.sort_unstable_by_key(|&(key, _)| key);
        for (key, job) in new {
            rows.insert(key, &job)?;
        }
        write_last_id(txn, last)?;
    }
    rows.finish()?;
    Ok((keys, late_keys))
}

/// The tables of a transaction, each opened when it is needed.
pub(crate) struct ParkedRows<'a> {
    txn: &'a WriteTransaction,
    started: Option<Table<'a, (u32, u64), Bytes>>,
    indexed: Option<IndexedRows<'a>>,
    /// The changes of the totals, by step.
    totals: BTreeMap<u32, TotalsChange>,
}

struct IndexedRows<'a> {
    rows: Table<'a, (u32, u64), Bytes>,
    due: Table<'a, (u32, u8, u64, u64), ()>,
    of: Table<'a, (u32, u64, u64), ()>,
}

#[derive(Clone, Copy, Default)]
struct TotalsChange {
    more: ParkedTotals,
    less: ParkedTotals,
}

impl<'a> ParkedRows<'a> {
    pub(crate) fn new(txn: &'a WriteTransaction) -> Self {
        Self { txn, started: None, indexed: None, totals: BTreeMap::new() }
    }

    /// Whether there was such a row.
    pub(crate) fn remove(&mut self, (step, id): (u32, ParkedId)) -> Result<bool, StoreCause> {
        let is_started = self.started()?.remove((step, id.0))?.is_some();
        let kind = if is_started {
            ReasonKind::Started
        } else {
            let Some(kind) = self.indexed()?.remove((step, id))? else { return Ok(false) };
            kind
        };
        *self.totals.entry(step).or_default().less.of_kind(kind) += 1;
        Ok(true)
    }

    /// Adds a row. Returns whether its number is new.
    pub(crate) fn insert(
        &mut self,
        (step, id): (u32, ParkedId),
        job: &ParkedJob,
    ) -> Result<bool, StoreCause> {
        let kind = ReasonKind::of(&job.reason);
        let is_new = if kind == ReasonKind::Started {
            let record = RecordKey::ParkedStarted(step, id.0).seal(encode(job));
            self.started()?.insert((step, id.0), &*record)?.is_none()
        } else {
            self.indexed()?.insert((step, id), job)?
        };
        *self.totals.entry(step).or_default().more.of_kind(kind) += 1;
        Ok(is_new)
    }

    /// Writes the totals.
    pub(crate) fn finish(self) -> Result<(), StoreCause> {
        let mut counts = self.txn.open_table(PARKED_COUNTS)?;
        for (step, TotalsChange { more, less }) in self.totals {
            let totals = totals(&counts, step)?.plus(more).minus(less);
            counts.insert(step, &*seal_totals(step, totals))?;
        }
        Ok(())
    }

    fn started(&mut self) -> Result<&mut Table<'a, (u32, u64), Bytes>, StoreCause> {
        match &mut self.started {
            Some(started) => Ok(started),
            none => Ok(none.insert(self.txn.open_table(PARKED_STARTED)?)),
        }
    }

    fn indexed(&mut self) -> Result<&mut IndexedRows<'a>, StoreCause> {
        match &mut self.indexed {
            Some(indexed) => Ok(indexed),
            none => Ok(none.insert(IndexedRows {
                rows: self.txn.open_table(PARKED)?,
                due: self.txn.open_table(PARKED_DUE)?,
                of: self.txn.open_table(PARKED_OF)?,
            })),
        }
    }
}

impl IndexedRows<'_> {
    fn remove(&mut self, (step, id): (u32, ParkedId)) -> Result<Option<ReasonKind>, StoreCause> {
        let Some(stored) = self.rows.remove((step, id.0))? else { return Ok(None) };
        let record = RecordKey::Parked(step, id.0).unseal(stored.value())?;
        let ParkedHeader { kind, due, origins } = header(record).map_err(|what| unreadable(id, what))?;
        self.due.remove(due_key(step, due, id))?;
        for origin in origins {
            self.of.remove((step, origin, id.0))?;
        }
        Ok(Some(kind))
    }

    fn insert(&mut self, (step, id): (u32, ParkedId), job: &ParkedJob) -> Result<bool, StoreCause> {
        let ParkedHeader { due, origins, .. } = ParkedHeader::of(job);
        let record = RecordKey::Parked(step, id.0).seal(encode(job));
        let is_new = self.rows.insert((step, id.0), &*record)?.is_none();
        self.due.insert(due_key(step, due, id), ())?;
        for origin in origins {
            self.of.insert((step, origin, id.0), ())?;
        }
        Ok(is_new)
    }
}

impl ParkedTotals {
    pub(crate) fn of_kind(&mut self, kind: ReasonKind) -> &mut u64 {
        match kind {
            ReasonKind::Delayed => &mut self.delayed,
            ReasonKind::Output => &mut self.outputs,
            ReasonKind::Started | ReasonKind::Finished => &mut self.started,
            ReasonKind::Pending | ReasonKind::Completed => &mut self.pending,
        }
    }

    fn plus(self, more: Self) -> Self {
        self.zip(more, u64::saturating_add)
    }

    fn minus(self, less: Self) -> Self {
        self.zip(less, u64::saturating_sub)
    }

    fn zip(self, other: Self, with: fn(u64, u64) -> u64) -> Self {
        Self {
            delayed: with(self.delayed, other.delayed),
            outputs: with(self.outputs, other.outputs),
            started: with(self.started, other.started),
            pending: with(self.pending, other.pending),
        }
    }
}

/// Numbers of steps, each looked up once.
#[derive(Default)]
struct StepIds<'a>(BTreeMap<&'a Address, u32>);

impl<'a> StepIds<'a> {
    fn get(&mut self, txn: &WriteTransaction, address: &'a Address) -> Result<u32, StoreCause> {
        if let Some(&id) = self.0.get(address) {
            return Ok(id);
        }
        let id = format::intern(txn, address)?;
        self.0.insert(address, id);
        Ok(id)
    }
}

/// The key of a row in the table of due times.
pub(crate) fn due_key(step: u32, due: Due, id: ParkedId) -> (u32, u8, u64, u64) {
    let (kind, time) = due_parts(due);
    (step, kind, time, id.0)
}

pub(crate) fn due_parts(due: Due) -> (u8, u64) {
    match due {
        Due::Now => (0, 0),
        Due::Hastened(time) => (1, ordered(time)),
        Due::At(time) => (2, ordered(time)),
        Due::Never => (3, 0),
    }
}

/// The inverse of [`due_parts`].
pub(crate) fn due_of((kind, time): (u8, u64)) -> Result<Due, StoreCause> {
    match kind {
        0 => Ok(Due::Now),
        1 => Ok(Due::Hastened(from_ordered(time))),
        2 => Ok(Due::At(from_ordered(time))),
        3 => Ok(Due::Never),
        _ => Err(StoreCause::Damaged(format!("the due time of kind {kind} is unknown"))),
    }
}

/// The job of a row of the table `parked`.
pub(crate) fn unseal(step: u32, id: ParkedId, stored: &[u8]) -> Result<ParkedJob, StoreCause> {
    decode(RecordKey::Parked(step, id.0).unseal(stored)?).map_err(|what| unreadable(id, what))
}

/// The job of a row of the table `parked_started`.
pub(crate) fn unseal_started(step: u32, id: ParkedId, stored: &[u8]) -> Result<ParkedJob, StoreCause> {
    decode(RecordKey::ParkedStarted(step, id.0).unseal(stored)?).map_err(|what| unreadable(id, what))
}

fn unreadable(ParkedId(id): ParkedId, what: &str) -> StoreCause {
    StoreCause::Damaged(format!("the parked job {id} cannot be read: {what}"))
}

/// Numbers of parked jobs of the step with this number.
pub(crate) fn totals(counts: &impl ReadableTable<u32, Bytes>, step: u32) -> Result<ParkedTotals, StoreCause> {
    let Some(stored) = counts.get(step)? else { return Ok(ParkedTotals::default()) };
    let bytes: [u8; 32] = RecordKey::ParkedCount(step).unseal_exact(stored.value())?;
    let [delayed, outputs, started, pending] = [0, 8, 16, 24].map(|at| u64_at(&bytes, at));
    Ok(ParkedTotals { delayed, outputs, started, pending })
}

fn seal_totals(step: u32, totals: ParkedTotals) -> Vec<u8> {
    let ParkedTotals { delayed, outputs, started, pending } = totals;
    let numbers = [delayed, outputs, started, pending];
    RecordKey::ParkedCount(step).seal(numbers.into_iter().flat_map(u64::to_le_bytes).collect())
}

/// The last number that a job received; 0 if none ever did.
pub(crate) fn last_id(meta: &impl ReadableTable<&'static str, Bytes>) -> Result<u64, StoreCause> {
    let Some(stored) = meta.get(LAST_KEY)? else { return Ok(0) };
    RecordKey::Meta(LAST_KEY).unseal_exact(stored.value()).map(u64::from_le_bytes)
}

pub(crate) fn write_last_id(txn: &WriteTransaction, last: u64) -> Result<(), StoreCause> {
    let record = RecordKey::Meta(LAST_KEY).seal(last.to_le_bytes().to_vec());
    txn.open_table(META)?.insert(LAST_KEY, &*record)?;
    Ok(())
}
