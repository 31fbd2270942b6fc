//! `Suspect`: a cell of the attempts file, with jobs and the number of crashes in a row during their
//! attempts.
//!
//! ```text
//! cell  checksum u64 | origin u128 | first u64 | jobs u64 | crashes u32 | exact u32 | step u64 | zeros
//! ```
//!
//! Numbers are little-endian; the checksum is XXH3-64 over the bytes that follow it, seeded with the version.
//! Bytes with another checksum are no cell: the cell was cleared, its write was interrupted, or another
//! version wrote it.

use twox_hash::XxHash3_64;

use super::span::AttemptSpan;

pub(crate) const CELL_BYTES: usize = 64;

const VERSION: u64 = 1;

/// Jobs that were being attempted when the process died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Suspect {
    pub(crate) span: AttemptSpan,
    /// Number of deaths in a row during their attempts. In a worker's cell, it includes the death that may
    /// follow.
    pub(crate) crashes: u32,
    /// The worker attempted nothing else: the suspect is this job, not only its batch.
    pub(crate) exact: bool,
}

pub(crate) fn encode(suspect: &Suspect) -> [u8; CELL_BYTES] {
    let Suspect { span: AttemptSpan { origin, step, first, jobs }, crashes, exact } = suspect;
    let mut cell = [0; CELL_BYTES];
    cell[8..24].copy_from_slice(&origin.to_le_bytes());
    cell[24..32].copy_from_slice(&first.to_le_bytes());
    cell[32..40].copy_from_slice(&jobs.to_le_bytes());
    cell[40..44].copy_from_slice(&crashes.to_le_bytes());
    cell[44..48].copy_from_slice(&u32::from(*exact).to_le_bytes());
    cell[48..56].copy_from_slice(&step.to_le_bytes());
    let checksum = XxHash3_64::oneshot_with_seed(VERSION, &cell[8..]);
    cell[..8].copy_from_slice(&checksum.to_le_bytes());
    cell
}

/// All suspects in the bytes of a file.
pub(crate) fn decode_all(bytes: &[u8]) -> Vec<Suspect> {
    bytes.as_chunks().0.iter().filter_map(decode).collect()
}

fn decode(cell: &[u8; CELL_BYTES]) -> Option<Suspect> {
    let (checksum, body) = cell.split_first_chunk()?;
    // Most of a file is zeros.
    if *checksum == [0; 8] || XxHash3_64::oneshot_with_seed(VERSION, body) != u64::from_le_bytes(*checksum) {
        return None;
    }
    let (origin, rest) = body.split_first_chunk()?;
    let (first, rest) = rest.split_first_chunk()?;
    let (jobs, rest) = rest.split_first_chunk()?;
    let (crashes, rest) = rest.split_first_chunk()?;
    let (exact, rest) = rest.split_first_chunk()?;
    let (step, _) = rest.split_first_chunk()?;
    let span = AttemptSpan {
        origin: u128::from_le_bytes(*origin),
        step: u64::from_le_bytes(*step),
        first: u64::from_le_bytes(*first),
        jobs: u64::from_le_bytes(*jobs),
    };
    Some(Suspect { span, crashes: u32::from_le_bytes(*crashes), exact: u32::from_le_bytes(*exact) != 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUSPECT: Suspect = Suspect {
        span: AttemptSpan { origin: u128::MAX - 3, step: 5, first: 7, jobs: 1024 },
        crashes: 2,
        exact: true,
    };

    #[test]
    fn a_cell_gives_back_what_was_put_in() {
        let inexact = Suspect { exact: false, ..SUSPECT };
        let bytes = [encode(&SUSPECT), [0; CELL_BYTES], encode(&inexact)].concat();
        assert_eq!(decode_all(&bytes), [SUSPECT, inexact]);
    }

    #[test]
    fn what_is_torn_damaged_or_cut_off_is_no_cell() {
        let whole = encode(&SUSPECT);
        for at in 0..CELL_BYTES {
            let mut damaged = whole;
            damaged[at] ^= 4;
            assert_eq!(decode_all(&damaged), [], "byte {at}");
            assert_eq!(decode_all(&whole[..at]), [], "cut at {at}");
        }
    }
}
