//! `Tail`: the last bytes of a file, by which a sink recognizes its own file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use twox_hash::XxHash3_64;

/// Number of bytes that identify a file.
const TAIL_BYTES: usize = 4096;

/// At most the last 4 KiB that were written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tail {
    bytes: Vec<u8>,
}

impl Tail {
    /// The tail of the bytes before `offset`.
    pub(crate) fn read(file: &File, offset: u64) -> io::Result<Self> {
        let len = usize::try_from(offset).unwrap_or(usize::MAX).min(TAIL_BYTES);
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, offset - len as u64)?;
        Ok(Self { bytes })
    }

    pub(crate) fn push(&mut self, written: &[u8]) {
        if written.len() >= TAIL_BYTES {
            self.bytes.clear();
            self.bytes.extend_from_slice(&written[written.len() - TAIL_BYTES..]);
        } else {
            let over = (self.bytes.len() + written.len()).saturating_sub(TAIL_BYTES);
            self.bytes.drain(..over);
            self.bytes.extend_from_slice(written);
        }
    }

    pub(crate) fn len(&self) -> u32 {
        // At most 4096.
        u32::try_from(self.bytes.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn hash(&self) -> u64 {
        XxHash3_64::oneshot(&self.bytes)
    }

    /// The file ends within a line.
    pub(crate) fn is_mid_line(&self) -> bool {
        self.bytes.last().is_some_and(|&last| last != b'\n')
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_tail_that_was_pushed_is_the_tail_that_is_read() {
        let mut file = tempfile::tempfile().unwrap();
        let mut tail = Tail::default();
        let mut offset = 0;
        for len in [0, 1, 100, 4000, 95, 1, 5000, 4096, 4095, 2] {
            let written: Vec<u8> = (0..len).map(|at| u8::try_from((at + len) % 251).unwrap()).collect();
            file.write_all(&written).unwrap();
            tail.push(&written);
            offset += written.len() as u64;
            assert_eq!(tail.bytes, Tail::read(&file, offset).unwrap().bytes);
        }
    }
}
