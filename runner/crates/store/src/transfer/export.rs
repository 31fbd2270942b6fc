//! Export: writes the whole content of the store as lines of text; see [`super::export_format`].
//!
//! An export is one consistent view, in an order that does not depend on the history of the store: an
//! imported and exported store gives the same lines.

use std::borrow::Cow;
use std::io::{self, Write};

use redb::{ReadTransaction, ReadableTable as _, ReadableTableMetadata as _};

use super::export_format::{
    BindingLine, CursorLine, Data, DelayedLine, DeliveredLine, DeliveryLine, ExportLine, GenerationLine,
    HandledLine, Header, Inventory, JobLine, LateLine, MarkLine, OriginLine, ProgressLine, QueueLine,
    SegmentLine, SinkLine, SnapshotLine, TickedLine, TokenKeyLine, VERSION,
};
use crate::api::parked_job::{ParkedId, ParkedJob};
use crate::codec::block::{DecodedJobs, ReadBounds};
use crate::codec::log_record::LogValue;
use crate::codec::old_parked_record::OldReason;
use crate::database::bindings::{self, FirstInput};
use crate::database::cursors;
use crate::database::dedupe;
use crate::database::delivered::{self, DELIVERED};
use crate::database::format;
use crate::database::format::{
    BY_HAND, CommitRecord, DELIVERIES, GENERATIONS, LATE, LOG, MARKS, META, NAMES, PARKED, PARKED_STARTED,
    PROGRESS, QUEUES, QueueRecord, RecordKey, SEGMENTS, SINKS, SNAPSHOTS, TICKS, whole,
};
use crate::database::generations::GenerationRecord;
use crate::database::held_lanes;
use crate::database::migrate;
use crate::database::name_history;
use crate::database::parked;
use crate::database::pauses::{self, PausedPart};
use crate::database::read::Store;
use crate::database::schedules;
use crate::database::sink_files;
use crate::database::snapshots;
use crate::database::token_key;
use crate::error::{ExportError, StoreCause};
use tidegate_model::{Address, DeliveryHash, Due, Origin, Progress};

/// Writes the whole content of the store to `out`, and returns its inventory.
///
/// The store is neither closed nor reopened during the export, so `out` must not block while the store is in
/// use.
///
/// # Errors
/// The first read or write that fails ends the export, which then has no end line.
pub fn export(store: &Store, out: impl Write) -> Result<Inventory, ExportError> {
    let mut lines = Lines { out, buffer: Vec::new(), inventory: Inventory::default(), failed: None };
    let walked = store.view(|txn| {
        let names = format::names(&txn.open_table(NAMES)?)?;
        Walk { txn, names: &names, lines: &mut lines }.everything()
    });
    match lines.failed {
        Some(error) => Err(ExportError::Write(error)),
        None => Ok(walked.map(|()| lines.inventory)?),
    }
}

/// The output of the lines.
struct Lines<W> {
    out: W,
    buffer: Vec<u8>,
    inventory: Inventory,
    /// The first error of the output.
    failed: Option<io::Error>,
}

impl<W: Write> Lines<W> {
    fn put(&mut self, line: &ExportLine<'_>) -> Result<(), StoreCause> {
        self.inventory.count(line);
        self.buffer.clear();
        let written = serde_json::to_writer(&mut self.buffer, line).map_err(io::Error::from).and_then(|()| {
            self.buffer.push(b'\n');
            self.out.write_all(&self.buffer)
        });
        self.noted(written)
    }

    fn finish(&mut self) -> Result<(), StoreCause> {
        self.put(&ExportLine::End(self.inventory))?;
        let flushed = self.out.flush();
        self.noted(flushed)
    }

    /// Distinguishes an error of the output from those of the store.
    fn noted(&mut self, result: io::Result<()>) -> Result<(), StoreCause> {
        result.map_err(|error| {
            self.failed = Some(error);
            StoreCause::Interrupted
        })
    }
}

/// One scan of the whole store.
struct Walk<'a, W> {
    txn: &'a ReadTransaction,
    /// In order of name.
    names: &'a [(u32, Address)],
    lines: &'a mut Lines<W>,
}

impl<W: Write> Walk<'_, W> {
    fn everything(mut self) -> Result<(), StoreCause> {
        let meta = self.txn.open_table(META)?;
        let commit = CommitRecord::read(&meta)?;
        self.lines.put(&ExportLine::Header(Header {
            version: VERSION,
            created: migrate::created(&meta)?.0,
            transaction: commit.number,
            time: commit.time.0,
            sequence: parked::last_id(&meta)?,
        }))?;
        self.queues()?;
        self.progress()?;
        self.places()?;
        self.sinks()?;
        self.deliveries()?;
        self.delivered()?;
        self.snapshots()?;
        self.parked()?;
        self.generations()?;
        self.ticks()?;
        for (source, cursor) in cursors::read(self.txn)? {
            self.lines.put(&ExportLine::Cursor(CursorLine { source, cursor }))?;
        }
        for pause in pauses::read(PausedPart::Step, &meta)? {
            self.lines.put(&ExportLine::Pause(pause))?;
        }
        for pause in pauses::read(PausedPart::Monitor, &meta)? {
            self.lines.put(&ExportLine::MonitorPause(pause))?;
        }
        for held in held_lanes::read(self.txn)? {
            self.lines.put(&ExportLine::HeldLane(held))?;
        }
        for rename in name_history::records(self.txn)? {
            self.lines.put(&ExportLine::Rename(rename))?;
        }
        for (sink, position) in sink_files::read(self.txn)? {
            self.lines.put(&ExportLine::SinkFile(SinkLine { sink, position }))?;
        }
        for FirstInput { step, binding, input } in bindings::read(self.txn)? {
            self.lines.put(&ExportLine::Binding(BindingLine { step, binding, input }))?;
        }
        if let Some(key) = token_key::read(&meta)? {
            let bytes = Cow::Borrowed(key.reveal());
            self.lines.put(&ExportLine::TokenKey(TokenKeyLine { bytes }))?;
        }
        self.lines.finish()
    }

    fn queues(&mut self) -> Result<(), StoreCause> {
        let (queues, mut values) = (self.txn.open_table(QUEUES)?, 0);
        for (id, queue) in self.names {
            let Some(stored) = queues.get(*id)? else { continue };
            let record = QueueRecord::unseal(*id, stored.value())?;
            let QueueRecord { first, head, .. } = record;
            self.lines.put(&ExportLine::Queue(QueueLine { queue: queue.clone(), first, head }))?;
            values += self.jobs(*id, queue, record)?;
        }
        whole("queues", self.lines.inventory.queues, queues.len()?)?;
        whole("log", values, self.txn.open_table(LOG)?.len()?)
    }

    /// Returns the number of values of the queue.
    fn jobs(&mut self, id: u32, queue: &Address, record: QueueRecord) -> Result<u64, StoreCause> {
        const ALL: ReadBounds = ReadBounds { jobs: usize::MAX, bytes: usize::MAX };
        let (mut next, mut values) = (record.first, 0);
        for entry in self.txn.open_table(LOG)?.range((id, 0)..=(id, u64::MAX))? {
            let (key, stored) = entry?;
            let (_, first) = key.value();
            let mut jobs = DecodedJobs::with_origins();
            let value = LogValue::parse(stored.value(), RecordKey::Log(id, first).seed());
            let value = value.and_then(|value| value.read(0, ALL, &mut jobs).map(|()| value));
            let value = value.map_err(|what| {
                StoreCause::Damaged(format!(
                    "queue `{queue}`: the jobs from {first} on cannot be read: {what}"
                ))
            })?;
            if first != next {
                let what = format!("queue `{queue}`: job {next} must follow, but job {first} does");
                return Err(StoreCause::Damaged(what));
            }
            for (position, payload) in jobs.payloads.iter().enumerate() {
                let carried = jobs.carried.as_ref().and_then(|carried| carried.get(position));
                let origin = jobs.origins.as_mut().and_then(|origins| origins[position].take());
                self.lines.put(&ExportLine::Job(JobLine {
                    queue: Cow::Borrowed(queue),
                    index: next,
                    time: value.time.0,
                    transaction: value.transaction,
                    origin: origin.and_then(origin_line),
                    carried: carried.filter(|text| !text.is_empty()).map(Data::of),
                    payload: Data::of(payload),
                }))?;
                next += 1;
            }
            values += 1;
        }
        if next != record.head + 1 {
            let what = format!("queue `{queue}` must end at {}, but ends at {}", record.head, next - 1);
            return Err(StoreCause::Damaged(what));
        }
        Ok(values)
    }

    fn progress(&mut self) -> Result<(), StoreCause> {
        let table = self.txn.open_table(PROGRESS)?;
        let read = |step, input| {
            let stored = table.get((step, input))?;
            let unseal = |stored: redb::AccessGuard<'_, _>| {
                RecordKey::Progress(step, input).unseal_json::<Progress>(stored.value())
            };
            stored.map(unseal).transpose()
        };
        for (input_id, input) in self.names {
            if let Some(progress) = read(BY_HAND, *input_id)? {
                self.lines.put(&ExportLine::Handled(HandledLine { queue: input.clone(), progress }))?;
            }
            for (step_id, step) in self.names {
                let Some(progress) = read(*step_id, *input_id)? else { continue };
                let (step, input) = (step.clone(), input.clone());
                self.lines.put(&ExportLine::Progress(ProgressLine { step, input, progress }))?;
            }
        }
        whole("progress", self.lines.inventory.progress, table.len()?)
    }

    fn places(&mut self) -> Result<(), StoreCause> {
        let (marks, segments) = (self.txn.open_table(MARKS)?, self.txn.open_table(SEGMENTS)?);
        for (id, source) in self.names {
            for entry in segments.range((*id, 0)..=(*id, u32::MAX))? {
                let (key, stored) = entry?;
                let segment = RecordKey::Segment(*id, key.value().1).unseal_json(stored.value())?;
                self.lines.put(&ExportLine::Segment(SegmentLine { source: source.clone(), segment }))?;
            }
            for entry in marks.range((*id, 0)..=(*id, u64::MAX))? {
                let (key, stored) = entry?;
                let mark = format::unseal_mark(*id, key.value().1, stored.value())?;
                self.lines.put(&ExportLine::Mark(MarkLine {
                    source: source.clone(),
                    index: mark.index,
                    segment: mark.segment,
                    offset: mark.offset,
                    line: mark.line,
                }))?;
            }
        }
        whole("marks", self.lines.inventory.marks, marks.len()?)?;
        whole("segments", self.lines.inventory.segments, segments.len()?)
    }

    fn sinks(&mut self) -> Result<(), StoreCause> {
        let sinks = self.txn.open_table(SINKS)?;
        for (id, sink) in self.names {
            let Some(stored) = sinks.get(*id)? else { continue };
            let position = RecordKey::Sink(*id).unseal_json(stored.value())?;
            self.lines.put(&ExportLine::Sink(SinkLine { sink: sink.clone(), position }))?;
        }
        whole("sinks", self.lines.inventory.sinks, sinks.len()?)
    }

    fn deliveries(&mut self) -> Result<(), StoreCause> {
        let table = self.txn.open_table(DELIVERIES)?;
        for entry in table.iter()? {
            let (hash, stored) = entry?;
            let hash = DeliveryHash(hash.value());
            let dedupe::StoredRecord { outcome, time, times, keep_until } =
                dedupe::StoredRecord::unseal(hash, stored.value())?;
            let (time, keep_until) = (time.0, keep_until.map(|until| until.0));
            let line = DeliveryLine { hash, outcome, times, time, keep_until };
            self.lines.put(&ExportLine::Delivery(line))?;
        }
        whole("deliveries", self.lines.inventory.deliveries, table.len()?)
    }

    /// In the order of the series, whose numbers an import assigns in the same order.
    fn delivered(&mut self) -> Result<(), StoreCause> {
        let (table, series) = (self.txn.open_table(DELIVERED)?, delivered::all_series(self.txn)?);
        for (number, (step, input)) in series {
            for entry in table.range((number, 0)..=(number, u64::MAX))? {
                let (key, stored) = entry?;
                let range = delivered::unseal(key.value(), stored.value())?;
                self.lines.put(&ExportLine::Delivered(DeliveredLine {
                    step: step.clone(),
                    input: input.clone(),
                    first: range.first,
                    outcomes: range.outcomes().to_vec(),
                    times: range.all_times().to_vec(),
                    time: range.time.0,
                    keep_until: range.keep_until.map(|until| until.0),
                }))?;
            }
        }
        whole("delivered", self.lines.inventory.delivered, table.len()?)
    }

    fn snapshots(&mut self) -> Result<(), StoreCause> {
        let table = self.txn.open_table(SNAPSHOTS)?;
        for (id, step) in self.names {
            for entry in table.range((*id, 0)..=(*id, u64::MAX))? {
                let (key, stored) = entry?;
                let snapshots::Snapshot { step, number, inputs, jobs, time } =
                    snapshots::unseal(key.value(), step, stored.value())?;
                self.lines.put(&ExportLine::Snapshot(SnapshotLine {
                    step,
                    number,
                    inputs,
                    jobs,
                    time: time.0,
                }))?;
            }
        }
        whole("snapshots", self.lines.inventory.snapshots, table.len()?)
    }

    fn parked(&mut self) -> Result<(), StoreCause> {
        let (rows, started) = (self.txn.open_table(PARKED)?, self.txn.open_table(PARKED_STARTED)?);
        for (step, name) in self.names {
            for entry in started.range((*step, 0)..=(*step, u64::MAX))? {
                let (key, stored) = entry?;
                let id = ParkedId(key.value().1);
                self.parked_job(name, id, parked::unseal_started(*step, id, stored.value())?)?;
            }
            for entry in rows.range((*step, 0)..=(*step, u64::MAX))? {
                let (key, stored) = entry?;
                let id = ParkedId(key.value().1);
                self.parked_job(name, id, parked::unseal(*step, id, stored.value())?)?;
            }
            let queue = *step | LATE;
            for entry in rows.range((queue, 0)..=(queue, u64::MAX))? {
                let (key, stored) = entry?;
                let id = ParkedId(key.value().1);
                let job = parked::unseal(queue, id, stored.value())?;
                self.lines.put(&ExportLine::Late(LateLine {
                    queue: Cow::Borrowed(name),
                    due: job.due.time().filter(|_| matches!(job.due, Due::At(_))).map(|due| due.0),
                    sequence: id.0,
                    payload: Data::of(&job.payload),
                }))?;
            }
        }
        let parked = self.lines.inventory.delayed + self.lines.inventory.late;
        whole("parked", parked, started.len()? + rows.len()?)
    }

    fn parked_job(&mut self, step: &Address, id: ParkedId, mut job: ParkedJob) -> Result<(), StoreCause> {
        let hastened_from = match job.due {
            Due::Hastened(from) => Some(from.0),
            _ => None,
        };
        let reason = std::mem::take(&mut job.reason);
        let (reason, to, due) = OldReason::from_new(reason, job.due);
        self.lines.put(&ExportLine::Delayed(DelayedLine {
            step: Cow::Borrowed(step),
            due: due.0,
            hastened_from,
            sequence: id.0,
            inputs: job.inputs,
            attempt: job.attempt,
            first_attempt: job.first_attempt.map(|time| time.0),
            created: job.created.map(|time| time.0),
            last_submitted: job.last_submitted.map(|time| time.0),
            last_error: job.last_error,
            from_error: job.from_error,
            to,
            reason,
            carried: job.carried,
            form: job.form,
            payload: Data::of(&job.payload),
        }))
    }

    fn generations(&mut self) -> Result<(), StoreCause> {
        let table = self.txn.open_table(GENERATIONS)?;
        for entry in table.iter()? {
            let (number, stored) = entry?;
            let GenerationRecord { number, fingerprint, time } =
                GenerationRecord::unseal(number.value(), stored.value())?;
            self.lines.put(&ExportLine::Generation(GenerationLine { number, fingerprint, time: time.0 }))?;
        }
        whole("generations", self.lines.inventory.generations, table.len()?)
    }

    fn ticks(&mut self) -> Result<(), StoreCause> {
        let table = self.txn.open_table(TICKS)?;
        for (id, source) in self.names {
            let Some(stored) = table.get(*id)? else { continue };
            let time = schedules::unseal(*id, stored.value())?.0;
            self.lines.put(&ExportLine::Ticked(TickedLine { source: source.clone(), time }))?;
        }
        whole("ticks", self.lines.inventory.schedules, table.len()?)
    }
}

/// `None` if it has no input, and so no information.
fn origin_line(origin: Origin) -> Option<OriginLine> {
    let Origin { step, mut inputs, .. } = origin;
    inputs.sort();
    (!inputs.is_empty()).then_some(OriginLine { step, inputs })
}
