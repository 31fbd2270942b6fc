//! `Bytes`: reads numbers and texts from bytes that may be damaged, and writes them.

/// The error in some bytes; a sentence fragment.
pub(crate) type Wrong = &'static str;

/// As LEB128: seven bits per byte, the lowest first.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// The length, as varint, and the bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// The wrapping difference from `from` to `to`, as a small number for small steps in either direction.
pub(crate) fn zigzag(from: u64, to: u64) -> u64 {
    let step = to.wrapping_sub(from).cast_signed();
    (step << 1 ^ step >> 63).cast_unsigned()
}

/// The number that is `zigzag` away from `from`.
pub(crate) fn add_zigzag(from: u64, zigzag: u64) -> u64 {
    from.wrapping_add(zigzag >> 1 ^ (zigzag & 1).wrapping_neg())
}

/// The bytes that are left to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Wrong> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or("it is cut short")?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Wrong> {
        let (taken, rest) = self.0.split_first().ok_or("it is cut short")?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Wrong> {
        let (taken, rest) = self.0.split_first_chunk().ok_or("it is cut short")?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*taken))
    }

    pub(crate) fn varint(&mut self) -> Result<u64, Wrong> {
        let mut number = 0;
        for (position, &byte) in self.0.iter().enumerate().take(10) {
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has space for one bit.
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

    pub(crate) fn length(&mut self) -> Result<usize, Wrong> {
        usize::try_from(self.varint()?).map_err(|_| "a length is larger than memory")
    }

    /// Reads the bytes that [`put_bytes`] wrote.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Wrong> {
        let len = self.length()?;
        self.take(len)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Wrong> {
        std::str::from_utf8(self.bytes()?).map_err(|_| "a text in it is not UTF-8")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_and_texts_come_back(number in any::<u64>(), from in any::<u64>(), text in ".{0,200}") {
            let mut out = Vec::new();
            put_varint(&mut out, number);
            put_bytes(&mut out, text.as_bytes());
            put_varint(&mut out, zigzag(from, number));
            let mut bytes = Bytes(&out);
            prop_assert_eq!(bytes.varint().unwrap(), number);
            prop_assert_eq!(bytes.text().unwrap(), text);
            prop_assert_eq!(add_zigzag(from, bytes.varint().unwrap()), number);
            prop_assert!(bytes.u8().is_err());
        }
    }

    #[test]
    fn a_small_step_is_a_small_number() {
        let steps = [(7, 7), (7, 8), (8, 7), (7, 9), (u64::MAX, 0)];
        assert_eq!(steps.map(|(from, to)| zigzag(from, to)), [0, 2, 1, 4, 2]);
    }
}
