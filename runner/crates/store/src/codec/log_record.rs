//! `Value`: the jobs of one commit, as the log holds them.
//!
//! The sections of a value are described in [`super::block`]. Numbers are little-endian, or LEB128 if marked
//! varint.
//!
//! ```text
//! value    checksum u64 | version u8 = 2 | time i64 | transaction varint | jobs varint
//!          | sections varint | section header … | section body …
//! ```
//!
//! `time` is the time of the commit in milliseconds since the Unix epoch, and `transaction` its number, which
//! version 1 did not keep. The checksum is XXH3-64 over the bytes after it up to the bodies. It is seeded
//! with the place of the value in the log, so that a misplaced value is noticed.

use std::ops::Range;

use twox_hash::XxHash3_64;

use super::block::{DecodedJobs, FoundJob, ReadBounds, Section, SectionHeader, Sought};
use super::bytes::{Bytes, Wrong, put_varint};
use tidegate_model::{Stamp, Timestamp};

const VERSION: u8 = 2;
/// Checksum, version, time.
const FIXED_BYTES: usize = 8 + 1 + 8;

/// A value of the log whose header has been checked.
#[derive(Debug)]
pub(crate) struct LogValue<'a> {
    pub(crate) jobs: u64,
    pub(crate) time: Timestamp,
    pub(crate) transaction: u64,
    sections: Vec<(SectionHeader, &'a [u8])>,
}

/// The header of a value that is about to be written, and the length of the whole value.
pub(crate) fn value_header(
    sections: &[&Section],
    time: Timestamp,
    transaction: u64,
    place: u64,
) -> (Vec<u8>, usize) {
    let jobs: usize = sections.iter().map(|section| section.jobs()).sum();
    let mut header = Vec::with_capacity(FIXED_BYTES + 16 + sections.len() * 20);
    header.extend_from_slice(&[0; 8]);
    header.push(VERSION);
    header.extend_from_slice(&time.0.to_le_bytes());
    put_varint(&mut header, transaction);
    put_varint(&mut header, jobs as u64);
    put_varint(&mut header, sections.len() as u64);
    for section in sections {
        section.header().put(&mut header);
    }
    let checksum = XxHash3_64::oneshot_with_seed(place, &header[8..]);
    header[..8].copy_from_slice(&checksum.to_le_bytes());
    let bodies: usize = sections.iter().map(|section| section.body().len()).sum();
    let len = header.len() + bodies;
    (header, len)
}

/// Fills `out`, whose length is the one that [`value_header`] returned.
pub(crate) fn write_value(header: &[u8], sections: &[&Section], out: &mut [u8]) {
    let bodies = sections.iter().map(|section| section.body());
    let mut at = 0;
    for piece in std::iter::once(header).chain(bodies) {
        out[at..at + piece.len()].copy_from_slice(piece);
        at += piece.len();
    }
}

impl<'a> LogValue<'a> {
    /// Parses the value that is at `place`.
    pub(crate) fn parse(bytes: &'a [u8], place: u64) -> Result<Self, Wrong> {
        let mut rest = Bytes(bytes);
        let checksum = rest.u64()?;
        let version = rest.u8()?;
        if !(1..=VERSION).contains(&version) {
            return Err("its version is unknown");
        }
        let time = Timestamp(rest.u64()?.cast_signed());
        let transaction = if version == 1 { 0 } else { rest.varint()? };
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
            sections.push((header, rest.take(header.body_len())?));
        }
        if !rest.0.is_empty() {
            return Err("it is longer than its header declares");
        }
        Ok(Self { jobs, time, transaction, sections })
    }

    /// Appends jobs to `out`, from the one at `position` (from 0) on, until `out` reaches the limit. At least
    /// one job if `out` is empty.
    pub(crate) fn read(&self, position: u64, wanted: ReadBounds, out: &mut DecodedJobs) -> Result<(), Wrong> {
        let start = out.payloads.len();
        let read = self.read_sections(position, wanted, out);
        let last_stamp = out.stamps.last().map(|last| (last.time, last.transaction));
        if out.payloads.len() > start && last_stamp != Some((self.time, self.transaction)) {
            out.stamps.push(Stamp { position: start, time: self.time, transaction: self.transaction });
        }
        read
    }

    /// Passes on the jobs at `positions` (from 0) that match.
    pub(crate) fn find(
        &self,
        positions: Range<u64>,
        sought: Sought<'_>,
        found: &mut dyn FnMut(FoundJob<'_>),
    ) -> Result<(), Wrong> {
        // A position past the end of memory is past the end of every value.
        let position = |position| usize::try_from(position).unwrap_or(usize::MAX);
        let (start, end) = (position(positions.start), position(positions.end));
        let mut first = 0_usize;
        for (header, body) in &self.sections {
            let next = first.saturating_add(header.jobs());
            if start < next && first < end {
                let range = start.saturating_sub(first)..end - first;
                header.find(body, range, sought, &mut |(at, payload, origin)| {
                    found((first + at, payload, origin));
                })?;
            }
            first = next;
        }
        Ok(())
    }

    fn read_sections(&self, position: u64, wanted: ReadBounds, out: &mut DecodedJobs) -> Result<(), Wrong> {
        // A position past the end of memory is past the end of every value.
        let mut skip = usize::try_from(position).unwrap_or(usize::MAX);
        for (header, body) in &self.sections {
            if skip >= header.jobs() {
                skip -= header.jobs();
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_plugin::Payloads;

    use super::super::block::Block;
    use super::*;
    use crate::codec::job_metadata::Details;
    use tidegate_model::{Address, Origin, Origins};

    const ALL: ReadBounds = ReadBounds { jobs: usize::MAX, bytes: usize::MAX };

    /// A job, its carried provenance, and the indices of the two inputs that it was made from.
    type Job = (Vec<u8>, Vec<u8>, [u64; 2]);

    fn value(blocks: &[&Block], place: u64) -> Vec<u8> {
        let sections: Vec<_> = blocks.iter().flat_map(|block| block.sections()).collect();
        let (header, len) = value_header(&sections, Timestamp(-7), 300, place);
        let mut bytes = vec![0; len];
        write_value(&header, &sections, &mut bytes);
        bytes
    }

    fn payloads<'a>(jobs: impl IntoIterator<Item = &'a Vec<u8>>) -> Payloads {
        jobs.into_iter().map(|job| &job[..]).collect()
    }

    fn a_job() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            2 => Just(Vec::new()),
            8 => prop::collection::vec(any::<u8>(), 0..200),
            4 => "(\\{\"id\":[0-9]{1,6},\"place\":\"(here|there)\"\\}){1,9}".prop_map(String::into_bytes),
            1 => (any::<u8>(), 100_000_usize..600_000).prop_map(|(byte, len)| vec![byte; len]),
        ]
    }

    fn a_detailed_job() -> impl Strategy<Value = Job> {
        let carried = prop_oneof![Just(Vec::new()), prop::collection::vec(any::<u8>(), 0..50)];
        let index = prop_oneof![Just(0), 1_u64..50, any::<u64>()];
        (a_job(), carried, [index.clone(), index])
    }

    fn step(number: usize) -> Address {
        Address::parse(["a/one", "b/two"][number % 2]).unwrap()
    }

    /// Encodes each list with the details that its number selects.
    fn detailed(lists: &[Vec<Job>]) -> Vec<Block> {
        let encode = |(number, list): (usize, &Vec<Job>)| {
            let mut origins = Origins::new(step(number), vec!["x".into(), "y".into()]);
            for job in list {
                origins.push(&job.2);
            }
            let carried = payloads(list.iter().map(|job| &job.1));
            let details = Details {
                origins: (number != 1).then_some(&origins),
                carried: (number != 2).then_some(&carried),
            };
            Block::encode(&payloads(list.iter().map(|job| &job.0)), details)
        };
        lists.iter().enumerate().map(encode).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_is_encoded_is_read_back(lists in prop::collection::vec(prop::collection::vec(a_job(), 0..40), 0..4)) {
            let blocks: Vec<_> =
                lists.iter().map(|jobs| Block::encode(&payloads(jobs), Details::default())).collect();
            let all: Vec<_> = lists.concat();
            let bytes = value(&blocks.iter().collect::<Vec<_>>(), 3);
            let value = LogValue::parse(&bytes, 3).unwrap();
            prop_assert_eq!((value.jobs, value.time, value.transaction), (all.len() as u64, Timestamp(-7), 300));
            let mut read = DecodedJobs::default();
            value.read(0, ALL, &mut read).unwrap();
            prop_assert_eq!(&read.payloads, &payloads(&all));
            prop_assert!(read.carried.is_none());
            for from in 0..all.len() {
                let mut read = DecodedJobs::default();
                value.read(from as u64, ReadBounds { jobs: 3, bytes: 150 }, &mut read).unwrap();
                let expected = all[from..].iter().scan((0, 0), |(jobs, bytes), job| {
                    *bytes += job.len();
                    *jobs += 1;
                    (*jobs == 1 || *jobs <= 3 && *bytes <= 150).then_some(job)
                });
                prop_assert_eq!(read.payloads.iter().collect::<Vec<_>>(), expected.collect::<Vec<_>>());
                prop_assert_eq!(read.stamps.len(), 1);
            }
        }

        #[test]
        fn details_are_read_back(
            lists in prop::collection::vec(prop::collection::vec(a_detailed_job(), 0..20), 0..4),
        ) {
            let blocks = detailed(&lists);
            let bytes = value(&blocks.iter().collect::<Vec<_>>(), 3);
            let value = LogValue::parse(&bytes, 3).unwrap();
            let mut expected = Vec::new();
            for (number, list) in lists.iter().enumerate() {
                for (payload, carried, [x, y]) in list {
                    let inputs = vec![("x".to_owned(), *x), ("y".to_owned(), *y)];
                    let origin = (number != 1).then(|| Origin::new(step(number), inputs));
                    let carried = if number == 2 { &[][..] } else { carried };
                    expected.push((&payload[..], carried, origin));
                }
            }
            for from in 0..expected.len() {
                let mut read = DecodedJobs::with_origins();
                value.read(from as u64, ReadBounds { jobs: 5, bytes: usize::MAX }, &mut read).unwrap();
                let (origins, carried) = (read.origins.unwrap(), read.carried);
                let expected = &expected[from..expected.len().min(from + 5)];
                prop_assert_eq!((read.payloads.len(), origins.len()), (expected.len(), expected.len()));
                prop_assert!(carried.as_ref().is_none_or(|carried| carried.len() == expected.len()));
                for (position, (payload, text, origin)) in expected.iter().enumerate() {
                    prop_assert_eq!(read.payloads.get(position), Some(*payload));
                    let found = carried.as_ref().and_then(|carried| carried.get(position)).unwrap_or_default();
                    prop_assert_eq!(found, *text);
                    prop_assert_eq!(&origins[position], origin);
                }
            }
        }

        #[test]
        fn a_changed_byte_is_noticed(
            jobs in prop::collection::vec(a_detailed_job(), 1..20), at in any::<prop::sample::Index>(), change in 1_u8..,
        ) {
            let mut bytes = value(&detailed(&[jobs]).iter().collect::<Vec<_>>(), 3);
            let at = at.index(bytes.len());
            bytes[at] ^= change;
            let read = LogValue::parse(&bytes, 3).and_then(|value| value.read(0, ALL, &mut DecodedJobs::with_origins()));
            prop_assert!(read.is_err());
        }

        #[test]
        fn noise_is_no_value(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(LogValue::parse(&bytes, 3).is_err());
        }
    }

    #[test]
    fn a_value_in_the_wrong_place_is_noticed() {
        let block = Block::encode(&payloads(&[b"1".to_vec()]), Details::default());
        let bytes = value(&[&block], 3);
        assert_eq!(LogValue::parse(&bytes, 4).unwrap_err(), "the checksum of its header is wrong");
    }
}
