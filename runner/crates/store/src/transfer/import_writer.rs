//! `Filling`: fills a store with the lines of an export, and checks each against the earlier ones.

use std::fmt::Display;
use std::io;

use redb::{Key, TableDefinition, WriteTransaction};

use super::export_format::{
    BindingLine, CursorLine, DelayedLine, DeliveredLine, DeliveryLine, ExportLine, GenerationLine,
    HandledLine, Header, Inventory, JobLine, LateLine, MarkLine, ProgressLine, SnapshotLine, TickedLine,
};
use crate::api::late_job::LateJob;
use crate::api::parked_job::{ParkedId, ParkedJob};
use crate::codec::delivered_record::DeliveredRange;
use crate::database::bindings::{self, FirstInput};
use crate::database::cursors;
use crate::database::dedupe;
use crate::database::delivered::{self, DeliveredSpan};
use crate::database::format;
use crate::database::format::{
    BY_HAND, Bytes, CommitRecord, GENERATIONS, LATE, MARKS, PROGRESS, RecordKey, SEGMENTS, SINKS, SNAPSHOTS,
    TICKS,
};
use crate::database::generations::GenerationRecord;
use crate::database::held_lanes;
use crate::database::name_history;
use crate::database::parked;
use crate::database::parked::ParkedRows;
use crate::database::pauses::{self, PausedPart};
use crate::database::schedules;
use crate::database::sink_files;
use crate::database::snapshots;
use crate::database::snapshots::Snapshot;
use crate::database::token_key;
use crate::error::StoreCause;
use tidegate_model::{Counters, DeliveryHash, Due, Progress, SourceOffset, Timestamp, TokenKey};

pub(crate) mod queue;

use queue::QueueInTheMaking;

/// The largest index, count and position of an export, with room above for all later ones.
const NUMBER_MAX: u64 = u64::MAX >> 2;

/// Delivery records that are sorted together.
const DELIVERIES_MAX: usize = 16 << 10;

/// Why the import stops.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The line is invalid: a sentence fragment.
    Line(String),
    /// The next line cannot be read.
    Input(io::Error),
    Store(StoreCause),
}

impl<T> From<T> for Stop
where
    StoreCause: From<T>,
{
    fn from(error: T) -> Self {
        Self::Store(error.into())
    }
}

pub(crate) fn wrong<T>(what: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Line(what.into()))
}

/// A record that may be there once.
fn once(is_new: bool) -> Result<(), Stop> {
    if is_new { Ok(()) } else { wrong("an earlier line has the same key") }
}

/// A store that is being filled. A line is written in the transaction that is passed with it, or in a later
/// one; [`Self::finish`] is the last.
#[derive(Debug)]
pub(crate) struct Filling {
    header: Header,
    inventory: Inventory,
    /// The queue of the jobs that follow.
    queue: Option<QueueInTheMaking>,
    deliveries: Vec<(DeliveryHash, dedupe::StoredRecord)>,
    /// Ranges of deliveries that are written, with their expiries.
    expiring: Vec<(Timestamp, DeliveredSpan)>,
    /// Number of groups of delivery records written.
    delivery_groups: u64,
}

impl Filling {
    pub(crate) fn new(header: Header) -> Self {
        let inventory = Inventory::default();
        let (deliveries, expiring) = (Vec::new(), Vec::new());
        Self { header, inventory, queue: None, deliveries, expiring, delivery_groups: 0 }
    }

    /// Accepts a line between the header and the end.
    pub(crate) fn take(&mut self, txn: &WriteTransaction, line: ExportLine<'_>) -> Result<(), Stop> {
        self.inventory.count(&line);
        check_numbers(&line)?;
        if let ExportLine::Job(job) = line {
            return self.take_job(txn, &job);
        }
        self.finish_queue(txn)?;
        match line {
            ExportLine::Header(_) => wrong("the header must occur once"),
            ExportLine::End(_) => wrong("the end line must occur once"),
            // Handled above.
            ExportLine::Job(_) => Ok(()),
            ExportLine::Queue(queue) => {
                self.queue = Some(QueueInTheMaking::new(txn, &queue)?);
                Ok(())
            }
            ExportLine::Progress(line) => {
                let key = (format::intern(txn, &line.step)?, format::intern(txn, &line.input)?);
                put_progress(txn, key, &line.progress)
            }
            ExportLine::Handled(line) => {
                put_progress(txn, (BY_HAND, format::intern(txn, &line.queue)?), &line.progress)
            }
            ExportLine::Mark(MarkLine { source, index, segment, offset, line }) => {
                let id = format::intern(txn, &source)?;
                let mark = SourceOffset { index, segment, offset, line };
                put(txn, MARKS, (id, index), &format::seal_mark(id, &mark))
            }
            ExportLine::Segment(line) => {
                let key = (format::intern(txn, &line.source)?, line.segment.ordinal);
                put(txn, SEGMENTS, key, &RecordKey::Segment(key.0, key.1).seal_json(&line.segment)?)
            }
            ExportLine::Sink(line) => {
                let id = format::intern(txn, &line.sink)?;
                put(txn, SINKS, id, &RecordKey::Sink(id).seal_json(&line.position)?)
            }
            ExportLine::Delivery(line) => self.take_delivery(txn, &line),
            ExportLine::Delivered(line) => self.take_delivered(txn, line),
            ExportLine::Snapshot(SnapshotLine { step, number, inputs, jobs, time }) => {
                let id = format::intern(txn, &step)?;
                let snapshot = Snapshot { step, number, inputs, jobs, time: Timestamp(time) };
                put(txn, SNAPSHOTS, (id, number), &snapshots::seal(id, &snapshot)?)
            }
            ExportLine::Delayed(line) => self.take_delayed(txn, line),
            ExportLine::Late(line) => self.take_late(txn, &line),
            ExportLine::Generation(GenerationLine { number, fingerprint, time }) => {
                let generation = GenerationRecord { number, fingerprint, time: Timestamp(time) };
                put(txn, GENERATIONS, number, &generation.seal())
            }
            ExportLine::Ticked(TickedLine { source, time }) => {
                let id = format::intern(txn, &source)?;
                put(txn, TICKS, id, &schedules::seal(id, Timestamp(time)))
            }
            ExportLine::Cursor(CursorLine { source, cursor }) => {
                Ok(cursors::write(txn, &[(source, cursor)])?)
            }
            ExportLine::Pause(pause) => once(pauses::restore(txn, PausedPart::Step, pause)?),
            ExportLine::MonitorPause(pause) => once(pauses::restore(txn, PausedPart::Monitor, pause)?),
            ExportLine::HeldLane(held) => once(held_lanes::restore(txn, held)?),
            ExportLine::Rename(record) => Ok(name_history::add(txn, &record)?),
            ExportLine::SinkFile(line) => Ok(sink_files::leave(txn, &line.sink, &line.position)?),
            ExportLine::Binding(BindingLine { step, binding, input }) => {
                Ok(bindings::write(txn, &[FirstInput { step, binding, input }])?)
            }
            ExportLine::TokenKey(line) => {
                let Some(key) = TokenKey::new(&line.bytes) else {
                    return wrong("the key of the tokens is invalid");
                };
                once(token_key::write(txn, Some(&key))?)
            }
        }
    }

    /// Writes the remaining records, if the counts match those of the end line.
    pub(crate) fn finish(mut self, txn: &WriteTransaction, expected: Inventory) -> Result<Inventory, Stop> {
        self.finish_queue(txn)?;
        self.put_deliveries(txn)?;
        if expected != self.inventory {
            return wrong(format!(
                "the export must hold {}, but holds {}",
                differences(expected, self.inventory),
                differences(self.inventory, expected)
            ));
        }
        parked::write_last_id(txn, self.header.sequence)?;
        let Header { transaction, time, .. } = self.header;
        CommitRecord { number: transaction, time: Timestamp(time) }.write(txn)?;
        Ok(expected)
    }

    fn take_job(&mut self, txn: &WriteTransaction, job: &JobLine<'_>) -> Result<(), Stop> {
        if job.transaction > self.header.transaction {
            let last = self.header.transaction;
            return wrong(format!("it is of commit {}, and the last one is {last}", job.transaction));
        }
        match &mut self.queue {
            Some(queue) => queue.take(txn, job),
            None => wrong("a job must follow the line of its queue, or another job of it"),
        }
    }

    fn finish_queue(&mut self, txn: &WriteTransaction) -> Result<(), Stop> {
        self.queue.take().map_or(Ok(()), |queue| queue.finish(txn))
    }

    fn take_delivery(&mut self, txn: &WriteTransaction, line: &DeliveryLine) -> Result<(), Stop> {
        let DeliveryLine { outcome, times, .. } = *line;
        let (time, keep_until) = (Timestamp(line.time), line.keep_until.map(Timestamp));
        let record = dedupe::StoredRecord { outcome, time, times, keep_until };
        self.deliveries.push((line.hash, record));
        if self.deliveries.len() >= DELIVERIES_MAX { self.put_deliveries(txn) } else { Ok(()) }
    }

    fn put_deliveries(&mut self, txn: &WriteTransaction) -> Result<(), Stop> {
        // Far from the numbers of commits, which are stored in the same field.
        let number = u64::MAX - self.delivery_groups;
        self.delivery_groups += 1;
        dedupe::insert(txn, std::mem::take(&mut self.deliveries), number)?;
        dedupe::insert_spans(txn, std::mem::take(&mut self.expiring), number)?;
        Ok(())
    }

    fn take_delivered(&mut self, txn: &WriteTransaction, line: DeliveredLine) -> Result<(), Stop> {
        let keep_until = line.keep_until.map(Timestamp);
        let times = (Timestamp(line.time), keep_until);
        let range = DeliveredRange::new(line.first, times, line.outcomes, line.times);
        let Some(range) = range else { return wrong("its jobs are no range of deliveries") };
        let series = delivered::intern(txn, &line.step, &line.input)?;
        once(delivered::insert(txn, series, &range)?)?;
        self.expiring.extend(keep_until.map(|until| (until, delivered::span(series, &range))));
        if self.expiring.len() >= DELIVERIES_MAX { self.put_deliveries(txn) } else { Ok(()) }
    }

    fn take_late(&self, txn: &WriteTransaction, line: &LateLine<'_>) -> Result<(), Stop> {
        self.check_sequence(line.sequence)?;
        let due = line.due.map_or(Due::Now, |due| Due::At(Timestamp(due)));
        let job = LateJob { due, payload: line.payload.bytes().to_vec() };
        let key = (format::intern(txn, &line.queue)? | LATE, ParkedId(line.sequence));
        put_row(txn, key, &job.into())
    }

    fn check_sequence(&self, sequence: u64) -> Result<(), Stop> {
        let last = self.header.sequence;
        if sequence > last {
            return wrong(format!("it has the sequence {sequence}, and the last one is {last}"));
        }
        Ok(())
    }

    fn take_delayed(&mut self, txn: &WriteTransaction, line: DelayedLine<'_>) -> Result<(), Stop> {
        self.check_sequence(line.sequence)?;
        let key = (format::intern(txn, &line.step)?, ParkedId(line.sequence));
        let (reason, due) = line.reason.into_new(line.to, Timestamp(line.due));
        let job = ParkedJob {
            due: line.hastened_from.map_or(due, |from| Due::Hastened(Timestamp(from))),
            inputs: line.inputs,
            attempt: line.attempt,
            first_attempt: line.first_attempt.map(Timestamp),
            created: line.created.map(Timestamp),
            last_submitted: line.last_submitted.map(Timestamp),
            last_error: line.last_error,
            from_error: line.from_error,
            reason,
            form: line.form,
            payload: line.payload.bytes().to_vec(),
            carried: line.carried,
        };
        put_row(txn, key, &job)
    }
}

fn put_row(txn: &WriteTransaction, key: (u32, ParkedId), job: &ParkedJob) -> Result<(), Stop> {
    let mut rows = ParkedRows::new(txn);
    let is_new = rows.insert(key, job)?;
    rows.finish()?;
    if is_new { Ok(()) } else { wrong("an earlier line has the same key") }
}

/// Refuses numbers that no store reaches.
fn check_numbers(line: &ExportLine<'_>) -> Result<(), Stop> {
    let largest = match line {
        ExportLine::Queue(line) => line.head,
        ExportLine::Progress(ProgressLine { progress, .. })
        | ExportLine::Handled(HandledLine { progress, .. }) => {
            let Counters { taken, given, filtered, failed, lost } = progress.counters;
            let last = progress.finished().last().map_or(0, |&(_, last)| last);
            [progress.position(), progress.skipped_up_to(), last, taken, given, filtered, failed, lost]
                .into_iter()
                .fold(0, u64::max)
        }
        ExportLine::Mark(line) => line.index.max(line.offset).max(line.line),
        ExportLine::Snapshot(line) => {
            let ends = line.inputs.iter().map(|input| input.first.saturating_add(input.jobs));
            ends.fold(line.jobs, u64::max)
        }
        ExportLine::Delivered(line) => line.first,
        ExportLine::Delayed(line) => line.inputs.iter().map(|&(_, index)| index).fold(0, u64::max),
        _ => 0,
    };
    if largest > NUMBER_MAX { wrong(format!("{largest} exceeds the limit of {NUMBER_MAX}")) } else { Ok(()) }
}

/// Inserts a record that must not exist yet.
fn put<K: Key + 'static>(
    txn: &WriteTransaction,
    table: TableDefinition<'_, K, Bytes>,
    key: K::SelfType<'_>,
    record: &[u8],
) -> Result<(), Stop> {
    let mut table = txn.open_table(table)?;
    let twice = table.insert(key, record)?.is_some();
    if twice { wrong("an earlier line has the same key") } else { Ok(()) }
}

fn put_progress(txn: &WriteTransaction, key: (u32, u32), progress: &Progress) -> Result<(), Stop> {
    let mut again = Progress::default();
    again.counters = progress.counters;
    again.start_after(progress.skipped_up_to().min(progress.position()));
    again.skip_to(progress.position());
    for &(first, last) in progress.finished() {
        again.finish(first, last);
    }
    if again != *progress {
        return wrong("the finished ranges must be above the position, in order and disjoint");
    }
    put(txn, PROGRESS, key, &RecordKey::Progress(key.0, key.1).seal_json(progress)?)
}

/// The counts of `one` that differ from those of `other`.
fn differences(one: Inventory, other: Inventory) -> impl Display {
    let differing = one.kinds().into_iter().zip(other.kinds()).filter(|(one, other)| one != other);
    let counts: Vec<_> = differing.map(|((kind, count), _)| format!("{count} {kind}")).collect();
    counts.join(", ")
}
