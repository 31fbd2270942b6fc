//! Delivered ranges: the outcomes and times of deliveries by the place of their job.
//!
//! Jobs of one step and one input are a *series*. Its number represents the names that are in their delivery hashes, so
//! that a renamed part begins a series as it begins new hashes. The ranges of a series are disjoint: a later delivery
//! of the same job cuts the earlier range.
//!
//! A hash is a random key: each job would dirty a page of its own. The ranges of a commit are neighbours.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use redb::{
    ReadOnlyTable, ReadTransaction, ReadableTable, ReadableTableMetadata as _, Table, TableDefinition,
    WriteTransaction,
};

use super::format::{Bytes, RecordKey};
use crate::api::delivery::{DeliveredJob, DeliveredJobs, DeliveryOutcome, DeliveryPlace, DeliveryTimes};
use crate::codec::delivered_record::DeliveredRange;
use crate::error::StoreCause;
use tidegate_model::{Address, Timestamp};

/// By series and last index.
pub(crate) const DELIVERED: TableDefinition<'_, (u32, u64), Bytes> = TableDefinition::new("delivered");
/// By step and input.
pub(crate) const SERIES: TableDefinition<'_, (&str, &str), Bytes> = TableDefinition::new("delivery_series");

/// The indices of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DeliveredSpan {
    pub(crate) series: u32,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// Records the deliveries of a commit. Returns their spans that expire.
pub(crate) fn write(
    txn: &WriteTransaction,
    delivered: &[DeliveredJobs],
    time: Timestamp,
) -> Result<Vec<(Timestamp, DeliveredSpan)>, StoreCause> {
    let mut by_place: BTreeMap<_, Vec<DeliveredJob>> = BTreeMap::new();
    for DeliveredJobs { step, input, jobs, keep_until } in delivered {
        by_place.entry((step, input, *keep_until)).or_default().extend(jobs);
    }
    let mut expiring = Vec::new();
    for ((step, input, keep_until), mut jobs) in by_place {
        let series = intern(txn, step, input)?;
        // The sort is stable: the last delivery of an index is kept.
        jobs.sort_by_key(|job| job.index);
        jobs.dedup_by(|later, earlier| {
            let is_same = later.index == earlier.index;
            if is_same {
                *earlier = *later;
            }
            is_same
        });
        for range in DeliveredRange::of_jobs(&jobs, (time, keep_until)) {
            let span = span(series, &range);
            insert(txn, series, &range)?;
            expiring.extend(keep_until.map(|until| (until, span)));
        }
    }
    Ok(expiring)
}

/// Inserts a range. Returns false if a job of it had an earlier delivery.
pub(crate) fn insert(
    txn: &WriteTransaction,
    series: u32,
    range: &DeliveredRange,
) -> Result<bool, StoreCause> {
    let mut table = txn.open_table(DELIVERED)?;
    let earlier = overlapping(&table, span(series, range))?;
    for earlier in &earlier {
        table.remove((series, earlier.last()))?;
        for rest in [earlier.before(range.first), earlier.behind(range.last())].into_iter().flatten() {
            put(&mut table, series, &rest)?;
        }
    }
    put(&mut table, series, range)?;
    Ok(earlier.is_empty())
}

fn put(
    table: &mut Table<'_, (u32, u64), Bytes>,
    series: u32,
    range: &DeliveredRange,
) -> Result<(), StoreCause> {
    table.insert((series, range.last()), &*seal(series, range))?;
    Ok(())
}

/// Removes the ranges within these spans that may be forgotten at `now`.
pub(crate) fn forget(
    txn: &WriteTransaction,
    spans: &[DeliveredSpan],
    now: Timestamp,
) -> Result<(), StoreCause> {
    let mut table = txn.open_table(DELIVERED)?;
    for span in spans {
        for range in overlapping(&table, *span)? {
            // A later delivery has a later expiry, under which its span is stored too.
            if range.keep_until.is_some_and(|until| until <= now) {
                table.remove((span.series, range.last()))?;
            }
        }
    }
    Ok(())
}

/// The ranges that have jobs of this span, in order.
fn overlapping(
    table: &impl ReadableTable<(u32, u64), Bytes>,
    DeliveredSpan { series, first, last }: DeliveredSpan,
) -> Result<Vec<DeliveredRange>, StoreCause> {
    let mut found = Vec::new();
    for entry in table.range(rows(series, first))? {
        let (key, stored) = entry?;
        let range = unseal(key.value(), stored.value())?;
        if range.first > last {
            break;
        }
        found.push(range);
    }
    Ok(found)
}

/// The keys of the ranges that end at `first` or behind it.
pub(crate) fn rows(series: u32, first: u64) -> RangeInclusive<(u32, u64)> {
    (series, first)..=(series, u64::MAX)
}

/// An outcome with the time of its commit and the times before it.
pub(crate) struct TimedOutcome {
    pub(crate) outcome: DeliveryOutcome,
    pub(crate) ended: Timestamp,
    /// `None` in a record of an older version.
    pub(crate) times: Option<DeliveryTimes>,
}

/// Finds outcomes by place, in one snapshot. It is fast if the places are in order.
pub(crate) struct Deliveries {
    series: ReadOnlyTable<(&'static str, &'static str), Bytes>,
    delivered: ReadOnlyTable<(u32, u64), Bytes>,
    last_series: Option<(Address, String, Option<u32>)>,
    last_range: Option<(u32, DeliveredRange)>,
}

impl Deliveries {
    pub(crate) fn new(txn: &ReadTransaction) -> Result<Self, StoreCause> {
        let (series, delivered) = (txn.open_table(SERIES)?, txn.open_table(DELIVERED)?);
        Ok(Self { series, delivered, last_series: None, last_range: None })
    }

    pub(crate) fn find(&mut self, place: &DeliveryPlace<'_>) -> Result<Option<DeliveryOutcome>, StoreCause> {
        Ok(self.range_of(place)?.and_then(|range| range.outcome(place.index)))
    }

    /// The outcome with its times.
    pub(crate) fn timed(&mut self, place: &DeliveryPlace<'_>) -> Result<Option<TimedOutcome>, StoreCause> {
        Ok(self.range_of(place)?.and_then(|range| {
            let (outcome, times) = (range.outcome(place.index)?, range.times(place.index));
            Some(TimedOutcome { outcome, ended: range.time, times })
        }))
    }

    /// The range that has the job, or the next one.
    fn range_of(&mut self, place: &DeliveryPlace<'_>) -> Result<Option<&DeliveredRange>, StoreCause> {
        let Some(series) = self.series_of(place)? else { return Ok(None) };
        let is_last = |(of, range): &(u32, DeliveredRange)| *of == series && range.has(place.index);
        if !self.last_range.as_ref().is_some_and(is_last) {
            let Some(entry) = self.delivered.range(rows(series, place.index))?.next() else {
                return Ok(None);
            };
            let (key, stored) = entry?;
            self.last_range = Some((series, unseal(key.value(), stored.value())?));
        }
        Ok(self.last_range.as_ref().map(|(_, range)| range))
    }

    fn series_of(
        &mut self,
        DeliveryPlace { step, input, .. }: &DeliveryPlace<'_>,
    ) -> Result<Option<u32>, StoreCause> {
        if let Some((of, from, series)) = &self.last_series
            && (of, from.as_str()) == (*step, *input)
        {
            return Ok(*series);
        }
        let series = find_series(&self.series, &step.to_string(), input)?;
        self.last_series = Some(((*step).clone(), (*input).to_owned(), series));
        Ok(series)
    }
}

/// The number of a series; a new one is assigned if it has none.
pub(crate) fn intern(txn: &WriteTransaction, step: &Address, input: &str) -> Result<u32, StoreCause> {
    let (mut table, step) = (txn.open_table(SERIES)?, step.to_string());
    if let Some(series) = find_series(&table, &step, input)? {
        return Ok(series);
    }
    // Series are never removed, so the count is the last number.
    let series = u32::try_from(table.len()? + 1)
        .map_err(|_| StoreCause::Damaged("the store has too many series of deliveries".into()))?;
    let record = RecordKey::Series(&step, input).seal(series.to_le_bytes().to_vec());
    table.insert((&*step, input), &*record)?;
    Ok(series)
}

fn find_series(
    table: &impl ReadableTable<(&'static str, &'static str), Bytes>,
    step: &str,
    input: &str,
) -> Result<Option<u32>, StoreCause> {
    table.get((step, input))?.map(|stored| unseal_series((step, input), stored.value())).transpose()
}

/// The step and the input of each series, by its number.
pub(crate) fn all_series(txn: &ReadTransaction) -> Result<BTreeMap<u32, (Address, String)>, StoreCause> {
    let mut all = BTreeMap::new();
    for entry in txn.open_table(SERIES)?.iter()? {
        let (key, stored) = entry?;
        let (step, input) = key.value();
        let series = unseal_series((step, input), stored.value())?;
        let address = Address::parse(step)
            .ok_or_else(|| StoreCause::Damaged(format!("`{}` is not a name", step.escape_debug())))?;
        all.insert(series, (address, input.to_owned()));
    }
    Ok(all)
}

pub(crate) fn unseal_series((step, input): (&str, &str), stored: &[u8]) -> Result<u32, StoreCause> {
    RecordKey::Series(step, input).unseal_exact(stored).map(u32::from_le_bytes)
}

pub(crate) fn span(series: u32, range: &DeliveredRange) -> DeliveredSpan {
    DeliveredSpan { series, first: range.first, last: range.last() }
}

fn seal(series: u32, range: &DeliveredRange) -> Vec<u8> {
    RecordKey::Delivered(series, range.last()).seal(range.encode())
}

pub(crate) fn unseal((series, last): (u32, u64), stored: &[u8]) -> Result<DeliveredRange, StoreCause> {
    let place = RecordKey::Delivered(series, last);
    DeliveredRange::decode(last, place.unseal(stored)?)
        .map_err(|what| StoreCause::Damaged(format!("the record {place:?} cannot be read: {what}")))
}
