//! `Seals`: sealed frames, so that no other bytes of a plugin's process are accepted by the runner.
//!
//! Code of a plugin can write to any descriptor of its process. Each frame therefore has checksums that
//! depend on a random number of the process and on the position of the frame in its stream. Other bytes, and
//! repeated frames, are an error and never an answer.
//!
//! ```text
//! frame  length u64 | checksum of the length u64 | content | checksum of the content u64
//! word   kind u8 | checksum u64
//! ```
//!
//! Numbers are little-endian; checksums are XXH3-64. The seal guards against accidents: a malicious plugin
//! can read the random number in the memory of its process.

use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read};

use twox_hash::XxHash3_64;

const HEADER: usize = 16;
const CHECKSUM: usize = 8;

/// Seals the frames of one stream, and verifies them on the other side, in order and each once.
#[derive(Debug)]
pub(crate) struct Seals {
    key: u64,
    next: u64,
}

/// A random number for a process.
pub(crate) fn random_key() -> u64 {
    RandomState::new().hash_one(0)
}

impl Seals {
    /// `row` identifies a stream of the process.
    pub(crate) fn new(key: u64, row: u64) -> Self {
        Self { key: XxHash3_64::oneshot_with_seed(key, &row.to_le_bytes()), next: 0 }
    }

    fn checksum(&self, bytes: &[u8]) -> [u8; CHECKSUM] {
        XxHash3_64::oneshot_with_seed(self.key.wrapping_add(self.next), bytes).to_le_bytes()
    }

    /// Appends the next frame; `write` appends its content.
    pub(crate) fn frame(&mut self, to: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        let start = to.len();
        to.extend_from_slice(&[0; HEADER]);
        write(to);
        let length = ((to.len() - start - HEADER) as u64).to_le_bytes();
        let (header, content) = (self.checksum(&length), self.checksum(&to[start + HEADER..]));
        to[start..start + 8].copy_from_slice(&length);
        to[start + 8..start + HEADER].copy_from_slice(&header);
        to.extend_from_slice(&content);
        self.next += 1;
    }

    /// The content of the next frame, which is at the start of `bytes`, and the length of the frame. `None`
    /// if it is incomplete.
    pub(crate) fn open<'b>(&mut self, bytes: &'b [u8]) -> io::Result<Option<(&'b [u8], usize)>> {
        let Some((header, rest)) = bytes.split_at_checked(HEADER) else { return Ok(None) };
        let length = self.length(header)?;
        let Some((content, rest)) = rest.split_at_checked(length) else { return Ok(None) };
        let Some(checksum) = rest.first_chunk::<CHECKSUM>() else { return Ok(None) };
        if *checksum != self.checksum(content) {
            return Err(stray());
        }
        self.next += 1;
        Ok(Some((content, HEADER + length + CHECKSUM)))
    }

    /// As [`Self::open`], from a stream. `None` if it has ended, even within a frame.
    pub(crate) fn receive(&mut self, from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
        let mut header = [0; HEADER];
        if !fill(from, &mut header)? {
            return Ok(None);
        }
        let length = self.length(&header)?;
        let mut content = Vec::new();
        let sealed = length.checked_add(CHECKSUM).ok_or_else(stray)?;
        from.take(sealed as u64).read_to_end(&mut content)?;
        if content.len() < sealed {
            return Ok(None);
        }
        let checksum = content.split_off(length);
        if checksum != self.checksum(&content) {
            return Err(stray());
        }
        self.next += 1;
        Ok(Some(content))
    }

    fn length(&self, header: &[u8]) -> io::Result<usize> {
        let Some((length, checksum)) = header.split_first_chunk::<8>() else { return Err(stray()) };
        if checksum != self.checksum(length) {
            return Err(stray());
        }
        usize::try_from(u64::from_le_bytes(*length)).map_err(|_| stray())
    }

    /// The next word.
    pub(crate) fn word(&mut self, kind: u8) -> [u8; 1 + CHECKSUM] {
        let mut word = [kind; 1 + CHECKSUM];
        word[1..].copy_from_slice(&self.checksum(&[kind]));
        self.next += 1;
        word
    }

    /// The kind of the next word, which is `word`.
    pub(crate) fn kind(&mut self, word: [u8; 1 + CHECKSUM]) -> io::Result<u8> {
        let [kind, checksum @ ..] = word;
        if checksum != self.checksum(&[kind]) {
            return Err(stray());
        }
        self.next += 1;
        Ok(kind)
    }
}

fn stray() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "bytes that are not an answer")
}

/// Whether the stream had enough bytes.
fn fill(from: &mut impl Read, to: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(to) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sealed(contents: &[Vec<u8>]) -> Vec<u8> {
        let (mut seals, mut bytes) = (Seals::new(7, 1), Vec::new());
        for content in contents {
            seals.frame(&mut bytes, |to| to.extend_from_slice(content));
        }
        bytes
    }

    proptest! {
        #[test]
        fn frames_arrive_in_order_and_none_before_it_is_whole(
            contents in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..5),
            cut in any::<proptest::sample::Index>(),
        ) {
            let bytes = sealed(&contents);
            let (mut seals, mut stream, mut rest) = (Seals::new(7, 1), Seals::new(7, 1), &bytes[..]);
            let mut from = &bytes[..];
            for content in &contents {
                let (opened, length) = seals.open(rest).unwrap().unwrap();
                prop_assert_eq!(opened, &content[..]);
                rest = &rest[length..];
                let received = stream.receive(&mut from).unwrap();
                prop_assert_eq!(received.as_ref(), Some(content));
            }
            prop_assert_eq!(stream.receive(&mut from).unwrap(), None);
            let first = &bytes[..contents[0].len() + HEADER + CHECKSUM];
            prop_assert!(Seals::new(7, 1).open(&first[..cut.index(first.len())]).unwrap().is_none());
        }

        #[test]
        fn a_changed_byte_of_a_frame_is_found(
            content in proptest::collection::vec(any::<u8>(), 0..40),
            at in any::<proptest::sample::Index>(),
            change in 1_u8..,
        ) {
            let mut bytes = sealed(&[content]);
            let at = at.index(bytes.len());
            bytes[at] ^= change;
            prop_assert!(Seals::new(7, 1).open(&bytes).is_err());
            prop_assert!(Seals::new(7, 1).receive(&mut &bytes[..]).is_err());
        }
    }

    #[test]
    fn a_frame_of_another_process_row_or_place_is_none() {
        let bytes = sealed(&[b"one".to_vec()]);
        for mut seals in [Seals::new(8, 1), Seals::new(7, 2), Seals { next: 1, ..Seals::new(7, 1) }] {
            assert!(seals.open(&bytes).is_err());
        }
    }

    #[test]
    fn a_word_is_accepted_once_and_in_order() {
        let (mut ours, mut theirs) = (Seals::new(7, 0), Seals::new(7, 0));
        let first = theirs.word(1);
        assert_eq!(ours.kind(first).unwrap(), 1);
        assert!(ours.kind(first).is_err());
        assert_eq!(ours.kind(theirs.word(2)).unwrap(), 2);
        assert!(ours.kind([1; 9]).is_err());
    }

    #[test]
    fn a_frame_longer_than_any_is_none() {
        let seals = Seals::new(7, 1);
        for length in [u64::MAX, u64::MAX - 8, 1 << 62] {
            let mut bytes = length.to_le_bytes().to_vec();
            bytes.extend(seals.checksum(&length.to_le_bytes()));
            bytes.extend([0; 40]);
            assert!(!matches!(Seals::new(7, 1).receive(&mut &bytes[..]), Ok(Some(_))));
            assert!(!matches!(Seals::new(7, 1).open(&bytes), Ok(Some(_))));
        }
    }
}
