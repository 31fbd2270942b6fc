//! Verification: checks all checksums of the store, and the consistency of its parts.

use std::collections::BTreeMap;

use redb::{ReadTransaction, ReadableTable as _, ReadableTableMetadata as _};

use super::bindings;
use super::cursors;
use super::dedupe::{self, Expiring};
use super::delivered::{self, DELIVERED, DeliveredSpan};
use super::format::{
    self, CommitRecord, DELIVERIES, EXPIRIES, GENERATIONS, LATE, LOG, MARKS, META, NAMES, PARKED,
    PARKED_COUNTS, PARKED_DUE, PARKED_OF, PARKED_STARTED, QUEUES, QueueRecord, RecordKey, SEGMENTS, SINKS,
    SNAPSHOTS, TICKS,
};
use super::generations::GenerationRecord;
use super::held_lanes;
use super::history;
use super::name_history;
use super::parked;
use super::pauses::{self, PausedPart};
use super::read::{self, Store};
use super::schedules;
use super::sink_files;
use super::snapshots;
use super::stops;
use super::token_key;
use crate::api::parked_job::{ParkedId, ParkedTotals};
use crate::codec::block::{DecodedJobs, ReadBounds};
use crate::codec::log_record::LogValue;
use crate::codec::parked_record::ParkedHeader;
use crate::error::{ReadError, StoreCause};
use tidegate_model::{Address, DeliveryHash, Segment, SinkPosition, Timestamp};

/// The result of the verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    pub queues: u64,
    /// Values in the log.
    pub values: u64,
    pub jobs: u64,
    /// Bytes of the values in the log.
    pub bytes: u64,
    pub deliveries: u64,
    pub snapshots: u64,
    pub delayed: u64,
    /// The problems, each a sentence fragment; empty if the store is consistent.
    pub problems: Vec<String>,
}

/// Reads everything from one snapshot, and collects all problems instead of stopping at the first.
///
/// # Errors
/// The store cannot be read at all.
pub fn verify(store: &Store) -> Result<VerifyReport, ReadError> {
    store.view(|txn| {
        let mut report = VerifyReport::default();
        let last = CommitRecord::read(&txn.open_table(META)?)?.number;
        let names: BTreeMap<u32, Address> = format::names(&txn.open_table(NAMES)?)?.into_iter().collect();
        let mut heads = BTreeMap::new();
        for entry in txn.open_table(QUEUES)?.iter()? {
            let (id, stored) = entry?;
            let id = id.value();
            let Some(name) = names.get(&id) else {
                report.problems.push(format!("queue number {id} has no name"));
                continue;
            };
            match QueueRecord::unseal(id, stored.value()) {
                Ok(record) => {
                    heads.insert(name.clone(), record.head);
                    report.queue(txn, (id, name), record, last)?;
                }
                Err(cause) => report.problem(cause),
            }
        }
        report.records(txn)?;
        report.deliveries(txn)?;
        report.parked(txn, &names)?;
        report.snapshots(txn, &names)?;
        report.orphans(txn, &names)?;
        report.progress(txn, &heads)?;
        report.problems.extend(history::verify(txn)?);
        Ok(report)
    })
}

impl VerifyReport {
    fn problem(&mut self, cause: StoreCause) {
        self.problems.push(ReadError::from(cause).to_string());
    }

    fn queue(
        &mut self,
        txn: &ReadTransaction,
        (id, name): (u32, &Address),
        record: QueueRecord,
        last: u64,
    ) -> Result<(), StoreCause> {
        const ALL: ReadBounds = ReadBounds { jobs: usize::MAX, bytes: usize::MAX };
        self.queues += 1;
        let (mut next, mut bytes) = (Some(record.first), 0);
        let mut transaction = 0;
        for entry in txn.open_table(LOG)?.range((id, 0)..=(id, u64::MAX))? {
            let (key, stored) = entry?;
            let (_, first) = key.value();
            if let Some(next) = next.filter(|&next| next != first) {
                self.problems.push(format!("queue `{name}`: job {next} must follow, but job {first} does"));
            }
            let mut jobs = DecodedJobs::with_origins();
            let value = LogValue::parse(stored.value(), RecordKey::Log(id, first).seed());
            next = match value.and_then(|value| value.read(0, ALL, &mut jobs).map(|()| value)) {
                Ok(value) => {
                    if value.transaction < transaction || value.transaction > last {
                        self.problems.push(format!(
                            "queue `{name}`: job {first} is of commit {}, behind one of {transaction}, and the \
                             last one is {last}",
                            value.transaction
                        ));
                    }
                    transaction = value.transaction;
                    Some(first + value.jobs)
                }
                Err(what) => {
                    self.problems
                        .push(format!("queue `{name}`: the jobs from {first} on cannot be read: {what}"));
                    None
                }
            };
            self.values += 1;
            self.jobs += jobs.payloads.len() as u64;
            bytes += stored.value().len() as u64;
        }
        if let Some(next) = next.filter(|&next| next != record.head + 1) {
            self.problems.push(format!(
                "queue `{name}` must end at {}, but ends at {}",
                record.head,
                next - 1
            ));
        }
        if bytes != record.bytes {
            self.problems.push(format!("queue `{name}` must take {} bytes, but takes {bytes}", record.bytes));
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Values of a queue without a record.
    fn orphans(&mut self, txn: &ReadTransaction, names: &BTreeMap<u32, Address>) -> Result<(), StoreCause> {
        let queues = txn.open_table(QUEUES)?;
        let log = txn.open_table(LOG)?;
        let mut from = (0, 0);
        while let Some(entry) = log.range(from..)?.next() {
            let (queue, _) = entry?.0.value();
            // A damaged tree may return unrequested rows for ever.
            if queue < from.0 {
                self.problems.push("the log is out of order".to_owned());
                break;
            }
            if !names.contains_key(&queue) || queues.get(queue)?.is_none() {
                self.problems.push(format!("the log has jobs of the unknown queue number {queue}"));
            }
            let Some(next) = queue.checked_add(1) else { break };
            from = (next, 0);
        }
        Ok(())
    }

    /// No step is further than its queue.
    fn progress(&mut self, txn: &ReadTransaction, heads: &BTreeMap<Address, u64>) -> Result<(), StoreCause> {
        for (step, input, progress) in read::all_progress(txn)? {
            // Only queues have heads in the store, since sources keep theirs in their files.
            let Some(&head) = heads.get(&input) else { continue };
            let last = progress.finished().last().map_or(progress.position(), |&(_, last)| last);
            // A step may start at a future job.
            if last > head.max(progress.skipped_up_to()) {
                self.problems.push(format!(
                    "step `{step}` has accounted for job {last} of `{input}`, which ends at {head}"
                ));
            }
        }
        Ok(())
    }

    fn records(&mut self, txn: &ReadTransaction) -> Result<(), StoreCause> {
        for entry in txn.open_table(MARKS)?.iter()? {
            let (key, stored) = entry?;
            let (id, index) = key.value();
            format::unseal_mark(id, index, stored.value()).map_or_else(|cause| self.problem(cause), drop);
        }
        for entry in txn.open_table(SEGMENTS)?.iter()? {
            let (key, stored) = entry?;
            let (id, ordinal) = key.value();
            let segment = RecordKey::Segment(id, ordinal).unseal_json::<Segment>(stored.value());
            segment.map_or_else(|cause| self.problem(cause), drop);
        }
        for entry in txn.open_table(SINKS)?.iter()? {
            let (id, stored) = entry?;
            let position = RecordKey::Sink(id.value()).unseal_json::<SinkPosition>(stored.value());
            position.map_or_else(|cause| self.problem(cause), drop);
        }
        for entry in txn.open_table(GENERATIONS)?.iter()? {
            let (number, stored) = entry?;
            let generation = GenerationRecord::unseal(number.value(), stored.value());
            generation.map_or_else(|cause| self.problem(cause), drop);
        }
        for entry in txn.open_table(TICKS)?.iter()? {
            let (id, stored) = entry?;
            schedules::unseal(id.value(), stored.value()).map_or_else(|cause| self.problem(cause), drop);
        }
        cursors::read(txn).map_or_else(|cause| self.problem(cause), drop);
        bindings::read(txn).map_or_else(|cause| self.problem(cause), drop);
        sink_files::read(txn).map_or_else(|cause| self.problem(cause), drop);
        name_history::read(txn).map_or_else(|cause| self.problem(cause), drop);
        for part in PausedPart::ALL {
            let paused = pauses::read(part, &txn.open_table(META)?);
            paused.map_or_else(|cause| self.problem(cause), drop);
        }
        held_lanes::read(txn).map_or_else(|cause| self.problem(cause), drop);
        stops::read(&txn.open_table(META)?).map_or_else(|cause| self.problem(cause), drop);
        token_key::read(&txn.open_table(META)?).map_or_else(|cause| self.problem(cause), drop);
        Ok(())
    }

    /// Each delivery with an expiry must be in the table of expiries. The ranges of a series must be disjoint.
    fn deliveries(&mut self, txn: &ReadTransaction) -> Result<(), StoreCause> {
        let deliveries = txn.open_table(DELIVERIES)?;
        let (mut limited, mut known) = (self.delivered(txn)?, 0_u64);
        for entry in deliveries.iter()? {
            let (hash, stored) = entry?;
            self.deliveries += 1;
            match dedupe::StoredRecord::unseal(DeliveryHash(hash.value()), stored.value()) {
                Ok(record) => limited += u64::from(record.keep_until.is_some()),
                Err(cause) => self.problem(cause),
            }
        }
        for entry in txn.open_table(EXPIRIES)?.iter()? {
            let (key, stored) = entry?;
            let until = format::from_ordered(key.value().0);
            let hashes = match dedupe::unseal_expiry(key.value(), stored.value()) {
                Ok(Expiring::Hashes(hashes)) => hashes,
                Ok(Expiring::Spans(spans)) => {
                    for span in spans {
                        known += expiring_jobs(txn, span, until)?;
                    }
                    continue;
                }
                Err(cause) => {
                    self.problem(cause);
                    continue;
                }
            };
            for hash in hashes {
                let Some(stored) = deliveries.get(hash.0)? else { continue };
                let record = dedupe::StoredRecord::unseal(hash, stored.value());
                known += u64::from(record.is_ok_and(|record| record.keep_until == Some(until)));
            }
        }
        if known < limited {
            self.problems.push(format!(
                "{limited} deliveries have an expiry, but only {known} of them are in its table"
            ));
        }
        Ok(())
    }

    /// Returns the number of deliveries by place that have an expiry.
    fn delivered(&mut self, txn: &ReadTransaction) -> Result<u64, StoreCause> {
        let series = delivered::all_series(txn)?;
        let (mut limited, mut before) = (0, (0, 0));
        for entry in txn.open_table(DELIVERED)?.iter()? {
            let (key, stored) = entry?;
            let place = key.value();
            let range = match delivered::unseal(place, stored.value()) {
                Ok(range) => range,
                Err(cause) => {
                    self.problem(cause);
                    continue;
                }
            };
            self.deliveries += range.jobs();
            limited += range.keep_until.map_or(0, |_| range.jobs());
            match series.get(&place.0) {
                None => {
                    self.problems
                        .push(format!("the deliveries number {} have no step and no input", place.0));
                }
                Some((step, input)) if before.0 == place.0 && range.first <= before.1 => {
                    self.problems.push(format!(
                        "step `{step}`: the delivery of job {} of `{input}` is recorded twice",
                        range.first
                    ));
                }
                Some(_) => {}
            }
            before = place;
        }
        Ok(limited)
    }

    /// The totals and the indexes must match the rows.
    fn parked(&mut self, txn: &ReadTransaction, names: &BTreeMap<u32, Address>) -> Result<(), StoreCause> {
        let counts = txn.open_table(PARKED_COUNTS)?;
        let mut found: BTreeMap<u32, ParkedTotals> = BTreeMap::new();
        for entry in counts.iter()? {
            found.insert(entry?.0.value(), ParkedTotals::default());
        }
        for entry in txn.open_table(PARKED_STARTED)?.iter()? {
            let (key, stored) = entry?;
            let (step, id) = key.value();
            found.entry(step).or_default().started += 1;
            let job = parked::unseal_started(step, ParkedId(id), stored.value());
            job.map_or_else(|cause| self.problem(cause), drop);
        }
        let (due, of) = (txn.open_table(PARKED_DUE)?, txn.open_table(PARKED_OF)?);
        let last = parked::last_id(&txn.open_table(META)?)?;
        let (mut rows, mut origins) = (0_u64, 0_u64);
        for entry in txn.open_table(PARKED)?.iter()? {
            let (key, stored) = entry?;
            let (step, id) = key.value();
            rows += 1;
            found.entry(step).or_default();
            if id > last {
                self.problems.push(format!("the parked job {id} is newer than the last one, {last}"));
            }
            let job = match parked::unseal(step, ParkedId(id), stored.value()) {
                Ok(job) => job,
                Err(cause) => {
                    self.problem(cause);
                    continue;
                }
            };
            let ParkedHeader { kind, due: time, origins: mut made_from } = ParkedHeader::of(&job);
            *found.entry(step).or_default().of_kind(kind) += 1;
            made_from.sort_unstable();
            made_from.dedup();
            origins += made_from.len() as u64;
            let mut is_indexed = due.get(parked::due_key(step, time, ParkedId(id)))?.is_some();
            for origin in made_from {
                is_indexed &= of.get((step, origin, id))?.is_some();
            }
            if !is_indexed {
                self.problems.push(format!("the parked job {id} is missing in an index"));
            }
        }
        for (index, expected, len) in [("due times", rows, due.len()?), ("inputs", origins, of.len()?)] {
            if expected != len {
                self.problems.push(format!(
                    "the index of parked jobs by their {index} must have {expected} entries, but has {len}"
                ));
            }
        }
        for (step, jobs) in found {
            self.delayed += jobs.all();
            let Some(name) = names.get(&(step & !LATE)) else {
                self.problems.push(format!("the store has parked jobs of the unknown step number {step}"));
                continue;
            };
            match parked::totals(&counts, step) {
                Ok(totals) if totals == jobs => {}
                Ok(totals) => self.problems.push(wrong_totals(name, totals, jobs)),
                Err(cause) => self.problem(cause),
            }
        }
        Ok(())
    }

    fn snapshots(&mut self, txn: &ReadTransaction, names: &BTreeMap<u32, Address>) -> Result<(), StoreCause> {
        for entry in txn.open_table(SNAPSHOTS)?.iter()? {
            let (key, stored) = entry?;
            let (step, number) = key.value();
            self.snapshots += 1;
            match names.get(&step) {
                Some(name) => snapshots::unseal((step, number), name, stored.value())
                    .map_or_else(|cause| self.problem(cause), drop),
                None => {
                    self.problems.push(format!("the store has snapshots of the unknown step number {step}"));
                }
            }
        }
        Ok(())
    }
}

fn wrong_totals(step: &Address, recorded: ParkedTotals, found: ParkedTotals) -> String {
    let ParkedTotals { delayed, outputs, started, pending } = recorded;
    let recorded = format!("{delayed}, {outputs}, {started} and {pending}");
    let ParkedTotals { delayed, outputs, started, pending } = found;
    let found = format!("{delayed} delayed, {outputs} outputs, {started} started and {pending} pending");
    format!("the recorded totals of step `{step}` are {recorded} instead of {found}")
}

/// The number of deliveries of a span that expire at `until`.
fn expiring_jobs(txn: &ReadTransaction, span: DeliveredSpan, until: Timestamp) -> Result<u64, StoreCause> {
    let mut jobs = 0;
    for entry in txn.open_table(DELIVERED)?.range(delivered::rows(span.series, span.first))? {
        let (key, stored) = entry?;
        // A range that cannot be read was reported already.
        let Ok(range) = delivered::unseal(key.value(), stored.value()) else { continue };
        if range.first > span.last {
            break;
        }
        jobs += if range.keep_until == Some(until) { range.jobs() } else { 0 };
    }
    Ok(jobs)
}
