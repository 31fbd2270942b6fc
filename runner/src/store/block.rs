//! Jobs as bytes: how the log holds the jobs of one commit together as one value.
//!
//! A worker encodes its outputs into a [`Block`]: sections of up to about 256 KiB of jobs, each
//! compressed where that pays. The writing thread packs the sections of one commit into values and
//! only then knows where they stand, so a value's header is finished there. Numbers are
//! little-endian, or LEB128 where it says varint.
//!
//! ```text
//! value    checksum u64 | version u8 = 1 | time i64 | jobs varint | sections varint
//!          | section header … | section body …
//! section  flags u8 | jobs varint | raw length varint | body length varint | checksum u64
//! body     (lz4 of, where flag 1 is set) the length of each job as varint … | the jobs back to back
//! ```
//!
//! `time` is milliseconds since the Unix epoch, of the commit. A body's checksum is XXH3-64. A
//! value's checksum is XXH3-64 over all that follows it up to the bodies, seeded with the place of
//! the value in the log, so that a value which stands where it does not belong is noticed.

use tidegate_plugin::Payloads;
use twox_hash::XxHash3_64;

use crate::words::Timestamp;

/// How many bytes of jobs one value brings together. With its header a value of this size just
/// fits a page of 256 KiB, which redb would otherwise double.
pub(super) const VALUE_RAW_BYTES_MAX: usize = (256 << 10) - (4 << 10);

/// Below this, compressing cannot win enough to be worth the table that it fills.
const COMPRESS_BYTES_MIN: usize = 192;

const VERSION: u8 = 1;
const FLAG_COMPRESSED: u8 = 1;
/// Checksum, version, time.
const FIXED_BYTES: usize = 8 + 1 + 8;

/// Jobs that are ready for the log, but for their place in it.
#[derive(Clone, Debug, Default)]
pub struct Block {
    sections: Vec<Section>,
    jobs: usize,
}

/// Jobs that are compressed together.
#[derive(Clone, Debug)]
pub(super) struct Section {
    header: SectionHeader,
    body: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct SectionHeader {
    compressed: bool,
    jobs: usize,
    raw_len: usize,
    body_len: usize,
    checksum: u64,
}

/// A value of the log whose header has been checked.
#[derive(Debug)]
pub(super) struct Value<'a> {
    pub(super) jobs: u64,
    pub(super) time: Timestamp,
    sections: Vec<(SectionHeader, &'a [u8])>,
}

/// How much a reader wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) jobs: usize,
    pub(super) bytes: usize,
}

/// What is wrong with a value; a sentence fragment.
type Wrong = &'static str;

impl Block {
    /// Encodes `payloads`. Meant for the worker threads: this is where the time goes.
    #[must_use]
    pub fn encode(payloads: &Payloads) -> Self {
        let mut sections = Vec::new();
        let mut part = Part::default();
        for length in payloads.lengths() {
            if part.jobs > 0 && part.raw_len() + length + 10 > VALUE_RAW_BYTES_MAX {
                let next = Part { start: part.end, end: part.end, ..Part::default() };
                sections.push(std::mem::replace(&mut part, next).section(payloads));
            }
            part.push(length);
        }
        if part.jobs > 0 {
            sections.push(part.section(payloads));
        }
        Self { sections, jobs: payloads.len() }
    }

    /// How many jobs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.jobs
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs == 0
    }

    /// How many bytes it takes in the store, but for headers.
    #[must_use]
    pub fn stored_len(&self) -> usize {
        self.sections.iter().map(|section| section.body.len()).sum()
    }

    pub(super) fn sections(&self) -> &[Section] {
        &self.sections
    }
}

/// The section in the making: the payloads whose bytes go from `start` to `end`.
#[derive(Default)]
struct Part {
    lengths: Vec<u8>,
    start: usize,
    end: usize,
    jobs: usize,
}

impl Part {
    fn push(&mut self, length: usize) {
        put_varint(&mut self.lengths, length as u64);
        self.end += length;
        self.jobs += 1;
    }

    fn raw_len(&self) -> usize {
        self.lengths.len() + (self.end - self.start)
    }

    fn section(self, payloads: &Payloads) -> Section {
        let raw_len = self.raw_len();
        let mut raw = self.lengths;
        raw.reserve_exact(self.end - self.start);
        raw.extend_from_slice(&payloads.bytes()[self.start..self.end]);
        let (compressed, body) = match compress(&raw) {
            Some(body) => (true, body),
            None => (false, raw),
        };
        let checksum = XxHash3_64::oneshot(&body);
        let header = SectionHeader { compressed, jobs: self.jobs, raw_len, body_len: body.len(), checksum };
        Section { header, body }
    }
}

impl Section {
    pub(super) fn jobs(&self) -> usize {
        self.header.jobs
    }

    pub(super) fn raw_len(&self) -> usize {
        self.header.raw_len
    }
}

/// The header of a value that is about to be written, and how long the whole value is.
pub(super) fn value_header(sections: &[&Section], time: Timestamp, place: u64) -> (Vec<u8>, usize) {
    let jobs: usize = sections.iter().map(|section| section.jobs()).sum();
    let mut header = Vec::with_capacity(FIXED_BYTES + 8 + sections.len() * 20);
    header.extend_from_slice(&[0; 8]);
    header.push(VERSION);
    header.extend_from_slice(&time.0.to_le_bytes());
    put_varint(&mut header, jobs as u64);
    put_varint(&mut header, sections.len() as u64);
    for section in sections {
        header.push(if section.header.compressed { FLAG_COMPRESSED } else { 0 });
        put_varint(&mut header, section.header.jobs as u64);
        put_varint(&mut header, section.header.raw_len as u64);
        put_varint(&mut header, section.body.len() as u64);
        header.extend_from_slice(&section.header.checksum.to_le_bytes());
    }
    let checksum = XxHash3_64::oneshot_with_seed(place, &header[8..]);
    header[..8].copy_from_slice(&checksum.to_le_bytes());
    let bodies: usize = sections.iter().map(|section| section.body.len()).sum();
    let len = header.len() + bodies;
    (header, len)
}

/// Fills `out`, which is as long as [`value_header`] said.
pub(super) fn write_value(header: &[u8], sections: &[&Section], out: &mut [u8]) {
    let bodies = sections.iter().map(|section| &section.body[..]);
    let mut at = 0;
    for piece in std::iter::once(header).chain(bodies) {
        out[at..at + piece.len()].copy_from_slice(piece);
        at += piece.len();
    }
}

impl<'a> Value<'a> {
    /// Takes a value apart that stands at `place`.
    pub(super) fn parse(bytes: &'a [u8], place: u64) -> Result<Self, Wrong> {
        let mut rest = Bytes(bytes);
        let checksum = rest.u64()?;
        if rest.take(1)? != [VERSION] {
            return Err("its version is unknown");
        }
        let time = Timestamp(rest.u64()?.cast_signed());
        let jobs = rest.varint()?;
        let count = rest.varint()?;
        let mut headers = Vec::new();
        for _ in 0..count {
            headers.push(SectionHeader::parse(&mut rest)?);
        }
        let header_len = bytes.len() - rest.0.len();
        if XxHash3_64::oneshot_with_seed(place, &bytes[8..header_len]) != checksum {
            return Err("the checksum of its header is wrong");
        }
        let mut sections = Vec::with_capacity(headers.len());
        for header in headers {
            sections.push((header, rest.take(header.body_len)?));
        }
        if !rest.0.is_empty() {
            return Err("it is longer than it says");
        }
        Ok(Self { jobs, time, sections })
    }

    /// Appends jobs to `out`, from the one at `position` (from 0) on, until `out` holds as much as
    /// is wanted. At least one job, where `out` was empty.
    pub(super) fn read(&self, position: u64, wanted: Wanted, out: &mut Payloads) -> Result<(), Wrong> {
        // A position past the end of memory is past the end of every value.
        let mut skip = usize::try_from(position).unwrap_or(usize::MAX);
        for (header, body) in &self.sections {
            if skip >= header.jobs {
                skip -= header.jobs;
                continue;
            }
            if !header.read(body, skip, wanted, out)? {
                return Ok(());
            }
            skip = 0;
        }
        Ok(())
    }
}

impl SectionHeader {
    fn parse(rest: &mut Bytes<'_>) -> Result<Self, Wrong> {
        let compressed = match rest.take(1)? {
            [0] => false,
            [FLAG_COMPRESSED] => true,
            _ => return Err("a section has unknown flags"),
        };
        let (jobs, raw_len, body_len) = (rest.length()?, rest.length()?, rest.length()?);
        Ok(Self { compressed, jobs, raw_len, body_len, checksum: rest.u64()? })
    }

    /// As [`Value::read`]; answers whether more jobs are wanted.
    fn read(&self, body: &[u8], skip: usize, wanted: Wanted, out: &mut Payloads) -> Result<bool, Wrong> {
        if XxHash3_64::oneshot(body) != self.checksum {
            return Err("the checksum of its jobs is wrong");
        }
        let decompressed;
        let raw = if self.compressed {
            decompressed = decompress(body, self.raw_len)?;
            &decompressed[..]
        } else {
            body
        };
        let mut lengths = Bytes(raw);
        let mut payloads = lengths;
        for _ in 0..self.jobs {
            payloads.varint()?;
        }
        for position in 0..self.jobs {
            let payload = payloads.take(lengths.length()?)?;
            if position < skip {
                continue;
            }
            let full = out.len() >= wanted.jobs || out.byte_len() + payload.len() > wanted.bytes;
            if full && !out.is_empty() {
                return Ok(false);
            }
            out.push(payload);
        }
        Ok(true)
    }
}

/// `None` where it would save less than an eighth.
fn compress(raw: &[u8]) -> Option<Vec<u8>> {
    if raw.len() < COMPRESS_BYTES_MIN {
        return None;
    }
    let mut body = lz4_flex::block::compress(raw);
    if body.len() > raw.len() - raw.len() / 8 {
        return None;
    }
    // It was made for the worst case.
    body.shrink_to_fit();
    Some(body)
}

fn decompress(body: &[u8], raw_len: usize) -> Result<Vec<u8>, Wrong> {
    // lz4 cannot do better than one byte for 255: anything more is no length of ours.
    if raw_len / 256 > body.len() {
        return Err("a section says that it is longer than it can be");
    }
    let mut raw = vec![0; raw_len];
    match lz4_flex::block::decompress_into(body, &mut raw) {
        Ok(len) if len == raw_len => Ok(raw),
        _ => Err("a section cannot be decompressed"),
    }
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// What is left to read.
#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Wrong> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or("it is cut short")?;
        self.0 = rest;
        Ok(taken)
    }

    fn u64(&mut self) -> Result<u64, Wrong> {
        let (taken, rest) = self.0.split_first_chunk().ok_or("it is cut short")?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*taken))
    }

    fn varint(&mut self) -> Result<u64, Wrong> {
        let mut number = 0;
        for (position, &byte) in self.0.iter().enumerate().take(10) {
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if position == 9 && bits > 1 {
                break;
            }
            number |= bits << (7 * position);
            if byte < 0x80 {
                self.0 = &self.0[position + 1..];
                return Ok(number);
            }
        }
        Err("it holds a broken number")
    }

    fn length(&mut self) -> Result<usize, Wrong> {
        usize::try_from(self.varint()?).map_err(|_| "a length is larger than memory")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: Wanted = Wanted { jobs: usize::MAX, bytes: usize::MAX };

    fn value(blocks: &[&Block], place: u64) -> Vec<u8> {
        let sections: Vec<_> = blocks.iter().flat_map(|block| block.sections()).collect();
        let (header, len) = value_header(&sections, Timestamp(-7), place);
        let mut bytes = vec![0; len];
        write_value(&header, &sections, &mut bytes);
        bytes
    }

    fn payloads(jobs: &[Vec<u8>]) -> Payloads {
        jobs.iter().map(|job| &job[..]).collect()
    }

    fn a_job() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            2 => Just(Vec::new()),
            8 => prop::collection::vec(any::<u8>(), 0..200),
            4 => "(\\{\"id\":[0-9]{1,6},\"place\":\"(here|there)\"\\}){1,9}".prop_map(String::into_bytes),
            1 => (any::<u8>(), 100_000_usize..600_000).prop_map(|(byte, len)| vec![byte; len]),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_is_encoded_is_read_back(lists in prop::collection::vec(prop::collection::vec(a_job(), 0..40), 0..4)) {
            let blocks: Vec<_> = lists.iter().map(|jobs| Block::encode(&payloads(jobs))).collect();
            let all: Vec<_> = lists.concat();
            let bytes = value(&blocks.iter().collect::<Vec<_>>(), 3);
            let value = Value::parse(&bytes, 3).unwrap();
            prop_assert_eq!(value.jobs, all.len() as u64);
            prop_assert_eq!(value.time, Timestamp(-7));
            let mut read = Payloads::new();
            value.read(0, ALL, &mut read).unwrap();
            prop_assert_eq!(&read, &payloads(&all));
            for from in 0..all.len() {
                let mut read = Payloads::new();
                value.read(from as u64, Wanted { jobs: 3, bytes: 150 }, &mut read).unwrap();
                let expected = all[from..].iter().scan((0, 0), |(jobs, bytes), job| {
                    *bytes += job.len();
                    *jobs += 1;
                    (*jobs == 1 || *jobs <= 3 && *bytes <= 150).then_some(job)
                });
                prop_assert_eq!(read.iter().collect::<Vec<_>>(), expected.collect::<Vec<_>>());
            }
        }

        #[test]
        fn a_changed_byte_is_noticed(
            jobs in prop::collection::vec(a_job(), 1..20), at in any::<prop::sample::Index>(), change in 1_u8..,
        ) {
            let mut bytes = value(&[&Block::encode(&payloads(&jobs))], 3);
            let at = at.index(bytes.len());
            bytes[at] ^= change;
            let read = Value::parse(&bytes, 3).and_then(|value| value.read(0, ALL, &mut Payloads::new()));
            prop_assert!(read.is_err());
        }

        #[test]
        fn noise_is_no_value(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(Value::parse(&bytes, 3).is_err());
        }
    }

    #[test]
    fn a_value_in_the_wrong_place_is_noticed() {
        let bytes = value(&[&Block::encode(&payloads(&[b"1".to_vec()]))], 3);
        assert_eq!(Value::parse(&bytes, 4).unwrap_err(), "the checksum of its header is wrong");
    }

    #[test]
    fn jobs_are_compressed_where_that_pays() {
        let alike =
            Block::encode(&payloads(&vec![br#"{"kind":"earthquake","magnitude":4.5}"#.to_vec(); 100]));
        assert!(alike.stored_len() < 1_000, "{}", alike.stored_len());
        let noise: Vec<u8> =
            (0..1_000_u32).flat_map(|n| XxHash3_64::oneshot(&n.to_le_bytes()).to_le_bytes()).collect();
        assert_eq!(Block::encode(&payloads(&[noise])).stored_len(), 8_000 + 2);
    }

    #[test]
    fn many_jobs_are_cut_into_sections_and_a_large_one_is_not() {
        let many = Block::encode(&payloads(&vec![vec![b'x'; 1_000]; 1_000]));
        assert_eq!(many.sections().len(), 4);
        assert!(many.sections().iter().all(|section| section.raw_len() <= VALUE_RAW_BYTES_MAX));
        let large = Block::encode(&payloads(&[vec![b'x'; 1 << 20]]));
        assert_eq!(large.sections().len(), 1);
    }
}
