//! `Encoder`: writes the lists of [`Changes`], and collects their names.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;

use crate::api::completion;
use crate::api::delivery::{DeliveredJob, DeliveredJobs, DeliveryOutcome, DeliveryTimes};
use crate::api::late_job::{LateChanges, LateJob, LateKey, NewLateJob};
use crate::api::parked_job::{NewParkedJob, ParkedKey};
use crate::codec::bytes::{put_bytes, put_varint, zigzag};
use crate::codec::parked_record;
use crate::database::bindings::FirstInput;
use crate::database::changes::{Append, Changes};
use crate::database::dedupe::{DedupeOutcome, DedupeRecord, IngestedKey};
use crate::database::retention::{Trim, TrimWhen};
use crate::database::snapshots::{Snapshot, SnapshotInput, SnapshotKey};
use tidegate_model::{
    Address, Counters, DeliveryHash, Due, Progress, Segment, SinkPosition, SourceOffset, TailFingerprint,
    Timestamp,
};

/// The record that is being written.
pub(crate) struct Encoder<'a> {
    now: Timestamp,
    names: BTreeMap<&'a Address, u64>,
    /// The names by position.
    order: Vec<&'a Address>,
    out: Vec<u8>,
}

impl<'a> Encoder<'a> {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { now, names: BTreeMap::new(), order: Vec::new(), out: Vec::new() }
    }

    /// The whole record.
    pub(crate) fn finish(self) -> Vec<u8> {
        let mut record = Vec::with_capacity(self.out.len() + 32 * self.order.len() + 18);
        record.extend_from_slice(&self.now.0.to_le_bytes());
        put_varint(&mut record, self.order.len() as u64);
        for name in &self.order {
            put_bytes(&mut record, name.to_string().as_bytes());
        }
        record.extend_from_slice(&self.out);
        record
    }

    pub(crate) fn changes(&mut self, changes: &'a Changes) {
        self.list(&changes.appends, |out, Append { queue, block }| {
            out.address(queue);
            out.list(block.sections(), |out, section| section.put(&mut out.out));
        });
        self.list(&changes.progress, |out, (step, input, progress)| {
            out.address(step);
            out.address(input);
            out.progress(progress);
        });
        self.list(&changes.handled_errors, |out, (queue, progress)| {
            out.address(queue);
            out.progress(progress);
        });
        self.list(&changes.sinks, |out, (sink, position)| {
            out.address(sink);
            out.sink(position);
        });
        self.list(&changes.marks, |out, (source, mark)| {
            out.address(source);
            out.offset(mark);
        });
        self.list(&changes.segments, |out, (source, segment)| {
            out.address(source);
            out.segment(segment);
        });
        self.list(&changes.delivered, Self::delivered);
        self.list(&changes.dedupe_records, |out, DedupeRecord { hash, outcome, times, keep_until }| {
            out.hash(*hash);
            out.outcome(*outcome);
            out.maybe(times.as_ref(), Self::times);
            out.maybe(keep_until.as_ref(), |out, until| out.time(*until));
        });
        self.list(&changes.ingested, Self::ingested);
        self.list(&changes.done_snapshots, |out, SnapshotKey { step, number }| {
            out.address(step);
            out.number(*number);
        });
        self.list(&changes.snapshots, Self::snapshot);
        self.list(&changes.unparked, Self::parked_key);
        self.list(&changes.reparked, |out, (key, job)| {
            out.parked_key(key);
            out.bytes(&parked_record::encode(job));
        });
        self.list(&changes.parked, |out, NewParkedJob { step, job }| {
            out.address(step);
            out.bytes(&parked_record::encode(job));
        });
        let LateChanges { done, moved, new } = &changes.late;
        self.list(done, Self::late_key);
        self.list(moved, |out, (key, job)| {
            out.late_key(key);
            out.late(job);
        });
        self.list(new, |out, NewLateJob { queue, job }| {
            out.address(queue);
            out.late(job);
        });
        self.list(&changes.bindings, |out, FirstInput { step, binding, input }| {
            out.address(step);
            out.text(binding);
            out.address(input);
        });
        self.list(&changes.schedule_positions, |out, (source, time)| {
            out.address(source);
            out.time(*time);
        });
        self.list(&changes.cursors, |out, (source, cursor)| {
            out.address(source);
            out.text(cursor);
        });
        self.list(&changes.trims, |out, Trim { queue, up_to, when, max_bytes }| {
            out.address(queue);
            out.number(*up_to);
            match when {
                TrimWhen::Always => out.out.push(0),
                TrimWhen::OlderThan(time) => {
                    out.out.push(1);
                    out.time(*time);
                }
                TrimWhen::Never => out.out.push(2),
            }
            out.maybe(max_bytes.as_ref(), |out, bytes| out.number(*bytes));
        });
    }

    fn list<T>(&mut self, all: &'a [T], mut put: impl FnMut(&mut Self, &'a T)) {
        self.number(all.len() as u64);
        for one in all {
            put(self, one);
        }
    }

    fn maybe<T>(&mut self, value: Option<&'a T>, put: impl FnOnce(&mut Self, &'a T)) {
        self.out.push(u8::from(value.is_some()));
        if let Some(value) = value {
            put(self, value);
        }
    }

    fn number(&mut self, number: u64) {
        put_varint(&mut self.out, number);
    }

    fn numbers<const N: usize>(&mut self, numbers: [u64; N]) {
        for number in numbers {
            self.number(number);
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        put_bytes(&mut self.out, bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn time(&mut self, Timestamp(time): Timestamp) {
        self.number(zigzag(self.now.0.cast_unsigned(), time.cast_unsigned()));
    }

    fn hash(&mut self, DeliveryHash(hash): DeliveryHash) {
        self.out.extend_from_slice(&hash.to_le_bytes());
    }

    fn address(&mut self, address: &'a Address) {
        let next = self.order.len() as u64;
        let position = *self.names.entry(address).or_insert_with(|| {
            self.order.push(address);
            next
        });
        self.number(position);
    }

    fn progress(&mut self, progress: &'a Progress) {
        let Counters { taken, given, filtered, failed, lost } = progress.counters;
        self.numbers([progress.position(), progress.skipped_up_to(), taken, given, filtered, failed, lost]);
        self.list(progress.finished(), |out, (first, last)| {
            out.number(*first);
            out.number(*last);
        });
    }

    fn sink(&mut self, position: &'a SinkPosition) {
        let SinkPosition { offset, tail_len, tail_hash, device, inode, path_hash, path, open } = position;
        self.numbers([*offset, u64::from(*tail_len), *tail_hash, *device, *inode, *path_hash]);
        self.maybe(path.as_ref(), |out, path| out.text(path));
        self.out.push(u8::from(*open));
    }

    fn offset(&mut self, &SourceOffset { index, segment, offset, line }: &SourceOffset) {
        self.numbers([index, u64::from(segment), offset, line]);
    }

    fn segment(&mut self, segment: &'a Segment) {
        let Segment {
            ordinal,
            first,
            path,
            device,
            inode,
            fingerprint,
            fingerprint_len,
            offset,
            line,
            tail,
            siblings_known,
            end,
        } = segment;
        self.bytes(path.as_os_str().as_bytes());
        self.numbers([
            u64::from(*ordinal),
            *first,
            *device,
            *inode,
            *fingerprint,
            u64::from(*fingerprint_len),
            *offset,
            *line,
        ]);
        self.maybe(tail.as_ref(), |out, TailFingerprint { at, hash, len }| {
            out.offset(at);
            out.number(*hash);
            out.number((*len).into());
        });
        self.out.push(u8::from(*siblings_known));
        self.maybe(end.as_ref(), Self::offset);
    }

    fn delivered(&mut self, DeliveredJobs { step, input, jobs, keep_until }: &'a DeliveredJobs) {
        self.address(step);
        self.text(input);
        self.maybe(keep_until.as_ref(), |out, until| out.time(*until));
        let mut next = 0_u64;
        self.list(jobs, |out, DeliveredJob { index, outcome, times }| {
            out.number(zigzag(next, *index));
            next = index.wrapping_add(1);
            out.number(match outcome {
                DeliveryOutcome::Error => 0,
                DeliveryOutcome::Nothing => 1,
                DeliveryOutcome::Output { jobs } => 2 + u64::from(*jobs),
            });
            out.times(times);
        });
    }

    fn times(&mut self, times: &'a DeliveryTimes) {
        let DeliveryTimes { attempts, created, first_attempt, submitted } = times;
        self.number((*attempts).into());
        for time in [created, first_attempt, submitted] {
            self.maybe(time.as_ref(), |out, time| out.time(*time));
        }
    }

    fn outcome(&mut self, outcome: DedupeOutcome) {
        match outcome {
            DedupeOutcome::Output { jobs } => {
                self.out.push(0);
                self.number(jobs.into());
            }
            DedupeOutcome::Error => self.out.push(1),
            DedupeOutcome::Nothing => self.out.push(2),
            DedupeOutcome::Ingested { first, jobs, content } => {
                self.out.push(3);
                self.numbers([first, jobs.into(), content]);
            }
            DedupeOutcome::CompletedExternally { status, content } => {
                self.out.extend([4, completion::code(status)]);
                self.number(content);
            }
            DedupeOutcome::IngestedLate { first, jobs, content, late_first, late } => {
                self.out.push(5);
                self.numbers([first, jobs.into(), content, late_first.0, late.into()]);
            }
        }
    }

    fn ingested(&mut self, key: &'a IngestedKey) {
        let IngestedKey { hash, append, position, jobs, late_position, late, content, keep_until } = key;
        self.hash(*hash);
        let (append, late_position) = (*append as u64, *late_position as u64);
        self.numbers([append, *position, u64::from(*jobs), late_position, u64::from(*late), *content]);
        self.maybe(keep_until.as_ref(), |out, until| out.time(*until));
    }

    fn snapshot(&mut self, Snapshot { step, number, inputs, jobs, time }: &'a Snapshot) {
        self.address(step);
        self.number(*number);
        self.list(inputs, |out, SnapshotInput { name, address, first, jobs }| {
            out.text(name);
            out.address(address);
            out.number(*first);
            out.number(*jobs);
        });
        self.number(*jobs);
        self.time(*time);
    }

    fn parked_key(&mut self, ParkedKey { step, id }: &'a ParkedKey) {
        self.address(step);
        self.number(id.0);
    }

    fn late_key(&mut self, LateKey { queue, id }: &'a LateKey) {
        self.address(queue);
        self.number(id.0);
    }

    fn late(&mut self, LateJob { due, payload }: &LateJob) {
        let (kind, time) = match due {
            Due::Now => (0, None),
            Due::Hastened(time) => (1, Some(time)),
            Due::At(time) => (2, Some(time)),
            Due::Never => (3, None),
        };
        self.out.push(kind);
        if let Some(time) = time {
            self.time(*time);
        }
        self.bytes(payload);
    }
}
