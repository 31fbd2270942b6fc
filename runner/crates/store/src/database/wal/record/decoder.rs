//! `Decoder`: reads what [`super::encoder::Encoder`] wrote, in the same order.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use crate::api::completion;
use crate::api::delivery::{DeliveredJob, DeliveredJobs, DeliveryOutcome, DeliveryTimes};
use crate::api::late_job::{LateChanges, LateJob, LateKey, NewLateJob};
use crate::api::parked_job::{NewParkedJob, ParkedId, ParkedJob, ParkedKey};
use crate::codec::block::{Block, Section};
use crate::codec::bytes::{Bytes, Wrong, add_zigzag};
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

/// The record that is being read.
pub(crate) struct Decoder<'a> {
    now: Timestamp,
    names: Vec<Address>,
    rest: Bytes<'a>,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(record: &'a [u8]) -> Result<Self, Wrong> {
        let mut rest = Bytes(record);
        let now = Timestamp(rest.u64()?.cast_signed());
        let mut names = Vec::new();
        for _ in 0..rest.varint()? {
            names.push(Address::parse(rest.text()?).ok_or("a name in it is invalid")?);
        }
        Ok(Self { now, names, rest })
    }

    /// Whether the whole record has been read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.0.is_empty()
    }

    pub(crate) fn changes(&mut self) -> Result<Changes, Wrong> {
        // In the order of the encoder.
        Ok(Changes {
            now: self.now,
            appends: self.list(Self::append)?,
            progress: self.list(|from| Ok((from.address()?, from.address()?, from.progress()?)))?,
            handled_errors: self.list(|from| Ok((from.address()?, from.progress()?)))?,
            sinks: self.list(|from| Ok((from.address()?, from.sink()?)))?,
            marks: self.list(|from| Ok((from.address()?, from.offset()?)))?,
            segments: self.list(|from| Ok((from.address()?, from.segment()?)))?,
            delivered: self.list(Self::delivered)?,
            dedupe_records: self.list(|from| {
                let (hash, outcome) = (from.hash()?, from.outcome()?);
                let times = from.maybe(Self::times)?;
                Ok(DedupeRecord { hash, outcome, times, keep_until: from.maybe(Self::time)? })
            })?,
            ingested: self.list(Self::ingested)?,
            done_snapshots: self
                .list(|from| Ok(SnapshotKey { step: from.address()?, number: from.number()? }))?,
            snapshots: self.list(Self::snapshot)?,
            unparked: self.list(Self::parked_key)?,
            reparked: self.list(|from| Ok((from.parked_key()?, from.parked()?)))?,
            parked: self.list(|from| Ok(NewParkedJob { step: from.address()?, job: from.parked()? }))?,
            late: LateChanges {
                done: self.list(Self::late_key)?,
                moved: self.list(|from| Ok((from.late_key()?, from.late()?)))?,
                new: self.list(|from| Ok(NewLateJob { queue: from.address()?, job: from.late()? }))?,
            },
            bindings: self.list(|from| {
                Ok(FirstInput { step: from.address()?, binding: from.text()?, input: from.address()? })
            })?,
            schedule_positions: self.list(|from| Ok((from.address()?, from.time()?)))?,
            cursors: self.list(|from| Ok((from.address()?, from.text()?)))?,
            trims: self.list(Self::trim)?,
            ..Changes::default()
        })
    }

    fn list<T>(&mut self, mut take: impl FnMut(&mut Self) -> Result<T, Wrong>) -> Result<Vec<T>, Wrong> {
        let mut all = Vec::new();
        for _ in 0..self.number()? {
            all.push(take(self)?);
        }
        Ok(all)
    }

    fn maybe<T>(&mut self, take: impl FnOnce(&mut Self) -> Result<T, Wrong>) -> Result<Option<T>, Wrong> {
        self.flag()?.then(|| take(self)).transpose()
    }

    fn flag(&mut self) -> Result<bool, Wrong> {
        match self.rest.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err("a flag in it is neither 0 nor 1"),
        }
    }

    fn number(&mut self) -> Result<u64, Wrong> {
        self.rest.varint()
    }

    fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Wrong> {
        T::try_from(self.number()?).map_err(|_| "a number in it is too large")
    }

    fn text(&mut self) -> Result<String, Wrong> {
        self.rest.text().map(str::to_owned)
    }

    fn time(&mut self) -> Result<Timestamp, Wrong> {
        Ok(Timestamp(add_zigzag(self.now.0.cast_unsigned(), self.number()?).cast_signed()))
    }

    fn hash(&mut self) -> Result<DeliveryHash, Wrong> {
        let (low, high) = (self.rest.u64()?, self.rest.u64()?);
        Ok(DeliveryHash(u128::from(high) << 64 | u128::from(low)))
    }

    fn address(&mut self) -> Result<Address, Wrong> {
        let position = self.small::<usize>()?;
        self.names.get(position).cloned().ok_or("a name in it is missing")
    }

    fn append(&mut self) -> Result<Append, Wrong> {
        let queue = self.address()?;
        let sections = self.list(|from| Section::take(&mut from.rest))?;
        Ok(Append { queue, block: Block::of_sections(sections) })
    }

    fn progress(&mut self) -> Result<Progress, Wrong> {
        let (position, before) = (self.number()?, self.number()?);
        let counters = Counters {
            taken: self.number()?,
            given: self.number()?,
            filtered: self.number()?,
            failed: self.number()?,
            lost: self.number()?,
        };
        let mut finished = self.list(|from| Ok((from.number()?, from.number()?)))?;
        let mut progress = Progress::default();
        progress.start_after(before);
        progress.skip_to(position);
        progress.finish_all(&mut finished);
        progress.counters = counters;
        Ok(progress)
    }

    fn sink(&mut self) -> Result<SinkPosition, Wrong> {
        Ok(SinkPosition {
            offset: self.number()?,
            tail_len: self.small()?,
            tail_hash: self.number()?,
            device: self.number()?,
            inode: self.number()?,
            path_hash: self.number()?,
            path: self.maybe(Self::text)?,
            open: self.flag()?,
        })
    }

    fn offset(&mut self) -> Result<SourceOffset, Wrong> {
        Ok(SourceOffset {
            index: self.number()?,
            segment: self.small()?,
            offset: self.number()?,
            line: self.number()?,
        })
    }

    fn segment(&mut self) -> Result<Segment, Wrong> {
        Ok(Segment {
            path: PathBuf::from(OsStr::from_bytes(self.rest.bytes()?)),
            ordinal: self.small()?,
            first: self.number()?,
            device: self.number()?,
            inode: self.number()?,
            fingerprint: self.number()?,
            fingerprint_len: self.small()?,
            offset: self.number()?,
            line: self.number()?,
            tail: self.maybe(|from| {
                Ok(TailFingerprint { at: from.offset()?, hash: from.number()?, len: from.small()? })
            })?,
            siblings_known: self.flag()?,
            end: self.maybe(Self::offset)?,
        })
    }

    fn delivered(&mut self) -> Result<DeliveredJobs, Wrong> {
        let (step, input, keep_until) = (self.address()?, self.text()?, self.maybe(Self::time)?);
        let mut next = 0_u64;
        let jobs = self.list(|from| {
            let index = add_zigzag(next, from.number()?);
            next = index.wrapping_add(1);
            let outcome = match from.number()? {
                0 => DeliveryOutcome::Error,
                1 => DeliveryOutcome::Nothing,
                code => {
                    let jobs = u32::try_from(code - 2).map_err(|_| "an outcome in it is unknown")?;
                    DeliveryOutcome::Output { jobs }
                }
            };
            Ok(DeliveredJob { index, outcome, times: from.times()? })
        })?;
        Ok(DeliveredJobs { step, input, jobs, keep_until })
    }

    fn times(&mut self) -> Result<DeliveryTimes, Wrong> {
        Ok(DeliveryTimes {
            attempts: self.small()?,
            created: self.maybe(Self::time)?,
            first_attempt: self.maybe(Self::time)?,
            submitted: self.maybe(Self::time)?,
        })
    }

    fn outcome(&mut self) -> Result<DedupeOutcome, Wrong> {
        Ok(match self.rest.u8()? {
            0 => DedupeOutcome::Output { jobs: self.small()? },
            1 => DedupeOutcome::Error,
            2 => DedupeOutcome::Nothing,
            3 => DedupeOutcome::Ingested {
                first: self.number()?,
                jobs: self.small()?,
                content: self.number()?,
            },
            4 => {
                let status = completion::status(self.rest.u8()?).ok_or("an external status is unknown")?;
                DedupeOutcome::CompletedExternally { status, content: self.number()? }
            }
            5 => DedupeOutcome::IngestedLate {
                first: self.number()?,
                jobs: self.small()?,
                content: self.number()?,
                late_first: ParkedId(self.number()?),
                late: self.small()?,
            },
            _ => return Err("an outcome in it is unknown"),
        })
    }

    fn ingested(&mut self) -> Result<IngestedKey, Wrong> {
        Ok(IngestedKey {
            hash: self.hash()?,
            append: self.small()?,
            position: self.number()?,
            jobs: self.small()?,
            late_position: self.small()?,
            late: self.small()?,
            content: self.number()?,
            keep_until: self.maybe(Self::time)?,
        })
    }

    fn snapshot(&mut self) -> Result<Snapshot, Wrong> {
        Ok(Snapshot {
            step: self.address()?,
            number: self.number()?,
            inputs: self.list(|from| {
                let (name, address) = (from.text()?, from.address()?);
                Ok(SnapshotInput { name, address, first: from.number()?, jobs: from.number()? })
            })?,
            jobs: self.number()?,
            time: self.time()?,
        })
    }

    fn parked_key(&mut self) -> Result<ParkedKey, Wrong> {
        Ok(ParkedKey { step: self.address()?, id: ParkedId(self.number()?) })
    }

    fn parked(&mut self) -> Result<ParkedJob, Wrong> {
        parked_record::decode(self.rest.bytes()?)
    }

    fn late_key(&mut self) -> Result<LateKey, Wrong> {
        Ok(LateKey { queue: self.address()?, id: ParkedId(self.number()?) })
    }

    fn late(&mut self) -> Result<LateJob, Wrong> {
        let due = match self.rest.u8()? {
            0 => Due::Now,
            1 => Due::Hastened(self.time()?),
            2 => Due::At(self.time()?),
            3 => Due::Never,
            _ => return Err("a due time in it is unknown"),
        };
        Ok(LateJob { due, payload: self.rest.bytes()?.to_vec() })
    }

    fn trim(&mut self) -> Result<Trim, Wrong> {
        let (queue, up_to) = (self.address()?, self.number()?);
        let when = match self.rest.u8()? {
            0 => TrimWhen::Always,
            1 => TrimWhen::OlderThan(self.time()?),
            2 => TrimWhen::Never,
            _ => return Err("the condition of a deletion is unknown"),
        };
        Ok(Trim { queue, up_to, when, max_bytes: self.maybe(Self::number)? })
    }
}
