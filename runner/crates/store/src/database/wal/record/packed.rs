//! Packed records: compresses the records of the write-ahead log. The rows of a commit resemble each other, so a record of
//! many rows has a third of its bytes.
//!
//! ```text
//! packed  flag u8 | the record, if the flag is 0
//!                 | length of the record u32 | its lz4 block, if the flag is 1
//! ```

use std::borrow::Cow;

use super::RECORD_BYTES_MAX;
use crate::codec::block::{compress, decompress};
use crate::codec::bytes::Wrong;
use crate::database::format::u32_at;

/// Maximum bytes of a packed record: a record that is not compressed, and its flag.
pub(crate) const PACKED_BYTES_MAX: usize = RECORD_BYTES_MAX + 1;

/// Records below this size are written as they are: the disk writes a whole page in any case.
const PACK_BYTES_MIN: usize = 1 << 10;

const PLAIN: u8 = 0;
const COMPRESSED: u8 = 1;

/// `record` has at most [`RECORD_BYTES_MAX`].
pub(crate) fn pack(record: &[u8]) -> Vec<u8> {
    let body = if record.len() < PACK_BYTES_MIN { None } else { compress(record) };
    match body {
        None => [&[PLAIN], record].concat(),
        Some(body) => {
            // At most `RECORD_BYTES_MAX`.
            let len = u32::try_from(record.len()).unwrap_or(u32::MAX);
            [&[COMPRESSED], &len.to_le_bytes()[..], &body].concat()
        }
    }
}

/// The inverse of [`pack`].
pub(crate) fn unpack(packed: &[u8]) -> Result<Cow<'_, [u8]>, Wrong> {
    match packed.split_first() {
        Some((&PLAIN, record)) => Ok(Cow::Borrowed(record)),
        Some((&COMPRESSED, rest)) if rest.len() >= 4 => {
            let len = u32_at(rest, 0) as usize;
            if len > RECORD_BYTES_MAX {
                return Err("it is longer than a record can be");
            }
            Ok(Cow::Owned(decompress(&rest[4..], len)?))
        }
        _ => Err("the form of its bytes is unknown"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_record_is_the_same_after_it_was_packed(
            row in prop::collection::vec(any::<u8>(), 0..100), times in 0_usize..200, at in any::<prop::sample::Index>(),
            change in 1_u8..,
        ) {
            let record = row.repeat(times);
            let mut packed = pack(&record);
            prop_assert_eq!(&*unpack(&packed).unwrap(), &record[..]);
            prop_assert!(packed.len() <= record.len() + 1);
            // Damage is an error or other bytes, and no panic.
            let at = at.index(packed.len());
            packed[at] ^= change;
            let _ = unpack(&packed);
            let _ = unpack(&packed[..at]);
        }
    }

    #[test]
    fn a_record_of_rows_that_resemble_each_other_has_a_third_of_its_bytes() {
        let rows = (0..200_u32).map(|id| {
            format!(
                "{{\"id\":{id},\"customer\":{},\"note\":\"the service has answered 503\"}}",
                id * 7919 % 1000
            )
        });
        let record = rows.collect::<String>().into_bytes();
        let packed = pack(&record);
        assert!(packed.len() < record.len() / 3, "{} of {}", packed.len(), record.len());
        let small = &record[..PACK_BYTES_MIN - 1];
        assert_eq!(pack(small).len(), small.len() + 1);
        assert_eq!(unpack(&[2, 0, 0]), Err("the form of its bytes is unknown"));
        assert_eq!(unpack(&[1, 0, 0, 16, 0, 9]), Err("it is longer than a record can be"));
    }
}
