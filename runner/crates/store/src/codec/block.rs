//! `Block`: the outputs of a worker, encoded for the log.
//!
//! A worker encodes its outputs into sections of up to about 32 KiB of jobs, each compressed if that pays.
//! Reading one job unpacks its whole section, and no other. The writing thread packs the sections of one
//! commit into values (see [`super::log_record`]), which determines their place. Numbers are little-endian, or
//! LEB128 if marked varint.
//!
//! ```text
//! section  flags u8 | jobs varint | raw length varint | body length varint | checksum u64
//! body     (lz4 of, where flag 1 is set) the length of each job as varint … | the jobs back to back
//!          | (where flag 2 is set) origins | (where flag 4 is set) carried
//! ```
//!
//! A body's checksum is XXH3-64. The layout of the columns `origins` and `carried` is in [`super::job_metadata`].

use std::borrow::Cow;
use std::ops::Range;

use tidegate_plugin::Payloads;
use twox_hash::XxHash3_64;

use super::bytes::{Bytes, Wrong, put_varint};
use super::job_metadata::{
    COLUMN_LENGTHS_MAX, CarriedColumn, Columns, Details, FLAG_CARRIED, FLAG_ORIGINS, OriginColumn,
};
use tidegate_model::{Address, Origin, Stamp};

/// Maximum bytes of jobs in one value. With its header a value of this size fits a page of 256 KiB, which
/// redb would otherwise double.
pub(crate) const VALUE_RAW_BYTES_MAX: usize = (256 << 10) - (4 << 10);

/// Maximum bytes of jobs in a section, which a read of one job unpacks. Smaller sections compress worse.
pub(crate) const SECTION_RAW_BYTES_MAX: usize = 32 << 10;

/// Below this size compression cannot save enough to be worth filling its table.
const COMPRESS_BYTES_MIN: usize = 192;

const FLAG_COMPRESSED: u8 = 1;

#[cfg(test)]
thread_local! {
    /// The bytes that this thread has unpacked.
    pub(crate) static UNPACKED: std::cell::Cell<Unpacked> = const { std::cell::Cell::new(Unpacked::NOTHING) };
}

/// Number of sections, of their bytes, and of the jobs returned from them.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unpacked {
    pub(crate) sections: usize,
    pub(crate) bytes: usize,
    pub(crate) jobs: usize,
}

#[cfg(test)]
impl Unpacked {
    pub(crate) const NOTHING: Self = Self { sections: 0, bytes: 0, jobs: 0 };

    fn add(sections: usize, bytes: usize, jobs: usize) {
        UNPACKED.with(|unpacked| {
            let Self { sections: s, bytes: b, jobs: j } = unpacked.get();
            unpacked.set(Self { sections: s + sections, bytes: b + bytes, jobs: j + jobs });
        });
    }
}

/// Jobs ready for the log, except for their place in it.
#[derive(Clone, Debug, Default)]
pub struct Block {
    sections: Vec<Section>,
    jobs: usize,
}

/// Jobs that are compressed together.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    header: SectionHeader,
    body: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SectionHeader {
    flags: u8,
    jobs: usize,
    raw_len: usize,
    body_len: usize,
    checksum: u64,
}

/// The limits of a read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadBounds {
    pub(crate) jobs: usize,
    /// Bytes of payloads and carried provenance.
    pub(crate) bytes: usize,
}

/// The jobs that a step has made from one job of an input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sought<'a> {
    pub(crate) step: &'a Address,
    /// The name of the input in delivery hashes.
    pub(crate) input: &'a str,
    pub(crate) index: u64,
}

/// A matching job: its position, its payload, and its origin.
pub(crate) type FoundJob<'f> = (usize, &'f [u8], Origin);

/// Jobs read from the log.
#[derive(Debug, Default)]
pub(crate) struct DecodedJobs {
    pub(crate) payloads: Payloads,
    /// One for each payload, once one of them carries provenance.
    pub(crate) carried: Option<Payloads>,
    /// One for each payload; `None` if the caller does not need them.
    pub(crate) origins: Option<Vec<Option<Origin>>>,
    pub(crate) stamps: Vec<Stamp>,
}

impl Block {
    /// Encodes `payloads` and their details. Called on worker threads, since it takes most of the time.
    #[must_use]
    pub fn encode(payloads: &Payloads, details: Details<'_>) -> Self {
        let details = details.worth_storing();
        let known = details.origins.is_some() || details.carried.is_some();
        let mut sections = Vec::new();
        let mut part = Part::default();
        for (position, length) in payloads.lengths().enumerate() {
            let len_max = length + 10 + if known { details.len_max(position) } else { 0 };
            if part.jobs > 0 && part.raw_len() + len_max > SECTION_RAW_BYTES_MAX {
                let next = Part { start: part.end, end: part.end, ..Part::default() };
                sections.push(std::mem::replace(&mut part, next).section(payloads));
            }
            part.push(length);
            if known {
                part.columns.push(details, position);
            }
        }
        if part.jobs > 0 {
            sections.push(part.section(payloads));
        }
        Self { sections, jobs: payloads.len() }
    }

    /// Number of jobs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.jobs
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs == 0
    }

    /// Number of bytes in the store, without headers.
    #[must_use]
    pub fn stored_len(&self) -> usize {
        self.sections.iter().map(|section| section.body.len()).sum()
    }

    pub(crate) fn sections(&self) -> &[Section] {
        &self.sections
    }

    pub(crate) fn of_sections(sections: Vec<Section>) -> Self {
        let jobs = sections.iter().map(Section::jobs).sum();
        Self { sections, jobs }
    }
}

/// The section that is being built: the payloads whose bytes range from `start` to `end`.
#[derive(Default)]
struct Part {
    lengths: Vec<u8>,
    start: usize,
    end: usize,
    jobs: usize,
    columns: Columns,
}

impl Part {
    fn push(&mut self, length: usize) {
        put_varint(&mut self.lengths, length as u64);
        self.end += length;
        self.jobs += 1;
    }

    fn raw_len(&self) -> usize {
        self.lengths.len() + (self.end - self.start) + self.columns.byte_len()
    }

    fn section(self, payloads: &Payloads) -> Section {
        let len_max = self.raw_len() + COLUMN_LENGTHS_MAX;
        let mut raw = self.lengths;
        raw.reserve_exact(len_max - raw.len());
        raw.extend_from_slice(&payloads.bytes()[self.start..self.end]);
        let mut flags = self.columns.write(&mut raw);
        let raw_len = raw.len();
        let body = match compress(&raw) {
            Some(body) => {
                flags |= FLAG_COMPRESSED;
                body
            }
            None => raw,
        };
        let checksum = XxHash3_64::oneshot(&body);
        let header = SectionHeader { flags, jobs: self.jobs, raw_len, body_len: body.len(), checksum };
        Section { header, body }
    }
}

impl Section {
    pub(crate) fn jobs(&self) -> usize {
        self.header.jobs
    }

    pub(crate) fn raw_len(&self) -> usize {
        self.header.raw_len
    }

    pub(crate) fn header(&self) -> SectionHeader {
        self.header
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Its header and its body.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        self.header.put(out);
        out.extend_from_slice(&self.body);
    }

    /// Reads what [`Self::put`] wrote.
    pub(crate) fn take(rest: &mut Bytes<'_>) -> Result<Self, Wrong> {
        let header = SectionHeader::parse(rest)?;
        Ok(Self { header, body: rest.take(header.body_len())?.to_vec() })
    }
}

impl SectionHeader {
    pub(crate) fn jobs(&self) -> usize {
        self.jobs
    }

    pub(crate) fn body_len(&self) -> usize {
        self.body_len
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.push(self.flags);
        put_varint(out, self.jobs as u64);
        put_varint(out, self.raw_len as u64);
        put_varint(out, self.body_len as u64);
        out.extend_from_slice(&self.checksum.to_le_bytes());
    }

    pub(crate) fn parse(rest: &mut Bytes<'_>) -> Result<Self, Wrong> {
        let flags = rest.u8()?;
        if flags & !(FLAG_COMPRESSED | FLAG_ORIGINS | FLAG_CARRIED) != 0 {
            return Err("a section has unknown flags");
        }
        let (jobs, raw_len, body_len) = (rest.length()?, rest.length()?, rest.length()?);
        Ok(Self { flags, jobs, raw_len, body_len, checksum: rest.u64()? })
    }

    /// Appends the jobs of a section to `out`, after the first `skip`, until `out` reaches the limit; at
    /// least one job if `out` is empty. Returns whether more jobs are wanted. On an error nothing is
    /// appended.
    pub(crate) fn read(
        &self,
        body: &[u8],
        skip: usize,
        wanted: ReadBounds,
        out: &mut DecodedJobs,
    ) -> Result<bool, Wrong> {
        let raw = self.unpack(body)?;
        let before = out.payloads.len();
        let read = self.read_raw(&raw, skip, wanted, out);
        match read {
            Ok(_) => out.fill(),
            Err(_) => out.truncate(before),
        }
        #[cfg(test)]
        Unpacked::add(0, 0, out.payloads.len() - before);
        read
    }

    /// Passes on the jobs at `positions` that match. No other job is copied.
    pub(crate) fn find(
        &self,
        body: &[u8],
        positions: Range<usize>,
        sought: Sought<'_>,
        found: &mut dyn FnMut(FoundJob<'_>),
    ) -> Result<(), Wrong> {
        if self.flags & FLAG_ORIGINS == 0 {
            return Ok(());
        }
        let raw = self.unpack(body)?;
        let mut lengths = Bytes(&raw);
        let (mut payloads, payload_bytes) = self.payloads(lengths)?;
        let mut columns = payloads;
        columns.take(payload_bytes)?;
        let mut origins = OriginColumn::parse(columns.bytes()?)?;
        let Some(input) = origins.input(sought.step, sought.input) else { return Ok(()) };
        for position in 0..self.jobs.min(positions.end) {
            let payload = payloads.take(lengths.length()?)?;
            origins.advance()?;
            if position >= positions.start && origins.index(input) == Some(sought.index) {
                #[cfg(test)]
                Unpacked::add(0, 0, 1);
                found((position, payload, origins.origin()));
            }
        }
        Ok(())
    }

    fn unpack<'b>(&self, body: &'b [u8]) -> Result<Cow<'b, [u8]>, Wrong> {
        #[cfg(test)]
        Unpacked::add(1, self.raw_len, 0);
        if XxHash3_64::oneshot(body) != self.checksum {
            return Err("the checksum of its jobs is wrong");
        }
        let is_compressed = self.flags & FLAG_COMPRESSED != 0;
        if is_compressed { decompress(body, self.raw_len).map(Cow::Owned) } else { Ok(Cow::Borrowed(body)) }
    }

    /// The bytes after the lengths, which begin with the payloads, and the total length of the payloads.
    fn payloads<'b>(&self, mut lengths: Bytes<'b>) -> Result<(Bytes<'b>, usize), Wrong> {
        let mut payload_bytes = 0_usize;
        for _ in 0..self.jobs {
            payload_bytes = payload_bytes.saturating_add(lengths.length()?);
        }
        Ok((lengths, payload_bytes))
    }

    fn read_raw(
        &self,
        raw: &[u8],
        skip: usize,
        wanted: ReadBounds,
        out: &mut DecodedJobs,
    ) -> Result<bool, Wrong> {
        let mut lengths = Bytes(raw);
        let (mut payloads, payload_bytes) = self.payloads(lengths)?;
        let mut columns = payloads;
        let (mut origins, mut carried) = (None, None);
        if self.flags & (FLAG_ORIGINS | FLAG_CARRIED) != 0 {
            columns.take(payload_bytes)?;
            if self.flags & FLAG_ORIGINS != 0 {
                let column = columns.bytes()?;
                origins = out.origins.is_some().then(|| OriginColumn::parse(column)).transpose()?;
            }
            if self.flags & FLAG_CARRIED != 0 {
                carried = Some(CarriedColumn::parse(columns.bytes()?, self.jobs)?);
            }
        }
        for position in 0..self.jobs {
            let payload = payloads.take(lengths.length()?)?;
            if let Some(origins) = &mut origins {
                origins.advance()?;
            }
            let text = carried.as_mut().map(CarriedColumn::next).transpose()?;
            if position < skip {
                continue;
            }
            let len = payload.len() + text.map_or(0, <[u8]>::len);
            let full = out.payloads.len() >= wanted.jobs || out.byte_len() + len > wanted.bytes;
            if full && !out.payloads.is_empty() {
                return Ok(false);
            }
            if let Some(text) = text {
                out.carry(text);
            }
            out.payloads.push(payload);
            if let (Some(origins), Some(all)) = (&origins, &mut out.origins) {
                all.resize(out.payloads.len() - 1, None);
                all.push(Some(origins.origin()));
            }
        }
        Ok(true)
    }
}

impl DecodedJobs {
    /// No jobs yet, with space for their origins.
    pub(crate) fn with_origins() -> Self {
        Self { origins: Some(Vec::new()), ..Self::default() }
    }

    pub(crate) fn byte_len(&self) -> usize {
        self.payloads.byte_len() + self.carried.as_ref().map_or(0, Payloads::byte_len)
    }

    /// Adds the provenance of the next payload.
    fn carry(&mut self, text: &[u8]) {
        if text.is_empty() {
            return;
        }
        let carried = self.carried.get_or_insert_default();
        pad(carried, self.payloads.len());
        carried.push(text);
    }

    /// Adds empty entries, so that every payload has the same columns.
    fn fill(&mut self) {
        let jobs = self.payloads.len();
        if let Some(carried) = &mut self.carried {
            pad(carried, jobs);
        }
        if let Some(origins) = &mut self.origins {
            origins.resize(jobs, None);
        }
    }

    fn truncate(&mut self, jobs: usize) {
        self.payloads.truncate(jobs);
        if let Some(carried) = &mut self.carried {
            carried.truncate(jobs);
        }
        self.fill();
    }
}

fn pad(texts: &mut Payloads, jobs: usize) {
    while texts.len() < jobs {
        texts.push(b"");
    }
}

/// `None` if it would save less than an eighth.
pub(crate) fn compress(raw: &[u8]) -> Option<Vec<u8>> {
    if raw.len() < COMPRESS_BYTES_MIN {
        return None;
    }
    let mut body = lz4_flex::block::compress(raw);
    if body.len() > raw.len() - raw.len() / 8 {
        return None;
    }
    // The capacity was for the worst case.
    body.shrink_to_fit();
    Some(body)
}

pub(crate) fn decompress(body: &[u8], raw_len: usize) -> Result<Vec<u8>, Wrong> {
    // lz4 compresses 255 bytes into one at best, so a greater ratio is a damaged length.
    if raw_len / 256 > body.len() {
        return Err("a compressed part is longer than its bytes can hold");
    }
    let mut raw = vec![0; raw_len];
    match lz4_flex::block::decompress_into(body, &mut raw) {
        Ok(len) if len == raw_len => Ok(raw),
        _ => Err("a compressed part cannot be decompressed"),
    }
}

#[cfg(test)]
mod tests;
