//! `Writer`: the writing handle, with one transaction per commit, durable when it returns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use redb::{Database, ReadableTable as _, WriteTransaction};

use super::bindings::{self, FirstInput};
use super::catch_panics::guarded;
use super::cursors;
use super::dedupe;
use super::dedupe::{Arrivals, DedupeRecord, IngestedKey};
use super::format::{
    self, BY_HAND, CommitRecord, LOG, MARKS, PROGRESS, QUEUES, QueueRecord, RecordKey, SEGMENTS,
};
use super::generations;
use super::generations::GenerationRecord;
use super::held_lanes::{self, LaneChange};
use super::history;
use super::history::HistoryChange;
use super::lock::Lock;
use super::origin::{Opened, StoreLocation};
use super::parked;
use super::parked::RowChanges;
use super::pauses::{self, PausedPart};
use super::read::SharedDatabase;
use super::renames;
use super::renames::Renames;
use super::retention::{Trim, Trimmed, trim};
use super::schedules;
use super::sink_files;
use super::snapshots;
use super::snapshots::{Snapshot, SnapshotKey};
use super::stops;
use super::stops::StepStop;
use super::token_key;
use crate::api::appended::Appended;
use crate::api::delivery::DeliveredJobs;
use crate::api::late_job::{LateChanges, LateKey};
use crate::api::parked_job::{NewParkedJob, ParkedJob, ParkedKey};
use crate::codec::block::{Block, Section, VALUE_RAW_BYTES_MAX};
use crate::codec::log_record;
use crate::error::{CommitError, OpenError, StoreCause};
use tidegate_model::{Address, Progress, Segment, SinkPosition, SourceOffset, Timestamp, TokenKey};

/// From this file size on, in bytes, each commit also records the free pages of the file.
///
/// Without that record, opening after a crash reads the whole file. Measured on 2 cores with the file in the
/// page cache: 165 ms instead of 1 ms for 5 million jobs in 560 MB, and 20 ms for 32 MB. A cold disk takes
/// many times that. The record costs a second sync: a commit of one job takes 0.45 ms instead of 0.27 ms. A
/// small file is better without it.
const QUICK_REPAIR_BYTES_MIN: u64 = 32 << 20;

/// Writes the store. One writer exists, and the thread that owns it writes. Dropping it closes the store, for
/// readers too.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<SharedDatabase>,
    origin: StoreLocation,
    /// The number of the last commit that is known to be durable.
    transaction: u64,
    /// A commit failed, and its durability is unknown.
    in_doubt: bool,
    /// Texts of the history that need no check: see [`history::write`].
    sound_texts: BTreeSet<u128>,
    /// The result of that commit, unless it failed before it had one. It is not durable then.
    result_in_doubt: Option<Committed>,
    /// See [`QUICK_REPAIR_BYTES_MIN`].
    quick_repair_bytes_min: u64,
    /// Dropped last.
    _lock: Option<Lock>,
}

/// The changes of one commit.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The time of the commit.
    pub now: Timestamp,
    /// Jobs to append to their queues, in this order.
    pub appends: Vec<Append>,
    /// Step, input, and progress.
    pub progress: Vec<(Address, Address, Progress)>,
    /// Error queue, and the jobs of it that an operator handled.
    pub handled_errors: Vec<(Address, Progress)>,
    pub sinks: Vec<(Address, SinkPosition)>,
    pub marks: Vec<(Address, SourceOffset)>,
    pub segments: Vec<(Address, Segment)>,
    /// Deliveries that were made from one job each.
    pub delivered: Vec<DeliveredJobs>,
    /// Other deliveries and keys.
    pub dedupe_records: Vec<DedupeRecord>,
    /// Keys of jobs of [`Self::appends`].
    pub ingested: Vec<IngestedKey>,
    /// Snapshots that are finished.
    pub done_snapshots: Vec<SnapshotKey>,
    pub snapshots: Vec<Snapshot>,
    /// Rows that are no longer parked.
    pub unparked: Vec<ParkedKey>,
    /// Rows that stay parked, with their new content. A row that is gone stays gone.
    pub reparked: Vec<(ParkedKey, ParkedJob)>,
    pub parked: Vec<NewParkedJob>,
    pub late: LateChanges,
    /// Steps to pause or to resume.
    pub pauses: Vec<(Address, bool)>,
    /// Steps whose monitors pause or resume.
    pub monitor_pauses: Vec<(Address, bool)>,
    pub lanes: Vec<LaneChange>,
    /// A run starts: the stops of the last one are removed.
    pub begins_run: bool,
    /// Steps that have stopped.
    pub stops: Vec<StepStop>,
    /// The key of the store's tokens, unless it has one.
    pub token_key: Option<TokenKey>,
    /// The generation that starts.
    pub generation: Option<GenerationRecord>,
    pub history: Vec<HistoryChange>,
    /// Applied before all others.
    pub renamed: Renames,
    /// First inputs of bindings. One that has an input keeps it.
    pub bindings: Vec<FirstInput>,
    /// Steps whose progress, parked jobs and snapshots are dropped. Applied last.
    pub dropped_steps: Vec<Address>,
    /// Schedule, and the time up to which its ticks are handled now.
    pub schedule_positions: Vec<(Address, Timestamp)>,
    /// The cursors that the commands of `exec` sources printed.
    pub cursors: Vec<(Address, String)>,
    /// Applied after the appends.
    pub trims: Vec<Trim>,
}

#[derive(Clone, Debug)]
pub struct Append {
    pub queue: Address,
    pub block: Block,
}

/// The result of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// One more than that of the commit before.
    pub transaction: u64,
    /// One for each of [`Changes::appends`], in their order.
    pub appended: Vec<Appended>,
    /// The keys of [`Changes::parked`], in their order.
    pub parked: Vec<ParkedKey>,
    /// The keys of the new late jobs of [`Changes::late`], in their order.
    pub late: Vec<LateKey>,
    /// The queues that lost jobs.
    pub trimmed: Vec<Trimmed>,
}

/// The result of [`Writer::reopen`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reopened {
    /// The number of the last commit.
    pub transaction: u64,
    /// The result of the failed commit, if it is durable as a whole. Otherwise no part of it is.
    pub kept: Option<Committed>,
}

impl Writer {
    pub(crate) fn new(
        shared: Arc<SharedDatabase>,
        origin: StoreLocation,
        transaction: u64,
        lock: Option<Lock>,
    ) -> Self {
        let quick_repair_bytes_min = QUICK_REPAIR_BYTES_MIN;
        Self {
            shared,
            origin,
            transaction,
            in_doubt: false,
            sound_texts: BTreeSet::new(),
            result_in_doubt: None,
            quick_repair_bytes_min,
            _lock: lock,
        }
    }

    /// Lets tests exercise the commits of a large file on a small one.
    #[cfg(test)]
    pub(crate) fn commit_as_in_a_large_file(&mut self) {
        self.quick_repair_bytes_min = 0;
    }

    /// Makes all of the changes, or none; on `Ok` they are durable.
    ///
    /// # Errors
    /// After any error, [`Self::reopen`] determines whether the changes are durable. Until then further
    /// commits return [`CommitError::MustReopen`].
    pub fn commit(&mut self, changes: &Changes) -> Result<Committed, CommitError> {
        if self.in_doubt {
            return Err(CommitError::MustReopen);
        }
        let number = self.transaction + 1;
        let path = &self.origin.path;
        // A disk that cannot report its length fails the commit, too.
        let len = self.origin.medium.disk().len().unwrap_or(0);
        let quick_repair = len >= self.quick_repair_bytes_min;
        // If redb panics (see `guarded`), this stays set.
        self.in_doubt = true;
        // Reads under a former name come here only if that name has nothing any more.
        self.shared.rename(&changes.renamed.parts);
        let (result, sound_texts) = (&mut self.result_in_doubt, &mut self.sound_texts);
        *result = None;
        guarded(|| {
            self.shared.with(|database| {
                let (txn, committed) = prepare(database, changes, (number, quick_repair), sound_texts)?;
                *result = Some(committed);
                Ok(txn.commit()?)
            })
        })
        .map_err(|cause| cause.of_commit(path))?;
        if !self.origin.medium.disk().is_in_place() {
            return Err(CommitError::Missing { path: path.clone() });
        }
        self.in_doubt = false;
        self.transaction = number;
        if !changes.renamed.parts.is_empty() {
            self.shared.forget_names();
        }
        // It was set before the commit.
        self.result_in_doubt.take().ok_or(CommitError::MustReopen)
    }

    /// Closes the store and reopens it, which a failed commit makes necessary. Readers wait meanwhile.
    ///
    /// # Errors
    /// The errors of opening. It can be called again: on a full disk it succeeds when space is free, and
    /// until then the store can be read. After other errors it stays closed.
    pub fn reopen(&mut self) -> Result<Reopened, OpenError> {
        let mut found = self.transaction;
        self.in_doubt = true;
        let mut full = None;
        self.shared.replace(|| match self.origin.open_at_least(self.transaction) {
            Ok(Opened { database, transaction }) => {
                found = transaction;
                Ok(Some(database))
            }
            Err(error) if error.is_full() => {
                full = Some(error);
                Ok(self.origin.open_to_read(self.transaction))
            }
            Err(error) => Err(error),
        })?;
        if let Some(error) = full {
            return Err(error);
        }
        let kept = self.result_in_doubt.take().filter(|committed| committed.transaction == found);
        self.transaction = found;
        self.in_doubt = false;
        Ok(Reopened { transaction: found, kept })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Closed here, and not when the last reader is dropped: closing writes, and must be over when the
        // lock is released.
        let _ = self.shared.replace(|| Ok::<_, std::convert::Infallible>(None));
    }
}

/// A transaction with all changes, and the result of its commit.
fn prepare(
    database: &Database,
    changes: &Changes,
    (number, quick_repair): (u64, bool),
    sound_texts: &mut BTreeSet<u128>,
) -> Result<(WriteTransaction, Committed), StoreCause> {
    let mut txn = database.begin_write()?;
    txn.set_quick_repair(quick_repair);
    let record = CommitRecord { number, time: changes.now };
    renames::write(&txn, &changes.renamed, changes.now)?;
    bindings::write(&txn, &changes.bindings)?;
    let appended = append(&txn, &changes.appends, record)?;
    write_records(&txn, changes)?;
    snapshots::write(&txn, &changes.done_snapshots, &changes.snapshots)?;
    let Changes { unparked, reparked, parked, late, .. } = changes;
    let (parked, late) = parked::write(&txn, &RowChanges { unparked, reparked, parked, late })?;
    let arrivals = Arrivals { keys: &changes.ingested, appended: &appended, late: &late };
    dedupe::write(&txn, (&changes.delivered, &changes.dedupe_records), &arrivals, record)?;
    pauses::write(&txn, PausedPart::Step, &changes.pauses, changes.now)?;
    pauses::write(&txn, PausedPart::Monitor, &changes.monitor_pauses, changes.now)?;
    held_lanes::write(&txn, &changes.lanes)?;
    stops::write(&txn, changes.begins_run, &changes.stops)?;
    token_key::write(&txn, changes.token_key.as_ref())?;
    generations::write(&txn, changes.generation)?;
    history::write(&txn, &changes.history, changes.now, sound_texts)?;
    schedules::write(&txn, &changes.schedule_positions)?;
    cursors::write(&txn, &changes.cursors)?;
    let mut trimmed = Vec::new();
    for wanted in &changes.trims {
        trimmed.extend(trim(&txn, wanted)?);
    }
    renames::drop_steps(&txn, &changes.dropped_steps, changes.now)?;
    record.write(&txn)?;
    Ok((txn, Committed { transaction: number, appended, parked, late, trimmed }))
}

fn append(
    txn: &WriteTransaction,
    appends: &[Append],
    commit: CommitRecord,
) -> Result<Vec<Appended>, StoreCause> {
    let mut by_queue: BTreeMap<&Address, Vec<&Section>> = BTreeMap::new();
    for Append { queue, block } in appends {
        by_queue.entry(queue).or_default().extend(block.sections());
    }
    let mut next = BTreeMap::new();
    for (queue, sections) in by_queue {
        next.insert(queue, append_to(txn, queue, &sections, commit)?);
    }
    let mut appended = Vec::with_capacity(appends.len());
    for Append { queue, block } in appends {
        let Some(next) = next.get_mut(queue) else { continue };
        appended.push(Appended { queue: queue.clone(), first: *next, jobs: block.len() });
        *next += block.len() as u64;
    }
    Ok(appended)
}

/// Returns the index of the first section's first job.
fn append_to(
    txn: &WriteTransaction,
    queue: &Address,
    sections: &[&Section],
    commit: CommitRecord,
) -> Result<u64, StoreCause> {
    let id = format::intern(txn, queue)?;
    let mut queues = txn.open_table(QUEUES)?;
    let mut record = match queues.get(id)? {
        Some(stored) => QueueRecord::unseal(id, stored.value())?,
        None => QueueRecord::EMPTY,
    };
    let start = record.head + 1;
    write_values(txn, id, &mut record, sections, commit)?;
    queues.insert(id, &*record.seal(id))?;
    Ok(start)
}

/// Writes sections after the head of the queue with the number `id`, and updates `record`.
pub(crate) fn write_values(
    txn: &WriteTransaction,
    id: u32,
    record: &mut QueueRecord,
    sections: &[&Section],
    commit: CommitRecord,
) -> Result<(), StoreCause> {
    let mut log = txn.open_table(LOG)?;
    for sections in values(sections) {
        let first = record.head + 1;
        let place = RecordKey::Log(id, first).seed();
        let (header, len) = log_record::value_header(sections, commit.time, commit.number, place);
        let mut room = log.insert_reserve((id, first), len)?;
        log_record::write_value(&header, sections, room.as_mut());
        record.head += sections.iter().map(|section| section.jobs() as u64).sum::<u64>();
        record.bytes += len as u64;
    }
    Ok(())
}

/// Combines sections into values of a good size; a larger section gets a value of its own.
fn values<'a, 'b>(mut sections: &'a [&'b Section]) -> impl Iterator<Item = &'a [&'b Section]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fit = sections.iter().take_while(|section| {
            bytes += section.raw_len();
            bytes <= VALUE_RAW_BYTES_MAX
        });
        let count = fit.count().max(1);
        let (value, rest) = sections.split_at_checked(count)?;
        sections = rest;
        Some(value)
    })
}

fn write_records(txn: &WriteTransaction, changes: &Changes) -> Result<(), StoreCause> {
    for (step, input, progress) in &changes.progress {
        let key = (format::intern(txn, step)?, format::intern(txn, input)?);
        txn.open_table(PROGRESS)?.insert(key, &*RecordKey::Progress(key.0, key.1).seal_json(progress)?)?;
    }
    for (queue, handled) in &changes.handled_errors {
        let key = (BY_HAND, format::intern(txn, queue)?);
        txn.open_table(PROGRESS)?.insert(key, &*RecordKey::Progress(key.0, key.1).seal_json(handled)?)?;
    }
    for (sink, position) in &changes.sinks {
        sink_files::write(txn, sink, position)?;
    }
    for (source, mark) in &changes.marks {
        let id = format::intern(txn, source)?;
        txn.open_table(MARKS)?.insert((id, mark.index), &*format::seal_mark(id, mark))?;
    }
    for (source, segment) in &changes.segments {
        let key = (format::intern(txn, source)?, segment.ordinal);
        txn.open_table(SEGMENTS)?.insert(key, &*RecordKey::Segment(key.0, key.1).seal_json(segment)?)?;
    }
    Ok(())
}
