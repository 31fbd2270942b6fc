//! Bytes of the write-ahead log: a header, and behind it one frame for each commit.
//!
//! ```text
//! header  "tgwal 2\n" | store u64 | generation u64 | salt u64 | checksum u64
//! frame   length of the record u32 | mark u32 | number of the commit u64 | checksum u64 | packed record
//! ```
//!
//! A log of stores before version 13 begins with "tgwal 1\n", and its records are not packed.
//!
//! Numbers are little-endian. The mark is the same in all frames of a log, and another in each log. The checksum of a frame
//! is XXH3-64 over the record. Its seed depends on the log, the place, the length and the number. The first write to a log has
//! the header and the first frame. Behind the last frame are zeros, or bytes of earlier logs.
//!
//! A frame is written when the one before it is durable. So only the last frame of a log can be incomplete after a crash,
//! and its commit was not acknowledged. A frame behind an invalid one proves that the file is damaged.

use std::ops::Range;

use twox_hash::XxHash3_64;

use super::record::packed::PACKED_BYTES_MAX;
use super::state::{WalId, WalState};
use crate::database::format::{u32_at, u64_at};

const MAGIC: [u8; 8] = *b"tgwal 2\n";
const OLD_MAGIC: [u8; 8] = *b"tgwal 1\n";
pub(crate) const HEADER_BYTES: usize = MAGIC.len() + WalId::BYTES + 8;
pub(crate) const FRAME_HEAD_BYTES: usize = 24;

/// A commit in the log, and the range of its record.
pub(crate) type FoundCommit = (u64, Range<usize>);

/// The commits of a log, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundCommits {
    pub(crate) commits: Vec<FoundCommit>,
    pub(crate) are_packed: bool,
}

/// The reason why a log cannot be used. A sentence fragment about the file.
pub(crate) type Problem = String;

pub(crate) fn header(id: WalId) -> Vec<u8> {
    header_with(MAGIC, id)
}

fn header_with(magic: [u8; 8], id: WalId) -> Vec<u8> {
    let mut header = [&magic[..], &id.to_bytes()].concat();
    header.extend_from_slice(&XxHash3_64::oneshot(&header).to_le_bytes());
    header
}

/// The log that a file begins with, and whether its records are packed; `None` if its header is missing or incomplete.
fn parse_header(bytes: &[u8]) -> Option<(WalId, bool)> {
    let id = WalId::of_bytes(bytes.get(MAGIC.len()..HEADER_BYTES)?);
    let forms = [(MAGIC, true), (OLD_MAGIC, false)];
    let form = forms.into_iter().find(|(magic, _)| bytes.starts_with(&header_with(*magic, id)));
    form.map(|(_, are_packed)| (id, are_packed))
}

/// The frame of commit `number` at the offset `at`.
pub(crate) fn frame(id: WalId, at: u64, number: u64, record: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(FRAME_HEAD_BYTES + record.len());
    // At most `PACKED_BYTES_MAX`.
    let len = u32::try_from(record.len()).unwrap_or(u32::MAX);
    frame.extend_from_slice(&len.to_le_bytes());
    frame.extend_from_slice(&mark(id.seed()).to_le_bytes());
    frame.extend_from_slice(&number.to_le_bytes());
    frame.extend_from_slice(&checksum(id.seed(), at, number, record).to_le_bytes());
    frame.extend_from_slice(record);
    frame
}

fn mark(seed: u64) -> u32 {
    let [a, b, c, d, ..] = seed.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

fn checksum(seed: u64, at: u64, number: u64, record: &[u8]) -> u64 {
    let place = [seed, at, number, record.len() as u64].map(u64::to_le_bytes).concat();
    XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot(&place), record)
}

/// The commit of the frame at `at`, if that is valid.
fn parse_frame(bytes: &[u8], seed: u64, at: usize) -> Option<FoundCommit> {
    let head = bytes.get(at..at.checked_add(FRAME_HEAD_BYTES)?)?;
    let (len, number) = (u32_at(head, 0) as usize, u64_at(head, 8));
    if u32_at(head, 4) != mark(seed) || len > PACKED_BYTES_MAX {
        return None;
    }
    let range = at + FRAME_HEAD_BYTES..at + FRAME_HEAD_BYTES + len;
    let record = bytes.get(range.clone())?;
    (checksum(seed, at as u64, number, record) == u64_at(head, 16)).then_some((number, range))
}

/// The commits behind commit `durable`, which is the last one in the store, in order. `bytes` are the whole file, or
/// its header if the log is not open.
///
/// An incomplete last frame is left out, and so is everything of an earlier log.
pub(crate) fn commits(bytes: &[u8], state: WalState, durable: u64) -> Result<FoundCommits, Problem> {
    let WalState { id, is_open } = state;
    let (found, are_packed) = parse_header(bytes).unzip();
    match found {
        Some(found) if found.store != id.store => {
            return Err("belongs to another store; move it to that store".into());
        }
        Some(found)
            if found.generation > id.generation || found.generation == id.generation && found != id =>
        {
            return Err(
                "is newer than the store: it has commits behind a later state of the store; restore that state \
                 of the store, or remove the log to go on without these commits"
                    .into(),
            );
        }
        _ if !is_open => return Ok(FoundCommits::default()),
        // The file of a log is filled with zeros before the first commit of an opening is in it.
        Some(found) if found.generation < id.generation && found.salt != id.salt => {
            return Err(format!(
                "is older than the store, which has a later log; restore that log, or replace this one by an empty \
                 file to go on with commit {durable}: later commits are lost then"
            ));
        }
        _ => {}
    }
    let (mut commits, mut at) = (Vec::new(), HEADER_BYTES);
    let mut next = None;
    if found == Some(id) {
        while let Some((number, range)) = parse_frame(bytes, id.seed(), at) {
            if next.is_some_and(|next| number != next) {
                break;
            }
            next = Some(number + 1);
            at = range.end;
            commits.push((number, range));
        }
    }
    let next = next.unwrap_or(durable + 1);
    if let Some(later) = later_commit(bytes, id.seed(), at, next) {
        return Err(format!(
            "is damaged at byte {at}: commit {next} cannot be read, and commit {later} behind it can; restore a \
             copy of the store and its log, or replace the log by an empty file to go on with commit {durable}: \
             later commits are lost then"
        ));
    }
    commits.retain(|(number, _)| *number > durable);
    match commits.first() {
        Some((first, _)) if *first > durable + 1 => Err(format!(
            "does not follow the store: its first commit is {first}, and the last commit of the store is \
             {durable}; restore a copy of the store and its log"
        )),
        _ => Ok(FoundCommits { commits, are_packed: are_packed.unwrap_or(true) }),
    }
}

/// A valid frame of a commit behind `next`, at or behind `at`.
fn later_commit(bytes: &[u8], seed: u64, at: usize, next: u64) -> Option<u64> {
    let mark = mark(seed).to_le_bytes();
    let rest = bytes.get(at..)?;
    let marks = rest.windows(mark.len()).enumerate().skip(4).filter(|(_, window)| *window == mark);
    let mut frames = marks.filter_map(|(position, _)| parse_frame(bytes, seed, at + position - 4));
    frames.find_map(|(number, _)| (number > next).then_some(number))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: WalId = WalId { store: 7, generation: 3, salt: 5 };
    const OPEN: WalState = WalState { id: ID, is_open: true };

    /// A log with these records, of commits from `first` on, over the bytes of an earlier one.
    fn log(id: WalId, first: u64, records: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = header(id);
        for (number, record) in (first..).zip(records) {
            let frame = frame(id, bytes.len() as u64, number, record);
            bytes.extend_from_slice(&frame);
        }
        bytes
    }

    fn over(log: &[u8], earlier: &[u8]) -> Vec<u8> {
        let mut bytes = earlier.to_vec();
        bytes.resize(bytes.len().max(log.len()), 0);
        bytes[..log.len()].copy_from_slice(log);
        bytes
    }

    fn numbers(bytes: &[u8], durable: u64) -> Result<Vec<u64>, Problem> {
        Ok(commits(bytes, OPEN, durable)?.commits.into_iter().map(|(number, _)| number).collect())
    }

    fn records() -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6)
    }

    proptest! {
        #[test]
        fn what_is_written_is_found_over_an_earlier_log(records in records(), earlier in records(), durable in 10_u64..17) {
            let earlier = log(WalId { generation: 2, ..ID }, 4, &earlier);
            let bytes = over(&log(ID, 11, &records), &earlier);
            let found = commits(&bytes, OPEN, durable).unwrap().commits;
            let expected: Vec<_> = (11..).zip(&records).filter(|(number, _)| *number > durable).collect();
            let found: Vec<_> = found.into_iter().map(|(number, range)| (number, bytes[range].to_vec())).collect();
            let expected: Vec<_> = expected.into_iter().map(|(number, record)| (number, record.clone())).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn a_log_that_ends_at_any_byte_ends_with_its_last_whole_frame(records in records(), earlier in records()) {
            let earlier = log(WalId { generation: 2, ..ID }, 4, &earlier);
            let whole = log(ID, 11, &records);
            let mut ends = vec![HEADER_BYTES];
            for record in &records {
                ends.push(ends[ends.len() - 1] + FRAME_HEAD_BYTES + record.len());
            }
            for end in 0..whole.len() {
                let expected: Vec<u64> = (11..).zip(&ends[1..]).filter(|(_, at)| **at <= end).map(|(number, _)| number).collect();
                // Cut off, or followed by zeros, or by the bytes of an earlier log.
                let mut zeros = whole[..end].to_vec();
                zeros.resize(whole.len(), 0);
                for bytes in [whole[..end].to_vec(), zeros, over(&whole[..end], &earlier)] {
                    let found = numbers(&bytes, 10).unwrap();
                    // The missing bytes of a frame may be there already.
                    let is_whole = bytes.starts_with(&whole[..ends[found.len()]]);
                    prop_assert!(found == expected || found.len() > expected.len() && is_whole, "{}", end);
                }
            }
        }

        #[test]
        fn damage_before_an_intact_frame_is_noticed_and_never_read(
            records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 2..6),
            at in any::<prop::sample::Index>(), change in 1_u8..,
        ) {
            let mut bytes = log(ID, 11, &records);
            let last = bytes.len() - records[records.len() - 1].len() - FRAME_HEAD_BYTES;
            let at = at.index(bytes.len());
            bytes[at] ^= change;
            match commits(&bytes, OPEN, 10) {
                Ok(found) => {
                    prop_assert!(at >= last || at < HEADER_BYTES, "{at}");
                    prop_assert_eq!(found.commits.len(), records.len() - 1);
                }
                Err(problem) if at < HEADER_BYTES => prop_assert!(problem.contains("damaged") || problem.contains("store"), "{}", problem),
                Err(problem) => prop_assert!(problem.contains("damaged at byte"), "{}", problem),
            }
        }

        #[test]
        fn noise_is_an_empty_log(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(commits(&bytes, OPEN, 10).unwrap().commits, []);
        }
    }

    fn problem(state: WalState, durable: u64) -> Problem {
        commits(&log(ID, 11, &[vec![1], vec![2]]), state, durable).unwrap_err()
    }

    #[test]
    fn a_log_of_another_store_or_of_a_later_state_is_refused() {
        let bytes = log(ID, 11, &[vec![1], vec![2]]);
        for is_open in [true, false] {
            let state = |id| WalState { id, is_open };
            let foreign = state(WalId { store: 8, ..ID });
            assert_eq!(problem(foreign, 10), "belongs to another store; move it to that store");
            for id in [WalId { generation: 2, ..ID }, WalId { salt: 6, ..ID }] {
                assert!(problem(state(id), 10).starts_with("is newer than the store"));
            }
            // It is obsolete.
            assert_eq!(commits(&bytes, state(WalId { generation: 4, ..ID }), 12).unwrap().commits, []);
            let later = commits(&bytes, state(WalId { generation: 4, salt: 9, ..ID }), 12);
            assert_eq!(later.is_err_and(|problem| problem.starts_with("is older than the store")), is_open);
        }
        assert!(problem(OPEN, 9).starts_with("does not follow the store: its first commit is 11"));
    }

    #[test]
    fn a_missing_header_before_intact_frames_is_damage() {
        let mut bytes = log(ID, 11, &[vec![1], vec![2], vec![3]]);
        bytes[..HEADER_BYTES].fill(0);
        assert!(
            numbers(&bytes, 10).unwrap_err().starts_with("is damaged at byte 40: commit 11 cannot be read")
        );
    }

    #[test]
    fn a_log_of_an_earlier_version_is_read_and_its_records_are_not_packed() {
        let mut bytes = log(ID, 11, &[vec![1], vec![2]]);
        assert!(commits(&bytes, OPEN, 10).unwrap().are_packed);
        bytes[..HEADER_BYTES].copy_from_slice(&header_with(OLD_MAGIC, ID));
        let found = commits(&bytes, OPEN, 10).unwrap();
        assert_eq!((found.commits.len(), found.are_packed), (2, false));
    }
}
