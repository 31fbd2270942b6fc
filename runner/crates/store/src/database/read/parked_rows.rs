//! Reads of parked jobs: by due time, by number, and by the jobs that they were made from.

use std::ops::Bound;

use redb::{ReadOnlyTable, ReadTransaction, ReadableTable as _};

use super::Store;
use crate::api::parked_job::{ParkedId, ParkedJob, ParkedKey, ParkedPosition, ParkedTotals};
use crate::codec::bytes::Wrong;
use crate::codec::parked_record::{index_in, is_of, origin, unfinished};
use crate::database::format::{
    self, Bytes, META, NAMES, Names, PARKED, PARKED_COUNTS, PARKED_DUE, PARKED_OF, PARKED_STARTED, RecordKey,
    ordered,
};
use crate::database::parked::{due_key, due_of, due_parts, last_id, totals, unseal, unseal_started};
use crate::error::{ReadError, StoreCause};
use tidegate_model::{Address, Due, NamedKind, Timestamp};

/// A parked job with its number.
pub(crate) type Row = (ParkedId, ParkedJob);

impl Store {
    /// The jobs of `step` that are due at `until` or before, after `after`: started ones first, then in order
    /// of due time. At most `jobs` of them, and at most `bytes` bytes with their provenance, but at least one.
    pub fn due(
        &self,
        step: &Address,
        until: Due,
        after: Option<ParkedPosition>,
        jobs: usize,
        bytes: usize,
    ) -> Result<Vec<(ParkedKey, ParkedJob)>, ReadError> {
        self.of_step(step, |txn, number| {
            let found = rows_due(txn, number, (until, after), jobs, bytes)?;
            Ok(found.into_iter().map(|(id, job)| (id.of(step), job)).collect())
        })
    }

    /// The first jobs of `step` in order of due time, of those that wait for a time. At most `jobs` and `bytes` of them,
    /// as of [`Self::due`].
    pub fn first_delayed(
        &self,
        step: &Address,
        jobs: usize,
        bytes: usize,
    ) -> Result<Vec<(ParkedKey, ParkedJob)>, ReadError> {
        // Jobs that were put back are due at once, and numbers start above 0.
        let after = ParkedPosition { due: Some(Due::At(Timestamp::EARLIEST)), id: ParkedId(0) };
        self.due(step, Due::At(Timestamp(i64::MAX)), Some(after), jobs, bytes)
    }

    /// The parked jobs with these keys; `None` for missing ones.
    pub fn parked(&self, keys: &[ParkedKey]) -> Result<Vec<Option<ParkedJob>>, ReadError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        self.view(|txn| {
            let names = txn.open_table(NAMES)?;
            let (rows, started) = (txn.open_table(PARKED)?, txn.open_table(PARKED_STARTED)?);
            let find = |key: &ParkedKey| {
                let Some(step) = format::find_id(&names, &key.step)? else { return Ok(None) };
                if let Some(stored) = rows.get((step, key.id.0))? {
                    return unseal(step, key.id, stored.value()).map(Some);
                }
                let stored = started.get((step, key.id.0))?;
                stored.map(|stored| unseal_started(step, key.id, stored.value())).transpose()
            };
            let find_renamed = |key: &ParkedKey| match find(key)? {
                Some(job) => Ok(Some(job)),
                None => match self.present_name(NamedKind::Step, &key.step) {
                    Some(step) => find(&key.id.of(&step)),
                    None => Ok(None),
                },
            };
            keys.iter().map(find_renamed).collect()
        })
    }

    /// The first of [`Self::parked_of`]; the input is named as in delivery hashes.
    pub fn first_parked_of(
        &self,
        step: &Address,
        input: (&str, u64),
    ) -> Result<Option<(ParkedKey, ParkedJob)>, ReadError> {
        Ok(self.parked_of(step, input)?.into_iter().next())
    }

    /// All parked jobs of `step` that were made from this job, in the order of [`Self::due`]. The time does
    /// not depend on the number of other jobs, except for those with a started attempt.
    pub fn parked_of(
        &self,
        step: &Address,
        (input, index): (&str, u64),
    ) -> Result<Vec<(ParkedKey, ParkedJob)>, ReadError> {
        self.of_step(step, |txn, id| {
            let mut found: Vec<Row> = Vec::new();
            for entry in txn.open_table(PARKED_STARTED)?.range((id, 0)..=(id, u64::MAX))? {
                let (key, stored) = entry?;
                let number = ParkedId(key.value().1);
                let record = RecordKey::ParkedStarted(id, number.0).unseal(stored.value())?;
                if is_of(record, input, index) {
                    found.push((number, unseal_started(id, number, stored.value())?));
                }
            }
            let (rows, of) = (txn.open_table(PARKED)?, origin(input, index));
            for entry in txn.open_table(PARKED_OF)?.range((id, of, 0)..=(id, of, u64::MAX))? {
                let number = ParkedId(entry?.0.value().2);
                let is_of = |job: &ParkedJob| job.inputs.iter().any(|(name, at)| origin(name, *at) == of);
                let job = indexed(&rows, id, number, is_of)?;
                if job.inputs.iter().any(|(name, at)| name == input && *at == index) {
                    found.push((number, job));
                }
            }
            found.sort_by_key(|(number, job)| ParkedPosition::of(*number, job));
            Ok(found.into_iter().map(|(number, job)| (number.of(step), job)).collect())
        })
    }

    /// All claimed jobs, begun or not.
    pub fn all_claimed(&self) -> Result<Vec<(ParkedKey, ParkedJob)>, ReadError> {
        self.view(|txn| {
            let names = Names::read(&txn.open_table(NAMES)?)?;
            let mut claimed = Vec::new();
            for entry in txn.open_table(PARKED_STARTED)?.iter()? {
                let (key, stored) = entry?;
                let (step, number) = key.value();
                let job = unseal_started(step, ParkedId(number), stored.value())?;
                if job.is_claimed() {
                    claimed.push((ParkedId(number).of(names.get(step)?), job));
                }
            }
            Ok(claimed)
        })
    }

    /// The last number that a parked job received; 0 if none ever did.
    pub fn last_parked(&self) -> Result<ParkedId, ReadError> {
        self.view(|txn| last_id(&txn.open_table(META)?).map(ParkedId))
    }

    /// The due time of the first parked job of `step`, or of the first one that waits for a time after
    /// `after`. Jobs that no time makes due do not count.
    pub fn next_due(&self, step: &Address, after: Option<Timestamp>) -> Result<Option<Timestamp>, ReadError> {
        self.of_step(step, |txn, number| next_due(txn, number, after))
    }

    /// Numbers of parked jobs of `step`. The time does not depend on them.
    pub fn parked_totals(&self, step: &Address) -> Result<ParkedTotals, ReadError> {
        self.of_step(step, |txn, id| totals(&txn.open_table(PARKED_COUNTS)?, id))
    }

    /// The lowest index in `input`, named as in delivery hashes, of a job of `step` that is begun, delayed or
    /// pending. The time depends on the number of parked jobs.
    pub fn first_unfinished(&self, step: &Address, input: &str) -> Result<Option<u64>, ReadError> {
        let mut first: Option<u64> = None;
        self.each_parked(step, |record| {
            first = first.into_iter().chain(unfinished(record, input)?).min();
            Ok(())
        })?;
        Ok(first)
    }

    /// The indices in `input`, named as in delivery hashes, of the parked jobs of `step`, in no order; without outputs that
    /// are due later.
    pub fn parked_indices(&self, step: &Address, input: &str) -> Result<Vec<u64>, ReadError> {
        let mut indices = Vec::new();
        self.each_parked(step, |record| {
            indices.extend(index_in(record, input)?);
            Ok(())
        })?;
        Ok(indices)
    }

    /// Calls `each` with the record of every parked job of `step`.
    fn each_parked(
        &self,
        step: &Address,
        mut each: impl FnMut(&[u8]) -> Result<(), Wrong>,
    ) -> Result<(), ReadError> {
        self.of_step(step, |txn, id| {
            let ParkedTotals { delayed, started, pending, .. } = totals(&txn.open_table(PARKED_COUNTS)?, id)?;
            let mut add = |record: &[u8]| {
                each(record)
                    .map_err(|what| StoreCause::Damaged(format!("a parked job cannot be read: {what}")))
            };
            if started > 0 {
                for entry in txn.open_table(PARKED_STARTED)?.range((id, 0)..=(id, u64::MAX))? {
                    let (key, stored) = entry?;
                    add(RecordKey::ParkedStarted(id, key.value().1).unseal(stored.value())?)?;
                }
            }
            if delayed + pending > 0 {
                for entry in txn.open_table(PARKED)?.range((id, 0)..=(id, u64::MAX))? {
                    let (key, stored) = entry?;
                    add(RecordKey::Parked(id, key.value().1).unseal(stored.value())?)?;
                }
            }
            Ok(())
        })
    }

    /// Number of parked jobs of `step`.
    pub fn parked_count(&self, step: &Address) -> Result<u64, ReadError> {
        Ok(self.parked_totals(step)?.all())
    }

    /// Reads something of a step, which has nothing if it has no number.
    pub(crate) fn of_step<T: Default>(
        &self,
        step: &Address,
        read: impl FnOnce(&ReadTransaction, u32) -> Result<T, StoreCause>,
    ) -> Result<T, ReadError> {
        self.view(|txn| match format::find_id(&txn.open_table(NAMES)?, step)? {
            Some(id) => read(txn, id),
            None => Ok(T::default()),
        })
    }
}

/// The rows under a number, as [`Store::due`] returns them.
pub(crate) fn rows_due(
    txn: &ReadTransaction,
    number: u32,
    (until, after): (Due, Option<ParkedPosition>),
    jobs: usize,
    bytes: usize,
) -> Result<Vec<Row>, StoreCause> {
    let (mut found, mut found_bytes) = (Vec::new(), 0);
    let mut add = |id: ParkedId, job: ParkedJob| {
        found_bytes += job.payload.len() + job.carried.as_ref().map_or(0, String::len);
        let fits = found.is_empty() || found.len() < jobs && found_bytes <= bytes;
        if fits {
            found.push((id, job));
        }
        fits
    };
    let from = match after {
        None => Some(0),
        Some(ParkedPosition { due: None, id }) => id.0.checked_add(1),
        Some(ParkedPosition { due: Some(_), .. }) => None,
    };
    if let Some(from) = from {
        for entry in txn.open_table(PARKED_STARTED)?.range((number, from)..=(number, u64::MAX))? {
            let (key, stored) = entry?;
            let id = ParkedId(key.value().1);
            if !add(id, unseal_started(number, id, stored.value())?) {
                return Ok(found);
            }
        }
    }
    let start = match after.and_then(|after| Some((after.due?, after.id))) {
        Some((due, id)) => Bound::Excluded(due_key(number, due, id)),
        None => Bound::Included((number, 0, 0, 0)),
    };
    let end = due_key(number, until, ParkedId(u64::MAX));
    // If `after` is not due yet, no later row is.
    if matches!(start, Bound::Excluded(start) if start >= end) {
        return Ok(found);
    }
    let rows = txn.open_table(PARKED)?;
    for entry in txn.open_table(PARKED_DUE)?.range((start, Bound::Included(end)))? {
        let (_, kind, time, id) = entry?.0.value();
        let (due, id) = (due_of((kind, time))?, ParkedId(id));
        if !add(id, indexed(&rows, number, id, |job| job.due == due)?) {
            break;
        }
    }
    Ok(found)
}

/// The due time of the first row under a number, as [`Store::next_due`] returns it.
pub(crate) fn next_due(
    txn: &ReadTransaction,
    number: u32,
    after: Option<Timestamp>,
) -> Result<Option<Timestamp>, StoreCause> {
    let is_started = |txn: &ReadTransaction| {
        let started = txn.open_table(PARKED_STARTED)?;
        let first = started.range((number, 0)..=(number, u64::MAX))?.next().transpose()?;
        Ok::<_, StoreCause>(first.is_some())
    };
    if after.is_none() && is_started(txn)? {
        return Ok(Some(Timestamp::EARLIEST));
    }
    let (kind, _) = due_parts(Due::At(Timestamp::EARLIEST));
    let start = match after {
        Some(after) => Bound::Excluded((number, kind, ordered(after), u64::MAX)),
        None => Bound::Included((number, 0, 0, 0)),
    };
    let end = Bound::Excluded(due_key(number, Due::Never, ParkedId(0)));
    let first = txn.open_table(PARKED_DUE)?.range((start, end))?.next().transpose()?;
    let Some((key, _)) = first else { return Ok(None) };
    let (_, kind, time, _) = key.value();
    Ok(due_of((kind, time))?.time())
}

/// The job that an index names. `is_it`: whether the index is right.
fn indexed(
    rows: &ReadOnlyTable<(u32, u64), Bytes>,
    step: u32,
    id: ParkedId,
    is_it: impl Fn(&ParkedJob) -> bool,
) -> Result<ParkedJob, StoreCause> {
    let stored = rows.get((step, id.0))?;
    let job = stored.map(|stored| unseal(step, id, stored.value())).transpose()?;
    job.filter(is_it).ok_or_else(|| {
        StoreCause::Damaged(format!("the parked job {} is missing, or its index is wrong", id.0))
    })
}
