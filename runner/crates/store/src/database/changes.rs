//! `Changes`: the changes of one commit, and how they are made in a transaction.

use std::collections::{BTreeMap, BTreeSet};

use redb::{ReadableTable as _, WriteTransaction};

use super::bindings::{self, FirstInput};
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
use super::parked;
use super::parked::RowChanges;
use super::pauses::{self, PausedPart};
use super::renames;
use super::renames::Renames;
use super::retention::{Trim, TrimWhen, Trimmed, trim};
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
use crate::error::StoreCause;
use tidegate_model::{Address, Progress, Segment, SinkPosition, SourceOffset, Timestamp, TokenKey};

/// The changes of one commit.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The time of the commit.
    pub now: Timestamp,
    /// Queues, each with the index behind which its next job comes, if that is further on. Jobs before it are deleted.
    pub heads: Vec<(Address, u64)>,
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

/// Makes the changes of commit `number` in a transaction. Returns the result of the commit.
///
/// The rows depend on nothing but the rows before and the changes. So a commit can be made again from its record in
/// the write-ahead log. `sound_texts`: see [`history::write`].
pub(crate) fn apply(
    txn: &WriteTransaction,
    changes: &Changes,
    number: u64,
    sound_texts: &mut BTreeSet<u128>,
) -> Result<Committed, StoreCause> {
    let record = CommitRecord { number, time: changes.now };
    renames::write(txn, &changes.renamed, changes.now)?;
    bindings::write(txn, &changes.bindings)?;
    for (queue, head) in &changes.heads {
        raise_head(txn, queue, *head)?;
    }
    let appended = append(txn, &changes.appends, record)?;
    write_records(txn, changes)?;
    snapshots::write(txn, &changes.done_snapshots, &changes.snapshots)?;
    let Changes { unparked, reparked, parked, late, .. } = changes;
    let (parked, late) = parked::write(txn, &RowChanges { unparked, reparked, parked, late })?;
    let arrivals = Arrivals { keys: &changes.ingested, appended: &appended, late: &late };
    dedupe::write(txn, (&changes.delivered, &changes.dedupe_records), &arrivals, record)?;
    pauses::write(txn, PausedPart::Step, &changes.pauses, changes.now)?;
    pauses::write(txn, PausedPart::Monitor, &changes.monitor_pauses, changes.now)?;
    held_lanes::write(txn, &changes.lanes)?;
    stops::write(txn, changes.begins_run, &changes.stops)?;
    token_key::write(txn, changes.token_key.as_ref())?;
    generations::write(txn, changes.generation)?;
    history::write(txn, &changes.history, changes.now, sound_texts)?;
    schedules::write(txn, &changes.schedule_positions)?;
    cursors::write(txn, &changes.cursors)?;
    let mut trimmed = Vec::new();
    for wanted in &changes.trims {
        trimmed.extend(trim(txn, wanted)?);
    }
    renames::drop_steps(txn, &changes.dropped_steps, changes.now)?;
    record.write(txn)?;
    Ok(Committed { transaction: number, appended, parked, late, trimmed })
}

fn raise_head(txn: &WriteTransaction, queue: &Address, head: u64) -> Result<(), StoreCause> {
    let id = format::intern(txn, queue)?;
    let record = || -> Result<QueueRecord, StoreCause> {
        let queues = txn.open_table(QUEUES)?;
        let stored = queues.get(id)?.map(|stored| QueueRecord::unseal(id, stored.value()));
        Ok(stored.transpose()?.unwrap_or(QueueRecord::EMPTY))
    };
    if record()?.head < head {
        let (when, max_bytes) = (TrimWhen::Always, None);
        trim(txn, &Trim { queue: queue.clone(), up_to: head, when, max_bytes })?;
        let raised = QueueRecord { head, first: head + 1, ..record()? };
        txn.open_table(QUEUES)?.insert(id, &*raised.seal(id))?;
    }
    Ok(())
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
